/* flex_optimiser.h - roots, ratios and limits of optimisers: numbers in double by the rules of
 * core/ops/optimisers/optimiser_rules.h, each rounded once, to the wide part if there is one.
 *
 * Gives: clip, root_mean, add_ratio. */
#ifndef FL_FLEX_OPTIMISER_H
#define FL_FLEX_OPTIMISER_H

#include "core/ops/optimisers/optimiser_rules.h"
#include "flex/flex_parts.h"

/* Loads n elements from `first` on, of the wide part if the view has one. */
static void optimiser_doubles(const struct fl_view *view, int64_t first, int64_t n, double *x) {
    const double unit = fl_power_of_two(-fl_exponent(view) - (view->wide ? 16 : 0));
    if (view->wide) {
        const int32_t *m = (const int32_t *)view->wide + first;
        for (int64_t i = 0; i < n; i++)
            x[i] = m[i] * unit;
        return;
    }
    const int16_t *m = (const int16_t *)view->data + first;
    for (int64_t i = 0; i < n; i++)
        x[i] = m[i] * unit;
}

/* Computes the results of a block from their operands. */
static void optimiser_numbers(const struct fl_args *args, int64_t first, int64_t n, double *y) {
    double x[2][FLEX_BLOCK];
    optimiser_doubles(&args->in[0], first, n, y);
    if (args->op == FL_OP_CLIP || args->op == FL_OP_CLIP_WEIGHT) {
        const double most = args->p.clip_weight.limit;
        for (int64_t i = 0; i < n; i++)
            y[i] = y[i] > most ? most : y[i] < -most ? -most : y[i];
        return;
    }
    const double *by = args->p.factored.factors, f[FL_FACTORS] = {by[0], by[1], by[2], args->in[2].data ? by[3] : 0};
    optimiser_doubles(&args->in[1], first, n, x[0]);
    if (args->op == FL_OP_ROOT_MEAN) {
        for (int64_t i = 0; i < n; i++)
            y[i] = fl_root_mean(y[i], x[0][i], f);
        return;
    }
    const struct fl_view *r = &args->in[2];
    const double least =
        fl_power_of_two(-fl_exponent(r) - (r->wide ? 16 : 0)); /* one step of the part that stores it */
    optimiser_doubles(r, first, n, x[1]);
    for (int64_t i = 0; i < n; i++)
        y[i] = fl_add_ratio(y[i], x[0][i], x[1][i] > least ? x[1][i] : least, f);
}

/* Records the largest finite magnitude, by words, which order as the numbers do. Returns how many are infinite, as a
 * ratio by zero is; none is NaN. */
static int64_t optimiser_note(const double *y, int64_t n, struct fl_stats *stats) {
    const int64_t beyond = INT64_C(0x7ff) << 52;
    int64_t largest = 0, infinite = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t word;
        memcpy(&word, &y[i], sizeof word);
        word &= INT64_MAX;
        infinite += word >= beyond;
        word = word < beyond ? word : 0;
        largest = word > largest ? word : largest;
    }
    double maximum;
    memcpy(&maximum, &largest, sizeof maximum);
    stats->maximum = maximum > stats->maximum ? maximum : stats->maximum;
    return infinite;
}

/* The rest of fl_put_nonfinite: infinite results were stored and counted as saturated with the others. */
static void optimiser_set_apart(const int16_t *dst, int64_t n, const double *y, int64_t infinite,
                                struct fl_stats *stats) {
    stats->nonfinite = infinite;
    stats->gamma = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t size = dst[i] < 0 ? -dst[i] : dst[i];
        if (fl_is_finite(y[i]) && size > stats->gamma)
            stats->gamma = size;
    }
}

/* Converts to units of 2^-e, clamped to +-reach. */
static void optimiser_inside(double *inside, int64_t n, const double *y, int e, double reach) {
    const double unit = fl_power_of_two(e);
    for (int64_t i = 0; i < n; i++) {
        const double x = y[i] * unit, below = x > reach ? reach : x;
        inside[i] = below < -reach ? -reach : below;
    }
}

/* Rounds to nearest and saturates as fl_put_number and fl_put_wide do, in passes that compilers vectorise. */
static void optimiser_round(int32_t *m, int64_t n, const double *y, int e, int32_t limit, struct fl_stats *stats) {
    double inside[FLEX_BLOCK];
    optimiser_inside(inside, n, y, e, (double)limit + 1);
    for (int64_t i = 0; i < n; i++)
        m[i] = (int32_t)fl_nearest_integer(inside[i]);
    int32_t saturated = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t x = m[i], below = x > limit ? limit : x;
        saturated += (x > limit) | (x < -limit);
        m[i] = below < -limit ? -limit : below;
    }
    stats->saturated += saturated;
}

/* Stores wide parts, and the elements that are their rounding. */
static void optimiser_store_wide(int32_t *wide, int16_t *dst, int64_t n, const double *y, int e,
                                 struct fl_stats *stats) {
    optimiser_round(wide, n, y, e, FL_WIDE_LIMIT, stats);
    int32_t high = 0, low = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t m = fl_narrow(wide[i]);
        high = m > high ? m : high;
        low = m < low ? m : low;
        dst[i] = (int16_t)m;
    }
    int64_t flushed = 0;
    for (int64_t i = 0; i < n; i++)
        flushed += (dst[i] == 0) & (y[i] != 0);
    stats->flushed += flushed;
    const int32_t size = -low > high ? -low : high;
    stats->gamma = size > stats->gamma ? size : stats->gamma;
}

