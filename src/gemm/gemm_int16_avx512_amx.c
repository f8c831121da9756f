/* gemm_int16_avx512_amx.c - exact sums of int16 products on matrix tiles, and how their operands are packed.
 *
 * x = 256 hi + lo, hi the upper byte, signed, lo the lower one, unsigned: packing puts bytes apart and computes
 * nothing. Four products of bytes make x y = 65536 hi hi' + 256 (hi lo' + lo hi') + lo lo', in three sums of 32 bits:
 * high, middle and low. |hi hi'| <= 2^14, |hi lo' + lo hi'| <= 65,280 and lo lo' <= 65,025, so that after 32,768
 * products high and middle + (low >> 8) fit an int32, and low, read as unsigned, its 32 bits: whatever the elements
 * are, nothing is to be proved. What rounds the sums wants them below 2^45, which 32,768 products of -32,768 by itself
 * would reach: 32,704 are taken. */
#include "gemm/gemm_amx_packing.h"
#include "gemm/gemm_int16.h"
#if defined(__AVX512BW__) && defined(__AVX512VBMI__)
#include <immintrin.h>
#define VECTORS
#endif

enum {
    ELEMENTS = 64,              /* of a line */
    QUAD = 4,                   /* of them in 4 bytes */
    PLANES = 2,                 /* upper bytes, lower bytes */
    PAIR = PLANES * AMX_TILE,   /* bytes of a packed tile */
    SUMS = AMX_ROWS * AMX_ROWS, /* of each kind */
    HIGH = 0,
    MIDDLE = SUMS,
    LOW = 2 * SUMS,
    K_MOST = 32704,            /* a whole number of lines */
    PANEL_STEPS = ELEMENTS / 2 /* k-pairs of a tile */
};

_Static_assert((int64_t)K_MOST << 30 < (int64_t)1 << 45, "sums are below 2^45");

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* The bytes of n elements, 0 <= n <= 64, zeros after them. */
static inline void split_line(const int16_t *from, int64_t n, uint8_t *high, uint8_t *low) {
#ifdef VECTORS
    static const uint8_t even[64] __attribute__((aligned(64))) = {
        0,  2,  4,  6,  8,  10, 12,  14,  16,  18,  20,  22,  24,  26,  28,  30,  32,  34,  36,  38, 40, 42,
        44, 46, 48, 50, 52, 54, 56,  58,  60,  62,  64,  66,  68,  70,  72,  74,  76,  78,  80,  82, 84, 86,
        88, 90, 92, 94, 96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126};
    const __m512i lows = _mm512_load_si512(even), highs = _mm512_or_si512(lows, _mm512_set1_epi8(1));
    __m512i a, b;
    if (n == ELEMENTS) {
        a = _mm512_loadu_si512(from);
        b = _mm512_loadu_si512(from + 32);
    } else {
        const uint64_t valid = ((uint64_t)1 << n) - 1;
        a = _mm512_maskz_loadu_epi16((__mmask32)valid, from);
        b = _mm512_maskz_loadu_epi16((__mmask32)(valid >> 32), from + 32);
    }
    _mm512_storeu_si512(high, _mm512_permutex2var_epi8(a, highs, b));
    _mm512_storeu_si512(low, _mm512_permutex2var_epi8(a, lows, b));
#else
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const uint16_t x = i < n ? (uint16_t)from[i] : 0;
        high[i] = (uint8_t)(x >> 8);
        low[i] = (uint8_t)x;
    }
#endif
}

