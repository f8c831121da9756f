/* flex_avx512_amx.c - the kernels of the shared-exponent formats on matrix tiles (AMX): matmul and convolution, and the
 * rounding of the sums of a tile. */
#include "flex/flex_rows.h"
#include "flex/flex_stats.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_epilogue.h"
#include "gemm/gemm_int16.h"
#include "gemm/gemm_int8.h"
#include "gemm/gemm_mixed.h"
#include <string.h>
#if defined(__AVX512BW__)
#include <immintrin.h>
#define BASE(name) name##_avx512bw
#else /* for tests of emulated tiles */
#define BASE(name) name##_portable
#endif

enum { SUMS = GEMM_MATRIX * GEMM_MATRIX, MIDDLE = SUMS, LOW = 2 * SUMS };

/* --- rounding ----------------------------------------------------------------------------------------------------- */

/* How sums high16 2^16 + low16 are divided by 2^shift. Up to a shift of 15 all of low16 counts, and high16 is clamped
 * to a value far beyond the range of results, so that both fit 32 bits. Above 15 only the upper bit of low16 counts
 * (for a shift of 16) and whether the rest is zero; these are joined to high16 as one or two more bits. */
struct rounding {
    int by;      /* shift of the joined number */
    int joined;  /* bits that are joined to high16: 16, 2 or 1 */
    int32_t top; /* high16 is clamped to -top - 1 ... top */
};

static struct rounding rounding_of(int shift) {
    if (shift <= 15)
        return (struct rounding){shift, 16, (1 << (shift - 1)) + 1};
    return shift == 16 ? (struct rounding){2, 2, 0} : (struct rounding){shift - 15, 1, 0};
}

static int shift_of(const struct fl_args *args) {
    return fl_exponent(&args->in[0]) + fl_exponent(&args->in[1]) - fl_exponent(&args->out);
}

static bool flex_takes_matrix_avx512_amx(const struct fl_args *args) {
    const int shift = shift_of(args);
    return args->out.data && args->rounding.mode != TENSOR_ROUND_STOCHASTIC && shift >= 1 && shift <= 44 &&
           !args->p.product.epilogue.bias.data && !args->p.product.epilogue.residual.data;
}

/* The statistics of a tile. */
struct stored {
    int32_t gamma; /* largest |result| before saturation; any number above FLEX_TOP if some exceed it */
    int64_t flushed;
};

#if defined(__AVX512BW__)
/* The registers of rounding a tile. */
struct rounders {
    __m512i top, bottom, below_half, unit, by;
};

static inline struct rounders rounders_of(const struct rounding how) {
    return (struct rounders){_mm512_set1_epi32(how.top), _mm512_set1_epi32(-how.top - 1),
                             _mm512_set1_epi32((int)((1u << (how.by - 1)) - 1)), _mm512_set1_epi32((int)(1u << how.by)),
                             _mm512_set1_epi32(how.by)};
}

/* Joins a row of sums with the bits of low16 that count; `joined` is a literal. */
static inline __attribute__((always_inline)) __m512i join_sums(const int32_t *sums, const struct rounders *to,
                                                               const int joined) {
    const __m512i byte = _mm512_set1_epi32(255), one = _mm512_set1_epi32(1);
    const __m512i low = _mm512_load_si512(sums + LOW);
    const __m512i middle = _mm512_add_epi32(_mm512_load_si512(sums + MIDDLE), _mm512_srli_epi32(low, 8));
    const __m512i high = _mm512_add_epi32(_mm512_load_si512(sums), _mm512_srai_epi32(middle, 8));
    if (joined == 1) {
        const __mmask16 rest = _mm512_test_epi32_mask(_mm512_or_si512(middle, low), byte);
        const __m512i x = _mm512_add_epi32(high, high);
        return _mm512_mask_or_epi32(x, rest, x, one);
    }
    /* byte 0 of low, byte 1 from byte 0 of middle */
    const __m512i low16 = _mm512_ternarylogic_epi32(_mm512_slli_epi32(middle, 8), low, byte, 0xd8);
    if (joined == 16) {
        const __m512i clamped = _mm512_max_epi32(_mm512_min_epi32(high, to->top), to->bottom);
        return _mm512_mask_blend_epi16(0x55555555, _mm512_slli_epi32(clamped, 16), low16);
    }
    const __mmask16 rest = _mm512_test_epi32_mask(low16, _mm512_set1_epi32(0x7fff));
    const __m512i upper = _mm512_and_si512(_mm512_srli_epi32(low16, 14), _mm512_set1_epi32(2)),
                  x = _mm512_or_si512(_mm512_slli_epi32(high, 2), upper);
    return _mm512_mask_or_epi32(x, rest, x, one);
}

