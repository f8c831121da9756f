/* write.c - the one way a tensor is written: exponent before, kernel, statistics and history after. */
#include "core/wide.h"

void fl_written(tensor *t, const struct fl_stats *s, bool with_wide_part) {
    fl_slot_written(t->storage->slot, s, t->count);
    if (with_wide_part)
        t->storage->view_rounding = fl_view_rounding(t);
    else
        fl_wide_follow(t);
}

static struct fl_rounding rounding_of(const tensor *t) {
    return (struct fl_rounding){t->storage->rounding, t->storage->seed, t->storage->slot->writes};
}

/* Runs once at the exponent in fl_exponent(&args->out). */
static tensor_status attempt(tensor *out, fl_kernel kernel, struct fl_args *args, bool measure,
                             struct fl_stats *stats) {
    *stats = (struct fl_stats){0};
    args->stats = stats;
    args->rounding = rounding_of(out);
    args->out.data = measure ? NULL : out->storage->data;
    return kernel(args);
}

static bool reads_its_output(const tensor *out, const struct fl_args *args) {
    for (int i = 0; i < 3; i++)
        if (args->in[i].data == out->storage->data)
            return true;
    return args->epilogue.residual.data == out->storage->data;
}

tensor_status fl_write(tensor *out, struct fl_args *args) {
    enum fl_backend chosen;
    fl_kernel kernel;
    tensor_status status = fl_dispatch(out->format, args->op, &kernel, &chosen);
    if (status)
        return status;
    struct autoflex *a = &out->storage->slot->autoflex;
    struct fl_stats stats;
    args->out = fl_output_view(out);
    if (args->in[0].wide == out->storage->wide) /* an operation that reads the wide part of its output writes it */
        args->out.wide = args->in[0].wide;
    args->format = out->format;
    if (out->format->arithmetic != FL_ARITHMETIC_SHARED) {
        status = attempt(out, kernel, args, false, &stats);
        if (!status)
            fl_written(out, &stats, args->out.wide);
        return status;
    }
    const struct autoflex before = *a;
    const bool fits = autoflex_needs_maximum(a->predictor);
    bool done = false;
    if (!fits && a->initialised) {
        autoflex_adjust(a);
    } else {
        /* The exact maximum decides the exponent: one run to measure it, one to write. "current" mostly finds the
         * exponent of the last write right again: then the first run is the only one. Operands that are overwritten are
         * measured first, and so is all that the reference kernels do (windows too large for the others among it): they
         * allocate, and a second run must not fail after a first one has written. */
        const bool by_ref = chosen == FL_REF || args->geo.r * args->geo.s > FL_WINDOW_PLACES;
        const bool measure = !fits || by_ref || reads_its_output(out, args);
        const int tried = a->e;
        status = attempt(out, kernel, args, measure, &stats);
        if (!status && fits)
            done = autoflex_fit(a, stats.maximum) == tried && !measure;
        else if (!status)
            autoflex_initialise(a, stats.maximum);
    }
    if (!status && !done)
        status = attempt(out, kernel, args, false, &stats);
    if (status) {
        *a = before;
        return status;
    }
    autoflex_record(a, stats.gamma, stats.maximum);
    fl_written(out, &stats, args->out.wide);
    return TENSOR_OK;
}

void fl_write_values(tensor *out, const double *values) {
    struct autoflex *a = &out->storage->slot->autoflex;
    struct fl_transfer_result result;
    if (out->format->arithmetic == FL_ARITHMETIC_SHARED) {
        const bool fits = autoflex_needs_maximum(a->predictor);
        if (fits || !a->initialised) {
            struct fl_transfer look = {.source = {.d = values}, .count = out->count};
            fl_transfer(&look, &result);
            if (fits)
                autoflex_fit(a, result.maximum);
            else
                autoflex_initialise(a, result.maximum);
        } else {
            autoflex_adjust(a);
        }
    }
    struct fl_transfer write = {.source = {.d = values},
                                .format = out->format,
                                .out = fl_output_view(out),
                                .rounding = rounding_of(out),
                                .op_result = true,
                                .count = out->count};
    fl_transfer(&write, &result);
    if (out->format->arithmetic == FL_ARITHMETIC_SHARED)
        autoflex_record(a, result.stats.gamma, result.stats.maximum);
    fl_written(out, &result.stats, false);
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
