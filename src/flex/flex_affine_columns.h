/* flex_affine_columns.h - computes a vector of a period of an affine map (flex_affine.h) for the rows of a tile, in
 * 64-bit lanes, or one element at a time if not even those hold the sums.
 *
 * Gives: affine, affine_column, affine_one, affine_each, affine_lanes. */
#ifndef FL_FLEX_AFFINE_COLUMNS_H
#define FL_FLEX_AFFINE_COLUMNS_H

#include "flex/flex_affine_plan.h"
#include "flex/flex_lanes.h"
#include "flex/flex_parts.h"
#include "flex/flex_store.h"

enum {
    AFFINE_TILE =
        4096, /* elements of the rows of a tile, which remain in L1 while the vectors of a period are computed */
    AFFINE_DRAW_PLACES = 32 /* least number of places below a mantissa's last one when draws are added to sums */
};

/* The terms of a sum besides the first product and the offset; constants where loops are compiled. */
enum affine_kind {
    AFFINE_SECOND = 1, /* + cross * x */
    AFFINE_GATED = 2,  /* a counts only if the gate is above zero */
    AFFINE_CLOSED = 4, /* the whole sum counts only then; it has no offset */
    AFFINE_RELU = 8    /* sums below zero count as zero */
};

/* One channel. */
struct affine_entry {
    struct affine_channel exact;
    struct affine_whole whole; /* the same in 64 bits, if it fits those */
    double unit;               /* the unit of its sums */
    bool is_whole;
};

/* LANES entries of the period in 64-bit lanes: struct affine_lane, transposed. */
struct affine_column {
    int64_t first[LANES], cross[LANES], first_is_coarse[LANES], coarse_up[LANES], fine_constant[LANES],
        fine_down[LANES], up[LANES], constant[LANES], sticky[LANES], shift[LANES];
    double unit[LANES];       /* the real value of a sum of 1 */
    bool fits, exact, simple; /* exact: no sum is rounded to odd; simple: the sum is first a + cross x + constant */
    bool straight;            /* the sum is (first a + cross x) 2^up + constant */
    bool level;               /* sums have no places below those to which draws are added */
};

struct affine_group;
struct affine {
    const int16_t *a, *x, *gate;
    int kind, e;          /* e: the exponent for rounding; if nothing is stored, one that suits the sums */
    double place, places; /* 2^-e, 2^e */
    int64_t channels, period, tile_rows;
    struct affine_entry *entries;  /* by channel */
    struct affine_group *groups;   /* by AFFINE_STEP entries of the period, in 32-bit lanes; NULL if unused */
    struct affine_column *columns; /* by LANES entries; filled if the group does not fit */
    double *known;                 /* the largest magnitude of a sum so far; parts need not search for smaller ones */
    bool stochastic;               /* every element has a draw; only in 64-bit lanes */
    bool straight;                 /* all columns are straight */
};

static double power_of_two(int exponent) {
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void note_size(struct fl_stats *stats, double size) {
    stats->maximum = size > stats->maximum ? size : stats->maximum;
}

/* The largest magnitude known so far in this part and in the others; their results are merged in any case. */
static double known_size(const struct affine *p, const struct fl_stats *stats) {
    double known;
    __atomic_load(p->known, &known, __ATOMIC_RELAXED);
    return fmax(known, stats->maximum);
}

/* --- one element at a time ---------------------------------------------------------------------------------------- */

/* The sum of element i, in 64 bits. */
static inline int64_t affine_whole_sum(const struct affine *p, const struct affine_whole *k, int64_t i) {
    const bool open = !p->gate || p->gate[i] > 0;
    int64_t t = k->constant;
    if (open)
        t += k->first * p->a[i];
    if (p->x && (open || !(p->kind & AFFINE_CLOSED)))
        t += k->cross * p->x[i];
    return p->kind & AFFINE_RELU && t < 0 ? 0 : t;
}

static struct fl_wide_sum affine_wide_sum(const struct affine *p, const struct affine_channel *k, int64_t i) {
    const bool open = !p->gate || p->gate[i] > 0;
    const int64_t a = open ? p->a[i] : 0, x = p->x && (open || !(p->kind & AFFINE_CLOSED)) ? p->x[i] : 0;
    const struct fl_term terms[3] = {{k->first.m * (a - k->first_centre), k->first.e},
                                     {k->cross.m * (x - k->cross_centre), k->cross.e},
                                     {k->offset.m, k->offset.e}};
    struct fl_wide_sum sum = fl_sum_terms(terms, 3);
    if (p->kind & AFFINE_RELU && sum.m < 0)
        sum.m = 0;
    return sum;
}

/* |exact sum| of element i. */
static double affine_exact_size(const struct affine *p, const struct affine_entry *k, int64_t i) {
    return k->is_whole ? fabs((double)affine_whole_sum(p, &k->whole, i)) * k->unit
                       : fl_wide_abs(affine_wide_sum(p, &k->exact, i));
}

/* Computes one element: after saturation, or if it does not fill a vector or fit its lanes. */
static void affine_one(const struct fl_args *args, const struct affine *p, int64_t c, int64_t i,
                       struct flex_stats *sums, struct fl_stats *stats) {
    const struct affine_entry *k = &p->entries[c];
    if (k->is_whole) {
        const int64_t t = affine_whole_sum(p, &k->whole, i);
        note_size(stats, fabs((double)t) * k->unit);
        if (args->out.data)
            store_any(element(&args->out, i), i, 1, &t, k->whole.exponent - p->e, &args->rounding, sums);
        return;
    }
    const struct fl_wide_sum t = affine_wide_sum(p, &k->exact, i);
    note_size(stats, fl_wide_abs(t));
    if (args->out.data)
        store_sum(args, i, t, stats);
}

/* Computes `width` entries of the period from j on, for `rows` rows from element i on. */
static void affine_each(const struct fl_args *args, const struct affine *p, int64_t j, int64_t i, int64_t rows,
                        int width, struct flex_stats *sums, struct fl_stats *stats) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t l = 0, c = j % p->channels; l < width; l++, c = c + 1 < p->channels ? c + 1 : 0)
            affine_one(args, p, c, i + row * p->period + l, sums, stats);
}

