/* flex_gemm.h - the stores of matmul and convolution: exact sums to mantissas. Sums, bias and residual are added at the
 * finest of their exponents, as limbs if these suffice, otherwise as integers of 64 bits, or wider ones if the
 * exponents are too far apart; then ReLU and one rounding.
 *
 * Expects: FL_ISA, the instruction set that symbols end with.
 * Gives: FL_FOR_ISA(fl_flex_stores). It is a struct gemm_stores. */
#ifndef FL_FLEX_GEMM_H
#define FL_FLEX_GEMM_H

#include "core/base/isa.h"
#include "flex/flex_parts.h"
#include "flex/flex_store.h"
#include "gemm/gemm_epilogue.h"

_Static_assert((int)FLEX_STORE_RUN == (int)GEMM_EPILOGUE_RUN,
               "as many sums are stored at a time as joined by an epilogue");

/* Bias and residual of neighbouring results, zeros if there are none. */
struct gemm_addends {
    const int16_t *bias, *residual;
    struct gemm_bias room; /* its count starts at 0 */
};

static void addends_of(const struct fl_epilogue *e, int64_t first, int64_t n, struct gemm_addends *of) {
    static const int16_t zeros[GEMM_EPILOGUE_RUN];
    const int16_t *bias = fl_gemm_bias(e, first, n, sizeof *bias, &of->room),
                  *residual = gemm_residual(e, first, sizeof *residual);
    of->bias = bias ? bias : zeros;
    of->residual = residual ? residual : zeros;
}

/* --- whole sums --------------------------------------------------------------------------------------------------- */

/* Adds bias and residual to sums[0 ... n); false if the results might not fit 62 bits. */
static bool gemm_add_wide(const struct gemm_alignment *by, bool relu, int64_t n, const int64_t *sums,
                          const struct gemm_addends *with, int64_t *results) {
    const int16_t *restrict bias = with->bias, *restrict residual = with->residual;
    const int up = by->up_sum, up_bias = by->up_bias, up_residual = by->up_residual;
    const int64_t most = gemm_largest_sum(by);
    if (most < 0 || largest_64(n, sums) > (uint64_t)most)
        return false;
    const int64_t least = relu ? 0 : INT64_MIN;
    for (int64_t j = 0; j < n; j++) {
        const uint64_t b = (uint64_t)(int64_t)bias[j] << up_bias, r = (uint64_t)(int64_t)residual[j] << up_residual;
        const int64_t x = (int64_t)(((uint64_t)sums[j] << up) + b + r);
        results[j] = x > least ? x : least;
    }
    return true;
}

static void gemm_store_wider(const struct fl_args *args, int64_t first, int64_t n, const int64_t *sums,
                             const struct gemm_addends *with, struct fl_stats *stats) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    for (int64_t j = 0; j < n; j++) {
        const struct fl_term terms[] = {{sums[j], fl_exponent(&args->in[0]) + fl_exponent(&args->in[1])},
                                        {with->bias[j], e->bias.data ? fl_exponent(&e->bias) : 0},
                                        {with->residual[j], e->residual.data ? fl_exponent(&e->residual) : 0}};
        struct fl_wide_sum sum = fl_sum_terms(terms, 3);
        if (e->relu && sum.m < 0)
            sum.m = 0;
        const double size = fl_wide_abs(sum);
        stats->maximum = size > stats->maximum ? size : stats->maximum;
        if (args->out.data)
            store_sum(args, first + j, sum, stats);
    }
}

static void gemm_store_wide(const struct fl_args *args, int64_t first, int64_t n, const int64_t *sums,
                            struct gemm_stored *stored) {
    const struct gemm_alignment by = fl_gemm_alignment(args);
    const int shift = by.exponent - fl_exponent(&args->out);
    if (!gemm_has_epilogue(&args->p.product.epilogue)) {
        store_block(element(&args->out, first), first, n, sums, shift, &args->rounding, &stored->sums);
        return;
    }
    int64_t results[GEMM_EPILOGUE_RUN];
    struct gemm_addends with;
    with.room.count = 0;
    for (int64_t some, most = fl_gemm_epilogue_run(&args->p.product.epilogue, n); n > 0;
         n -= some, first += some, sums += some) {
        some = n < most ? n : most;
        addends_of(&args->p.product.epilogue, first, some, &with);
        if (gemm_add_wide(&by, args->p.product.epilogue.relu, some, sums, &with, results))
            store_block(element(&args->out, first), first, some, results, shift, &args->rounding, &stored->sums);
        else
            gemm_store_wider(args, first, some, sums, &with, &stored->wide);
    }
}

