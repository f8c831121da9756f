/* flex_avx512_amx.c - the kernels of the shared-exponent formats on matrix tiles (AMX): matmul and convolution, and how
 * the sums of a tile are rounded as they leave it. */
#include "flex/flex_rows.h"
#include "flex/flex_stats.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_epilogue.h"
#include "gemm/gemm_int16.h"
#if defined(__AVX512BW__)
#include <immintrin.h>
#define BASE(name) name##_avx512bw
#else /* tests of emulated tiles */
#define BASE(name) name##_portable
#endif

enum { SUMS = GEMM_MATRIX * GEMM_MATRIX, MIDDLE = SUMS, LOW = 2 * SUMS };

/* --- rounding ----------------------------------------------------------------------------------------------------- */

/* How sums high16 2^16 + low16 are divided by 2^shift. Up to a shift of 15 all of low16 counts, and high16 is clamped
 * to where the result has long left its range, so that both fit 32 bits. Above 15 what counts of low16 is its upper
 * bit, for a shift of 16, and whether the rest is zero; that is joined to high16 as one or two more bits. */
struct rounding {
    int by;      /* of what was joined */
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
           !args->epilogue.bias.data && !args->epilogue.residual.data;
}

/* What a tile stored. */
struct stored {
    int32_t gamma; /* largest |result| before saturation; anything above FLEX_TOP if some lie there */
    int64_t flushed;
};

#if defined(__AVX512BW__)
/* Rounds to nearest even. `joined` and relu are literals, so that each case is a function of its own. */
static inline __attribute__((always_inline)) struct stored round_tile(const struct fl_args *args, const int32_t *sums,
                                                                      const int64_t *element, int64_t channel,
                                                                      int64_t columns, const struct rounding how,
                                                                      const int joined, const bool relu) {
    int16_t *out = (int16_t *)args->out.data + channel;
    const __mmask16 wanted = (__mmask16)(columns >= GEMM_MATRIX ? 0xffff : (1u << columns) - 1);
    const __m512i byte = _mm512_set1_epi32(255), one = _mm512_set1_epi32(1);
    const __m512i top = _mm512_set1_epi32(how.top), bottom = _mm512_set1_epi32(-how.top - 1);
    const __m512i below_half = _mm512_set1_epi32((int)((1u << (how.by - 1)) - 1));
    const __m512i unit = _mm512_set1_epi32((int)(1u << how.by));
    const __m128i by = _mm_cvtsi32_si128(how.by);
    __m512i largest = _mm512_setzero_si512();
    int64_t flushed = 0;
    for (int i = 0; i < GEMM_MATRIX; i++, sums += GEMM_MATRIX) {
        if (element[i] < 0)
            continue;
        const __m512i low = _mm512_load_si512(sums + LOW);
        const __m512i middle = _mm512_add_epi32(_mm512_load_si512(sums + MIDDLE), _mm512_srli_epi32(low, 8));
        const __m512i high = _mm512_add_epi32(_mm512_load_si512(sums), _mm512_srai_epi32(middle, 8));
        /* byte 0 of low, byte 1 from byte 0 of middle */
        const __m512i low16 = _mm512_ternarylogic_epi32(_mm512_slli_epi32(middle, 8), low, byte, 0xd8);
        __m512i x;
        if (joined == 16) {
            const __m512i clamped = _mm512_max_epi32(_mm512_min_epi32(high, top), bottom);
            x = _mm512_mask_blend_epi16(0x55555555, _mm512_slli_epi32(clamped, 16), low16);
        } else {
            const __mmask16 rest = _mm512_test_epi32_mask(low16, _mm512_set1_epi32(joined == 2 ? 0x7fff : 0xffff));
            x = _mm512_slli_epi32(high, joined);
            if (joined == 2)
                x = _mm512_or_si512(x, _mm512_and_si512(_mm512_srli_epi32(low16, 14), _mm512_set1_epi32(2)));
            x = _mm512_mask_or_epi32(x, rest, x, one);
        }
        __mmask16 valid = wanted;
        if (relu)
            valid &= (__mmask16)~_mm512_movepi32_mask(high);
        x = _mm512_maskz_mov_epi32(valid, x);
        const __mmask16 odd = _mm512_test_epi32_mask(x, unit);
        __m512i r = _mm512_add_epi32(x, below_half);
        r = _mm512_sra_epi32(_mm512_mask_add_epi32(r, odd, r, one), by);
        largest = _mm512_max_epu32(largest, _mm512_abs_epi32(r));
        flushed += __builtin_popcount(_mm512_mask_testn_epi32_mask(_mm512_test_epi32_mask(x, x), r, r));
        _mm256_mask_storeu_epi16(out + element[i], wanted, _mm512_cvtsepi32_epi16(r));
    }
    return (struct stored){(int32_t)_mm512_reduce_max_epu32(largest), flushed};
}

