/* walk.h - dimensions of operands that are broadcast, as operations tell them to kernels (axes_rules.h makes walks of
 * them). */
#ifndef FL_WALK_H
#define FL_WALK_H

#include "core/tensor/tensor_object.h"

/* Sets the strides of operand `which` to those of t seen in the shape, dimensions aligned at the last, those of size 1
 * repeated. False where t's shape is not that. */
bool fl_axes_broadcast(struct fl_axes *s, int which, const tensor *t);

#endif