/* --- limbs -------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void
add_limbs_body(const struct gemm_alignment *by, int64_t n, const int32_t *restrict low, const int32_t *restrict high,
               const int16_t *restrict bias, const enum gemm_addend of_bias, const int16_t *restrict residual,
               const enum gemm_addend of_residual, int32_t *restrict to_low, int32_t *restrict to_high) {
    const int up_bias = by->up_bias - (of_bias == GEMM_ADDEND_HIGH ? GEMM_LIMB_BITS : 0),
              up_residual = by->up_residual - (of_residual == GEMM_ADDEND_HIGH ? GEMM_LIMB_BITS : 0);
    const int32_t rest = -GEMM_REST - 1;
    for (int64_t j = 0; j < n; j++) {
        const int32_t b = of_bias ? (int32_t)((uint32_t)bias[j] << up_bias) : 0,
                      r = of_residual ? (int32_t)((uint32_t)residual[j] << up_residual) : 0;
        int32_t up = high[j];
        if (of_bias == GEMM_ADDEND_BOTH || of_residual == GEMM_ADDEND_BOTH) {
            const int32_t sum =
                low[j] + (of_bias == GEMM_ADDEND_BOTH ? b : 0) + (of_residual == GEMM_ADDEND_BOTH ? r : 0);
            up += sum >> GEMM_LIMB_BITS;
            to_low[j] = sum & rest;
        }
        to_high[j] = up + (of_bias == GEMM_ADDEND_HIGH ? b : 0) + (of_residual == GEMM_ADDEND_HIGH ? r : 0);
    }
}

/* Adds bias and residual, if there are any, to sums. The result is in the limbs of `to`, or in the low limb of the sums
 * if that does not change. */
static struct gemm_sums gemm_add_limbs(const struct fl_epilogue *e, const struct gemm_alignment *by, int64_t n,
                                       const int32_t *low, const int32_t *high, const struct gemm_addends *with,
                                       const struct gemm_sums *to) {
    const enum gemm_addend bias = gemm_addend_of(e->bias.data, by->up_bias),
                           residual = gemm_addend_of(e->residual.data, by->up_residual);
#define ADD_LIMBS(b, r)                                                                                                \
    case 3 * (b) + (r):                                                                                                \
        add_limbs_body(by, n, low, high, with->bias, b, with->residual, r, to->low, to->high);                         \
        break;
    switch (3 * (int)bias + (int)residual) {
        ADD_LIMBS(GEMM_ADDEND_NONE, GEMM_ADDEND_HIGH)
        ADD_LIMBS(GEMM_ADDEND_NONE, GEMM_ADDEND_BOTH)
        ADD_LIMBS(GEMM_ADDEND_HIGH, GEMM_ADDEND_NONE)
        ADD_LIMBS(GEMM_ADDEND_HIGH, GEMM_ADDEND_HIGH)
        ADD_LIMBS(GEMM_ADDEND_HIGH, GEMM_ADDEND_BOTH)
        ADD_LIMBS(GEMM_ADDEND_BOTH, GEMM_ADDEND_NONE)
        ADD_LIMBS(GEMM_ADDEND_BOTH, GEMM_ADDEND_HIGH)
        ADD_LIMBS(GEMM_ADDEND_BOTH, GEMM_ADDEND_BOTH)
    default:
        return (struct gemm_sums){.low = (int32_t *)low, .high = (int32_t *)high};
    }
#undef ADD_LIMBS
    return (struct gemm_sums){
        .low = bias == GEMM_ADDEND_BOTH || residual == GEMM_ADDEND_BOTH ? to->low : (int32_t *)low, .high = to->high};
}

/* Rounds sums as int64, if there is no faster way. */
static void gemm_store_slowly(const struct fl_args *args, int64_t first, int64_t n, const int32_t *low,
                              const int32_t *high, struct gemm_stored *stored) {
    int64_t sums[GEMM_EPILOGUE_RUN];
    for (int64_t j = 0; j < n; j++)
        sums[j] = high[j] * -(int64_t)GEMM_REST + low[j];
    gemm_store_wide(args, first, n, sums, stored);
}

/* Rounds a row of sums that fit the result to nearest even; with relu those below 0, which need not fit, become 0. x is
 * the sum, or for shift > 15 twice the high limb, plus one if the low limb is not zero, which rounds alike. Returns how
 * many are flushed to zero. */
