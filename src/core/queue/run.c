/* run.c - how a processor runs a task: it sets the exponent, runs the kernel, then records statistics and history. */
#include "autoflex/write_rules.h"
#include "core/base/fail.h"
#include "core/ops/optimisers/optimiser_rules.h"
#include "core/queue/part_write.h"
#include "core/queue/queue.h"
#include "core/queue/sampled.h"
#include "core/tensor/narrow.h"
#include "core/tensor/wide.h"
#include <math.h>
#include <string.h>

void fl_written(const struct fl_storage *s, const struct fl_stats *stats, bool with_wide_part) {
    fl_slot_written(s->slot, stats, s->count);
    if (!with_wide_part)
        fl_wide_follow(s);
}

static bool has_exponent(const struct fl_storage *s) {
    return fl_has_exponent(s->format);
}

static struct fl_rounding rounding_of(const struct fl_storage *s) {
    return (struct fl_rounding){s->rounding, s->seed, s->slot->writes};
}

/* --- WRITE -------------------------------------------------------------------------------------------------------- */

/* again: the attempt before was the same call of the kernel, with its workspace, but for the exponent of the output. */
static tensor_status attempt(const struct fl_call *call, bool measure, bool again, struct fl_stats *stats) {
    struct fl_args *args = call->args;
    *stats = (struct fl_stats){0};
    args->stats = stats;
    args->again = again;
    args->rounding = rounding_of(&call->out);
    args->out.data = measure ? NULL : call->out.data;
    return call->kernel(args);
}

/* Writes a part of a sequence at its exponent, and adds its statistics to those of the sequence. */
static tensor_status run_part(const struct fl_call *call) {
    struct fl_stats stats;
    if (call->sequence.state->settled)
        return TENSOR_OK;
    call->args->out = fl_output_view(&call->out);
    call->args->kept = &call->sequence.state->kept;
    tensor_status status = attempt(call, false, false, &stats);
    if (!status) {
        fl_clamp(call->out.format, &call->args->out, 0, call->args->out.count, &stats);
        fl_stats_merge(&call->sequence.state->tensor[call->sequence.tensor].stats, &stats);
    }
    return status;
}

static tensor_status run_write(const struct fl_call *call) {
    if (call->sequence.state)
        return run_part(call);
    const struct fl_storage *out = &call->out;
    struct autoflex *a = &out->slot->autoflex, before;
    struct fl_stats stats;
    struct fl_write_state w;
    if (has_exponent(out))
        before = *a;
    fl_write_begin(&w, a, has_exponent(out), call->measures_first ? FL_WRITE_ONCE : FL_WRITE_FREE);
    while (w.next != FL_WRITE_DONE) {
        const tensor_status status = attempt(call, w.next == FL_WRITE_MEASURE, w.attempt > 0, &stats);
        if (status) {
            if (has_exponent(out))
                *a = before;
            return status;
        }
        fl_write_attempted(&w, a, stats.maximum);
    }
    fl_clamp(out->format, &call->args->out, 0, out->count, &stats);
    fl_write_end(&w, a, stats.gamma, stats.maximum);
    fl_written(out, &stats, call->args->out.wide);
    return fl_sample_call(call, NULL);
}

/* --- OPEN, CLOSE -------------------------------------------------------------------------------------------------- */

static tensor_status run_open(const struct fl_call *call) {
    const struct fl_sequence_part *p = &call->sequence;
    if (!p->attempt && !p->tensor)
        p->state->kept = (struct fl_kept){(char *)p->state + FL_SEQUENCE_STATE_BYTES, p->kept, NULL};
    fl_sequence_open(p->state, p->tensor, p->attempt, call->out.slot, p->count, has_exponent(&call->out));
    return TENSOR_OK;
}

static tensor_status run_close(const struct fl_call *call) {
    fl_sequence_close(call->sequence.state);
    return TENSOR_OK;
}

/* --- ROUND, MEAN -------------------------------------------------------------------------------------------------- */

/* Measures the source if the rules require that before anything is stored. */
static bool measure(const struct fl_call *call, const struct fl_write_state *w, struct fl_transfer_result *seen) {
    if (w->next != FL_WRITE_MEASURE)
        return false;
    fl_transfer(&(struct fl_transfer){.source = call->source, .count = call->out.count}, seen);
    return true;
}

