/* flex_sgd.h - stochastic gradient descent: each new value is one exact sum of up to three terms, rounded once.
 *
 * Gives: weighted_sum. */
#ifndef FL_FLEX_SGD_H
#define FL_FLEX_SGD_H

#include "flex/flex_lanes.h"
#include "flex/flex_parts.h"
#include "flex/flex_sgd_plan.h"
#include "flex/flex_store.h"

static struct flex_sgd sgd_plan(const struct fl_args *args) {
    return flex_sgd_of_task(args, args->op == FL_OP_SGD_UPDATE ? args->p.sgd.rate : args->p.sgd.momentum,
                            args->rounding.mode == TENSOR_ROUND_STOCHASTIC);
}

static void sgd_each(const struct fl_args *args, const struct flex_sgd *p, int64_t first, int64_t end,
                     struct fl_stats *stats) {
    const bool wide = args->out.wide;
    for (int64_t i = first; i < end; i++) {
        const struct fl_wide_sum sum = flex_sgd_sum(args, p, i);
        const double size = fl_wide_abs(sum);
        stats->maximum = size > stats->maximum ? size : stats->maximum;
        if (args->out.data && wide)
            store_sum_wide(args, i, sum, stats);
        else if (args->out.data)
            store_sum(args, i, sum, stats);
    }
}

/* --- vectors ------------------------------------------------------------------------------------------------------ */

/* An operand from some element on: mantissas of one of the two widths. */
struct sgd_operand {
    const int16_t *narrow;
    const int32_t *wide;
};

static inline __attribute__((always_inline)) lanes sgd_vector(const struct flex_sgd *p, const struct sgd_operand *in,
                                                              int64_t i, int terms, bool cut) {
    lanes sum = {0}, rest = {0};
    for (int j = 0; j < terms; j++) {
        const lanes m = in[j].wide ? lanes_wide(in[j].wide + i) : lanes_mantissas(in[j].narrow + i);
        const lanes product = lanes_product(lanes_all(p->factor[j].m), m);
        if (!cut) {
            sum += product << lanes_all(p->up[j]);
        } else if (p->up[j] >= p->cut) {
            sum += product << lanes_all(p->up[j] - p->cut);
        } else {
            const int down = p->cut - p->up[j];
            sum += lanes_floor_shift(product + LANES_BIAS, lanes_all(down));
            rest += (product & (((int64_t)1 << down) - 1)) << lanes_all(p->up[j]);
        }
    }
    if (cut) {
        sum += rest >> lanes_all(p->cut);
        sum |= ((rest & (((int64_t)1 << p->cut) - 1)) != 0) & 1;
    }
    return sum;
}

static inline __attribute__((always_inline)) void sgd_sums_of(int64_t *t, int64_t n, const struct flex_sgd *p,
                                                              const struct sgd_operand *in, int terms, bool cut) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const lanes sum = sgd_vector(p, in, i, terms, cut);
        memcpy(t + i, &sum, sizeof sum);
    }
    if (i == n)
        return;
    int16_t narrow[FLEX_SGD_TERMS][LANES] = {{0}};
    int32_t wide[FLEX_SGD_TERMS][LANES] = {{0}};
    struct sgd_operand last[FLEX_SGD_TERMS] = {{0}};
    for (int j = 0; j < terms; j++) {
        if (in[j].wide)
            last[j].wide = memcpy(wide[j], in[j].wide + i, (size_t)(n - i) * sizeof wide[j][0]);
        else
            last[j].narrow = memcpy(narrow[j], in[j].narrow + i, (size_t)(n - i) * sizeof narrow[j][0]);
    }
    const lanes sum = sgd_vector(p, last, 0, terms, cut);
    memcpy(t + i, &sum, (size_t)(n - i) * sizeof t[0]);
}

static void sgd_sums(int64_t *t, int64_t n, const struct flex_sgd *p, const struct sgd_operand *in) {
    if (p->terms == 2)
        if (p->cut)
            sgd_sums_of(t, n, p, in, 2, true);
        else
            sgd_sums_of(t, n, p, in, 2, false);
    else if (p->cut)
        sgd_sums_of(t, n, p, in, 3, true);
    else
        sgd_sums_of(t, n, p, in, 3, false);
}

/* The largest |sum| of a block, correctly rounded. A sum cut by rounding to odd rounds like the exact one if it has two
 * bits more than a double; otherwise those with the largest cut value are summed again. */
static double sgd_largest(const struct fl_args *args, const struct flex_sgd *p, int64_t first, int64_t n,
                          const int64_t *t, uint64_t largest) {
    if (!p->cut || largest >> 55 || !largest) /* a sum of nothing but zero bits is zero */
        return ldexp((double)largest, p->cut - p->exponent);
    double size = 0;
    for (int64_t i = 0; i < n; i++)
        if ((t[i] < 0 ? -(uint64_t)t[i] : (uint64_t)t[i]) == largest)
            size = fmax(size, fl_wide_abs(flex_sgd_sum(args, p, first + i)));
    return size;
}

static void sgd_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end, struct fl_stats *stats) {
    const struct flex_sgd *p = plan;
    if (!p->is_short) {
        sgd_each(args, p, first, end, stats);
        return;
    }
    int32_t *wide = args->out.wide;
    uint64_t largest = 0;
    struct flex_stats sums = {0};
    int64_t t[FLEX_BLOCK];
    for (int64_t n; first < end; first += n) {
        n = minimum(end - first, FLEX_BLOCK);
        struct sgd_operand in[FLEX_SGD_TERMS];
        for (int j = 0; j < p->terms; j++) {
            const struct fl_view *view = &args->in[j];
            in[j] = (struct sgd_operand){element(view, first), view->wide ? (int32_t *)view->wide + first : NULL};
        }
        sgd_sums(t, n, p, in);
        sums.maximum = largest_64(n, t);
        if (sums.maximum >= largest) { /* before the operands are overwritten */
            largest = sums.maximum;
            stats->maximum = fmax(stats->maximum, sgd_largest(args, p, first, n, t, largest));
        }
        if (args->out.data && wide)
            store_wide(wide + first, element(&args->out, first), n, t, p->shift - 16, &sums);
        else if (args->out.data)
            store_block(element(&args->out, first), first, n, t, p->shift, &args->rounding, &sums);
    }
    stats->gamma = sums.gamma;
    stats->saturated = sums.saturated;
    stats->flushed = sums.flushed;
}

/* sgd_momentum, sgd_update, combine */
static tensor_status weighted_sum(const struct fl_args *args) {
    const struct flex_sgd plan = sgd_plan(args);
    run_parts(args, &plan, sgd_run, args->out.count, FLEX_BLOCK);
    return TENSOR_OK;
}

#endif
