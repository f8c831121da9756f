/* gemm_bf16_avx512_amx_fast.c - products of bf16 on matrix tiles, class fast, and how their operands are packed.
 *
 * Elements stay bf16. The instruction takes subnormal elements and sums as zeros and adds the products of 32 of k to a
 * sum in an order of its own (docs/semantics.md). A chain of instructions runs over k in order; a weight gradient has
 * one for each slice of its pixels. Neither depends on threads. */
#include "gemm/gemm_amx_packing.h"
#include "gemm/gemm_float.h"
#if defined(__AVX512BW__)
#include <immintrin.h>
#define VECTORS
#endif

enum {
    ELEMENTS = 32, /* of a line */
    PAIR = 2,      /* of them in 4 bytes */
    PANEL_TILES = 2,
    PANEL_LINES = PANEL_TILES * AMX_ROWS,
    PANEL_STEPS = ELEMENTS / PAIR, /* k-pairs of a tile */
    PANEL_BYTES = PANEL_TILES * AMX_TILE
};

typedef uint16_t element;

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* n elements, at most 32, and zeros after them. */
static inline void copy_line(const element *from, int64_t n, uint8_t *to) {
#ifdef VECTORS
    const __mmask32 valid = n >= ELEMENTS ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
    _mm512_store_si512(to, _mm512_maskz_loadu_epi16(valid, from));
#else
    memset(to, 0, AMX_LINE);
    memcpy(to, from, (size_t)gemm_min(n, ELEMENTS) * sizeof *from);
#endif
}

/* One line of a tile of B from two rows of `count` columns, 1 <= count <= 16. */
static inline void pair_line(const element *r0, const element *r1, int64_t count, uint8_t *to) {
#ifdef VECTORS
    const __mmask16 valid = (__mmask16)(count >= AMX_ROWS ? 0xffff : (1u << count) - 1);
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(valid, r0)),
                  y = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(valid, r1));
    _mm512_store_si512(to, _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
#else
    for (int64_t j = 0; j < AMX_ROWS; j++) {
        memcpy(to + 4 * j, j < count ? r0 + j : amx_nothing(), sizeof *r0);
        memcpy(to + 4 * j + 2, j < count ? r1 + j : amx_nothing(), sizeof *r1);
    }
#endif
}

static void gemm_lines(const void *from, int64_t stride, int64_t lines, int64_t k, bool columns, uint8_t *to) {
    uint8_t room[AMX_TILE] __attribute__((aligned(64))), *at = columns ? room : to;
    for (int64_t i = 0; i < AMX_ROWS; i++)
        copy_line(i < lines ? (const element *)from + i * stride : amx_nothing(), i < lines ? k : 0, at + i * AMX_LINE);
    if (columns)
        amx_turn(to, room);
}

static void gemm_ranks(const void *const *row, int64_t count, bool columns, uint8_t *to) {
    uint8_t room[AMX_TILE] __attribute__((aligned(64))), *at = columns ? to : room;
    for (int64_t g = 0; g < AMX_ROWS; g++, row += PAIR)
        pair_line(row[0] ? row[0] : amx_nothing(), row[1] ? row[1] : amx_nothing(), count, at + g * AMX_LINE);
    if (!columns)
        amx_turn(to, room);
}

static void gemm_pixels(const struct gemm_matrix_pixels *line, uint8_t *to, int64_t plane) {
    (void)plane;
    for (int64_t i = 0; i < line->positions; i += PAIR, to += AMX_LINE)
        pair_line(amx_pixel(line, i), amx_pixel(line, i + 1), line->channels, to);
}

static void gemm_turn(const uint8_t *from, int64_t plane, uint8_t *to) {
    (void)plane;
    amx_turn(to, from);
}

static void gemm_split(const void *from, int64_t n, uint8_t *to, int64_t plane) {
    (void)plane;
    memcpy(to, from, (size_t)n * sizeof(element));
}

static void gemm_copy(const uint8_t *from, int64_t from_plane, int64_t step, int64_t count, int64_t bytes, uint8_t *to,
                      int64_t to_plane) {
    (void)from_plane;
    (void)to_plane;
    for (int64_t i = 0; i < count; i++, from += step, to += AMX_LINE)
        copy_line((const element *)(const void *)from, bytes / (int64_t)sizeof(element), to);
}

