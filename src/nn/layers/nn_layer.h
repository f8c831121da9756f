/* nn_layer.h - parts of shape rules and of gradients that kinds of nodes share. nn_layers.c explains how a node is
 * made.
 */
#ifndef FL_NN_LAYER_H
#define FL_NN_LAYER_H

#include "nn/graph/nn_graph.h"

/* Gradients of the inputs, one after the other. */
#define GRADIENTS(...) ((const enum fl_input_gradient[]){__VA_ARGS__})
#define OWN FL_GRADIENT_OWN
#define SAME FL_GRADIENT_SAME
#define SHARED FL_GRADIENT_SHARED

/* Outputs. */
tensor_status fl_add_image(struct fl_node *node, int64_t height, int64_t width, int64_t channels);
tensor_status fl_add_matrix(struct fl_node *node, int64_t columns);
/* A parameter that starts from random numbers of that scale, or from a constant; the first with a number a channel. */
tensor_status fl_add_learned(struct fl_node *node, const char *suffix, enum fl_init init, double scale,
                             struct fl_shape shape);
tensor_status fl_add_weight(struct fl_node *node, const char *suffix, enum fl_layout layout, enum fl_init init,
                            double scale, struct fl_shape shape);

/* Whole shape rules: that of the first input; of two inputs of one shape. */
tensor_status fl_same_shape(struct fl_node *node, const struct fl_shape *x);
tensor_status fl_pair_shape(struct fl_node *node, const struct fl_shape *x);

/* Checks of inputs and options. */
tensor_status fl_need_image(const struct fl_node *node, const struct fl_shape *x);
tensor_status fl_need_sequence(const struct fl_node *node, const struct fl_shape *x);
tensor_status fl_need_pair(const struct fl_node *node, const struct fl_shape *x);
tensor_status fl_need_outputs(const struct fl_node *node);
tensor_status fl_need_between(const struct fl_node *node, const char *what, int value, int least, int most);

/* The name of a layer for messages, before it is checked. */
static inline const char *fl_shown_name(const char *name) {
    return name ? name : "a layer without a name";
}

/* A shape in a message: "32x28x28x3". */
struct fl_shape_words {
    char text[FL_NODE_DIMS * 21];
};
struct fl_shape_words fl_shape_in_words(const struct fl_shape *shape);

/* Whether the gradient of a node's only output is already zero where its final relu gave zero. */
static inline bool fl_is_gated(const struct fl_node *node) {
    return node->output[0].gated;
}

/* Sets the class of the thread for products of that part of a node, if their operands are in blocks. The position that
 * the node's pass is in ends it. */
void fl_begin_product(const struct fl_node *node, enum fl_product_part part);
static inline void fl_begin_forward_product(const struct fl_node *node, const struct fl_pass *pass) {
    fl_begin_product(node, pass->training ? FL_PRODUCT_FORWARD : FL_PRODUCT_EVALUATION);
}

#endif