/* Finds the largest sum of entry j of the period in a tile. */
static void affine_look(const struct affine *p, int64_t j, int64_t i, int64_t rows, struct fl_stats *stats) {
    const struct affine_entry *k = &p->entries[j % p->channels];
    for (int64_t row = 0; row < rows; row++)
        note_size(stats, affine_exact_size(p, k, i + row * p->period));
}

/* --- 64-bit lanes ------------------------------------------------------------------------------------------------- */

/* Whether all shifts can be part of the multipliers. */
static bool lane_is_simple(const struct affine_lane *t) {
    return !t->fine_down && (LANES_WIDE_PRODUCT || !(t->coarse_up + t->up));
}

/* e: the exponent at which a rounding to odd must not matter, p->e or finer. */
static void fill_column(struct affine_column *v, const struct affine *p, int64_t j, int e) {
    struct affine_lane lane[LANES];
    v->fits = v->exact = v->simple = v->straight = v->level = true;
    for (int l = 0; l < LANES; l++) {
        v->fits = v->fits && affine_as_lane(&p->entries[(j + l) % p->channels].exact, e, &lane[l]);
        if (!v->fits) {
            v->straight = false;
            return;
        }
        v->simple = v->simple && lane_is_simple(&lane[l]);
        v->exact = v->exact && !lane[l].sticky && !lane[l].fine_down;
    }
    for (int l = 0; l < LANES; l++) {
        const struct affine_lane *t = &lane[l];
        const int coarse_up = v->simple ? (int)(t->coarse_up + t->up) : 0, fine_up = v->simple ? (int)t->up : 0;
        v->first[l] = t->first * ((int64_t)1 << (t->first_is_coarse ? coarse_up : fine_up));
        v->cross[l] = t->cross * ((int64_t)1 << (t->first_is_coarse ? fine_up : coarse_up));
        v->first_is_coarse[l] = t->first_is_coarse;
        v->coarse_up[l] = t->coarse_up;
        v->fine_constant[l] = t->fine_constant;
        v->fine_down[l] = t->fine_down;
        v->up[l] = v->simple ? 0 : t->up;
        v->constant[l] = t->constant;
        v->sticky[l] = t->sticky;
        v->shift[l] = t->exponent - p->e;
        v->unit[l] = power_of_two(-t->exponent);
        v->straight = v->straight && !t->fine_down && (v->simple || !p->x || !t->coarse_up);
        v->level = v->level && v->shift[l] == AFFINE_DRAW_PLACES;
    }
}

static inline lanes lanes_select(lanes mask, lanes yes, lanes no) {
    return (yes & mask) | (no & ~mask);
}

/* The coefficients of a column in registers. */
struct affine_terms {
    lanes first, cross, first_is_coarse, coarse_up, fine_start, fine_down, dropped, up, start, sticky;
};

