/* nn_program.c - a graph of nn.h as a program: its layers in evaluation, from the input to the logits, with their
 * formats, weights and, in shared-exponent formats, the exponents that training has predicted. */
#include "nn/programs/nn_program.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "flexlab/program.h"
#include "program/plan/program_object.h"
#include <string.h>

/* --- values ------------------------------------------------------------------------------------------------------- */

/* The exponent that the training predicts for its next write, if it has written the tensor. */
static void take_exponent(const struct fl_translation *t, const struct fl_output *output, struct fl_range *range) {
    const tensor *const y = output->y < 0 ? NULL : t->g->values[output->y].t;
    tensor_stats all;
    if (y && tensor_format_is_shared(tensor_format_of(y)) && !tensor_statistics(NULL, &all, y) && all.writes > 0)
        *range = (struct fl_range){.frozen = true, .exponent = tensor_exponent(y) - fl_exponent_shift(y)};
}

int fl_value_new(struct fl_translation *t, const struct fl_node *node, const char *part) {
    char *const name = fl_format_name("%s:%s", node->name, part);
    const int value = name ? fl_net_add_value(t->n, name) : -1;
    fl_free(name);
    if (value < 0)
        fl_fail(TENSOR_E_MEMORY, "no memory for a program");
    return value;
}

int fl_value_out(struct fl_translation *t, const struct fl_node *node) {
    const int value = fl_net_add_value(t->n, node->output[0].name);
    if (value < 0)
        return -1;
    take_exponent(t, &node->output[0], &t->n->values[value].range);
    return t->value[node->first] = value;
}

static int add_constant(struct fl_translation *t, const char *name, struct fl_array *a) {
    const int value = fl_net_add_value(t->n, name);
    if (value < 0)
        return -1;
    struct fl_net_value *const v = &t->n->values[value];
    v->type = a->type;
    v->ndim = a->ndim;
    memcpy(v->dim, a->dim, sizeof v->dim);
    v->constant = a;
    return value;
}

int fl_value_floats(struct fl_translation *t, const char *name, int ndim, const int64_t *dim, const double *numbers) {
    struct fl_array *a;
    if (fl_net_array(t->n, &a, TENSOR_TYPE_F32, ndim, dim))
        return -1;
    for (int64_t i = 0; i < a->count; i++)
        ((float *)a->data)[i] = (float)numbers[i];
    return add_constant(t, name, a);
}

int fl_value_integers(struct fl_translation *t, const struct fl_node *node, const char *part, int count,
                      const int64_t *numbers) {
    struct fl_array *a;
    char *const name = fl_format_name("%s:%s", node->name, part);
    int value = -1;
    if (name && !fl_net_array(t->n, &a, TENSOR_TYPE_I64, 1, (const int64_t[]){count})) {
        memcpy(a->data, numbers, (size_t)count * sizeof *numbers);
        value = add_constant(t, name, a);
    }
    fl_free(name);
    return value;
}

double *fl_parameter_numbers(const struct fl_node *node, int parameter) {
    const struct fl_parameter *const p = &node->parameter[parameter];
    const int64_t count = fl_shape_count(&p->shape);
    double *const numbers = fl_alloc((size_t)count * sizeof *numbers);
    if (!numbers)
        fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld weights", node->owner, (long long)count);
    else if (!tensor_store_wide_f64(fl_updated(p), numbers, count))
        return numbers;
    fl_free(numbers);
    return NULL;
}

/* Element by element in the new order; the strides are those of the old one. */
static void permute(double *to, const double *from, int ndim, const int64_t *dim, const int64_t *stride,
                    int64_t count) {
    int64_t index[FL_NODE_DIMS] = {0}, at = 0;
    for (int64_t i = 0; i < count; i++) {
        to[i] = from[at];
        for (int d = ndim - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < dim[d])
                break;
            at -= dim[d] * stride[d];
            index[d] = 0;
        }
    }
}

int fl_value_parameter(struct fl_translation *t, const struct fl_node *node, int parameter, const int *order) {
    const struct fl_shape *const s = &node->parameter[parameter].shape;
    const int64_t count = fl_shape_count(s);
    int64_t step[FL_NODE_DIMS], dim[FL_NODE_DIMS], stride[FL_NODE_DIMS], all = 1;
    for (int d = s->ndim - 1; d >= 0; all *= s->dim[d--])
        step[d] = all;
    for (int d = 0; d < s->ndim; d++) {
        dim[d] = s->dim[order ? order[d] : d];
        stride[d] = step[order ? order[d] : d];
    }
    double *const numbers = fl_parameter_numbers(node, parameter);
    double *const moved = numbers ? fl_alloc((size_t)count * sizeof *moved) : NULL;
    char *const name = moved ? fl_format_name("%s.%s", node->owner, node->parameter[parameter].suffix) : NULL;
    int value = -1;
    if (name) {
        permute(moved, numbers, s->ndim, dim, stride, count);
        value = fl_value_floats(t, name, s->ndim, dim, moved);
    } else if (numbers) {
        fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld weights", node->owner, (long long)count);
    }
    fl_free(name);
    fl_free(moved);
    fl_free(numbers);
    return value;
}

