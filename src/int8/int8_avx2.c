/* int8_avx2.c - sums of int16 products by VPMADDWD: the products of bytes by VPMADDUBSW may saturate. */
#include "int8/int8_kernels.inc"
#include <immintrin.h>

enum { BLOCK = 6 }; /* positions */

/* BLOCK positions of a panel; positions behind the last are computed too. */
static inline void block(const struct int8_tile *t, int64_t p, int v) {
    __m256i sum[BLOCK][2];
    for (int i = 0; i < BLOCK; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    const uint8_t *w = t->weights + v * t->panel_bytes;
    for (int64_t run = 0; run < t->runs; run++) {
        const uint8_t *x = t->x + p * t->step + t->offset[run];
        for (int64_t g = 0; g < t->groups; g++, x += INT8_GROUP, w += INT8_GROUP * LANES) {
            const __m256i w0 = _mm256_load_si256((const __m256i *)(const void *)w),
                          w1 = _mm256_load_si256((const __m256i *)(const void *)(w + 32));
#pragma GCC unroll 6
            for (int i = 0; i < BLOCK; i++) {
                int32_t pair;
                memcpy(&pair, x + i * t->step, sizeof pair);
                const __m256i both = _mm256_set1_epi32(pair);
                sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(both, w0));
                sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(both, w1));
            }
        }
    }
    for (int i = 0; i < BLOCK; i++) {
        int32_t *to = t->sums + ((p + i) * t->panels + v) * LANES;
        _mm256_store_si256((__m256i *)(void *)to, sum[i][0]);
        _mm256_store_si256((__m256i *)(void *)(to + 8), sum[i][1]);
    }
}

static void sums(const struct int8_tile *t) {
    for (int64_t p = 0; p < t->positions; p += BLOCK)
        for (int v = 0; v < t->panels; v++)
            block(t, p, v);
}

const struct int8_kernels fl_int8_avx2 = {.element = 2,
                                          .run_groups = 1,
                                          .positions = 24,
                                          .sums = sums,
                                          .finish = finish_plain,
                                          .depthwise = depthwise,
                                          .add = add,
                                          .widen = widen,
                                          .flip = flip};
