/* gemm_amx_packing.h - code shared by packing 16-bit elements for tiles, split into bytes or not.
 */
#ifndef FL_GEMM_AMX_PACKING_H
#define FL_GEMM_AMX_PACKING_H

#include "gemm/gemm_amx.h"
#include "gemm/gemm_driver.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* Zeros in place of missing elements, enough for a line. */
static inline const void *amx_nothing(void) {
    static const uint16_t zeros[AMX_LINE / sizeof(uint16_t)] __attribute__((aligned(64)));
    return zeros;
}

/* The elements of packed position i. */
static inline const void *amx_pixel(const struct gemm_matrix_pixels *line, int64_t i) {
    const int64_t x = line->first + i * line->step;
    return line->row && i < line->valid && x >= 0 && x < line->width ? (const uint16_t *)line->row + x * line->pixel
                                                                     : amx_nothing();
}

/* Transposes 16 x 16 words of 32 bits. */
static inline void amx_turn(uint8_t *to, const uint8_t *from) {
#if defined(__AVX512F__)
    for (int quarter = 0; quarter < 4; quarter++) { /* words 4 quarter ... + 3 of all lines */
        __m512i line[4];                            /* j: of lines j, j + 4, j + 8, j + 12 */
        for (int j = 0; j < 4; j++) {
            const uint8_t *at = from + j * AMX_LINE + quarter * 16;
            line[j] = _mm512_castsi128_si512(_mm_load_si128((const __m128i *)(const void *)at));
            line[j] = _mm512_mask_broadcast_i32x4(line[j], 0x00f0,
                                                  _mm_load_si128((const __m128i *)(const void *)(at + 4 * AMX_LINE)));
            line[j] = _mm512_mask_broadcast_i32x4(line[j], 0x0f00,
                                                  _mm_load_si128((const __m128i *)(const void *)(at + 8 * AMX_LINE)));
            line[j] = _mm512_mask_broadcast_i32x4(line[j], 0xf000,
                                                  _mm_load_si128((const __m128i *)(const void *)(at + 12 * AMX_LINE)));
        }
        const __m512i a = _mm512_unpacklo_epi32(line[0], line[1]), b = _mm512_unpackhi_epi32(line[0], line[1]),
                      c = _mm512_unpacklo_epi32(line[2], line[3]), d = _mm512_unpackhi_epi32(line[2], line[3]);
        uint8_t *out = to + quarter * 4 * AMX_LINE;
        _mm512_store_si512(out, _mm512_unpacklo_epi64(a, c));
        _mm512_store_si512(out + AMX_LINE, _mm512_unpackhi_epi64(a, c));
        _mm512_store_si512(out + 2 * AMX_LINE, _mm512_unpacklo_epi64(b, d));
        _mm512_store_si512(out + 3 * AMX_LINE, _mm512_unpackhi_epi64(b, d));
    }
#else
    for (int i = 0; i < AMX_ROWS; i++)
        for (int j = 0; j < AMX_ROWS; j++)
            memcpy(to + i * AMX_LINE + 4 * j, from + j * AMX_LINE + 4 * i, 4);
#endif
}

#endif
