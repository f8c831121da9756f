/* block_bytes_avx512.c - dot products of bytes by VNNI. */
#include "blocks/block_bytes.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { OFFSET = 128, LANES = 8 };

static inline int32_t shift_of(const struct fl_block_rows *from, int64_t at) {
    const int exponent = from->exponents[at];
    return exponent == FL_BLOCK_ZERO || exponent == FL_BLOCK_NAN ? 0 : exponent - from->least_exponent;
}

/* --- rows of A ------------------------------------------------------------------------------------------------------
 */

/* Sums of the elements of n blocks of any width. */
static void sum_any(const int8_t *x, int64_t n, int width, struct fl_bytes_block *to) {
    for (int64_t b = 0; b < n; b++) {
        __m512i sums = _mm512_setzero_si512();
        for (int i = 0; i < width; i += 64) {
            const __mmask64 mask = width - i >= 64 ? ~0ull : (1ull << (width - i)) - 1;
            sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_maskz_loadu_epi8(mask, x + b * width + i));
        }
        to[b].start = -OFFSET * _mm512_reduce_add_epi32(sums);
    }
}

/* Those of blocks of 16 or 32, some in a vector. */
static inline __attribute__((always_inline)) void sum_some(const int8_t *x, int64_t n, const int width,
                                                           struct fl_bytes_block *to) {
    const int per = 64 / width, step = width / 16;
    int64_t b = 0;
    for (; b + per <= n; b += per) {
        __m512i sums =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(x + b * width));
        sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, 0x4e));
        sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, 0xb1));
        if (width == 32)
            sums = _mm512_add_epi32(sums, _mm512_shuffle_i64x2(sums, sums, 0xb1));
        sums = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sums, 7));
        _Alignas(64) int32_t each[16];
        _mm512_store_si512(each, sums);
        for (int i = 0; i < per; i++)
            to[b + i].start = each[4 * step * i];
    }
    sum_any(x + b * width, n - b, width, to + b);
}

static void begin(const struct fl_block_rows *from, int64_t first, int64_t n, struct fl_bytes_block *blocks) {
    const int64_t at = first * from->blocks, count = n * from->blocks;
    const int8_t *x = from->bytes + at * from->width;
    if (from->width == 16)
        sum_some(x, count, 16, blocks + at);
    else if (from->width == 32)
        sum_some(x, count, 32, blocks + at);
    else
        sum_any(x, count, from->width, blocks + at);
    for (int64_t b = at; b < at + count; b++) {
        blocks[b].scale = fl_block_scale(from, b);
        blocks[b].shift = shift_of(from, b);
    }
}

/* --- panels of B ----------------------------------------------------------------------------------------------------
 */

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

static void pack(const struct fl_block_rows *from, const int64_t *rows, int count, uint8_t *elements, double *scales,
                 int32_t *shifts) {
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
        for (int j = 0; j < FL_BYTES_LANES; j++) {
            const bool given = j < count && rows[j] >= 0;
            scales[b * FL_BYTES_LANES + j] = given ? fl_block_scale(from, rows[j] * from->blocks + b) : 0;
            shifts[b * FL_BYTES_LANES + j] = given ? shift_of(from, rows[j] * from->blocks + b) : 0;
        }
}

/* --- sums -----------------------------------------------------------------------------------------------------------
 */

/* R rows by V panels, whose sums remain in registers; R V is 8. */
static inline __attribute__((always_inline)) void add_whole(const struct fl_bytes_tile *t, int row, int panel,
                                                            const int R, const int V, const int quads,
                                                            const bool integers) {
    const int64_t width = quads * 4, length = t->row_blocks * width;
    __m512i total[8][2];
    __m512d sum[8][2][2];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
            const double *high = &t->high[row + i][(panel + v) * FL_BYTES_LANES];
            total[i][v] = _mm512_setzero_si512();
            sum[i][v][0] = _mm512_loadu_pd(high);
            sum[i][v][1] = _mm512_loadu_pd(high + LANES);
        }
    for (int64_t piece = 0; piece < t->pieces; piece++) {
        const int64_t *places = &t->places[piece][row];
        const struct fl_bytes_panel *panels = &t->panel[piece][panel];
        const int8_t *rows[8];
        const struct fl_bytes_block *starts[8];
#pragma GCC unroll 8
        for (int i = 0; i < R; i++) {
            rows[i] = t->elements + places[i] * length + t->first * width;
            starts[i] = t->starts + places[i] * t->row_blocks + t->first;
        }
        for (int64_t b = 0; b < t->blocks; b++) {
            __m512i dots[8][2];
            const uint8_t *elements[2];
#pragma GCC unroll 8
            for (int i = 0; i < R; i++)
#pragma GCC unroll 2
                for (int v = 0; v < V; v++)
                    dots[i][v] = _mm512_set1_epi32(starts[i][b].start);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++)
                elements[v] = panels[v].elements + (t->first + b) * width * FL_BYTES_LANES;
#pragma GCC unroll 4
            for (int q = 0; q < quads; q++) {
                __m512i column[2];
#pragma GCC unroll 2
                for (int v = 0; v < V; v++)
                    column[v] = _mm512_loadu_si512(elements[v] + q * 64);
#pragma GCC unroll 8
                for (int i = 0; i < R; i++) {
                    int32_t quad;
                    memcpy(&quad, rows[i] + b * width + q * 4, sizeof quad);
                    const __m512i spread = _mm512_set1_epi32(quad);
#pragma GCC unroll 2
                    for (int v = 0; v < V; v++)
                        dots[i][v] = _mm512_dpbusd_epi32(dots[i][v], column[v], spread);
                }
            }
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) {
                if (integers) {
                    const __m512i shift = _mm512_loadu_si512(panels[v].shifts + (t->first + b) * FL_BYTES_LANES);
#pragma GCC unroll 8
                    for (int i = 0; i < R; i++)
                        total[i][v] = _mm512_add_epi32(
                            total[i][v],
                            _mm512_sllv_epi32(dots[i][v],
                                              _mm512_add_epi32(shift, _mm512_set1_epi32(starts[i][b].shift))));
                    continue;
                }
                const double *scales = panels[v].scales + (t->first + b) * FL_BYTES_LANES;
                const __m512d low = _mm512_loadu_pd(scales), high = _mm512_loadu_pd(scales + LANES);
#pragma GCC unroll 8
                for (int i = 0; i < R; i++) {
                    const __m512d a = _mm512_set1_pd(starts[i][b].scale);
                    sum[i][v][0] = _mm512_fmadd_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(dots[i][v])),
                                                   _mm512_mul_pd(a, low), sum[i][v][0]);
                    sum[i][v][1] = _mm512_fmadd_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(dots[i][v], 1)),
                                                   _mm512_mul_pd(a, high), sum[i][v][1]);
                }
            }
        }
    }
    const __m512d unit = _mm512_set1_pd(t->unit);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
            double *high = &t->high[row + i][(panel + v) * FL_BYTES_LANES];
            if (integers) {
                sum[i][v][0] = _mm512_fmadd_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(total[i][v])), unit,
                                               _mm512_loadu_pd(high));
                sum[i][v][1] = _mm512_fmadd_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(total[i][v], 1)), unit,
                                               _mm512_loadu_pd(high + LANES));
            }
            _mm512_storeu_pd(high, sum[i][v][0]);
            _mm512_storeu_pd(high + LANES, sum[i][v][1]);
        }
}

