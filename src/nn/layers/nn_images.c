/* nn_images.c - the nodes of images: convolution, batch normalisation, pooling, shortcuts; nn_layers.c says how a node
 * is made. */
#include "nn/layers/nn_layer.h"
#include "flexlab/tensor_blocks.h"
#include "core/base/fail.h"
#include "core/base/sized.h"
#include "flexlab/blocks_norms.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BATCHNORM_EPSILON 1e-5
#define BATCHNORM_MOMENTUM 0.1

/* --- shape rules -------------------------------------------------------------------------------------------------- */

/* What tensor_conv2d and tensor_maxpool2d would refuse at the first step. */
static tensor_status check_window(const struct fl_node *node, int dilation) {
    const struct fl_options *how = &node->how;
    FL_TRY(fl_need_between(node, "window", how->window, 1, TENSOR_WINDOW_LIMIT));
    FL_TRY(fl_need_between(node, "stride", how->stride, 1, TENSOR_WINDOW_STEP_LIMIT));
    FL_TRY(fl_need_between(node, "padding", how->padding, 0, TENSOR_WINDOW_STEP_LIMIT));
    return fl_need_between(node, "dilation", dilation, 1, TENSOR_WINDOW_STEP_LIMIT);
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
    FL_TRY(fl_need_image(node, x));
    FL_TRY(places(node, x->dim[1], &p));
    FL_TRY(places(node, x->dim[2], &q));
    return fl_add_image(node, p, q, channels);
}

static tensor_status conv_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(fl_need_outputs(node));
    FL_TRY(window_shape(node, x, node->how.outputs));
    const int64_t k = node->how.outputs, r = node->how.window, c = x->dim[3];
    const int groups = node->how.groups ? node->how.groups : 1;
    if (groups < 1 || c % groups || k % groups)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups, expected a divisor of %lld channels and %lld filters",
                       node->owner, groups, (long long)c, (long long)k);
    return fl_add_weight(node, "weight", FL_LAYOUT_FILTERS, FL_INIT_NORMAL,
                         sqrt(2.0 / ((double)(k / groups) * (double)(r * r))),
                         (struct fl_shape){4, {k, r, r, c / groups}});
}

/* States of batch normalisation. Those of the batch pass from forward to backward. */
enum moments { BATCH_MEAN, BATCH_VARIANCE, RUNNING_MEAN, RUNNING_VARIANCE };

static tensor_status add_moments(struct fl_node *node, enum moments which, const char *suffix, double initial,
                                 struct fl_shape channels) {
    return fl_add_state(node, (struct fl_state){.suffix = suffix,
                                                .format = FMT_F64,
                                                .shape = channels,
                                                .initial = initial,
                                                .lasts = which >= RUNNING_MEAN,
                                                .variance = which == RUNNING_VARIANCE});
}

static const tensor *moments(const struct fl_node *node, enum moments which) {
    return node->state[which].t;
}

/* What the caller asked for, or what there is without. */
static double epsilon_of(const struct fl_node *node) {
    return node->how.real[0] > 0 ? node->how.real[0] : BATCHNORM_EPSILON;
}
static double momentum_of(const struct fl_node *node) {
    return node->how.real[1] > 0 ? node->how.real[1] : BATCHNORM_MOMENTUM;
}

static tensor_status batchnorm_shape(struct fl_node *node, const struct fl_shape *x) {
    const double epsilon = node->how.real[0], momentum = node->how.real[1];
    if (!(epsilon >= 0 && isfinite(epsilon)))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: epsilon is %g, expected a finite number above 0 (0 means %g)",
                       node->owner, epsilon, BATCHNORM_EPSILON);
    if (!(momentum >= 0 && momentum <= 1))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: momentum is %g, expected above 0 and at most 1 (0 means %g)",
                       node->owner, momentum, BATCHNORM_MOMENTUM);
    int64_t c = x->dim[x->ndim - 1];
    if (c > INT_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%s: %lld channels, expected at most %d", node->owner, (long long)c, INT_MAX);
    const struct fl_shape channels = {1, {c}};
    FL_TRY(fl_add_learned(node, "gamma", FL_INIT_ONE, 0, channels));
    FL_TRY(fl_add_learned(node, "beta", FL_INIT_ZERO, 0, channels));
    FL_TRY(add_moments(node, BATCH_MEAN, "batch_mean", 0, channels));
    FL_TRY(add_moments(node, BATCH_VARIANCE, "batch_variance", 0, channels));
    FL_TRY(add_moments(node, RUNNING_MEAN, "running_mean", 0, channels));
    FL_TRY(add_moments(node, RUNNING_VARIANCE, "running_variance", 1, channels));
    return fl_same_shape(node, x);
}

static tensor_status batchnorm_add_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(fl_need_pair(node, x));
    return batchnorm_shape(node, x);
}

static tensor_status maxpool_shape(struct fl_node *node, const struct fl_shape *x) {
    return window_shape(node, x, x->dim[3]);
}