/* One line of a tile of B from four rows of `count` columns, 1 <= count <= 16. */
static inline void quad_line(const int16_t *r0, const int16_t *r1, const int16_t *r2, const int16_t *r3, int64_t count,
                             uint8_t *high, uint8_t *low) {
#ifdef VECTORS
    /* byte 4 j + i of the line is of column j of row i; two rows in each of the vectors */
    static const uint8_t places[64] __attribute__((aligned(64))) = {
        0,  32,  64, 96,  2,  34,  66, 98,  4,  36,  68, 100, 6,  38,  70, 102, 8,  40,  72, 104, 10, 42,
        74, 106, 12, 44,  76, 108, 14, 46,  78, 110, 16, 48,  80, 112, 18, 50,  82, 114, 20, 52,  84, 116,
        22, 54,  86, 118, 24, 56,  88, 120, 26, 58,  90, 122, 28, 60,  92, 124, 30, 62,  94, 126};
    const __m512i lows = _mm512_load_si512(places), highs = _mm512_or_si512(lows, _mm512_set1_epi8(1));
    __m256i x0, x1, x2, x3;
    if (count >= AMX_ROWS) {
        x0 = _mm256_loadu_si256((const __m256i *)(const void *)r0);
        x1 = _mm256_loadu_si256((const __m256i *)(const void *)r1);
        x2 = _mm256_loadu_si256((const __m256i *)(const void *)r2);
        x3 = _mm256_loadu_si256((const __m256i *)(const void *)r3);
    } else {
        const __mmask16 valid = (__mmask16)((1u << count) - 1);
        x0 = _mm256_maskz_loadu_epi16(valid, r0);
        x1 = _mm256_maskz_loadu_epi16(valid, r1);
        x2 = _mm256_maskz_loadu_epi16(valid, r2);
        x3 = _mm256_maskz_loadu_epi16(valid, r3);
    }
    const __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(x0), x1, 1),
                  b = _mm512_inserti64x4(_mm512_castsi256_si512(x2), x3, 1);
    _mm512_store_si512(high, _mm512_permutex2var_epi8(a, highs, b));
    _mm512_store_si512(low, _mm512_permutex2var_epi8(a, lows, b));
#else
    const int16_t *const row[QUAD] = {r0, r1, r2, r3};
    for (int64_t j = 0; j < AMX_ROWS; j++)
        for (int i = 0; i < QUAD; i++) {
            const uint16_t x = j < count ? (uint16_t)row[i][j] : 0;
            high[4 * j + i] = (uint8_t)(x >> 8);
            low[4 * j + i] = (uint8_t)x;
        }
#endif
}

static void gemm_turn_pair(uint8_t *to, const uint8_t *from) {
    amx_turn(to, from);
    amx_turn(to + AMX_TILE, from + AMX_TILE);
}

static void gemm_lines(const void *from, int64_t stride, int64_t lines, int64_t k, bool columns, uint8_t *to) {
    uint8_t room[PAIR] __attribute__((aligned(64))), *at = columns ? room : to;
    const int16_t *line = from;
    for (int64_t i = 0; i < AMX_ROWS; i++)
        split_line(i < lines ? line + i * stride : amx_nothing(), i < lines ? k : 0, at + i * AMX_LINE,
                   at + AMX_TILE + i * AMX_LINE);
    if (columns)
        gemm_turn_pair(to, room);
}

static void gemm_ranks(const void *const *row, int64_t count, bool columns, uint8_t *to) {
    uint8_t room[PAIR] __attribute__((aligned(64))), *at = columns ? to : room;
    for (int64_t g = 0; g < AMX_ROWS; g++, row += QUAD)
        quad_line(row[0] ? row[0] : amx_nothing(), row[1] ? row[1] : amx_nothing(), row[2] ? row[2] : amx_nothing(),
                  row[3] ? row[3] : amx_nothing(), count, at + g * AMX_LINE, at + AMX_TILE + g * AMX_LINE);
    if (!columns)
        gemm_turn_pair(to, room);
}

/* Positions from ... to - 1 are pixels of the line. */
static void inner_positions(const struct gemm_matrix_pixels *line, int64_t *from, int64_t *to) {
    const int64_t end = line->width - line->first;
    *from = line->first < 0 ? (-line->first + line->step - 1) / line->step : 0;
    *to = !line->row || end <= 0 ? 0 : gemm_min((end + line->step - 1) / line->step, line->valid);
}

static void gemm_pixels(const struct gemm_matrix_pixels *line, uint8_t *to, int64_t plane) {
    int64_t inner, end;
    inner_positions(line, &inner, &end);
    const int64_t step = line->step * line->pixel;
    for (int64_t i = 0; i < line->positions; i += QUAD, to += AMX_LINE)
        if (i >= inner && i + QUAD <= end) {
            const int16_t *at = (const int16_t *)line->row + (line->first + i * line->step) * line->pixel;
            quad_line(at, at + step, at + 2 * step, at + 3 * step, line->channels, to, to + plane);
        } else {
            quad_line(amx_pixel(line, i), amx_pixel(line, i + 1), amx_pixel(line, i + 2), amx_pixel(line, i + 3),
                      line->channels, to, to + plane);
        }
}

