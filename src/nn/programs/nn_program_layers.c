/* nn_program_layers.c - each kind of node of src/nn/layers as ONNX's operators, images with their channels last. */
#include "nn/programs/nn_program.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SAME(function) static tensor_status function(struct fl_translation *t, const struct fl_node *node)

/* The shape of input 0, and of output 0. */
static const struct fl_shape *in_shape(const struct fl_translation *t, const struct fl_node *node) {
    return &fl_output_of(t->g, node->input[0].x)->shape;
}
static const struct fl_shape *out_shape(const struct fl_node *node) {
    return &node->output[0].shape;
}

/* An operator of one operand without attributes. */
static tensor_status map(struct fl_translation *t, const struct fl_node *node, const char *op, int x) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, op, node->name, y, INPUTS(x));
    return TENSOR_OK;
}

/* The name of an operator on the way to a result. */
struct part {
    char text[3 * FL_NAME_LIMIT];
};
static struct part part(const struct fl_node *node, const char *what) {
    struct part p;
    snprintf(p.text, sizeof p.text, "%.200s:%s", node->name, what);
    return p;
}

/* A relu after the value, if the node ends in one; else the value must be the node's own. */
static int before_relu(struct fl_translation *t, const struct fl_node *node) {
    return node->layer->relu ? fl_value_new(t, node, "sum") : fl_value_out(t, node);
}
static tensor_status end_in_relu(struct fl_translation *t, const struct fl_node *node, int value) {
    return node->layer->relu ? map(t, node, "Relu", value) : TENSOR_OK;
}

static int reshaped(struct fl_translation *t, const struct fl_node *node, const char *what, int x, int y, int count,
                    const int64_t *dim) {
    const int shape = fl_value_integers(t, node, part(node, what).text + strlen(node->name) + 1, count, dim);
    return shape < 0 || !fl_emit(t, "Reshape", part(node, what).text, y, INPUTS(x, shape)) ? -1 : y;
}

static int transposed(struct fl_translation *t, const struct fl_node *node, const char *what, int x, int y, int count,
                      const int64_t *order) {
    struct fl_net_node *const made = fl_emit(t, "Transpose", part(node, what).text, y, INPUTS(x));
    return !made || fl_net_set_ints(t->n, made, "perm", count, order) ? -1 : y;
}

/* --- inputs, linear layers, sums ---------------------------------------------------------------------------------- */

static tensor_status add_input(struct fl_translation *t, const struct fl_node *node, tensor_type type) {
    const struct fl_shape *const s = out_shape(node);
    int *const inputs = fl_net_memory(t->n, sizeof *inputs);
    VALUE(x, inputs ? fl_value_out(t, node) : -1);
    struct fl_net_value *const v = &t->n->values[x];
    v->type = type;
    v->ndim = s->ndim;
    for (int d = 0; d < s->ndim; d++)
        v->dim[d] = d ? s->dim[d] : -1;
    inputs[0] = x;
    t->n->graph.inputs = inputs;
    t->n->graph.input_count = 1;
    return TENSOR_OK;
}
SAME(input) {
    return add_input(t, node, TENSOR_TYPE_F32);
}
SAME(tokens) {
    return add_input(t, node, TENSOR_TYPE_I32);
}

/* A result that is its input: conversions, which formats of nodes stand for; dropout. */
SAME(same) {
    t->value[node->first] = fl_value_in(t, node, 0);
    return TENSOR_OK;
}

SAME(flatten) {
    return map(t, node, "Flatten", fl_value_in(t, node, 0));
}

SAME(matmul) {
    VALUE(w, fl_value_parameter(t, node, 0, NULL));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Gemm", node->owner, y, INPUTS(fl_value_in(t, node, 0), w));
    return TENSOR_OK;
}

