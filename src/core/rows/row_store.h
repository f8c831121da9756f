/* row_store.h - rows of elements as doubles, and doubles as elements with a shared exponent.
 *
 * Gives: row_widen_mantissas, row_widen_floats, row_narrow, row_add_mantissas, row_store, row_round_estimates. */
#ifndef FL_ROW_STORE_H
#define FL_ROW_STORE_H

#include "core/rows/row_lanes.h"
#include "core/rows/row_vectors.h"
#include "core/table/kernel.h"

static void row_widen_mantissas(double *to, const int16_t *m, int64_t n, double unit) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_to(to + i, lanes_mantissas(m + i) * unit);
    if (i < n) {
        int16_t some[LANES] = {0};
        memcpy(some, m + i, (size_t)(n - i) * sizeof *m);
        lanes_to(to + i, lanes_mantissas(some) * unit);
    }
}

static void row_widen_floats(double *to, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_to(to + i, lanes_floats(x + i));
    if (i < n) {
        float some[LANES] = {0};
        memcpy(some, x + i, (size_t)(n - i) * sizeof *x);
        lanes_to(to + i, lanes_floats(some));
    }
}

static void row_narrow(float *to, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)x[i];
}

static void row_add_mantissas(int64_t *sum, const int16_t *m, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        sum[i] += m[i];
}

static inline void store_some(int16_t *dst, int64_t n, lanes m) {
    if (n >= LANES) {
        lanes_store(dst, m);
        return;
    }
#if defined(__AVX512F__)
    _mm_mask_storeu_epi16(dst, (__mmask8)((1 << n) - 1), _mm256_cvtepi32_epi16(_mm512_cvtpd_epi32((__m512d)m)));
#else
    int16_t some[LANES];
    lanes_store(some, m);
    memcpy(dst, some, (size_t)n * sizeof *dst);
#endif
}

enum { STORED_TOP = 32767 };

static void row_store(int16_t *dst, int64_t n, const double *value, double unit, struct fl_stats *stats) {
    const lanes top = lanes_all(STORED_TOP), beyond = top + 1;
    lanes largest = {0}, gamma = {0};
    words flushed = {0}, saturated = {0}, nonfinite = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes x = lanes_of(value + i, n - i), v = x * unit;
        const words number = x == x, finite = x - x == 0;                     /* the others as in fl_put_nonfinite */
        const lanes inside = lanes_smaller(lanes_larger(v, -beyond), beyond); /* `number` clears NaN */
        const lanes m = (lanes)((words)lanes_nearest(inside) & number);
        const lanes kept = lanes_smaller(lanes_larger(m, -top), top);
        nonfinite += 1 + finite;
        flushed -= (m == 0) & number & (x != 0);
        saturated -= m != kept;
        largest = lanes_larger((lanes)((words)lanes_size(x) & finite), largest);
        gamma = lanes_larger((lanes)((words)lanes_size(kept) & finite), gamma);
        if (dst)
            store_some(dst + i, n - i, kept);
    }
    stats->maximum = lanes_largest(largest, stats->maximum);
    const int32_t most = (int32_t)lanes_largest(gamma, 0);
    stats->gamma = most > stats->gamma ? most : stats->gamma;
    stats->flushed += lanes_count(flushed);
    stats->saturated += lanes_count(saturated);
    stats->nonfinite += lanes_count(nonfinite);
}

/* A result x in units of the last place, off by less than `err`, rounds to m if x differs from m by less than 1/2 -
 * err: it is then no tie, and none lies between. It is first clamped to +-32768: a number beyond saturates in any case
 * as long as err is below 1/2. */
#if defined(__AVX512F__)
/* Numbers that saturate are counted again, because few rows have any. */
static int64_t row_count_saturated(int64_t n, const double *value) {
    const __m512d top = _mm512_set1_pd(STORED_TOP);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        const __m512d m =
            (__m512d)lanes_nearest(lanes_size(lanes_smaller(lanes_of(value + i, n - i), lanes_all(0x1p20))));
        count += __builtin_popcount(_mm512_cmp_pd_mask(m, top, _CMP_GT_OQ));
    }
    return count;
}