static void store(const struct fl_call *call, const struct fl_write_state *w, const struct fl_transfer *transfer) {
    struct autoflex *a = &call->out.slot->autoflex;
    struct fl_transfer_result result;
    fl_transfer(transfer, &result);
    fl_write_end(w, a, result.stats.gamma, result.stats.maximum);
    fl_written(&call->out, &result.stats, false);
}

static tensor_status run_round(const struct fl_call *call) {
    const struct fl_storage *out = &call->out;
    struct autoflex *a = &out->slot->autoflex;
    struct fl_transfer_result seen;
    struct fl_write_state w;
    fl_write_begin(&w, a, has_exponent(out), FL_WRITE_ONCE);
    if (measure(call, &w, &seen))
        fl_write_attempted(&w, a, seen.maximum);
    store(call, &w,
          &(struct fl_transfer){.source = call->source,
                                .format = out->format,
                                .out = fl_output_view(out),
                                .rounding = rounding_of(out),
                                .op_result = out->format->arithmetic == FL_ARITHMETIC_FLOAT,
                                .count = out->count});
    return TENSOR_OK;
}

static tensor_status run_mean(const struct fl_call *call) {
    const struct fl_sum *sum = call->source.sum;
    double *to = call->out.data, terms[FL_MOST_TERMS];
    for (int64_t i = 0; i < call->out.count; i++) { /* the first term may be the output */
        for (int t = 0; t < sum->count; t++)
            terms[t] = ((const double *)sum->terms[t].data)[i];
        to[i] = fl_exact_mean(terms, sum->count, (uint32_t)sum->count);
    }
    return TENSOR_OK;
}

/* --- parts of a write --------------------------------------------------------------------------------------------- */

void fl_part_measure(struct fl_part_write *w) {
    const struct fl_storage *out = w->out->storage;
    struct fl_transfer_result seen = {.maximum = 0};
    fl_write_begin(&w->state, &out->slot->autoflex, has_exponent(out), FL_WRITE_ONCE);
    if (w->state.next == FL_WRITE_MEASURE && w->count)
        fl_transfer(&(struct fl_transfer){.source = {.sum = &w->sum}, .count = w->count}, &seen);
    w->maximum = seen.maximum;
}

void fl_part_store(struct fl_part_write *w) {
    const struct fl_storage *out = w->out->storage;
    struct fl_transfer_result result = {.maximum = 0};
    struct fl_view view = fl_output_view(out);
    struct fl_rounding rounding = rounding_of(out);
    if (w->state.next == FL_WRITE_MEASURE)
        fl_write_attempted(&w->state, &out->slot->autoflex, w->maximum);
    view.data = (char *)view.data + w->first * out->format->bytes;
    view.count = w->count;
    rounding.first = w->first;
    if (w->count)
        fl_transfer(&(struct fl_transfer){.source = {.sum = &w->sum},
                                          .format = out->format,
                                          .out = view,
                                          .rounding = rounding,
                                          .op_result = out->format->arithmetic == FL_ARITHMETIC_FLOAT,
                                          .count = w->count},
                    &result);
    w->stats = result.stats;
}

void fl_part_end(struct fl_part_write *w) {
    const struct fl_storage *out = w->out->storage;
    fl_write_end(&w->state, &out->slot->autoflex, w->stats.gamma, w->stats.maximum);
    fl_written(out, &w->stats, false);
}

/* --- LOAD --------------------------------------------------------------------------------------------------------- */

static double source_value(const struct fl_source *s, int64_t i) {
    double v;
    fl_source_fetch(s, i, 1, &v);
    return v != v ? fabs(v) : v; /* the sign of a NaN has no meaning */
}

static tensor_status run_load(const struct fl_call *call) {
    const struct fl_storage *out = &call->out;
    struct autoflex *a = &out->slot->autoflex;
    struct fl_transfer_result seen;
    struct fl_write_state w;
    fl_write_begin(&w, a, has_exponent(out), FL_WRITE_LOAD);
    const bool measured = measure(call, &w, &seen);
    if (measured && seen.nonfinite >= 0)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: value %lld is %g, %s holds finite numbers only", call->what,
                       (long long)seen.nonfinite, source_value(&call->source, seen.nonfinite), out->format->name);
    if (measured)
        fl_write_attempted(&w, a, seen.maximum);
    if (out->wide) {
        struct fl_stats stats = {0};
        fl_wide_load(out, &call->source, &stats);
        fl_written(out, &stats, true);
        return TENSOR_OK;
    }
    store(call, &w,
          &(struct fl_transfer){.source = call->source,
                                .format = out->format,
                                .out = fl_output_view(out),
                                .count = out->count,
                                .rounding = {fl_view_rounding(out), 0, 0}});
    return TENSOR_OK;
}

