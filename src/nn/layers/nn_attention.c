/* nn_attention.c - multi-head attention of a sequence to itself (Vaswani et al. 2017), and the block of a transformer
 * made of it; nn_layers.c says how a node is made.
 *
 * Queries, keys and values are three layers and not one of threefold width: in shared-exponent formats each has an
 * exponent of its own, and heads come out of one permutation each, [batch, length, heads, d] to [batch, heads, length,
 * d], without slices of a common tensor. */
#include "core/base/fail.h"
#include "nn/layers/nn_layer.h"
#include "nn/layers/nn_sequence.h"
#include "flexlab/blocks_losses.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- shape rules -------------------------------------------------------------------------------------------------- */

/* Heads are `groups`. */
static tensor_status heads_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_sequence(node, x));
    const int heads = node->how.groups;
    if (heads < 1 || x->dim[2] % heads)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d heads, expected a divisor of the width %lld", node->owner, heads,
                       (long long)x->dim[2]);
    return fl_add_output(node, NULL, (struct fl_shape){4, {x->dim[0], heads, x->dim[1], x->dim[2] / heads}});
}

static tensor_status merge_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_output(node, NULL, (struct fl_shape){3, {x->dim[0], x->dim[2], x->dim[1] * x->dim[3]}});
}

/* Queries and keys of one shape. */
static tensor_status scores_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_pair(node, x));
    return fl_add_output(node, NULL, (struct fl_shape){4, {x->dim[0], x->dim[1], x->dim[2], x->dim[2]}});
}

/* Weights and values. */
static tensor_status mixture_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_output(node, NULL, x[1]);
}

/* [batch, length, width] with the width divided into heads; a shape of four dimensions remains. */
static void seen_with_heads(const struct fl_node *node, struct fl_shape *shape) {
    const int heads = node->how.groups;
    if (shape->ndim == 3)
        *shape = (struct fl_shape){4, {shape->dim[0], shape->dim[1], heads, shape->dim[2] / heads}};
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

/* Both ways: the permutation is its own inverse. */
static const int heads_order[] = {0, 2, 1, 3};

static tensor_status heads_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_permute(pass->y[0], pass->x[0], heads_order);
}

static tensor_status heads_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_permute(pass->dx[0], pass->dy[0], heads_order);
}

static tensor_status scores_forward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_forward_product(node, pass);
    return tensor_matmul_batched_nt(pass->y[0], pass->x[0], pass->x[1]);
}

static tensor_status scores_backward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_product(node, FL_PRODUCT_INPUT);
    if (pass->dx[0])
        TRY(tensor_matmul_batched(pass->dx[0], pass->operand[0], pass->x[1]));
    return pass->dx[1] ? tensor_matmul_batched_tn(pass->dx[1], pass->operand[0], pass->x[0]) : TENSOR_OK;
}

/* By 1 / sqrt(d), d being `outputs`; causal is `stride`. */
static float scale_of(const struct fl_node *node) {
    return (float)(1 / sqrt((double)node->how.outputs));
}

static tensor_status weights_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_softmax(pass->y[0], pass->x[0], scale_of(node), node->how.stride);
}

static tensor_status weights_backward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_softmax_grad(pass->dx[0], pass->dy[0], pass->y[0], scale_of(node), node->how.stride);
}

static tensor_status mixture_forward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_forward_product(node, pass);
    return tensor_matmul_batched(pass->y[0], pass->x[0], pass->x[1]);
}

static tensor_status mixture_backward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_product(node, FL_PRODUCT_INPUT);
    if (pass->dx[0])
        TRY(tensor_matmul_batched_nt(pass->dx[0], pass->operand[0], pass->x[1]));
    fl_begin_product(node, FL_PRODUCT_INPUT_TURNED);
    return pass->dx[1] ? tensor_matmul_batched_tn(pass->dx[1], pass->x[0], pass->operand[0]) : TENSOR_OK;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind { HEADS, SCORES, WEIGHTS, MIXTURE, MERGE };

static const struct fl_layer layers[] = {
    [HEADS] = {"heads", 1, .seen = seen_with_heads, .shape = heads_shape, .forward = heads_forward,
               .backward = heads_backward},
    [SCORES] = {"scores", 2, .group = "product", .saves_x = 2, .shape = scores_shape, .forward = scores_forward,
                .backward = scores_backward},
    [WEIGHTS] = {"weights", 1, .group = "softmax", .saves_y = 1, .shape = fl_same_shape, .forward = weights_forward,
                 .backward = weights_backward},
    [MIXTURE] = {"mixture", 2, .group = "product", .saves_x = 2, .shape = mixture_shape, .forward = mixture_forward,
                 .backward = mixture_backward},
    [MERGE] = {"merge", 1, .seen = seen_with_heads, .shape = merge_shape, .forward = heads_forward,
               .backward = heads_backward},
};

/* --- attention ---------------------------------------------------------------------------------------------------- */

/* GPT-2's (Radford et al. 2019). */
static const double deviation = 0.02;

enum { INNER_BYTES = FL_NAME_LIMIT + 24 };

/* NAME.PART, in memory of the caller; too long for a layer where NAME is. */
static const char *inner(char text[INNER_BYTES], const char *name, const char *part) {
    snprintf(text, INNER_BYTES, "%.*s.%s", FL_NAME_LIMIT + 1, name, part);
    return text;
}

