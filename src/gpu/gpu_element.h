/* gpu_element.h - elements of a folder's formats, to double and back with the statistics of a write, as the codec says.
 *
 * Folders have kernels of the same names: each file of them is a namespace without a name.
 *
 * Expects: a codec: that of a float format (float_block.h says what it defines), or FL_SHARED_EXPONENT, FL_TOP.
 * Gives: gpu_value, gpu_store, gpu_store_real, GPU_SHARED. */
#ifndef FL_GPU_ELEMENT_H
#define FL_GPU_ELEMENT_H

#include "core/arithmetic/exact_rules.h"
#include "core/arithmetic/philox.h"
#include "core/real/real_pair.h"
#include "core/arithmetic/stochastic.h"
#include "gpu/gpu_call.h"

#ifdef FL_SHARED_EXPONENT
enum { GPU_SHARED = 1 };
#else
enum { GPU_SHARED = 0 };
#endif

/* Element i, exactly. e: the view's exponent. */
__device__ static inline double gpu_value(const struct fl_view &view, int e, int64_t i) {
#ifdef FL_SHARED_EXPONENT
    return ((const fl_element *)view.data)[i] * fl_power_of_two(-e);
#else
    (void)e;
    return (double)FL_DECODE(((const fl_element *)view.data)[i]);
#endif
}

#ifdef FL_SHARED_EXPONENT
/* To the nearest integer, ties to even, beyond the range to something beyond it. */
__device__ static inline int64_t gpu_nearest(double v) {
    const double inside = v > FL_TOP + 1 ? FL_TOP + 1 : v < -FL_TOP - 1 ? -FL_TOP - 1 : v;
    return (int64_t)fl_nearest_integer(inside);
}

/* floor(x 2^e + draw / 2^32) of a finite x, saturated beyond the range. */
__device__ static inline int64_t gpu_stochastic(double x, int e, uint32_t draw) {
    if (x == 0)
        return 0;
    uint64_t fraction;
    const int exponent = fl_split(x < 0 ? -x : x, &fraction);
    struct fl_wide_sum sum;
    const int64_t m = (int64_t)(fraction | (uint64_t)1 << 52);
    sum.m = x < 0 ? -m : m;
    sum.e = 52 - exponent;
    return fl_terms_round(sum, e, FL_TOP + 1, &draw, NULL);
}

/* Stores a mantissa that was rounded already. */
__device__ static inline void gpu_store_mantissa(const struct gpu_now &now, int64_t i, int64_t m, bool something,
                                                 struct fl_stats *stats) {
    stats->flushed += something && m == 0;
    if (m > FL_TOP || m < -FL_TOP) {
        stats->saturated++;
        m = m < 0 ? -FL_TOP : FL_TOP;
    }
    const int32_t size = (int32_t)(m < 0 ? -m : m);
    stats->gamma = size > stats->gamma ? size : stats->gamma;
    if (now.out)
        ((fl_element *)now.out)[i] = (fl_element)m;
}

/* NaN or Inf becomes element i. */
__device__ static inline void gpu_put_nonfinite(const struct gpu_now &now, int64_t i, double x,
                                                struct fl_stats *stats) {
    const int32_t m = fl_put_nonfinite(x, FL_TOP, stats);
    if (now.out)
        ((fl_element *)now.out)[i] = (fl_element)m;
}

/* x, exact or rounded to odd, becomes element i; near: the same rounded to nearest, for the maximum. e: of the output.
 */
__device__ static inline void gpu_store(const struct gpu_now &now, int e, int64_t i, double x, double near,
                                        struct fl_stats *stats) {
    int64_t m;
    if (!fl_is_finite(x)) {
        gpu_put_nonfinite(now, i, x, stats);
        return;
    }
    if (now.rounding.mode == TENSOR_ROUND_STOCHASTIC)
        m = gpu_stochastic(x, e, fl_philox_draw(now.rounding.key, now.rounding.write, i));
    else
        m = gpu_nearest(fl_scale2(x, e));
    const double size = near < 0 ? -near : near;
    stats->maximum = size > stats->maximum ? size : stats->maximum;
    gpu_store_mantissa(now, i, m, x < 0 || x > 0, stats);
}
#else
/* A binary32 becomes element i, to nearest or truncated. */
__device__ static inline void gpu_store_float(const struct gpu_now &now, int64_t i, float x, struct fl_stats *stats) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t size = bits & 0x7fffffffu;
    uint32_t overflow = FL_OVERFLOW, flush = FL_FLUSH;
    fl_element element = FL_ENCODE(x);
