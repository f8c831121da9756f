/* row_lanes.h - a vector of doubles, for kernels of rows.
 *
 * Gives: lanes_of, lanes_first, lanes_all, lanes_to, lanes_to_some, lanes_mantissas, lanes_floats, lanes_size,
 * lanes_select, lanes_larger, lanes_smaller, lanes_nearest, lanes_largest, lanes_count, lanes_any,
 * lanes_store. */
#ifndef FL_ROW_LANES_H
#define FL_ROW_LANES_H

#include "core/arithmetic/lanes.h"
#include <stdbool.h>

/* n numbers, then zeros. */
static inline lanes lanes_of(const double *p, int64_t n) {
    if (n >= LANES)
        return lanes_at(p);
#if defined(__AVX512F__)
    return (lanes)_mm512_maskz_loadu_pd((__mmask8)((1 << n) - 1), p);
#endif
    lanes x = {0};
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
}

/* The first n, then zeros. */
static inline lanes lanes_first(lanes x, int64_t n) {
    words index;
    for (int l = 0; l < LANES; l++)
        index[l] = l;
    return (lanes)((words)x & (index < n));
}

static inline lanes lanes_all(double x) {
    return (lanes){0} + x;
}

static inline void lanes_to(double *p, lanes x) {
    memcpy(p, &x, sizeof x);
}

/* The first n, if there are not more. */
static inline void lanes_to_some(double *p, int64_t n, lanes x) {
    if (n >= LANES)
        lanes_to(p, x);
    else
        memcpy(p, &x, (size_t)n * sizeof *p);
}

static inline lanes lanes_size(lanes x) {
    return (lanes)((words)x & INT64_MAX);
}

static inline lanes lanes_select(words mask, lanes a, lanes b) {
    return (lanes)(((words)a & mask) | ((words)b & ~mask));
}

/* x rounded to integers, ties to even, for |x| < 2^51. */
static inline lanes lanes_nearest(lanes x) {
    return (x + 0x1.8p52) - 0x1.8p52;
}

#if defined(__AVX512F__)

static inline lanes lanes_mantissas(const int16_t *p) {
    return (lanes)_mm512_cvtepi32_pd(_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline lanes lanes_floats(const float *p) {
    return (lanes)_mm512_cvtps_pd(_mm256_loadu_ps(p));
}
static inline lanes lanes_larger(lanes a, lanes b) { /* a > b ? a : b */
    return (lanes)_mm512_max_pd((__m512d)a, (__m512d)b);
}
static inline lanes lanes_smaller(lanes a, lanes b) { /* a < b ? a : b */
    return (lanes)_mm512_min_pd((__m512d)a, (__m512d)b);
}
static inline void lanes_store(int16_t *p, lanes x) { /* integers that fit */
    _mm_storeu_si128((__m128i *)p, _mm256_cvtepi32_epi16(_mm512_cvtpd_epi32((__m512d)x)));
}

#elif defined(__AVX2__)

static inline lanes lanes_mantissas(const int16_t *p) {
    return (lanes)_mm256_cvtepi32_pd(_mm_cvtepi16_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline lanes lanes_floats(const float *p) {
    return (lanes)_mm256_cvtps_pd(_mm_loadu_ps(p));
}
static inline lanes lanes_larger(lanes a, lanes b) {
    return (lanes)_mm256_max_pd((__m256d)a, (__m256d)b);
}
static inline lanes lanes_smaller(lanes a, lanes b) {
    return (lanes)_mm256_min_pd((__m256d)a, (__m256d)b);
}
static inline void lanes_store(int16_t *p, lanes x) {
    const __m128i m = _mm256_cvtpd_epi32((__m256d)x);
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi32(m, m));
}

#else

static inline lanes lanes_mantissas(const int16_t *p) {
    return (lanes){p[0], p[1]};
}
static inline lanes lanes_floats(const float *p) {
    return (lanes){p[0], p[1]};
}
static inline lanes lanes_larger(lanes a, lanes b) {
    return lanes_select(a > b, a, b);
}
static inline lanes lanes_smaller(lanes a, lanes b) {
    return lanes_select(a < b, a, b);
}
static inline void lanes_store(int16_t *p, lanes x) {
    p[0] = (int16_t)x[0];
    p[1] = (int16_t)x[1];
}

#endif

/* The largest lane, or `than` if that is larger. */
static inline double lanes_largest(lanes x, double than) {
    for (int l = 0; l < LANES; l++)
        than = x[l] > than ? x[l] : than;
    return than;
}

/* The number of masks that were subtracted from x, each -1 in its lane. */
static inline int64_t lanes_count(words x) {
    int64_t sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += x[l];
    return sum;
}

static inline bool lanes_any(words mask) {
    int64_t any = 0;
    for (int l = 0; l < LANES; l++)
        any |= mask[l];
    return any != 0;
}

#endif