/* zero: the value of a sum of zero, LANES_BIAS and any other constant in the sums. */
static inline __attribute__((always_inline)) struct affine_terms affine_terms_of(const struct affine_column *v,
                                                                                 lanes zero) {
    return (struct affine_terms){.first = lanes_at(v->first),
                                 .cross = lanes_at(v->cross),
                                 .first_is_coarse = lanes_at(v->first_is_coarse),
                                 .coarse_up = lanes_at(v->coarse_up),
                                 .fine_start = lanes_at(v->fine_constant) + LANES_BIAS,
                                 .fine_down = lanes_at(v->fine_down),
                                 .dropped = (lanes_all(1) << lanes_at(v->fine_down)) - 1,
                                 .up = lanes_at(v->up),
                                 .start = lanes_at(v->constant) + zero,
                                 .sticky = lanes_at(v->sticky)};
}

/* The sums of the elements from `at` on, rounded down; *odd: not zero if they are not exact. simple, that of the
 * column, is a constant of the caller. */
static inline __attribute__((always_inline)) lanes affine_sums(const struct affine *p, const struct affine_terms *k,
                                                               bool simple, int64_t at, lanes *odd) {
    const lanes of_a =
        lanes_product(k->first, p->gate ? lanes_gated(p->a + at, p->gate + at) : lanes_mantissas(p->a + at));
    lanes t = of_a;
    *odd = k->sticky;
    if (p->x) {
        const lanes of_x = lanes_product(k->cross, p->kind & AFFINE_CLOSED ? lanes_gated(p->x + at, p->gate + at)
                                                                           : lanes_mantissas(p->x + at));
        if (simple) {
            t += of_x;
        } else {
            const lanes fine = lanes_select(k->first_is_coarse, of_x, of_a) + k->fine_start;
            t = (lanes_select(k->first_is_coarse, of_a, of_x) << k->coarse_up) + lanes_floor_shift(fine, k->fine_down);
            *odd |= -((fine & k->dropped) != 0) & 1;
        }
    }
    return (simple ? t : t << k->up) + k->start;
}

/* Records the largest sum of entry j + l of the period, which is `size` in its lane. */
static void affine_note(const struct affine *p, const struct affine_column *v, int64_t j, int l, int64_t i,
                        int64_t rows, int64_t size, struct fl_stats *stats) {
    if (v->exact)
        note_size(stats, (double)size * v->unit[l]);
    else if ((double)(size + 1) * v->unit[l] > stats->maximum)
        affine_look(p, j + l, i + l, rows, stats);
}

/* Computes the vector at entry j of the period for `rows` rows from element i on. simple is a constant of the caller.
 */
static inline __attribute__((always_inline)) void affine_lanes_of(const struct fl_args *args, const struct affine *p,
                                                                  const struct affine_column *v, bool simple, int64_t j,
                                                                  int64_t i, int64_t rows, struct flex_stats *sums,
                                                                  struct fl_stats *stats) {
    const lanes shift = lanes_at(v->shift), unit = lanes_all(1) << shift;
    const lanes zero = (unit >> 1) + LANES_BIAS; /* sums include the half for rounding */
    const lanes least = p->kind & AFFINE_RELU ? zero : lanes_all(INT64_MIN);
    const struct affine_terms terms = affine_terms_of(v, zero);
    int16_t *y = element(&args->out, i);
    lanes high = lanes_all(INT64_MIN), low = lanes_all(INT64_MAX), lost = {0};
    for (int64_t row = 0; row < rows; row++) {
        lanes odd, t = affine_sums(p, &terms, simple, i + row * p->period, &odd);
        t = lanes_largest(t | odd, least);
        high = lanes_largest(high, t);
        low = lanes_smallest(low, t);
        if (y) {
            const lanes m = lanes_to_even(lanes_floor_shift(t, shift), t, unit - 1);
            lost = lanes_count_lost(lost, m, t, zero);
            lanes_store(y + row * p->period, m);
        }
    }
    const lanes size = lanes_largest(high - zero, zero - low);
    uint64_t gamma = 0;
    int64_t flushed = 0;
    for (int l = 0; l < LANES; l++) {
        const uint64_t rounded = (uint64_t)fl_shift_round(size[l], (int)shift[l]);
        gamma = rounded > gamma ? rounded : gamma;
        flushed += lost[l];
        affine_note(p, v, j, l, i, rows, size[l], stats);
    }
    if (!y)
        return;
    if (gamma <= FLEX_TOP) {
        note_gamma(sums, gamma);
        sums->flushed += flushed;
        return;
    }
    affine_each(args, p, j, i, rows, LANES, sums, stats);
}

static void affine_lanes(const struct fl_args *args, const struct affine *p, const struct affine_column *v, int64_t j,
                         int64_t i, int64_t rows, struct flex_stats *sums, struct fl_stats *stats) {
    if (v->simple)
        affine_lanes_of(args, p, v, true, j, i, rows, sums, stats);
    else
        affine_lanes_of(args, p, v, false, j, i, rows, sums, stats);
}

#endif
