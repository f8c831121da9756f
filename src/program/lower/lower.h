/* lower.h - nodes as steps of the library's operations (fl_operator.lower). */
#ifndef FL_PROGRAM_LOWER_H
#define FL_PROGRAM_LOWER_H

#include "program/arrays/operators.h"
#include "program/plan/plan.h"

typedef tensor_status fl_lower(struct fl_planner *p, const struct fl_net_node *node, bool *done);

/* windows.c */
fl_lower fl_lower_conv, fl_lower_conv_transpose, fl_lower_average_pool, fl_lower_max_pool, fl_lower_global_average_pool,
    fl_lower_global_max_pool;
/* products.c */
fl_lower fl_lower_matmul, fl_lower_gemm;
/* elementwise.c */
fl_lower fl_lower_add, fl_lower_sub, fl_lower_mul, fl_lower_map, fl_lower_leaky_relu, fl_lower_clip;
/* An operand as the library's broadcasting sees it: in the order of the result's tensor, with dimensions of size 1
 * where it is repeated. *same: it has as many elements as the result. -1 on failure. */
int fl_repeated(struct fl_planner *p, const struct fl_net_node *node, int operand, const int *layout, bool *same);
/* reductions.c */
fl_lower fl_lower_reduce;
/* orders.c: reshaped, transposed, joined */
fl_lower fl_lower_reshape, fl_lower_transpose, fl_lower_concat;
/* extents.c: parts, repeated, with zeros around */
fl_lower fl_lower_slice, fl_lower_split, fl_lower_expand, fl_lower_pad;
/* norms.c */
fl_lower fl_lower_batch_normalization, fl_lower_layer_normalization, fl_lower_softmax;

/* windows.c: the dimensions of an image in the order N, H, W, C; a slot of an image of 3 dimensions (a sequence) as one
 * of height 1, any other and a failure as it is. */
void fl_image_layout(const struct fl_net_node *node, int ndim, int *layout);
int fl_as_image(struct fl_planner *p, int slot);
/* elementwise.c: the layout in which an operand lies already, NULL for known numbers; the operand of several whose
 * layout the result takes, -1: none has one. */
const int *fl_own_layout(const struct fl_planner *p, const struct fl_net_node *node, int operand);
int fl_leader(const struct fl_planner *p, const struct fl_net_node *node);

/* Plans the clip of a result: the slot into which the operation before it writes, which is the result itself where
 * there is nothing to clip. fl_activation_end plans the step after it. */
int fl_activation_begin(struct fl_planner *p, const struct fl_net_node *node, const struct fl_activation_of *a,
                        const int *layout);
tensor_status fl_activation_end(struct fl_planner *p, const struct fl_net_node *node, const struct fl_activation_of *a,
                                int slot, const int *layout);

#endif
