/* block_bytes_avx512.c - dot products of bytes by VNNI. */
#include "blocks/block_bytes.h"
#include "core/arithmetic/exact.h"
#include <immintrin.h>
#include <string.h>

enum { OFFSET = 128, LANES = 8 };

static inline double scale_of(const struct fl_block_rows *from, int64_t at) {
    const int exponent = from->exponents[at];
    if (exponent == FL_BLOCK_ZERO || exponent == FL_BLOCK_NAN)
        return exponent == FL_BLOCK_ZERO ? 0 : (double)NAN;
    const uint64_t bits = (uint64_t)(1023 + exponent + from->format->element.unit) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return from->significands ? scale * from->significands[at] : scale;
}

/* --- rows of A ------------------------------------------------------------------------------------------------------ */

/* The sum of the elements of a block, that of their squares, and the union of their bits. */
static inline void measure(const int8_t *x, int width, int32_t *sum, int32_t *squares, uint32_t *any) {
    __m512i sums = _mm512_setzero_si512(), products = sums, bits = sums;
    for (int i = 0; i < width; i += 64) {
        const __mmask64 mask = width - i >= 64 ? ~0ull : (1ull << (width - i)) - 1;
        const __m512i v = _mm512_maskz_loadu_epi8(mask, x + i), size = _mm512_abs_epi8(v);
        sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), v);
        products = _mm512_dpbusd_epi32(products, size, size);
        bits = _mm512_or_si512(bits, v);
    }
    const uint32_t together = (uint32_t)_mm512_reduce_or_epi32(bits);
    *sum = _mm512_reduce_add_epi32(sums);
    *squares = _mm512_reduce_add_epi32(products);
    *any = (together | together >> 8 | together >> 16 | together >> 24) & 255;
}

static void begin(const struct fl_block_rows *from, int64_t row, struct fl_bytes_block *blocks,
                  struct fl_block_bound *bound) {
    double squares = 0;
    int unit = FL_NO_UNIT;
    for (int64_t b = 0; b < from->blocks; b++) {
        const int64_t at = row * from->blocks + b;
        int32_t sum, product;
        uint32_t any;
        measure(from->bytes + at * from->width, from->width, &sum, &product, &any);
        const double scale = scale_of(from, at);
        if (blocks)
            blocks[b] = (struct fl_bytes_block){scale, -OFFSET * sum, 0};
        if (!any)
            continue;
        squares += product * scale * scale;
        const int significand = from->significands ? from->significands[at] : 1,
                  lowest = fl_trailing_zeros(any) + fl_trailing_zeros((uint64_t)significand) + from->exponents[at] +
                           from->format->element.unit;
        unit = lowest < unit ? lowest : unit;
    }
    *bound = (struct fl_block_bound){squares, unit};
}

/* --- panels of B ---------------------------------------------------------------------------------------------------- */

