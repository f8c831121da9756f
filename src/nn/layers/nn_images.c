/* nn_images.c - the nodes of images: batch normalisation, global average pooling, shortcuts; nn_layers.c says how a
 * node is made. */
#include "nn/layers/nn_layer.h"
#include "flexlab/tensor_blocks.h"
#include "core/ops/norms/part_norm.h"
#include "core/base/fail.h"
#include "flexlab/blocks_norms.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BATCHNORM_EPSILON 1e-5
#define BATCHNORM_MOMENTUM 0.1

/* --- shape rules -------------------------------------------------------------------------------------------------- */

/* States of batch normalisation. Those of the batch pass from forward to backward. */
enum moments { BATCH_MEAN, BATCH_VARIANCE, RUNNING_MEAN, RUNNING_VARIANCE };

static tensor_status add_moments(struct fl_node *node, enum moments which, const char *suffix, double initial,
                                 struct fl_shape channels) {
    return fl_add_state(node, (struct fl_state){.suffix = suffix,
                                                .format = FMT_F64,
                                                .shape = channels,
                                                .initial = initial,
                                                .lasts = which >= RUNNING_MEAN,
                                                .averaged = which < RUNNING_MEAN,
                                                .variance = which == RUNNING_VARIANCE});
}

static const tensor *moments(const struct fl_node *node, enum moments which) {
    return node->state[which].t;
}

/* The option of the caller, or the default. */
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
    TRY(fl_add_learned(node, "gamma", FL_INIT_ONE, 0, channels));
    TRY(fl_add_learned(node, "beta", FL_INIT_ZERO, 0, channels));
    TRY(add_moments(node, BATCH_MEAN, "batch_mean", 0, channels));
    TRY(add_moments(node, BATCH_VARIANCE, "batch_variance", 0, channels));
    TRY(add_moments(node, RUNNING_MEAN, "running_mean", 0, channels));
    TRY(add_moments(node, RUNNING_VARIANCE, "running_variance", 1, channels));
    return fl_same_shape(node, x);
}

static tensor_status batchnorm_add_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_pair(node, x));
    return batchnorm_shape(node, x);
}

static tensor_status avgpool_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_image(node, x));
    return fl_add_matrix(node, x->dim[3]);
}

static tensor_status shortcut_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_image(node, x));
    int64_t stride = node->how.stride;
    TRY(fl_need_between(node, "stride", node->how.stride, 1, TENSOR_WINDOW_LIMIT));
    if (node->how.outputs < x->dim[3])
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d filters, expected at least %lld", node->owner, node->how.outputs,
                       (long long)x->dim[3]);
    return fl_add_image(node, (x->dim[1] + stride - 1) / stride, (x->dim[2] + stride - 1) / stride, node->how.outputs);
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

static tensor_status apply_normalisation(const struct fl_node *node, const struct fl_pass *pass, bool relu) {
    const tensor *mean = moments(node, pass->training ? BATCH_MEAN : RUNNING_MEAN);
    const tensor *variance = moments(node, pass->training ? BATCH_VARIANCE : RUNNING_VARIANCE);
    const tensor *residual = node->inputs > 1 ? pass->x[1] : NULL;
    return tensor_batchnorm(pass->y[0], pass->x[0], residual, pass->w[0], pass->w[1], mean, variance, epsilon_of(node),
                            relu);
}

/* Of several shards, the moments of a batch are the means of theirs, unless they are those of all. */
static tensor_status settle_statistics(struct fl_node *node, const struct fl_pass *pass) {
    const struct fl_state *state = node->state;
    if (node->together)
        return fl_part_running_statistics(state[RUNNING_MEAN].t, state[RUNNING_VARIANCE].t, state[BATCH_MEAN].t,
                                          state[BATCH_VARIANCE].t, pass->x[0], momentum_of(node), node->together->rows);
    return tensor_running_statistics(state[RUNNING_MEAN].t, state[RUNNING_VARIANCE].t, state[BATCH_MEAN].t,
                                     state[BATCH_VARIANCE].t, pass->x[0], momentum_of(node));
}

static tensor_status normalise(struct fl_node *node, const struct fl_pass *pass, bool relu) {
    if (!pass->training)
        return apply_normalisation(node, pass, relu);
    const struct fl_state *state = node->state;
    if (!node->together)
        TRY(tensor_moments(state[BATCH_MEAN].t, state[BATCH_VARIANCE].t, pass->x[0]));
    TRY(apply_normalisation(node, pass, relu));
    return node->shards == 1 ? settle_statistics(node, pass) : TENSOR_OK;
}

static tensor_status batchnorm_forward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise(node, pass, false);
}

static tensor_status batchnorm_relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    return normalise(node, pass, true);
}

static tensor_status sum_forward(struct fl_node *node, const struct fl_pass *pass) {
    return fl_part_sums(node->together->sums, pass->x[0]);
}