/* A part of the product before it, or a sum. */
SAME(bias) {
    struct fl_net_node *const last = t->n->graph.node_count ? &t->n->graph.nodes[t->n->graph.node_count - 1] : NULL;
    const int x = fl_value_in(t, node, 0);
    const bool product = last && !strcmp(last->op, "Gemm") && last->input_count == 2 && last->outputs[0] == x &&
                         last->format == node->as.y.format;
    VALUE(b, fl_value_parameter(t, node, 0, NULL));
    if (product) {
        int *const inputs = fl_net_memory(t->n, 3 * sizeof *inputs);
        VALUE(y, inputs ? before_relu(t, node) : -1);
        memcpy(inputs, last->inputs, 2 * sizeof *inputs);
        inputs[2] = b;
        last->inputs = inputs;
        last->input_count = 3;
        last->outputs[0] = y;
        return end_in_relu(t, node, y);
    }
    VALUE(y, before_relu(t, node));
    EMIT(made, t, "Add", part(node, "bias").text, y, INPUTS(x, b));
    return end_in_relu(t, node, y);
}

SAME(relu) {
    return map(t, node, "Relu", fl_value_in(t, node, 0));
}

SAME(add) {
    VALUE(y, before_relu(t, node));
    EMIT(made, t, "Add", node->layer->relu ? part(node, "add").text : node->name, y,
         INPUTS(fl_value_in(t, node, 0), fl_value_in(t, node, 1)));
    return end_in_relu(t, node, y);
}

SAME(multiply) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Mul", node->name, y, INPUTS(fl_value_in(t, node, 0), fl_value_in(t, node, 1)));
    return TENSOR_OK;
}

SAME(channel_scale) {
    VALUE(gamma, fl_value_parameter(t, node, 0, NULL));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Mul", node->name, y, INPUTS(fl_value_in(t, node, 0), gamma));
    return TENSOR_OK;
}

SAME(reduce_mean) {
    int64_t axes[FL_NODE_DIMS];
    int count = 0;
    for (int d = 0; d < FL_NODE_DIMS; d++)
        if (node->how.axes >> d & 1)
            axes[count++] = d;
    VALUE(list, fl_value_integers(t, node, "axes", count, axes));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "ReduceMean", node->name, y, INPUTS(fl_value_in(t, node, 0), list));
    return fl_net_set_int(t->n, made, "keepdims", node->how.keeps);
}

static int number(struct fl_translation *t, const struct fl_node *node, const char *what, double value) {
    return fl_value_floats(t, part(node, what).text, 0, NULL, &value);
}

SAME(clamp) {
    VALUE(low, number(t, node, "low", (double)node->how.low));
    VALUE(high, number(t, node, "high", (double)node->how.high));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Clip", node->name, y, INPUTS(fl_value_in(t, node, 0), low, high));
    return TENSOR_OK;
}

SAME(leaky_relu) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "LeakyRelu", node->name, y, INPUTS(fl_value_in(t, node, 0)));
    return fl_net_set_float(t->n, made, "alpha", node->how.low);
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *kind, *op;
} functions[] = {
    {"sigmoid", "Sigmoid"}, {"silu", "Swish"}, {"softsign", "Softsign"}, {"tanh", "Tanh"}, {"softplus", "Softplus"},
    {"gelu", "Gelu"},       {"exp", "Exp"},    {"log", "Log"},           {"sqrt", "Sqrt"}, {"reciprocal", "Reciprocal"},
    {"sin", "Sin"},         {"cos", "Cos"}};

SAME(function) {
    size_t i = 0;
    while (strcmp(functions[i].kind, node->layer->kind) != 0)
        i++;
    return map(t, node, functions[i].op, fl_value_in(t, node, 0));
}

SAME(gelu_tanh) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Gelu", node->name, y, INPUTS(fl_value_in(t, node, 0)));
    return fl_net_set_string(t->n, made, "approximate", "tanh");
}

