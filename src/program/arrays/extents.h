/* extents.h - which part of its operand a Slice takes, and what a Pad adds, for those that compute them. */
#ifndef FL_PROGRAM_EXTENTS_H
#define FL_PROGRAM_EXTENTS_H

#include "program/arrays/operators.h"

/* Element i of the result is at start + i step, i in 0 to count - 1, in each dimension. */
struct fl_slices {
    int64_t start[FL_ARRAY_DIMS], step[FL_ARRAY_DIMS], count[FL_ARRAY_DIMS];
};
/* TENSOR_E_DATA for operands that are none; TENSOR_E_UNSUPPORTED where their numbers are not known yet. */
tensor_status fl_slice_read(struct fl_slices *s, const struct fl_arrays *a);

/* Elements before and after those of the operand; negative ones are taken away. */
struct fl_pads {
    int64_t begin[FL_ARRAY_DIMS], end[FL_ARRAY_DIMS];
};
tensor_status fl_pads_read(struct fl_pads *p, const struct fl_arrays *a);

#endif
