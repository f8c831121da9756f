/* flex_rounding.h - rounds exact integer sums one by one, by the rule of flex_store.h, and includes flex_round.inc for
 * runs of sums of 64 and of 32 bits.
 *
 * Gives: FLEX_STORE_RUN, saturate, round_one, is_stochastic, store_any. */
#ifndef FL_FLEX_ROUNDING_H
#define FL_FLEX_ROUNDING_H

#include "core/arithmetic/exact.h"
#include "core/arithmetic/philox.h"
#include "core/table/kernel.h"
#include "flex/flex_stats.h"

enum { FLEX_STORE_RUN = 1024 };

/* Saturates a rounded result to a mantissa and counts it. zero: the exact result is zero. */
static int16_t saturate(int64_t r, bool zero, struct flex_stats *stats) {
    note_gamma(stats, r < 0 ? -(uint64_t)r : (uint64_t)r);
    stats->flushed += !zero && r == 0;
    stats->saturated += r > FLEX_TOP || r < -FLEX_TOP;
    return (int16_t)(r > FLEX_TOP ? FLEX_TOP : r < -FLEX_TOP ? -FLEX_TOP : r);
}

/* x / 2^shift by any rounding (draw NULL: nearest) and any shift; beyond +-FLEX_TOP only the sign is right. */
static int64_t round_one(int64_t x, int shift, const uint32_t *draw) {
    if (shift <= 0)
        return x > FLEX_TOP || x < -FLEX_TOP ? x : x * ((int64_t)1 << (shift < -16 ? 16 : -shift));
    if (!draw)
        return fl_shift_round(x, shift);
    if (shift <= 62)
        return fl_shift_stochastic(x, shift, *draw);
    /* |x| < 2^62: above 95 only the sign matters, and whether the draw is zero */
    const int by = shift < 95 ? shift : 95;
    return (int64_t)(((fl_int128)x + ((fl_int128)*draw << (by - 32))) >> by);
}

static bool is_stochastic(int shift, const struct fl_rounding *rounding) {
    return rounding->mode == TENSOR_ROUND_STOCHASTIC && shift > 0;
}

/* Stores sums that no vector form covers, one by one. */
static void store_any(int16_t *dst, int64_t first, int64_t n, const int64_t *sums, int shift,
                      const struct fl_rounding *rounding, struct flex_stats *stats) {
    const bool stochastic = is_stochastic(shift, rounding);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t draw =
            stochastic ? fl_philox_draw(rounding->key, rounding->write, rounding->first + first + i) : 0;
        note_maximum(stats, sums[i] < 0 ? -(uint64_t)sums[i] : (uint64_t)sums[i]);
        dst[i] = saturate(round_one(sums[i], shift, stochastic ? &draw : NULL), sums[i] == 0, stats);
    }
}

#define SUM int64_t
#define USUM uint64_t
#define NAME(x) x##_64
#include "flex/flex_round.inc"
#define SUM int32_t
#define USUM uint32_t
#define NAME(x) x##_32
#include "flex/flex_round.inc"

#endif