/* log(1 / (1 + e^-x)) = -softplus(-x), with no rounding beside that of softplus. */
SAME(logsigmoid) {
    VALUE(minus, fl_value_new(t, node, "minus"));
    EMIT(first, t, "Neg", part(node, "minus").text, minus, INPUTS(fl_value_in(t, node, 0)));
    VALUE(plus, fl_value_new(t, node, "softplus"));
    EMIT(second, t, "Softplus", part(node, "softplus").text, plus, INPUTS(minus));
    return map(t, node, "Neg", plus);
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

static tensor_status set_window(struct fl_translation *t, struct fl_net_node *made, const tensor_window2d *how,
                                bool line, bool transposed) {
    int64_t window[2], stride[2], dilation[2], pads[4], more[2];
    const int first = line, count = 2 - line;
    const bool dilated = how->dilation[0] || how->dilation[1];
    for (int i = 0; i < count; i++) {
        window[i] = how->window[first + i];
        stride[i] = how->stride[first + i] ? how->stride[first + i] : 1;
        dilation[i] = dilated && how->dilation[first + i] ? how->dilation[first + i] : 1;
        pads[i] = how->padding[2 * (first + i)];
        pads[count + i] = how->padding[2 * (first + i) + 1];
        more[i] = how->output_padding[first + i];
    }
    made->channels_last = true;
    TRY(fl_net_set_ints(t->n, made, "kernel_shape", count, window));
    TRY(fl_net_set_ints(t->n, made, "strides", count, stride));
    TRY(fl_net_set_ints(t->n, made, "dilations", count, dilation));
    TRY(fl_net_set_ints(t->n, made, "pads", 2 * count, pads));
    return transposed ? fl_net_set_ints(t->n, made, "output_padding", count, more) : TENSOR_OK;
}

/* Transposed filters have the order [in, out, ...] in any network. */
SAME(convolution) {
    static const int as_image[] = {0, 3, 1, 2}, as_line[] = {0, 2, 1};
    const bool line = node->output[0].shape.ndim == 3, turned = !strncmp(node->layer->kind, "conv_transpose", 14);
    VALUE(w, fl_value_parameter(t, node, 0, !turned ? NULL : line ? as_line : as_image));
    const int b = node->how.bias ? fl_value_parameter(t, node, 1, NULL) : -1;
    if (node->how.bias && b < 0)
        return tensor_error_status();
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, turned ? "ConvTranspose" : "Conv", node->owner, y, node->how.bias ? 3 : 2,
         (const int[]){fl_value_in(t, node, 0), w, b});
    TRY(fl_net_set_int(t->n, made, "group", node->how.around.groups ? node->how.around.groups : 1));
    return set_window(t, made, &node->how.around, line, turned);
}

SAME(maxpool) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "MaxPool", node->name, y, INPUTS(fl_value_in(t, node, 0)));
    return set_window(t, made, &node->how.around, node->output[0].shape.ndim == 3, false);
}

static tensor_status average(struct fl_translation *t, const struct fl_node *node, const tensor_window2d *how,
                             bool padding_counts) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "AveragePool", node->name, y, INPUTS(fl_value_in(t, node, 0)));
    TRY(fl_net_set_int(t->n, made, "count_include_pad", padding_counts));
    return set_window(t, made, how, false, false);
}

SAME(avgpool2d) {
    const tensor_window2d how = {TENSOR_SQUARE(node->how.window, node->how.stride, node->how.padding)};
    return average(t, node, &how, node->how.padding_counts);
}

/* Windows from floor(i size / count) up to ceil((i + 1) size / count), if all have one size and one step. */
static bool uniform(int64_t size, int64_t count, int *window, int *step) {
    *window = (int)((size + count - 1) / count);
    *step = count > 1 ? (int)(size / count) : 1;
    for (int64_t i = 0; i < count; i++)
        if (i * size / count != i * *step || ((i + 1) * size + count - 1) / count != i * *step + *window)
            return false;
    return *step > 0;
}

