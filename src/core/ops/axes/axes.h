/* axes.h - functions that kernels of reductions and of broadcast operations share. */
#ifndef FL_AXES_H
#define FL_AXES_H

#include "core/ops/axes/axes_rules.h"
#include "core/reference/ref.h"
#include "core/rows/rows.h"

/* The number of elements, of n from i on, that lie in one line of the walk, its last dimension. */
static inline int64_t fl_walk_run(const struct fl_walk *w, int64_t i, int64_t n) {
    if (!w->ndim)
        return n < 1 ? n : 1;
    const int64_t size = w->shape[w->ndim - 1], left = size - i % size;
    return left < n ? left : n;
}

/* n elements of an operand from element `at` on, `stride` apart, as doubles. to: fl_row_room(n) numbers. */
void fl_axes_read(const struct fl_rows *rows, int in, int64_t at, int64_t stride, int64_t n, double *to);

#endif
