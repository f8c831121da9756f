/* gemm_mixed_avx512_amx.c - stores exact sums of matrix tiles (AMX) as binary32, during the next products. The stores
 * of vectors do everything else. */
#include "gemm/gemm_mixed.h"
#if defined(__AVX512BW__)
#include "core/arithmetic/exact.h"
#include "gemm/gemm_epilogue.h"
#include "gemm/gemm_int16.h"
#include <immintrin.h>

enum { MIDDLE = GEMM_MATRIX * GEMM_MATRIX, LOW = 2 * MIDDLE }; /* planes of a tile: high 2^16 + middle 2^8 + low */

static inline int sum_exponent(const struct fl_args *args) {
    return fl_exponent(&args->in[0]) + fl_exponent(&args->in[1]);
}

/* Whether results are binary32 rounded to nearest, at exponents where no sum, of less than 2^47, overflows or becomes
 * zero. */
static bool mixed_takes_matrix_avx512_amx(const struct fl_args *args) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    const int exponent = sum_exponent(args);
    return args->out.data && args->format->id == FMT_FP32 && exponent >= -80 && exponent <= 149 && !e->residual.data &&
           (!e->bias.data || fl_bias_format(args)->id == FMT_FP32);
}

/* Eight sums, exactly. */
static inline __m512d whole_sums(const int32_t *at, __m512d unit) {
    const __m512d high = _mm512_cvtepi32_pd(_mm256_load_si256((const __m256i *)(const void *)at)),
                  middle = _mm512_cvtepi32_pd(_mm256_load_si256((const __m256i *)(const void *)(at + MIDDLE))),
                  low = _mm512_cvtepu32_pd(_mm256_load_si256((const __m256i *)(const void *)(at + LOW)));
    const __m512d lower = _mm512_fmadd_pd(middle, _mm512_set1_pd(0x1p8), low);
    return _mm512_mul_pd(_mm512_fmadd_pd(high, _mm512_set1_pd(0x1p16), lower), unit);
}

/* p + q rounded to odd, as by fl_sum_odd; *near: rounded to nearest. */
static inline __m512d sum_odd(__m512d p, __m512d q, __m512d *near) {
    const __m512d zero = _mm512_setzero_pd(), s = _mm512_add_pd(p, q), t = _mm512_sub_pd(s, p),
                  error = _mm512_add_pd(_mm512_sub_pd(p, _mm512_sub_pd(s, t)), _mm512_sub_pd(q, t));
    const __m512i bits = _mm512_castpd_si512(s), one = _mm512_set1_epi64(1);
    const __mmask8 lost = (__mmask8)(_mm512_cmp_pd_mask(error, zero, _CMP_NEQ_OQ) & _mm512_testn_epi64_mask(bits, one)),
                   away = (__mmask8)(_mm512_cmp_pd_mask(error, zero, _CMP_GT_OQ) ^
                                     _mm512_cmp_pd_mask(s, zero, _CMP_GT_OQ));
    const __m512i more = _mm512_mask_add_epi64(bits, (__mmask8)(lost & ~away), bits, one);
    *near = s;
    return _mm512_castsi512_pd(_mm512_mask_sub_epi64(more, (__mmask8)(lost & away), more, one));
}

/* The bias of the columns of a tile that begins at `element`; false if one is not finite, or so large that a result may
 * overflow. */
static inline bool tile_bias(const struct fl_args *args, const struct gemm_matrix_tile *tile, int64_t element,
                             float *bias) {
    const struct fl_view *view = &args->p.product.epilogue.bias;
    const float *from = (const float *)view->data + element % view->count;
    bool small = true;
    for (int64_t j = 0; j < tile->columns; j++) {
        bias[j] = from[j];
        small &= bias[j] < 0x1p126f && bias[j] > -0x1p126f;
    }
    return small;
}

/* Stores one row after the other by the stores of vectors. */
static void mixed_store_apart_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile, int from,
                                         int to, void *stats) {
    int32_t low[GEMM_MATRIX], high[GEMM_MATRIX];
    const struct gemm_sums limbs = {.low = low, .high = high, .stride = GEMM_MATRIX};
    for (int i = from; i < to; i++) {
        if (tile->element[i] < 0)
            continue;
        fl_gemm_int16_matrix_avx512_amx.finish(tile->sums + i * GEMM_MATRIX, NULL, GEMM_MATRIX, 1, GEMM_MATRIX, 0,
                                               false, &limbs);
        fl_gemm_mixed_exact_avx512bw.sums(args, tile->element[i], tile->columns, &limbs, stats);
    }
}

static void mixed_matrix_avx512_amx(const struct fl_args *args, const struct gemm_matrix_tile *tile, int from, int to,
                                    void *stats) {
    struct fl_stats *collected = stats;
    const __mmask16 wanted = (__mmask16)(tile->columns >= GEMM_MATRIX ? 0xffff : (1u << tile->columns) - 1);
    const __m512d unit = _mm512_castsi512_pd(_mm512_set1_epi64((int64_t)(1023 - sum_exponent(args)) << 52)),
                  zero = _mm512_setzero_pd();
    const bool relu = args->p.product.epilogue.relu, biased = args->p.product.epilogue.bias.data;
    __m512d largest = zero, b0 = zero, b1 = zero;
    int64_t column = -1;
    for (int i = from; i < to; i++) {
        const int64_t element = tile->element[i];
        if (element < 0)
            continue;
        if (biased && element % args->p.product.epilogue.bias.count != column) {
            _Alignas(64) float bias[GEMM_MATRIX] = {0};
            column = element % args->p.product.epilogue.bias.count;
            if (!tile_bias(args, tile, element, bias)) {
                mixed_store_apart_avx512_amx(args, tile, i, to, stats);
                break;
            }
            b0 = _mm512_cvtps_pd(_mm256_load_ps(bias));
            b1 = _mm512_cvtps_pd(_mm256_load_ps(bias + 8));
        }
        const int32_t *at = tile->sums + i * GEMM_MATRIX;
        __m512d x0 = whole_sums(at, unit), x1 = whole_sums(at + 8, unit), near0 = x0, near1 = x1;
        if (biased) {
            x0 = sum_odd(x0, b0, &near0);
            x1 = sum_odd(x1, b1, &near1);
        }
        if (relu) {
            x0 = _mm512_max_pd(x0, zero);
            x1 = _mm512_max_pd(x1, zero);
            near0 = _mm512_max_pd(near0, zero);
            near1 = _mm512_max_pd(near1, zero);
        }
        near0 = _mm512_maskz_mov_pd((__mmask8)wanted, _mm512_abs_pd(near0));
        near1 = _mm512_maskz_mov_pd((__mmask8)(wanted >> 8), _mm512_abs_pd(near1));
        largest = _mm512_max_pd(largest, _mm512_max_pd(near0, near1));
        const __m512 y = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x0)), _mm512_cvtpd_ps(x1), 1);
        _mm512_mask_storeu_ps((float *)args->out.data + element, wanted, y);
    }
    const double maximum = _mm512_reduce_max_pd(largest);
    if (maximum > collected->maximum)
        collected->maximum = maximum;
}

struct gemm_stores fl_gemm_mixed_exact_avx512_amx(void) {
    struct gemm_stores stores = fl_gemm_mixed_exact_avx512bw;
    stores.takes_matrix = mixed_takes_matrix_avx512_amx;
    stores.matrix = mixed_matrix_avx512_amx;
    return stores;
}
#else
struct gemm_stores fl_gemm_mixed_exact_avx512_amx(void) { /* for tests of emulated tiles */
    return fl_gemm_mixed_exact_portable;
}
#endif