static inline __attribute__((always_inline)) int64_t round_limbs_row(int16_t *restrict dst, int64_t n,
                                                                     const int32_t *restrict low,
                                                                     const int32_t *restrict high, const int by,
                                                                     const bool relu, const bool halves) {
    const int32_t below_half = (1 << (by - 1)) - 1;
    int64_t flushed = 0, j = 0;
#if defined(__AVX512F__)
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(below_half);
    const __m128i count = _mm_cvtsi32_si128(by);
    for (; j + 16 <= n; j += 16) {
        const __m512i all = _mm512_loadu_si512(high + j);
        const __mmask16 kept = relu ? (__mmask16)~_mm512_movepi32_mask(all) : (__mmask16)0xffff;
        const __m512i l = _mm512_maskz_loadu_epi32(kept, low + j), h = _mm512_maskz_mov_epi32(kept, all);
        const __m512i x = halves ? _mm512_or_si512(_mm512_add_epi32(h, h), _mm512_min_epu32(l, one))
                                 : _mm512_or_si512(_mm512_slli_epi32(h, GEMM_LIMB_BITS), l);
        const __m512i odd = _mm512_and_si512(_mm512_srl_epi32(x, count), one);
        const __m512i r = _mm512_sra_epi32(_mm512_add_epi32(_mm512_add_epi32(x, half), odd), count);
        flushed += __builtin_popcount(_mm512_mask_testn_epi32_mask(_mm512_test_epi32_mask(x, x), r, r));
        _mm256_storeu_si256((__m256i *)(void *)(dst + j), _mm512_cvtepi32_epi16(r));
    }
#endif
    for (; j < n; j++) {
        const bool none = relu && high[j] < 0;
        const int32_t up = none ? 0 : high[j], rest = none ? 0 : low[j];
        const int32_t x = halves ? 2 * up + (rest != 0) : up * -GEMM_REST + rest;
        const int32_t r = (x + below_half + ((x >> by) & 1)) >> by;
        flushed += (r == 0) & (x != 0);
        dst[j] = (int16_t)r;
    }
    return flushed;
}

/* Rows of sums: rows of results lie `pitch` apart, those of limbs `stride`. */
struct limb_rows {
    int64_t rows, columns, pitch, stride;
};

static inline __attribute__((always_inline)) int64_t round_limbs_body(int16_t *dst, const struct limb_rows *of,
                                                                      const int32_t *low, const int32_t *high,
                                                                      int shift, const bool relu, const bool halves) {
    const int by = halves ? shift - GEMM_LIMB_BITS + 1 : shift;
    int64_t flushed = 0;
    for (int64_t r = 0; r < of->rows; r++, dst += of->pitch, low += of->stride, high += of->stride)
        flushed += round_limbs_row(dst, of->columns, low, high, by, relu, halves);
    return flushed;
}

/* The extremes of high limbs. */
struct limb_range {
    int32_t top, bottom;
};

/* Whether the results of n sums in this range certainly fit; with relu those below 0 count as 0; 1 <= shift <= 44. If
 * so, records their maximum. */
static bool gemm_range_fits(struct limb_range range, int64_t n, const int32_t *low, const int32_t *high, int shift,
                            bool relu, struct flex_stats *stats) {
    const int32_t top = relu && range.top < -1 ? -1 : range.top, bottom = relu && range.bottom < 0 ? 0 : range.bottom;
    const int64_t above = ((int64_t)top + 1) * -GEMM_REST, below = bottom * (int64_t)GEMM_REST;
    const uint64_t bound = (uint64_t)(above > below ? above : below);
    if (bound >= (uint64_t)FLEX_TOP << shift)
        return false;
    if (bound > stats->maximum) {
        int32_t of_top = 0, of_bottom = -GEMM_REST; /* the low parts that belong to them; as masks, for vectors */
        for (int64_t j = 0; j < n; j++) {
            const int32_t up = low[j] & -(high[j] == top), down = low[j] | (-GEMM_REST & -(high[j] != bottom));
            of_top = up > of_top ? up : of_top;
            of_bottom = down < of_bottom ? down : of_bottom;
        }
        const int64_t highest = top * -(int64_t)GEMM_REST + of_top, lowest = below - of_bottom,
                      maximum = highest > lowest ? highest : lowest;
        note_maximum(stats, (uint64_t)maximum);
        note_gamma(stats, (uint64_t)fl_shift_round(maximum, shift));
    }
    return true;
}

