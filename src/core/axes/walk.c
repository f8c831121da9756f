/* walk.c - walks made of shapes and strides. */
#include "core/axes/walk.h"
#include <string.h>

/* Adds dimension d of the shape behind what the walk has, or makes it part of the last one where all operands lie in
 * line and both are of one kind (`first`: the least dimension of that kind). */
static void add_dimension(struct fl_walk *w, const struct fl_walk_shape *s, int d, int first) {
    if (s->shape[d] == 1)
        return;
    bool in_line = w->ndim > first;
    for (int k = 0; k < 3 && in_line; k++)
        in_line = w->stride[k][w->ndim - 1] == s->stride[k][d] * s->shape[d];
    const int to = in_line ? w->ndim - 1 : w->ndim++;
    w->shape[to] = in_line ? w->shape[to] * s->shape[d] : s->shape[d];
    for (int k = 0; k < 3; k++)
        w->stride[k][to] = s->stride[k][d];
}

struct fl_walk fl_walk_of(const struct fl_walk_shape *s) {
    struct fl_walk w = {.outer = 1, .terms = 1, .offset = {s->offset[0], s->offset[1], s->offset[2]}};
    for (int d = 0; d < s->ndim; d++)
        if (!(s->inner >> d & 1)) {
            w.outer *= s->shape[d];
            add_dimension(&w, s, d, 0);
        }
    const int kept = w.ndim;
    for (int d = 0; d < s->ndim; d++)
        if (s->inner >> d & 1) {
            w.terms *= s->shape[d];
            add_dimension(&w, s, d, kept);
        }
    w.inner = w.ndim - kept;
    return w;
}

bool fl_walk_broadcast(struct fl_walk_shape *s, int which, const tensor *t) {
    int64_t stride[TENSOR_MAX_DIMS];
    const int skipped = s->ndim - t->ndim;
    if (skipped < 0)
        return false;
    s->offset[which] = fl_strides_of(t, stride);
    for (int d = 0; d < s->ndim; d++) {
        const int64_t size = d < skipped ? 1 : t->shape[d - skipped];
        if (size != 1 && size != s->shape[d])
            return false;
        s->stride[which][d] = size == 1 ? 0 : stride[d - skipped];
    }
    return true;
}
