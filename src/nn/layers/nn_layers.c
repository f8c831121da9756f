/* nn_layers.c - the nodes that every network has: input, matmul, bias, relu, sums; the public functions that add them.
 *
 * Images have theirs in nn_images.c, nn_image_norms.c and nn_convolutions.c, sequences in nn_sequence.c, nn_attention.c
 * and nn_recurrent.c, tensors of any shape in nn_maps.c and nn_elementwise.c. Each of these files has one table of
 * kinds.
 *
 * To add a layer: write its shape rule, forward and backward in terms of tensor.h, an entry of the table with them, and
 * a public function that calls fl_add_node with the entry. The shape rule adds as many outputs, parameters and states
 * as the node has. Lifetimes, fan-out of gradients, parameters, evaluation, state, traces follow from the entry;
 * test_nn_gradient.c checks a new layer once it appears in one of its networks, test_nn_nodes.c shows an entry with
 * several of everything.
 *
 * A node has several outputs if backward needs them together. Each has a gradient of its own, summed over its uses. An
 * output that no node uses has none: forward writes it for observers, and backward finds pass->dy[k] NULL and omits
 * that part, as if it were zero. At least one is not NULL: if no gradient reaches a node, backward is not called, and
 * nn_compile refuses the network if the node has parameters. */
#include "nn/layers/nn_layer.h"
#include "nn/layers/nn_sequence.h"
#include "core/base/fail.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- shape rules -------------------------------------------------------------------------------------------------- */

static tensor_status input_shape(struct fl_node *node, const struct fl_shape *x) {
    (void)x;
    return fl_add_image(node, node->how.window, node->how.stride, node->how.outputs);
}

static tensor_status flatten_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_matrix(node, fl_shape_count(x) / x->dim[0]);
}

static tensor_status matmul_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_outputs(node));
    int64_t k = x->dim[1], n = node->how.outputs;
    double scale = node->how.init == FL_INIT_NORMAL ? sqrt(2.0 / (double)k) : sqrt(1.0 / (double)k);
    TRY(fl_add_weight(node, "weight", FL_LAYOUT_MATRIX, node->how.init, scale, (struct fl_shape){2, {k, n}}));
    return fl_add_matrix(node, n);
}

static tensor_status bias_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_add_learned(node, "bias", FL_INIT_ZERO, 0, (struct fl_shape){1, {x->dim[x->ndim - 1]}}));
    return fl_same_shape(node, x);
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

void fl_begin_product(const struct fl_node *node, enum fl_product_part part) {
    if (node->blocks.x)
        tensor_set_class(node->blocks.class[part]);
}

static tensor_status matmul_forward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_forward_product(node, pass);
    return tensor_matmul(pass->y[0], pass->x[0], pass->w[0]);
}

static tensor_status matmul_backward(struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_product(node, FL_PRODUCT_WEIGHT);
    TRY(tensor_matmul_tn(pass->g[0], pass->x[0], pass->operand[0]));
    fl_begin_product(node, FL_PRODUCT_INPUT);
    return pass->dx[0] ? tensor_matmul_nt(pass->dx[0], pass->operand[0], pass->w[0]) : TENSOR_OK;
}

static tensor_status bias_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_bias(pass->y[0], pass->x[0], pass->w[0]);
}

static tensor_status bias_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_sum_rows(pass->g[0], pass->dy[0]);
}

static tensor_status bias_relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_bias_relu(pass->y[0], pass->x[0], pass->w[0]);
}

static tensor_status bias_relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    if (!fl_is_gated(node))
        TRY(tensor_relu_grad(pass->dx[0], pass->dy[0], pass->y[0]));
    return tensor_sum_rows(pass->g[0], pass->dx[0]);
}

static tensor_status relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_relu(pass->y[0], pass->x[0]);
}

static tensor_status add_relu_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_add_relu(pass->y[0], pass->x[0], pass->x[1]);
}

/* Backward of relu and add_relu; the first wanted dx serves for both. */
static tensor_status relu_backward(struct fl_node *node, const struct fl_pass *pass) {
    if (fl_is_gated(node))
        return TENSOR_OK;
    tensor *dx = pass->dx[0] ? pass->dx[0] : pass->dx[1]; /* of relu, the first is wanted */
    return tensor_relu_grad(dx, pass->dy[0], pass->y[0]);
}

