/* nn_layers.c - every kind of node: one row of the table at the end, and the public functions that add nodes.
 *
 * To add a layer: write its shape rule, forward and backward in terms of tensor.h, give them a row, and a public
 * function that calls fl_add_node with the row. Lifetimes, fan-out of gradients, parameters, evaluation, traces follow
 * from the row; tests/test_nn_gradient.c checks a new layer once it appears in one of its networks. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BATCHNORM_EPSILON 1e-5
#define BATCHNORM_MOMENTUM 0.1

/* --- shape rules: node->shape.dim[0] is the batch already --------------------------------------------------------- */

static tensor_status set_image(struct fl_node *node, int64_t height, int64_t width, int64_t channels) {
    node->shape = (struct fl_shape){4, {node->shape.dim[0], height, width, channels}};
    return TENSOR_OK;
}

static struct fl_parameter *add_parameter(struct fl_node *node, const char *suffix, enum fl_init init, double scale,
                                          struct fl_shape shape) {
    struct fl_parameter *p = &node->parameter[node->parameters++];
    *p = (struct fl_parameter){.suffix = suffix, .shape = shape, .init = init, .scale = scale};
    return p;
}

static tensor_status need_image(const struct fl_node *node, const struct fl_shape *x) {
    return x->ndim == 4 ? TENSOR_OK
                        : fl_fail(TENSOR_E_SHAPE, "%s: %s wants images, its input is a matrix of %lld columns",
                                  node->owner, node->layer->kind, (long long)x->dim[1]);
}

static tensor_status need_outputs(const struct fl_node *node) {
    return node->how.outputs >= 1
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: %d outputs, expected at least 1", node->owner, node->how.outputs);
}

static tensor_status need_between(const struct fl_node *node, const char *what, int value, int least, int most) {
    return value >= least && value <= most
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: %s %d, expected %d to %d", node->owner, what, value, least, most);
}

/* What tensor_conv2d and tensor_maxpool2d would refuse at the first step. */
static tensor_status check_window(const struct fl_node *node, int dilation) {
    const struct fl_options *how = &node->how;
    FL_TRY(need_between(node, "window", how->window, 1, TENSOR_WINDOW_LIMIT));
    FL_TRY(need_between(node, "stride", how->stride, 1, TENSOR_WINDOW_STEP_LIMIT));
    FL_TRY(need_between(node, "padding", how->padding, 0, TENSOR_WINDOW_STEP_LIMIT));
    return need_between(node, "dilation", dilation, 1, TENSOR_WINDOW_STEP_LIMIT);
}

/* Places of a window along a side of that size. */
static tensor_status places(const struct fl_node *node, int64_t size, int64_t *count) {
    const struct fl_options *how = &node->how;
    const int dilation = how->dilation ? how->dilation : 1;
    FL_TRY(check_window(node, dilation));
    const int64_t reach = (how->window - 1) * (int64_t)dilation + 1;
    const int64_t room = size + 2 * (int64_t)how->padding - reach;
    if (room < 0)
        return fl_fail(TENSOR_E_SHAPE,
                       "%s: a window of %d with dilation %d does not fit a side of %lld with padding %d", node->owner,
                       how->window, dilation, (long long)size, how->padding);
    *count = room / how->stride + 1;
    return TENSOR_OK;
}

static tensor_status window_shape(struct fl_node *node, const struct fl_shape *x, int64_t channels) {
    int64_t p = 0, q = 0;
    FL_TRY(need_image(node, x));
    FL_TRY(places(node, x->dim[1], &p));
    FL_TRY(places(node, x->dim[2], &q));
    return set_image(node, p, q, channels);
}

static tensor_status input_shape(struct fl_node *node, const struct fl_shape *x) {
    (void)x;
    return set_image(node, node->how.window, node->how.stride, node->how.outputs);
}

static tensor_status same_shape(struct fl_node *node, const struct fl_shape *x) {
    node->shape = x[0];
    return TENSOR_OK;
}