static struct stored flex_round_sums_avx512_amx(const struct fl_args *args, const int32_t *sums, const int64_t *element,
                                                int64_t channel, int64_t columns, int shift) {
    const struct rounding how = rounding_of(shift);
    const bool relu = args->epilogue.relu;
    switch (how.joined) {
    case 16:
        return relu ? round_tile(args, sums, element, channel, columns, how, 16, true)
                    : round_tile(args, sums, element, channel, columns, how, 16, false);
    case 2:
        return relu ? round_tile(args, sums, element, channel, columns, how, 2, true)
                    : round_tile(args, sums, element, channel, columns, how, 2, false);
    default:
        return relu ? round_tile(args, sums, element, channel, columns, how, 1, true)
                    : round_tile(args, sums, element, channel, columns, how, 1, false);
    }
}
#else
/* The same, one by one. */
static struct stored flex_round_sums_avx512_amx(const struct fl_args *args, const int32_t *sums, const int64_t *element,
                                                int64_t channel, int64_t columns, int shift) {
    const struct rounding how = rounding_of(shift);
    int16_t *out = (int16_t *)args->out.data + channel;
    struct stored stored = {0, 0};
    for (int i = 0; i < GEMM_MATRIX; i++)
        for (int64_t j = 0; j < columns && element[i] >= 0; j++) {
            const int32_t *at = sums + i * GEMM_MATRIX + j;
            const int32_t middle = at[MIDDLE] + (int32_t)((uint32_t)at[LOW] >> 8), high = at[0] + (middle >> 8),
                          low16 = (middle & 255) << 8 | (at[LOW] & 255);
            int32_t x;
            if (how.joined == 16)
                x = (high > how.top ? how.top : high < -how.top - 1 ? -how.top - 1 : high) * 65536 + low16;
            else if (how.joined == 2)
                x = high * 4 + (low16 >> 14 & 2) + ((low16 & 0x7fff) != 0);
            else
                x = high * 2 + (low16 != 0);
            if (args->epilogue.relu && high < 0)
                x = 0;
            const int32_t r = (x + (1 << (how.by - 1)) - 1 + (x >> how.by & 1)) >> how.by, size = r < 0 ? -r : r;
            stored.gamma = size > stored.gamma ? size : stored.gamma;
            stored.flushed += x != 0 && r == 0;
            out[element[i] + j] = (int16_t)(r > FLEX_TOP ? FLEX_TOP : r < -FLEX_TOP ? -FLEX_TOP : r);
        }
    return stored;
}
#endif

/* A largest sum has a largest result, so whole sums are looked at where a tile has one as large as any before. */
static void flex_note_sums_avx512_amx(const struct fl_args *args, const int32_t *sums, const int64_t *element,
                                      int64_t columns, struct flex_stats *stats) {
    for (int i = 0; i < GEMM_MATRIX; i++)
        for (int64_t j = 0; j < columns && element[i] >= 0; j++) {
            const int32_t *at = sums + i * GEMM_MATRIX + j;
            const int64_t sum = at[0] * (int64_t)65536 + at[MIDDLE] * (int64_t)256 + (uint32_t)at[LOW];
            if (sum > 0 || !args->epilogue.relu)
                note_maximum(stats, (uint64_t)(sum < 0 ? -sum : sum));
        }
}

