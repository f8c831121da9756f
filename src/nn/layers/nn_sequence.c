/* nn_sequence.c - the nodes of sequences, [batch, length, width]: tokens, embedding, positions, linear layers;
 * nn_layers.c says how a node is made. */
#include "nn/layers/nn_sequence.h"
#include "core/base/fail.h"
#include "nn/layers/nn_layer.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- shape rules -------------------------------------------------------------------------------------------------- */

/* Length is `window`, vocabulary `outputs`. */
static tensor_status tokens_shape(struct fl_node *node, const struct fl_shape *x) {
    (void)x;
    TRY(fl_add_output(node, NULL, (struct fl_shape){2, {node->batch, node->how.window}}));
    node->output[0].tokens = true;
    return TENSOR_OK;
}

/* The vocabulary is `window`. */
static tensor_status embedding_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_outputs(node));
    const int64_t rows = node->how.window, width = node->how.outputs;
    TRY(fl_add_weight(node, "weight", FL_LAYOUT_TOKENS, FL_INIT_NORMAL, node->how.deviation,
                      (struct fl_shape){2, {rows, width}}));
    return fl_add_output(node, NULL, (struct fl_shape){3, {x->dim[0], x->dim[1], width}});
}

static tensor_status rows_shape(struct fl_node *node, const struct fl_shape *x) {
    const int64_t width = x->dim[x->ndim - 1];
    return fl_add_output(node, NULL, (struct fl_shape){2, {fl_shape_count(x) / width, width}});
}

static tensor_status positions_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_sequence(node, x));
    const struct fl_shape table = {2, {x->dim[1], x->dim[2]}};
    TRY(fl_add_weight(node, "weight", FL_LAYOUT_PLACES, FL_INIT_NORMAL, node->how.deviation, table));
    return fl_same_shape(node, x);
}

static tensor_status product_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_outputs(node));
    TRY(fl_need_sequence(node, x));
    const int64_t k = x->dim[2], n = node->how.outputs;
    const bool normal = node->how.init == FL_INIT_NORMAL;
    const double scale = node->how.deviation > 0 ? node->how.deviation : sqrt((normal ? 2.0 : 1.0) / (double)k);
    TRY(fl_add_weight(node, "weight", FL_LAYOUT_MATRIX, node->how.init, scale, (struct fl_shape){2, {k, n}}));
    return fl_add_output(node, NULL, (struct fl_shape){3, {x->dim[0], x->dim[1], n}});
}

static tensor_status linear_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(product_shape(node, x));
    return fl_add_learned(node, "bias", FL_INIT_ZERO, 0, (struct fl_shape){1, {node->how.outputs}});
}

static tensor_status linear_add_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(linear_shape(node, x));
    const struct fl_shape pair[2] = {node->output[0].shape, x[1]};
    return fl_need_pair(node, pair);
}

/* All dimensions but the last as one. */
static void seen_as_rows(const struct fl_node *node, struct fl_shape *shape) {
    (void)node;
    const int64_t width = shape->dim[shape->ndim - 1];
    *shape = (struct fl_shape){2, {fl_shape_count(shape) / width, width}};
}

/* All dimensions but the first as one: what is added to each sequence is a bias then. */
static void seen_as_sequences(const struct fl_node *node, struct fl_shape *shape) {
    *shape = (struct fl_shape){2, {node->batch, fl_shape_count(shape) / node->batch}};
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

static tensor_status embedding_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_embedding(pass->y[0], pass->w[0], pass->x[0]);
}

static tensor_status embedding_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_embedding_grad(pass->g[0], pass->dy[0], pass->x[0]);
}

static tensor_status positions_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_bias(pass->y[0], pass->x[0], pass->w[0]);
}

static tensor_status positions_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_sum_rows(pass->g[0], pass->dy[0]);
}

static tensor_status product_forward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_forward_product(node, pass);
    return tensor_matmul(pass->y[0], pass->x[0], pass->w[0]);
}

static tensor_status product_backward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_product(node, FL_PRODUCT_WEIGHT);
    TRY(tensor_matmul_tn(pass->g[0], pass->x[0], pass->operand[0]));
    fl_begin_product(node, FL_PRODUCT_INPUT);
    return pass->dx[0] ? tensor_matmul_nt(pass->dx[0], pass->operand[0], pass->w[0]) : TENSOR_OK;
}

/* With or without something that is added, whose gradient is that of the sum. */
static tensor_status linear_forward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor_epilogue with = {.bias = pass->w[1], .residual = node->inputs > 1 ? pass->x[1] : NULL};
    fl_begin_forward_product(node, pass);
    return tensor_matmul_fused(pass->y[0], pass->x[0], pass->w[0], &with);
}