/* Panels of matmul, 32 lines: for each 32 of k the tile of the first 16, then that of the others. */
static void gemm_panels(const struct gemm_operand *s, int64_t first, int64_t panels, int64_t first_step, int64_t steps,
                        gemm_packed *packed) {
    const element *data = s->data;
    for (int64_t i = 0; i < steps; i += PANEL_STEPS) {
        const int64_t k = PAIR * (first_step + i), depth = s->k > k ? gemm_min(ELEMENTS, s->k - k) : 0;
        for (int64_t tile = 0; tile < panels * PANEL_TILES; tile++) {
            const int64_t line = first * PANEL_LINES + tile * AMX_ROWS,
                          lines = s->lines > line ? gemm_min(AMX_ROWS, s->lines - line) : 0;
            uint8_t *to = (uint8_t *)(packed + tile / PANEL_TILES * s->panel_size + i * PANEL_LINES) +
                          tile % PANEL_TILES * AMX_TILE;
            const element *from = data + (lines && depth ? line * s->line_stride + k * s->k_stride : 0);
            if (s->k_stride == 1) {
                gemm_lines(from, s->line_stride, lines, depth, s->columns, to);
                continue;
            }
            const void *row[ELEMENTS];
            for (int64_t j = 0; j < ELEMENTS; j++)
                row[j] = j < depth && lines ? from + j * s->k_stride : NULL;
            gemm_ranks(row, lines ? lines : 1, s->columns, to);
        }
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* Computes a panel's 32 x 32 sums, whose rows lie `stride` apart. */
static void gemm_panel_whole(const struct gemm_panel_pair *p) {
    const uint8_t *a = (const uint8_t *)p->a, *b = (const uint8_t *)p->b;
    const char *next = p->next.from;
    const int64_t ahead = p->next.step * (PANEL_STEPS / GEMM_PREFETCH_STEPS),
                  stride = p->stride * (int64_t)sizeof *p->sum;
    int32_t *top = p->sum, *bottom = p->sum + AMX_ROWS * p->stride;
    if (p->add) {
        AMX_LOAD(0, top, stride);
        AMX_LOAD(1, top + AMX_ROWS, stride);
        AMX_LOAD(2, bottom, stride);
        AMX_LOAD(3, bottom + AMX_ROWS, stride);
    } else {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (int64_t i = 0; i < p->steps; i += PANEL_STEPS, a += PANEL_BYTES, b += PANEL_BYTES, next += ahead) {
        AMX_LOAD(4, a, AMX_LINE);
        AMX_LOAD_FAR(6, b, AMX_LINE);
        AMX_BF16(0, 4, 6);
        AMX_LOAD_FAR(7, b + AMX_TILE, AMX_LINE);
        AMX_BF16(1, 4, 7);
        AMX_LOAD(5, a + AMX_TILE, AMX_LINE);
        AMX_BF16(2, 5, 6);
        AMX_BF16(3, 5, 7);
        for (int64_t at = 0; at < ahead; at += AMX_LINE)
            __builtin_prefetch(next + at, 0, 2);
    }
    AMX_STORE(0, top, stride);
    AMX_STORE(1, top + AMX_ROWS, stride);
    AMX_STORE(2, bottom, stride);
    AMX_STORE(3, bottom + AMX_ROWS, stride);
}

static void gemm_window_sums(const uint8_t *a, int64_t plane, const int64_t *offset, int64_t steps, const uint8_t *b,
                             bool far, const struct gemm_meanwhile *meanwhile, int32_t *sums) {
    (void)plane;
    AMX_ZERO(0);
    for (int64_t t = 0; t < steps; t++, b += AMX_TILE) {
        AMX_LOAD(4, a + offset[t], AMX_LINE);
        if (far)
            AMX_LOAD_FAR(6, b, AMX_LINE);
        else
            AMX_LOAD(6, b, AMX_LINE);
        AMX_BF16(0, 4, 6);
    }
    gemm_do_meanwhile(meanwhile);
    AMX_STORE(0, sums, AMX_LINE);
}

static void gemm_pixel_sums(const uint8_t *a, const uint8_t *b, int64_t plane, const int64_t *offset, int64_t steps,
                            bool add, int32_t *sums) {
    (void)plane;
    if (add)
        AMX_LOAD(0, sums, AMX_LINE);
    else
        AMX_ZERO(0);
    for (int64_t t = 0; t < steps; t++, a += AMX_TILE) {
        AMX_LOAD(4, a, AMX_LINE);
        AMX_LOAD_FAR(6, b + offset[t], AMX_LINE);
        AMX_BF16(0, 4, 6);
    }
    AMX_STORE(0, sums, AMX_LINE);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

static inline float as_float(int32_t word) {
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

static void gemm_finish_sums(const int32_t *sum, const int32_t *unused, int64_t stride, int64_t rows, int64_t columns,
                             int64_t owed, bool add, const struct gemm_sums *out) {
    (void)unused;
    (void)owed;
    for (int64_t i = 0; i < rows; i++, sum += stride) {
        int32_t *to = out->low + i * out->stride;
        for (int64_t j = 0; j < columns; j++) {
            const float x = add ? as_float(to[j]) + as_float(sum[j]) : as_float(sum[j]);
            memcpy(to + j, &x, sizeof x);
        }
    }
}

static void gemm_add(void *total, const void *sums, int64_t n) {
    float *to = total;
    const float *from = sums;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

#define WHOLE gemm_panel_whole
#define WHOLE_8 WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE
static const gemm_panel_kernel whole[PANEL_LINES + 1] = {NULL, WHOLE_8, WHOLE_8, WHOLE_8, WHOLE_8};

const struct gemm_kernels fl_gemm_bf16_avx512_amx_fast = {.lanes = AMX_ROWS,
                                                          .panel_rows = PANEL_LINES,
                                                          .panel_columns = PANEL_LINES,
                                                          .panel_steps = PANEL_STEPS,
                                                          .begin = amx_begin,
                                                          .end = amx_end,
                                                          .whole = whole,
                                                          .finish = gemm_finish_sums,
                                                          .add = gemm_add};

const struct gemm_packing fl_gemm_bf16_packing_avx512_amx_fast = {
    .element_bytes = sizeof(uint16_t), .per_step = PAIR, .panels = gemm_panels};

const struct gemm_matrix_kernels fl_gemm_bf16_matrix_avx512_amx_fast = {.elements = ELEMENTS,
                                                                        .planes = 1,
                                                                        .quad = PAIR,
                                                                        .sum_words = AMX_ROWS * AMX_ROWS,
                                                                        .lines = gemm_lines,
                                                                        .ranks = gemm_ranks,
                                                                        .pixels = gemm_pixels,
                                                                        .turn = gemm_turn,
                                                                        .split = gemm_split,
                                                                        .copy = gemm_copy,
                                                                        .window_sums = gemm_window_sums,
                                                                        .pixel_sums = gemm_pixel_sums,
                                                                        .finish = gemm_finish_sums};
