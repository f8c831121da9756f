/* lower.h - nodes as steps of the library's operations (fl_operator.lower), and the shapes of those operators that have
 * no form on arrays. */
#ifndef FL_PROGRAM_LOWER_H
#define FL_PROGRAM_LOWER_H

#include "program/arrays/operators.h"
#include "program/plan/plan.h"

typedef tensor_status fl_lower(struct fl_planner *p, const struct fl_net_node *node, bool *done);
typedef tensor_status fl_shape(const struct fl_arrays *a);

/* windows.c */
fl_shape fl_shape_conv, fl_shape_conv_transpose, fl_shape_pool, fl_shape_global_pool;
fl_lower fl_lower_conv, fl_lower_conv_transpose, fl_lower_average_pool, fl_lower_max_pool, fl_lower_global_average_pool,
    fl_lower_global_max_pool;
/* products.c */
fl_shape fl_shape_matmul, fl_shape_gemm;
fl_lower fl_lower_matmul, fl_lower_gemm;
/* elementwise.c */
fl_lower fl_lower_add, fl_lower_sub, fl_lower_mul, fl_lower_map, fl_lower_leaky_relu, fl_lower_clip;
/* reductions.c */
fl_lower fl_lower_reduce;
/* orders.c: reshaped, transposed, joined */
fl_lower fl_lower_reshape, fl_lower_transpose, fl_lower_concat;
/* norms.c */
fl_lower fl_lower_batch_normalization, fl_lower_layer_normalization, fl_lower_softmax;
fl_shape fl_shape_layer_normalization;

/* An activation that an operator applies to its result: of a TensorFlow Lite node (attribute "flexlab_activation"), or
 * of a pass that joined two nodes. The library's epilogue has relu; the others are a step after it. */
/* FL_RELU_AFTER: a relu that the operation at hand does not have. */
enum fl_activation { FL_NO_ACTIVATION, FL_RELU, FL_RELU_AFTER, FL_CLIP };
struct fl_activation_of {
    enum fl_activation kind;
    float low, high; /* of FL_CLIP */
};
tensor_status fl_activation_read(const struct fl_net_node *node, struct fl_activation_of *a);
/* Plans the clip of a result: the slot into which the operation before it writes, which is the result itself where
 * there is nothing to clip. fl_activation_end plans the step after it. */
int fl_activation_begin(struct fl_planner *p, const struct fl_net_node *node, const struct fl_activation_of *a,
                        const int *layout);
tensor_status fl_activation_end(struct fl_planner *p, const struct fl_net_node *node, const struct fl_activation_of *a,
                                int slot, const int *layout);

#endif
