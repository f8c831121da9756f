/* flex_affine_draws.h - affine maps rounded stochastically, in 64-bit lanes: floor(sum + draw / 2^32).
 *
 * Sums have 32 places at least below the mantissa's last one (AFFINE_DRAW_PLACES), where the draw is added; lower
 * places do not overlap it, so the sum may be rounded down there without changing the result. The draws of a tile are
 * computed first; its columns read them in place.
 *
 * If all coefficients allow it, a tile is straight: only its results are computed, and they show whether any may have
 * saturated, or may be the largest sum so far. In that case, and for other coefficients, each column is computed with
 * complete statistics.
 *
 * Gives: affine_draw_tile. */
#ifndef FL_FLEX_AFFINE_DRAWS_H
#define FL_FLEX_AFFINE_DRAWS_H

#include "core/arithmetic/draws.h"
#include "flex/flex_affine_columns.h"

_Static_assert((int)AFFINE_TILE <= (int)DRAW_RUN, "the draws of a tile fit their buffer");

/* Computes a straight column for `rows` rows from element i on, with the draws at `draws`; returns how many sums are
 * zero. relu (of the map), exact and level (of the column) are constants of the caller. */
static inline __attribute__((always_inline)) int64_t
affine_straight_of(const struct fl_args *args, const struct affine *p, const struct affine_column *v, int64_t i,
                   int64_t rows, const uint32_t *draws, bool relu, bool exact, bool level) {
    const lanes zero = {0}, inexact = lanes_at(v->sticky) != zero, up = lanes_at(v->up), start = lanes_at(v->constant);
    const lanes first = lanes_at(v->first), cross = lanes_at(v->cross), down = lanes_at(v->shift) - AFFINE_DRAW_PLACES;
    int16_t *y = element(&args->out, i);
    lanes none = {0};
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * p->period, in = i + at;
        lanes t = lanes_product(first, p->gate ? lanes_gated(p->a + in, p->gate + in) : lanes_mantissas(p->a + in));
        if (p->x)
            t += lanes_product(cross, p->kind & AFFINE_CLOSED ? lanes_gated(p->x + in, p->gate + in)
                                                              : lanes_mantissas(p->x + in));
        t = (t << up) + start;
        const lanes sum = relu ? lanes_largest(t, zero) : t;
        none -= exact ? sum == zero : (sum == zero) & ~((t == zero) & inexact);
        const lanes floor = level ? sum : lanes_floor_shift(sum + LANES_BIAS, down);
        lanes_store_top(y + at, floor + lanes_unsigned(draws + at));
    }
    int64_t zeros = 0;
    for (int l = 0; l < LANES; l++)
        zeros += none[l];
    return zeros;
}

static int64_t affine_straight(const struct fl_args *args, const struct affine *p, const struct affine_column *v,
                               int64_t i, int64_t rows, const uint32_t *draws) {
    const bool relu = p->kind & AFFINE_RELU;
    if (!v->exact)
        return affine_straight_of(args, p, v, i, rows, draws, relu, false, false);
    if (!v->level)
        return relu ? affine_straight_of(args, p, v, i, rows, draws, true, true, false)
                    : affine_straight_of(args, p, v, i, rows, draws, false, true, false);
    return relu ? affine_straight_of(args, p, v, i, rows, draws, true, true, true)
                : affine_straight_of(args, p, v, i, rows, draws, false, true, true);
}

/* Computes any column; returns the largest sum of each lane; *zeros: how many sums are zero. simple, that of the
 * column, and fits are constants of the caller. fits: no result is beyond +-FLEX_TOP; otherwise such results saturate
 * and are counted. */
static inline __attribute__((always_inline)) lanes affine_draw_lanes(const struct fl_args *args, const struct affine *p,
                                                                     const struct affine_column *v, int64_t i,
                                                                     int64_t rows, const uint32_t *draws, bool simple,
                                                                     bool fits, int64_t *zeros, int64_t *saturated) {
    const lanes zero = lanes_all(LANES_BIAS), down = lanes_at(v->shift) - AFFINE_DRAW_PLACES;
    const lanes least = p->kind & AFFINE_RELU ? zero : lanes_all(INT64_MIN);
    const struct affine_terms terms = affine_terms_of(v, zero);
    int16_t *y = element(&args->out, i);
    lanes high = lanes_all(INT64_MIN), low = lanes_all(INT64_MAX), none = {0}, beyond = {0};
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * p->period;
        lanes odd;
        const lanes t = affine_sums(p, &terms, simple, i + at, &odd), sum = lanes_largest(t, least);
        high = lanes_largest(high, sum);
        low = lanes_smallest(low, sum);
        none -= (sum == zero) & ~((t == zero) & (odd != 0));
        lanes m =
            lanes_floor_shift(lanes_floor_shift(sum, down) + lanes_unsigned(draws + at) + LANES_BIAS, lanes_all(32));
        if (!fits) {
            const lanes r = m;
            m = lanes_smallest(lanes_largest(m, lanes_all(-FLEX_TOP)), lanes_all(FLEX_TOP));
            beyond -= m != r;
        }
        lanes_store(y + at, m);
    }
    for (int l = 0; l < LANES; l++) {
        *zeros += none[l];
        *saturated += beyond[l];
    }
    return lanes_largest(high - zero, zero - low);
}