static void optimiser_store_nearest(int16_t *dst, int64_t n, const double *y, int e, struct fl_stats *stats) {
    int32_t m[FLEX_BLOCK], high = 0, low = 0;
    int64_t flushed = 0;
    optimiser_round(m, n, y, e, FLEX_TOP, stats);
    for (int64_t i = 0; i < n; i++) {
        high = m[i] > high ? m[i] : high;
        low = m[i] < low ? m[i] : low;
        dst[i] = (int16_t)m[i];
    }
    for (int64_t i = 0; i < n; i++)
        flushed += (dst[i] == 0) & (y[i] != 0);
    stats->flushed += flushed;
    const int32_t size = -low > high ? -low : high;
    stats->gamma = size > stats->gamma ? size : stats->gamma;
}

/* floor(x + draw / 2^32) does not depend on the bits of x below 2^-32. Without them, x is an integer to be rounded by
 * 32 places. */
static void optimiser_store_draws(const struct fl_args *args, int64_t first, int64_t n, const double *y,
                                  struct fl_stats *stats) {
    enum { PLACES = 32 };
    double inside[FLEX_BLOCK];
    int64_t sums[FLEX_BLOCK], vanished = 0;
    struct flex_stats stored = {0};
    int16_t *dst = element(&args->out, first);
    optimiser_inside(inside, n, y, fl_exponent(&args->out), FLEX_TOP + 2.0);
    for (int64_t i = 0; i < n; i++)
        sums[i] = (int64_t)floor(inside[i] * 0x1p32);
    store_block(dst, first, n, sums, PLACES, &args->rounding, &stored);
    for (int64_t i = 0; i < n; i++)
        vanished += (sums[i] == 0) & (y[i] != 0); /* not zero before rounding */
    stats->gamma = stored.gamma > stats->gamma ? stored.gamma : stats->gamma;
    stats->saturated += stored.saturated;
    stats->flushed += stored.flushed + vanished;
}

static void optimiser_store(const struct fl_args *args, int64_t first, int64_t n, const double *y,
                            struct fl_stats *stats) {
    const int e = fl_exponent(&args->out);
    const int64_t infinite = optimiser_note(y, n, stats);
    struct fl_stats mine = {0};
    int16_t *dst = element(&args->out, first);
    if (!args->out.data)
        return;
    if (args->out.wide)
        optimiser_store_wide((int32_t *)args->out.wide + first, dst, n, y, e + 16, &mine);
    else if (args->rounding.mode == TENSOR_ROUND_STOCHASTIC)
        optimiser_store_draws(args, first, n, y, &mine);
    else
        optimiser_store_nearest(dst, n, y, e, &mine);
    if (infinite)
        optimiser_set_apart(dst, n, y, infinite, &mine);
    fl_stats_merge(stats, &mine);
}

/* Notes the largest root where nothing is stored. Rounded roots are monotone, so it is that of the largest sum. */
static void optimiser_measure_roots(const struct fl_args *args, int64_t first, int64_t n, struct fl_stats *stats) {
    const double *by = args->p.factored.factors, f[FL_FACTORS] = {by[0], by[1], by[2]};
    double sum[FLEX_BLOCK], g[FLEX_BLOCK];
    struct fl_stats squares = {0};
    optimiser_doubles(&args->in[0], first, n, sum);
    optimiser_doubles(&args->in[1], first, n, g);
    for (int64_t i = 0; i < n; i++) {
        const double x = fl_mean_square(sum[i], g[i], f);
        sum[i] = x < 0 ? 0 : x;
    }
    optimiser_note(sum, n, &squares);
    const double root = sqrt(squares.maximum);
    stats->maximum = root > stats->maximum ? root : stats->maximum;
}

static void optimiser_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                          struct fl_stats *stats) {
    (void)plan;
    double y[FLEX_BLOCK];
    for (int64_t n; first < end; first += n) {
        n = minimum(end - first, FLEX_BLOCK);
        if (args->op == FL_OP_ROOT_MEAN && !args->out.data) {
            optimiser_measure_roots(args, first, n, stats);
            continue;
        }
        optimiser_numbers(args, first, n, y);
        optimiser_store(args, first, n, y, stats);
    }
}

static tensor_status root_mean(const struct fl_args *args) {
    run_parts(args, NULL, optimiser_run, args->out.count, FLEX_BLOCK);
    return TENSOR_OK;
}

static tensor_status add_ratio(const struct fl_args *args) {
    run_parts(args, NULL, optimiser_run, args->out.count, FLEX_BLOCK);
    return TENSOR_OK;
}

static tensor_status clip(const struct fl_args *args) {
    run_parts(args, NULL, optimiser_run, args->out.count, FLEX_BLOCK);
    return TENSOR_OK;
}

#endif
