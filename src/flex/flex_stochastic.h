/* flex_stochastic.h - rounds runs of integer sums stochastically, floor(x + draw / 2^32), in vectors.
 *
 * Three passes over a run that stays in L1: draws (core/arithmetic/draws.h); results in 32 bits; mantissas and
 * statistics. Unlike with rounding to nearest, the largest result does not follow from the largest sum: an element
 * below it may be rounded up. Whether anything saturates does follow from it: sums within +-FLEX_TOP are rounded within
 * it.
 *
 * Gives: run_fits, keep_results, store_stochastic, store_stochastic32. */
#ifndef FL_FLEX_STOCHASTIC_H
#define FL_FLEX_STOCHASTIC_H

#include "core/arithmetic/draws.h"
#include "flex/flex_lanes.h"
#include "flex/flex_rounding.h"

/* A run fits if no result, however it is rounded, is beyond +-FLEX_TOP. Sums are below 2^62. */
static bool run_fits(uint64_t maximum, int shift) {
    return shift > 46 || maximum <= (uint64_t)FLEX_TOP << shift;
}

/* How sums are shifted to 32 places below the point, to which the draw is added; lower bits do not overlap it. Sums
 * that do not fit are clamped to 2^15 before, which saturates too. */
struct places {
    int up, down;
    int64_t limit;
};

static struct places places_of(int shift, bool fits) {
    const int down = shift < 32 ? 0 : shift < 95 ? shift - 32 : 63; /* sums are below 2^62, so only the sign remains */
    return (struct places){shift < 32 ? 32 - shift : 0, down, (int64_t)1 << (fits ? 62 : shift + 15)};
}

/* Adds the draw; the result is the high half. fits is a constant of the caller. */
static inline __attribute__((always_inline)) lanes draw_lanes(lanes x, lanes draw, const struct places *p, bool fits) {
    if (!fits)
        x = lanes_smallest(lanes_largest(x, lanes_all(-p->limit)), lanes_all(p->limit));
    x = p->up ? x << lanes_all(p->up) : lanes_floor_shift(x + LANES_BIAS, lanes_all(p->down));
    return x + draw;
}

static inline __attribute__((always_inline)) void
round_draws_64(int32_t *r, int64_t n, const int64_t *x, const uint32_t *draws, const struct places *p, bool fits) {
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        lanes_store_high(r + i, draw_lanes(lanes_at(x + i), lanes_unsigned(draws + i), p, fits),
                         draw_lanes(lanes_at(x + i + LANES), lanes_unsigned(draws + i + LANES), p, fits));
    for (; i < n; i++) {
        const int64_t below = fits || x[i] < p->limit ? x[i] : p->limit,
                      cut = fits || below > -p->limit ? below : -p->limit;
        r[i] = (int32_t)(((p->up ? cut * ((int64_t)1 << p->up) : cut >> p->down) + draws[i]) >> 32);
    }
}

/* The same for sums of at most 2^30 + 2^16 in magnitude, 1 <= shift <= 30. */
static void round_draws_32(int32_t *r, int64_t n, const int32_t *x, const uint32_t *draws, int shift) {
    for (int64_t i = 0; i < n; i++)
        r[i] = (x[i] + (int32_t)(draws[i] >> (32 - shift))) >> shift;
}

/* Stores results as mantissas with their statistics; `zeros` of the sums were zero. */
static inline __attribute__((always_inline)) void keep_results(int16_t *dst, int64_t n, const int32_t *r, bool fits,
                                                               int64_t zeros, struct flex_stats *stats) {
    int32_t high = 0, low = 0, none = 0, saturated = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t below = fits || r[i] < FLEX_TOP ? r[i] : FLEX_TOP;
        const int32_t m = fits || below > -FLEX_TOP ? below : -FLEX_TOP;
        high = m > high ? m : high;
        low = m < low ? m : low;
        none += m == 0;
        saturated += m != r[i];
        dst[i] = (int16_t)m;
    }
    note_gamma(stats, (uint64_t)(-low > high ? -low : high));
    stats->flushed += none - zeros;
    stats->saturated += saturated;
}

/* Stores a run of at most FLEX_STORE_RUN sums, |sum| < 2^62, from element `first` on; shift >= 1. */
static void store_stochastic(int16_t *dst, int64_t first, int64_t n, const int64_t *sums, int shift,
                             const struct fl_rounding *rounding, struct flex_stats *stats) {
    struct draws memory;
    int32_t r[FLEX_STORE_RUN];
    const uint32_t *draws = draws_of(rounding, first, n, &memory);
    int64_t zeros;
    const uint64_t maximum = scan_zeros_64(n, sums, &zeros);
    note_maximum(stats, maximum);
    const bool fits = run_fits(maximum, shift);
    const struct places places = places_of(shift, fits);
    if (fits) {
        round_draws_64(r, n, sums, draws, &places, true);
        keep_results(dst, n, r, true, zeros, stats);
    } else {
        round_draws_64(r, n, sums, draws, &places, false);
        keep_results(dst, n, r, false, zeros, stats);
    }
}

/* The same for sums of at most 2^30 + 2^16 in magnitude, 1 <= shift <= 30. */
static void store_stochastic32(int16_t *dst, int64_t first, int64_t n, const int32_t *sums, int shift,
                               const struct fl_rounding *rounding, struct flex_stats *stats) {
    struct draws memory;
    int32_t r[FLEX_STORE_RUN];
    const uint32_t *draws = draws_of(rounding, first, n, &memory);
    int64_t zeros;
    const uint64_t maximum = scan_zeros_32(n, sums, &zeros);
    note_maximum(stats, maximum);
    round_draws_32(r, n, sums, draws, shift);
    if (run_fits(maximum, shift))
        keep_results(dst, n, r, true, zeros, stats);
    else
        keep_results(dst, n, r, false, zeros, stats);
}

#endif
