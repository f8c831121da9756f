/* gemm_int8_avx512.c - exact sums of products of factors of at most 8 bits, by VPDPBUSD (VNNI).
 *
 * A packed element is a k-quad, four bytes that are neighbours along k. The instruction multiplies unsigned bytes by
 * signed ones, so one operand of each product is packed with 128 added: images, and A of a matmul. Since (a + 128) b is
 * a b + 128 b, accumulators start at -128 times the sum of the other operand, which is the same for all rows (of
 * filters and B) or for all columns (of dy), besides the -2^15 of all accumulators (gemm_int16_vector.h). A product has
 * less than 2^15 in size, and a block of k at most 2^12 elements, so that an accumulator never overflows: there are no
 * bounds and no carry splits. */
#define GEMM_SPLITS 0
#include "gemm/gemm_int8.h"
#include "gemm/gemm_int_sums.h"

#define multiply_add_quads(sum, of_unsigned, of_signed)                                                                \
    (vector) _mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(of_unsigned), (__m512i)(of_signed))

/* Panels: A is unsigned. Tiles: the image is, which is read by rows; in a weight gradient it is B. */
#define PANEL_MULTIPLY multiply_add_quads
#define PANEL_ZERO vector_load(p->start + v * LANES)
#define TILE_MULTIPLY(by_rows, sum, a, b) ((by_rows) ? multiply_add_quads(sum, a, b) : multiply_add_quads(sum, b, a))
#define TILE_START(by_rows, i, v) ((by_rows) ? vector_load(t->start + (v)*LANES) : (vector){0} + t->start[i])
#include "gemm/gemm_panel_kernels.inc"
#include "gemm/gemm_tile_kernels.inc"

/* --- packing ------------------------------------------------------------------------------------------------------ */

typedef int16_t element;
typedef __m512i packed_vector;
enum { PER_STEP = 4, ZERO = 0x80 };

static inline __m512i to_unsigned(__m512i x) {
    return _mm512_xor_si512(x, _mm512_set1_epi8((char)ZERO));
}

/* The low bytes of 64 elements, in their order. */
static inline __m512i bytes_of(__m512i first, __m512i second) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packs_epi16(first, second));
}

/* Of the first n of 64 elements, zeros beyond. */
static inline __m512i load_bytes(const element *from, int64_t n) {
    if (n >= 64)
        return bytes_of(_mm512_loadu_si512(from), _mm512_loadu_si512(from + 32));
    const uint64_t valid = ((uint64_t)1 << n) - 1;
    return bytes_of(_mm512_maskz_loadu_epi16((__mmask32)valid, from),
                    _mm512_maskz_loadu_epi16((__mmask32)(valid >> 32), from + 32));
}

static inline packed_vector packed_along(const element *src, int64_t k) {
    return load_bytes(src, k);
}

/* Two rows of elements as pairs of bytes. */
static inline __m512i pairs_of(__m512i first, __m512i second) {
    return _mm512_ternarylogic_epi32(first, _mm512_slli_epi16(second, 8), _mm512_set1_epi16(255), 0xe4);
}

/* Four rows of up to 32 elements, of which `valid` count, as two vectors of quads. */
static inline __attribute__((always_inline)) void quads_of(const element *const *row, __mmask32 valid, __m512i *x) {
    static const uint16_t order[32]
        __attribute__((aligned(64))) = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i first = pairs_of(_mm512_maskz_loadu_epi16(valid, row[0]), _mm512_maskz_loadu_epi16(valid, row[1])),
                  second = pairs_of(_mm512_maskz_loadu_epi16(valid, row[2]), _mm512_maskz_loadu_epi16(valid, row[3]));
    const __m512i low = _mm512_load_si512(order), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    x[0] = _mm512_permutex2var_epi16(first, low, second);
    x[1] = _mm512_permutex2var_epi16(first, high, second);
}

static const element zeros[32];

/* The rows of a step, `next` elements apart, of which `there` exist; `at` elements in. */
static inline void rows_of(const element *src, int64_t next, int64_t there, const element **row) {
    for (int64_t i = 0; i < PER_STEP; i++)
        row[i] = i < there ? src + i * next : zeros;
}