SAME(adaptive) {
    const struct fl_shape *const from = in_shape(t, node), *const to = out_shape(node);
    tensor_window2d how = {.groups = 0};
    for (int way = 0; way < 2; way++)
        if (!uniform(from->dim[1 + way], to->dim[1 + way], &how.window[way], &how.stride[way]))
            return fl_fail(TENSOR_E_UNSUPPORTED,
                           "%s: adaptive pooling of %lldx%lld pixels to %lldx%lld has windows of several sizes, which "
                           "programs do not have",
                           node->owner, (long long)from->dim[1], (long long)from->dim[2], (long long)to->dim[1],
                           (long long)to->dim[2]);
    return average(t, node, &how, false);
}

SAME(avgpool_global) {
    VALUE(mean, fl_value_new(t, node, "mean"));
    EMIT(made, t, "GlobalAveragePool", part(node, "mean").text, mean, INPUTS(fl_value_in(t, node, 0)));
    made->channels_last = true;
    t->n->values[mean].range = (struct fl_range){.maximum = 0};
    TRY(map(t, node, "Flatten", mean));
    t->n->values[mean].range = t->n->values[t->value[node->first]].range;
    return TENSOR_OK;
}

/* Every stride-th pixel, zeros in the added channels: filters of one pixel, of which those in the middle have 1 at one
 * channel each. The products are exact in every format. */
SAME(shortcut_a) {
    const int64_t channels = in_shape(t, node)->dim[3], filters = out_shape(node)->dim[3];
    const tensor_window2d how = {TENSOR_SQUARE(1, node->how.stride, 0)};
    double *const numbers = fl_alloc_zero((size_t)(filters * channels) * sizeof *numbers);
    if (!numbers)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld filters", node->owner, (long long)filters);
    for (int64_t k = 0; k < channels; k++)
        numbers[((filters - channels) / 2 + k) * channels + k] = 1;
    const int w = fl_value_floats(t, part(node, "pixels").text, 4, (const int64_t[]){filters, 1, 1, channels}, numbers);
    fl_free(numbers);
    VALUE(y, w < 0 ? -1 : fl_value_out(t, node));
    EMIT(made, t, "Conv", node->name, y, INPUTS(fl_value_in(t, node, 0), w));
    return set_window(t, made, &how, false, false);
}

/* --- normalisation ------------------------------------------------------------------------------------------------ */

SAME(batchnorm) {
    const bool residual = node->inputs > 1;
    const double epsilon = node->how.real[0] > 0 ? node->how.real[0] : 1e-5;
    VALUE(gamma, fl_value_parameter(t, node, 0, NULL));
    VALUE(beta, fl_value_parameter(t, node, 1, NULL));
    VALUE(mean, fl_value_state(t, node, "running_mean"));
    VALUE(variance, fl_value_state(t, node, "running_variance"));
    VALUE(y, residual ? fl_value_new(t, node, "norm") : before_relu(t, node));
    EMIT(made, t, "BatchNormalization", residual || node->layer->relu ? part(node, "norm").text : node->name, y,
         INPUTS(fl_value_in(t, node, 0), gamma, beta, mean, variance));
    made->channels_last = true;
    TRY(fl_net_set_float(t->n, made, "epsilon", (float)epsilon));
    if (!residual)
        return end_in_relu(t, node, y);
    VALUE(sum, before_relu(t, node));
    EMIT(add, t, "Add", part(node, "add").text, sum, INPUTS(y, fl_value_in(t, node, 1)));
    return end_in_relu(t, node, sum);
}

