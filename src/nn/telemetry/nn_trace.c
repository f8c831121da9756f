/* nn_trace.c - exponents, extremes and counts of every shared-exponent tensor as CSV, one record every `every` steps.
 * Counts and maxima of the steps between two records are in the later one, so that the counts of all records add up to
 * those of the run. The slots of a network on a device are examined some steps later, when their copies have arrived.
 */
#include "nn/step/nn_step.h"
#include "nn/telemetry/nn_trace.h"
#include "nn/telemetry/nn_recorder.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include <stdio.h>
#include <string.h>

/* The largest numbers of one tensor since its last record. */
struct interval {
    struct fl_interval since;
    bool begun;
    double maximum;
    int maximum_e; /* the exponent that the write with that maximum had */
    int gamma;
};

enum { STEPS_ON_WAY = 4 };

/* The slots at the end of a step. */
struct moment {
    int64_t step;
    struct fl_slot_copies *slots; /* NULL: the network is on the host */
};

struct fl_trace {
    struct fl_recorder recorder;
    struct fl_rows_file file;
    struct interval *intervals;
    struct moment on_way[STEPS_ON_WAY]; /* a ring */
    int first, count;
};

static const char heading[] = "step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed,nonfinite,"
                              "clamped_low,clamped_high,maximum_e\n";

tensor_status fl_trace_open(struct fl_trace **trace, const char *path, int every) {
    *trace = NULL;
    if (!path)
        return TENSOR_OK;
    if (every < 1)
        return fl_fail(TENSOR_E_ARGUMENT, "trace: every %d steps, expected at least 1", every);
    struct fl_trace *t = fl_alloc_zero(sizeof *t);
    if (!t)
        return fl_fail(TENSOR_E_MEMORY, "trace: no memory");
    t->recorder = (struct fl_recorder){.of = "trace", .every = every};
    const tensor_status status = fl_rows_open(&t->file, t->recorder.of, path);
    if (status) {
        fl_trace_free(t);
        return status;
    }
    fputs(heading, t->file.file);
    *trace = t;
    return TENSOR_OK;
}

static tensor_status begin(struct fl_trace *trace, const nn_graph *g) {
    trace->recorder.graph = g;
    if (!trace->intervals)
        trace->intervals = fl_alloc_zero((size_t)nn_tensor_count(g) * sizeof *trace->intervals);
    return trace->intervals ? TENSOR_OK
                            : fl_fail(TENSOR_E_MEMORY, "trace: no memory for %d tensors", nn_tensor_count(g));
}

/* Adds the last write of a tensor; a training step writes it only once. The first record counts all writes that the
 * statistics have. */
static void observe(struct interval *now, const struct fl_slot *slot) {
    if (!now->begun) {
        now->since.apart = (int64_t)slot->writes - slot->total.writes;
        now->since.writes = now->since.apart;
        now->begun = true;
    }
    if (!fl_interval_look(&now->since, slot))
        return;
    if (slot->last.gamma > now->gamma)
        now->gamma = slot->last.gamma;
    if (slot->last.maximum >= now->maximum) {
        now->maximum = slot->last.maximum;
        now->maximum_e = slot->e;
    }
}

static tensor_status write_row(struct fl_trace *trace, const nn_tensor_info *info, struct interval *now,
                               const struct fl_slot *slot) {
    const struct fl_interval_counts counts = fl_interval_counts(&now->since, slot);
    fl_print(trace->file.file, "%lld,%s,%s,%d,%d,%.9g,%.9g,%lld,%lld,%lld,%llu,%llu,%d\n",
             (long long)trace->recorder.step, info->name, info->role, slot->e, now->gamma, slot->autoflex.predicted,
             now->maximum, (long long)counts.saturated, (long long)counts.flushed, (long long)counts.nonfinite,
             (unsigned long long)counts.clamped_low, (unsigned long long)counts.clamped_high, now->maximum_e);
    TRY(fl_rows_check(&trace->file));
    fl_interval_end(&now->since, slot);
    now->maximum = 0;
    now->gamma = 0;
    return TENSOR_OK;
}

static bool is_traced(const nn_graph *g, int i) {
    return tensor_format_is_shared(tensor_format_of(nn_tensor_at(g, i).t));
}