static tensor_status avgpool_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(fl_need_image(node, x));
    return fl_add_matrix(node, x->dim[3]);
}

static tensor_status shortcut_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(fl_need_image(node, x));
    int64_t stride = node->how.stride;
    FL_TRY(fl_need_between(node, "stride", node->how.stride, 1, TENSOR_WINDOW_LIMIT));
    if (node->how.outputs < x->dim[3])
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d filters, expected at least %lld", node->owner, node->how.outputs,
                       (long long)x->dim[3]);
    return fl_add_image(node, (x->dim[1] + stride - 1) / stride, (x->dim[2] + stride - 1) / stride, node->how.outputs);
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

static tensor_window window_of(const struct fl_node *node) {
    const struct fl_options *how = &node->how;
    return (tensor_window){TENSOR_SQUARE(how->window, how->stride, how->padding),
                           .dilation = {how->dilation, how->dilation}, .groups = how->groups};
}

static tensor_status conv_forward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor_window how = window_of(node);
    return tensor_conv2d(pass->y[0], pass->x[0], pass->w[0], &how);
}

static tensor_status conv_backward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor_window how = window_of(node);
    FL_TRY(tensor_conv2d_weight_grad(pass->g[0], pass->operand[0], pass->x[0], &how));
    if (!pass->dx[0])
        return TENSOR_OK;
    return tensor_conv2d_input_grad(pass->dx[0], pass->operand[0], pass->w[0], &how);
}

static tensor_status apply_normalisation(const struct fl_node *node, const struct fl_pass *pass, bool relu) {
    const tensor *mean = moments(node, pass->training ? BATCH_MEAN : RUNNING_MEAN);
    const tensor *variance = moments(node, pass->training ? BATCH_VARIANCE : RUNNING_VARIANCE);
    const tensor *residual = node->inputs > 1 ? pass->x[1] : NULL;
    return tensor_batchnorm(pass->y[0], pass->x[0], residual, pass->w[0], pass->w[1], mean, variance, epsilon_of(node),
                            relu);
}

static tensor_status normalise(struct fl_node *node, const struct fl_pass *pass, bool relu) {
    if (!pass->training)
        return apply_normalisation(node, pass, relu);
    const struct fl_state *state = node->state;
    FL_TRY(tensor_moments(state[BATCH_MEAN].t, state[BATCH_VARIANCE].t, pass->x[0]));
    FL_TRY(apply_normalisation(node, pass, relu));
    return tensor_running_statistics(state[RUNNING_MEAN].t, state[RUNNING_VARIANCE].t, state[BATCH_MEAN].t,
                                     state[BATCH_VARIANCE].t, pass->x[0], momentum_of(node));
}

static tensor_status batchnorm_forward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise(node, pass, false);
}

static tensor_status batchnorm_relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise(node, pass, true);
}

static tensor_status normalise_backward(struct fl_node *node, const struct fl_pass *pass, const tensor *dy,
                                        const tensor *mask) {
    return tensor_batchnorm_grad(pass->dx[0], pass->g[0], pass->g[1], dy, pass->x[0], mask, pass->w[0],
                                 moments(node, BATCH_MEAN), moments(node, BATCH_VARIANCE), epsilon_of(node));
}

static tensor_status batchnorm_backward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise_backward(node, pass, pass->dy[0], NULL);
}

static tensor_status batchnorm_relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise_backward(node, pass, pass->dy[0], fl_is_gated(node) ? NULL : pass->y[0]);
}

/* The gradient of the sum is that of the residual, and where it is wanted normalisation reads it there. */
static tensor_status batchnorm_add_relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    if (fl_is_gated(node) || !pass->dx[1])
        return batchnorm_relu_backward(node, pass);
    FL_TRY(tensor_relu_grad(pass->dx[1], pass->dy[0], pass->y[0]));
    return normalise_backward(node, pass, pass->dx[1], NULL);
}

static tensor_status maxpool_forward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor_window how = window_of(node);
    return tensor_maxpool2d(pass->y[0], pass->x[0], &how);
}

static tensor_status maxpool_backward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor_window how = window_of(node);
    return tensor_maxpool2d_grad(pass->dx[0], pass->dy[0], pass->x[0], &how);
}

static tensor_status avgpool_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_avgpool_global(pass->y[0], pass->x[0]);
}

static tensor_status avgpool_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_avgpool_global_grad(pass->dx[0], pass->dy[0]);
}

static tensor_status shortcut_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_shortcut_a(pass->y[0], pass->x[0], node->how.stride);
}

static tensor_status shortcut_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_shortcut_a_grad(pass->dx[0], pass->dy[0], node->how.stride);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind { CONV2D, BATCHNORM, BATCHNORM_RELU, BATCHNORM_ADD_RELU, MAXPOOL2D, AVGPOOL_GLOBAL, SHORTCUT_A };

