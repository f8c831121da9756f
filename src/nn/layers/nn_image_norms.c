/* nn_image_norms.c - more nodes of images: means of windows, local response normalisation, group normalisation,
 * dropout; nn_layers.c says how a node is made. */
#include "nn/layers/nn_layer.h"
#include "core/base/fail.h"
#include "flexlab/tensor_blocks.h"
#include <limits.h>
#include <math.h>

#define GROUPNORM_EPSILON 1e-5

/* --- average pooling ---------------------------------------------------------------------------------------------- */

static tensor_window window_of(const struct fl_node *node) {
    return (tensor_window){TENSOR_SQUARE(node->how.window, node->how.stride, node->how.padding)};
}

/* Places of the window along a side of that size. */
static tensor_status places(const struct fl_node *node, int64_t size, int64_t *count) {
    const struct fl_options *how = &node->how;
    const int64_t room = size + 2 * (int64_t)how->padding - how->window;
    if (room < 0)
        return fl_fail(TENSOR_E_SHAPE, "%s: a window of %d does not fit a side of %lld with padding %d", node->owner,
                       how->window, (long long)size, how->padding);
    *count = room / how->stride + 1;
    return TENSOR_OK;
}

static tensor_status avgpool_shape(struct fl_node *node, const struct fl_shape *x) {
    const struct fl_options *how = &node->how;
    int64_t p = 0, q = 0;
    TRY(fl_need_image(node, x));
    TRY(fl_need_between(node, "window", how->window, 1, TENSOR_WINDOW_LIMIT));
    TRY(fl_need_between(node, "stride", how->stride, 1, TENSOR_WINDOW_STEP_LIMIT));
    const int most = how->window - 1 < TENSOR_WINDOW_STEP_LIMIT ? how->window - 1 : TENSOR_WINDOW_STEP_LIMIT;
    TRY(fl_need_between(node, "padding", how->padding, 0, most));
    if (how->dilation < 0 || how->dilation > 1 || how->groups < 0 || how->groups > 1)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: dilation %d and %d groups, expected 1 and 1: they belong to convolutions", node->owner,
                       how->dilation, how->groups);
    TRY(places(node, x->dim[1], &p));
    TRY(places(node, x->dim[2], &q));
    return fl_add_image(node, p, q, x->dim[3]);
}

static tensor_status avgpool_forward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor_window how = window_of(node);
    return tensor_avgpool2d(pass->y[0], pass->x[0], &how, node->how.padding_counts);
}
static tensor_status avgpool_backward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor_window how = window_of(node);
    return tensor_avgpool2d_grad(pass->dx[0], pass->dy[0], &how, node->how.padding_counts);
}

/* The options are height (window) and width (stride) of the output. */
static tensor_status adaptive_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_image(node, x));
    TRY(fl_need_between(node, "height", node->how.window, 1, TENSOR_WINDOW_LIMIT));
    TRY(fl_need_between(node, "width", node->how.stride, 1, TENSOR_WINDOW_LIMIT));
    for (int d = 1; d < 3; d++)
        if (x->dim[d] > TENSOR_WINDOW_LIMIT)
            return fl_fail(TENSOR_E_SHAPE, "%s: a side of %lld pixels, expected at most %d", node->owner,
                           (long long)x->dim[d], TENSOR_WINDOW_LIMIT);
    return fl_add_image(node, node->how.window, node->how.stride, x->dim[3]);
}

static tensor_status adaptive_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_avgpool_adaptive(pass->y[0], pass->x[0]);
}
static tensor_status adaptive_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_avgpool_adaptive_grad(pass->dx[0], pass->dy[0]);
}

/* --- local response normalisation --------------------------------------------------------------------------------- */

/* The size is the option window; alpha, beta and k are real[0 ... 2]. */
static tensor_status lrn_shape(struct fl_node *node, const struct fl_shape *x) {
    const double *real = node->how.real;
    TRY(fl_need_between(node, "size", node->how.window, 1, TENSOR_WINDOW_LIMIT));
    if (!(real[0] >= 0 && isfinite(real[0])) || !(real[1] > 0 && real[1] <= 4) || !(real[2] > 0 && isfinite(real[2])))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: alpha %g, beta %g, k %g, expected 0 or more, above 0 and at most 4, above 0", node->owner,
                       real[0], real[1], real[2]);
    return fl_same_shape(node, x);
}

static tensor_status lrn_forward(struct fl_node *node, const struct fl_pass *pass) {
    const double *real = node->how.real;
    return tensor_lrn(pass->y[0], pass->x[0], node->how.window, (float)real[0], (float)real[1], (float)real[2]);
}
static tensor_status lrn_backward(struct fl_node *node, const struct fl_pass *pass) {
    const double *real = node->how.real;
    return tensor_lrn_grad(pass->dx[0], pass->dy[0], pass->x[0], node->how.window, (float)real[0], (float)real[1],
                           (float)real[2]);
}

/* --- group normalisation ------------------------------------------------------------------------------------------ */

