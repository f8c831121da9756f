/* int8_avx512.c - sums of products of bytes by VPDPBUSD (VNNI), of which none saturates. */
#include "int8/int8_kernels.inc"
#include "int8/int8_finish_avx512.inc"
#include <immintrin.h>

/* `count` positions of V panels; positions behind the last are computed too. */
#define DEFINE_BLOCK(name, V, count)                                                                                   \
    static void name(const struct int8_tile *t, int64_t p) {                                                           \
        __m512i sum[count][V];                                                                                         \
        UNROLL for (int i = 0; i < (count); i++) UNROLL for (int v = 0; v < (V); v++) sum[i][v] =                      \
            _mm512_setzero_si512();                                                                                    \
        const uint8_t *w = t->weights;                                                                                 \
        for (int64_t run = 0; run < t->runs; run++) {                                                                  \
            const uint8_t *x = t->x + p * t->step + t->offset[run];                                                    \
            for (int64_t g = 0; g < t->groups; g++, x += INT8_GROUP, w += INT8_GROUP * LANES) {                        \
                __m512i weight[V];                                                                                     \
                UNROLL for (int v = 0; v < (V); v++) weight[v] = _mm512_load_si512(w + v * t->panel_bytes);            \
                UNROLL for (int i = 0; i < (count); i++) {                                                             \
                    int32_t quad;                                                                                      \
                    memcpy(&quad, x + i * t->step, sizeof quad);                                                       \
                    const __m512i all = _mm512_set1_epi32(quad);                                                       \
                    UNROLL for (int v = 0; v < (V); v++) sum[i][v] = _mm512_dpbusd_epi32(sum[i][v], all, weight[v]);   \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int i = 0; i < (count); i++) UNROLL for (int v = 0; v < (V); v++)                                  \
            _mm512_store_si512(t->sums + ((p + i) * t->panels + v) * LANES, sum[i][v]);                                \
    }
#define UNROLL _Pragma("GCC unroll 12")

DEFINE_BLOCK(one_panel, 1, 12)
DEFINE_BLOCK(two_panels, 2, 8)
DEFINE_BLOCK(three_panels, 3, 8)
DEFINE_BLOCK(four_panels, 4, 6)

static void sums(const struct int8_tile *t) {
    static void (*const block[])(const struct int8_tile *, int64_t) = {one_panel, two_panels, three_panels,
                                                                       four_panels};
    static const int positions[] = {12, 8, 8, 6};
    for (int64_t p = 0; p < t->positions; p += positions[t->panels - 1])
        block[t->panels - 1](t, p);
}

const struct int8_kernels fl_int8_avx512 = {.element = 1,
                                            .run_groups = 1,
                                            .positions = 24,
                                            .sums = sums,
                                            .finish = finish,
                                            .depthwise = depthwise,
                                            .add = add_vectors,
                                            .widen = widen,
                                            .flip = flip};
