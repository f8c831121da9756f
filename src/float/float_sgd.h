/* float_sgd.h - stochastic gradient descent: each result is one exact sum, rounded once to binary32, or
 * stochastically straight to the format.
 *
 * A product of two binary32 numbers is exact in double, so both results are sums of two or three doubles. Rounded to
 * odd in double (fl_sum_odd), such a sum rounds to binary32 as the exact one would. An exact sum of zero is +0.
 *
 * Expects: a codec (float_block.h).
 * Gives: sum_odd, weights_of, sgd_momentum, sgd_update. */
#ifndef FL_FLOAT_SGD_H
#define FL_FLOAT_SGD_H

#include "core/arithmetic/exact.h"
#include "float/float_parts.h"
#include "float/float_store.h"

/* a + b + c rounded to odd. After Boldo and Melquiond (2008), "Emulation of FMA and correctly rounded sums: proved
 * algorithms using rounding to odd": b + c = u + u', a + u = t + t' exactly, and the result is t + (t' + u'), both sums
 * rounded to odd.
 * Where t' is not zero, a and u did not cancel (a sum of neighbours within a factor of two is exact), so |t' + u'| is
 * at most two units of t's last place; rounding it to odd never crosses or reaches a multiple of that place or half of
 * it, such as the numbers half way between two binary32, unless it is exact. Where t' is zero, t' + u' = u' is exact.
 */
static inline double sum_odd(double a, double b, double c) {
    const double u = b + c, b_part = u - c, u_error = (b - b_part) + (c - (u - b_part));
    const double t = a + u, a_part = t - u, t_error = (a - a_part) + (u - (t - a_part));
    const double sum = fl_sum_odd(t, fl_sum_odd(t_error, u_error));
    return isfinite(t) ? sum : t;
}

/* Returns n weights, of the wide part if there is one. */
static const float *weights_of(const struct fl_view *w, int64_t first, int64_t n, float *buffer) {
    return w->wide ? (const float *)w->wide + first : floats_of((const fl_element *)w->data + first, n, buffer);
}

static void momentum_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                           struct fl_stats *stats) {
    (void)context;
    const double momentum = args->p.sgd.momentum, decay = args->p.sgd.weight_decay;
    const bool drawn = is_drawn(args);
    float buffer_v[FLOAT_BLOCK], buffer_g[FLOAT_BLOCK], buffer_w[FLOAT_BLOCK], y[FLOAT_BLOCK];
    double exact[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        const float *v = floats_of((const fl_element *)args->in[0].data + i, n, buffer_v);
        const float *g = floats_of((const fl_element *)args->in[1].data + i, n, buffer_g);
        const float *w = weights_of(&args->in[2], i, n, buffer_w);
        for (int64_t j = 0; drawn && j < n; j++)
            exact[j] = sum_odd(momentum * (double)v[j], g[j], decay * (double)w[j]) + 0.0;
        if (drawn) {
            store_doubles(args, i, n, exact, stats);
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            y[j] = (float)(sum_odd(momentum * (double)v[j], g[j], decay * (double)w[j]) + 0.0);
        store_elements(args, i, n, y, stats);
    }
}

static tensor_status sgd_momentum(const struct fl_args *args) {
    return run_parts(args, args->out.count, 1, momentum_range, NULL);
}

static void update_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                         struct fl_stats *stats) {
    (void)context;
    const double rate = args->p.sgd.rate;
    const bool drawn = is_drawn(args) && !args->in[0].wide; /* elements are the rounding of a wide part to nearest */
    float buffer_w[FLOAT_BLOCK], buffer_v[FLOAT_BLOCK], y[FLOAT_BLOCK];
    double exact[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        const float *w = weights_of(&args->in[0], i, n, buffer_w);
        const float *v = floats_of((const fl_element *)args->in[1].data + i, n, buffer_v);
        for (int64_t j = 0; drawn && j < n; j++)
            exact[j] = fl_sum_odd(w[j], -rate * (double)v[j]) + 0.0;
        if (drawn) {
            store_doubles(args, i, n, exact, stats);
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            y[j] = (float)(fl_sum_odd(w[j], -rate * (double)v[j]) + 0.0);
        if (args->in[0].wide && args->out.data)
            memcpy((float *)args->out.wide + i, y, (size_t)n * sizeof *y);
        store_elements(args, i, n, y, stats);
    }
}

static tensor_status sgd_update(const struct fl_args *args) {
    return run_parts(args, args->out.count, 1, update_range, NULL);
}

#endif