/* [N, ..., C] as [N, C, ...], and back. */
SAME(groupnorm) {
    const int ndim = out_shape(node)->ndim;
    const double epsilon = node->how.real[0] > 0 ? node->how.real[0] : 1e-5;
    int64_t there[FL_NODE_DIMS] = {0}, back[FL_NODE_DIMS] = {0};
    for (int d = 1; d < ndim; d++) {
        there[d] = d == 1 ? ndim - 1 : d - 1;
        back[d] = d == ndim - 1 ? 1 : d + 1;
    }
    VALUE(gamma, fl_value_parameter(t, node, 0, NULL));
    VALUE(beta, fl_value_parameter(t, node, 1, NULL));
    VALUE(x, fl_value_new(t, node, "channels"));
    VALUE(turned, transposed(t, node, "channels", fl_value_in(t, node, 0), x, ndim, there));
    VALUE(norm, fl_value_new(t, node, "norm"));
    EMIT(made, t, "GroupNormalization", part(node, "norm").text, norm, INPUTS(turned, gamma, beta));
    TRY(fl_net_set_int(t->n, made, "num_groups", node->how.groups));
    TRY(fl_net_set_float(t->n, made, "epsilon", (float)epsilon));
    VALUE(y, fl_value_out(t, node));
    t->n->values[norm].range = t->n->values[y].range;
    VALUE(end, transposed(t, node, "pixels", norm, y, ndim, back));
    return TENSOR_OK;
}

SAME(layernorm) {
    VALUE(gamma, fl_value_parameter(t, node, 0, NULL));
    VALUE(beta, fl_value_parameter(t, node, 1, NULL));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "LayerNormalization", node->name, y, INPUTS(fl_value_in(t, node, 0), gamma, beta));
    TRY(fl_net_set_int(t->n, made, "axis", -1));
    return fl_net_set_float(t->n, made, "epsilon", 1e-5f);
}

/* gamma x / sqrt(mean of x^2 + 1e-5). */
SAME(rmsnorm) {
    const int x = fl_value_in(t, node, 0);
    VALUE(gamma, fl_value_parameter(t, node, 0, NULL));
    VALUE(axis, fl_value_integers(t, node, "axis", 1, (const int64_t[]){-1}));
    VALUE(epsilon, number(t, node, "epsilon", 1e-5));
    static const char *const steps[] = {"square", "mean", "sum", "root", "quotient"};
    int v[5];
    for (int i = 0; i < 5; i++)
        if ((v[i] = fl_value_new(t, node, steps[i])) < 0)
            return tensor_error_status();
    EMIT(square, t, "Mul", part(node, steps[0]).text, v[0], INPUTS(x, x));
    EMIT(mean, t, "ReduceMean", part(node, steps[1]).text, v[1], INPUTS(v[0], axis));
    EMIT(sum, t, "Add", part(node, steps[2]).text, v[2], INPUTS(v[1], epsilon));
    EMIT(root, t, "Sqrt", part(node, steps[3]).text, v[3], INPUTS(v[2]));
    EMIT(quotient, t, "Div", part(node, steps[4]).text, v[4], INPUTS(x, v[3]));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Mul", node->name, y, INPUTS(v[4], gamma));
    return TENSOR_OK;
}

SAME(lrn) {
    if (node->how.window % 2 == 0)
        return fl_fail(TENSOR_E_UNSUPPORTED,
                       "%s: response normalisation over %d channels, programs have it over odd numbers of them",
                       node->owner, node->how.window);
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "LRN", node->name, y, INPUTS(fl_value_in(t, node, 0)));
    made->channels_last = true;
    TRY(fl_net_set_int(t->n, made, "size", node->how.window));
    TRY(fl_net_set_float(t->n, made, "alpha", (float)node->how.real[0]));
    TRY(fl_net_set_float(t->n, made, "beta", (float)node->how.real[1]));
    return fl_net_set_float(t->n, made, "bias", (float)node->how.real[2]);
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

SAME(embedding) {
    VALUE(table, fl_value_parameter(t, node, 0, NULL));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Gather", node->name, y, INPUTS(table, fl_value_in(t, node, 0)));
    return TENSOR_OK;
}

SAME(positions) {
    VALUE(table, fl_value_parameter(t, node, 0, NULL));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Add", node->name, y, INPUTS(fl_value_in(t, node, 0), table));
    return TENSOR_OK;
}