static tensor_status pair_shape(struct fl_node *node, const struct fl_shape *x) {
    if (x[0].ndim != x[1].ndim || memcmp(x[0].dim, x[1].dim, sizeof x[0].dim[0] * (size_t)x[0].ndim))
        return fl_fail(TENSOR_E_SHAPE, "%s: inputs of different shape: %lldx%lldx%lldx%lld and %lldx%lldx%lldx%lld",
                       node->owner, (long long)x[0].dim[0], (long long)x[0].dim[1], (long long)x[0].dim[2],
                       (long long)x[0].dim[3], (long long)x[1].dim[0], (long long)x[1].dim[1], (long long)x[1].dim[2],
                       (long long)x[1].dim[3]);
    return same_shape(node, x);
}

static tensor_status conv_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(need_outputs(node));
    FL_TRY(window_shape(node, x, node->how.outputs));
    const int64_t k = node->how.outputs, r = node->how.window, c = x->dim[3];
    const int groups = node->how.groups ? node->how.groups : 1;
    if (groups < 1 || c % groups || k % groups)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups, expected a divisor of %lld channels and %lld filters",
                       node->owner, groups, (long long)c, (long long)k);
    add_parameter(node, "weight", FL_INIT_NORMAL, sqrt(2.0 / ((double)(k / groups) * (double)(r * r))),
                  (struct fl_shape){4, {k, r, r, c / groups}});
    return TENSOR_OK;
}

static tensor_status batchnorm_shape(struct fl_node *node, const struct fl_shape *x) {
    int64_t c = x->dim[x->ndim - 1];
    if (c > INT_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%s: %lld channels, expected at most %d", node->owner, (long long)c, INT_MAX);
    node->channels = (int)c;
    add_parameter(node, "gamma", FL_INIT_ONE, 0, (struct fl_shape){1, {c}});
    add_parameter(node, "beta", FL_INIT_ZERO, 0, (struct fl_shape){1, {c}});
    return same_shape(node, x);
}

static tensor_status batchnorm_add_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(pair_shape(node, x));
    return batchnorm_shape(node, x);
}

static tensor_status flatten_shape(struct fl_node *node, const struct fl_shape *x) {
    node->shape = (struct fl_shape){2, {x->dim[0], fl_shape_count(x) / x->dim[0]}};
    return TENSOR_OK;
}

static tensor_status matmul_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(need_outputs(node));
    int64_t k = x->dim[1], n = node->how.outputs;
    double scale = node->how.init == FL_INIT_NORMAL ? sqrt(2.0 / (double)k) : sqrt(1.0 / (double)k);
    add_parameter(node, "weight", node->how.init, scale, (struct fl_shape){2, {k, n}});
    node->shape = (struct fl_shape){2, {x->dim[0], n}};
    return TENSOR_OK;
}

static tensor_status bias_shape(struct fl_node *node, const struct fl_shape *x) {
    add_parameter(node, "bias", FL_INIT_ZERO, 0, (struct fl_shape){1, {x->dim[x->ndim - 1]}});
    return same_shape(node, x);
}

static tensor_status maxpool_shape(struct fl_node *node, const struct fl_shape *x) {
    return window_shape(node, x, x->dim[3]);
}

static tensor_status avgpool_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(need_image(node, x));
    node->shape = (struct fl_shape){2, {x->dim[0], x->dim[3]}};
    return TENSOR_OK;
}

static tensor_status shortcut_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(need_image(node, x));
    int64_t stride = node->how.stride;
    FL_TRY(need_between(node, "stride", node->how.stride, 1, TENSOR_WINDOW_LIMIT));
    if (node->how.outputs < x->dim[3])
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d filters, expected at least %lld", node->owner, node->how.outputs,
                       (long long)x->dim[3]);
    return set_image(node, (x->dim[1] + stride - 1) / stride, (x->dim[2] + stride - 1) / stride, node->how.outputs);
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

static tensor_window window_of(const struct fl_node *node) {
    const struct fl_options *how = &node->how;
    return (tensor_window){.window = how->window,
                           .stride = how->stride,
                           .padding = how->padding,
                           .dilation = how->dilation,
                           .groups = how->groups};
}

