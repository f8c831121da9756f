/* quantise.c - nodes that are marked int8 become nodes of 8-bit integers (network.h) at the scales that calibration, or
 * a file, has given to values. Constants are rounded once, to nearest even; QuantizeLinear and DequantizeLinear stand
 * where floats end and begin. */
#include "program/calibration/methods.h"
#include "program/lower/quantised.h"
#include "program/passes/passes.h"
#include "core/base/fail.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct quantiser {
    struct fl_network *n;
    bool per_channel;
    struct fl_net_graph made; /* the nodes so far */
    int value_count;          /* entries of the lists: values that are added later have none */
    int *maker;               /* of each value of floats: the node that computes it; -1: none */
    int *integers;            /* of each value of floats: 1 + the value of its integers; 0: none */
    bool *missing;            /* of each value: no node computes its floats yet, but one computes its integers */
};

static bool is_one_of(const struct fl_net_node *node, const char *const *ops) {
    for (; *ops && !*node->domain; ops++)
        if (!strcmp(node->op, *ops))
            return true;
    return false;
}

/* Operators whose result has the numbers of operand 0, parts of them, or 0. */
static const char *const carriers[] = {"Clip",      "DepthToSpace", "Expand",    "Flatten", "Identity", "MaxPool",
                                       "Pad",       "Relu",         "Reshape",   "Slice",   "Split",    "Squeeze",
                                       "Transpose", "Tile",         "Unsqueeze", NULL};
/* Those among them, and others, that are worth integers only where these are there already. */
static const char *const followers[] = {
    "Add",     "AveragePool", "Clip",  "Concat", "Flatten", "GlobalAveragePool", "MaxPool",   "Identity", "Relu",
    "Reshape", "Slice",       "Split", "Pad",    "Squeeze", "Transpose",         "Unsqueeze", NULL};
static const char *const weighted[] = {"Conv", "Gemm", "MatMul", NULL};

static const struct fl_array *constant_of(const struct fl_network *n, const struct fl_net_node *node, int operand) {
    return operand < node->input_count && node->inputs[operand] != -1 ? n->values[node->inputs[operand]].constant
                                                                      : NULL;
}

/* Whether operand 0 carries its scale to the result: 0 is what Pad adds, and what the limits of Clip let through. */
static bool carries(const struct fl_network *n, const struct fl_net_node *node) {
    if (strcmp(node->op, "Pad") != 0)
        return is_one_of(node, carriers);
    const struct fl_array *const filling = constant_of(n, node, 2);
    return node->input_count < 3 || node->inputs[2] == -1 || (filling && !fl_array_number(filling, 0));
}

/* --- scales of values --------------------------------------------------------------------------------------------- */

static bool has_floats(const struct quantiser *q, int value) {
    const tensor_type type = value < 0 ? 0 : q->n->values[value].type;
    return value >= 0 && value < q->value_count && (!type || fl_type_is_float(type));
}

/* The integers of a value of floats: those that it has; those that its numbers had before they were moved; those of its
 * range. False: nothing is known of it. */
static bool type_of(const struct quantiser *q, int value, struct fl_int8_type *type) {
    const struct fl_net_graph *const graph = &q->n->graph;
    const struct fl_range *own = NULL;
    for (int steps = 0; steps <= graph->node_count && has_floats(q, value); steps++) {
        if (q->integers[value]) {
            *type = fl_net_int8_type(q->n, q->integers[value] - 1);
            return true;
        }
        if (!own && q->n->values[value].range.integers.scale > 0)
            own = &q->n->values[value].range;
        const struct fl_net_node *const maker = q->maker[value] < 0 ? NULL : &graph->nodes[q->maker[value]];
        if (!maker || !carries(q->n, maker))
            break;
        value = maker->inputs[0];
    }
    if (own)
        *type = own->integers;
    return own != NULL;
}

static struct fl_quantisation *quantisation(struct fl_network *n, int count, int axis) {
    struct fl_quantisation *const made = fl_net_memory(n, sizeof *made);
    if (!made)
        return NULL;
    *made = (struct fl_quantisation){.count = count,
                                     .axis = axis,
                                     .scale = fl_net_memory(n, (size_t)count * sizeof *made->scale),
                                     .zero = fl_net_memory(n, (size_t)count * sizeof *made->zero)};
    return made->scale && made->zero ? made : NULL;
}