static bool row_round_estimates(int16_t *dst, int64_t n, const struct fl_row_estimates *row,
                                struct fl_row_rounded *rounded) {
    const __m512d beyond = _mm512_set1_pd(STORED_TOP + 1), below = _mm512_set1_pd(-STORED_TOP - 1),
                  half = _mm512_set1_pd(0.5), zero = _mm512_setzero_pd(), unit = _mm512_set1_pd(0x1p-50);
    const __m256i least = _mm256_set1_epi32(-STORED_TOP);
    __m512d most = zero;
    __m256i gamma = _mm256_setzero_si256(), flushed = gamma;
    __mmask8 doubt = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        const __m512d x = (__m512d)lanes_of(row->value + i, n - i), size = _mm512_abs_pd(x),
                      err = _mm512_mul_pd((__m512d)lanes_of(row->size + i, n - i), unit);
        const __m512d inside = _mm512_min_pd(_mm512_max_pd(x, below), beyond);
        const __m256i m = _mm512_cvtpd_epi32(inside);
        const __m512d distance = _mm512_abs_pd(_mm512_sub_pd(inside, _mm512_cvtepi32_pd(m)));
        const __mmask8 inexact = _mm512_cmp_pd_mask(err, zero, _CMP_GT_OQ);
        doubt |= _mm512_cmp_pd_mask(_mm512_add_pd(distance, err), half, _CMP_GE_OQ) |
                 _mm512_mask_cmp_pd_mask(inexact, size, err, _CMP_LE_OQ);
        const __mmask8 gone = _mm256_mask_testn_epi32_mask(_mm512_cmp_pd_mask(x, zero, _CMP_NEQ_UQ), m, m);
        flushed = _mm256_mask_sub_epi32(flushed, gone, flushed, _mm256_set1_epi32(-1));
        most = _mm512_max_pd(_mm512_add_pd(size, err), most);
        gamma = _mm256_max_epi32(gamma, _mm256_abs_epi32(m));
        const __m128i kept = _mm256_cvtsepi32_epi16(_mm256_max_epi32(m, least));
        if (dst && n - i >= LANES)
            _mm_storeu_si128((__m128i *)(void *)(dst + i), kept);
        else if (dst)
            _mm_mask_storeu_epi16(dst + i, (__mmask8)((1u << (n - i)) - 1), kept);
    }
    *rounded = (struct fl_row_rounded){.most = _mm512_reduce_max_pd(most),
                                       .gamma = _mm512_reduce_max_epi32(_mm512_zextsi256_si512(gamma)),
                                       .flushed = _mm512_reduce_add_epi32(_mm512_zextsi256_si512(flushed))};
    if (rounded->gamma > STORED_TOP) {
        rounded->gamma = STORED_TOP;
        rounded->saturated = row_count_saturated(n, row->value);
    }
    return !doubt;
}
#else
static bool row_round_estimates(int16_t *dst, int64_t n, const struct fl_row_estimates *row,
                                struct fl_row_rounded *rounded) {
    const lanes top = lanes_all(STORED_TOP), beyond = top + 1;
    lanes most = {0}, gamma = {0};
    words doubt = {0}, flushed = {0}, saturated = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes x = lanes_of(row->value + i, n - i), size = lanes_size(x);
        const lanes err = lanes_of(row->size + i, n - i) * 0x1p-50;
        const lanes inside = lanes_smaller(lanes_larger(x, -beyond), beyond), m = lanes_nearest(inside);
        const lanes kept = lanes_smaller(lanes_larger(m, -top), top);
        doubt |= (lanes_size(inside - m) + err >= 0.5) | ((size <= err) & (err > 0));
        flushed -= (m == 0) & (x != 0);
        saturated -= m != kept;
        most = lanes_larger(size + err, most);
        gamma = lanes_larger(lanes_size(kept), gamma);
        if (dst)
            store_some(dst + i, n - i, kept);
    }
    rounded->most = lanes_largest(most, 0);
    rounded->gamma = (int32_t)lanes_largest(gamma, 0);
    rounded->flushed = lanes_count(flushed);
    rounded->saturated = lanes_count(saturated);
    return !lanes_any(doubt);
}
#endif

#endif
