/* pool_rules.h - average pooling: the positions of windows along a side of an image, the divisors of their means, and
 * the one rounding of a mean. The same code for a processor and a device.
 *
 * Windows of one size move by a stride over the padded side. Adaptive ones (as many as the output has places) are from
 * floor(i length / windows) to ceil((i + 1) length / windows), so that neighbours may share a position. */
#ifndef FL_POOL_RULES_H
#define FL_POOL_RULES_H

#include "core/arithmetic/exact_rules.h"
#include "core/table/kernel.h"

/* The largest common denominator of a gradient whose windows divide by different counts. */
#define FL_POOL_DENOMINATOR_LIMIT ((int64_t)1 << 48)

/* One direction of an image. */
struct fl_pool_side {
    int64_t length, windows, window; /* positions; windows over them; positions of one of these (adaptive: 0) */
    int64_t stride, padding;
    bool padding_counts;
    int64_t common; /* a common multiple of the divisors of all windows */
};

/* from ... to - 1 */
struct fl_span {
    int64_t from, to;
};

FL_BOTH struct fl_pool_side fl_pool_down(const struct fl_pooling *p) {
    const struct fl_windows *g = &p->windows;
    const struct fl_pool_side side = {g->h, g->p, g->r, g->stride[0], g->padding[0], p->padding_counts, p->common[0]};
    return side;
}
FL_BOTH struct fl_pool_side fl_pool_across(const struct fl_pooling *p) {
    const struct fl_windows *g = &p->windows;
    const struct fl_pool_side side = {g->w, g->q, g->s, g->stride[1], g->padding[1], p->padding_counts, p->common[1]};
    return side;
}

/* Part i of `parts` of so many positions. */
FL_BOTH struct fl_span fl_pool_part(int64_t i, int64_t parts, int64_t length) {
    const struct fl_span span = {i * length / parts, ((i + 1) * length + parts - 1) / parts};
    return span;
}

/* The positions of window i that lie inside the image: at least one. */
FL_BOTH struct fl_span fl_pool_inside(const struct fl_pool_side *side, int64_t i) {
    if (!side->window)
        return fl_pool_part(i, side->windows, side->length);
    struct fl_span span = {i * side->stride - side->padding, i * side->stride - side->padding + side->window};
    span.from = span.from < 0 ? 0 : span.from;
    span.to = span.to < side->length ? span.to : side->length;
    return span;
}

/* The windows that contain a position; there may be none. */
FL_BOTH struct fl_span fl_pool_windows(const struct fl_pool_side *side, int64_t position) {
    if (!side->window)
        return fl_pool_part(position, side->length, side->windows);
    const int64_t at = position + side->padding, before = at - side->window;
    struct fl_span span = {before < 0 ? 0 : before / side->stride + 1, at / side->stride + 1};
    span.to = span.to < side->windows ? span.to : side->windows;
    return span;
}

/* The extent of window i along this side, by which the mean is divided. */
FL_BOTH int64_t fl_pool_count(const struct fl_pool_side *side, int64_t i) {
    const struct fl_span inside = fl_pool_inside(side, i);
    return side->padding_counts && side->window ? side->window : inside.to - inside.from;
}

#ifndef __cplusplus
/* The least common multiple of the divisors of the windows (avgpool.c); any number above FL_POOL_DENOMINATOR_LIMIT if
 * it exceeds that. */
int64_t fl_pool_common(const struct fl_pool_side *side);
/* avgpool.c, by backend: kernels of any format. */
extern const struct fl_any_kernels fl_avgpool_kernels[];
#endif

/* sum / count at exponent e, rounded to odd if 128 bits do not suffice; count below 2^62. */
FL_BOTH struct fl_wide_sum fl_pool_mean(fl_int128 sum, int64_t count, int e) {
    struct fl_wide_sum mean;
    if ((count & (count - 1)) == 0) {
        mean.m = sum;
        mean.e = e + fl_trailing_zeros((uint64_t)count);
        return mean;
    }
    const fl_uint128 size = fl_magnitude_128(sum);
    const int up = 126 - fl_bits_of_128(size);
    const fl_uint128 raised = size << up, quotient = raised / (fl_uint128)count;
    const fl_int128 odd = (fl_int128)(quotient | (quotient * (fl_uint128)count != raised));
    mean.m = sum < 0 ? -odd : odd;
    mean.e = e + up;
    return mean;
}

#endif