/* Where results leave their range, one after the other by the rule for limbs. */
static void flex_store_rows_avx512_amx(const struct fl_args *args, const int32_t *sums, const int64_t *element,
                                       int64_t channel, int64_t columns, struct gemm_stored *stored) {
    int32_t low[SUMS], high[SUMS];
    const struct gemm_sums limbs = {.low = low, .high = high, .stride = GEMM_MATRIX};
    fl_gemm_int16_matrix_avx512_amx.finish(sums, NULL, GEMM_MATRIX, GEMM_MATRIX, GEMM_MATRIX, 0, false, &limbs);
    for (int i = 0; i < GEMM_MATRIX; i++) {
        const struct gemm_sums row = gemm_sums_at(&limbs, i, 0);
        if (element[i] >= 0)
            BASE(fl_flex_stores).sums(args, element[i] + channel, columns, &row, stored);
    }
}

static void flex_matrix_avx512_amx(const struct fl_args *args, const int32_t *sums, const int64_t *element,
                                   int64_t channel, int64_t columns, void *stats) {
    struct gemm_stored *stored = stats;
    const struct stored tile = flex_round_sums_avx512_amx(args, sums, element, channel, columns, shift_of(args));
    if (tile.gamma > FLEX_TOP) {
        flex_store_rows_avx512_amx(args, sums, element, channel, columns, stored);
        return;
    }
    stored->sums.flushed += tile.flushed;
    if (tile.gamma >= stored->sums.gamma)
        flex_note_sums_avx512_amx(args, sums, element, columns, &stored->sums);
    note_gamma(&stored->sums, (uint64_t)tile.gamma);
}

/* --- the row ------------------------------------------------------------------------------------------------------ */

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
                                          .matrix = flex_matrix_avx512_amx};

static const struct gemm_family family = {.kernels = &fl_gemm_int16_avx512_amx,
                                          .packing = &fl_gemm_int16_packing_avx512_amx,
                                          .depthwise = &BASE(fl_gemm_int16_depthwise),
                                          .stores = &stores,
                                          .matrix = &fl_gemm_int16_matrix_avx512_amx};

static bool is_for_vectors(const struct fl_args *args) {
#ifdef FL_AMX_EMULATED /* tests: everything on tiles */
    (void)args;
    return false;
#else
    return !fl_gemm_suits_matrix(args, 1);
#endif
}

static tensor_status flex_gemm_avx512_amx(const struct fl_args *args) {
    return is_for_vectors(args) ? fl_flex_avx512.op[args->op](args) : fl_gemm(&family, args);
}

static size_t flex_gemm_need_avx512_amx(const struct fl_args *args) {
    return is_for_vectors(args) ? fl_flex_avx512.need[args->op](args) : fl_gemm_need(&family, args);
}

const struct fl_kernels fl_flex_avx512_amx = {.op =
                                                  {
                                                      [FL_OP_MATMUL] = flex_gemm_avx512_amx,
                                                      [FL_OP_MATMUL_NT] = flex_gemm_avx512_amx,
                                                      [FL_OP_MATMUL_TN] = flex_gemm_avx512_amx,
                                                      [FL_OP_CONV2D] = flex_gemm_avx512_amx,
                                                      [FL_OP_CONV2D_INPUT_GRAD] = flex_gemm_avx512_amx,
                                                      [FL_OP_CONV2D_WEIGHT_GRAD] = flex_gemm_avx512_amx,
                                                  },
                                              .need = {
                                                  [FL_OP_MATMUL] = flex_gemm_need_avx512_amx,
                                                  [FL_OP_MATMUL_NT] = flex_gemm_need_avx512_amx,
                                                  [FL_OP_MATMUL_TN] = flex_gemm_need_avx512_amx,
                                                  [FL_OP_CONV2D] = flex_gemm_need_avx512_amx,
                                                  [FL_OP_CONV2D_INPUT_GRAD] = flex_gemm_need_avx512_amx,
                                                  [FL_OP_CONV2D_WEIGHT_GRAD] = flex_gemm_need_avx512_amx,
                                              }};
