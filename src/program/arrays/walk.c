/* walk.c - element by element over operands that are repeated to one shape, in blocks. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include <string.h>

enum { PART = 1 << 14 }; /* elements of the result that a thread takes at a time */

struct walk {
    int ndim, count; /* neighbouring dimensions that every operand steps through alike are one */
    int64_t dim[FL_ARRAY_DIMS + 1], stride[FL_ARRAY_DIMS + 1][FL_WALK_OPERANDS], total;
    fl_walk_block *block;
    void *context;
};

static void walk_part(void *context, int part, int worker) {
    const struct walk *const w = context;
    const int inner = w->ndim - 1;
    const int64_t end = (int64_t)(part + 1) * PART < w->total ? (int64_t)(part + 1) * PART : w->total;
    int64_t at = (int64_t)part * PART, index[FL_ARRAY_DIMS + 1], from[FL_WALK_OPERANDS], rest = at;
    (void)worker;
    for (int d = inner; d >= 0; d--) {
        index[d] = rest % w->dim[d];
        rest /= w->dim[d];
    }
    while (at < end) {
        int64_t n = w->dim[inner] - index[inner];
        n = n < end - at ? n : end - at;
        n = n < FL_BLOCK ? n : FL_BLOCK;
        for (int i = 0; i < w->count; i++) {
            from[i] = 0;
            for (int d = 0; d < w->ndim; d++)
                from[i] += index[d] * w->stride[d][i];
        }
        w->block(w->context, at, (int)n, from, w->stride[inner]);
        at += n;
        index[inner] += n;
        for (int d = inner; d > 0 && index[d] == w->dim[d]; d--) {
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

tensor_status fl_walk(const struct fl_array *y, int count, const struct fl_array *const *in, fl_walk_block *block,
                      void *context) {
    struct walk w = {.count = count, .total = y->count, .block = block, .context = context};
    int64_t stride[FL_WALK_OPERANDS][FL_ARRAY_DIMS], reversed[FL_ARRAY_DIMS + 1];
    if (count > FL_WALK_OPERANDS)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%d operands, expected at most %d", count, FL_WALK_OPERANDS);
    if (!y->count)
        return TENSOR_OK;
    for (int i = 0; i < count; i++) {
        int64_t own[FL_ARRAY_DIMS];
        fl_strides(in[i], own);
        for (int d = 0; d < y->ndim; d++) {
            const int from = d - (y->ndim - in[i]->ndim);
            stride[i][d] = from < 0 || in[i]->dim[from] == 1 ? 0 : own[from];
        }
    }
    for (int d = y->ndim - 1; d >= 0; d--) { /* from the innermost dimension outwards */
        const int last = w.ndim - 1;
        if (y->dim[d] == 1)
            continue;
        bool joins = w.ndim > 0;
        for (int i = 0; i < count && joins; i++)
            joins = stride[i][d] == w.stride[last][i] * reversed[last];
        if (joins) {
            reversed[last] *= y->dim[d];
            continue;
        }
        reversed[w.ndim] = y->dim[d];
        for (int i = 0; i < count; i++)
            w.stride[w.ndim][i] = stride[i][d];
        w.ndim++;
    }
    if (!w.ndim) {
        reversed[w.ndim++] = 1;
        memset(w.stride[0], 0, sizeof w.stride[0]);
    }
    for (int d = 0; d < w.ndim; d++)
        w.dim[d] = reversed[w.ndim - 1 - d];
    for (int d = 0; d < w.ndim / 2; d++) {
        int64_t swap[FL_WALK_OPERANDS];
        memcpy(swap, w.stride[d], sizeof swap);
        memcpy(w.stride[d], w.stride[w.ndim - 1 - d], sizeof swap);
        memcpy(w.stride[w.ndim - 1 - d], swap, sizeof swap);
    }
    if (y->count > (int64_t)PART << 30)
        return fl_fail(TENSOR_E_UNSUPPORTED, "a result of %lld elements", (long long)y->count);
    fl_parallel((int)((y->count + PART - 1) / PART), walk_part, &w);
    return TENSOR_OK;
}