/* A new value of integers beside one of floats; -1 without memory. */
static int add_integers(struct quantiser *q, int value, struct fl_int8_type type) {
    struct fl_network *const n = q->n;
    const size_t length = strlen(n->values[value].name) + sizeof ".int8";
    char *const name = fl_net_memory(n, length);
    struct fl_quantisation *const scale = quantisation(n, 1, 0);
    if (!name || !scale)
        return -1;
    snprintf(name, length, "%s.int8", n->values[value].name);
    const int made = fl_net_add_value(n, name);
    if (made < 0)
        return -1;
    scale->scale[0] = type.scale;
    scale->zero[0] = type.zero;
    struct fl_net_value *const v = &n->values[made];
    const char *const own = v->name;
    *v = n->values[value];
    v->name = own;
    v->type = type.is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8;
    v->quantisation = scale;
    v->constant = NULL;
    v->range = (struct fl_range){.seen = false};
    return made;
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

/* Of filter k, whose elements lie `inner` together in each run of all filters; of the whole array if k is -1. */
static double largest_magnitude(const struct fl_array *a, int64_t inner, int64_t filters, int64_t k) {
    const int64_t together = k < 0 ? a->count : inner, step = k < 0 ? a->count : inner * filters;
    double largest = 0;
    for (int64_t start = k < 0 ? 0 : k * inner; start < a->count; start += step)
        for (int64_t i = start; i < start + together; i++)
            largest = fmax(largest, fabs(fl_array_number(a, i)));
    return largest;
}

static bool is_finite(const struct fl_array *a) {
    for (int64_t i = 0; a && i < a->count; i++)
        if (!isfinite(fl_array_number(a, i)))
            return false;
    return true;
}

/* A constant operand that is no weight, over the range of its numbers; -1 without memory. */
static int constant_integers(struct quantiser *q, int value) {
    struct fl_network *const n = q->n;
    const struct fl_array *const from = n->values[value].constant;
    struct fl_span span = {0, 0};
    struct fl_array *a;
    for (int64_t i = 0; i < from->count; i++) {
        span.low = fmin(span.low, fl_array_number(from, i));
        span.high = fmax(span.high, fl_array_number(from, i));
    }
    const struct fl_int8_type type = fl_type_of_range(span, true);
    const int made = add_integers(q, value, type);
    if (made < 0 || fl_net_array(n, &a, TENSOR_TYPE_I8, from->ndim, from->dim))
        return -1;
    for (int64_t i = 0; i < from->count; i++)
        fl_array_put_integer(a, i, (int64_t)rint(fl_array_number(from, i) / (double)type.scale));
    n->values[made].constant = a;
    n->values[made].exact = from;
    return made;
}

/* Weights and bias of a node whose filters lie along a dimension of its weights. The scale of a filter is the least at
 * which its weights are within -127 ... 127, its bias within 2^30 steps of the sums, and the factor from sums to the
 * result above 2^-60: beyond, nothing of a sum is left. */
static tensor_status add_weights(struct quantiser *q, struct fl_net_node *node, int axis, double x_scale,
                                 double y_scale) {
    struct fl_network *const n = q->n;
    const struct fl_array *const w = constant_of(n, node, 1), *const b = constant_of(n, node, 2);
    const int64_t filters = w->dim[axis];
    const int scales = q->per_channel ? (int)filters : 1;
    struct fl_quantisation *const of_w = quantisation(n, scales, axis), *const of_b = quantisation(n, scales, 0);
    struct fl_array *weights, *bias = NULL;
    int64_t inner = 1;
    for (int d = axis + 1; d < w->ndim; d++)
        inner *= w->dim[d];
    TRY(fl_net_array(n, &weights, TENSOR_TYPE_I8, w->ndim, w->dim));
    if (b)
        TRY(fl_net_array(n, &bias, TENSOR_TYPE_I32, 1, &filters));
    if (!of_w || !of_b)
        return TENSOR_E_MEMORY;
    for (int k = 0; k < scales; k++) {
        const double largest = largest_magnitude(w, inner, filters, q->per_channel ? k : -1);
        const double most_bias = !b ? 0 : largest_magnitude(b, 1, b->count, q->per_channel && b->count > 1 ? k : -1);
        const double least = fmax(most_bias / x_scale * 0x1p-30, y_scale / x_scale * 0x1p-60);
        of_w->scale[k] = (float)fmax(largest / 127, least);
        of_b->scale[k] = (float)(x_scale * (double)of_w->scale[k]);
    }
    for (int64_t i = 0; i < w->count; i++) {
        const double step = (double)of_w->scale[q->per_channel ? i / inner % filters : 0];
        const double integer = rint(fl_array_number(w, i) / step);
        fl_array_put_integer(weights, i, (int64_t)fmin(fmax(integer, -127), 127));
    }
    for (int64_t k = 0; k < filters && bias; k++) {
        const double step = x_scale * (double)of_w->scale[q->per_channel ? k : 0];
        fl_array_put_integer(bias, k, (int64_t)rint(fl_array_number(b, b->count > 1 ? k : 0) / step));
    }
    node->inputs[1] = fl_net_add_constant(n, n->values[node->inputs[1]].name, weights);
    if (node->inputs[1] < 0)
        return TENSOR_E_MEMORY;
    n->values[node->inputs[1]].quantisation = of_w;
    n->values[node->inputs[1]].exact = w;
    if (!bias)
        return TENSOR_OK;
    node->inputs[2] = fl_net_add_constant(n, n->values[node->inputs[2]].name, bias);
    if (node->inputs[2] < 0)
        return TENSOR_E_MEMORY;
    n->values[node->inputs[2]].quantisation = of_b;
    n->values[node->inputs[2]].exact = b->count == filters ? b : NULL;
    return TENSOR_OK;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* Whether operand i is an activation: integers with a scale of their own. */
static bool is_activation(const struct fl_net_node *node, int i) {
    if (is_one_of(node, weighted))
        return !i || i == 3;
    return !i || !strcmp(node->op, "Add") || !strcmp(node->op, "Concat");
}

/* Constant floats as weights, and no bias or a constant one. *axis: the dimension of the filters. */
static bool has_weights(const struct fl_network *n, const struct fl_net_node *node, int *axis) {
    const struct fl_array *const w = constant_of(n, node, 1), *const b = constant_of(n, node, 2);
    const bool biased = node->input_count > 2 && node->inputs[2] != -1;
    if (!w || !fl_type_is_float(w->type) || !w->count || (biased && (!b || !b->count)) || !is_finite(w) ||
        !is_finite(b))
        return false;
    *axis = !strcmp(node->op, "Conv") || fl_net_int(node, "transB", 0) ? 0 : w->ndim - 1;
    return w->ndim > *axis && (!b || b->count == 1 || b->count == w->dim[*axis]);
}

static bool may_quantise(const struct quantiser *q, const struct fl_net_node *node) {
    bool any = is_one_of(node, weighted);
    if (!node->int8 || fl_net_is_quantised(q->n, node) || (!any && !is_one_of(node, followers)) ||
        node->input_count < 1 || node->output_count < 1 || node->outputs[0] == -1)
        return false;
    for (int i = 0; i < node->input_count; i++) {
        const int value = node->inputs[i];
        if (!is_activation(node, i) || (value == -1 && i))
            continue;
        struct fl_int8_type type;
        if (value == -1 || !has_floats(q, value))
            return false;
        const struct fl_array *const constant = q->n->values[value].constant;
        if (constant ? !i || !constant->count || !is_finite(constant) : !type_of(q, value, &type))
            return false;
        any |= q->integers[value] != 0;
    }
    return any;
}

/* The node as one of integers, in *made; the values of its integers exist afterwards, but no node that computes those
 * of its operands. made->op NULL: it has none. */
static tensor_status quantise_node(struct quantiser *q, const struct fl_net_node *node, struct fl_net_node *made) {
    struct fl_network *const n = q->n;
    const int operands = node->input_count, y = node->outputs[0];
    struct fl_int8_type x, type;
    int axis = 0;
    *made = *node;
    made->op = NULL;
    if (!may_quantise(q, node) || (is_one_of(node, weighted) && !has_weights(n, node, &axis)) || !type_of(q, y, &type))
        return TENSOR_OK;
    made->inputs = fl_net_memory(n, (size_t)operands * sizeof *made->inputs);
    made->outputs = fl_net_memory(n, (size_t)node->output_count * sizeof *made->outputs);
    if (!made->inputs || !made->outputs)
        return TENSOR_E_MEMORY;
    memcpy(made->inputs, node->inputs, (size_t)operands * sizeof *made->inputs);
    memcpy(made->outputs, node->outputs, (size_t)node->output_count * sizeof *made->outputs);
    for (int i = 0; i < operands; i++) {
        const int value = node->inputs[i];
        if (!is_activation(node, i) || value == -1)
            continue;
        if (n->values[value].constant) {
            made->inputs[i] = constant_integers(q, value);
        } else if (q->integers[value]) {
            made->inputs[i] = q->integers[value] - 1;
        } else {
            type_of(q, value, &x);
            made->inputs[i] = add_integers(q, value, x);
        }
        if (made->inputs[i] < 0)
            return TENSOR_E_MEMORY;
    }
    x = fl_net_int8_type(n, made->inputs[0]);
    if (carries(n, node))
        type = x;
    if (is_one_of(node, weighted))
        TRY(add_weights(q, made, axis, (double)x.scale, (double)type.scale));
    made->outputs[0] = add_integers(q, y, type);
    if (made->outputs[0] < 0)
        return TENSOR_E_MEMORY;
    made->op = node->op;
    if (!fl_int8_takes(n, made))
        made->op = NULL;
    return TENSOR_OK;
}

/* --- the graph ---------------------------------------------------------------------------------------------------- */

static tensor_status add_copy(struct quantiser *q, const struct fl_net_node *node) {
    struct fl_net_node *const copy = fl_net_add_node(q->n, &q->made, node->op, node->name, 0, 0, 0);
    if (!copy)
        return TENSOR_E_MEMORY;
    *copy = *node;
    return TENSOR_OK;
}

/* A value is read as floats. */
static tensor_status need_floats(struct quantiser *q, int value) {
    if (value < 0 || value >= q->value_count || !q->missing[value])
        return TENSOR_OK;
    q->missing[value] = false;
    return fl_pass_add_border(q->n, &q->made, "DequantizeLinear", q->integers[value] - 1, value);
}

static tensor_status need_operands(struct quantiser *q, const struct fl_net_node *node) {
    for (int i = 0; i < node->input_count; i++)
        TRY(need_floats(q, node->inputs[i]));
    for (int a = 0; a < node->attribute_count; a++) {
        const struct fl_net_graph *const graph = node->attributes[a].graph;
        for (int k = 0; graph && k < graph->node_count; k++)
            TRY(need_operands(q, &graph->nodes[k]));
        for (int k = 0; graph && k < graph->output_count; k++)
            TRY(need_floats(q, graph->outputs[k]));
    }
    return TENSOR_OK;
}

/* The node of integers, after the borders that its operands need. */
static tensor_status add_quantised(struct quantiser *q, const struct fl_net_node *node,
                                   const struct fl_net_node *made) {
    for (int i = 0; i < node->input_count; i++) {
        const int value = node->inputs[i];
        if (!is_activation(node, i) || value == -1 || q->n->values[value].constant)
            continue;
        if (q->integers[value]) {
            made->inputs[i] = q->integers[value] - 1; /* also where the node reads it twice */
            continue;
        }
        q->integers[value] = 1 + made->inputs[i];
        TRY(fl_pass_add_border(q->n, &q->made, "QuantizeLinear", value, made->inputs[i]));
    }
    q->integers[node->outputs[0]] = 1 + made->outputs[0];
    q->missing[node->outputs[0]] = true;
    return add_copy(q, made);
}

static void unmark(struct fl_net_node *node) {
    node->int8 = false;
    for (int a = 0; a < node->attribute_count; a++)
        for (int k = 0; node->attributes[a].graph && k < node->attributes[a].graph->node_count; k++)
            unmark(&node->attributes[a].graph->nodes[k]);
}

static tensor_status make(struct quantiser *q, struct fl_network *n) {
    const size_t count = (size_t)n->value_count;
    q->maker = fl_net_memory(n, count * sizeof *q->maker);
    q->integers = fl_net_memory(n, count * sizeof *q->integers);
    q->missing = fl_net_memory(n, count * sizeof *q->missing);
    if (!q->maker || !q->integers || !q->missing)
        return TENSOR_E_MEMORY;
    for (int v = 0; v < n->value_count; v++)
        q->maker[v] = -1;
    for (int k = 0; k < n->graph.node_count; k++)
        for (int i = 0; i < n->graph.nodes[k].output_count; i++)
            if (n->graph.nodes[k].outputs[i] != -1)
                q->maker[n->graph.nodes[k].outputs[i]] = k;
    return TENSOR_OK;
}

tensor_status fl_pass_quantise(struct fl_network *n, bool per_channel) {
    struct quantiser q = {.n = n, .per_channel = per_channel, .value_count = n->value_count};
    bool any = false;
    TRY(make(&q, n));
    for (int k = 0; k < n->graph.node_count; k++) {
        struct fl_net_node *const node = &n->graph.nodes[k];
        struct fl_net_node made;
        TRY(quantise_node(&q, node, &made));
        if (made.op) {
            TRY(add_quantised(&q, node, &made));
            any = true;
            continue;
        }
        TRY(need_operands(&q, node));
        if (!fl_net_is_quantised(n, node))
            unmark(node);
        TRY(add_copy(&q, node));
    }
    for (int i = 0; i < n->graph.output_count; i++)
        TRY(need_floats(&q, n->graph.outputs[i]));
    n->graph.nodes = q.made.nodes;
    n->graph.node_count = q.made.node_count;
    if (any)
        n->rounding = FL_INT8_EXACT;
    return TENSOR_OK;
}
