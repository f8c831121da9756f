/* tflite_batch.c - networks of a .tflite file for any batch.
 *
 * Files have the shapes of a batch of 1, sometimes with a signature in which it is open. Here the values that have the
 * batch as first dimension are followed through the nodes. A shape that a Reshape is told then must not have the 1 of
 * the batch in it:
 *  - its first number becomes 0, ONNX's sign for the size that the operand has there, if that is the same number;
 *  - else -1, where no other number is -1: [1, 25, 5, 64] to [125, 64] becomes [-1, 64], for any batch.
 * If an operator does not keep the batch first (a Transpose that moves it, a mean over it, a Concat along it, ...), the
 * network stays as the file has it, for the batch in the file's shapes. */
#include "program/tflite/tflite_reader.h"

#ifdef FL_HAVE_TFLITE
#include "core/base/fail.h"
#include <string.h>

static bool is_one_of(const char *op, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(op, *list))
            return true;
    return false;
}

/* The integers that a translation made for a node. */
static const int64_t *told(const struct fl_network *n, const struct fl_net_node *node, int i, int64_t *count) {
    const struct fl_array *const a = n->values[node->inputs[i]].constant;
    *count = a->count;
    return a->data;
}

static bool has_zero(const struct fl_network *n, const struct fl_net_node *node, int i) {
    int64_t count;
    const int64_t *const list = told(n, node, i, &count);
    for (int64_t k = 0; k < count; k++)
        if (!list[k])
            return true;
    return false;
}

/* What the first number of a told shape becomes; -2: none would do. */
static int64_t first_of_shape(const struct fl_network *n, const struct fl_net_node *node) {
    int64_t count;
    const int64_t *const shape = told(n, node, 1, &count);
    bool open = false;
    if (!count)
        return -2;
    for (int64_t k = 1; k < count; k++)
        open |= shape[k] == -1;
    if (shape[0] == -1)
        return -1;
    if (shape[0] == n->values[node->inputs[0]].dim[0])
        return 0;
    return open ? -2 : -1;
}

/* All operands that have the batch have it in the place where the result has it, and no other one has a size there. */
static bool same_place(const struct fl_network *n, const struct fl_net_node *node, const bool *batch) {
    const struct fl_net_value *const y = &n->values[node->outputs[0]];
    int64_t rows = -1;
    for (int i = 0; i < node->input_count; i++) {
        const struct fl_net_value *const x = &n->values[node->inputs[i]];
        if (batch[node->inputs[i]]) {
            if (x->ndim != y->ndim || (rows >= 0 && x->dim[0] != rows))
                return false;
            rows = x->dim[0];
        } else if (x->ndim > y->ndim || (x->ndim == y->ndim && x->ndim && x->dim[0] != 1)) {
            return false;
        }
    }
    return true;
}

/* Whether the result has the batch first, given that operands have. */
static bool keeps_batch(const struct fl_network *n, const struct fl_net_node *node, const bool *batch) {
    /* other operands are parameters */
    static const char *const by_operand_0[] = {"Conv", "Gemm", "AveragePool", "MaxPool", "Resize", NULL};
    static const char *const by_axes[] = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin",
                                          "Squeeze",    "Unsqueeze", NULL};
    const struct fl_net_value *const x = &n->values[node->inputs[0]];
    for (int i = 1; i < node->input_count && is_one_of(node->op, by_operand_0); i++)
        if (node->inputs[i] >= 0 && batch[node->inputs[i]])
            return false;
    if (is_one_of(node->op, by_operand_0))
        return true;
    if (is_one_of(node->op, by_axes))
        return !has_zero(n, node, 1);
    if (!strcmp(node->op, "Slice"))
        return !has_zero(n, node, 3);
    if (!strcmp(node->op, "Reshape"))
        return first_of_shape(n, node) != -2;
    if (!strcmp(node->op, "Transpose"))
        return fl_net_find(node, "perm")->ints[0] == 0;
    if (!strcmp(node->op, "Pad")) {
        int64_t count;
        const int64_t *const pads = told(n, node, 1, &count);
        return pads[0] == 0 && pads[count / 2] == 0;
    }
    if (!strcmp(node->op, "Concat")) {
        for (int i = 0; i < node->input_count; i++)
            if (!batch[node->inputs[i]])
                return false;
        return fl_net_int(node, "axis", 0) != 0;
    }
    if (!strcmp(node->op, "QuantizeLinear") || !strcmp(node->op, "DequantizeLinear"))
        return fl_net_int(node, "axis", 1) != 0;
    if (!strcmp(node->op, "Softmax"))
        return x->ndim > 1;
    return same_place(n, node, batch);
}

/* Marks what has the batch first. False: a node does not keep it. */
static bool follow_batch(const struct fl_tflite_reader *r, bool *batch) {
    const struct fl_network *const n = r->n;
    for (int i = 0; i < n->graph.input_count; i++) {
        const int v = n->graph.inputs[i];
        struct fl_tflite_tensor t;
        fl_tflite_get_tensor(&r->model, (uint32_t)v, &t);
        const bool open = t.signature.count && t.signature.at[0] == -1;
        batch[v] = open || (n->values[v].ndim > 1 && n->values[v].dim[0] == 1);
    }
    for (int k = 0; k < n->graph.node_count; k++) {
        const struct fl_net_node *const node = &n->graph.nodes[k];
        bool any = false;
        for (int i = 0; i < node->input_count; i++)
            any |= node->inputs[i] >= 0 && batch[node->inputs[i]];
        if (any && (!n->values[node->outputs[0]].ndim || !keeps_batch(n, node, batch)))
            return false;
        batch[node->outputs[0]] = any;
    }
    return true;
}

tensor_status fl_tflite_open_batch(struct fl_tflite_reader *r) {
    struct fl_network *const n = r->n;
    bool *const batch = fl_net_memory(n, (size_t)n->value_count * sizeof *batch);
    const int count = n->value_count;
    if (!batch)
        return TENSOR_E_MEMORY;
    const bool any_size = follow_batch(r, batch);
    for (int k = 0; any_size && k < n->graph.node_count; k++) {
        struct fl_net_node *const node = &n->graph.nodes[k];
        if (strcmp(node->op, "Reshape") || !batch[node->inputs[0]])
            continue;
        int64_t ndim, shape[FL_ARRAY_DIMS];
        const int64_t *const old = told(n, node, 1, &ndim), first = first_of_shape(n, node);
        if (first == old[0])
            continue;
        memcpy(shape, old, (size_t)ndim * sizeof *shape);
        shape[0] = first;
        node->inputs[1] = fl_tflite_add_ints(n, node->name, ".shape_of_any_batch", (int)ndim, shape);
        if (node->inputs[1] < 0)
            return TENSOR_E_MEMORY;
    }
    for (int v = 0; v < count; v++) {
        struct fl_net_value *const value = &n->values[v];
        struct fl_tflite_tensor t = {0};
        if (value->constant)
            continue;
        if ((uint32_t)v < r->model.tensors)
            fl_tflite_get_tensor(&r->model, (uint32_t)v, &t);
        for (uint32_t i = 0; i < t.signature.count; i++)
            if (t.signature.at[i] == -1)
                value->dim[i] = -1;
        if (any_size && batch[v])
            value->dim[0] = -1;
    }
    for (int i = 0; any_size && i < n->graph.input_count; i++)
        if (batch[n->graph.inputs[i]])
            n->values[n->graph.inputs[i]].dim_name[0] = "batch";
    return TENSOR_OK;
}
#endif