static tensor_status conv_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_conv2d(pass->y, pass->x[0], node->parameter[0].w, window_of(node));
}

static tensor_status conv_backward(struct fl_node *node, const struct fl_pass *pass) {
    FL_TRY(tensor_conv2d_weight_grad(node->parameter[0].g, pass->dy, pass->x[0], window_of(node)));
    if (!pass->dx[0])
        return TENSOR_OK;
    return tensor_conv2d_input_grad(pass->dx[0], pass->dy, node->parameter[0].w, window_of(node));
}

static tensor_status apply_normalisation(const struct fl_node *node, const struct fl_pass *pass, bool relu) {
    const tensor *mean = pass->training ? node->batch_mean : node->running_mean;
    const tensor *variance = pass->training ? node->batch_variance : node->running_variance;
    return tensor_normalise(pass->y, pass->x[0], pass->x[1], node->parameter[0].w, node->parameter[1].w, mean, variance,
                            BATCHNORM_EPSILON, relu);
}

static tensor_status normalise(struct fl_node *node, const struct fl_pass *pass, bool relu) {
    if (!pass->training)
        return apply_normalisation(node, pass, relu);
    FL_TRY(tensor_moments(node->batch_mean, node->batch_variance, pass->x[0]));
    FL_TRY(apply_normalisation(node, pass, relu));
    return tensor_running_statistics(node->running_mean, node->running_variance, node->batch_mean, node->batch_variance,
                                     pass->x[0], BATCHNORM_MOMENTUM);
}

static tensor_status batchnorm_forward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise(node, pass, false);
}

static tensor_status batchnorm_relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise(node, pass, true);
}

static tensor_status normalise_backward(struct fl_node *node, const struct fl_pass *pass, const tensor *dy,
                                        const tensor *mask) {
    return tensor_normalise_grad(pass->dx[0], node->parameter[0].g, node->parameter[1].g, dy, pass->x[0], mask,
                                 node->parameter[0].w, node->batch_mean, node->batch_variance, BATCHNORM_EPSILON);
}

static tensor_status batchnorm_backward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise_backward(node, pass, pass->dy, NULL);
}

static tensor_status batchnorm_relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise_backward(node, pass, pass->dy, pass->gated ? NULL : pass->y);
}

/* The gradient of the sum is that of the residual, and where it is wanted normalisation reads it there. */
static tensor_status batchnorm_add_relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    if (pass->gated || !pass->dx[1])
        return batchnorm_relu_backward(node, pass);
    FL_TRY(tensor_relu_grad(pass->dx[1], pass->dy, pass->y));
    return normalise_backward(node, pass, pass->dx[1], NULL);
}

static tensor_status matmul_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_matmul(pass->y, pass->x[0], node->parameter[0].w);
}

static tensor_status matmul_backward(struct fl_node *node, const struct fl_pass *pass) {
    FL_TRY(tensor_matmul_tn(node->parameter[0].g, pass->x[0], pass->dy));
    return pass->dx[0] ? tensor_matmul_nt(pass->dx[0], pass->dy, node->parameter[0].w) : TENSOR_OK;
}

static tensor_status bias_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_bias(pass->y, pass->x[0], node->parameter[0].w);
}

static tensor_status bias_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_sum_rows(node->parameter[0].g, pass->dy);
}

static tensor_status bias_relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_bias_relu(pass->y, pass->x[0], node->parameter[0].w);
}

static tensor_status bias_relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    if (!pass->gated)
        FL_TRY(tensor_relu_grad(pass->dx[0], pass->dy, pass->y));
    return tensor_sum_rows(node->parameter[0].g, pass->dx[0]);
}

static tensor_status relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_relu(pass->y, pass->x[0]);
}

static tensor_status add_relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_add_relu(pass->y, pass->x[0], pass->x[1]);
}