/* Rounds to nearest even. */
static inline __m512i round_joined(__m512i x, const struct rounders *to) {
    const __mmask16 odd = _mm512_test_epi32_mask(x, to->unit);
    const __m512i r = _mm512_add_epi32(x, to->below_half);
    return _mm512_srav_epi32(_mm512_mask_add_epi32(r, odd, r, _mm512_set1_epi32(1)), to->by);
}

/* Rounds a tile, with all its statistics; `joined` and relu are literals. */
static inline __attribute__((always_inline)) struct stored round_tile(const struct fl_args *args,
                                                                      const struct gemm_matrix_tile *tile,
                                                                      const struct rounding how, const int joined,
                                                                      const bool relu) {
    const __mmask16 wanted = (__mmask16)(tile->columns >= GEMM_MATRIX ? 0xffff : (1u << tile->columns) - 1);
    const struct rounders to = rounders_of(how);
    const int32_t *sums = tile->sums;
    __m512i largest = _mm512_setzero_si512();
    int64_t flushed = 0;
    for (int i = 0; i < GEMM_MATRIX; i++, sums += GEMM_MATRIX) {
        if (tile->element[i] < 0)
            continue;
        __m512i x = _mm512_maskz_mov_epi32(wanted, join_sums(sums, &to, joined));
        if (relu)
            x = _mm512_max_epi32(x, _mm512_setzero_si512());
        const __m512i r = round_joined(x, &to);
        largest = _mm512_max_epu32(largest, _mm512_abs_epi32(r));
        flushed += __builtin_popcount(_mm512_mask_testn_epi32_mask(_mm512_test_epi32_mask(x, x), r, r));
        _mm256_mask_storeu_epi16((int16_t *)args->out.data + tile->element[i], wanted, _mm512_cvtsepi32_epi16(r));
    }
    return (struct stored){(int32_t)_mm512_reduce_max_epu32(largest), flushed};
}

static struct stored flex_round_tile_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile) {
    const struct rounding how = rounding_of(shift_of(args));
    const bool relu = args->p.product.epilogue.relu;
    switch (how.joined) {
    case 16:
        return relu ? round_tile(args, tile, how, 16, true) : round_tile(args, tile, how, 16, false);
    case 2:
        return relu ? round_tile(args, tile, how, 2, true) : round_tile(args, tile, how, 2, false);
    default:
        return relu ? round_tile(args, tile, how, 1, true) : round_tile(args, tile, how, 1, false);
    }
}

/* Rounds rows of the usual tile, two at a time: 16 columns, all rows, no ReLU. It does not count flushed or saturated
 * results: `part` collects the largest and the least |result|, which show whether there are any. */
static inline __attribute__((always_inline)) void round_rows(const struct fl_args *args,
                                                             const struct gemm_matrix_tile *tile, int from, int end,
                                                             const struct rounding how, const int joined,
                                                             struct flex_tile_part *part) {
    int16_t *out = args->out.data;
    const struct rounders to = rounders_of(how);
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i largest = _mm512_loadu_si512(part->largest), least = _mm512_loadu_si512(part->least);
    for (int i = from; i < end; i += 2) {
        const int32_t *sums = tile->sums + i * GEMM_MATRIX;
        const __m512i r0 = round_joined(join_sums(sums, &to, joined), &to),
                      r1 = round_joined(join_sums(sums + GEMM_MATRIX, &to, joined), &to);
        const __m512i y = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(r0, r1)), size = _mm512_abs_epi16(y);
        largest = _mm512_max_epu16(largest, size);
        least = _mm512_min_epu16(least, size);
        _mm256_storeu_si256((__m256i *)(void *)(out + tile->element[i]), _mm512_castsi512_si256(y));
        _mm256_storeu_si256((__m256i *)(void *)(out + tile->element[i + 1]), _mm512_extracti64x4_epi64(y, 1));
    }
    _mm512_storeu_si512(part->largest, largest);
    _mm512_storeu_si512(part->least, least);
}

/* Begins a tile; returns whether its rows can be rounded in parts. */
static bool begin_part(const struct fl_args *args, const struct gemm_matrix_tile *tile, struct flex_tile_part *part) {
    const __m512i all = _mm512_or_si512(_mm512_loadu_si512(tile->element), _mm512_loadu_si512(tile->element + 8));
    _mm512_storeu_si512(part->largest, _mm512_setzero_si512());
    _mm512_storeu_si512(part->least, _mm512_set1_epi16(-1));
    return !part->zeros && !args->p.product.epilogue.relu && tile->columns == GEMM_MATRIX && !_mm512_movepi64_mask(all);
}