static void gemm_turn(const uint8_t *from, int64_t plane, uint8_t *to) {
    amx_turn(to, from);
    amx_turn(to + AMX_TILE, from + plane);
}

static void gemm_split(const void *from, int64_t n, uint8_t *to, int64_t plane) {
    const int16_t *x = from;
    int64_t i = 0;
    for (; i + ELEMENTS <= n; i += ELEMENTS)
        split_line(x + i, ELEMENTS, to + i, to + plane + i);
    for (; i < n; i++) {
        to[i] = (uint8_t)((uint16_t)x[i] >> 8);
        to[plane + i] = (uint8_t)x[i];
    }
}

static void gemm_copy(const uint8_t *from, int64_t from_plane, int64_t step, int64_t count, int64_t bytes, uint8_t *to,
                      int64_t to_plane) {
    (void)bytes;
    for (int64_t i = 0; i < count; i++, from += step, to += AMX_LINE) {
        memcpy(to, from, AMX_LINE);
        memcpy(to + to_plane, from + from_plane, AMX_LINE);
    }
}

#ifdef VECTORS
/* Elements 64 q ... 64 q + 63 of a line of n, as bytes; zeros beyond its ends. */
static inline void line_bytes(const int16_t *row, int64_t n, int64_t q, __m512i *high, __m512i *low) {
    const int64_t first = q * ELEMENTS;
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), byte = _mm512_set1_epi16(255);
    __m512i a = _mm512_setzero_si512(), b = a;
    if (first >= 0 && first + ELEMENTS <= n) {
        a = _mm512_loadu_si512(row + first);
        b = _mm512_loadu_si512(row + first + 32);
    } else if (first >= 0 && first < n) {
        const uint64_t valid = ((uint64_t)1 << (n - first)) - 1;
        a = _mm512_maskz_loadu_epi16((__mmask32)valid, row + first);
        b = _mm512_maskz_loadu_epi16((__mmask32)(valid >> 32), row + first + 32);
    }
    *high = _mm512_permutexvar_epi64(order, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
    *low = _mm512_permutexvar_epi64(order, _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte)));
}

/* Window `at` pixels behind the first of a vector of bytes, if it is wanted; `words` of 64 bits a pixel in a plane. */
#define STORE_WINDOW(at, words)                                                                                        \
    do {                                                                                                               \
        if (x + (at) >= 0 && x + (at) < count) {                                                                       \
            uint8_t *line = to + (x + (at)) * AMX_LINE;                                                                \
            _mm512_store_si512(line, _mm512_alignr_epi64(next_high, high, (at) * (words)));                            \
            _mm512_store_si512(line + plane, _mm512_alignr_epi64(next_low, low, (at) * (words)));                      \
        }                                                                                                              \
    } while (0)

/* As windows, of `pixels`, a literal, in 64 bytes. In registers: what was just stored in pieces cannot be loaded at
 * once across them. */
static inline __attribute__((always_inline)) void copy_windows(const int16_t *row, int64_t first, int64_t n,
                                                               int64_t count, uint8_t *to, int64_t plane,
                                                               const int pixels) {
    int64_t q = first >= 0 ? first / pixels : -((pixels - 1 - first) / pixels);
    __m512i high, low, next_high, next_low;
    line_bytes(row, n, q, &high, &low);
    for (int64_t x = q * pixels - first; x < count; x += pixels) {
        line_bytes(row, n, ++q, &next_high, &next_low);
        STORE_WINDOW(0, 0);
        if (pixels == 2)
            STORE_WINDOW(1, 4);
        if (pixels == 4) {
            STORE_WINDOW(1, 2);
            STORE_WINDOW(2, 2);
            STORE_WINDOW(3, 2);
        }
        high = next_high;
        low = next_low;
    }
}

#undef STORE_WINDOW

