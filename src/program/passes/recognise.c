/* recognise.c - operators that an exporter spelt out in simpler ones. One operation rounds once where several round
 * each time, and takes one pass over its operand. A pattern must fit exactly, constants included; the values between
 * its nodes have no other reader. */
#include "program/passes/index.h"
#include "program/passes/passes.h"
#include "program/arrays/operators.h"
#include "core/base/fail.h"
#include <math.h>
#include <string.h>

static bool read_once(const struct fl_index *x, const struct fl_net_node *node) {
    const int value = node->outputs[0];
    return value < x->value_count && x->readers[value] == 1;
}

/* Operand i of a node is a constant number; the other one is not looked at. */
static bool has_number(const struct fl_index *x, const struct fl_net_node *node, double wanted, int *other) {
    for (int i = 0; i < 2; i++) {
        double number;
        if (fl_index_number(x, node, i, &number) && fabs(number - wanted) <= 1e-6 * fabs(wanted)) {
            *other = 1 - i;
            return true;
        }
    }
    return false;
}

/* Makes another operator of a node, in place of itself and of others: its name, and its operands. Attributes that the
 * old one had are dropped. */
static tensor_status become(struct fl_index *x, struct fl_net_node *node, const char *op, int count, const int *inputs,
                            int taken_count, const struct fl_net_node *const *taken) {
    struct fl_network *const n = x->n;
    int *const list = fl_net_memory(n, (size_t)count * sizeof *list);
    const char *const name = fl_net_text(n, op, strlen(op));
    if (!list || !name)
        return TENSOR_E_MEMORY;
    memcpy(list, inputs, (size_t)count * sizeof *list);
    struct fl_net_node as = *node;
    as.op = name;
    TRY(fl_pass_note(n, PROGRAM_RECOGNISED, node, &as));
    for (int i = 0; i < taken_count; i++) {
        TRY(fl_pass_note(n, PROGRAM_RECOGNISED, taken[i], &as));
        x->gone[taken[i] - n->graph.nodes] = true;
    }
    node->op = name;
    node->inputs = list;
    node->input_count = count;
    node->attributes = NULL;
    node->attribute_count = 0;
    return TENSOR_OK;
}

/* x clip(x + 3, 0, 6) / 6: the division, or a product with 1 / 6, comes last. */
static tensor_status hard_swish(struct fl_index *x, struct fl_net_node *last) {
    int from, at;
    double low, high;
    const bool div = fl_index_is(x, last, "Div", 2), mul = fl_index_is(x, last, "Mul", 2);
    if ((!div && !mul) || !has_number(x, last, div ? 6 : 1.0 / 6, &from) || (div && from != 0))
        return TENSOR_OK;
    const struct fl_net_node *const product = fl_index_maker(x, last, from);
    if (!fl_index_is(x, product, "Mul", 2) || !read_once(x, product))
        return TENSOR_OK;
    for (int i = 0; i < 2; i++) {
        const struct fl_net_node *const clip = fl_index_maker(x, product, i);
        if (!fl_index_is(x, clip, "Clip", 3) || !read_once(x, clip) || !fl_index_number(x, clip, 1, &low) ||
            !fl_index_number(x, clip, 2, &high) || low != 0 || high != 6)
            continue;
        const struct fl_net_node *const add = fl_index_maker(x, clip, 0);
        if (!fl_index_is(x, add, "Add", 2) || !read_once(x, add) || !has_number(x, add, 3, &at) ||
            add->inputs[at] != product->inputs[1 - i])
            continue;
        const int operand = add->inputs[at];
        return become(x, last, "HardSwish", 1, &operand, 3, (const struct fl_net_node *const[]){product, clip, add});
    }
    return TENSOR_OK;
}

/* Whether a mean is over the last dimension, which stays as 1. The number of dimensions may be unknown: -1 is the last.
 */