/* 16 vectors of 16 words, transposed. */
static inline __attribute__((always_inline)) void transpose(__m512i v[16]) {
    __m512i t[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* words of four rows, in each 128 bits */
        const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]),
                      c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd),
                      c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88),
                      d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
        v[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        v[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

static void pack(const struct fl_block_rows *from, const int64_t *rows, int count, uint8_t *elements, double *scales) {
    const int64_t length = from->blocks * from->width;
    for (int64_t first = 0; first < length; first += 64) {
        const int64_t left = length - first;
        const __mmask64 mask = left >= 64 ? ~0ull : (1ull << left) - 1;
        __m512i v[16];
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++)
            v[j] = j < count && rows[j] >= 0 ? _mm512_maskz_loadu_epi8(mask, from->bytes + rows[j] * length + first)
                                             : _mm512_setzero_si512();
        transpose(v);
        for (int i = 0; i < 16 && i * 4 < left; i++)
            _mm512_storeu_si512(elements + (first + i * 4) * FL_BYTES_LANES,
                                _mm512_xor_si512(v[i], _mm512_set1_epi8((char)OFFSET)));
    }
    for (int64_t b = 0; b < from->blocks; b++)
        for (int j = 0; j < FL_BYTES_LANES; j++)
            scales[b * FL_BYTES_LANES + j] = j < count && rows[j] >= 0 ? scale_of(from, rows[j] * from->blocks + b) : 0;
}

/* --- sums ----------------------------------------------------------------------------------------------------------- */

static inline __m512d join(__m256i dot, __m512d scale, __m512d sum) {
    return _mm512_fmadd_pd(_mm512_cvtepi32_pd(dot), scale, sum);
}

/* Adds the dot products of a row with one panel. */
static inline __attribute__((always_inline)) void join_whole(__m512i dots, double scale, const __m512d scales[2],
                                                             double *high) {
    const __m512d a = _mm512_set1_pd(scale);
    _mm512_storeu_pd(high, join(_mm512_castsi512_si256(dots), _mm512_mul_pd(a, scales[0]), _mm512_loadu_pd(high)));
    _mm512_storeu_pd(high + LANES, join(_mm512_extracti64x4_epi64(dots, 1), _mm512_mul_pd(a, scales[1]),
                                        _mm512_loadu_pd(high + LANES)));
}

static inline __attribute__((always_inline)) void join_split(__m512i dots, double scale, const __m512d scales[2],
                                                             double sigma, double *high, double *low) {
    for (int i = 0; i < 2; i++) {
        const __m256i half = i ? _mm512_extracti64x4_epi64(dots, 1) : _mm512_castsi512_si256(dots);
        const __m512d term =
                          _mm512_mul_pd(_mm512_cvtepi32_pd(half), _mm512_mul_pd(_mm512_set1_pd(scale), scales[i])),
                      grid = _mm512_set1_pd(sigma), coarse = _mm512_sub_pd(_mm512_add_pd(term, grid), grid);
        _mm512_storeu_pd(high + i * LANES, _mm512_add_pd(_mm512_loadu_pd(high + i * LANES), coarse));
        _mm512_storeu_pd(low + i * LANES,
                         _mm512_add_pd(_mm512_loadu_pd(low + i * LANES), _mm512_sub_pd(term, coarse)));
    }
}

static inline __attribute__((always_inline)) void add_tile(const struct fl_bytes_tile *t, const int R, const int V,
                                                           const int quads, const bool split) {
    const int64_t width = quads * 4;
    for (int64_t piece = 0; piece < t->pieces; piece++) {
        const int8_t *const *rows = t->row[piece];
        const struct fl_bytes_block *const *blocks = t->block[piece];
        const struct fl_bytes_panel *panels = t->panel[piece];
        for (int64_t b = 0; b < t->blocks; b++) {
            __m512i dots[FL_BYTES_ROWS][FL_BYTES_PANELS];
            const uint8_t *elements[FL_BYTES_PANELS];
#pragma GCC unroll 8
            for (int i = 0; i < R; i++)
                for (int v = 0; v < V; v++)
                    dots[i][v] = _mm512_set1_epi32(blocks[i][b].start);
            for (int v = 0; v < V; v++)
                elements[v] = panels[v].elements + b * width * FL_BYTES_LANES;
            for (int q = 0; q < quads; q++) {
                __m512i column[FL_BYTES_PANELS];
                for (int v = 0; v < V; v++)
                    column[v] = _mm512_loadu_si512(elements[v] + q * 64);
#pragma GCC unroll 8
                for (int i = 0; i < R; i++) {
                    int32_t quad;
                    memcpy(&quad, rows[i] + b * width + q * 4, sizeof quad);
                    const __m512i spread = _mm512_set1_epi32(quad);
                    for (int v = 0; v < V; v++)
                        dots[i][v] = _mm512_dpbusd_epi32(dots[i][v], column[v], spread);
                }
            }
            __m512d scales[FL_BYTES_PANELS][2];
            for (int v = 0; v < V; v++)
                for (int h = 0; h < 2; h++)
                    scales[v][h] = _mm512_loadu_pd(panels[v].scales + b * FL_BYTES_LANES + h * LANES);
#pragma GCC unroll 8
            for (int i = 0; i < R; i++)
                for (int v = 0; v < V; v++)
                    if (split)
                        join_split(dots[i][v], blocks[i][b].scale, scales[v], t->sigma,
                                   t->high[i] + v * FL_BYTES_LANES, t->low[i] + v * FL_BYTES_LANES);
                    else
                        join_whole(dots[i][v], blocks[i][b].scale, scales[v], t->high[i] + v * FL_BYTES_LANES);
        }
    }
}

static inline __attribute__((always_inline)) void add_wide(const struct fl_bytes_tile *t, const int R, const int V) {
    if (t->sigma != 0)
        add_tile(t, R, V, t->width / 4, true);
    else if (t->width == 32)
        add_tile(t, R, V, 8, false);
    else if (t->width == 16)
        add_tile(t, R, V, 4, false);
    else
        add_tile(t, R, V, t->width / 4, false);
}

static void add(const struct fl_bytes_tile *t) {
    if (t->rows > 4 && t->panels > 1)
        add_wide(t, 8, 2);
    else if (t->rows > 4)
        add_wide(t, 8, 1);
    else if (t->panels > 1)
        add_wide(t, 4, 2);
    else
        add_wide(t, 4, 1);
}

const struct fl_block_bytes fl_block_bytes_avx512 = {begin, pack, add};