static const struct fl_layer layers[] = {
    [CONV2D] = {"conv2d", 1, .group = "product", .saves_x = 1, .shape = conv_shape, .forward = conv_forward,
                .backward = conv_backward},
    [BATCHNORM] = {"batchnorm", 1, .group = "norm", .saves_x = 1, .always_dx = true, .shape = batchnorm_shape,
                   .forward = batchnorm_forward, .backward = batchnorm_backward},
    [BATCHNORM_RELU] = {"batchnorm", 1, .group = "norm", .saves_x = 1, .relu = 1, .always_dx = true,
                        .shape = batchnorm_shape, .forward = batchnorm_relu_forward,
                        .backward = batchnorm_relu_backward},
    [BATCHNORM_ADD_RELU] = {"batchnorm_add", 2, .group = "norm", .saves_x = 1, .relu = 1, .always_dx = true,
                            .when_gated = GRADIENTS(OWN, SAME), .shape = batchnorm_add_shape,
                            .forward = batchnorm_relu_forward, .backward = batchnorm_add_relu_backward},
    [MAXPOOL2D] = {"maxpool2d", 1, .saves_x = 1, .shape = maxpool_shape, .forward = maxpool_forward,
                   .backward = maxpool_backward},
    [AVGPOOL_GLOBAL] = {"avgpool_global", 1, .shape = avgpool_shape, .forward = avgpool_forward,
                        .backward = avgpool_backward},
    [SHORTCUT_A] = {"shortcut_a", 1, .shape = shortcut_shape, .forward = shortcut_forward,
                    .backward = shortcut_backward},
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node x, struct fl_options how) {
    return fl_add_node(g, &layers[kind], name, name, &x, layers[kind].inputs, &how);
}

nn_node nn_conv2d(nn_graph *g, const char *name, nn_node x, int filters, int kernel, int stride, int padding) {
    return nn_conv2d_window(g, name, x, filters, (nn_window){.window = kernel, .stride = stride, .padding = padding});
}

nn_node nn_conv2d_window(nn_graph *g, const char *name, nn_node x, int filters, nn_window how) {
    return add(g, CONV2D, name, x,
               (struct fl_options){.outputs = filters,
                                   .window = how.window,
                                   .stride = how.stride,
                                   .padding = how.padding,
                                   .dilation = how.dilation,
                                   .groups = how.groups});
}

nn_node nn_conv2d_bias(nn_graph *g, const char *name, nn_node x, int filters, nn_window how, bool relu) {
    char inner[FL_NAME_LIMIT + 16];
    if (name && strlen(name) <= FL_NAME_LIMIT) {
        snprintf(inner, sizeof inner, "%s.product", name);
        x = fl_add_node(g, &layers[CONV2D], inner, name, &x, 1,
                        &(struct fl_options){.outputs = filters,
                                             .window = how.window,
                                             .stride = how.stride,
                                             .padding = how.padding,
                                             .dilation = how.dilation,
                                             .groups = how.groups});
    }
    return nn_bias(g, name, x, relu);
}

nn_node nn_batchnorm(nn_graph *g, const char *name, nn_node x, bool relu) {
    return add(g, relu ? BATCHNORM_RELU : BATCHNORM, name, x, (struct fl_options){0});
}

nn_node nn_batchnorm_add_relu(nn_graph *g, const char *name, nn_node x, nn_node residual) {
    return fl_add_node(g, &layers[BATCHNORM_ADD_RELU], name, name, (nn_node[]){x, residual}, 2,
                       &(struct fl_options){0});
}

/* The caller's settings as options of the node; NULL: none. */
static tensor_status take_settings(const nn_batchnorm_settings *given, size_t size, nn_batchnorm_settings *settings) {
    *settings = (nn_batchnorm_settings){0};
    return given ? fl_take_sized(settings, sizeof *settings, given, size, "batchnorm: nn_batchnorm_settings")
                 : TENSOR_OK;
}

nn_node nn_batchnorm_with_sized(nn_graph *g, const char *name, nn_node x, const nn_batchnorm_settings *how,
                                size_t how_size) {
    nn_batchnorm_settings ours;
    const tensor_status status = take_settings(how, how_size, &ours);
    if (status)
        return fl_build_failed(g, status);
    return add(g, ours.relu ? BATCHNORM_RELU : BATCHNORM, name, x,
               (struct fl_options){.real = {ours.epsilon, ours.momentum}});
}

nn_node nn_batchnorm_add_relu_with_sized(nn_graph *g, const char *name, nn_node x, nn_node residual,
                                         const nn_batchnorm_settings *how, size_t how_size) {
    nn_batchnorm_settings ours;
    const tensor_status status = take_settings(how, how_size, &ours);
    if (status)
        return fl_build_failed(g, status);
    return fl_add_node(g, &layers[BATCHNORM_ADD_RELU], name, name, (nn_node[]){x, residual}, 2,
                       &(struct fl_options){.real = {ours.epsilon, ours.momentum}});
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