SAME(rows) {
    VALUE(y, fl_value_out(t, node));
    VALUE(end,
          reshaped(t, node, "rows", fl_value_in(t, node, 0), y, 2, (const int64_t[]){-1, out_shape(node)->dim[1]}));
    return TENSOR_OK;
}

/* The products of the inputs of a recurrent layer, which its operator computes. */
static bool feeds_cells(const struct fl_translation *t, const struct fl_node *node) {
    for (int k = 0; k < t->g->count; k++) {
        const struct fl_node *const other = &t->g->nodes[k];
        const bool cells = !strcmp(other->layer->kind, "lstm") || !strcmp(other->layer->kind, "gru");
        if (cells && fl_source_of(t, other, 0) == node)
            return true;
    }
    return false;
}

/* Each position is a row of a product. */
SAME(linear) {
    const int64_t in = in_shape(t, node)->dim[2], length = out_shape(node)->dim[1], out = out_shape(node)->dim[2];
    const bool bias = node->parameters > 1, residual = node->inputs > 1;
    if (feeds_cells(t, node))
        return TENSOR_OK;
    VALUE(x, fl_value_new(t, node, "rows"));
    VALUE(rows, reshaped(t, node, "rows", fl_value_in(t, node, 0), x, 2, (const int64_t[]){-1, in}));
    VALUE(w, fl_value_parameter(t, node, 0, NULL));
    const int b = bias ? fl_value_parameter(t, node, 1, NULL) : -1;
    if (bias && b < 0)
        return tensor_error_status();
    VALUE(product, fl_value_new(t, node, "product"));
    EMIT(made, t, "Gemm", node->owner, product, 2 + bias, (const int[]){rows, w, b});
    VALUE(y, residual ? fl_value_new(t, node, "sequence") : fl_value_out(t, node));
    VALUE(back, reshaped(t, node, "sequence", product, y, 3, (const int64_t[]){-1, length, out}));
    if (!residual) {
        t->n->values[product].range = t->n->values[y].range;
        return TENSOR_OK;
    }
    VALUE(sum, fl_value_out(t, node));
    EMIT(add, t, "Add", part(node, "add").text, sum, INPUTS(y, fl_value_in(t, node, 1)));
    return TENSOR_OK;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static const int64_t heads_order[] = {0, 2, 1, 3};

SAME(heads) {
    const struct fl_shape *const s = out_shape(node);
    VALUE(x, fl_value_new(t, node, "width"));
    VALUE(split, reshaped(t, node, "width", fl_value_in(t, node, 0), x, 4,
                          (const int64_t[]){-1, s->dim[2], s->dim[1], s->dim[3]}));
    VALUE(y, fl_value_out(t, node));
    VALUE(end, transposed(t, node, "heads", split, y, 4, heads_order));
    return TENSOR_OK;
}

SAME(merge) {
    const struct fl_shape *const s = out_shape(node);
    VALUE(x, fl_value_new(t, node, "positions"));
    VALUE(turned, transposed(t, node, "positions", fl_value_in(t, node, 0), x, 4, heads_order));
    VALUE(y, fl_value_out(t, node));
    VALUE(end, reshaped(t, node, "width", turned, y, 3, (const int64_t[]){-1, s->dim[1], s->dim[2]}));
    return TENSOR_OK;
}

SAME(scores) {
    VALUE(k, fl_value_new(t, node, "keys"));
    VALUE(keys, transposed(t, node, "keys", fl_value_in(t, node, 1), k, 4, (const int64_t[]){0, 1, 3, 2}));
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "MatMul", node->name, y, INPUTS(fl_value_in(t, node, 0), keys));
    return TENSOR_OK;
}

