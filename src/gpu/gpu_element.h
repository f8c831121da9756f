/* gpu_element.h - converts elements of a folder's formats to double and back, by the codec, with the statistics of a
 * write.
 *
 * The kernels of all folders have the same names, so each file has an unnamed namespace.
 *
 * Expects: a codec: that of a float format (float_block.h says what it defines), or FL_SHARED_EXPONENT, FL_TOP.
 * Gives: gpu_value, gpu_store, gpu_store_real, GPU_SHARED. */
#ifndef FL_GPU_ELEMENT_H
#define FL_GPU_ELEMENT_H

#include "core/arithmetic/philox.h"
#include "core/real/real_pair.h"
#include "core/arithmetic/stochastic.h"
#include "core/tensor/element_rules.h"
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
/* Stores a rounded mantissa. */
__device__ static inline void gpu_store_mantissa(const struct gpu_now &now, int64_t i, int64_t m, bool something,
                                                 struct fl_stats *stats) {
    m = fl_put_mantissa(m, FL_TOP, something, stats);
    if (now.out)
        ((fl_element *)now.out)[i] = (fl_element)m;
}

/* Stores both parts of element i from a wide mantissa that was rounded but not yet saturated. */
__device__ static inline void gpu_store_wide(const struct gpu_now &now, void *wide, int64_t i, int64_t m,
                                             bool something, struct fl_stats *stats) {
    fl_element element;
    const int32_t kept = fl_put_wide(m, something, &element, stats);
    if (now.out) {
        ((int32_t *)wide)[i] = kept;
        ((fl_element *)now.out)[i] = element;
    }
}

/* Stores NaN or Inf as element i. */
__device__ static inline void gpu_put_nonfinite(const struct gpu_now &now, int64_t i, double x,
                                                struct fl_stats *stats) {
    const int32_t m = fl_put_nonfinite(x, FL_TOP, stats);
    if (now.out)
        ((fl_element *)now.out)[i] = (fl_element)m;
}

/* Stores x, exact or rounded to odd, as element i; near: x rounded to nearest, for the maximum; e: exponent of the
 * output. */
__device__ static inline void gpu_store(const struct gpu_now &now, int e, int64_t i, double x, double near,
                                        struct fl_stats *stats) {
    const bool drawn = now.rounding.mode == TENSOR_ROUND_STOCHASTIC;
    const uint32_t draw = drawn ? fl_philox_draw(now.rounding.key, now.rounding.write, i) : 0;
    const int32_t m = fl_put_number(x, near, e, FL_TOP, drawn ? &draw : NULL, stats);
    if (now.out)
        ((fl_element *)now.out)[i] = (fl_element)m;
}
#else
#ifndef FL_COUNT_FLOAT
#define FL_COUNT_FLOAT fl_count_float
#endif
#ifndef FL_PUT
#define FL_PUT(now, i, element) (void)(((fl_element *)(now).out)[i] = (element))
#endif

/* Stores a binary32 as element i, rounded to nearest or truncated. */
__device__ static inline void gpu_store_float(const struct gpu_now &now, int64_t i, float x, struct fl_stats *stats) {
    const uint32_t size = fl_float_magnitude(x);
    uint32_t overflow = FL_OVERFLOW, flush = FL_FLUSH;
    fl_element element = FL_ENCODE(x);
#ifdef FL_ENCODE_TRUNCATED
    if (now.rounding.mode == TENSOR_ROUND_TRUNCATE) {
        overflow = FL_OVERFLOW_TRUNCATED;
        flush = FL_FLUSH_TRUNCATED;
        element = FL_ENCODE_TRUNCATED(x);
    }
#endif
    FL_COUNT_FLOAT(x, size >= overflow, stats);
    stats->flushed += size - 1u < flush; /* zero wraps around */
    if (now.out)
        FL_PUT(now, i, element);
}

#ifdef FL_DIGITS
/* Stores x, exact, rounded to odd, or a binary32, as element i, rounded stochastically; returns the rounded number. */
__device__ static inline float gpu_store_drawn(const struct gpu_now &now, int64_t i, double x, struct fl_stats *stats) {
    const uint32_t draw = fl_philox_draw(now.rounding.key, now.rounding.write, i);
    const float before = (float)x, rounded = (float)fl_round_by_draw(x, draw, FL_DIGITS, FL_LEAST_NORMAL);
    const uint32_t stored = fl_float_magnitude(rounded);
    FL_COUNT_FLOAT(before, stored >= FL_BEYOND, stats);
    stats->flushed += stored == 0 && fl_float_magnitude(before) != 0;
    if (now.out)
        FL_PUT(now, i, FL_ENCODE(rounded));
    return rounded;
}
#ifndef FL_STORED
#define FL_STORED(x) FL_DECODE(FL_ENCODE(x)) /* the number of the element */
#endif
#endif

/* Stores a result of an operation: it is rounded to binary32 first, unless the write rounds stochastically. */
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

/* Stores a number that is not the result of an operation, rounded once by way of a binary32 rounded to odd. */
__device__ static inline void gpu_store_number(const struct gpu_now &now, int64_t i, double x, struct fl_stats *stats) {
#ifdef FL_ELEMENT_IS_FLOAT
    const float f = (float)x;
#else
    const float f = fl_odd_float(x);
#endif
    const double size = x < 0 ? -x : x;
    struct fl_stats one = {};
    gpu_store_float(now, i, f, &one);
    fl_count_lost(x, f, &one);
    one.maximum = size == size ? size : 0;
    fl_stats_merge(stats, &one);
}
#endif

/* Stores the exact sum of a product as element i, rounded once: x, exact or rounded to odd; near, the same to nearest,
 * for the maximum. Counts of a stochastic rounding are those of the element (fl_encode_exact). */
__device__ static inline void gpu_store_sum(const struct gpu_now &now, int e, int64_t i, double x, double near,
                                            struct fl_stats *stats) {
#ifdef FL_SHARED_EXPONENT
    gpu_store(now, e, i, x, near, stats);
#else
    struct fl_stats one = {};
    (void)e;
#ifdef FL_DIGITS
    if (now.rounding.mode == TENSOR_ROUND_STOCHASTIC) {
        const float rounded = gpu_store_drawn(now, i, x, &one), stored = FL_STORED(rounded);
        if (now.made.saturates)
            one.nonfinite = !fl_is_finite(x);
        else
            one.saturated = fl_is_finite(x) && !fl_is_finite(stored);
        one.flushed = fl_is_finite(x) && x != 0 && stored == 0;
    } else
#endif
        gpu_store_number(now, i, x, &one);
    one.maximum = near == near ? (near < 0 ? -near : near) : 0;
    fl_stats_merge(stats, &one);
#endif
}

/* Stores x, a real number rounded to odd, as element i, rounded once. */
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
