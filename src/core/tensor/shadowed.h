/* shadowed.h - a shadow format on a device: the exponent that a tensor would have in it, which follows every write, and
 * what the format would make of the elements. C and CUDA. */
#ifndef FL_SHADOWED_H
#define FL_SHADOWED_H

#include "autoflex/write_rules.h"
#include "core/table/slot.h"
#include "core/tensor/described.h"

enum { FL_MOST_SHADOWS = 16 };

/* One tensor in the place of one shadow, in memory of the device. */
struct fl_shadowed {
    const struct fl_slot *slot; /* of the tensor; NULL: it is not followed */
    uint64_t writes;            /* of its life, when it was last looked at: statistics can be reset */
    int32_t loaded;             /* its writes are loads */
    int32_t shared;             /* the format has an exponent for the tensor; otherwise `a` is not read */
    struct autoflex a;
};

/* What the format makes of the elements: sums over those that are finite and stay so, in the order of described.h. */
struct fl_measured {
    double sums[FL_DESCRIBED_PARTS][2]; /* of (value in the format - value)^2, and of value^2 */
    int64_t infinite;                   /* elements that are not finite, or do not stay so */
    int64_t saturated, flushed, nonfinite;
    uint64_t writes; /* of the tensor's life, with this one; its largest magnitude before rounding */
    double maximum;
    int32_t e;
};

/* A write, or a load, of a tensor whose largest magnitude before rounding is known. */
FL_BOTH void fl_shadow_write(struct autoflex *a, bool load, double maximum) {
    struct fl_write_state w;
    fl_write_begin(&w, a, true, load ? FL_WRITE_LOAD : FL_WRITE_ONCE);
    while (w.next != FL_WRITE_DONE)
        fl_write_attempted(&w, a, maximum);
    fl_write_end(&w, a, fl_gamma_at(a, maximum, a->e), maximum);
}

/* Follows the tensor's last write, unless it was looked at before. */
FL_BOTH void fl_shadow_follow(struct fl_shadowed *s) {
    if (!s->slot || s->slot->writes == s->writes)
        return;
    s->writes = s->slot->writes;
    if (s->shared)
        fl_shadow_write(&s->a, s->loaded, s->slot->last.maximum);
}

#endif