/* Whether the values that the parts of a tile collected suffice: no result is zero, and none is as large as any before.
 */
static bool is_usual(const struct flex_tile_part *part, int32_t gamma) {
    const __m512i least = _mm512_loadu_si512(part->least), largest = _mm512_loadu_si512(part->largest);
    return !_mm512_testn_epi16_mask(least, least) &&
           !_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16((int16_t)gamma));
}

/* Rounds the next rows of a tile. False: the whole tile must be rounded at once. */
static bool flex_round_part_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile, int from,
                                       int to, struct gemm_stored *stored) {
    struct flex_tile_part *part = &stored->part;
    if (from == 0)
        part->whole = begin_part(args, tile, part);
    if (!part->whole)
        return to < GEMM_MATRIX;
    const struct rounding how = rounding_of(shift_of(args));
    if (how.joined == 16)
        round_rows(args, tile, from, to, how, 16, part);
    else if (how.joined == 2)
        round_rows(args, tile, from, to, how, 2, part);
    else
        round_rows(args, tile, from, to, how, 1, part);
    return to < GEMM_MATRIX || is_usual(part, stored->sums.gamma);
}
#else
/* Rounds a whole tile with all its statistics. */
static struct stored flex_round_tile_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile) {
    const struct rounding how = rounding_of(shift_of(args));
    struct stored stored = {0, 0};
    for (int i = 0; i < GEMM_MATRIX; i++)
        for (int64_t j = 0; j < tile->columns && tile->element[i] >= 0; j++) {
            const int32_t *at = tile->sums + i * GEMM_MATRIX + j;
            const int32_t middle = at[MIDDLE] + (int32_t)((uint32_t)at[LOW] >> 8), high = at[0] + (middle >> 8),
                          low16 = (middle & 255) << 8 | (at[LOW] & 255);
            int32_t x;
            if (how.joined == 16)
                x = (high > how.top ? how.top : high < -how.top - 1 ? -how.top - 1 : high) * 65536 + low16;
            else if (how.joined == 2)
                x = high * 4 + (low16 >> 14 & 2) + ((low16 & 0x7fff) != 0);
            else
                x = high * 2 + (low16 != 0);
            if (args->p.product.epilogue.relu && high < 0)
                x = 0;
            const int32_t r = (x + (1 << (how.by - 1)) - 1 + (x >> how.by & 1)) >> how.by, size = r < 0 ? -r : r;
            stored.gamma = size > stored.gamma ? size : stored.gamma;
            stored.flushed += x != 0 && r == 0;
            ((int16_t *)args->out.data)[tile->element[i] + j] = (int16_t)(r > FLEX_TOP    ? FLEX_TOP
                                                                          : r < -FLEX_TOP ? -FLEX_TOP
                                                                                          : r);
        }
    return stored;
}

static bool flex_round_part_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile, int from,
                                       int to, struct gemm_stored *stored) {
    (void)args;
    (void)tile;
    (void)from;
    (void)stored;
    return to < GEMM_MATRIX;
}
#endif

/* The largest sum has the largest result, so whole sums are examined only if a tile has a result as large as any
 * before. */
static void flex_note_sums_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile,
                                      struct flex_stats *stats) {
    const int32_t *sums = tile->sums;
    const int64_t *element = tile->element, columns = tile->columns;
    const bool relu = args->p.product.epilogue.relu;
#if defined(__AVX512BW__)
    __m512i largest = _mm512_setzero_si512();
    for (int i = 0; i < GEMM_MATRIX; i++)
        for (int64_t j = 0; j < columns && element[i] >= 0; j += 8) {
            const __mmask8 valid = (__mmask8)(columns - j >= 8 ? 0xff : (1u << (columns - j)) - 1);
            const __m256i *at = (const __m256i *)(const void *)(sums + i * GEMM_MATRIX + j);
            const __m512i high = _mm512_cvtepi32_epi64(_mm256_load_si256(at)),
                          middle = _mm512_cvtepi32_epi64(_mm256_load_si256(at + MIDDLE / 8)),
                          low = _mm512_cvtepu32_epi64(_mm256_load_si256(at + LOW / 8));
            const __m512i sum =
                _mm512_add_epi64(_mm512_add_epi64(_mm512_slli_epi64(high, 16), _mm512_slli_epi64(middle, 8)), low);
            const __m512i size = relu ? sum : _mm512_abs_epi64(sum);
            largest = _mm512_mask_max_epi64(largest, valid, largest, size);
        }
    note_maximum(stats, (uint64_t)_mm512_reduce_max_epi64(largest));
#else
    for (int i = 0; i < GEMM_MATRIX; i++)
        for (int64_t j = 0; j < columns && element[i] >= 0; j++) {
            const int32_t *at = sums + i * GEMM_MATRIX + j;
            const int64_t sum = at[0] * (int64_t)65536 + at[MIDDLE] * (int64_t)256 + (uint32_t)at[LOW];
            if (sum > 0 || !relu)
                note_maximum(stats, (uint64_t)(sum < 0 ? -sum : sum));
        }
#endif
}