static nn_node add(nn_graph *g, enum kind kind, const char *name, const char *part, nn_node a, nn_node b,
                   struct fl_options how) {
    char text[INNER_BYTES];
    return fl_add_node(g, &layers[kind], inner(text, name, part), name, (nn_node[]){a, b}, layers[kind].inputs, &how);
}

/* A linear layer and its heads. */
static nn_node add_heads(nn_graph *g, const char *name, const char *part, const char *heads_part, nn_node x, int width,
                         int heads) {
    char text[INNER_BYTES];
    x = fl_add_normal_linear(g, inner(text, name, part), x, -1, width, deviation);
    return add(g, HEADS, name, heads_part, x, -1, (struct fl_options){.groups = heads});
}

/* Attention of x to itself, plus the residual (-1: none); last_deviation: of the output layer. */
static nn_node add_attention(nn_graph *g, const char *name, nn_node x, nn_node residual, int heads, bool causal,
                             double last_deviation) {
    char text[INNER_BYTES];
    const int width = (int)fl_output_of(g, x)->shape.dim[2];
    const nn_node q = add_heads(g, name, "query", "queries", x, width, heads),
                  k = add_heads(g, name, "key", "keys", x, width, heads),
                  v = add_heads(g, name, "value", "values", x, width, heads);
    const struct fl_options softmax = {.outputs = width / heads, .stride = causal};
    nn_node p = add(g, SCORES, name, "scores", q, k, (struct fl_options){0});
    p = add(g, WEIGHTS, name, "weights", p, -1, softmax);
    p = add(g, MIXTURE, name, "mixture", p, v, (struct fl_options){0});
    p = add(g, MERGE, name, "merged", p, -1, (struct fl_options){.groups = heads});
    return fl_add_normal_linear(g, inner(text, name, "projection"), p, residual, width, last_deviation);
}

/* Checks that x is a sequence, that the graph may grow, and that heads divide the width. */
static tensor_status check(const nn_graph *g, const char *name, nn_node x, int heads) {
    if (!g)
        return fl_fail(TENSOR_E_ARGUMENT, "attention: the graph is NULL");
    if (g->status)
        return fl_fail(g->status, "%s", g->message);
    TRY(fl_check_name("attention", name, FL_NAME_LIMIT));
    if (x < 0 || x >= g->handle_count)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: input node %d, expected 0 ... %d", name, x, g->handle_count - 1);
    const struct fl_shape *shape = &fl_output_of(g, x)->shape;
    if (shape->ndim != 3 || shape->dim[2] > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%s: attention takes sequences [batch, length, width], its input is %s", name,
                       fl_shape_in_words(shape).text);
    if (heads < 1 || shape->dim[2] % heads)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d heads, expected a divisor of the width %lld", name, heads,
                       (long long)shape->dim[2]);
    return TENSOR_OK;
}

nn_node nn_attention(nn_graph *g, const char *name, nn_node x, int heads, bool causal) {
    const tensor_status status = check(g, name, x, heads);
    return status ? fl_build_failed(g, status) : add_attention(g, name, x, -1, heads, causal, deviation);
}

/* --- transformer -------------------------------------------------------------------------------------------------- */

static tensor_status check_block(const nn_graph *g, const char *name, nn_node x, const nn_transformer *how) {
    TRY(check(g, name, x, how->heads));
    if (how->hidden < 0 || how->layers < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: hidden %d, layers %d, expected 0 or more", name, how->hidden,
                       how->layers);
    return fl_output_of(g, x)->shape.dim[2] <= INT32_MAX / 4
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "%s: width %lld, expected less than 2^29", name,
                         (long long)fl_output_of(g, x)->shape.dim[2]);
}

static nn_node norm(nn_graph *g, const char *name, nn_node x, const nn_transformer *how) {
    return how->rmsnorm ? nn_rmsnorm(g, name, x) : nn_layernorm(g, name, x);
}

nn_node nn_transformer_block(nn_graph *g, const char *name, nn_node x, const nn_transformer *how) {
    char text[INNER_BYTES];
    const tensor_status status =
        how ? check_block(g, name, x, how) : fl_fail(TENSOR_E_ARGUMENT, "transformer: how is NULL");
    if (status)
        return fl_build_failed(g, status);
    const int width = (int)fl_output_of(g, x)->shape.dim[2], hidden = how->hidden ? how->hidden : 4 * width;
    const double out = how->layers ? deviation / sqrt(2.0 * how->layers) : deviation;
    char attention[INNER_BYTES];
    inner(attention, name, "attention");
    if (strlen(attention) > FL_NAME_LIMIT)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_ARGUMENT, "%s: the name of a block is too long for the names of its nodes", name));
    nn_node y = norm(g, inner(text, name, "norm1"), x, how);
    if (y >= 0)
        x = add_attention(g, attention, y, x, how->heads, how->causal, out);
    y = norm(g, inner(text, name, "norm2"), x, how);
    y = fl_add_normal_linear(g, inner(text, name, "expand"), y, -1, hidden, deviation);
    y = nn_activation(g, inner(text, name, "activation"), y, how->activation ? how->activation : "gelu_tanh");
    return fl_add_normal_linear(g, inner(text, name, "contract"), y, x, width, out);
}