/* Of relu and add_relu; the first wanted dx stands for both. */
static tensor_status relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    if (pass->gated)
        return TENSOR_OK;
    tensor *dx = pass->dx[0] ? pass->dx[0] : pass->dx[1];
    return tensor_relu_grad(dx, pass->dy, pass->y);
}

static tensor_status maxpool_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_maxpool2d(pass->y, pass->x[0], window_of(node));
}

static tensor_status maxpool_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_maxpool2d_grad(pass->dx[0], pass->dy, pass->x[0], window_of(node));
}

static tensor_status avgpool_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_avgpool_global(pass->y, pass->x[0]);
}

static tensor_status avgpool_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_avgpool_global_grad(pass->dx[0], pass->dy);
}

static tensor_status shortcut_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_shortcut_a(pass->y, pass->x[0], node->how.stride);
}

static tensor_status shortcut_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_shortcut_a_grad(pass->dx[0], pass->dy, node->how.stride);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind {
    INPUT,
    CONV2D,
    BATCHNORM,
    BATCHNORM_RELU,
    BATCHNORM_ADD_RELU,
    FLATTEN,
    MATMUL,
    BIAS,
    BIAS_RELU,
    RELU,
    ADD_RELU,
    MAXPOOL2D,
    AVGPOOL_GLOBAL,
    SHORTCUT_A
};

#define SAME FL_GRADIENT_SAME
#define SHARED FL_GRADIENT_SHARED

static const struct fl_layer layers[] = {
    /* the options of an input are height (window), width (stride) and channels (outputs); the step loads it */
    [INPUT] = {"input", 0, .shape = input_shape},
    [CONV2D] = {"conv2d", 1, .saves_x = 1, .shape = conv_shape, .forward = conv_forward, .backward = conv_backward},
    [BATCHNORM] = {"batchnorm", 1, .saves_x = 1, .always_dx = true, .shape = batchnorm_shape,
                   .forward = batchnorm_forward, .backward = batchnorm_backward},
    [BATCHNORM_RELU] = {"batchnorm", 1, .saves_x = 1, .relu = true, .always_dx = true, .shape = batchnorm_shape,
                        .forward = batchnorm_relu_forward, .backward = batchnorm_relu_backward},
    [BATCHNORM_ADD_RELU] = {"batchnorm_add", 2, .saves_x = 1, .relu = true, .always_dx = true,
                            .when_gated = {FL_GRADIENT_OWN, SAME}, .shape = batchnorm_add_shape,
                            .forward = batchnorm_relu_forward, .backward = batchnorm_add_relu_backward},
    [FLATTEN] = {"flatten", 1, .view = true, .gradient = {SAME}, .shape = flatten_shape},
    [MATMUL] = {"matmul", 1, .saves_x = 1, .shape = matmul_shape, .forward = matmul_forward,
                .backward = matmul_backward},
    [BIAS] = {"bias", 1, .gradient = {SAME}, .shape = bias_shape, .forward = bias_forward, .backward = bias_backward},
    [BIAS_RELU] = {"bias_relu", 1, .relu = true, .always_dx = true, .when_gated = {SAME}, .shape = bias_shape,
                   .forward = bias_relu_forward, .backward = bias_relu_backward},
    [RELU] = {"relu", 1, .relu = true, .when_gated = {SAME}, .shape = same_shape, .forward = relu_forward,
              .backward = relu_backward},
    [ADD_RELU] = {"add_relu", 2, .relu = true, .gradient = {SHARED, SHARED}, .when_gated = {SAME, SAME},
                  .shape = pair_shape, .forward = add_relu_forward, .backward = relu_backward},
    [MAXPOOL2D] = {"maxpool2d", 1, .saves_x = 1, .shape = maxpool_shape, .forward = maxpool_forward,
                   .backward = maxpool_backward},
    [AVGPOOL_GLOBAL] = {"avgpool_global", 1, .shape = avgpool_shape, .forward = avgpool_forward,
                        .backward = avgpool_backward},
    [SHORTCUT_A] = {"shortcut_a", 1, .shape = shortcut_shape, .forward = shortcut_forward,
                    .backward = shortcut_backward},
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node x, struct fl_options how) {
    return fl_add_node(g, &layers[kind], name, name, &x, &how);
}