static inline packed_vector packed_across(const element *src, int64_t next, int64_t count, int64_t there) {
    const element *row[PER_STEP];
    __m512i x[2];
    rows_of(src, next, there, row);
    quads_of(row, count >= LANES ? 0xffff : (1u << count) - 1, x);
    return x[0];
}

static inline void packed_across_two(const element *src, int64_t next, packed_vector *x) {
    const element *row[PER_STEP];
    rows_of(src, next, PER_STEP, row);
    quads_of(row, 0xffffffff, x);
}
#include "gemm/gemm_pack_panels.inc"

static void gemm_pack_operand(const struct gemm_operand *s, int64_t first, int64_t panels, int64_t first_step,
                              int64_t steps, gemm_packed *packed) {
    gemm_pack_panels(s, first, panels, first_step, steps, packed);
    for (int64_t p = 0; p < panels && !s->columns; p++) {
        gemm_packed *to = packed + p * s->panel_size;
        for (int64_t i = 0; i < steps * s->width; i++)
            to[i] ^= 0x01010101u * ZERO;
    }
}

/* Filters, and dy: signed. */
static void gemm_pack_block(gemm_packed *to, int64_t width, const void *from, int64_t k_stride, int64_t column_stride,
                            int64_t depth, int64_t columns) {
    for (int64_t k = 0; k < depth; k += PER_STEP, to += width) {
        const element *at = (const element *)from + k * k_stride;
        const int64_t there = smaller(depth - k, PER_STEP);
        if (columns < width)
            memset(to, 0, (size_t)width * sizeof *to);
        if (column_stride == 1) {
            for (int64_t j = 0; j < columns; j += LANES) {
                const int64_t some = smaller(columns - j, LANES);
                _mm512_mask_storeu_epi32(to + j, (__mmask16)((1u << some) - 1),
                                         packed_across(at + j, k_stride, some, there));
            }
            continue;
        }
        for (int64_t j = 0; j < columns; j++) {
            element quad[8] = {0};
            memcpy(quad, at + j * column_stride, (size_t)there * sizeof *quad);
            const __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)quad);
            to[j] = (gemm_packed)_mm_cvtsi128_si32(_mm_packs_epi16(x, x));
        }
    }
}

/* n neighbouring elements to unsigned bytes, and zeros up to a whole quad. */
static inline void pack_run(gemm_packed *to, const element *from, int64_t n) {
    for (; n >= 64; n -= 64, from += 64, to += LANES)
        _mm512_storeu_si512(to, to_unsigned(load_bytes(from, 64)));
    if (n > 0)
        _mm512_mask_storeu_epi32(to, (__mmask16)((1u << (n + 3) / 4) - 1), to_unsigned(load_bytes(from, n)));
}

static void gemm_pack_pixels(gemm_packed *to, int64_t pixel, const void *from, int64_t from_pixel, int64_t count,
                             int64_t depth) {
    if (4 * pixel == depth && depth == from_pixel)
        pack_run(to, from, count * depth);
    else
        for (int64_t x = 0; x < count; x++)
            pack_run(to + x * pixel, (const element *)from + x * from_pixel, depth);
}

/* `count` unsigned quads of elements `next` apart. */
static void pack_partners(gemm_packed *to, const element *src, int64_t next, int64_t count) {
    const element *row[PER_STEP];
    for (; count > 0; count -= 2 * LANES, src += 2 * LANES, to += 2 * LANES) {
        const uint32_t valid = count >= 2 * LANES ? 0xffffffff : (1u << count) - 1;
        __m512i x[2];
        rows_of(src, next, PER_STEP, row);
        quads_of(row, valid, x);
        _mm512_mask_storeu_epi32(to, (__mmask16)valid, to_unsigned(x[0]));
        _mm512_mask_storeu_epi32(to + LANES, (__mmask16)(valid >> LANES), to_unsigned(x[1]));
    }
}

