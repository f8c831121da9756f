/* nn_convolutions.c - the nodes of convolutions, transposed convolutions and max pooling, over images and along one
 * direction; nn_layers.c says how a node is made. */
#include "core/base/fail.h"
#include "nn/layers/nn_layer.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The kinds differ in the number of directions and in whether they are transposed. Options have windows of two
 * directions; kinds of one use the second. */
enum kind { CONV2D, CONV_TRANSPOSE2D, CONV1D, CONV_TRANSPOSE1D, MAXPOOL2D, MAXPOOL1D };
static const struct fl_layer layers[];

static enum kind kind_of(const struct fl_node *node) {
    return (enum kind)(node->layer - layers);
}

static bool is_line(const struct fl_node *node) {
    const enum kind kind = kind_of(node);
    return kind == CONV1D || kind == CONV_TRANSPOSE1D || kind == MAXPOOL1D;
}

static bool is_transposed(const struct fl_node *node) {
    return kind_of(node) == CONV_TRANSPOSE2D || kind_of(node) == CONV_TRANSPOSE1D;
}

/* --- shape rules -------------------------------------------------------------------------------------------------- */

static int dilation_of(const tensor_window2d *how, int way) {
    return how->dilation[0] || how->dilation[1] ? how->dilation[way] : 1;
}

/* Checks the options of one direction that operations of tensor.h would otherwise refuse in the first step. */
static tensor_status check_direction(const struct fl_node *node, int way) {
    const tensor_window2d *how = &node->how.around;
    TRY(fl_need_between(node, "window", how->window[way], 1, TENSOR_WINDOW_LIMIT));
    TRY(fl_need_between(node, "stride", how->stride[way], 1, TENSOR_WINDOW_STEP_LIMIT));
    for (int side = 2 * way; side < 2 * way + 2; side++)
        TRY(fl_need_between(node, "padding", how->padding[side], 0, TENSOR_WINDOW_STEP_LIMIT));
    TRY(fl_need_between(node, "dilation", dilation_of(how, way), 1, TENSOR_WINDOW_STEP_LIMIT));
    return fl_need_between(node, "output padding", how->output_padding[way], 0,
                           is_transposed(node) ? how->stride[way] - 1 : 0);
}

/* The number of windows along a side of that size; for a transposed convolution the number of pixels of its output. */
static tensor_status places(const struct fl_node *node, int way, int64_t size, int64_t *count) {
    const tensor_window2d *how = &node->how.around;
    TRY(check_direction(node, way));
    const int64_t reach = (how->window[way] - 1) * (int64_t)dilation_of(how, way) + 1, stride = how->stride[way];
    const int *padding = how->padding + 2 * way;
    if (is_transposed(node)) {
        *count = (size - 1) * stride + reach + how->output_padding[way] - padding[0] - padding[1];
        return *count > 0 ? TENSOR_OK
                          : fl_fail(TENSOR_E_SHAPE, "%s: padding %d and %d leaves nothing of %lld pixels", node->owner,
                                    padding[0], padding[1], (long long)(*count + padding[0] + padding[1]));
    }
    const int64_t room = size + padding[0] + padding[1] - reach;
    if (room < 0)
        return fl_fail(TENSOR_E_SHAPE,
                       "%s: a window of %d with dilation %d does not fit a side of %lld with padding %d and %d",
                       node->owner, how->window[way], dilation_of(how, way), (long long)size, padding[0], padding[1]);
    *count = room / stride + 1;
    return TENSOR_OK;
}

/* Adds the output of so many channels. */
static tensor_status add_places(struct fl_node *node, const struct fl_shape *x, int64_t channels) {
    const bool line = is_line(node);
    int64_t size[2] = {1, 1};
    if (x->ndim != (line ? 3 : 4))
        return fl_fail(TENSOR_E_SHAPE, "%s: %s takes %s, its input is %s", node->owner, node->layer->kind,
                       line ? "sequences [N, L, C]" : "images [N, H, W, C]", fl_shape_in_words(x).text);
    for (int way = line; way < 2; way++)
        TRY(places(node, way, x->dim[line ? 1 : 1 + way], &size[way]));
    return line ? fl_add_output(node, NULL, (struct fl_shape){3, {x->dim[0], size[1], channels}})
                : fl_add_image(node, size[0], size[1], channels);
}