/* Half of a panel's dot products with one row, on two grids. */
static inline void split(__m256i dots, __m512d scale, double sigma, double *high, double *low) {
    const __m512d term = _mm512_mul_pd(_mm512_cvtepi32_pd(dots), scale), grid = _mm512_set1_pd(sigma),
                  coarse = _mm512_sub_pd(_mm512_add_pd(term, grid), grid);
    _mm512_storeu_pd(high, _mm512_add_pd(_mm512_loadu_pd(high), coarse));
    _mm512_storeu_pd(low, _mm512_add_pd(_mm512_loadu_pd(low), _mm512_sub_pd(term, coarse)));
}

/* Eight rows by one panel on two grids. */
static void add_split(const struct fl_bytes_tile *t, int row, int panel) {
    const int64_t width = t->width, length = t->row_blocks * width;
    for (int64_t piece = 0; piece < t->pieces; piece++)
        for (int64_t b = t->first; b < t->first + t->blocks; b++) {
            const struct fl_bytes_panel *from = &t->panel[piece][panel];
            const double *scales = from->scales + b * FL_BYTES_LANES;
            __m512i dots[8];
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                dots[i] = _mm512_set1_epi32(t->starts[t->places[piece][row + i] * t->row_blocks + b].start);
            for (int64_t q = 0; q < width; q += 4) {
                const __m512i column = _mm512_loadu_si512(from->elements + (b * width + q) * FL_BYTES_LANES);
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++) {
                    int32_t quad;
                    memcpy(&quad, t->elements + t->places[piece][row + i] * length + b * width + q, sizeof quad);
                    dots[i] = _mm512_dpbusd_epi32(dots[i], column, _mm512_set1_epi32(quad));
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                const __m512d a = _mm512_set1_pd(t->starts[t->places[piece][row + i] * t->row_blocks + b].scale);
                double *high = &t->high[row + i][panel * FL_BYTES_LANES],
                       *low = &t->low[row + i][panel * FL_BYTES_LANES];
                split(_mm512_castsi512_si256(dots[i]), _mm512_mul_pd(a, _mm512_loadu_pd(scales)), t->sigma, high, low);
                split(_mm512_extracti64x4_epi64(dots[i], 1), _mm512_mul_pd(a, _mm512_loadu_pd(scales + LANES)),
                      t->sigma, high + LANES, low + LANES);
            }
        }
}

static inline __attribute__((always_inline)) void add_wide(const struct fl_bytes_tile *t, const int quads,
                                                           const bool integers) {
    int panel = 0;
    for (; panel + 2 <= t->panels; panel += 2)
        for (int row = 0; row < t->rows; row += 4)
            add_whole(t, row, panel, 4, 2, quads, integers);
    if (panel < t->panels)
        for (int row = 0; row < t->rows; row += 8)
            add_whole(t, row, panel, 8, 1, quads, integers);
}

#define ADD(name, quads)                                                                                               \
    static void add_##name(const struct fl_bytes_tile *t) {                                                            \
        add_wide(t, quads, false);                                                                                     \
    }                                                                                                                  \
    static void add_##name##_integers(const struct fl_bytes_tile *t) {                                                 \
        add_wide(t, quads, true);                                                                                      \
    }
ADD(16, 4)
ADD(32, 8)
ADD(any, t->width / 4)

static void add(const struct fl_bytes_tile *t) {
    if (t->sigma != 0)
        for (int panel = 0; panel < t->panels; panel++)
            for (int row = 0; row < t->rows; row += 8)
                add_split(t, row, panel);
    else if (t->unit != 0)
        (t->width == 16 ? add_16_integers : t->width == 32 ? add_32_integers : add_any_integers)(t);
    else
        (t->width == 16 ? add_16 : t->width == 32 ? add_32 : add_any)(t);
}

const struct fl_block_bytes fl_block_bytes_avx512 = {begin, pack, add};