static bool is_last_mean(const struct fl_index *x, const struct fl_net_node *node) {
    if (!node || strcmp(node->op, "ReduceMean") || *node->domain || x->gone[node - x->n->graph.nodes] ||
        !fl_net_int(node, "keepdims", 1) || node->input_count != 2)
        return false;
    const struct fl_array *const axes = fl_index_constant(x, node, 1);
    const struct fl_net_value *const v = &x->n->values[node->inputs[0]];
    if (!axes || axes->count != 1)
        return false;
    const int64_t axis = fl_array_integer(axes, 0);
    return axis == -1 || (v->ndim > 0 && axis == v->ndim - 1);
}

/* gamma (x - mean) / sqrt(mean of (x - mean)^2 + epsilon) + beta. */
static tensor_status layer_normalization(struct fl_index *x, struct fl_net_node *last) {
    double two, epsilon;
    int at;
    if (!fl_index_is(x, last, "Add", 2))
        return TENSOR_OK;
    for (int i = 0; i < 2; i++) {
        const struct fl_array *const beta = fl_index_constant(x, last, 1 - i);
        const struct fl_net_node *const scaled = fl_index_maker(x, last, i);
        if (!beta || beta->ndim != 1 || !fl_index_is(x, scaled, "Mul", 2) || !read_once(x, scaled))
            continue;
        for (int j = 0; j < 2; j++) {
            const struct fl_array *const gamma = fl_index_constant(x, scaled, 1 - j);
            const struct fl_net_node *const div = fl_index_maker(x, scaled, j);
            if (!gamma || gamma->ndim != 1 || gamma->count < 2 || gamma->count != beta->count ||
                !fl_index_is(x, div, "Div", 2) || !read_once(x, div))
                continue;
            const struct fl_net_node *const sub = fl_index_maker(x, div, 0), *const root = fl_index_maker(x, div, 1);
            if (!fl_index_is(x, sub, "Sub", 2) || !fl_index_is(x, root, "Sqrt", 1) || !read_once(x, root))
                continue;
            const struct fl_net_node *const mean = fl_index_maker(x, sub, 1), *const add = fl_index_maker(x, root, 0);
            if (!is_last_mean(x, mean) || !read_once(x, mean) || mean->inputs[0] != sub->inputs[0] ||
                !fl_index_is(x, add, "Add", 2) || !read_once(x, add))
                continue;
            at = fl_index_number(x, add, 1, &epsilon) ? 0 : fl_index_number(x, add, 0, &epsilon) ? 1 : -1;
            const struct fl_net_node *const variance = at < 0 ? NULL : fl_index_maker(x, add, at);
            if (!is_last_mean(x, variance) || !read_once(x, variance) || !(epsilon > 0))
                continue;
            const struct fl_net_node *const square = fl_index_maker(x, variance, 0);
            const bool power = fl_index_is(x, square, "Pow", 2) && fl_index_number(x, square, 1, &two) && two == 2;
            const bool times = fl_index_is(x, square, "Mul", 2) && square->inputs[0] == square->inputs[1];
            /* The quotient and the square read the differences, a product of them twice. */
            if ((!power && !times) || x->readers[sub->outputs[0]] != (times ? 3 : 2) || !read_once(x, square) ||
                square->inputs[0] != sub->outputs[0])
                continue;
            const int inputs[] = {sub->inputs[0], scaled->inputs[1 - j], last->inputs[1 - i]};
            const struct fl_net_node *const taken[] = {scaled, div, sub, root, mean, add, variance, square};
            TRY(become(x, last, "LayerNormalization", 3, inputs, sizeof taken / sizeof taken[0], taken));
            TRY(fl_net_set_int(x->n, last, "axis", -1));
            return fl_net_set_float(x->n, last, "epsilon", (float)epsilon);
        }
    }
    return TENSOR_OK;
}

tensor_status fl_pass_recognise(struct fl_network *n) {
    struct fl_index x;
    TRY(fl_index_make(&x, n));
    for (int k = 0; k < n->graph.node_count; k++) {
        if (!x.gone[k])
            TRY(hard_swish(&x, &n->graph.nodes[k]));
        if (!x.gone[k])
            TRY(layer_normalization(&x, &n->graph.nodes[k]));
    }
    fl_index_end(&x);
    return TENSOR_OK;
}
