/* same_tensor.h - the comparison of a tensor written by two kernel sets, or on two devices. */
#ifndef FL_SAME_TENSOR_H
#define FL_SAME_TENSOR_H

#include "core/queue/queue.h"
#include "same_state.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* First element that differs, NaN aside; -1 if none. */
static int64_t first_difference(const tensor *a, const tensor *b) {
    if (!memcmp(a->storage->data, b->storage->data, (size_t)a->count * (size_t)a->format->bytes))
        return -1;
    const struct fl_view va = fl_view_of(a), vb = fl_view_of(b);
    for (int64_t i = 0; i < a->count; i++) {
        double x, y;
        a->format->decode(a->format, &va, i, 1, &x);
        b->format->decode(b->format, &vb, i, 1, &y);
        if (!same_double(x, y))
            return i;
    }
    return -1;
}

static int64_t first_wide_difference(const tensor *a, const tensor *b) {
    const uint32_t *x = a->storage->wide, *y = b->storage->wide;
    const bool floats = a->format->arithmetic == FL_ARITHMETIC_FLOAT;
    for (int64_t i = 0; x && y && i < a->count; i++) {
        const bool nan = floats && (x[i] & 0x7fffffffu) > 0x7f800000u && (y[i] & 0x7fffffffu) > 0x7f800000u;
        if (x[i] != y[i] && !nan)
            return i;
    }
    return -1;
}

/* Whether two tensors on the host have the same elements and wide parts, and two slots, which need not be theirs, the
 * same exponents, histories, statistics and numbers of writes. If not, the first difference is appended to the text. */
static bool same_tensor(const tensor *want, const struct fl_slot *p, const tensor *got, const struct fl_slot *q,
                        char *line, size_t bytes) {
    const struct fl_storage *a = want->storage, *b = got->storage;
    const struct fl_view va = fl_view_of(want), vb = fl_view_of(got);
    const size_t length = strlen(line);
    int64_t i;
    double x, y;
    line += length;
    bytes -= length;
    if (!same_autoflex(&p->autoflex, &q->autoflex) || p->e != q->e)
        snprintf(line, bytes,
                 "exponent %d, ref %d, or its state (predicted %a, ref %a; overflows %d %d, clamps %d %d, %d %d, zeros "
                 "%d %d, history %d %d)",
                 q->e, p->e, q->autoflex.predicted, p->autoflex.predicted, (int)q->autoflex.overflows,
                 (int)p->autoflex.overflows, (int)q->autoflex.clamped_low, (int)p->autoflex.clamped_low,
                 (int)q->autoflex.clamped_high, (int)p->autoflex.clamped_high, (int)q->autoflex.zero_writes,
                 (int)p->autoflex.zero_writes, q->autoflex.count, p->autoflex.count);
    else if ((i = first_difference(want, got)) >= 0) {
        want->format->decode(want->format, &va, i, 1, &x);
        got->format->decode(got->format, &vb, i, 1, &y);
        snprintf(line, bytes, "element %" PRId64 " of %" PRId64 " is %a, ref %a (steps %g, %g)", i, want->count, y, x,
                 ldexp(y, q->e), ldexp(x, p->e));
    } else if (!a->wide != !b->wide || (i = first_wide_difference(want, got)) >= 0)
        snprintf(line, bytes, "wide part %" PRId64 " differs: 0x%08x, ref 0x%08x", i,
                 b->wide ? ((uint32_t *)b->wide)[i] : 0, a->wide ? ((uint32_t *)a->wide)[i] : 0);
    else if (!same_stats(&p->last, &q->last) || !same_stats(&p->total, &q->total))
        snprintf(line, bytes,
                 "statistics: maximum %a, ref %a, gamma %d %d, saturated %" PRId64 " %" PRId64 ", flushed %" PRId64
                 " %" PRId64 ", nonfinite %" PRId64 " %" PRId64 " (or the totals)",
                 q->last.maximum, p->last.maximum, q->last.gamma, p->last.gamma, q->last.saturated, p->last.saturated,
                 q->last.flushed, p->last.flushed, q->last.nonfinite, p->last.nonfinite);
    else if (p->writes != q->writes)
        snprintf(line, bytes, "write %" PRIu64 ", ref %" PRIu64, q->writes, p->writes);
    else
        return true;
    return false;
}

#endif
