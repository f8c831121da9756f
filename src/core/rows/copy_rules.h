/* copy_rules.h - where the elements of a permuted tensor, a slice, its gradient and a concatenation come from. The text
 * that a processor and a device run alike. */
#ifndef FL_COPY_RULES_H
#define FL_COPY_RULES_H

#include "core/table/kernel.h"

struct fl_origin {
    int operand; /* -1: the element is zero */
    int64_t at;  /* the element of that operand */
    int64_t run; /* so many elements from here on lie side by side in both tensors, at least 1 */
};

FL_BOTH struct fl_origin fl_permuted_from(const struct fl_strides *s, int64_t i) {
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

/* Rows of n elements: those from k on of rows of c; the gradient, rows of c elements at k of rows of n zeros. */
FL_BOTH struct fl_origin fl_slice_from(const struct fl_geometry *g, int64_t i) {
    const int64_t row = i / g->n, column = i % g->n;
    const struct fl_origin from = {0, row * g->c + g->k + column, g->n - column};
    return from;
}
FL_BOTH struct fl_origin fl_slice_grad_from(const struct fl_geometry *g, int64_t i) {
    const int64_t row = i / g->n, column = i % g->n, inside = column - g->k;
    struct fl_origin from = {-1, 0, g->n - column};
    if (inside < 0) {
        from.run = -inside;
    } else if (inside < g->c) {
        from.operand = 0;
        from.at = row * g->c + inside;
        from.run = g->c - inside;
    }
    return from;
}

/* Rows of n elements: those of m rows of each operand side by side. */
FL_BOTH struct fl_origin fl_concat_from(const struct fl_args *args, int64_t i) {
    const int64_t row = i / args->geo.n;
    int64_t column = i % args->geo.n;
    struct fl_origin from = {0, 0, 0};
    for (;; from.operand++) {
        const int64_t width = args->in[from.operand].count / args->geo.m;
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
        return fl_permuted_from(&args->strides, i);
    case FL_OP_SLICE:
        return fl_slice_from(&args->geo, i);
    case FL_OP_SLICE_GRAD:
        return fl_slice_grad_from(&args->geo, i);
    default:
        return fl_concat_from(args, i);
    }
}

#endif
