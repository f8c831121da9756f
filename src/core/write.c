/* write.c - the one way a tensor is written: exponent before, kernel, statistics and history after. */
#include "core/transfer.h"
#include <stdlib.h>

void fl_keep_statistics(tensor *t, const struct fl_stats *s) {
    tensor_stats *total = &t->state->total;
    t->state->last = (tensor_stats){s->maximum, s->gamma, s->saturated, s->flushed, s->nonfinite, t->count, 1};
    if (s->maximum > total->maximum)
        total->maximum = s->maximum;
    if (s->gamma > total->gamma)
        total->gamma = s->gamma;
    total->saturated += s->saturated;
    total->flushed += s->flushed;
    total->nonfinite += s->nonfinite;
    total->elements += t->count;
    total->writes++;
    t->state->writes++;
}

static struct fl_rounding rounding_of(const tensor *t) {
    return (struct fl_rounding){t->state->rounding, t->state->seed, t->state->writes};
}

/* Runs once at the exponent in args->out.e. */
static tensor_status attempt(tensor *out, fl_kernel kernel, struct fl_args *args, fl_remake remake, void *context,
                             bool measure, struct fl_stats *stats, bool *clamped) {
    *stats = (struct fl_stats){0};
    args->stats = stats;
    args->rounding = rounding_of(out);
    args->out.data = measure ? NULL : out->state->data;
    args->out.wide = out->state->wide;
    *clamped = remake && remake(args, args->out.e, context);
    return kernel(args);
}

static bool reads_its_output(const tensor *out, const struct fl_args *args) {
    for (int i = 0; i < 3; i++)
        if (args->in[i].data == out->state->data)
            return true;
    return args->epilogue.residual.data == out->state->data;
}

enum { NEAR = 15 }; /* exponents this close to the right one measure well */

static int wanted_exponent(const struct fl_format *f, double maximum) {
    const int e = AUTOFLEX_BITS - 2 - autoflex_floor_log2(maximum);
    return e < f->e_min ? f->e_min : e > f->e_max ? f->e_max : e;
}

static bool near_exponent(const struct fl_format *f, double maximum, int e) {
    return maximum > 0 && abs(wanted_exponent(f, maximum) - e) < NEAR;
}

/* Measures the exact maximum of the result. Coefficients that are made for an exponent (remake) are exact enough only
 * near it: measured again lower down where they did not fit, and at the exponent found where that is far away. */
static tensor_status measure_maximum(tensor *out, fl_kernel kernel, struct fl_args *args, fl_remake remake,
                                     void *context, struct fl_stats *stats) {
    const struct fl_format *f = out->format;
    int e = out->state->autoflex.e;
    for (int runs = 0;; runs++) {
        bool clamped;
        args->out.e = e;
        tensor_status status = attempt(out, kernel, args, remake, context, true, stats, &clamped);
        if (status || !remake || runs == 32 || (!clamped && near_exponent(f, stats->maximum, e)))
            return status;
        /* nothing seen at all: perhaps the exponent was too coarse */
        int next = clamped ? e - NEAR : stats->maximum > 0 ? wanted_exponent(f, stats->maximum) : e + 2 * NEAR;
        next = next < f->e_min ? f->e_min : next > f->e_max ? f->e_max : next;
        if (next == e)
            return TENSOR_OK;
        e = next;
    }
}

tensor_status fl_write(tensor *out, struct fl_args *args, fl_remake remake, void *context) {
    enum fl_backend chosen;
    fl_kernel kernel;
    tensor_status status = fl_dispatch(out->format, args->op, &kernel, &chosen);
    if (status)
        return status;
    struct fl_tensor_state *state = out->state;
    struct autoflex *a = &state->autoflex;
    struct fl_stats stats;
    bool clamped;
    args->out = fl_view_of(out);
    args->format = out->format;
    if (out->format->arithmetic != FL_ARITHMETIC_SHARED) {
        status = attempt(out, kernel, args, remake, context, false, &stats, &clamped);
        if (!status)
            fl_keep_statistics(out, &stats);
        return status;
    }
    const struct autoflex before = *a;
    const bool fits = autoflex_needs_maximum(a->predictor);
    bool done = false;
    if (!fits && a->initialised) {
        autoflex_adjust(a);
    } else {
        /* The exact maximum decides the exponent. "current" mostly finds the exponent of the last write right again:
         * then the first run is the only one. Operands that are overwritten are measured first, and so is all that the
         * reference kernels do: they allocate, and a second run must not fail after a first one has written. */
        bool measure = !fits || !a->initialised || chosen == FL_REF || reads_its_output(out, args);
        const int e = a->e;
        if (!measure) {
            args->out.e = e;
            status = attempt(out, kernel, args, remake, context, false, &stats, &clamped);
            measure = !status && remake && !(!clamped && near_exponent(out->format, stats.maximum, e));
            if (!status && !measure)
                done = autoflex_fit(a, stats.maximum) == e;
        }
        if (!status && measure) {
            status = measure_maximum(out, kernel, args, remake, context, &stats);
            if (!status && fits)
                autoflex_fit(a, stats.maximum);
            else if (!status)
                autoflex_initialise(a, stats.maximum);
        }
    }
    if (!status && !done) {
        args->out.e = a->e;
        status = attempt(out, kernel, args, remake, context, false, &stats, &clamped);
    }
    if (status) {
        *a = before;
        return status;
    }
    autoflex_record(a, stats.gamma, stats.maximum);
    fl_keep_statistics(out, &stats);
    return TENSOR_OK;
}

tensor_status fl_write_values(tensor *out, const double *values) {
    struct fl_tensor_state *state = out->state;
    struct autoflex before = state->autoflex;
    struct fl_transfer_result result;
    tensor_status status;
    if (out->format->arithmetic == FL_ARITHMETIC_SHARED) {
        const bool fits = autoflex_needs_maximum(state->autoflex.predictor);
        if (fits || !state->autoflex.initialised) {
            struct fl_transfer look = {.source = {.d = values}, .count = out->count};
            if ((status = fl_transfer(&look, &result)))
                return status;
            if (fits)
                autoflex_fit(&state->autoflex, result.maximum);
            else
                autoflex_initialise(&state->autoflex, result.maximum);
        } else {
            autoflex_adjust(&state->autoflex);
        }
    }
    struct fl_transfer write = {.source = {.d = values},
                                .format = out->format,
                                .out = fl_view_of(out),
                                .rounding = rounding_of(out),
                                .op_result = true,
                                .count = out->count};
    if ((status = fl_transfer(&write, &result))) {
        state->autoflex = before;
        return status;
    }
    if (out->format->arithmetic == FL_ARITHMETIC_SHARED)
        autoflex_record(&state->autoflex, result.stats.gamma, result.stats.maximum);
    fl_keep_statistics(out, &result.stats);
    return TENSOR_OK;
}

tensor_status fl_read(const struct fl_format *format, struct fl_args *args, struct fl_stats *stats) {
    enum fl_backend chosen;
    fl_kernel kernel;
    tensor_status status = fl_dispatch(format, args->op, &kernel, &chosen);
    if (status)
        return status;
    args->stats = stats;
    args->format = format;
    return kernel(args);
}
