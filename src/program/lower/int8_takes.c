/* int8_takes.c - which quantised nodes have a kernel of 8-bit integers. */
#include "program/lower/quantised.h"
#include <string.h>

typedef bool takes_function(const struct fl_network *n, const struct fl_net_node *node);

static const struct fl_net_value *operand(const struct fl_network *n, const struct fl_net_node *node, int i) {
    return i < node->input_count && node->inputs[i] != -1 ? &n->values[node->inputs[i]] : NULL;
}

/* Constant integers of 8 bits of that many dimensions, with one scale or one for each filter, whose dimension is
 * `filters`, and one zero point. */
static bool are_weights(const struct fl_net_value *w, int least, int most, int filters) {
    if (!w || !w->constant || (w->type != TENSOR_TYPE_I8 && w->type != TENSOR_TYPE_U8) || !w->quantisation ||
        w->constant->ndim < least || w->constant->ndim > most || !w->constant->count)
        return false;
    const struct fl_quantisation *const q = w->quantisation;
    for (int i = 1; i < q->count; i++)
        if (q->zero[i] != q->zero[0])
            return false;
    return q->count == 1 || (q->axis == filters && q->count == w->constant->dim[filters]);
}

static bool is_bias(const struct fl_net_value *b, int64_t count) {
    return !b || (b->constant && b->constant->type == TENSOR_TYPE_I32 && b->constant->count == count);
}

static bool takes_conv(const struct fl_network *n, const struct fl_net_node *node) {
    const struct fl_net_value *const w = operand(n, node, 1), *const residual = operand(n, node, 3);
    return are_weights(w, 3, 4, 0) && is_bias(operand(n, node, 2), w->constant->dim[0]) &&
           (!residual || fl_net_is_bytes(n, node->inputs[3]));
}

static bool takes_gemm(const struct fl_network *n, const struct fl_net_node *node) {
    const int filters = fl_net_int(node, "transB", 0) ? 0 : 1;
    const struct fl_net_value *const w = operand(n, node, 1), *const c = operand(n, node, 2);
    return are_weights(w, 2, 2, filters) && is_bias(c, w->constant->dim[filters]) && !fl_net_int(node, "transA", 0) &&
           fl_net_float(node, "alpha", 1) == 1 && (!c || fl_net_float(node, "beta", 1) == 1);
}

static bool takes_matmul(const struct fl_network *n, const struct fl_net_node *node) {
    return are_weights(operand(n, node, 1), 2, 2, 1);
}

static bool all_bytes(const struct fl_network *n, const struct fl_net_node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (!fl_net_is_bytes(n, node->inputs[i]))
            return false;
    return true;
}

static bool takes_concat(const struct fl_network *n, const struct fl_net_node *node) {
    return all_bytes(n, node) && !fl_net_find(node, "flexlab_activation");
}

/* Sequences and images. */
static bool is_flat(const struct fl_net_node *node) {
    const struct fl_net_attribute *const window = fl_net_find(node, "kernel_shape");
    return window && window->kind == FL_NET_INTS && window->count <= 2;
}

static bool takes_average(const struct fl_network *n, const struct fl_net_node *node) {
    (void)n;
    return is_flat(node) && !(fl_net_int(node, "ceil_mode", 0) && fl_net_int(node, "count_include_pad", 0));
}

static bool takes_max(const struct fl_network *n, const struct fl_net_node *node) {
    const struct fl_int8_type x = fl_net_int8_type(n, node->inputs[0]), y = fl_net_int8_type(n, node->outputs[0]);
    return is_flat(node) && (node->output_count < 2 || node->outputs[1] == -1) && x.scale == y.scale &&
           x.zero == y.zero && x.is_unsigned == y.is_unsigned;
}

static bool takes_clip(const struct fl_network *n, const struct fl_net_node *node) {
    for (int i = 1; i < node->input_count; i++)
        if (operand(n, node, i) && (!operand(n, node, i)->constant || operand(n, node, i)->constant->count != 1 ||
                                    operand(n, node, i)->quantisation))
            return false;
    return true;
}

static bool takes_softmax(const struct fl_network *n, const struct fl_net_node *node) {
    (void)n;
    return !fl_net_int(node, "flexlab_flatten", 0);
}

/* The operators whose rows of operators.def have a lowering for integers. NULL: all that are quantised. */
static const struct {
    const char *op;
    takes_function *takes;
} rules[] = {{"Add", all_bytes},          {"AveragePool", takes_average},
             {"Clip", takes_clip},        {"Concat", takes_concat},
             {"Conv", takes_conv},        {"DequantizeLinear", NULL},
             {"Flatten", NULL},           {"Gemm", takes_gemm},
             {"GlobalAveragePool", NULL}, {"Identity", NULL},
             {"MatMul", takes_matmul},    {"MaxPool", takes_max},
             {"QuantizeLinear", NULL},    {"Relu", NULL},
             {"Reshape", NULL},           {"Softmax", takes_softmax},
             {"Squeeze", NULL},           {"Transpose", NULL},
             {"Unsqueeze", NULL}};

bool fl_int8_takes(const struct fl_network *n, const struct fl_net_node *node) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!strcmp(rules[i].op, node->op) && !*node->domain)
            return fl_net_is_quantised(n, node) && (!rules[i].takes || rules[i].takes(n, node));
    return false;
}
