/* same_state.h - what must agree of a tensor written by two kernel sets, or on two devices, beside its elements. */
#ifndef FL_SAME_STATE_H
#define FL_SAME_STATE_H

#include "flexlab/tensor.h"
#include <stdbool.h>
#include <string.h>

static bool same_double(double a, double b) {
    return !memcmp(&a, &b, sizeof a) || (a != a && b != b);
}

static inline bool same_stats(const tensor_stats *a, const tensor_stats *b) {
    return same_double(a->maximum, b->maximum) && a->gamma == b->gamma && a->saturated == b->saturated &&
           a->flushed == b->flushed && a->nonfinite == b->nonfinite && a->elements == b->elements &&
           a->writes == b->writes;
}

static inline bool same_autoflex(const struct autoflex *a, const struct autoflex *b) {
    return a->predictor == b->predictor && a->e == b->e && a->initialised == b->initialised &&
           a->written == b->written && a->count == b->count && a->next == b->next &&
           !memcmp(a->history, b->history, sizeof a->history) && same_double(a->predicted, b->predicted) &&
           a->overflows == b->overflows && a->clamped_low == b->clamped_low && a->clamped_high == b->clamped_high &&
           a->zero_writes == b->zero_writes;
}

#endif
