/* flex_affine_pairs.h - affine maps in 32-bit lanes: coefficients cut into digits of 16 bits (struct affine_digits).
 *
 * One multiply-add of pairs gives the sum of a level; its low half is a digit of the whole sum, its high half is
 * carried into the level above. The top level is then the sum without its lower digits; its last bit is set if any of
 * these is not zero (round to odd), so that it rounds to 16 bits as the whole sum does.
 *
 * The largest sum must be known to the last bit. A tile records the extremes of its results; only if they reach the
 * largest one so far are the sums of a lane examined one by one.
 *
 * Gives: affine_group, fill_group, affine_pairs. */
#ifndef FL_FLEX_AFFINE_PAIRS_H
#define FL_FLEX_AFFINE_PAIRS_H

#include "flex/flex_affine_columns.h"
#include "flex/flex_pairs.h"

#ifdef FLEX_PAIRS
struct affine_half {
    int32_t digits[AFFINE_LEVELS][PAIRS];   /* pairs of 16-bit multipliers: of a, and of x or, without x, of one */
    int32_t constant[AFFINE_LEVELS][PAIRS]; /* the top one includes half a unit */
    int32_t sticky[PAIRS], shift[PAIRS];
};

/* GROUP entries of the period. */
struct affine_group {
    struct affine_half half[2];
    int levels; /* 0: the group does not fit */
};

static int32_t pair_of(int32_t first, int32_t cross) {
    return (int32_t)((uint32_t)(uint16_t)first | (uint32_t)(uint16_t)cross << 16);
}

static void set_lane(struct affine_half *h, int l, const struct affine *p, const struct affine_digits *t) {
    const int top = t->levels - 1;
    for (int level = 0; level <= top; level++) {
        h->digits[level][l] = pair_of(t->first[level], p->x ? t->cross[level] : level < top ? t->constant[level] : 0);
        h->constant[level][l] = t->constant[level];
    }
    h->constant[top][l] += (int32_t)1 << (t->shift - 1);
    h->sticky[l] = t->sticky;
    h->shift[l] = t->shift;
}

/* The largest number of levels for which there is a loop (affine_pairs). */
static int affine_most_levels(int kind) {
    return kind & AFFINE_CLOSED ? 2 : kind & AFFINE_SECOND ? AFFINE_LEVELS : 3;
}

/* All lanes of a group have the number of levels of the lane that needs most. */
static void fill_group(struct affine_group *g, const struct affine *p, int64_t j) {
    struct affine_digits digits[GROUP];
    const int64_t distinct = minimum(p->channels, GROUP);
    int levels = 2;
    g->levels = 0;
    for (int64_t i = 0; i < distinct; i++) {
        if (!affine_as_digits(&p->entries[(j + i) % p->channels].exact, p->e, levels, &digits[i]))
            return;
        levels = digits[i].levels;
    }
    if (levels > affine_most_levels(p->kind))
        return;
    for (int64_t i = 0; i < distinct; i++)
        if (digits[i].levels < levels &&
            !affine_as_digits_of(&p->entries[(j + i) % p->channels].exact, p->e, levels, &digits[i]))
            return;
    for (int half = 0; half < 2; half++)
        for (int l = 0; l < PAIRS; l++)
            set_lane(&g->half[half], l, p, &digits[place_of(half, l) % distinct]);
    g->levels = levels;
}

/* The same for all lanes. */
static void look_at_group(const struct fl_args *args, const struct affine *p, int64_t j, int64_t i, int64_t rows,
                          struct fl_stats *stats) {
    struct fl_args measure = *args;
    struct flex_stats none = {0};
    measure.out.data = NULL;
    for (int k = 0; k < GROUP; k += LANES) {
        struct affine_column v;
        fill_column(&v, p, j + k, p->e);
        if (v.fits)
            affine_lanes(&measure, p, &v, j + k, i + k, rows, &none, stats);
        else
            affine_each(&measure, p, j + k, i + k, rows, LANES, &none, stats);
    }
}

/* Handles a tile whose extremes reach the largest result so far. If results may saturate, it computes all again one by
 * one; otherwise it examines the lanes that may hold a new largest sum. Returns false if all were computed again. */
static __attribute__((noinline)) bool affine_extremes(const struct fl_args *args, const struct affine *p,
                                                      const int16_t *high, const int16_t *low, int64_t j, int64_t i,
                                                      int64_t rows, struct flex_stats *sums, struct fl_stats *stats) {
    const double known = known_size(p, stats);
    int candidates = 0, candidate = 0;
    int32_t gamma = 0;
    for (int k = 0; k < GROUP; k++) {
        const int32_t size = high[k] > -low[k] ? high[k] : -low[k];
        if (size >= FLEX_TOP) {
            affine_each(args, p, j, i, rows, GROUP, sums, stats);
            return false;
        }
        gamma = size > gamma ? size : gamma;
        if ((size + 0.5) * p->place > known) {
            candidates++;
            candidate = k;
        }
    }
    if (candidates == 1)
        affine_look(p, j + candidate, i + candidate, rows, stats);
    else if (candidates)
        look_at_group(args, p, j, i, rows, stats);
    double largest = fmax(known, stats->maximum);
    if (args->out.data)
        note_gamma(sums, (uint64_t)gamma);
    __atomic_store(p->known, &largest, __ATOMIC_RELAXED);
    return true;
}

/* Computes the group at entry j of the period for `rows` rows from element i on. kind and levels are constants of the
 * caller, so that each combination has its own loop. */
