/* gemm_int_sums.h - the conversion of accumulators of integer products to sums.
 *
 * Expects: gemm_int16_vector.h.
 * Gives: gemm_finish_sums, gemm_add_sums, gemm_add. */
#ifndef FL_GEMM_INT_SUMS_H
#define FL_GEMM_INT_SUMS_H

#include "gemm/gemm_int16_vector.h"

/* Converts a row of accumulators to limbs. The 2^15 of the start, which is missing in sum, is a one in high: adding it
 * to sum could overflow. */
static inline __attribute__((always_inline)) void to_limbs(const int32_t *sum, const int32_t *high, int64_t columns,
                                                           int32_t owed, const bool add, int32_t *low, int32_t *up) {
    const vector mask = (vector){0} + (-GEMM_REST - 1), ones = (vector){0} + (owed + 1);
    int64_t j = 0;
    for (; j + LANES <= columns; j += LANES) {
        const vector x = vector_load(sum + j);
        vector rest = x & mask, carried = (x >> GEMM_LIMB_BITS) + ones;
        if (owed)
            carried += vector_load(high + j);
        if (add) {
            rest += vector_load(low + j);
            carried += vector_load(up + j) + (rest >> GEMM_LIMB_BITS);
            rest &= mask;
        }
        vector_put(low + j, rest);
        vector_put(up + j, carried);
    }
    for (; j < columns; j++)
        limbs_put(low, up, j, sum[j] & (-GEMM_REST - 1), (owed ? high[j] : 0) + owed + 1 + (sum[j] >> GEMM_LIMB_BITS),
                  add);
}

typedef int64_t wide_vector __attribute__((vector_size(LANES * 4)));

static inline __attribute__((always_inline)) wide_vector widened(const int32_t *from) {
#if defined(__AVX512F__)
    return (wide_vector)_mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__AVX2__)
    return (wide_vector)_mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(const void *)from));
#else
    return (wide_vector){from[0], from[1]};
#endif
}

static void gemm_finish_sums(const int32_t *sum, const int32_t *high, int64_t stride, int64_t rows, int64_t columns,
                             int64_t owed, bool add, const struct gemm_sums *out) {
    for (int64_t i = 0; i < rows; i++, sum += stride, high += stride) {
        const int64_t at = i * out->stride;
        if (add)
            to_limbs(sum, high, columns, (int32_t)owed, true, out->low + at, out->high + at);
        else
            to_limbs(sum, high, columns, (int32_t)owed, false, out->low + at, out->high + at);
    }
}

/* Converts a row of limbs to whole sums. */
static inline __attribute__((always_inline)) void limbs_to_wide(const int32_t *low, const int32_t *high,
                                                                int64_t columns, const bool add, int64_t *wide) {
    int64_t j = 0;
    for (; j + LANES / 2 <= columns; j += LANES / 2) {
        wide_vector x = (widened(high + j) << GEMM_LIMB_BITS) + widened(low + j);
        if (add) {
            wide_vector y;
            memcpy(&y, wide + j, sizeof y);
            x += y;
        }
        memcpy(wide + j, &x, sizeof x);
    }
    for (; j < columns; j++) {
        const int64_t x = high[j] * -(int64_t)GEMM_REST + low[j];
        wide[j] = add ? wide[j] + x : x;
    }
}

/* Stores the limbs of a tile as limbs or whole sums, or adds them to these. */
static void gemm_add_sums(const int32_t *low, const int32_t *high, int64_t stride, int64_t rows, int64_t columns,
                          bool add, const struct gemm_sums *out) {
    for (int64_t i = 0; i < rows; i++, low += stride, high += stride) {
        const struct gemm_sums to = gemm_sums_at(out, i, 0);
        if (to.wide && add)
            limbs_to_wide(low, high, columns, true, to.wide);
        else if (to.wide)
            limbs_to_wide(low, high, columns, false, to.wide);
        else
            for (int64_t j = 0; j < columns; j++)
                limbs_put(to.low, to.high, j, low[j], high[j], add);
    }
}

static void gemm_add(void *total, const void *sums, int64_t n) {
    int64_t *restrict to = total;
    const int64_t *restrict from = sums;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

#endif
