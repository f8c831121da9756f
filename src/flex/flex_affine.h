/* flex_affine.h - per-channel affine maps (batch normalisation and its gradient; elementwise sums of two operands as
 * maps of one channel): coefficients with separate exponents, one exact sum, one rounding.
 *
 * As many rows as fill whole vectors are a period. Each vector of a period has its own coefficients, which stay in
 * registers while it is computed for the rows of a tile. Of the forms in flex_affine_plan.h, each vector uses the
 * fastest that is exact for all its channels: digits in 32-bit lanes (flex_affine_pairs.h), 64-bit lanes, otherwise one
 * element at a time. flex_affine_draws.h has stochastic rounding.
 *
 * Gives: new_affine, finish_affine, affine_run, channel_affine. */
#ifndef FL_FLEX_AFFINE_H
#define FL_FLEX_AFFINE_H

#include "flex/flex_affine_columns.h"
#include "flex/flex_affine_draws.h"
#include "flex/flex_affine_pairs.h"
#include "flex/flex_affine_plan.h"
#include "flex/flex_parts.h"

#ifdef FLEX_PAIRS
enum { AFFINE_STEP = GROUP };
#else
enum { AFFINE_STEP = LANES };
#endif

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static int64_t affine_period(int64_t channels) {
    while (channels % AFFINE_STEP)
        channels *= 2;
    return channels;
}

/* The bytes of the arrays of a plan, in the order of the workspace. */
struct affine_sizes {
    size_t groups, columns, entries;
};

static struct affine_sizes affine_sizes(int64_t channels, int64_t period) {
    struct affine_sizes s = {.columns = fl_line_bytes((size_t)period / LANES * sizeof(struct affine_column)),
                             .entries = fl_line_bytes((size_t)channels * sizeof(struct affine_entry))};
#ifdef FLEX_PAIRS
    s.groups = fl_line_bytes((size_t)period / GROUP * sizeof(struct affine_group));
#endif
    return s;
}

static size_t affine_bytes(int64_t channels) {
    const struct affine_sizes s = affine_sizes(channels, affine_period(channels));
    return s.groups + s.columns + s.entries + sizeof(double);
}

/* Makes a plan for n channels, whose entries[].exact the caller must fill; false if memory is lacking. */
static bool new_affine(struct affine *p, const struct fl_args *args, int64_t channels, int kind) {
    *p = (struct affine){.a = args->in[0].data, .kind = kind, .channels = channels, .period = affine_period(channels)};
    p->tile_rows = p->period < AFFINE_TILE ? AFFINE_TILE / p->period : 1;
    const struct affine_sizes bytes = affine_sizes(channels, p->period);
    char *block = fl_workspace(args, affine_bytes(channels));
    if (!block)
        return false;
    p->groups = (struct affine_group *)block;
    p->columns = (struct affine_column *)(block + bytes.groups);
    p->entries = (struct affine_entry *)(block + bytes.groups + bytes.columns);
    p->known = (double *)(block + bytes.groups + bytes.columns + bytes.entries);
    *p->known = 0;
    return true;
}

/* Completes the plan after entries[].exact are filled. */
static void finish_affine(struct affine *p, const struct fl_args *args) {
    p->stochastic = args->out.data && args->rounding.mode == TENSOR_ROUND_STOCHASTIC;
    int largest = INT_MIN;
    for (int64_t c = 0; c < p->channels; c++) {
        struct affine_entry *k = &p->entries[c];
        k->is_whole = affine_as_whole(&k->exact, &k->whole);
        k->unit = k->is_whole ? power_of_two(-k->whole.exponent) : 0;
        const int size = affine_size(&k->exact);
        largest = size > largest ? size : largest;
    }
    /* If nothing is stored, it uses an exponent at which no result saturates. */
    p->e = args->out.data ? fl_exponent(&args->out) : affine_measuring_exponent(largest);
    p->place = ldexp(1, -p->e);
    p->places = ldexp(1, p->e);
    const int place =
        p->e + (p->stochastic ? AFFINE_DRAW_PLACES - 2 : 0); /* the forms have two more places in any case */
    p->straight = true;
    for (int64_t j = 0; j < p->period; j += AFFINE_STEP) {
#ifdef FLEX_PAIRS
        p->groups[j / GROUP].levels = 0;
        if (!p->stochastic)
            fill_group(&p->groups[j / GROUP], p, j);
        if (p->groups[j / GROUP].levels)
            continue;
#endif
        for (int64_t k = j; k < j + AFFINE_STEP; k += LANES) {
            fill_column(&p->columns[k / LANES], p, k, place);
            p->straight = p->straight && p->columns[k / LANES].straight;
        }
    }
}

static void affine_tile(const struct fl_args *args, const struct affine *p, int64_t first, int64_t rows,
                        struct flex_stats *sums, struct fl_stats *stats) {
    for (int64_t j = 0; j < p->period; j += AFFINE_STEP) {
#ifdef FLEX_PAIRS
        if (p->groups[j / GROUP].levels) {
            affine_pairs(args, p, j, first + j, rows, sums, stats);
            continue;
        }
#endif
        for (int64_t k = j; k < j + AFFINE_STEP; k += LANES) {
            const struct affine_column *v = &p->columns[k / LANES];
            if (v->fits)
                affine_lanes(args, p, v, k, first + k, rows, sums, stats);
            else
                affine_each(args, p, k, first + k, rows, LANES, sums, stats);
        }
    }
}

static void affine_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                       struct fl_stats *stats) {
    const struct affine *p = plan;
    struct flex_stats sums = {0};
    while (end - first >= p->period) {
        const int64_t rows = minimum((end - first) / p->period, p->tile_rows);
        if (p->stochastic)
            affine_draw_tile(args, p, first, rows, &sums, stats);
        else
            affine_tile(args, p, first, rows, &sums, stats);
        first += rows * p->period;
    }
    for (int64_t c = first % p->channels; first < end; first++, c = c + 1 < p->channels ? c + 1 : 0)
        affine_one(args, p, c, first, &sums, stats);
    stats->gamma = sums.gamma > stats->gamma ? sums.gamma : stats->gamma;
    stats->saturated += sums.saturated;
    stats->flushed += sums.flushed;
}

/* channel_affine, channel_affine_grad */
static size_t channel_affine_need(const struct fl_args *args) {
    return affine_bytes(args->p.rows.n);
}

static tensor_status channel_affine(const struct fl_args *args) {
    struct affine p;
    if (!new_affine(&p, args, args->p.rows.n,
                    (args->in[1].data ? AFFINE_SECOND : 0) | (args->in[2].data ? AFFINE_GATED : 0) |
                        (args->p.batch_norm.relu ? AFFINE_RELU : 0)))
        return TENSOR_E_MEMORY;
    p.x = args->in[1].data;
    p.gate = args->in[2].data;
    for (int64_t c = 0; c < p.channels; c++)
        p.entries[c].exact = affine_channel_of(&args->p.batch_norm.channels, c, p.x != NULL);
    finish_affine(&p, args);
    run_parts(args, &p, affine_run, args->out.count, p.period);
    return TENSOR_OK;
}

#endif