/* Results out of range are rounded one by one by the rule for limbs. */
static void flex_store_rows_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile,
                                       struct gemm_stored *stored) {
    int32_t low[SUMS], high[SUMS];
    const struct gemm_sums limbs = {.low = low, .high = high, .stride = GEMM_MATRIX};
    fl_gemm_int16_matrix_avx512_amx.finish(tile->sums, NULL, GEMM_MATRIX, GEMM_MATRIX, GEMM_MATRIX, 0, false, &limbs);
    for (int i = 0; i < GEMM_MATRIX; i++) {
        const struct gemm_sums row = gemm_sums_at(&limbs, i, 0);
        if (tile->element[i] >= 0)
            BASE(fl_flex_stores).sums(args, tile->element[i], tile->columns, &row, stored);
    }
}

static void flex_matrix_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile, int from, int to,
                                   void *stats) {
    struct gemm_stored *stored = stats;
    if (flex_round_part_avx512_amx(args, tile, from, to, stored))
        return;
    const struct stored all = flex_round_tile_avx512_amx(args, tile);
    stored->part.zeros = all.flushed > 0;
    if (all.gamma > FLEX_TOP) {
        flex_store_rows_avx512_amx(args, tile, stored);
        return;
    }
    stored->sums.flushed += all.flushed;
    if (all.gamma >= stored->sums.gamma)
        flex_note_sums_avx512_amx(args, tile, &stored->sums);
    note_gamma(&stored->sums, (uint64_t)all.gamma);
}

/* --- bias and residual -------------------------------------------------------------------------------------------- */

#if defined(__AVX512BW__)
/* Adds addends times 2^up to the two parts of a row of starts. */
static inline void flex_add_start(__m512i *high, __m512i *low, const int16_t *addends, __mmask16 there, int up) {
    const __m512i x = _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(there, addends));
    const __m512i shifted = _mm512_sll_epi32(x, _mm_cvtsi32_si128(up < 16 ? up : up - 16));
    *high = _mm512_add_epi32(*high, up < 16 ? _mm512_srai_epi32(shifted, 16) : shifted);
    if (up < 16)
        *low = _mm512_add_epi32(*low, _mm512_and_si512(shifted, _mm512_set1_epi32(0xffff)));
}
#else
static inline void flex_add_start(int32_t *start, const int16_t *addends, int64_t n, int up) {
    for (int64_t j = 0; j < n; j++) {
        const int64_t x = addends[j] * ((int64_t)1 << up);
        start[j] += (int32_t)(x >> 16);
        start[GEMM_MATRIX + j] += (int32_t)(x & 0xffff);
    }
}
#endif

static void flex_matrix_start_avx512_amx(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows,
                                         int64_t columns, int32_t *start) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    const struct gemm_alignment by = fl_gemm_alignment(args);
    const int16_t *bias = e->bias.data ? (const int16_t *)e->bias.data + first % e->bias.count : NULL,
                  *residual = gemm_residual(e, first, sizeof *residual);
#if defined(__AVX512BW__)
    const __mmask16 there = (__mmask16)((1u << columns) - 1);
    __m512i bias_high = _mm512_setzero_si512(), bias_low = bias_high;
    if (bias)
        flex_add_start(&bias_high, &bias_low, bias, there, by.up_bias);
    for (int64_t r = 0; r < rows; r++, start += GEMM_MATRIX_START) {
        __m512i high = bias_high, low = bias_low;
        if (residual)
            flex_add_start(&high, &low, residual + r * pitch, there, by.up_residual);
        _mm512_storeu_si512(start, high);
        _mm512_storeu_si512(start + GEMM_MATRIX, low);
    }
#else
    memset(start, 0, (size_t)(rows * GEMM_MATRIX_START) * sizeof *start);
    for (int64_t r = 0; r < rows; r++, start += GEMM_MATRIX_START) {
        if (bias)
            flex_add_start(start, bias, columns, by.up_bias);
        if (residual)
            flex_add_start(start, residual + r * pitch, columns, by.up_residual);
    }
#endif
}