SAME(weights) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Softmax", node->name, y, INPUTS(fl_value_in(t, node, 0)));
    TRY(fl_net_set_float(t->n, made, "flexlab_beta", (float)(1 / sqrt((double)node->how.outputs))));
    return node->how.stride ? fl_net_set_int(t->n, made, "flexlab_causal", 1) : TENSOR_OK;
}

SAME(mixture) {
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "MatMul", node->name, y, INPUTS(fl_value_in(t, node, 0), fl_value_in(t, node, 1)));
    return TENSOR_OK;
}

/* --- recurrent layers --------------------------------------------------------------------------------------------- */

static const int64_t turned_order[] = {1, 0, 2};

SAME(time_first) {
    const struct fl_shape *const from = in_shape(t, node), *const s = out_shape(node);
    int x = fl_value_in(t, node, 0);
    if (from->ndim == 4) {
        VALUE(lines, fl_value_new(t, node, "lines"));
        x = reshaped(t, node, "lines", x, lines, 3, (const int64_t[]){-1, s->dim[0], s->dim[2]});
    }
    VALUE(y, x < 0 ? -1 : fl_value_out(t, node));
    VALUE(end, transposed(t, node, "time", x, y, 3, turned_order));
    return TENSOR_OK;
}

SAME(batch_first) {
    VALUE(y, fl_value_out(t, node));
    VALUE(end, transposed(t, node, "batch", fl_value_in(t, node, 0), y, 3, turned_order));
    return TENSOR_OK;
}

SAME(last_step) {
    const int64_t last = in_shape(t, node)->dim[1] - 1;
    VALUE(index, fl_value_integers(t, node, "index", 1, &last));
    t->n->values[index].ndim = t->n->values[index].constant->ndim = 0;
    VALUE(y, fl_value_out(t, node));
    EMIT(made, t, "Gather", node->name, y, INPUTS(fl_value_in(t, node, 0), index));
    return fl_net_set_int(t->n, made, "axis", 1);
}

/* [in, gates x units] in the library's order of gates as [1, gates x units, in] in ONNX's; rows 1 for a bias, which
 * goes to [1, 2, gates x units] at `at`. */
static void take_gates(double *to, const double *from, int64_t in, int gates, int64_t units, const int *order) {
    for (int k = 0; k < gates; k++)
        for (int64_t u = 0; u < units; u++)
            for (int64_t i = 0; i < in; i++)
                to[(k * units + u) * in + i] = from[i * gates * units + order[k] * units + u];
}

static int gates_value(struct fl_translation *t, const struct fl_node *node, int parameter, int gates,
                       const int *order) {
    const struct fl_shape *const s = &node->parameter[parameter].shape;
    const int64_t dim[] = {1, s->dim[1], s->dim[0]};
    double *const from = fl_parameter_numbers(node, parameter);
    double *const to = from ? fl_alloc((size_t)fl_shape_count(s) * sizeof *to) : NULL;
    char *const name = to ? fl_format_name("%s.%s", node->owner, node->parameter[parameter].suffix) : NULL;
    int value = -1;
    if (name) {
        take_gates(to, from, s->dim[0], gates, s->dim[1] / gates, order);
        value = fl_value_floats(t, name, 3, dim, to);
    }
    fl_free(name);
    fl_free(to);
    fl_free(from);
    return value;
}

/* The bias of the inputs, then that of the states: GRU's own, 0 of LSTM. */
static int biases_value(struct fl_translation *t, const struct fl_node *input, const struct fl_node *node, int gates,
                        const int *order) {
    const int64_t count = input->parameter[1].shape.dim[0];
    double *const to = fl_alloc_zero((size_t)(2 * count) * sizeof *to);
    double *const b = to ? fl_parameter_numbers(input, 1) : NULL;
    double *const more = b && node->parameters > 1 ? fl_parameter_numbers(node, 1) : NULL;
    int value = -1;
    if (b && (node->parameters == 1 || more)) {
        take_gates(to, b, 1, gates, count / gates, order);
        if (more)
            take_gates(to + count, more, 1, gates, count / gates, order);
        value = fl_value_floats(t, part(node, "biases").text, 2, (const int64_t[]){1, 2 * count}, to);
    }
    fl_free(more);
    fl_free(b);
    fl_free(to);
    return value;
}