static bool gemm_windows(const void *row, int64_t depth, int64_t first, int64_t width, int64_t count, uint8_t *to,
                         int64_t plane) {
    const int64_t n = width * depth;
    if (depth == 16)
        copy_windows(row, first, n, count, to, plane, 4);
    else if (depth == 32)
        copy_windows(row, first, n, count, to, plane, 2);
    else if (depth == 64)
        copy_windows(row, first, n, count, to, plane, 1);
    return depth == 16 || depth == 32 || depth == 64;
}
#else
static bool gemm_windows(const void *row, int64_t depth, int64_t first, int64_t width, int64_t count, uint8_t *to,
                         int64_t plane) {
    if (depth != 16 && depth != 32 && depth != 64)
        return false;
    const uint16_t *x = row;
    for (int64_t i = 0; i < count * ELEMENTS; i++) {
        const int64_t at = first * depth + i / ELEMENTS * depth + i % ELEMENTS;
        const uint16_t element = at >= 0 && at < width * depth ? x[at] : 0;
        to[i] = (uint8_t)(element >> 8);
        to[plane + i] = (uint8_t)element;
    }
    return true;
}
#endif

/* Packs `depth` rows, `stride` elements apart, as ranks. */
static inline void gemm_pack_ranks(const int16_t *from, int64_t stride, int64_t depth, int64_t count, bool columns,
                                   uint8_t *to) {
    uint8_t room[PAIR] __attribute__((aligned(64))), *at = columns ? to : room;
    for (int64_t k = 0; k < ELEMENTS; k += QUAD, from += QUAD * stride, at += AMX_LINE)
        if (k + QUAD <= depth)
            quad_line(from, from + stride, from + 2 * stride, from + 3 * stride, count, at, at + AMX_TILE);
        else
            quad_line(k < depth ? from : amx_nothing(), k + 1 < depth ? from + stride : amx_nothing(),
                      k + 2 < depth ? from + 2 * stride : amx_nothing(), amx_nothing(), count, at, at + AMX_TILE);
    if (!columns)
        gemm_turn_pair(to, room);
}

/* Panels of matmul: for each 64 of k the tile of upper bytes, then that of lower bytes. Panels whose rows are
 * neighbours in memory go side by side. */
