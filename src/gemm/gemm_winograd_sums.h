/* gemm_winograd_sums.h - exact sums of pairs of pixels from those of the linear forms of Winograd's algorithm.
 *
 * Gives: gemm_winograd_sums. */
#ifndef FL_GEMM_WINOGRAD_SUMS_H
#define FL_GEMM_WINOGRAD_SUMS_H

#include "gemm/gemm_int16_vector.h"

/* Half of high * 2^15 + low, which is even, as limbs. */
static inline __attribute__((always_inline)) void halved_limbs(uvector low, uvector high, int32_t *to_low,
                                                               int32_t *to_high) {
    const vector rest = (vector)(low + ((high & 1) << GEMM_LIMB_BITS)) >> 1;
    vector_put(to_low, rest & (-GEMM_REST - 1));
    vector_put(to_high, wrapping_add((vector)high >> 1, rest >> GEMM_LIMB_BITS));
}

/* The sums of a pair of pixels, 2 y0 = 2 m0 + m1 + m2 and 2 y1 = m1 - m2 - 2 m3. Unsigned, since lanes beyond the
 * columns hold anything. */
static inline __attribute__((always_inline)) void winograd_vector(const struct gemm_sums *forms, int64_t plane,
                                                                  int64_t at, int32_t *low0, int32_t *high0,
                                                                  int32_t *low1, int32_t *high1) {
    uvector l[GEMM_WINOGRAD_FORMS], h[GEMM_WINOGRAD_FORMS];
    for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++) {
        l[form] = (uvector)vector_load(forms->low + form * plane + at);
        h[form] = (uvector)vector_load(forms->high + form * plane + at);
    }
    halved_limbs(2 * l[0] + l[1] + l[2], 2 * h[0] + h[1] + h[2], low0, high0);
    halved_limbs(l[1] - l[2] - 2 * l[3], h[1] - h[2] - 2 * h[3], low1, high1);
}

static void gemm_winograd_sums(const struct gemm_sums *forms, int64_t plane, int64_t rows, int64_t columns,
                               const struct gemm_sums out[2]) {
    for (int64_t i = 0; i < rows; i++) {
        const struct gemm_sums first = gemm_sums_at(&out[0], i, 0), second = gemm_sums_at(&out[1], i, 0);
        int64_t j = 0;
        for (; j + LANES <= columns; j += LANES)
            winograd_vector(forms, plane, i * forms->stride + j, first.low + j, first.high + j, second.low + j,
                            second.high + j);
        if (j < columns) {
            int32_t rest[4][LANES];
            const size_t bytes = (size_t)(columns - j) * sizeof **rest;
            winograd_vector(forms, plane, i * forms->stride + j, rest[0], rest[1], rest[2], rest[3]);
            memcpy(first.low + j, rest[0], bytes);
            memcpy(first.high + j, rest[1], bytes);
            memcpy(second.low + j, rest[2], bytes);
            memcpy(second.high + j, rest[3], bytes);
        }
    }
}

#endif