/* The same, if the range is not known. */
static bool gemm_limbs_fit(int64_t n, const int32_t *low, const int32_t *high, int shift, bool relu,
                           struct flex_stats *stats) {
    struct limb_range range = {high[0], high[0]};
    for (int64_t j = 0; j < n; j++) {
        range.top = high[j] > range.top ? high[j] : range.top;
        range.bottom = high[j] < range.bottom ? high[j] : range.bottom;
    }
    return gemm_range_fits(range, n, low, high, shift, relu, stats);
}

/* Stores sums that fit. */
static void gemm_store_fitting(int16_t *dst, const struct limb_rows *of, const int32_t *low, const int32_t *high,
                               int shift, bool relu, struct flex_stats *stats) {
    if (shift > GEMM_LIMB_BITS)
        stats->flushed += relu ? round_limbs_body(dst, of, low, high, shift, true, true)
                               : round_limbs_body(dst, of, low, high, shift, false, true);
    else
        stats->flushed += relu ? round_limbs_body(dst, of, low, high, shift, true, false)
                               : round_limbs_body(dst, of, low, high, shift, false, false);
}

/* Whether sums with this shift are rounded from their limbs. */
static bool rounds_limbs(const struct fl_args *args, int shift) {
    return args->out.data && args->rounding.mode != TENSOR_ROUND_STOCHASTIC && gemm_limbs_round(shift);
}

/* Adds the epilogue to sums of limbs and stores them as elements first ... of the output. */
static void gemm_store_limbs(const struct fl_args *args, int64_t first, int64_t n, const int32_t *low,
                             const int32_t *high, struct gemm_stored *stored) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    const struct gemm_alignment by = fl_gemm_alignment(args);
    const int shift = by.exponent - fl_exponent(&args->out);
    const bool usual = rounds_limbs(args, shift) && gemm_limbs_have_room(&by);
    int32_t to_low[GEMM_EPILOGUE_RUN], to_high[GEMM_EPILOGUE_RUN];
    const struct gemm_sums to = {.low = to_low, .high = to_high};
    struct gemm_addends with;
    with.room.count = 0;
    for (int64_t some, most = fl_gemm_epilogue_run(e, n); n > 0; n -= some, first += some, low += some, high += some) {
        some = n < most ? n : most;
        bool done = false;
        if (usual) {
            addends_of(e, first, some, &with);
            const struct gemm_sums sums = gemm_add_limbs(e, &by, some, low, high, &with, &to);
            done = gemm_limbs_fit(some, sums.low, sums.high, shift, e->relu, &stored->sums);
            if (done)
                gemm_store_fitting(element(&args->out, first), &(const struct limb_rows){1, some, 0, 0}, sums.low,
                                   sums.high, shift, e->relu, &stored->sums);
        }
        if (!done)
            gemm_store_slowly(args, first, some, low, high, stored);
    }
}

/* --- the family's stores ------------------------------------------------------------------------------------------ */

static void gemm_store_sums(const struct fl_args *args, int64_t first, int64_t n, const struct gemm_sums *sums,
                            void *stats) {
    if (sums->wide)
        gemm_store_wide(args, first, n, sums->wide, stats);
    else
        gemm_store_limbs(args, first, n, sums->low, sums->high, stats);
}

/* Checks once for all rows whether results fit. */
static void gemm_store_rows(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows, int64_t columns,
                            const struct gemm_sums *sums, void *stats) {
    struct gemm_stored *stored = stats;
    const struct fl_epilogue *e = &args->p.product.epilogue;
    const int shift = fl_gemm_alignment(args).exponent - fl_exponent(&args->out);
    const bool fit = rounds_limbs(args, shift) && !e->bias.data && !e->residual.data &&
                     gemm_limbs_fit(rows * sums->stride, sums->low, sums->high, shift, e->relu, &stored->sums);
    if (fit) {
        const struct limb_rows of = {rows, columns, pitch, sums->stride};
        gemm_store_fitting(element(&args->out, first), &of, sums->low, sums->high, shift, e->relu, &stored->sums);
        return;
    }
    for (int64_t r = 0; r < rows; r++, first += pitch) {
        const struct gemm_sums row = gemm_sums_at(sums, r, 0);
        gemm_store_limbs(args, first, columns, row.low, row.high, stored);
    }
}