static inline __attribute__((always_inline)) void affine_group_of(const struct fl_args *args, const struct affine *p,
                                                                  int64_t j, int64_t i, int64_t rows, int kind,
                                                                  int levels, struct flex_stats *sums,
                                                                  struct fl_stats *stats) {
    const struct affine_group *g = &p->groups[j / GROUP];
    const int top = levels - 1;
    pairs digits[2][AFFINE_LEVELS], constant[2][AFFINE_LEVELS], sticky[2], shift[2], middle[2];
    for (int k = 0; k < 2; k++) {
        const struct affine_half *h = &g->half[k];
        for (int level = 0; level < levels; level++) {
            digits[k][level] = pairs_at(h->digits[level]);
            constant[k][level] = pairs_at(h->constant[level]);
        }
        sticky[k] = pairs_at(h->sticky);
        shift[k] = pairs_at(h->shift);
        middle[k] =
            pairs_all(1) << (shift[k] - 1); /* the top level of a sum of zero: it includes the half for rounding */
    }
    const int16_t *a = p->a + i, *x = p->x + (p->x ? i : 0), *gate = p->gate + (p->gate ? i : 0);
    int16_t *y = element(&args->out, i);
    mantissas seen_high = mantissas_all(0), seen_low = mantissas_all(0);
    pairs lost = {0};
    const int64_t ahead = p->tile_rows * p->period;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * p->period;
        const bool gated = kind & (AFFINE_GATED | AFFINE_CLOSED);
        __builtin_prefetch(a + at + ahead, 0, 2);
        if (kind & AFFINE_SECOND)
            __builtin_prefetch(x + at + ahead, 0, 2);
        if (gated)
            __builtin_prefetch(gate + at + ahead, 0, 2);
        const mantissas first = gated ? mantissas_gated(a + at, gate + at) : mantissas_at(a + at);
        mantissas second = mantissas_all(1);
        if (kind & AFFINE_SECOND)
            second = kind & AFFINE_CLOSED ? mantissas_gated(x + at, gate + at) : mantissas_at(x + at);
        pairs h[2], m[2];
        for (int k = 0; k < 2; k++) {
            const mantissas both = k ? pairs_high(first, second) : pairs_low(first, second);
            pairs below = {0}, carry = {0};
            for (int level = 0; level < top; level++) {
                /* without x the constant is a digit of the pair */
                const pairs start = kind & AFFINE_SECOND ? constant[k][level] + carry : carry;
                const pairs t = pairs_add_product(start, both, (mantissas)digits[k][level]);
                below |= t;
                carry = t >> 16;
            }
            h[k] = pairs_add_product(constant[k][top] + carry, both, (mantissas)digits[k][top]);
            h[k] = levels == 2 ? pairs_to_odd_sticky(h[k], below, sticky[k]) : pairs_to_odd(h[k], below);
            if (kind & AFFINE_RELU)
                h[k] = pairs_largest(h[k], middle[k]);
            m[k] = pairs_to_even(h[k] >> shift[k], h[k], middle[k] + middle[k] - 1);
            lost = pairs_count_lost(lost, m[k], h[k], middle[k]);
        }
        const mantissas result = pairs_pack(m[0], m[1]);
        seen_high = mantissas_largest(seen_high, result);
        if (!(kind & AFFINE_RELU))
            seen_low = mantissas_smallest(seen_low, result);
        if (y)
            mantissas_keep(y + at, result);
    }
    int64_t flushed = 0;
    for (int l = 0; l < PAIRS; l++)
        flushed += lost[l];
    int16_t largest[GROUP], smallest[GROUP];
    mantissas_keep(largest, seen_high);
    mantissas_keep(smallest, seen_low);
    const double known = known_size(p, stats), largest_result = rint(known * p->places);
    const int16_t limit = (int16_t)(largest_result < FLEX_TOP ? largest_result : FLEX_TOP);
    const bool passes = any_reaches(seen_high, limit) || any_reaches(mantissas_negated(seen_low), limit);
    const bool nothing = known == 0 && !flushed && !any_reaches(seen_high, 1) &&
                         !any_reaches(mantissas_negated(seen_low), 1); /* all sums are zero */
    if (nothing || !passes || affine_extremes(args, p, largest, smallest, j, i, rows, sums, stats))
        sums->flushed += args->out.data ? flushed : 0;
}

static void affine_pairs(const struct fl_args *args, const struct affine *p, int64_t j, int64_t i, int64_t rows,
                         struct flex_stats *sums, struct fl_stats *stats) {
    const int levels = p->groups[j / GROUP].levels;
#define LOOP(kind, levels)                                                                                             \
    case (kind)*8 + (levels):                                                                                          \
        affine_group_of(args, p, j, i, rows, kind, levels, sums, stats);                                               \
        break;
    switch (p->kind * 8 + levels) {
        LOOP(0, 2)
        LOOP(0, 3)
        LOOP(AFFINE_RELU, 2)
        LOOP(AFFINE_RELU, 3)
        LOOP(AFFINE_GATED, 2)
        LOOP(AFFINE_GATED, 3)
        LOOP(AFFINE_SECOND, 2)
        LOOP(AFFINE_SECOND, 3)
        LOOP(AFFINE_SECOND, 4)
        LOOP(AFFINE_SECOND | AFFINE_RELU, 2)
        LOOP(AFFINE_SECOND | AFFINE_RELU, 3)
        LOOP(AFFINE_SECOND | AFFINE_RELU, 4)
        LOOP(AFFINE_SECOND | AFFINE_GATED, 2)
        LOOP(AFFINE_SECOND | AFFINE_GATED, 3)
        LOOP(AFFINE_SECOND | AFFINE_GATED, 4)
        LOOP(AFFINE_SECOND | AFFINE_CLOSED, 2)
    }
#undef LOOP
}

#endif

#endif
