/* borders.c - quantised nodes that have no kernel of 8-bit integers, or an option that it lacks: their operands become
 * floats, and their results integers again. */
#include "program/lower/quantised.h"
#include "program/passes/passes.h"
#include "core/base/fail.h"
#include <stdio.h>
#include <string.h>

struct borders {
    struct fl_network *n;
    struct fl_net_graph made; /* the nodes so far */
    int *floats;              /* of each value: 1 + the one that has it as floats; 0: none yet */
    int value_count;          /* for which there is an entry */
};

/* Integers that stand for real numbers: a value of an activation, weights, a bias. */
static bool is_quantised(const struct fl_network *n, int value) {
    const struct fl_net_value *const v = value < 0 ? NULL : &n->values[value];
    return v && v->quantisation && !fl_type_is_float(v->type);
}

/* Operators that read integers as such. */
static bool reads_integers(const struct fl_net_node *node) {
    static const char *const ops[] = {"Cast",      "CastLike", "ConvInteger",   "DequantizeLinear", "EyeLike",
                                      "If",        "Loop",     "MatMulInteger", "QLinearConv",      "QLinearMatMul",
                                      "Shape",     "Size",     "BitwiseAnd",    "BitwiseNot",       "BitwiseOr",
                                      "BitwiseXor"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (!strcmp(node->op, ops[i]))
            return true;
    return *node->domain != 0;
}

static bool needs_floats(const struct fl_network *n, const struct fl_net_node *node) {
    const bool quantises = fl_net_is_border(node); /* of integers, to those of another type */
    bool any = false;
    if (reads_integers(node) || fl_int8_takes(n, node))
        return false;
    for (int i = 0; i < node->input_count && !(quantises && i); i++)
        any |= is_quantised(n, node->inputs[i]);
    for (int i = 0; i < node->output_count && !quantises; i++)
        any |= is_quantised(n, node->outputs[i]);
    return any;
}

/* A value of floats beside one of integers. */
static int add_floats(struct borders *b, int value) {
    struct fl_network *const n = b->n;
    const size_t length = strlen(n->values[value].name) + sizeof ".float";
    char *const name = fl_net_memory(n, length);
    if (!name)
        return -1;
    snprintf(name, length, "%s.float", n->values[value].name);
    const int made = fl_net_add_value(n, name);
    if (made < 0)
        return -1;
    struct fl_net_value *const v = &n->values[made];
    *v = n->values[value];
    v->name = name;
    v->type = TENSOR_TYPE_F32;
    v->constant = NULL;
    v->quantisation = NULL;
    v->range = (struct fl_range){.frozen = false};
    return made;
}

static int add_constant(struct fl_network *n, const char *name, tensor_type type, const struct fl_quantisation *q) {
    struct fl_array *a;
    const int64_t dim = q->count;
    const int made = fl_net_add_value(n, name);
    if (made < 0 || fl_net_array(n, &a, type, q->count > 1, &dim))
        return -1;
    for (int i = 0; i < q->count; i++)
        if (fl_type_is_float(type))
            fl_array_put_number(a, i, (double)q->scale[i]);
        else
            fl_array_put_integer(a, i, q->zero[i]);
    struct fl_net_value *const v = &n->values[made];
    v->type = type;
    v->ndim = a->ndim;
    v->dim[0] = dim;
    v->constant = a;
    return made;
}

tensor_status fl_pass_add_border(struct fl_network *n, struct fl_net_graph *graph, const char *op, int from, int to) {
    const int integers = n->values[from].quantisation ? from : to;
    const char *const name = n->values[to].name;
    const struct fl_net_value *const v = &n->values[integers];
    const struct fl_quantisation *const q = v->quantisation;
    const tensor_type type = v->type;
    const int scale = add_constant(n, name, TENSOR_TYPE_F32, q);
    const int zero = scale < 0 ? -1 : add_constant(n, name, type, q);
    struct fl_net_node *const node = zero < 0 ? NULL : fl_net_add_node(n, graph, op, name, 3, 1, 0);
    if (!node)
        return TENSOR_E_MEMORY;
    node->inputs[0] = from;
    node->inputs[1] = scale;
    node->inputs[2] = zero;
    node->outputs[0] = to;
    return q->count > 1 ? fl_net_set_int(n, node, "axis", q->axis) : TENSOR_OK;
}

static tensor_status floats_of(struct borders *b, int value, int *floats) {
    int *const known = value < b->value_count ? &b->floats[value] : NULL;
    if (known && *known) {
        *floats = *known - 1;
        return TENSOR_OK;
    }
    if (b->n->values[value].constant) {
        TRY(fl_pass_floats(b->n, value, floats));
    } else {
        *floats = add_floats(b, value);
        if (*floats < 0)
            return TENSOR_E_MEMORY;
        TRY(fl_pass_add_border(b->n, &b->made, "DequantizeLinear", value, *floats));
    }
    if (known)
        *known = *floats + 1;
    return TENSOR_OK;
}

static tensor_status add_in_floats(struct borders *b, const struct fl_net_node *from) {
    struct fl_network *const n = b->n;
    struct fl_net_node node = *from;
    const bool quantises = fl_net_is_border(from);
    node.inputs = fl_net_memory(n, (size_t)node.input_count * sizeof *node.inputs);
    node.outputs = fl_net_memory(n, (size_t)node.output_count * sizeof *node.outputs);
    if (!node.inputs || !node.outputs)
        return TENSOR_E_MEMORY;
    if (!strcmp(node.op, "Softmax") && fl_net_find(from, "flexlab_beta"))
        return fl_fail(TENSOR_E_UNSUPPORTED, "node %s (Softmax): beta %g for integers that have no kernel", node.name,
                       (double)fl_net_float(from, "flexlab_beta", 1));
    for (int i = 0; i < node.input_count; i++) {
        node.inputs[i] = from->inputs[i];
        if (is_quantised(n, from->inputs[i]) && !(quantises && i))
            TRY(floats_of(b, from->inputs[i], &node.inputs[i]));
    }
    for (int i = 0; i < node.output_count; i++) {
        node.outputs[i] = from->outputs[i];
        if (is_quantised(n, from->outputs[i]) && !quantises && (node.outputs[i] = add_floats(b, from->outputs[i])) < 0)
            return TENSOR_E_MEMORY;
    }
    struct fl_net_node *const copy = fl_net_add_node(n, &b->made, node.op, node.name, 0, 0, 0);
    if (!copy)
        return TENSOR_E_MEMORY;
    *copy = node;
    TRY(fl_pass_note(n, PROGRAM_IN_FLOATS, from, from));
    for (int i = 0; i < node.output_count; i++)
        if (node.outputs[i] != from->outputs[i])
            TRY(fl_pass_add_border(n, &b->made, "QuantizeLinear", node.outputs[i], from->outputs[i]));
    return TENSOR_OK;
}

static tensor_status rewrite(struct fl_network *n, struct fl_net_graph *graph) {
    struct borders b = {.n = n, .value_count = n->value_count};
    bool any = false;
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        any |= needs_floats(n, node);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                TRY(rewrite(n, node->attributes[a].graph));
    }
    if (!any)
        return TENSOR_OK;
    b.floats = fl_net_memory(n, (size_t)b.value_count * sizeof *b.floats);
    if (!b.floats)
        return TENSOR_E_MEMORY;
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        if (needs_floats(n, node)) {
            TRY(add_in_floats(&b, node));
            continue;
        }
        struct fl_net_node *const copy = fl_net_add_node(n, &b.made, node->op, node->name, 0, 0, 0);
        if (!copy)
            return TENSOR_E_MEMORY;
        *copy = *node;
    }
    graph->nodes = b.made.nodes;
    graph->node_count = b.made.node_count;
    return TENSOR_OK;
}

tensor_status fl_pass_borders(struct fl_network *n) {
    return rewrite(n, &n->graph);
}
