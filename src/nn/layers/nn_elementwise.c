/* nn_elementwise.c - nodes of means over dimensions, of sums and products whose second operand is repeated, and of
 * clamps; nn_layers.c says how a node is made. */
#include "nn/layers/nn_layer.h"
#include "core/base/fail.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>

/* --- shape rules -------------------------------------------------------------------------------------------------- */

static tensor_status mean_shape(struct fl_node *node, const struct fl_shape *x) {
    const unsigned axes = node->how.axes;
    struct fl_shape y = {0, {0}};
    if (axes >> x->ndim || !axes || axes & 1)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: axes are 0x%x, expected bits 1 to %d alone, one at least, for %s",
                       node->owner, axes, x->ndim - 1, fl_shape_in_words(x).text);
    for (int d = 0; d < x->ndim; d++)
        if (!(axes >> d & 1))
            y.dim[y.ndim++] = x->dim[d];
        else if (node->how.keeps)
            y.dim[y.ndim++] = 1;
    if (y.ndim < 2)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s over axes 0x%x leaves the batch alone, expected another dimension",
                       node->owner, fl_shape_in_words(x).text, axes);
    return fl_add_output(node, NULL, y);
}

/* That of the first input, to which the second one is repeated. */
static tensor_status repeated_shape(struct fl_node *node, const struct fl_shape *x) {
    bool fits = x[0].ndim == x[1].ndim && x[0].dim[0] == x[1].dim[0];
    for (int d = 1; fits && d < x[0].ndim; d++)
        fits = x[1].dim[d] == x[0].dim[d] || x[1].dim[d] == 1;
    if (!fits)
        return fl_fail(TENSOR_E_SHAPE, "%s: inputs are %s and %s, expected in the second the sizes of the first, or 1",
                       node->owner, fl_shape_in_words(&x[0]).text, fl_shape_in_words(&x[1]).text);
    return fl_same_shape(node, x);
}

static tensor_status scale_shape(struct fl_node *node, const struct fl_shape *x) {
    FL_TRY(fl_add_learned(node, "gamma", FL_INIT_ONE, 0, (struct fl_shape){1, {x->dim[x->ndim - 1]}}));
    return fl_same_shape(node, x);
}

static tensor_status clamp_shape(struct fl_node *node, const struct fl_shape *x) {
    const float low = node->how.low, high = node->how.high;
    if (!isfinite(low) || !isfinite(high) || low > high)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: clamped to %g ... %g, expected finite numbers in this order",
                       node->owner, (double)low, (double)high);
    return fl_same_shape(node, x);
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

static tensor_status mean_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_reduce_mean(pass->y[0], pass->x[0], node->how.axes);
}

static tensor_status mean_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_reduce_mean_grad(pass->dx[0], pass->dy[0], node->how.axes);
}

static tensor_status add_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_broadcast_add(pass->y[0], pass->x[0], pass->x[1]);
}

/* The gradient of the first input is that of the output. */
static tensor_status add_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return pass->dx[1] ? tensor_broadcast_add_grad(pass->dx[1], pass->dy[0]) : TENSOR_OK;
}

static tensor_status mul_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_broadcast_mul(pass->y[0], pass->x[0], pass->x[1]);
}

static tensor_status mul_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    for (int i = 0; i < 2; i++)
        if (pass->dx[i])
            FL_TRY(tensor_broadcast_mul_grad(pass->dx[i], pass->dy[0], pass->x[1 - i]));
    return TENSOR_OK;
}

static tensor_status scale_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_broadcast_mul(pass->y[0], pass->x[0], pass->w[0]);
}

static tensor_status scale_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    FL_TRY(tensor_broadcast_mul_grad(pass->g[0], pass->dy[0], pass->x[0]));
    return pass->dx[0] ? tensor_broadcast_mul(pass->dx[0], pass->dy[0], pass->w[0]) : TENSOR_OK;
}

static tensor_status clamp_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_clamp(pass->y[0], pass->x[0], node->how.low, node->how.high);
}

static tensor_status clamp_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_clamp_grad(pass->dx[0], pass->dy[0], pass->x[0], node->how.low, node->how.high);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind { REDUCE_MEAN, BROADCAST_ADD, BROADCAST_MUL, CHANNEL_SCALE, CLAMP };

static const struct fl_layer layers[] = {
    [REDUCE_MEAN] = {"reduce_mean", 1, .shape = mean_shape, .forward = mean_forward, .backward = mean_backward},
    [BROADCAST_ADD] = {"broadcast_add", 2, .gradient = GRADIENTS(SAME, OWN), .shape = repeated_shape,
                       .forward = add_forward, .backward = add_backward},
    [BROADCAST_MUL] = {"broadcast_mul", 2, .saves_x = 2, .shape = repeated_shape, .forward = mul_forward,
                       .backward = mul_backward},
    [CHANNEL_SCALE] = {"channel_scale", 1, .saves_x = 1, .shape = scale_shape, .forward = scale_forward,
                       .backward = scale_backward},
    [CLAMP] = {"clamp", 1, .saves_x = 1, .shape = clamp_shape, .forward = clamp_forward, .backward = clamp_backward},
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node a, nn_node b, struct fl_options how) {
    const nn_node x[2] = {a, b};
    return fl_add_node(g, &layers[kind], name, name, x, layers[kind].inputs, &how);
}

nn_node nn_reduce_mean(nn_graph *g, const char *name, nn_node x, unsigned axes, bool keep) {
    return add(g, REDUCE_MEAN, name, x, -1, (struct fl_options){.axes = axes, .keeps = keep});
}
nn_node nn_broadcast_add(nn_graph *g, const char *name, nn_node a, nn_node b) {
    return add(g, BROADCAST_ADD, name, a, b, (struct fl_options){0});
}
nn_node nn_broadcast_mul(nn_graph *g, const char *name, nn_node a, nn_node b) {
    return add(g, BROADCAST_MUL, name, a, b, (struct fl_options){0});
}
nn_node nn_channel_scale(nn_graph *g, const char *name, nn_node x) {
    return add(g, CHANNEL_SCALE, name, x, -1, (struct fl_options){0});
}
nn_node nn_clamp(nn_graph *g, const char *name, nn_node x, float low, float high) {
    return add(g, CLAMP, name, x, -1, (struct fl_options){.low = low, .high = high});
}
