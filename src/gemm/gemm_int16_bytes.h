/* gemm_int16_bytes.h - the mod-255 check: sums of any int16 data by the sum modulo 2^32 and the sum modulo 255, which
 * vpdpbusd computes from bytes (gemm_schemes.c).
 *
 * Gives, if vpdpbusd is available: panel_bytes, gemm_pack_bytes, gemm_finish_bytes. */
#ifndef FL_GEMM_INT16_BYTES_H
#define FL_GEMM_INT16_BYTES_H

#include "gemm/gemm_int16_vector.h"
#include "gemm/gemm_panel_kernels.inc"

#if GEMM_VNNI
#if defined(__AVX512F__)
typedef __m512i words;
#define WORDS(name) _mm512_##name
#define multiply_add_bytes(sum, a, b) (vector) _mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(b), (__m512i)(a))
#else
typedef __m256i words;
#define WORDS(name) _mm256_##name
#define multiply_add_bytes(sum, a, b) (vector) _mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(b), (__m256i)(a))
#endif
#define PANEL_BYTES(rows, columns)                                                                                     \
    PANEL_KERNEL(bytes, rows, columns) {                                                                               \
        PANEL_WHOLE(multiply_add_bytes, (vector){0}, rows)                                                             \
    }
PANEL_HEIGHTS(PANEL_BYTES)
#define PANEL_BYTES_NAME(rows, columns) [rows] = gemm_bytes_##rows##x##columns,
static const gemm_panel_kernel panel_bytes[PANEL_ROWS + 1] = {PANEL_HEIGHTS(PANEL_BYTES_NAME)};

/* int16 modulo 255, in 0 ... 254: 256 = 1 modulo 255, so the sum of the bytes, brought into range. */
static inline words modulo_255(words x) {
    const words m = WORDS(set1_epi16)(255);
    words s = WORDS(add_epi16)(WORDS(srai_epi16)(x, 8), x & m); /* -128 ... 382 */
    s = WORDS(min_epu16)(s, WORDS(add_epi16)(s, m));
    return WORDS(min_epu16)(s, WORDS(sub_epi16)(s, m));
}

/* The first `count` packed elements of a row, zeros beyond. */
static inline words packed_row(const gemm_packed *from, int64_t count) {
#if defined(__AVX512F__)
    return _mm512_maskz_loadu_epi32(count >= LANES ? 0xffff : (__mmask16)((1u << count) - 1), from);
#else
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_epi32((const int *)from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), place));
#endif
}

/* x - 255 modulo 256 where x > 127. */
static inline words centre_bytes(words x) {
#if defined(__AVX512F__)
    return _mm512_sub_epi8(x, _mm512_movm_epi8(_mm512_movepi8_mask(x)));
#else
    return _mm256_sub_epi8(x, _mm256_cmpgt_epi8(_mm256_setzero_si256(), x));
#endif
}

/* Packs rows of `width` k-pairs as half as many rows of four bytes each; centred: 128 ... 254 become -127 ... -1. */
static void gemm_pack_bytes(const gemm_packed *panel, int64_t width, int64_t steps, bool centred, gemm_packed *bytes) {
    static const char order_of_16[LANES * 4] __attribute__((aligned(LANES * 4))) = {
#define ORDER_OF_16 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15
        ORDER_OF_16,
        ORDER_OF_16,
#if defined(__AVX512F__)
        ORDER_OF_16,
        ORDER_OF_16
#endif
    };
    const words order = (words)vector_load(order_of_16);
    for (int64_t k = 0; k < steps; k += 2)
        for (int64_t j = 0; j < width; j += LANES) {
            const gemm_packed *at = panel + k * width + j;
            const words first = modulo_255(packed_row(at, width - j));
            const words second = k + 1 < steps ? modulo_255(packed_row(at + width, width - j)) : (words){0};
            const words x = WORDS(shuffle_epi8)(WORDS(packus_epi16)(first, second), order);
            vector_put(bytes + k / 2 * width + j, (vector)(centred ? centre_bytes(x) : x));
        }
}

/* sum: modulo 2^32; rest: modulo 255, not reduced. */
static void gemm_finish_bytes(const int32_t *sum, const int32_t *rest, int64_t stride, int64_t rows, int64_t columns,
                              int64_t owed, bool add, const struct gemm_sums *out) {
    (void)owed;
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *restrict of_sum = sum + i * stride, *restrict of_rest = rest + i * stride;
        int32_t *restrict low = out->low + i * out->stride, *restrict high = out->high + i * out->stride;
        for (int64_t j = 0; j < columns; j++) {
            const int32_t lo = (int32_t)((uint32_t)of_sum[j] - (uint32_t)GEMM_REST);
            /* 2^16 = 1 modulo 255 as well; |d| < 2^18, so a quotient of binary32 rounds to the nearest */
            const int32_t d = (of_rest[j] >> 16) + (of_rest[j] & 0xffff) - (lo >> 16) - (lo & 0xffff);
            const int32_t t = d - 255 * ((int32_t)((float)d * (1.0f / 255) + 2048.5f) - 2048);
            limbs_put(low, high, j, lo & (-GEMM_REST - 1),
                      (lo >> GEMM_LIMB_BITS) + (int32_t)((uint32_t)t << (32 - GEMM_LIMB_BITS)), add);
        }
    }
}

#endif

#endif