/* Fan-out, the mode of He et al. (2015) that preserves the variance of gradients: the number of outputs that an input
 * contributes to. For a transposed convolution it counts those of the filters that one input meets. */
static tensor_status convolution_shape(struct fl_node *node, const struct fl_shape *x) {
    const tensor_window2d *how = &node->how.around;
    const int groups = how->groups ? how->groups : 1;
    const int64_t inputs = x->dim[x->ndim - 1], outputs = node->how.outputs, r = how->window[0], s = how->window[1];
    TRY(fl_need_outputs(node));
    TRY(add_places(node, x, outputs));
    if (groups < 1 || inputs % groups || outputs % groups)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups, expected a divisor of %lld channels and %lld filters",
                       node->owner, groups, (long long)inputs, (long long)outputs);
    const int64_t k = is_transposed(node) ? inputs : outputs, c = (is_transposed(node) ? outputs : inputs) / groups;
    const struct fl_shape filters =
        is_line(node) ? (struct fl_shape){3, {k, s, c}} : (struct fl_shape){4, {k, r, s, c}};
    const double fan_out = (double)(outputs / groups) * (double)(is_line(node) ? 1 : r) * (double)s;
    const enum fl_layout layout = is_transposed(node)
                                      ? is_line(node) ? FL_LAYOUT_TURNED_LINES : FL_LAYOUT_TURNED_FILTERS
                                  : is_line(node) ? FL_LAYOUT_LINES
                                                  : FL_LAYOUT_FILTERS;
    const double deviation = node->how.deviation > 0 ? node->how.deviation : sqrt(2 / fan_out);
    TRY(fl_add_weight(node, "weight", layout, FL_INIT_NORMAL, deviation, filters));
    return node->how.bias ? fl_add_learned(node, "bias", FL_INIT_ZERO, 0, (struct fl_shape){1, {outputs}}) : TENSOR_OK;
}

static tensor_status pool_shape(struct fl_node *node, const struct fl_shape *x) {
    const tensor_window2d *how = &node->how.around;
    TRY(add_places(node, x, x->dim[x->ndim - 1]));
    for (int way = is_line(node); way < 2; way++) {
        const int most = (how->window[way] - 1) * dilation_of(how, way);
        for (int side = 2 * way; side < 2 * way + 2; side++)
            TRY(fl_need_between(node, "padding", how->padding[side], 0, most));
    }
    return how->groups > 1 ? fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups, expected 1: they belong to convolutions",
                                     node->owner, how->groups)
                           : TENSOR_OK;
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

static tensor_status convolution_forward(struct fl_node *node, const struct fl_pass *pass) {
    tensor *const y = pass->y[0], *const x = pass->x[0], *const w = pass->w[0];
    const tensor_epilogue with = {.bias = node->how.bias ? pass->w[1] : NULL};
    fl_begin_forward_product(node, pass);
    switch (kind_of(node)) {
    case CONV2D:
        return tensor_conv2d_fused(y, x, w, &node->how.around, &with);
    case CONV_TRANSPOSE2D:
        return tensor_conv_transpose2d_fused(y, x, w, &node->how.around, &with);
    case CONV1D:
        return tensor_conv1d_fused(y, x, w, &node->how.around, &with);
    default:
        return tensor_conv_transpose1d_fused(y, x, w, &node->how.around, &with);
    }
}

static tensor_status weight_gradient(const struct fl_node *node, tensor *dw, const tensor *dy, const tensor *x) {
    switch (kind_of(node)) {
    case CONV2D:
        return tensor_conv2d_weight_grad(dw, dy, x, &node->how.around);
    case CONV_TRANSPOSE2D:
        return tensor_conv_transpose2d_weight_grad(dw, dy, x, &node->how.around);
    case CONV1D:
        return tensor_conv1d_weight_grad(dw, dy, x, &node->how.around);
    default:
        return tensor_conv_transpose1d_weight_grad(dw, dy, x, &node->how.around);
    }
}