static void gemm_panels(const struct gemm_operand *s, int64_t first, int64_t panels, int64_t first_step, int64_t steps,
                        gemm_packed *packed) {
    const int16_t *data = s->data;
    for (int64_t i = 0; i < steps; i += PANEL_STEPS) {
        const int64_t k = 2 * (first_step + i), depth = s->k > k ? gemm_min(ELEMENTS, s->k - k) : 0;
        for (int64_t p = 0; p < panels; p++) {
            const int64_t line = (first + p) * AMX_ROWS, lines = gemm_min(AMX_ROWS, s->lines - line);
            const int16_t *from = data + line * s->line_stride + (depth ? k * s->k_stride : 0);
            uint8_t *to = (uint8_t *)(packed + p * s->panel_size + i * AMX_ROWS);
            if (s->k_stride == 1)
                gemm_lines(from, s->line_stride, lines, depth, s->columns, to);
            else
                gemm_pack_ranks(from, s->k_stride, depth, lines, s->columns, to);
        }
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* Tiles 0, 1, 2: sums high, middle, low; 4, 5: planes of A; 6, 7: planes of B. A chain of products into one tile runs
 * at the full rate, so both products of the middle share a tile. */
#define MULTIPLY(LOAD_A, a, a_plane, LOAD_B, b, b_plane)                                                               \
    do {                                                                                                               \
        LOAD_A(4, a, AMX_LINE);                                                                                        \
        LOAD_B(6, b, AMX_LINE);                                                                                        \
        AMX_SS(0, 4, 6);                                                                                               \
        LOAD_B(7, (b) + (b_plane), AMX_LINE);                                                                          \
        AMX_SU(1, 4, 7);                                                                                               \
        LOAD_A(5, (a) + (a_plane), AMX_LINE);                                                                          \
        AMX_UU(2, 5, 7);                                                                                               \
        AMX_US(1, 5, 6);                                                                                               \
    } while (0)

static inline void zero_sums(void) {
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
}

static inline void begin_sums(bool add, const int32_t *sums) {
    if (!add) {
        zero_sums();
        return;
    }
    AMX_LOAD(0, sums + HIGH, AMX_LINE);
    AMX_LOAD(1, sums + MIDDLE, AMX_LINE);
    AMX_LOAD(2, sums + LOW, AMX_LINE);
}

static inline void store_sums(int32_t *sums) {
    AMX_STORE(0, sums + HIGH, AMX_LINE);
    AMX_STORE(1, sums + MIDDLE, AMX_LINE);
    AMX_STORE(2, sums + LOW, AMX_LINE);
}

/* The panel of A stays in the first-level cache, that of B comes from the second. */
static void gemm_panel_whole(const struct gemm_panel_pair *p) {
    const uint8_t *a = (const uint8_t *)p->a, *b = (const uint8_t *)p->b;
    const char *next = p->next.from;
    const int64_t ahead = p->next.step * (PANEL_STEPS / GEMM_PREFETCH_STEPS), middle = p->steps / 2;
    begin_sums(p->add, p->sum);
    for (int64_t i = 0, end = middle; i < p->steps; end = p->steps) {
        for (; i < end; i += PANEL_STEPS, a += PAIR, b += PAIR, next += ahead) {
            MULTIPLY(AMX_LOAD, a, AMX_TILE, AMX_LOAD_FAR, b, AMX_TILE);
            for (int64_t at = 0; at < ahead; at += AMX_LINE)
                __builtin_prefetch(next + at, 0, 2);
        }
        if (end == middle)
            gemm_do_meanwhile(&p->meanwhile);
    }
    store_sums(p->sum);
}

static void gemm_window_sums(const uint8_t *a, int64_t plane, const int64_t *offset, int64_t steps, const uint8_t *b,
                             bool far, const struct gemm_meanwhile *meanwhile, int32_t *sums) {
    struct gemm_rows rows = gemm_share_rows(meanwhile, steps);
    zero_sums();
    for (int64_t t = 0; t < steps; t++, b += PAIR) {
        if (far)
            MULTIPLY(AMX_LOAD, a + offset[t], plane, AMX_LOAD_FAR, b, AMX_TILE);
        else
            MULTIPLY(AMX_LOAD, a + offset[t], plane, AMX_LOAD, b, AMX_TILE);
        gemm_do_some_rows(meanwhile, t, &rows);
    }
    gemm_do_other_rows(meanwhile, &rows);
    store_sums(sums);
}

static void gemm_pixel_sums(const uint8_t *a, const uint8_t *b, int64_t plane, const int64_t *offset, int64_t steps,
                            bool add, int32_t *sums) {
    begin_sums(add, sums);
    for (int64_t t = 0; t < steps; t++, a += PAIR)
        MULTIPLY(AMX_LOAD, a, AMX_TILE, AMX_LOAD_FAR, b + offset[t], plane);
    store_sums(sums);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* A row of sums, as high16 2^16 + low16. */
#ifdef VECTORS
static inline void join_row(const int32_t *sum, __m512i *high16, __m512i *low16) {
    const __m512i byte = _mm512_set1_epi32(255), low = _mm512_loadu_si512(sum + LOW),
                  middle = _mm512_add_epi32(_mm512_loadu_si512(sum + MIDDLE), _mm512_srli_epi32(low, 8));
    *high16 = _mm512_add_epi32(_mm512_loadu_si512(sum + HIGH), _mm512_srai_epi32(middle, 8));
    *low16 = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(middle, byte), 8), _mm512_and_si512(low, byte));
}

static void gemm_finish_limbs(const int32_t *sum, int64_t columns, bool add, int32_t *low, int32_t *high) {
    const __m512i rest = _mm512_set1_epi32(-GEMM_REST - 1);
    const __mmask16 valid = (__mmask16)((1u << columns) - 1);
    __m512i high16, low16;
    join_row(sum, &high16, &low16);
    __m512i below = _mm512_and_si512(low16, rest);
    __m512i above = _mm512_add_epi32(_mm512_add_epi32(high16, high16), _mm512_srli_epi32(low16, GEMM_LIMB_BITS));
    if (add) {
        below = _mm512_add_epi32(below, _mm512_maskz_loadu_epi32(valid, low));
        above = _mm512_add_epi32(above, _mm512_maskz_loadu_epi32(valid, high));
        above = _mm512_add_epi32(above, _mm512_srli_epi32(below, GEMM_LIMB_BITS));
        below = _mm512_and_si512(below, rest);
    }
    _mm512_mask_storeu_epi32(low, valid, below);
    _mm512_mask_storeu_epi32(high, valid, above);
}

static void gemm_finish_wide(const int32_t *sum, int64_t columns, bool add, int64_t *wide) {
    __m512i high16, low16;
    join_row(sum, &high16, &low16);
    for (int half = 0; half < 2; half++) {
        const __m256i h = half ? _mm512_extracti64x4_epi64(high16, 1) : _mm512_castsi512_si256(high16),
                      l = half ? _mm512_extracti64x4_epi64(low16, 1) : _mm512_castsi512_si256(low16);
        const __mmask8 valid = (__mmask8)(((1u << columns) - 1) >> 8 * half);
        __m512i whole = _mm512_add_epi64(_mm512_slli_epi64(_mm512_cvtepi32_epi64(h), 16), _mm512_cvtepi32_epi64(l));
        if (add)
            whole = _mm512_add_epi64(whole, _mm512_maskz_loadu_epi64(valid, wide + 8 * half));
        _mm512_mask_storeu_epi64(wide + 8 * half, valid, whole);
    }
}
#else
static inline void join(const int32_t *sum, int32_t *high16, int32_t *low16) {
    const int32_t middle = sum[MIDDLE] + (int32_t)((uint32_t)sum[LOW] >> 8);
    *high16 = sum[HIGH] + (middle >> 8);
    *low16 = (middle & 255) << 8 | (sum[LOW] & 255);
}

static void gemm_finish_limbs(const int32_t *sum, int64_t columns, bool add, int32_t *low, int32_t *high) {
    for (int64_t j = 0; j < columns; j++) {
        int32_t high16, low16;
        join(sum + j, &high16, &low16);
        const int32_t below = (low16 & (-GEMM_REST - 1)) + (add ? low[j] : 0);
        high[j] = 2 * high16 + (low16 >> GEMM_LIMB_BITS) + (add ? high[j] : 0) + (below >> GEMM_LIMB_BITS);
        low[j] = below & (-GEMM_REST - 1);
    }
}

static void gemm_finish_wide(const int32_t *sum, int64_t columns, bool add, int64_t *wide) {
    for (int64_t j = 0; j < columns; j++) {
        int32_t high16, low16;
        join(sum + j, &high16, &low16);
        wide[j] = high16 * (int64_t)65536 + low16 + (add ? wide[j] : 0);
    }
}
#endif

static void gemm_finish_sums(const int32_t *sum, const int32_t *unused, int64_t stride, int64_t rows, int64_t columns,
                             int64_t splits, bool add, const struct gemm_sums *out) {
    (void)unused;
    (void)stride;
    (void)splits;
    for (int64_t i = 0; i < rows; i++, sum += AMX_ROWS) {
        const struct gemm_sums to = gemm_sums_at(out, i, 0);
        if (to.wide)
            gemm_finish_wide(sum, columns, add, to.wide);
        else
            gemm_finish_limbs(sum, columns, add, to.low, to.high);
    }
}

static void gemm_add(void *total, const void *sums, int64_t n) {
    int64_t *to = total;
    const int64_t *from = sums;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

#define WHOLE gemm_panel_whole
static const gemm_panel_kernel whole[AMX_ROWS + 1] = {NULL,  WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE,
                                                      WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE};

const struct gemm_kernels fl_gemm_int16_avx512_amx = {.lanes = AMX_ROWS,
                                                      .panel_rows = AMX_ROWS,
                                                      .panel_columns = AMX_ROWS,
                                                      .panel_steps = PANEL_STEPS,
                                                      .begin = amx_begin,
                                                      .end = amx_end,
                                                      .whole = whole,
                                                      .finish = gemm_finish_sums,
                                                      .add = gemm_add};

const struct gemm_packing fl_gemm_int16_packing_avx512_amx = {
    .element_bytes = sizeof(int16_t), .per_step = 2, .panels = gemm_panels};

const struct gemm_matrix_kernels fl_gemm_int16_matrix_avx512_amx = {.elements = ELEMENTS,
                                                                    .planes = PLANES,
                                                                    .quad = QUAD,
                                                                    .sum_words = 3 * SUMS,
                                                                    .k_most = K_MOST,
                                                                    .lines = gemm_lines,
                                                                    .ranks = gemm_ranks,
                                                                    .pixels = gemm_pixels,
                                                                    .turn = gemm_turn,
                                                                    .split = gemm_split,
                                                                    .copy = gemm_copy,
                                                                    .windows = gemm_windows,
                                                                    .window_sums = gemm_window_sums,
                                                                    .pixel_sums = gemm_pixel_sums,
                                                                    .finish = gemm_finish_sums};