/* --- accumulators ------------------------------------------------------------------------------------------------- */

/* Bias of the columns and residual of the results, NULL if there is none, for a tile. */
struct tile_addends {
    const int16_t *bias, *residual;
    int up_bias, up_residual;
};

enum { TILE_UNIT = 16 /* columns */ };

/* The limbs of the accumulators of a tile with bias and residual, in rows of whole units: what lies beyond its columns
 * is 0. */
static inline __attribute__((always_inline)) struct limb_range
tile_limbs_body(const struct gemm_accumulated *x, const struct limb_rows *of, const struct tile_addends *with,
                const enum gemm_addend bias, const enum gemm_addend residual, int32_t *restrict low,
                int32_t *restrict high) {
    const int up_bias = with->up_bias - (bias == GEMM_ADDEND_HIGH ? GEMM_LIMB_BITS : 0),
              up_residual = with->up_residual - (residual == GEMM_ADDEND_HIGH ? GEMM_LIMB_BITS : 0);
    const int32_t rest = -GEMM_REST - 1, ones = (int32_t)x->owed + 1;
    struct limb_range range = {INT32_MIN, INT32_MAX};
#if defined(__AVX512F__)
    const __m512i mask = _mm512_set1_epi32(rest), one = _mm512_set1_epi32(ones);
    __m512i top = _mm512_set1_epi32(INT32_MIN), bottom = _mm512_set1_epi32(INT32_MAX);
    for (int64_t j = 0; j < of->columns; j += TILE_UNIT) {
        const __mmask16 there = of->columns - j >= TILE_UNIT ? 0xffff : (__mmask16)((1u << (of->columns - j)) - 1);
        __m512i b = _mm512_setzero_si512(), r = b;
        if (bias)
            b = _mm512_sll_epi32(_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(there, with->bias + j)),
                                 _mm_cvtsi32_si128(up_bias));
        for (int64_t i = 0; i < of->rows; i++) {
            const __m512i sum = _mm512_loadu_si512(x->sum + i * x->stride + j);
            __m512i l = _mm512_and_si512(sum, mask), h = _mm512_add_epi32(_mm512_srai_epi32(sum, GEMM_LIMB_BITS), one);
            if (x->owed)
                h = _mm512_add_epi32(h, _mm512_loadu_si512(x->high + i * x->stride + j));
            if (residual)
                r = _mm512_sll_epi32(
                    _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(there, with->residual + i * of->pitch + j)),
                    _mm_cvtsi32_si128(up_residual));
            if (bias == GEMM_ADDEND_BOTH)
                l = _mm512_add_epi32(l, b);
            if (residual == GEMM_ADDEND_BOTH)
                l = _mm512_add_epi32(l, r);
            if (bias == GEMM_ADDEND_BOTH || residual == GEMM_ADDEND_BOTH) {
                h = _mm512_add_epi32(h, _mm512_srai_epi32(l, GEMM_LIMB_BITS));
                l = _mm512_and_si512(l, mask);
            }
            if (bias == GEMM_ADDEND_HIGH)
                h = _mm512_add_epi32(h, b);
            if (residual == GEMM_ADDEND_HIGH)
                h = _mm512_add_epi32(h, r);
            top = _mm512_mask_max_epi32(top, there, top, h);
            bottom = _mm512_mask_min_epi32(bottom, there, bottom, h);
            _mm512_storeu_si512(low + i * of->stride + j, _mm512_maskz_mov_epi32(there, l));
            _mm512_storeu_si512(high + i * of->stride + j, _mm512_maskz_mov_epi32(there, h));
        }
    }
    range.top = _mm512_reduce_max_epi32(top);
    range.bottom = _mm512_reduce_min_epi32(bottom);
#else
    for (int64_t i = 0; i < of->rows; i++, low += of->stride, high += of->stride) {
        const int32_t *restrict sum = x->sum + i * x->stride, *restrict more = x->high + i * x->stride;
        const int16_t *restrict r = residual ? with->residual + i * of->pitch : NULL;
        for (int64_t j = 0; j < of->columns; j++)
            high[j] = ones + (x->owed ? more[j] : 0);
        for (int64_t j = 0; j < of->columns; j++) {
            const int32_t b = bias ? (int32_t)((uint32_t)with->bias[j] << up_bias) : 0,
                          s = residual ? (int32_t)((uint32_t)r[j] << up_residual) : 0;
            const int32_t l = (sum[j] & rest) + (bias == GEMM_ADDEND_BOTH ? b : 0) +
                              (residual == GEMM_ADDEND_BOTH ? s : 0),
                          h = high[j] + (sum[j] >> GEMM_LIMB_BITS) + (l >> GEMM_LIMB_BITS) +
                              (bias == GEMM_ADDEND_HIGH ? b : 0) + (residual == GEMM_ADDEND_HIGH ? s : 0);
            low[j] = l & rest;
            high[j] = h;
            range.top = h > range.top ? h : range.top;
            range.bottom = h < range.bottom ? h : range.bottom;
        }
        for (int64_t j = of->columns; j < of->stride; j++)
            low[j] = high[j] = 0;
    }
