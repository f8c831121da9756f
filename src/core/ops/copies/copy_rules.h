/* copy_rules.h - where the elements of a permuted tensor, a slice, its gradient and a concatenation come from. The same
 * code for a processor and a device. */
#ifndef FL_COPY_RULES_H
#define FL_COPY_RULES_H

#include "core/table/kernel.h"

struct fl_origin {
    int operand; /* -1: the element is zero */
    int64_t at;  /* the element of that operand */
    int64_t run; /* number of elements from here on that are contiguous in both tensors, at least 1 */
};

FL_BOTH struct fl_origin fl_permuted_from(const struct fl_permutation *s, int64_t i) {
    struct fl_origin from = {0, s->offset, 1};
    const int last = s->ndim - 1;
    if (s->stride[last] == 1)
        from.run = s->shape[last] - i % s->shape[last];
    for (int d = last; d >= 0; d--) {
        from.at += i % s->shape[d] * s->stride[d];
        i /= s->shape[d];
    }
    return from;
}

FL_BOTH struct fl_origin fl_slice_from(const struct fl_slice *s, int64_t i) {
    const int64_t row = i / s->part, column = i % s->part;
    const struct fl_origin from = {0, row * s->columns + s->first + column, s->part - column};
    return from;
}
/* Each row has the gradient of the slice, and zeros around it. */
FL_BOTH struct fl_origin fl_slice_grad_from(const struct fl_slice *s, int64_t i) {
    const int64_t row = i / s->columns, column = i % s->columns, inside = column - s->first;
    struct fl_origin from = {-1, 0, s->columns - column};
    if (inside < 0) {
        from.run = -inside;
    } else if (inside < s->part) {
        from.operand = 0;
        from.at = row * s->part + inside;
        from.run = s->part - inside;
    }
    return from;
}

/* Each of the m rows of n elements consists of a row of each operand. */
FL_BOTH struct fl_origin fl_concat_from(const struct fl_args *args, int64_t i) {
    const int64_t row = i / args->p.rows.n;
    int64_t column = i % args->p.rows.n;
    struct fl_origin from = {0, 0, 0};
    for (;; from.operand++) {
        const int64_t width = args->in[from.operand].count / args->p.rows.m;
        if (column < width) {
            from.at = row * width + column;
            from.run = width - column;
            return from;
        }
        column -= width;
    }
}

FL_BOTH struct fl_origin fl_copied_from(const struct fl_args *args, int64_t i) {
    switch ((int)args->op) {
    case FL_OP_PERMUTE:
        return fl_permuted_from(&args->p.permutation, i);
    case FL_OP_SLICE:
        return fl_slice_from(&args->p.slice, i);
    case FL_OP_SLICE_GRAD:
        return fl_slice_grad_from(&args->p.slice, i);
    default:
        return fl_concat_from(args, i);
    }
}

#endif