/* In double, as evaluation reads it. */
int fl_value_state(struct fl_translation *t, const struct fl_node *node, const char *suffix) {
    const struct fl_state *state = node->state;
    while (strcmp(state->suffix, suffix) != 0)
        state++;
    struct fl_array *a;
    char *const name = fl_format_name("%s.%s", node->owner, suffix);
    int value = -1;
    if (name && !fl_net_array(t->n, &a, TENSOR_TYPE_F64, state->shape.ndim, state->shape.dim) &&
        !tensor_store_f64(state->t, a->data, a->count))
        value = add_constant(t, name, a);
    fl_free(name);
    return value;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

struct fl_net_node *fl_emit(struct fl_translation *t, const char *op, const char *name, int y, int count,
                            const int *inputs) {
    struct fl_net_node *const node = fl_net_add_node(t->n, &t->n->graph, op, name, count, 1, 0);
    if (!node)
        return NULL;
    memcpy(node->inputs, inputs, (size_t)count * sizeof *inputs);
    node->outputs[0] = y;
    node->format = t->at->as.y.format;
    return node;
}

const struct fl_node *fl_source_of(const struct fl_translation *t, const struct fl_node *node, int input) {
    const struct fl_node *from = fl_node_of(t->g, node->input[input].x);
    while (!strncmp(from->layer->kind, "convert", 7))
        from = fl_node_of(t->g, from->input[0].x);
    return from;
}

/* Marks what the logits follow from. */
static void mark(const nn_graph *g, bool *needed) {
    needed[g->handles[g->logits].node] = true;
    for (int k = g->count - 1; k >= 0; k--)
        for (int i = 0; needed[k] && i < g->nodes[k].inputs; i++)
            needed[g->handles[g->nodes[k].input[i].x].node] = true;
}

static tensor_status translate(struct fl_translation *t, int k) {
    const struct fl_node *const node = &t->g->nodes[k];
    fl_translate *const how = fl_translate_find(node);
    if (t->done[k])
        return TENSOR_OK;
    t->done[k] = true;
    t->at = node;
    if (!how)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%s: programs have no layer of the kind %s", node->owner,
                       node->layer->kind);
    TRY(how(t, node));
    /* Shortcuts come right after what they read, so that the sum joins the convolution beside them, which is later. */
    for (int j = k + 1; j < t->g->count; j++)
        if (!t->done[j] && !strcmp(t->g->nodes[j].layer->kind, "shortcut_a") &&
            t->g->handles[t->g->nodes[j].input[0].x].node == k)
            TRY(translate(t, j));
    return TENSOR_OK;
}

static tensor_status translate_all(struct fl_translation *t) {
    const nn_graph *const g = t->g;
    bool *const needed = fl_net_memory(t->n, (size_t)g->count * sizeof *needed);
    int *const outputs = fl_net_memory(t->n, sizeof *outputs);
    t->done = fl_net_memory(t->n, (size_t)g->count * sizeof *t->done);
    t->value = fl_net_memory(t->n, (size_t)g->handle_count * sizeof *t->value);
    if (!needed || !outputs || !t->done || !t->value)
        return TENSOR_E_MEMORY;
    memset(t->value, -1, (size_t)g->handle_count * sizeof *t->value);
    mark(g, needed);
    for (int k = 0; k < g->count; k++)
        t->done[k] |= !needed[k];
    for (int k = 0; k < g->count; k++)
        TRY(translate(t, k));
    outputs[0] = t->value[g->logits];
    const struct fl_shape *const s = &fl_output_of(g, g->logits)->shape;
    struct fl_net_value *const y = &t->n->values[outputs[0]];
    y->type = TENSOR_TYPE_F32;
    y->ndim = s->ndim;
    for (int d = 0; d < s->ndim; d++)
        y->dim[d] = d ? s->dim[d] : -1;
    t->n->graph.outputs = outputs;
    t->n->graph.output_count = 1;
    return fl_net_check(t->n);
}

tensor_status program_from_graph(program **p, const nn_graph *g) {
    if (!p || !g)
        return fl_fail(TENSOR_E_ARGUMENT, "program_from_graph: %s is NULL", p ? "g" : "p");
    *p = NULL;
    if (!g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "program_from_graph: the network is not compiled (nn_compile)");
    struct fl_translation t = {.g = g, .n = fl_network_new(FL_NET_ONNX)};
    if (!t.n)
        return TENSOR_E_MEMORY;
    const tensor_status status = translate_all(&t);
    if (!status)
        return fl_program_of(p, t.n, false);
    fl_network_free(t.n);
    return status;
}
