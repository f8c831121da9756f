/* bf16_avx512_amx_fast.c - the kernels of bf16 in class fast on matrix tiles (AMX): matmul and convolution (decision
 * 10). Operands stay bf16 as they are packed; sums are stored as those of the exact rows are. */
#include "bf16/bf16_codec.h"
#include "core/table/format.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_epilogue.h"
#include "gemm/gemm_float.h"

/* Vector code too: stores, and convolutions of groups of few channels, which do not fill tiles. */
#if defined(__AVX512BW__)
#include <immintrin.h>
#define BASE(name) name##_avx512bw
#else /* tests of emulated tiles */
#define BASE(name) name##_portable
#endif
extern const struct fl_kernels BASE(fl_bf16);
extern const struct gemm_stores BASE(fl_bf16_stores);

/* --- stores ------------------------------------------------------------------------------------------------------- */

static bool bf16_takes_matrix_avx512_amx_fast(const struct fl_args *args) {
    return args->out.data && args->rounding.mode == TENSOR_ROUND_NEAREST &&
           !gemm_has_epilogue(&args->p.product.epilogue);
}

static void bf16_store_row_avx512_amx_fast(const struct fl_args *args, const int32_t *sums, int64_t first,
                                           int64_t columns, struct fl_stats *stats) {
    const struct gemm_sums row = {.low = (int32_t *)(uintptr_t)sums};
    BASE(fl_bf16_stores).sums(args, first, columns, &row, stats);
}

/* Rounds to nearest even. Rows with Inf, NaN or what becomes Inf go the way of all others. */
static void bf16_matrix_avx512_amx_fast(const struct fl_args *args, const struct gemm_matrix_tile *tile, int from,
                                        int to, void *stats) {
    struct fl_stats *stored = stats;
    const int64_t *element = tile->element, columns = tile->columns;
    const int32_t *sums = tile->sums + from * GEMM_MATRIX;
#if defined(__AVX512BW__)
    const __mmask16 wanted = (__mmask16)(columns >= GEMM_MATRIX ? 0xffff : (1u << columns) - 1);
    const __m512i one = _mm512_set1_epi32(1), size = _mm512_set1_epi32(0x7fffffff),
                  below_half = _mm512_set1_epi32(0x7fff), flush = _mm512_set1_epi32(FL_FLUSH);
    __m512i largest = _mm512_setzero_si512();
    for (int i = from; i < to; i++, sums += GEMM_MATRIX) {
        if (element[i] < 0)
            continue;
        const __m512i x = _mm512_maskz_loadu_epi32(wanted, sums), magnitude = _mm512_and_si512(x, size);
        if (_mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(FL_OVERFLOW))) {
            bf16_store_row_avx512_amx_fast(args, sums, element[i], columns, stored);
            continue;
        }
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), one);
        const __m512i nearest = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(x, below_half), odd), 16);
        largest = _mm512_max_epu32(largest, magnitude);
        /* zero wraps around */
        stored->flushed += __builtin_popcount(_mm512_cmplt_epu32_mask(_mm512_sub_epi32(magnitude, one), flush));
        _mm256_mask_storeu_epi16((uint16_t *)args->out.data + element[i], wanted, _mm512_cvtepi32_epi16(nearest));
    }
    const uint32_t top = _mm512_reduce_max_epu32(largest);
    float maximum;
    memcpy(&maximum, &top, sizeof maximum);
    if (maximum > stored->maximum)
        stored->maximum = maximum;
#else
    for (int i = from; i < to; i++, sums += GEMM_MATRIX)
        if (element[i] >= 0)
            bf16_store_row_avx512_amx_fast(args, sums, element[i], columns, stored);
#endif
}

static void bf16_store_sums_avx512_amx_fast(const struct fl_args *args, int64_t first, int64_t n,
                                            const struct gemm_sums *sums, void *stats) {
    BASE(fl_bf16_stores).sums(args, first, n, sums, stats);
}

static void bf16_store_rows_avx512_amx_fast(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows,
                                            int64_t columns, const struct gemm_sums *sums, void *stats) {
    BASE(fl_bf16_stores).rows(args, first, pitch, rows, columns, sums, stats);
}

static void bf16_store_finish_avx512_amx_fast(const struct fl_args *args, const void *stats) {
    BASE(fl_bf16_stores).finish(args, stats);
}

static const struct gemm_stores stores = {.element_bytes = sizeof(fl_element),
                                          .sum_bytes = sizeof(float),
                                          .stats_bytes = sizeof(struct fl_stats),
                                          .sums = bf16_store_sums_avx512_amx_fast,
                                          .rows = bf16_store_rows_avx512_amx_fast,
                                          .finish = bf16_store_finish_avx512_amx_fast,
                                          .takes_matrix = bf16_takes_matrix_avx512_amx_fast,
                                          .matrix = bf16_matrix_avx512_amx_fast};

/* --- the row ------------------------------------------------------------------------------------------------------ */

static const struct gemm_family family = {.ordered = true,
                                          .kernels = &fl_gemm_bf16_avx512_amx_fast,
                                          .packing = &fl_gemm_bf16_packing_avx512_amx_fast,
                                          .stores = &stores,
                                          .matrix = &fl_gemm_bf16_matrix_avx512_amx_fast};

/* Class exact then. */
static bool is_for_vectors(const struct fl_args *args) {
#ifdef FL_AMX_EMULATED /* tests: everything on tiles */
    return gemm_is_depthwise(args);
#else
    return gemm_is_depthwise(args) || !fl_gemm_suits_matrix(args, sizeof(fl_element));
#endif
}

static tensor_status bf16_gemm_avx512_amx_fast(const struct fl_args *args) {
    return is_for_vectors(args) ? BASE(fl_bf16).op[args->op](args) : fl_gemm(&family, args);
}

static size_t bf16_gemm_need_avx512_amx_fast(const struct fl_args *args) {
    return is_for_vectors(args) ? BASE(fl_bf16).need[args->op](args) : fl_gemm_need(&family, args);
}

extern const struct fl_kernels fl_bf16_avx512_amx_fast;
const struct fl_kernels fl_bf16_avx512_amx_fast = {
    .op =
        {
            FL_EACH_PRODUCT(bf16_gemm_avx512_amx_fast),
        },
    .need =
        {
            FL_EACH_PRODUCT(bf16_gemm_need_avx512_amx_fast),
        },
};