/* --- the kernel set ----------------------------------------------------------------------------------------------- */

static void flex_store_sums_avx512_amx(const struct fl_args *args, int64_t first, int64_t n,
                                       const struct gemm_sums *sums, void *stats) {
    BASE(fl_flex_stores).sums(args, first, n, sums, stats);
}

static void flex_store_panel_avx512_amx(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows,
                                        int64_t columns, const struct gemm_sums *sums, void *stats) {
    BASE(fl_flex_stores).rows(args, first, pitch, rows, columns, sums, stats);
}

static void flex_store_finish_avx512_amx(const struct fl_args *args, const void *stats) {
    BASE(fl_flex_stores).finish(args, stats);
}

static const struct gemm_stores stores = {.element_bytes = sizeof(int16_t),
                                          .sum_bytes = sizeof(int64_t),
                                          .stats_bytes = sizeof(struct gemm_stored),
                                          .sums = flex_store_sums_avx512_amx,
                                          .rows = flex_store_panel_avx512_amx,
                                          .finish = flex_store_finish_avx512_amx,
                                          .takes_matrix = flex_takes_matrix_avx512_amx,
                                          .matrix_start = flex_matrix_start_avx512_amx,
                                          .matrix = flex_matrix_avx512_amx};

static const struct gemm_family family = {.kernels = &fl_gemm_int16_avx512_amx,
                                          .packing = &fl_gemm_int16_packing_avx512_amx,
                                          .depthwise = &BASE(fl_gemm_int16_depthwise),
                                          .stores = &stores,
                                          .matrix = &fl_gemm_int16_matrix_avx512_amx};

/* Of factors of at most 8 bits; their sums leave the tiles as limbs. */
static const struct gemm_family family_of_bytes = {.kernels = &fl_gemm_int8_avx512_amx,
                                                   .packing = &fl_gemm_int8_packing_avx512_amx,
                                                   .depthwise = &BASE(fl_gemm_int16_depthwise),
                                                   .stores = &BASE(fl_flex_stores),
                                                   .matrix = &fl_gemm_int8_matrix_avx512_amx};

static bool is_for_vectors(const struct fl_args *args) {
#ifdef FL_AMX_EMULATED /* for tests: everything on tiles */
    (void)args;
    return false;
#else
    return !fl_gemm_suits_matrix(args, 1);
#endif
}

static tensor_status flex_gemm_avx512_amx(const struct fl_args *args) {
    if (is_for_vectors(args))
        return fl_flex_avx512.op[args->op](args);
    return fl_gemm(fl_gemm_takes_bytes(args) ? &family_of_bytes : &family, args);
}

static size_t flex_gemm_need_avx512_amx(const struct fl_args *args) {
    if (is_for_vectors(args))
        return fl_flex_avx512.need[args->op](args);
    return fl_gemm_need_of_either(args, fl_gemm_need(&family_of_bytes, args), fl_gemm_need(&family, args));
}

/* Mixed stores read the sums of int16 products from tiles; those of bytes leave the tiles as limbs. */
static struct gemm_stores stores_of_bytes(void) {
    struct gemm_stores any = fl_gemm_mixed_exact_avx512_amx();
    any.takes_matrix = NULL;
    return any;
}

static tensor_status flex_mixed_avx512_amx(const struct fl_args *args) {
    const struct gemm_stores any = fl_gemm_mixed_exact_avx512_amx(), of_bytes = stores_of_bytes();
    if (is_for_vectors(args))
        return fl_flex_avx512.mixed(args);
    return fl_gemm_takes_bytes(args) ? fl_gemm_mixed(&family_of_bytes, &of_bytes, args)
                                     : fl_gemm_mixed(&family, &any, args);
}

static size_t flex_mixed_need_avx512_amx(const struct fl_args *args) {
    const struct gemm_stores any = fl_gemm_mixed_exact_avx512_amx(), of_bytes = stores_of_bytes();
    if (is_for_vectors(args))
        return fl_flex_avx512.mixed_need(args);
    return fl_gemm_need_of_either(args, fl_gemm_mixed_need(&family_of_bytes, &of_bytes, args),
                                  fl_gemm_mixed_need(&family, &any, args));
}

const struct fl_kernels fl_flex_avx512_amx = {.mixed = flex_mixed_avx512_amx,
                                              .mixed_need = flex_mixed_need_avx512_amx,
                                              .op =
                                                  {
                                                      FL_EACH_PRODUCT(flex_gemm_avx512_amx),
                                                  },
                                              .need = {
                                                  FL_EACH_PRODUCT(flex_gemm_need_avx512_amx),
                                              }};
