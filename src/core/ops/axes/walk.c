/* walk.c - strides of operands that are broadcast to a shape. */
#include "core/ops/axes/walk.h"

bool fl_axes_broadcast(struct fl_axes *s, int which, const tensor *t) {
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