/* Examines the slots of a step; `rows`: also writes the records since the last. */
static tensor_status look(struct fl_trace *trace, const struct fl_slot_copies *slots, bool rows) {
    struct fl_recorder *r = &trace->recorder;
    for (int i = 0; i < nn_tensor_count(r->graph); i++) {
        const nn_tensor_info info = nn_tensor_at(r->graph, i);
        const struct fl_slot *slot;
        if (!is_traced(r->graph, i))
            continue;
        TRY(fl_recorder_slot(r, slots, i, &slot));
        observe(&trace->intervals[i], slot);
        if (rows)
            TRY(write_row(trace, &info, &trace->intervals[i], slot));
    }
    if (rows)
        r->row_step = r->step;
    return TENSOR_OK;
}

/* Examines the oldest waiting step; `last`: it is the final one, and has records. */
static tensor_status arrive(struct fl_trace *trace, bool last) {
    struct moment *m = &trace->on_way[trace->first];
    trace->first = (trace->first + 1) % STEPS_ON_WAY;
    trace->count--;
    trace->recorder.step = m->step;
    if (m->slots)
        TRY(fl_taken(trace->recorder.graph, fl_slot_copies_end(trace->recorder.graph->device, m->slots)));
    return look(trace, m->slots, last || fl_recorder_has_rows(&trace->recorder, m->step));
}

/* Allocates the copies of all waiting steps, so that later steps allocate nothing. */
static tensor_status make_copies(struct fl_trace *trace) {
    for (int i = 0; i < STEPS_ON_WAY; i++)
        TRY(fl_recorder_take_slots(&trace->recorder, &trace->on_way[i].slots));
    return TENSOR_OK;
}

tensor_status fl_trace_step(struct fl_trace *trace, const nn_graph *g, int64_t step) {
    if (!trace)
        return TENSOR_OK;
    TRY(begin(trace, g));
    const bool host = g->device == tensor_device_at(0);
    if (trace->count == STEPS_ON_WAY)
        TRY(arrive(trace, false));
    struct moment *m = &trace->on_way[(trace->first + trace->count) % STEPS_ON_WAY];
    m->step = step;
    trace->count++;
    if (host)
        return arrive(trace, false);
    if (!trace->on_way[0].slots)
        TRY(make_copies(trace));
    return fl_taken(g, fl_slot_copies_begin(g->device, &m->slots));
}

/* --- in a checkpoint -----------------------------------------------------------------------------------------------
 */

/* The numbers of a tensor. Earlier versions counted its writes since statistics were reset: what resumes takes them
 * from the tensor. */
enum { MAXIMUM_E, GAMMA, LOW, HIGH, WRITES, BEFORE };

/* A caller may have reset statistics since the last step. */
static tensor_status look_for_resets(struct fl_trace *trace) {
    const struct fl_recorder *r = &trace->recorder;
    for (int i = 0; i < nn_tensor_count(r->graph); i++) {
        const struct fl_slot *slot;
        if (!trace->intervals[i].begun)
            continue;
        TRY(fl_recorder_slot(r, NULL, i, &slot));
        fl_interval_look_for_reset(&trace->intervals[i].since, slot);
    }
    return TENSOR_OK;
}

tensor_status fl_trace_keep(struct fl_trace *trace, const nn_graph *g, struct fl_trace_kept *kept) {
    *kept = (struct fl_trace_kept){0};
    TRY(begin(trace, g));
    while (trace->count)
        TRY(arrive(trace, false));
    TRY(look_for_resets(trace));
    const int tensors = nn_tensor_count(g);
    kept->whole_count = 2 + (int64_t)FL_TRACE_WHOLE * tensors;
    kept->real_count = tensors;
    TRY(fl_recorder_numbers(&trace->recorder, &kept->whole, kept->whole_count, &kept->real, kept->real_count));
    kept->whole[0] = trace->recorder.step;
    kept->whole[1] = trace->recorder.row_step;
    for (int i = 0; i < tensors; i++) {
        const struct interval *now = &trace->intervals[i];
        const struct fl_interval *since = &now->since;
        const int64_t numbers[FL_TRACE_WHOLE] = {now->maximum_e,        now->gamma,
                                                 (int64_t)since->low,   (int64_t)since->high,
                                                 since->writes,         since->before.saturated,
                                                 since->before.flushed, since->before.nonfinite};
        memcpy(kept->whole + 2 + FL_TRACE_WHOLE * i, numbers, sizeof numbers);
        kept->real[i] = now->maximum;
    }
    return fl_rows_text(&trace->file, &kept->text, &kept->bytes);
}