/* --- RUN ---------------------------------------------------------------------------------------------------------- */

/* Statistics go where the caller wants them, who may read a maximum there; else nobody does. */
static tensor_status run_kernel(const struct fl_call *call) {
    struct fl_stats ignored = {0};
    if (call->args->stats) /* the caller reads them */
        return call->kernel(call->args);
    call->args->stats = &ignored;
    const tensor_status status = call->kernel(call->args);
    call->args->stats = NULL;
    return status;
}

static tensor_status run_follow(const struct fl_call *call) {
    fl_wide_follow(&call->out);
    return TENSOR_OK;
}

static tensor_status run_look(const struct fl_call *call) {
    const struct fl_skipping *s = &call->skipping;
    int64_t overflows = 0, first = -1;
    for (int64_t i = s->count - 1; i >= 0; i--) {
        overflows += fl_overflowed(&s->list[i]);
        first = fl_is_nonfinite(&s->list[i]) ? i : first;
    }
    fl_scale_see(s->state, s->list, overflows, first);
    return TENSOR_OK;
}

static tensor_status run_follow_scale(const struct fl_call *call) {
    fl_scale_end(&call->skipping);
    return TENSOR_OK;
}

static tensor_status run_share(const struct fl_call *call) {
    *call->skipping.scale = call->skipping.state->scale * call->skipping.share;
    return TENSOR_OK;
}

static tensor_status run_gather(const struct fl_call *call) {
    return fl_gather_run(&call->gather);
}

/* --- scalars in tensors ------------------------------------------------------------------------------------------- */

static tensor_status check_factors(const struct fl_args *args) {
    const double *factor = args->late.at;
    for (int i = 0; i < args->late.count && args->format->arithmetic == FL_ARITHMETIC_SHARED; i++) {
        const float value = (float)factor[i];
        if (!fl_is_factor(factor[i]))
            return fl_fail(TENSOR_E_ARGUMENT, "%s is %g, expected a finite number", args->late.what,
                           fl_unsigned_nan((double)value));
    }
    return TENSOR_OK;
}

static tensor_status read_number(struct fl_args *args) {
    const struct fl_late *l = &args->late;
    const bool is_float = l->kind == FL_LATE_FLOAT;
    const double value = is_float ? (double)*(const float *)l->at : *(const double *)l->at;
    if (!isfinite(value))
        return fl_fail(TENSOR_E_ARGUMENT, "%s is %g, expected a finite number", l->what, fl_unsigned_nan(value));
    if (l->bound && value < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "%s is %g, expected 0 or more", l->what, value);
    memcpy((char *)args + l->member, l->at, is_float ? sizeof(float) : sizeof(double));
    return TENSOR_OK;
}

static tensor_status run_kind(const struct fl_call *call) {
    static tensor_status (*const run[])(const struct fl_call *) = {[FL_CALL_RUN] = run_kernel,
                                                                   [FL_CALL_WRITE] = run_write,
                                                                   [FL_CALL_LOAD] = run_load,
                                                                   [FL_CALL_ROUND] = run_round,
                                                                   [FL_CALL_FOLLOW] = run_follow,
                                                                   [FL_CALL_GATHER] = run_gather,
                                                                   [FL_CALL_OPEN] = run_open,
                                                                   [FL_CALL_CLOSE] = run_close,
                                                                   [FL_CALL_MEAN] = run_mean,
                                                                   [FL_CALL_LOOK] = run_look,
                                                                   [FL_CALL_FOLLOW_SCALE] = run_follow_scale,
                                                                   [FL_CALL_SHARE] = run_share,
                                                                   [FL_CALL_SAMPLE] = fl_sample_run};
    return run[call->kind](call);
}

tensor_status fl_call_run(const struct fl_call *call) {
    struct fl_args *args = call->args;
    tensor_status status = TENSOR_OK;
    if (args && args->late.kind != FL_LATE_NONE)
        status = args->late.kind == FL_LATE_FACTORS ? check_factors(args) : read_number(args);
    return status ? status : run_kind(call);
}