#endif
    return range;
}

static struct limb_range tile_limbs(const struct gemm_accumulated *x, const struct limb_rows *of,
                                    const struct tile_addends *with, int32_t *low, int32_t *high) {
    const enum gemm_addend bias = gemm_addend_of(with->bias, with->up_bias),
                           residual = gemm_addend_of(with->residual, with->up_residual);
#define TILE_LIMBS(b, r)                                                                                               \
    case 3 * (b) + (r):                                                                                                \
        return tile_limbs_body(x, of, with, b, r, low, high);
    switch (3 * (int)bias + (int)residual) {
        TILE_LIMBS(GEMM_ADDEND_NONE, GEMM_ADDEND_HIGH)
        TILE_LIMBS(GEMM_ADDEND_NONE, GEMM_ADDEND_BOTH)
        TILE_LIMBS(GEMM_ADDEND_HIGH, GEMM_ADDEND_NONE)
        TILE_LIMBS(GEMM_ADDEND_HIGH, GEMM_ADDEND_HIGH)
        TILE_LIMBS(GEMM_ADDEND_HIGH, GEMM_ADDEND_BOTH)
        TILE_LIMBS(GEMM_ADDEND_BOTH, GEMM_ADDEND_NONE)
        TILE_LIMBS(GEMM_ADDEND_BOTH, GEMM_ADDEND_HIGH)
        TILE_LIMBS(GEMM_ADDEND_BOTH, GEMM_ADDEND_BOTH)
    default:
        return tile_limbs_body(x, of, with, GEMM_ADDEND_NONE, GEMM_ADDEND_NONE, low, high);
    }
#undef TILE_LIMBS
}

static bool gemm_store_accumulated(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows,
                                   int64_t columns, const struct gemm_accumulated *x, void *stats) {
    struct gemm_stored *stored = stats;
    const struct fl_epilogue *e = &args->p.product.epilogue;
    const struct gemm_alignment by = fl_gemm_alignment(args);
    const int shift = by.exponent - fl_exponent(&args->out);
    if (!rounds_limbs(args, shift) || !gemm_limbs_have_room(&by) || (e->bias.data && e->bias.count != pitch))
        return false;
    int32_t low[GEMM_PANEL_ROWS_MAX * GEMM_PANEL_COLUMNS_MAX], high[GEMM_PANEL_ROWS_MAX * GEMM_PANEL_COLUMNS_MAX];
    const struct limb_rows of = {rows, columns, pitch, (columns + TILE_UNIT - 1) / TILE_UNIT * TILE_UNIT};
    const struct tile_addends with = {e->bias.data ? (const int16_t *)e->bias.data + first % pitch : NULL,
                                      gemm_residual(e, first, sizeof(int16_t)), by.up_bias, by.up_residual};
    const struct limb_range range = tile_limbs(x, &of, &with, low, high);
    if (!gemm_range_fits(range, rows * of.stride, low, high, shift, e->relu, &stored->sums))
        return false;
    gemm_store_fitting(element(&args->out, first), &of, low, high, shift, e->relu, &stored->sums);
    return true;
}

static void gemm_store_finish(const struct fl_args *args, const void *stats) {
    const struct gemm_stored *stored = stats;
    flex_stats_finish(&stored->sums, fl_gemm_alignment(args).exponent, args->stats);
    fl_stats_merge(args->stats, &stored->wide);
}

const struct gemm_stores FL_FOR_ISA(fl_flex_stores) = {
    .element_bytes = sizeof(int16_t),
    .sum_bytes = sizeof(int64_t),
    .stats_bytes = sizeof(struct gemm_stored),
    .sums = gemm_store_sums,
    .rows = gemm_store_rows,
    .accumulated = gemm_store_accumulated,
    .finish = gemm_store_finish,
};

#endif