void fl_trace_kept_clear(struct fl_trace_kept *kept) {
    fl_free(kept->text);
    fl_free(kept->whole);
    fl_free(kept->real);
    *kept = (struct fl_trace_kept){0};
}

/* Whether the number can be what is stored there of a tensor. */
static bool is_number(int at, int64_t n) {
    const int64_t least = at == MAXIMUM_E ? INT16_MIN : at < BEFORE ? 0 : FL_INTERVAL_LEAST;
    return n >= least && n <= (at <= GAMMA ? INT16_MAX : INT64_C(1) << 62);
}

static bool is_possible(const struct fl_trace_kept *kept, int tensors) {
    bool good = kept->whole_count == 2 + (int64_t)FL_TRACE_WHOLE * tensors && kept->real_count == tensors &&
                fl_recorder_is_file(kept->text, kept->bytes, heading);
    for (int64_t i = 0; good && i < kept->whole_count; i++)
        good = is_number(i < 2 ? WRITES : (int)((i - 2) % FL_TRACE_WHOLE), kept->whole[i]);
    for (int i = 0; good && i < tensors; i++)
        good = kept->real[i] >= 0;
    return good;
}

tensor_status fl_trace_resume(struct fl_trace *trace, const nn_graph *g, const struct fl_trace_kept *kept) {
    TRY(begin(trace, g));
    if (!is_possible(kept, nn_tensor_count(g)))
        return fl_fail(TENSOR_E_DATA,
                       "trace: its stored state, %lld bytes and %lld numbers, is not a trace of %d tensors",
                       (long long)kept->bytes, (long long)(kept->whole_count + kept->real_count), nn_tensor_count(g));
    trace->recorder.step = kept->whole[0];
    trace->recorder.row_step = kept->whole[1];
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const int64_t *numbers = kept->whole + 2 + FL_TRACE_WHOLE * i;
        const struct fl_slot *slot;
        if (!is_traced(g, i))
            continue;
        trace->intervals[i] = (struct interval){.begun = true,
                                                .maximum = kept->real[i],
                                                .maximum_e = (int)numbers[MAXIMUM_E],
                                                .gamma = (int)numbers[GAMMA],
                                                .since = {.low = (uint64_t)numbers[LOW],
                                                          .high = (uint64_t)numbers[HIGH],
                                                          .before = {.saturated = numbers[BEFORE],
                                                                     .flushed = numbers[BEFORE + 1],
                                                                     .nonfinite = numbers[BEFORE + 2]}}};
        TRY(fl_recorder_slot(&trace->recorder, NULL, i, &slot));
        fl_interval_resume(&trace->intervals[i].since, slot);
    }
    return fl_rows_set_text(&trace->file, kept->text, kept->bytes);
}

/* Writes the records of the last step from the current slots. */
static tensor_status look_now(struct fl_trace *trace) {
    struct moment *m = &trace->on_way[trace->first];
    TRY(fl_recorder_take_slots(&trace->recorder, &m->slots));
    return look(trace, m->slots, true);
}

tensor_status fl_trace_finish(struct fl_trace *trace) {
    if (!trace)
        return TENSOR_OK;
    while (trace->count)
        TRY(arrive(trace, trace->count == 1));
    if (fl_recorder_owes_rows(
            &trace->recorder)) /* the last step was examined without records, and nothing was written since */
        TRY(look_now(trace));
    return fl_rows_finish(&trace->file);
}

void fl_trace_free(struct fl_trace *trace) {
    if (!trace)
        return;
    fl_rows_drop(&trace->file);
    for (int i = 0; i < STEPS_ON_WAY; i++)
        if (trace->on_way[i].slots)
            fl_slot_copies_free(trace->recorder.graph->device, trace->on_way[i].slots);
    fl_free(trace->intervals);
    fl_free(trace);
}