static tensor_status linear_backward(struct fl_node *node, const struct fl_pass *pass) {
    TRY(tensor_sum_rows(pass->g[1], pass->dy[0]));
    return product_backward(node, pass);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind { TOKENS, EMBEDDING, POSITIONS, ROWS, PRODUCT, LINEAR, LINEAR_ADD };

static const struct fl_layer layers[] = {
    [TOKENS] = {"tokens", 0, .shape = tokens_shape},
    [EMBEDDING] = {"embedding", 1, .saves_x = 1, .reads_tokens = true, .shape = embedding_shape,
                   .forward = embedding_forward, .backward = embedding_backward},
    [ROWS] = {"rows", 1, .views = 1, .gradient = GRADIENTS(SAME), .shape = rows_shape},
    [POSITIONS] = {"positions", 1, .gradient = GRADIENTS(SAME), .seen = seen_as_sequences, .vectors = true,
                   .shape = positions_shape, .forward = positions_forward, .backward = positions_backward},
    [PRODUCT] = {"product", 1, .group = "product", .saves_x = 1, .seen = seen_as_rows, .shape = product_shape,
                 .forward = product_forward, .backward = product_backward},
    [LINEAR] = {"linear", 1, .group = "product", .saves_x = 1, .seen = seen_as_rows, .shape = linear_shape,
                .forward = linear_forward, .backward = linear_backward},
    [LINEAR_ADD] = {"linear_add", 2, .group = "product", .saves_x = 1, .gradient = GRADIENTS(OWN, SAME),
                    .seen = seen_as_rows, .shape = linear_add_shape, .forward = linear_forward,
                    .backward = linear_backward},
};

/* --- public functions, and those of other files ------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node x, struct fl_options how) {
    return fl_add_node(g, &layers[kind], name, name, &x, layers[kind].inputs, &how);
}

nn_node nn_tokens(nn_graph *g, int length, int vocabulary) {
    if (length < 1 || vocabulary < 1)
        return fl_build_failed(g, fl_fail(TENSOR_E_SHAPE, "tokens: length %d, vocabulary %d, expected at least 1 each",
                                          length, vocabulary));
    if (g && !g->status && g->count)
        return fl_build_failed(g, fl_fail(TENSOR_E_ARGUMENT, "tokens: a graph has one input, and it comes first"));
    return add(g, TOKENS, "tokens", -1, (struct fl_options){.window = length, .outputs = vocabulary});
}

static tensor_status check_deviation(const char *what, double deviation) {
    return deviation > 0 && isfinite(deviation)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: deviation %g, expected a finite number above 0", what, deviation);
}

nn_node nn_embedding(nn_graph *g, const char *name, nn_node tokens, int width, double deviation) {
    if (check_deviation("embedding", deviation))
        return fl_build_failed(g, tensor_error_status());
    struct fl_options how = {.outputs = width, .deviation = deviation};
    if (g && tokens >= 0 && tokens < g->handle_count && fl_output_of(g, tokens)->tokens)
        how.window = fl_node_of(g, tokens)->how.outputs;
    return add(g, EMBEDDING, name, tokens, how);
}

nn_node nn_positions(nn_graph *g, const char *name, nn_node x, double deviation) {
    if (check_deviation("positions", deviation))
        return fl_build_failed(g, tensor_error_status());
    return add(g, POSITIONS, name, x, (struct fl_options){.deviation = deviation});
}

nn_node fl_add_normal_linear(nn_graph *g, const char *name, nn_node x, nn_node residual, int outputs,
                             double deviation) {
    const struct fl_options how = {.outputs = outputs, .init = FL_INIT_NORMAL, .deviation = deviation};
    return residual < 0 ? add(g, LINEAR, name, x, how)
                        : fl_add_node(g, &layers[LINEAR_ADD], name, name, (nn_node[]){x, residual}, 2, &how);
}

nn_node fl_add_normal_product(nn_graph *g, const char *name, nn_node x, int outputs, double deviation) {
    return add(g, PRODUCT, name, x,
               (struct fl_options){.outputs = outputs, .init = FL_INIT_NORMAL, .deviation = deviation});
}

nn_node fl_add_rows(nn_graph *g, const char *name, nn_node x) {
    char inner[FL_NAME_LIMIT + 16];
    snprintf(inner, sizeof inner, "%.*s.rows", FL_NAME_LIMIT, name);
    return fl_add_node(g, &layers[ROWS], inner, name, &x, 1, &(struct fl_options){0});
}

nn_node fl_add_sequence_linear(nn_graph *g, const char *name, nn_node x, int outputs, bool relu) {
    char inner[FL_NAME_LIMIT + 16];
    const struct fl_options how = {.outputs = outputs, .init = relu ? FL_INIT_NORMAL : FL_INIT_UNIFORM};
    if (!relu || !name || strlen(name) > FL_NAME_LIMIT)
        return add(g, LINEAR, name, x, how);
    snprintf(inner, sizeof inner, "%s.sum", name);
    x = fl_add_node(g, &layers[LINEAR], inner, name, &x, 1, &how);
    return nn_relu(g, name, x);
}
