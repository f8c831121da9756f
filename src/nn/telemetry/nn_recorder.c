/* nn_recorder.c - code that the trace and telemetry share. */
#include "nn/telemetry/nn_recorder.h"
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

bool fl_recorder_has_rows(const struct fl_recorder *r, int64_t step) {
    return (step - 1) % r->every == 0;
}

bool fl_recorder_owes_rows(const struct fl_recorder *r) {
    return r->step != r->row_step;
}

tensor_status fl_recorder_take_slots(const struct fl_recorder *r, struct fl_slot_copies **slots) {
    if (r->graph->device == tensor_device_at(0))
        return TENSOR_OK;
    TRY(fl_taken(r->graph, fl_slot_copies_begin(r->graph->device, slots)));
    return fl_taken(r->graph, fl_slot_copies_end(r->graph->device, *slots));
}

tensor_status fl_recorder_slot(const struct fl_recorder *r, const struct fl_slot_copies *slots, int i,
                               const struct fl_slot **slot) {
    *slot = fl_slot_then(slots, r->graph->infos[i].t);
    return *slot ? TENSOR_OK
                 : fl_fail(TENSOR_E_DEVICE, "%s: %s has no slot among those of its device", r->of,
                           r->graph->infos[i].name);
}

/* The totals go on from `base` instead of those of the last look. */
static void set_back(struct fl_interval *since, const tensor_stats *base) {
    since->before.saturated += base->saturated - since->total.saturated;
    since->before.flushed += base->flushed - since->total.flushed;
    since->before.nonfinite += base->nonfinite - since->total.nonfinite;
    since->before.writes += base->writes - since->total.writes;
    since->total = *base;
}

static int64_t apart(const struct fl_slot *slot) {
    return (int64_t)slot->writes - slot->total.writes;
}

void fl_interval_begin(struct fl_interval *since, const struct fl_slot *slot) {
    fl_interval_end(since, slot);
    fl_interval_resume(since, slot);
}

void fl_interval_resume(struct fl_interval *since, const struct fl_slot *slot) {
    since->total = slot->total;
    since->writes = (int64_t)slot->writes;
    since->apart = apart(slot);
}

void fl_interval_look_for_reset(struct fl_interval *since, const struct fl_slot *slot) {
    if (apart(slot) != since->apart)
        set_back(since, &(tensor_stats){0});
    since->apart = apart(slot);
}

int64_t fl_interval_look(struct fl_interval *since, const struct fl_slot *slot) {
    const tensor_stats *last = &slot->last, *total = &slot->total;
    int64_t writes = (int64_t)slot->writes - since->writes;
    if (writes < 0) {
        writes = total->writes > 0;
        set_back(since, &(tensor_stats){.saturated = total->saturated - last->saturated,
                                        .flushed = total->flushed - last->flushed,
                                        .nonfinite = total->nonfinite - last->nonfinite,
                                        .writes = total->writes - writes});
        since->low = slot->autoflex.clamped_low < since->low ? slot->autoflex.clamped_low : since->low;
        since->high = slot->autoflex.clamped_high < since->high ? slot->autoflex.clamped_high : since->high;
    } else {
        fl_interval_look_for_reset(since, slot);
    }
    fl_interval_resume(since, slot);
    return writes;
}

struct fl_interval_counts fl_interval_counts(const struct fl_interval *since, const struct fl_slot *slot) {
    const tensor_stats *total = &slot->total, *before = &since->before;
    return (struct fl_interval_counts){.saturated = total->saturated - before->saturated,
                                       .flushed = total->flushed - before->flushed,
                                       .nonfinite = total->nonfinite - before->nonfinite,
                                       .clamped_low = slot->autoflex.clamped_low - since->low,
                                       .clamped_high = slot->autoflex.clamped_high - since->high};
}

void fl_interval_end(struct fl_interval *since, const struct fl_slot *slot) {
    since->before = slot->total;
    since->low = slot->autoflex.clamped_low;
    since->high = slot->autoflex.clamped_high;
}

tensor_status fl_recorder_numbers(const struct fl_recorder *r, int64_t **whole, int64_t whole_count, double **real,
                                  int64_t real_count) {
    *whole = fl_alloc((size_t)whole_count * sizeof **whole);
    *real = fl_alloc((size_t)real_count * sizeof **real);
    return *whole && *real ? TENSOR_OK
                           : fl_fail(TENSOR_E_MEMORY, "%s: no memory for the numbers of %d tensors", r->of,
                                     nn_tensor_count(r->graph));
}

bool fl_recorder_is_file(const char *text, int64_t bytes, const char *beginning) {
    const size_t length = strlen(beginning);
    return bytes >= (int64_t)length && !memcmp(text, beginning, length) && text[bytes - 1] == '\n';
}
