/* quantised.h - nodes as steps of the kernels of 8-bit integers (fl_operator.lower_int8, int8/int8.h). Each of these
 * functions takes quantised nodes (network.h) alone; those of QuantizeLinear and DequantizeLinear leave to compute()
 * what is not a single scale between floats and integers of 8 bits. */
#ifndef FL_PROGRAM_QUANTISED_H
#define FL_PROGRAM_QUANTISED_H

#include "program/lower/lower.h"

/* int8_layers.c */
fl_lower fl_lower_int8_conv, fl_lower_int8_gemm, fl_lower_int8_matmul;
/* int8_windows.c */
fl_lower fl_lower_int8_average_pool, fl_lower_int8_max_pool, fl_lower_int8_global_average_pool;
/* int8_elements.c */
fl_lower fl_lower_int8_add, fl_lower_int8_clip, fl_lower_int8_softmax, fl_lower_int8_quantise, fl_lower_int8_dequantise;
/* int8_orders.c */
fl_lower fl_lower_int8_reshape, fl_lower_int8_transpose, fl_lower_int8_concat;

/* int8_takes.c: whether there is a kernel for a quantised node as it is, whatever the sizes of its operands: constant
 * weights of one zero point, a bias for each filter, no option that no kernel has. All others compute floats between
 * DequantizeLinear and QuantizeLinear (passes/borders.c). */
bool fl_int8_takes(const struct fl_network *n, const struct fl_net_node *node);

/* The types of operand 0 and of result 0, and the integers to which the node's activation limits that. */
struct fl_int8_types {
    struct fl_int8_type x, y;
    struct fl_int8_range range;
};
tensor_status fl_int8_types_of(struct fl_planner *p, const struct fl_net_node *node, struct fl_int8_types *types);
/* An operand repeated to the shape of the result, in the layout of that. -1 on failure. */
int fl_int8_repeated(struct fl_planner *p, const struct fl_net_node *node, int operand, const int *layout);

#endif