nn_node nn_input(nn_graph *g, int height, int width, int channels) {
    if (height < 1 || width < 1 || channels < 1)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_SHAPE, "input: %dx%dx%d, expected at least 1 each", height, width, channels));
    if (g && !g->status && g->count)
        return fl_build_failed(g, fl_fail(TENSOR_E_ARGUMENT, "input: a graph has one input, and it comes first"));
    return add(g, INPUT, "input", -1, (struct fl_options){.window = height, .stride = width, .outputs = channels});
}

nn_node nn_conv2d(nn_graph *g, const char *name, nn_node x, int filters, int kernel, int stride, int padding) {
    return nn_conv2d_window(g, name, x, filters,
                            (tensor_window){.window = kernel, .stride = stride, .padding = padding});
}

nn_node nn_conv2d_window(nn_graph *g, const char *name, nn_node x, int filters, tensor_window how) {
    return add(g, CONV2D, name, x,
               (struct fl_options){.outputs = filters,
                                   .window = how.window,
                                   .stride = how.stride,
                                   .padding = how.padding,
                                   .dilation = how.dilation,
                                   .groups = how.groups});
}

nn_node nn_batchnorm(nn_graph *g, const char *name, nn_node x, bool relu) {
    return add(g, relu ? BATCHNORM_RELU : BATCHNORM, name, x, (struct fl_options){0});
}

nn_node nn_batchnorm_add_relu(nn_graph *g, const char *name, nn_node x, nn_node residual) {
    return fl_add_node(g, &layers[BATCHNORM_ADD_RELU], name, name, (nn_node[]){x, residual}, &(struct fl_options){0});
}

/* x, flattened where it is an image, times weight, plus bias. The product is a tensor of its own: a shared exponent has
 * one writer. */
static nn_node add_linear(nn_graph *g, const char *name, nn_node x, int outputs, bool relu) {
    char inner[FL_NAME_LIMIT + 16];
    struct fl_options how = {.outputs = outputs, .init = relu ? FL_INIT_NORMAL : FL_INIT_UNIFORM};
    if (name && strlen(name) <= FL_NAME_LIMIT) {
        if (g && x >= 0 && x < g->count && g->nodes[x].shape.ndim == 4) {
            snprintf(inner, sizeof inner, "%s.flatten", name);
            x = fl_add_node(g, &layers[FLATTEN], inner, name, &x, &how);
        }
        snprintf(inner, sizeof inner, "%s.product", name);
        x = fl_add_node(g, &layers[MATMUL], inner, name, &x, &how);
    }
    return add(g, relu ? BIAS_RELU : BIAS, name, x, (struct fl_options){0});
}

nn_node nn_linear(nn_graph *g, const char *name, nn_node x, int outputs) {
    return add_linear(g, name, x, outputs, false);
}

nn_node nn_linear_relu(nn_graph *g, const char *name, nn_node x, int outputs) {
    return add_linear(g, name, x, outputs, true);
}

nn_node nn_relu(nn_graph *g, const char *name, nn_node x) {
    return add(g, RELU, name, x, (struct fl_options){0});
}

nn_node nn_add_relu(nn_graph *g, const char *name, nn_node a, nn_node b) {
    return fl_add_node(g, &layers[ADD_RELU], name, name, (nn_node[]){a, b}, &(struct fl_options){0});
}

nn_node nn_maxpool2d(nn_graph *g, const char *name, nn_node x, int window, int stride) {
    return add(g, MAXPOOL2D, name, x, (struct fl_options){.window = window, .stride = stride});
}

nn_node nn_avgpool_global(nn_graph *g, const char *name, nn_node x) {
    return add(g, AVGPOOL_GLOBAL, name, x, (struct fl_options){0});
}

nn_node nn_shortcut_a(nn_graph *g, const char *name, nn_node x, int filters, int stride) {
    return add(g, SHORTCUT_A, name, x, (struct fl_options){.outputs = filters, .stride = stride});
}