/* The gradient that normalisation reads, and the tensor above zero where it counts; NULL: everywhere. */
static const tensor *mask_of(const struct fl_node *node, const struct fl_pass *pass) {
    return node->layer->relu && !fl_is_gated(node) ? pass->y[0] : NULL;
}

/* The gradient of a sum is that of the residual, and where it is wanted normalisation reads it there. */
static bool is_written_gated(const struct fl_node *node, const struct fl_pass *pass) {
    return node->inputs > 1 && !fl_is_gated(node) && pass->dx[1];
}

static tensor_status write_gated(const struct fl_node *node, const struct fl_pass *pass) {
    return is_written_gated(node, pass) ? tensor_relu_grad(pass->dx[1], pass->dy[0], pass->y[0]) : TENSOR_OK;
}

static tensor_status sum_backward(struct fl_node *node, const struct fl_pass *pass) {
    TRY(write_gated(node, pass));
    const bool gated = is_written_gated(node, pass);
    return fl_part_grad_sums(node->together->sums, gated ? pass->dx[1] : pass->dy[0], pass->x[0],
                             gated ? NULL : mask_of(node, pass));
}

static tensor_status batchnorm_backward(struct fl_node *node, const struct fl_pass *pass) {
    const struct fl_together *t = node->together;
    const bool gated = is_written_gated(node, pass);
    const tensor *dy = gated ? pass->dx[1] : pass->dy[0], *mask = gated ? NULL : mask_of(node, pass);
    const tensor *mean = moments(node, BATCH_MEAN), *variance = moments(node, BATCH_VARIANCE);
    if (t)
        return fl_part_grad(pass->dx[0], pass->g[0], pass->g[1], dy, pass->x[0], mask, pass->w[0], mean, variance,
                            t->sum_of_dy, t->about_mean, epsilon_of(node), t->rows);
    TRY(write_gated(node, pass));
    return tensor_batchnorm_grad(pass->dx[0], pass->g[0], pass->g[1], dy, pass->x[0], mask, pass->w[0], mean, variance,
                                 epsilon_of(node));
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

enum kind { BATCHNORM, BATCHNORM_RELU, BATCHNORM_ADD_RELU, AVGPOOL_GLOBAL, SHORTCUT_A };

#define JOINED .sum_forward = sum_forward, .sum_backward = sum_backward, .moments = BATCH_MEAN
static const struct fl_layer layers[] = {
    [BATCHNORM] = {"batchnorm", 1, .group = "norm", .saves_x = 1, .always_dx = true, .settle = settle_statistics,
                   .shape = batchnorm_shape, .forward = batchnorm_forward, .backward = batchnorm_backward, JOINED},
    [BATCHNORM_RELU] = {"batchnorm", 1, .group = "norm", .saves_x = 1, .relu = 1, .always_dx = true,
                        .settle = settle_statistics, .shape = batchnorm_shape, .forward = batchnorm_relu_forward,
                        .backward = batchnorm_backward, JOINED},
    [BATCHNORM_ADD_RELU] = {"batchnorm_add", 2, .group = "norm", .saves_x = 1, .relu = 1, .always_dx = true,
                            .when_gated = GRADIENTS(OWN, SAME), .settle = settle_statistics,
                            .shape = batchnorm_add_shape, .forward = batchnorm_relu_forward,
                            .backward = batchnorm_backward, JOINED},
    [AVGPOOL_GLOBAL] = {"avgpool_global", 1, .shape = avgpool_shape, .forward = avgpool_forward,
                        .backward = avgpool_backward},
    [SHORTCUT_A] = {"shortcut_a", 1, .shape = shortcut_shape, .forward = shortcut_forward,
                    .backward = shortcut_backward},
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node x, struct fl_options how) {
    return fl_add_node(g, &layers[kind], name, name, &x, layers[kind].inputs, &how);
}

/* epsilon and momentum as options of the node. */
static struct fl_options batchnorm_options(const nn_batchnorm_options *how) {
    return how ? (struct fl_options){.real = {how->epsilon, how->momentum}} : (struct fl_options){0};
}

nn_node nn_batchnorm(nn_graph *g, const char *name, nn_node x, const nn_batchnorm_options *how) {
    return add(g, how && how->relu ? BATCHNORM_RELU : BATCHNORM, name, x, batchnorm_options(how));
}

nn_node nn_batchnorm_add_relu(nn_graph *g, const char *name, nn_node x, nn_node residual,
                              const nn_batchnorm_options *how) {
    const struct fl_options options = batchnorm_options(how);
    return fl_add_node(g, &layers[BATCHNORM_ADD_RELU], name, name, (nn_node[]){x, residual}, 2, &options);
}

nn_node nn_avgpool_global(nn_graph *g, const char *name, nn_node x) {
    return add(g, AVGPOOL_GLOBAL, name, x, (struct fl_options){0});
}

nn_node nn_shortcut_a(nn_graph *g, const char *name, nn_node x, int filters, int stride) {
    return add(g, SHORTCUT_A, name, x, (struct fl_options){.outputs = filters, .stride = stride ? stride : 1});
}