static tensor_status add_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_add(pass->y[0], pass->x[0], pass->x[1]);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind { INPUT, FLATTEN, MATMUL, BIAS, BIAS_RELU, RELU, ADD_RELU, ADD };

static const struct fl_layer layers[] = {
    /* the options of an input are height (window), width (stride) and channels (outputs); the step loads it */
    [INPUT] = {"input", 0, .shape = input_shape},
    [FLATTEN] = {"flatten", 1, .views = 1, .gradient = GRADIENTS(SAME), .shape = flatten_shape},
    [MATMUL] = {"matmul", 1, .group = "product", .saves_x = 1, .shape = matmul_shape, .forward = matmul_forward,
                .backward = matmul_backward},
    [BIAS] = {"bias", 1, .gradient = GRADIENTS(SAME), .shape = bias_shape, .forward = bias_forward,
              .backward = bias_backward},
    [BIAS_RELU] = {"bias_relu", 1, .relu = 1, .always_dx = true, .when_gated = GRADIENTS(SAME), .shape = bias_shape,
                   .forward = bias_relu_forward, .backward = bias_relu_backward},
    [RELU] = {"relu", 1, .relu = 1, .when_gated = GRADIENTS(SAME), .shape = fl_same_shape, .forward = relu_forward,
              .backward = relu_backward},
    [ADD_RELU] = {"add_relu", 2, .relu = 1, .gradient = GRADIENTS(SHARED, SHARED), .when_gated = GRADIENTS(SAME, SAME),
                  .shape = fl_pair_shape, .forward = add_relu_forward, .backward = relu_backward},
    [ADD] = {"add", 2, .gradient = GRADIENTS(SAME, SAME), .shape = fl_pair_shape, .forward = add_forward},
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node x, struct fl_options how) {
    return fl_add_node(g, &layers[kind], name, name, &x, layers[kind].inputs, &how);
}

nn_node nn_input(nn_graph *g, int height, int width, int channels) {
    if (height < 1 || width < 1 || channels < 1)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_SHAPE, "input: %dx%dx%d, expected at least 1 each", height, width, channels));
    if (g && !g->status && g->count)
        return fl_build_failed(g, fl_fail(TENSOR_E_ARGUMENT, "input: a graph has one input, and it comes first"));
    return add(g, INPUT, "input", -1, (struct fl_options){.window = height, .stride = width, .outputs = channels});
}

/* x, flattened if it is an image, times weight, plus bias. The product is a tensor of its own: a shared exponent has
 * one writer. */
nn_node nn_linear(nn_graph *g, const char *name, nn_node x, int outputs, bool relu) {
    char inner[FL_NAME_LIMIT + 16];
    if (g && x >= 0 && x < g->handle_count && fl_output_of(g, x)->shape.ndim == 3)
        return fl_add_sequence_linear(g, name, x, outputs, relu);
    struct fl_options how = {.outputs = outputs, .init = relu ? FL_INIT_NORMAL : FL_INIT_UNIFORM};
    if (name && strlen(name) <= FL_NAME_LIMIT) {
        if (g && x >= 0 && x < g->handle_count && fl_output_of(g, x)->shape.ndim == 4) {
            snprintf(inner, sizeof inner, "%s.flatten", name);
            x = fl_add_node(g, &layers[FLATTEN], inner, name, &x, 1, &how);
        }
        snprintf(inner, sizeof inner, "%s.product", name);
        x = fl_add_node(g, &layers[MATMUL], inner, name, &x, 1, &how);
    }
    return add(g, relu ? BIAS_RELU : BIAS, name, x, (struct fl_options){0});
}

nn_node nn_relu(nn_graph *g, const char *name, nn_node x) {
    return add(g, RELU, name, x, (struct fl_options){0});
}

nn_node nn_add(nn_graph *g, const char *name, nn_node a, nn_node b, bool relu) {
    return fl_add_node(g, &layers[relu ? ADD_RELU : ADD], name, name, (nn_node[]){a, b}, 2, &(struct fl_options){0});
}

nn_node nn_bias(nn_graph *g, const char *name, nn_node x, bool relu) {
    return add(g, relu ? BIAS_RELU : BIAS, name, x, (struct fl_options){0});
}