/* The gates of the library are i, f, g, o and r, z, n, those of ONNX i, o, f, c and z, r, h. */
static tensor_status cells(struct fl_translation *t, const struct fl_node *node, const char *op, int gates,
                           const int *order) {
    const struct fl_node *const input = fl_source_of(t, node, 0);
    if (strcmp(input->layer->kind, "linear") != 0)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%s: cells without a linear layer before them", node->owner);
    VALUE(w, gates_value(t, input, 0, gates, order));
    VALUE(r, gates_value(t, node, 0, gates, order));
    VALUE(b, biases_value(t, input, node, gates, order));
    VALUE(states, fl_value_new(t, node, "directions"));
    EMIT(made, t, op, node->name, states, INPUTS(fl_value_in(t, input, 0), w, r, b));
    TRY(fl_net_set_int(t->n, made, "hidden_size", out_shape(node)->dim[2]));
    if (gates == 3)
        TRY(fl_net_set_int(t->n, made, "linear_before_reset", 1));
    VALUE(axis, fl_value_integers(t, node, "axis", 1, (const int64_t[]){1}));
    VALUE(y, fl_value_out(t, node));
    t->n->values[states].range = t->n->values[y].range;
    EMIT(squeeze, t, "Squeeze", part(node, "states").text, y, INPUTS(states, axis));
    return TENSOR_OK;
}

SAME(lstm) {
    static const int order[] = {0, 3, 1, 2};
    return cells(t, node, "LSTM", 4, order);
}
SAME(gru) {
    static const int order[] = {1, 0, 2};
    return cells(t, node, "GRU", 3, order);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *kind;
    fl_translate *how;
} kinds[] = {
    {"input", input},
    {"tokens", tokens},
    {"dropout", same},
    {"flatten", flatten},
    {"matmul", matmul},
    {"bias", bias},
    {"bias_relu", bias},
    {"relu", relu},
    {"add", add},
    {"add_relu", add},
    {"broadcast_add", add},
    {"broadcast_mul", multiply},
    {"channel_scale", channel_scale},
    {"reduce_mean", reduce_mean},
    {"clamp", clamp},
    {"leaky_relu", leaky_relu},
    {"gelu_tanh", gelu_tanh},
    {"logsigmoid", logsigmoid},
    {"conv2d", convolution},
    {"conv1d", convolution},
    {"conv_transpose2d", convolution},
    {"conv_transpose1d", convolution},
    {"maxpool2d", maxpool},
    {"maxpool1d", maxpool},
    {"avgpool2d", avgpool2d},
    {"avgpool_adaptive", adaptive},
    {"avgpool_global", avgpool_global},
    {"shortcut_a", shortcut_a},
    {"batchnorm", batchnorm},
    {"batchnorm_add", batchnorm},
    {"groupnorm", groupnorm},
    {"layernorm", layernorm},
    {"rmsnorm", rmsnorm},
    {"lrn", lrn},
    {"embedding", embedding},
    {"positions", positions},
    {"rows", rows},
    {"product", linear},
    {"linear", linear},
    {"linear_add", linear},
    {"heads", heads},
    {"merge", merge},
    {"scores", scores},
    {"weights", weights},
    {"mixture", mixture},
    {"time_first", time_first},
    {"batch_first", batch_first},
    {"last_step", last_step},
    {"lstm", lstm},
    {"gru", gru},
};

fl_translate *fl_translate_find(const struct fl_node *node) {
    const char *const kind = node->layer->kind;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!strcmp(kinds[i].kind, kind))
            return kinds[i].how;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (!strcmp(functions[i].kind, kind))
            return function;
    return strncmp(kind, "convert", 7) ? NULL : same;
}
