/* gpu_element.h - converts elements of a folder's formats to double and back, by the codec, with the statistics of a
 * write.
 *
 * The kernels of all folders have the same names, so each file has an unnamed namespace.
 *
 * Expects: a codec: that of a float format (float_block.h says what it defines), or FL_SHARED_EXPONENT, FL_TOP.
 * Gives: gpu_value, gpu_mantissa, gpu_store, gpu_store_once, gpu_elements, gpu_chains, GPU_SHARED. */
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

/* Its mantissa, under a shared exponent. */
__device__ static inline int64_t gpu_mantissa(const struct fl_view &view, int64_t i) {
    return (int64_t)((const fl_element *)view.data)[i];
}

/* A result of an operation: exact or rounded to odd, and to nearest, for the maximum. */
struct gpu_result {
    double odd, near;
    __device__ gpu_result(double x) : odd(x), near(x) {}
    __device__ gpu_result(double odd_, double near_) : odd(odd_), near(near_) {}
    __device__ gpu_result(const struct fl_wide_sum &sum) : odd(fl_terms_odd(sum)), near(fl_terms_abs(sum)) {}
    __device__ operator double() const { return odd; }
};

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

/* Stores a result as element i. */
__device__ static inline void gpu_store(const struct gpu_now &now, int64_t i, struct gpu_result x,
                                        struct fl_stats *stats) {
    const bool drawn = now.rounding.mode == TENSOR_ROUND_STOCHASTIC;
    const uint32_t draw = drawn ? fl_philox_draw(now.rounding.key, now.rounding.write, i) : 0;
    const int32_t m = fl_put_number(x.odd, x.near, now.e, FL_TOP, drawn ? &draw : NULL, stats);
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

/* Stores a result of an operation, a float, a double or a gpu_result: it is rounded to binary32 first, unless the write
 * rounds stochastically. */
template <class Result>
__device__ static inline void gpu_store(const struct gpu_now &now, int64_t i, Result x, struct fl_stats *stats) {
#ifdef FL_DIGITS
    if (now.rounding.mode == TENSOR_ROUND_STOCHASTIC) {
        gpu_store_drawn(now, i, x, stats);
        return;
    }
#endif
    gpu_store_float(now, i, (float)(double)x, stats);
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

/* Stores x as element i, rounded once: a real number, or the exact sum of a product, of whose stochastic rounding the
 * counts are those of the element (fl_encode_exact). */
__device__ static inline void gpu_store_once(const struct gpu_now &now, int64_t i, struct gpu_result x, bool is_sum,
                                             struct fl_stats *stats) {
#ifdef FL_SHARED_EXPONENT
    (void)is_sum;
    gpu_store(now, i, x, stats);
#else
    struct fl_stats one = {};
#ifdef FL_DIGITS
    if (now.rounding.mode == TENSOR_ROUND_STOCHASTIC) {
        const float rounded = gpu_store_drawn(now, i, x, &one), stored = FL_STORED(rounded);
        const bool finite = fl_is_finite(x);
        if (is_sum && now.made.saturates)
            one.nonfinite = !finite;
        else if (is_sum)
            one.saturated = finite && !fl_is_finite(stored);
        if (is_sum)
            one.flushed = finite && x != 0 && stored == 0;
    } else
#endif
        gpu_store_number(now, i, x, &one);
    one.maximum = x.near == x.near ? (x.near < 0 ? -x.near : x.near) : 0;
    fl_stats_merge(stats, &one);
#endif
}

/* A sum of numbers in chains of binary32, FL_ROWS_CHUNK terms each, which are added in double. */
struct gpu_chains {
    double total = 0;
    float chain = 0;
    int64_t terms = 0;
    __device__ void add(double x) {
        if (terms && terms % FL_ROWS_CHUNK == 0) {
            total += chain;
            chain = 0;
        }
        chain = __fadd_rn(chain, (float)x);
        terms++;
    }
    __device__ double value() const { return total + chain; }
};

/* The frame of kernels whose results are elements: stores result(i) as element i, for each i below count. */
template <class Result>
__device__ static __forceinline__ void gpu_elements(const struct gpu_call &call, int64_t count, Result result) {
    gpu_store_each(call, count, [&](const auto &now, int64_t i, auto *stats) { gpu_store(now, i, result(i), stats); });
}

#endif
