/* ref_fold.c - reference kernels: sums over rows, per-channel affine maps, stochastic gradient descent. */
#include "core/arithmetic/exact.h"
#include "core/reference/ref.h"
#include <math.h>

/* --- sums over the rows of [m, n] --------------------------------------------------------------------------------- */

/* Two sums for each channel: of x and of x*z. Shared-exponent formats: mantissas, exact. Float formats: binary32 chains
 * of FL_ROWS_CHUNK rows, added in order in double. */
struct channel_sum {
    int64_t i[2];
    double f[2];
    float chain[2];
};

static struct channel_sum sum_channel(const struct fl_args *args, const double *x, const double *z, const double *mask,
                                      int e_x, int e_z, int64_t c) {
    struct channel_sum s = {0};
    const int64_t m = args->p.rows.m, n = args->p.rows.n;
    for (int64_t row = 0; row < m; row++) {
        int64_t at = row * n + c;
        double a = mask && !(mask[at] > 0) ? 0 : x[at];
        if (fl_ref_shared(args)) {
            int64_t ia = (int64_t)ldexp(a, e_x), iz = (int64_t)ldexp(z[at], e_z);
            s.i[0] += ia;
            s.i[1] += ia * iz;
            continue;
        }
        if (row && row % FL_ROWS_CHUNK == 0)
            for (int j = 0; j < 2; j++) {
                s.f[j] += s.chain[j];
                s.chain[j] = 0;
            }
        s.chain[0] += (float)a;
        s.chain[1] = fmaf((float)a, (float)z[at], s.chain[1]);
    }
    for (int j = 0; j < 2; j++)
        s.f[j] += s.chain[j];
    return s;
}

