/* arrays.h - shape() and compute() of operators (operators.h), a file for each kind: what arrays.c has serves them all. */
#ifndef FL_PROGRAM_ARRAYS_H
#define FL_PROGRAM_ARRAYS_H

#include "program/operators.h"

typedef tensor_status fl_array_function(const struct fl_arrays *a);

/* arrays.c: results of the first operand's type and shape; the first operand's elements, one by one. */
fl_array_function fl_shape_same, fl_compute_copy;
/* elements.c: element by element, operands repeated to one shape. */
fl_array_function fl_shape_broadcast, fl_compute_add, fl_compute_sub, fl_compute_mul, fl_compute_relu,
    fl_compute_sigmoid;
/* orders.c: the same elements in other shapes and orders. */
fl_array_function fl_shape_reshape, fl_shape_flatten, fl_shape_transpose, fl_compute_transpose, fl_shape_concat,
    fl_compute_concat;
/* axes.c: along dimensions. */
fl_array_function fl_compute_softmax;

#endif
