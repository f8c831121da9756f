/* walk.h - going over the elements of operands whose dimensions are broadcast, summed over or lie at strides: walks as
 * operations make them (axes_rules.h has what kernels do with one). */
#ifndef FL_WALK_H
#define FL_WALK_H

#include "core/tensor/tensor_object.h"

/* A walk over dimensions of a shape, of which those in the set `inner` (bit d: dimension d) are summed over. Strides of
 * operands that take no part are left 0. Dimensions of one element are left out, neighbours that lie in one line are
 * made one. */
struct fl_walk_shape {
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS], stride[3][TENSOR_MAX_DIMS], offset[3];
    unsigned inner;
};
struct fl_walk fl_walk_of(const struct fl_walk_shape *s);

/* Sets the strides of operand `which` to those of t seen in the shape, dimensions aligned at the last, those of size 1
 * repeated. False where t's shape is not that. */
bool fl_walk_broadcast(struct fl_walk_shape *s, int which, const tensor *t);

#endif