tensor_status fl_ref_fold(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    if (args->op == FL_OP_MAX_ABS) {
        for (int64_t i = 0; i < args->in[0].count; i++)
            if (fabs(w.in[0][i]) > args->stats->maximum)
                args->stats->maximum = fabs(w.in[0][i]);
        fl_ref_end(&w);
        return TENSOR_OK;
    }
    const bool gradient = args->op == FL_OP_CHANNEL_GRAD_SUMS;
    for (int64_t c = 0; c < args->p.rows.n; c++) {
        struct channel_sum s =
            gradient
                ? sum_channel(args, w.in[0], w.in[1], w.in[2], fl_exponent(&args->in[0]), fl_exponent(&args->in[1]), c)
                : sum_channel(args, w.in[0], w.in[0], NULL, fl_exponent(&args->in[0]), fl_exponent(&args->in[0]), c);
        if (args->op == FL_OP_SUM_ROWS) {
            w.value[c] = w.near[c] = fl_ref_shared(args) ? ldexp((double)s.i[0], -fl_exponent(&args->in[0])) : s.f[0];
            continue;
        }
        for (int j = 0; j < 2; j++) {
            if (fl_ref_shared(args))
                args->p.batch_norm.sums.i[j][c] = s.i[j];
            else
                args->p.batch_norm.sums.f[j][c] = s.f[j];
        }
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- per-channel affine maps -------------------------------------------------------------------------------------- */

tensor_status fl_ref_affine(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_channels *k = &args->p.batch_norm.channels;
    const bool second = w.in[1] != NULL;
    for (int64_t i = 0; i < w.count; i++) {
        const int64_t c = i % args->p.rows.n;
        double first = w.in[0][i];
        if (w.in[2] && !(w.in[2][i] > 0))
            first = 0;
        if (!fl_ref_shared(args)) {
            float t = second ? fmaf(k->a[c], (float)first, fmaf(k->d[c], (float)w.in[1][i], k->b[c]))
                             : fmaf(k->a[c], (float)first, k->b[c]);
            w.value[i] = w.near[i] = args->p.batch_norm.relu && t <= 0 ? 0 : t;
            continue;
        }
        const int64_t mantissa = (int64_t)ldexp(first, fl_exponent(&args->in[0]));
        const int64_t x = second ? (int64_t)ldexp(w.in[1][i], fl_exponent(&args->in[1])) : 0;
        const struct fl_term terms[3] = {
            {k->first[c].m * (mantissa - k->first_centre[c]), k->first[c].e},
            {second ? k->cross[c].m * (x - k->cross_centre[c]) : 0, second ? k->cross[c].e : 0},
            {k->offset[c].m, k->offset[c].e}};
        struct fl_wide_sum exact = fl_sum_terms(terms, 3);
        if (args->p.batch_norm.relu && exact.m < 0)
            exact.m = 0;
        w.value[i] = fl_wide_odd(exact);
        w.near[i] = fl_wide_abs(exact);
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- stochastic gradient descent ---------------------------------------------------------------------------------- */

/* A float as one term: 24-bit integer times a power of two; times an integer mantissa under exponent e. */
static struct fl_term product(float scalar, int64_t mantissa, int e) {
    int exponent;
    double m = frexp(scalar, &exponent);
    return (struct fl_term){(int64_t)(m * 0x1p24) * mantissa, e + 24 - exponent};
}

static struct fl_term real(double x) {
    int exponent;
    double m = frexp(x, &exponent);
    return (struct fl_term){(int64_t)(m * 0x1p53), 53 - exponent};
}

/* Element i of an operand as m * 2^-e; of its wide part if it has one. */
static struct fl_term element(const struct ref_work *w, int in, int64_t i) {
    const struct fl_view *v = &w->args->in[in];
    if (!fl_ref_shared(w->args))
        return real(v->wide ? ((const float *)v->wide)[i] : w->in[in][i]);
    const int e = fl_exponent(v);
    if (v->wide)
        return (struct fl_term){((const int32_t *)v->wide)[i], e + 16};
    return (struct fl_term){(int64_t)ldexp(w->in[in][i], e), e};
}

static struct fl_term scaled(float scalar, struct fl_term t, bool shared) {
    if (shared)
        return product(scalar, t.m, t.e);
    return real(scalar * ldexp((double)t.m, -t.e)); /* two binary32 numbers: exact in double */
}

static bool finite_operands(const struct ref_work *w, int64_t i, double *sum) {
    /* Float formats only: NaN and Inf go through ordinary arithmetic. */
    const struct fl_args *a = w->args;
    double x[3] = {0};
    for (int j = 0; j < 3; j++)
        if (w->in[j])
            x[j] = a->in[j].wide && !fl_ref_shared(a) ? ((const float *)a->in[j].wide)[i] : w->in[j][i];
    const double *f = a->p.factored.factors;
    if (a->op == FL_OP_COMBINE)
        *sum = (float)f[0] * x[0] + (float)f[1] * x[1] + (w->in[2] ? (float)f[2] * x[2] : 0);
    else
        *sum = a->op == FL_OP_SGD_MOMENTUM ? a->p.sgd.momentum * x[0] + x[1] + a->p.sgd.weight_decay * x[2]
                                           : x[0] - a->p.sgd.rate * x[1];
    for (int j = 0; a->op == FL_OP_COMBINE && j < 3 && w->in[j]; j++)
        if (!isfinite((float)f[j]))
            return false;
    return isfinite(x[0]) && isfinite(x[1]) && isfinite(x[2]);
}

tensor_status fl_ref_sgd(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const bool shared = fl_ref_shared(args);
    const bool update = args->op == FL_OP_SGD_UPDATE, combine = args->op == FL_OP_COMBINE;
    const bool wide = args->out.wide;
    int64_t wide_saturated = 0;
    for (int64_t i = 0; i < w.count; i++) {
        double nonfinite;
        if (!shared && !finite_operands(&w, i, &nonfinite)) {
            w.value[i] = w.near[i] = nonfinite;
        } else {
            struct fl_term terms[3];
            int n;
            if (update) {
                terms[0] = element(&w, 0, i);
                terms[1] = scaled(-args->p.sgd.rate, element(&w, 1, i), shared);
                n = 2;
            } else if (combine) {
                for (n = 0; n < 3 && w.in[n]; n++)
                    terms[n] = scaled((float)args->p.factored.factors[n], element(&w, n, i), shared);
            } else {
                terms[0] = scaled(args->p.sgd.momentum, element(&w, 0, i), shared);
                terms[1] = element(&w, 1, i);
                terms[2] = scaled(args->p.sgd.weight_decay, element(&w, 2, i), shared);
                n = 3;
            }
            struct fl_wide_sum sum = fl_sum_terms(terms, n);
            w.value[i] = fl_wide_odd(sum);
            w.near[i] = fl_wide_abs(sum);
            if (wide && shared) {
                int64_t m = fl_wide_round(sum, fl_exponent(&args->out) + 16, FL_WIDE_LIMIT, NULL, &wide_saturated);
                if (args->out.data)
                    ((int32_t *)args->out.wide)[i] = (int32_t)m;
                w.value[i] = ldexp(
                    (double)m, -(fl_exponent(&args->out) + 16)); /* the elements are the rounding of the wide part */
            }
        }
        if (wide && !shared) {
            float m = (float)w.value[i];
            if (args->out.data)
                ((float *)args->out.wide)[i] = m;
            w.value[i] = m;
        }
    }
    struct fl_args view = *args;
    if (wide)
        view.rounding.mode =
            args->rounding.mode == TENSOR_ROUND_TRUNCATE ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST;
    w.args = &view;
    struct fl_stats before = *args->stats;
    int64_t vanished = 0;
    if (wide && shared)
        for (int64_t i = 0; i < w.count; i++)
            vanished +=
                w.near[i] != 0 && w.value[i] == 0; /* zero in the wide part already, so encode does not count it */
    fl_ref_end(&w);
    if (wide && shared) {
        args->stats->saturated = before.saturated + wide_saturated;
        args->stats->flushed += vanished;
    }
    return TENSOR_OK;
}