static tensor_status input_gradient(const struct fl_node *node, tensor *dx, const tensor *dy, const tensor *w) {
    switch (kind_of(node)) {
    case CONV2D:
        return tensor_conv2d_input_grad(dx, dy, w, &node->how.around);
    case CONV_TRANSPOSE2D:
        return tensor_conv_transpose2d_input_grad(dx, dy, w, &node->how.around);
    case CONV1D:
        return tensor_conv1d_input_grad(dx, dy, w, &node->how.around);
    default:
        return tensor_conv_transpose1d_input_grad(dx, dy, w, &node->how.around);
    }
}

static tensor_status convolution_backward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_product(node, is_transposed(node) ? FL_PRODUCT_WEIGHT : FL_PRODUCT_WEIGHT_TURNED);
    TRY(weight_gradient(node, pass->g[0], pass->operand[0], pass->x[0]));
    if (node->how.bias)
        TRY(tensor_sum_rows(pass->g[1], pass->dy[0]));
    fl_begin_product(node, FL_PRODUCT_INPUT);
    return pass->dx[0] ? input_gradient(node, pass->dx[0], pass->operand[0], pass->w[0]) : TENSOR_OK;
}

static tensor_status pool_forward(struct fl_node *node, const struct fl_pass *pass) {
    return is_line(node) ? tensor_maxpool1d(pass->y[0], pass->x[0], &node->how.around)
                         : tensor_maxpool2d(pass->y[0], pass->x[0], &node->how.around);
}

static tensor_status pool_backward(struct fl_node *node, const struct fl_pass *pass) {
    return is_line(node) ? tensor_maxpool1d_grad(pass->dx[0], pass->dy[0], pass->x[0], &node->how.around)
                         : tensor_maxpool2d_grad(pass->dx[0], pass->dy[0], pass->x[0], &node->how.around);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define CONVOLUTION(name)                                                                                              \
    {                                                                                                                  \
        name, 1, .group = "product", .saves_x = 1, .shape = convolution_shape, .forward = convolution_forward,         \
                 .backward = convolution_backward                                                                      \
    }
#define POOL(name)                                                                                                     \
    { name, 1, .saves_x = 1, .shape = pool_shape, .forward = pool_forward, .backward = pool_backward }

static const struct fl_layer layers[] = {
    [CONV2D] = CONVOLUTION("conv2d"), [CONV_TRANSPOSE2D] = CONVOLUTION("conv_transpose2d"),
    [CONV1D] = CONVOLUTION("conv1d"), [CONV_TRANSPOSE1D] = CONVOLUTION("conv_transpose1d"),
    [MAXPOOL2D] = POOL("maxpool2d"),  [MAXPOOL1D] = POOL("maxpool1d"),
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, const char *owner, nn_node x,
                   const struct fl_options *how) {
    struct fl_options options = *how;
    if (!options.around.stride[0] && !options.around.stride[1])
        options.around.stride[0] = options.around.stride[1] = 1;
    return fl_add_node(g, &layers[kind], name, owner, &x, 1, &options);
}

/* A square window, or the caller's window in its place. */
struct square {
    const char *what; /* of the side, in messages */
    int side, stride, padding, dilation, groups, output_padding;
    const tensor_window2d *other;
};

static tensor_status take_window(const char *name, tensor_window2d *around, const struct square *s) {
    const struct {
        const char *what;
        int value;
    } given[] = {{s->what, s->side},        {"stride", s->stride}, {"padding", s->padding},
                 {"dilation", s->dilation}, {"groups", s->groups}, {"output padding", s->output_padding}};
    for (size_t i = 0; s->other && i < sizeof given / sizeof given[0]; i++)
        if (given[i].value)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s %d and a `window`, expected one of them", fl_shown_name(name),
                           given[i].what, given[i].value);
    *around = s->other ? *s->other
                       : (tensor_window2d){.window = {s->side, s->side},
                                           .stride = {s->stride, s->stride},
                                           .padding = {s->padding, s->padding, s->padding, s->padding},
                                           .dilation = {s->dilation, s->dilation},
                                           .groups = s->groups,
                                           .output_padding = {s->output_padding, s->output_padding}};
    return TENSOR_OK;
}

