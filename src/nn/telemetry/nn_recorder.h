/* nn_recorder.h - what the trace and telemetry are both made of: which steps have rows, where the slots of a step are
 * read, what the writes of a tensor add up to from one row to the next, and what a checkpoint keeps of it. Each brings
 * what it shows of a tensor and how a row is printed. */
#ifndef FL_NN_RECORDER_H
#define FL_NN_RECORDER_H

#include "nn/graph/nn_graph.h"
#include "nn/telemetry/nn_rows_file.h"
#include "core/values/slot_copies.h"

struct fl_recorder {
    const char *of; /* before messages: "trace" */
    const nn_graph *graph;
    int64_t every;          /* rows at steps 1, 1 + every, 1 + 2 every, ... */
    int64_t step, row_step; /* the last step that was looked at, and the last with rows */
};
bool fl_recorder_has_rows(const struct fl_recorder *r, int64_t step);
/* At the end: whether steps behind the last row are still without. */
bool fl_recorder_owes_rows(const struct fl_recorder *r);

/* The slots of a device as they are now, when they have arrived; of the host *slots stays NULL. */
tensor_status fl_recorder_take_slots(const struct fl_recorder *r, struct fl_slot_copies **slots);
/* That of tensor i. */
tensor_status fl_recorder_slot(const struct fl_recorder *r, const struct fl_slot_copies *slots, int i,
                               const struct fl_slot **slot);

/* A tensor since its last row. */
struct fl_interval {
    tensor_stats before; /* totals at the last row */
    uint64_t low, high;  /* clamped until the last row */
    int64_t writes;      /* until the last step that was looked at */
};
struct fl_interval_counts {
    int64_t saturated, flushed, nonfinite;
    uint64_t clamped_low, clamped_high;
};
struct fl_interval_counts fl_interval_counts(const struct fl_interval *since, const struct fl_slot *slot);
/* After a row: the next interval begins here. */
void fl_interval_end(struct fl_interval *since, const struct fl_slot *slot);

/* Memory for the numbers that a checkpoint keeps. */
tensor_status fl_recorder_numbers(const struct fl_recorder *r, int64_t **whole, int64_t whole_count, double **real,
                                  int64_t real_count);
/* Whether a text that a checkpoint kept can be such a file so far: whole lines, the first beginning so. */
bool fl_recorder_is_file(const char *text, int64_t bytes, const char *beginning);

#endif