/* Computes a column of a tile; returns how many of its zero results are not flushed, or already counted as flushed. */
static int64_t affine_draw_column(const struct fl_args *args, const struct affine *p, int64_t j, int64_t i,
                                  int64_t rows, const uint32_t *draws, struct flex_stats *sums,
                                  struct fl_stats *stats) {
    const struct affine_column *v = &p->columns[j / LANES];
    int64_t zeros = 0, saturated = 0;
    if (!v->fits) {
        affine_each(args, p, j, i, rows, LANES, sums, stats);
        for (int64_t row = 0; row < rows; row++)
            for (int l = 0; l < LANES; l++)
                zeros += *element(&args->out, i + row * p->period + l) == 0;
        return zeros;
    }
    const lanes size = v->simple ? affine_draw_lanes(args, p, v, i, rows, draws, true, true, &zeros, &saturated)
                                 : affine_draw_lanes(args, p, v, i, rows, draws, false, true, &zeros, &saturated);
    bool fits = true;
    for (int l = 0; l < LANES; l++) {
        fits = fits && run_fits((uint64_t)size[l], (int)v->shift[l]);
        affine_note(p, v, j, l, i, rows, size[l], stats);
    }
    if (!fits) {
        zeros = 0;
        if (v->simple)
            affine_draw_lanes(args, p, v, i, rows, draws, true, false, &zeros, &saturated);
        else
            affine_draw_lanes(args, p, v, i, rows, draws, false, false, &zeros, &saturated);
        sums->saturated += saturated;
    }
    return zeros;
}

/* The statistics of n results, `zeros` of which are not flushed. Results are at most 2^15 in size, n at most DRAW_RUN.
 */
struct affine_results {
    int32_t largest;
    int64_t zeros;
};

static struct affine_results affine_results_of(int64_t n, const int16_t *y) {
    int16_t high = 0, low = 0, zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        high = y[i] > high ? y[i] : high;
        low = y[i] < low ? y[i] : low;
        zeros += y[i] == 0;
    }
    return (struct affine_results){-low > high ? -low : high, zeros};
}

static void affine_note_results(const struct affine_results *r, int64_t zeros, struct flex_stats *sums) {
    note_gamma(sums, (uint64_t)r->largest);
    sums->flushed += r->zeros - zeros;
}

/* Computes columns start ... end-1 of `rows` rows from element `first` on, n elements in total. False if the results do
 * not suffice for the statistics: the caller computes all again. */
static bool affine_draw_straight(const struct fl_args *args, const struct affine *p, int64_t start, int64_t end,
                                 int64_t first, int64_t rows, int64_t n, const uint32_t *draws, struct flex_stats *sums,
                                 const struct fl_stats *stats) {
    int64_t zeros = 0;
    for (int64_t j = start; j < end; j += LANES)
        zeros += affine_straight(args, p, &p->columns[j / LANES], first + j, rows, draws + (j - start));
    const struct affine_results r = affine_results_of(n, element(&args->out, first + start));
    if (r.largest >= FLEX_TOP || (r.largest + 1) * p->place > known_size(p, stats))
        return false;
    affine_note_results(&r, zeros, sums);
    return true;
}

/* Computes `rows` rows from element `first` on: at most DRAW_RUN elements, or one row, which is split. */
static void affine_draw_tile(const struct fl_args *args, const struct affine *p, int64_t first, int64_t rows,
                             struct flex_stats *sums, struct fl_stats *stats) {
    struct draws memory;
    for (int64_t start = 0; start < p->period; start += DRAW_RUN) {
        const int64_t end = minimum(start + DRAW_RUN, p->period), n = (rows - 1) * p->period + end - start;
        const uint32_t *draws = draws_of(&args->rounding, first + start, n, &memory);
        if (p->straight && affine_draw_straight(args, p, start, end, first, rows, n, draws, sums, stats))
            continue;
        int64_t zeros = 0;
        for (int64_t j = start; j < end; j += LANES)
            zeros += affine_draw_column(args, p, j, first + j, rows, draws + (j - start), sums, stats);
        const struct affine_results r = affine_results_of(n, element(&args->out, first + start));
        affine_note_results(&r, zeros, sums);
        double largest = known_size(p, stats);
        __atomic_store(p->known, &largest, __ATOMIC_RELAXED);
    }
}

#endif