#ifdef FL_ENCODE_TRUNCATED
    if (now.rounding.mode == TENSOR_ROUND_TRUNCATE) {
        overflow = FL_OVERFLOW_TRUNCATED;
        flush = FL_FLUSH_TRUNCATED;
        element = FL_ENCODE_TRUNCATED(x);
    }
#endif
    const double magnitude = x < 0 ? -(double)x : (double)x;
    if (size <= 0x7f800000u && magnitude > stats->maximum)
        stats->maximum = magnitude;
    stats->nonfinite += size >= overflow;
    stats->saturated += size >= overflow && size < 0x7f800000u;
    stats->flushed += size - 1u < flush; /* zero wraps around */
    if (now.out)
        ((fl_element *)now.out)[i] = element;
}

#ifdef FL_DIGITS
/* x, exact, rounded to odd, or a binary32, becomes element i by a draw. */
__device__ static inline void gpu_store_drawn(const struct gpu_now &now, int64_t i, double x, struct fl_stats *stats) {
    const uint32_t draw = fl_philox_draw(now.rounding.key, now.rounding.write, i);
    const float before = (float)x, rounded = (float)fl_round_by_draw(x, draw, FL_DIGITS, FL_LEAST_NORMAL);
    uint32_t size, stored;
    memcpy(&size, &before, sizeof size);
    memcpy(&stored, &rounded, sizeof stored);
    size &= 0x7fffffffu;
    stored &= 0x7fffffffu;
    const double magnitude = before < 0 ? -(double)before : (double)before;
    if (magnitude > stats->maximum) /* not NaN */
        stats->maximum = magnitude;
    stats->nonfinite += stored >= FL_BEYOND;
    stats->saturated += stored >= FL_BEYOND && size < 0x7f800000u;
    stats->flushed += stored == 0 && size != 0;
    if (now.out)
        ((fl_element *)now.out)[i] = FL_ENCODE(rounded);
}
#endif

/* A result of an operation, which is a binary32 first but where it is rounded stochastically. */
__device__ static inline void gpu_store(const struct gpu_now &now, int e, int64_t i, double x, double near,
                                        struct fl_stats *stats) {
    (void)e;
    (void)near;
#ifdef FL_DIGITS
    if (now.rounding.mode == TENSOR_ROUND_STOCHASTIC) {
        gpu_store_drawn(now, i, x, stats);
        return;
    }
#endif
    gpu_store_float(now, i, (float)x, stats);
}

/* A number that is not the result of an operation: rounded once, by way of a binary32 rounded to odd. */
__device__ static inline void gpu_store_number(const struct gpu_now &now, int64_t i, double x, struct fl_stats *stats) {
    float f = (float)x;
    const double size = x < 0 ? -x : x;
#ifndef FL_ELEMENT_IS_FLOAT
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((double)f != x && x == x && !(bits & 1u)) {
        bits += ((double)f < 0 ? -(double)f : (double)f) < size ? 1u : -1u;
        memcpy(&f, &bits, sizeof f);
    }
#endif
    struct fl_stats one = {};
    gpu_store_float(now, i, f, &one);
    one.saturated += fl_is_finite(x) && !fl_is_finite(f);
    one.flushed += x != 0 && f == 0;
    one.maximum = size == size ? size : 0;
    fl_stats_merge(stats, &one);
}
#endif

/* x, a real number rounded to odd, becomes element i, rounded once. */
__device__ static inline void gpu_store_real(const struct gpu_now &now, int e, int64_t i, double x,
                                             struct fl_stats *stats) {
    const double near = fl_coarse(x);
    struct fl_stats one = {};
#ifdef FL_SHARED_EXPONENT
    gpu_store(now, e, i, x, near, &one);
#else
    (void)e;
#ifdef FL_DIGITS
    if (now.rounding.mode == TENSOR_ROUND_STOCHASTIC)
        gpu_store_drawn(now, i, x, &one);
    else
#endif
        gpu_store_number(now, i, x, &one);
    one.maximum = near == near ? (near < 0 ? -near : near) : 0;
#endif
    fl_stats_merge(stats, &one);
}

#endif