static double epsilon_of(const struct fl_node *node) {
    return node->how.real[0] > 0 ? node->how.real[0] : GROUPNORM_EPSILON;
}

static tensor_status groupnorm_shape(struct fl_node *node, const struct fl_shape *x) {
    const int64_t c = x->dim[x->ndim - 1], elements = fl_shape_count(x) / x->dim[0];
    const int groups = node->how.groups;
    const double epsilon = node->how.real[0];
    if (groups < 1 || c % groups)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups, expected a divisor of %lld channels", node->owner, groups,
                       (long long)c);
    if (elements / groups > INT_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%s: %lld elements of a group, expected at most %d", node->owner,
                       (long long)(elements / groups), INT_MAX);
    if (!(epsilon >= 0 && isfinite(epsilon)))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: epsilon is %g, expected a finite number above 0 (0 means %g)",
                       node->owner, epsilon, GROUPNORM_EPSILON);
    const struct fl_shape channels = {1, {c}};
    TRY(fl_add_learned(node, "gamma", FL_INIT_ONE, 0, channels));
    TRY(fl_add_learned(node, "beta", FL_INIT_ZERO, 0, channels));
    return fl_same_shape(node, x);
}

static tensor_status groupnorm_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_groupnorm(pass->y[0], pass->x[0], pass->w[0], pass->w[1], node->how.groups, epsilon_of(node));
}
static tensor_status groupnorm_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_groupnorm_grad(pass->dx[0], pass->g[0], pass->g[1], pass->dy[0], pass->x[0], pass->w[0],
                                 node->how.groups, epsilon_of(node));
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

static tensor_status dropout_shape(struct fl_node *node, const struct fl_shape *x) {
    const double p = node->how.real[0];
    if (!(p >= 0 && p < 1))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: p is %g, expected 0 or more and below 1", node->owner, p);
    return fl_same_shape(node, x);
}

/* Drops elements of x, or of the gradient by the same draws: by seed, name, step and element. */
static tensor_status drop(const struct fl_node *node, const struct fl_pass *pass, tensor *y, const tensor *x) {
    return tensor_dropout(y, x, (float)node->how.real[0], nn_name_key(node->seed, node->name), pass->step);
}

static tensor_status dropout_forward(struct fl_node *node, const struct fl_pass *pass) {
    return pass->training ? drop(node, pass, pass->y[0], pass->x[0]) : tensor_scale(pass->y[0], pass->x[0], 1);
}
static tensor_status dropout_backward(struct fl_node *node, const struct fl_pass *pass) {
    return drop(node, pass, pass->dx[0], pass->dy[0]);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind { AVGPOOL2D, AVGPOOL_ADAPTIVE, LRN, GROUPNORM, DROPOUT };

static const struct fl_layer layers[] = {
    [AVGPOOL2D] = {"avgpool2d", 1, .shape = avgpool_shape, .forward = avgpool_forward, .backward = avgpool_backward},
    [AVGPOOL_ADAPTIVE] = {"avgpool_adaptive", 1, .shape = adaptive_shape, .forward = adaptive_forward,
                          .backward = adaptive_backward},
    [LRN] = {"lrn", 1, .group = "norm", .saves_x = 1, .shape = lrn_shape, .forward = lrn_forward,
             .backward = lrn_backward},
    [GROUPNORM] = {"groupnorm", 1, .group = "norm", .saves_x = 1, .always_dx = true, .shape = groupnorm_shape,
                   .forward = groupnorm_forward, .backward = groupnorm_backward},
    [DROPOUT] = {"dropout", 1, .draws = true, .shape = dropout_shape, .forward = dropout_forward,
                 .backward = dropout_backward},
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node x, struct fl_options how) {
    return fl_add_node(g, &layers[kind], name, name, &x, 1, &how);
}

nn_node nn_avgpool2d(nn_graph *g, const char *name, nn_node x, nn_window how, bool padding_counts) {
    return add(g, AVGPOOL2D, name, x,
               (struct fl_options){.window = how.window,
                                   .stride = how.stride ? how.stride : 1,
                                   .padding = how.padding,
                                   .dilation = how.dilation,
                                   .groups = how.groups,
                                   .padding_counts = padding_counts});
}

nn_node nn_avgpool_adaptive(nn_graph *g, const char *name, nn_node x, int height, int width) {
    return add(g, AVGPOOL_ADAPTIVE, name, x, (struct fl_options){.window = height, .stride = width});
}

nn_node nn_lrn(nn_graph *g, const char *name, nn_node x, int size, float alpha, float beta, float k) {
    return add(g, LRN, name, x, (struct fl_options){.window = size, .real = {(double)alpha, (double)beta, (double)k}});
}

nn_node nn_groupnorm(nn_graph *g, const char *name, nn_node x, int groups, double epsilon) {
    return add(g, GROUPNORM, name, x, (struct fl_options){.groups = groups, .real = {epsilon}});
}

nn_node nn_dropout(nn_graph *g, const char *name, nn_node x, float p) {
    return add(g, DROPOUT, name, x, (struct fl_options){.real = {(double)p}});
}
