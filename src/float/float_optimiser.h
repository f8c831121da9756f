/* float_optimiser.h - roots and ratios of optimisers: numbers in double by the rules of
 * core/ops/optimisers/optimiser_rules.h, rounded once to binary32; combinations of tensors, which are exact sums.
 *
 * Expects: a codec (float_block.h).
 * Gives: combine, root_mean, add_ratio, clip_weights. */
#ifndef FL_FLOAT_OPTIMISER_H
#define FL_FLOAT_OPTIMISER_H

#include "core/ops/optimisers/optimiser_rules.h"
#include "float/float_sgd.h"
#include "float/float_store.h"

/* The results of a block, as doubles that round as the exact ones do: to the wide part if there is one, of which the
 * elements are the rounding to nearest, otherwise to elements. */
static void optimiser_store(const struct fl_args *args, int64_t i, int64_t n, const double *v, struct fl_stats *stats) {
    if (!args->out.wide) {
        store_doubles(args, i, n, v, stats);
        return;
    }
    float y[FLOAT_BLOCK];
    for (int64_t j = 0; j < n; j++)
        y[j] = (float)v[j];
    if (args->out.data)
        memcpy((float *)args->out.wide + i, y, (size_t)n * sizeof *y);
    store_elements(args, i, n, y, stats);
}

static void combine_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                          struct fl_stats *stats) {
    (void)context;
    const double *f = args->p.factored.factors;
    const bool three = args->in[2].data;
    const double a = (float)f[0], b = (float)f[1], c = three ? (float)f[2] : 0;
    float buffer_p[FLOAT_BLOCK], buffer_q[FLOAT_BLOCK], buffer_w[FLOAT_BLOCK];
    double y[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        const float *p = weights_of(&args->in[0], i, n, buffer_p);
        const float *q = floats_of((const fl_element *)args->in[1].data + i, n, buffer_q);
        const float *w = three ? weights_of(&args->in[2], i, n, buffer_w) : p;
        if (three)
            for (int64_t j = 0; j < n; j++)
                y[j] = sum_odd(a * (double)p[j], b * (double)q[j], c * (double)w[j]) + 0.0;
        else
            for (int64_t j = 0; j < n; j++)
                y[j] = fl_sum_odd(a * (double)p[j], b * (double)q[j]) + 0.0;
        optimiser_store(args, i, n, y, stats);
    }
}

static void root_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                       struct fl_stats *stats) {
    (void)context;
    const double *by = args->p.factored.factors, f[FL_FACTORS] = {by[0], by[1], by[2]};
    float buffer_r[FLOAT_BLOCK], buffer_g[FLOAT_BLOCK];
    double y[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        const float *r = weights_of(&args->in[0], i, n, buffer_r);
        const float *g = floats_of((const fl_element *)args->in[1].data + i, n, buffer_g);
        for (int64_t j = 0; j < n; j++)
            y[j] = fl_root_mean(r[j], g[j], f);
        optimiser_store(args, i, n, y, stats);
    }
}

static void ratio_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                        struct fl_stats *stats) {
    (void)context;
    const double *by = args->p.factored.factors, f[FL_FACTORS] = {by[0], by[1], by[2], by[3]};
    float buffer_w[FLOAT_BLOCK], buffer_m[FLOAT_BLOCK], buffer_r[FLOAT_BLOCK];
    double y[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        const float *w = weights_of(&args->in[0], i, n, buffer_w);
        const float *m = weights_of(&args->in[1], i, n, buffer_m);
        const float *r = weights_of(&args->in[2], i, n, buffer_r);
        for (int64_t j = 0; j < n; j++)
            y[j] = fl_add_ratio(w[j], m[j], r[j], f);
        optimiser_store(args, i, n, y, stats);
    }
}

static void clip_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                       struct fl_stats *stats) {
    (void)context;
    const double most = args->p.clip_weight.limit;
    float buffer[FLOAT_BLOCK];
    double y[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        const float *w = weights_of(&args->in[0], i, n, buffer);
        for (int64_t j = 0; j < n; j++)
            y[j] = w[j] > most ? most : w[j] < -most ? -most : w[j];
        optimiser_store(args, i, n, y, stats);
    }
}

static tensor_status clip_weights(const struct fl_args *args) {
    return run_parts(args, args->out.count, 1, clip_range, NULL);
}

static tensor_status combine(const struct fl_args *args) {
    return run_parts(args, args->out.count, 1, combine_range, NULL);
}

static tensor_status root_mean(const struct fl_args *args) {
    return run_parts(args, args->out.count, 1, root_range, NULL);
}

static tensor_status add_ratio(const struct fl_args *args) {
    return run_parts(args, args->out.count, 1, ratio_range, NULL);
}

#endif
