/* flex_store.h - stores runs of exact integer sums in memory as 16-bit mantissas, with the statistics of the write.
 *
 * A sum s represents s * 2^-sum_exponent and is stored as s * 2^-shift, shift = sum_exponent - output exponent, rounded
 * to nearest even or stochastically, saturated to +-FLEX_TOP. round_one (flex_rounding.h) is the rule for one sum; the
 * other functions apply it to many at a time. Operations whose sums stay in registers round them there by the same
 * rule: flex_affine*.h, flex_sgd.h, flex_gemm.h, and means, which are no sums (flex_image.h).
 *
 * Gives: store_block, store_block32, store_wide, store_sum, store_sum_wide. */
#ifndef FL_FLEX_STORE_H
#define FL_FLEX_STORE_H

#include "core/tensor/element_rules.h"
#include "flex/flex_rounding.h"
#include "flex/flex_stochastic.h"

/* Stores sums[0 ... n), |sum| < 2^62, as elements first, first + 1, ... of the tensor, dst pointing at `first`.
 * dst NULL: measures only (stats->maximum). */
static void store_block(int16_t *dst, int64_t first, int64_t n, const int64_t *sums, int shift,
                        const struct fl_rounding *rounding, struct flex_stats *stats) {
    if (!dst) {
        note_maximum(stats, largest_64(n, sums));
        return;
    }
    for (int64_t i = 0; i < n; i += FLEX_STORE_RUN) {
        const int64_t run = n - i < FLEX_STORE_RUN ? n - i : FLEX_STORE_RUN;
        if (is_stochastic(shift, rounding))
            store_stochastic(dst + i, first + i, run, sums + i, shift, rounding, stats);
        else if (shift < 63) /* larger shifts would reach the sign bit */
            store_run_64(dst + i, run, sums + i, shift, stats);
        else
            store_any(dst + i, first + i, run, sums + i, shift, rounding, stats);
    }
}

/* The same for sums of at most 2^30 + 2^16 in magnitude, of which a vector holds twice as many. */
static void store_block32(int16_t *dst, int64_t first, int64_t n, const int32_t *sums, int shift,
                          const struct fl_rounding *rounding, struct flex_stats *stats) {
    if (!dst) {
        note_maximum(stats, largest_32(n, sums));
        return;
    }
    for (int64_t i = 0; i < n; i += FLEX_STORE_RUN) {
        const int64_t run = n - i < FLEX_STORE_RUN ? n - i : FLEX_STORE_RUN;
        if (shift < 31) {
            if (is_stochastic(shift, rounding))
                store_stochastic32(dst + i, first + i, run, sums + i, shift, rounding, stats);
            else
                store_run_32(dst + i, run, sums + i, shift, stats);
            continue;
        }
        int64_t wide[FLEX_STORE_RUN];
        for (int64_t j = 0; j < run; j++)
            wide[j] = sums[i + j];
        store_block(dst + i, first + i, run, wide, shift, rounding, stats);
    }
}

/* Stores weights with a wide part: the sum is rounded to it, to nearest, and the mantissa is its rounding. 1 <= shift
 * <= 62; the caller records the maximum. */
static void store_wide(int32_t *wide, int16_t *dst, int64_t n, const int64_t *sums, int shift,
                       struct flex_stats *stats) {
    const int64_t below_half = ((int64_t)1 << (shift - 1)) - 1;
    int64_t saturated = 0, flushed = 0;
    int32_t high = 0, low = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = sums[i], r = (x + below_half + ((x >> shift) & 1)) >> shift;
        const int64_t w = r > FL_WIDE_LIMIT ? FL_WIDE_LIMIT : r < -FL_WIDE_LIMIT ? -FL_WIDE_LIMIT : r;
        const int32_t m = fl_narrow((int32_t)w);
        saturated += w != r;
        flushed += (m == 0) & (x != 0);
        high = m > high ? m : high;
        low = m < low ? m : low;
        wide[i] = (int32_t)w;
        dst[i] = (int16_t)m;
    }
    stats->saturated += saturated;
    stats->flushed += flushed;
    note_gamma(stats, (uint64_t)(-low > high ? -low : high));
}

/* --- sums wider than 64 bits, one at a time; the caller records maxima ---------------------------------------- */

static inline void store_sum(const struct fl_args *args, int64_t i, struct fl_wide_sum sum, struct fl_stats *stats) {
    const struct fl_rounding *how = &args->rounding;
    const bool stochastic = how->mode == TENSOR_ROUND_STOCHASTIC;
    const uint32_t draw = stochastic ? fl_philox_draw(how->key, how->write, how->first + i) : 0;
    const int64_t m =
        fl_terms_round(sum, fl_exponent(&args->out), FLEX_TOP, stochastic ? &draw : NULL, &stats->saturated);
    ((int16_t *)args->out.data)[i] = (int16_t)fl_put_mantissa(m, FLEX_TOP, sum.m != 0, stats);
}

/* Stores a weight with a wide part: the sum is rounded to it, to nearest, and the mantissa is its rounding. */
static inline void store_sum_wide(const struct fl_args *args, int64_t i, struct fl_wide_sum sum,
                                  struct fl_stats *stats) {
    const int64_t wide = fl_terms_round(sum, fl_exponent(&args->out) + 16, FL_WIDE_LIMIT, NULL, &stats->saturated);
    ((int32_t *)args->out.wide)[i] = fl_put_wide(wide, sum.m != 0, (int16_t *)args->out.data + i, stats);
}

#endif