/* The channels of a pixel with those of its partners, some of which are padding. */
static void pack_edge(const struct gemm_image_line *line, int64_t x, gemm_packed *to) {
    const element *pixel[PER_STEP], *row[PER_STEP];
    for (int i = 0; i < PER_STEP; i++) {
        const int64_t at = x + i * line->partner;
        pixel[i] = at >= 0 && at < line->row_pixels ? (const element *)line->row + at * line->pixel : NULL;
    }
    for (int64_t j = 0; j < line->channels; j += LANES) {
        const uint32_t valid = (1u << smaller(line->channels - j, LANES)) - 1;
        __m512i quads[2];
        for (int i = 0; i < PER_STEP; i++)
            row[i] = pixel[i] ? pixel[i] + j : zeros;
        quads_of(row, valid, quads);
        _mm512_mask_storeu_epi32(to + j, (__mmask16)valid, to_unsigned(quads[0]));
    }
}

static float gemm_pack_image_line(const struct gemm_image_line *line, const void *zero, gemm_packed *to) {
    (void)zero;
    const int64_t channels = line->channels, step = line->position_step, positions = (line->count + step - 1) / step;
    if (!line->row) {
        memset(to, ZERO, (size_t)(positions * channels) * sizeof *to);
        return 0;
    }
    const int64_t last = line->row_pixels - (PER_STEP - 1) * line->partner; /* pixels before it have all partners */
    const bool together = step == 1 && channels == line->pixel;
    for (int64_t i = 0, some; i < positions; i += some) {
        const int64_t x = line->x + i * step;
        some = 1;
        if (x < 0 || x >= last) {
            pack_edge(line, x, to + i * channels);
        } else {
            some = together ? smaller(positions - i, last - x) : 1;
            pack_partners(to + i * channels, (const element *)line->row + x * line->pixel, line->partner * line->pixel,
                          some * channels);
        }
    }
    return 0;
}

/* --- starts ------------------------------------------------------------------------------------------------------- */

enum { CHAINS = 4 }; /* of additions that do not wait for each other */

static void gemm_starts(const gemm_packed *from, const struct gemm_segment *segments, int64_t count, bool of_a,
                        int64_t step, int64_t width, int32_t *start) {
    const __m512i ones = _mm512_set1_epi8(1);
    for (int64_t j = 0; j < width; j += LANES) {
        __m512i sum[CHAINS];
        for (int i = 0; i < CHAINS; i++)
            sum[i] = _mm512_setzero_si512();
        for (int64_t s = 0; s < count; s++) {
            const gemm_packed *at = from + (of_a ? segments[s].a : segments[s].b) + j;
            int64_t k = segments[s].steps;
            for (; k >= CHAINS; k -= CHAINS, at += CHAINS * step)
                GEMM_UNROLL for (int i = 0; i < CHAINS; i++) sum[i] =
                    _mm512_dpbusd_epi32(sum[i], ones, _mm512_loadu_si512(at + i * step));
            for (; k > 0; k--, at += step)
                sum[0] = _mm512_dpbusd_epi32(sum[0], ones, _mm512_loadu_si512(at));
        }
        const __m512i all = _mm512_add_epi32(_mm512_add_epi32(sum[0], sum[1]), _mm512_add_epi32(sum[2], sum[3]));
        _mm512_storeu_si512(start + j, _mm512_sub_epi32(_mm512_set1_epi32(GEMM_REST), _mm512_slli_epi32(all, 7)));
    }
}

const struct gemm_kernels fl_gemm_int8_avx512 = {
    .lanes = LANES,
    .vectors = TILE_VECTORS,
    .rows_unit = TILE_UNIT,
    .rows = TILE_ROWS,
    .tile = gemm_compute_tile,
    .panel_rows = PANEL_ROWS,
    .panel_columns = PANEL_COLUMNS,
    .whole = panel_whole,
    .starts = gemm_starts,
    .finish = gemm_finish_sums,
    .add = gemm_add,
};

const struct gemm_packing fl_gemm_int8_packing_avx512 = {
    .element_bytes = sizeof(element),
    .per_step = PER_STEP,
    .zero_byte = ZERO,
    .panels = gemm_pack_operand,
    .block = gemm_pack_block,
    .pixels = gemm_pack_pixels,
    .image_line = gemm_pack_image_line,
};