/* A convolution as options of its node. */
static tensor_status take_convolution(const char *name, struct fl_options *options, int outputs, int kernel,
                                      const nn_conv2d_options *how) {
    const struct square square = {"a kernel of", kernel,      how->stride,         how->padding,
                                  how->dilation, how->groups, how->output_padding, how->window};
    const char *shown = fl_shown_name(name);
    if (how->bias && how->bias_after)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: bias and bias_after, expected one of them", shown);
    if (how->relu && !how->bias_after)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: relu without bias_after, whose operation it is in", shown);
    if (!(how->deviation >= 0 && isfinite(how->deviation)))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: deviation %g, expected a finite number of 0 or more", shown,
                       how->deviation);
    *options = (struct fl_options){.outputs = outputs, .bias = how->bias, .deviation = how->deviation};
    return take_window(name, &options->around, &square);
}

static const nn_conv2d_options usual;

nn_node nn_conv2d(nn_graph *g, const char *name, nn_node x, int filters, int kernel, const nn_conv2d_options *given) {
    const nn_conv2d_options *how = given ? given : &usual;
    struct fl_options options;
    char inner[FL_NAME_LIMIT + 16];
    const tensor_status status = take_convolution(name, &options, filters, kernel, how);
    if (status)
        return fl_build_failed(g, status);
    if (!how->bias_after)
        return add(g, CONV2D, name, name, x, &options);
    if (name && strlen(name) <= FL_NAME_LIMIT) { /* else nn_bias tells */
        snprintf(inner, sizeof inner, "%s.product", name);
        x = add(g, CONV2D, inner, name, x, &options);
    }
    return nn_bias(g, name, x, how->relu);
}

nn_node nn_conv_transpose2d(nn_graph *g, const char *name, nn_node x, int channels, int kernel,
                            const nn_conv2d_options *given) {
    const nn_conv2d_options *how = given ? given : &usual;
    struct fl_options options;
    tensor_status status = take_convolution(name, &options, channels, kernel, how);
    if (!status && how->bias_after)
        status = fl_fail(TENSOR_E_ARGUMENT, "%s: bias_after, which a transposed convolution does not have",
                         fl_shown_name(name));
    return status ? fl_build_failed(g, status) : add(g, CONV_TRANSPOSE2D, name, name, x, &options);
}

nn_node nn_maxpool2d(nn_graph *g, const char *name, nn_node x, int side, const nn_pool2d_options *given) {
    const nn_pool2d_options how = given ? *given : (nn_pool2d_options){0};
    const struct square square = {"a window of", side,        how.stride,         how.padding,
                                  how.dilation,  .groups = 0, .other = how.window};
    struct fl_options options = {0};
    const tensor_status status = take_window(name, &options.around, &square);
    return status ? fl_build_failed(g, status) : add(g, MAXPOOL2D, name, name, x, &options);
}

static nn_node add_1d(nn_graph *g, enum kind kind, const char *name, nn_node x, int outputs, const tensor_window1d *how,
                      bool bias) {
    if (!how)
        return fl_build_failed(g, fl_fail(TENSOR_E_ARGUMENT, "%s: window is NULL", fl_shown_name(name)));
    const struct fl_options options = {.outputs = outputs,
                                       .bias = bias,
                                       .around = {.window = {1, how->window},
                                                  .stride = {1, how->stride ? how->stride : 1},
                                                  .padding = {0, 0, how->padding[0], how->padding[1]},
                                                  .dilation = {how->dilation ? 1 : 0, how->dilation},
                                                  .groups = how->groups,
                                                  .output_padding = {0, how->output_padding}}};
    return add(g, kind, name, name, x, &options);
}

nn_node nn_conv1d(nn_graph *g, const char *name, nn_node x, int filters, const tensor_window1d *how, bool bias) {
    return add_1d(g, CONV1D, name, x, filters, how, bias);
}

nn_node nn_conv_transpose1d(nn_graph *g, const char *name, nn_node x, int channels, const tensor_window1d *how,
                            bool bias) {
    return add_1d(g, CONV_TRANSPOSE1D, name, x, channels, how, bias);
}

nn_node nn_maxpool1d(nn_graph *g, const char *name, nn_node x, const tensor_window1d *how) {
    return add_1d(g, MAXPOOL1D, name, x, 0, how, false);
}
