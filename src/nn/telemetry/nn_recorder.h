/* nn_recorder.h - code that the trace and telemetry share: which steps have records, the slots of a step, the totals of
 * a tensor's writes from one record to the next, and their form in a checkpoint. Each adds its own columns and format.
 */
#ifndef FL_NN_RECORDER_H
#define FL_NN_RECORDER_H

#include "nn/graph/nn_graph.h"
#include "nn/telemetry/nn_rows_file.h"
#include "core/values/slot_copies.h"

struct fl_recorder {
    const char *of; /* before messages: "trace" */
    const nn_graph *graph;
    int64_t every;          /* records at steps 1, 1 + every, 1 + 2 every, ... */
    int64_t step, row_step; /* the last step examined, and the last with records */
};
bool fl_recorder_has_rows(const struct fl_recorder *r, int64_t step);
/* At the end: whether there are steps after the last record. */
bool fl_recorder_owes_rows(const struct fl_recorder *r);

/* Copies the present slots of a device, and waits for them; *slots remains NULL on the host. */
tensor_status fl_recorder_take_slots(const struct fl_recorder *r, struct fl_slot_copies **slots);
/* The slot of tensor i. */
tensor_status fl_recorder_slot(const struct fl_recorder *r, const struct fl_slot_copies *slots, int i,
                               const struct fl_slot **slot);

/* The least total that a checkpoint may have: further counts do not overflow. */
#define FL_INTERVAL_LEAST (-(INT64_C(1) << 61))

/* The totals of a tensor since its last record, whose statistics can be reset between two steps. */
struct fl_interval {
    tensor_stats before; /* totals at the last record, less what a reset has set back since then: may be below 0 */
    tensor_stats total;  /* totals at the last look */
    uint64_t low, high;  /* clamped until the last record */
    int64_t writes;      /* of the tensor's life, until the last look */
    int64_t apart;       /* more of these than `total` counts */
};
struct fl_interval_counts {
    int64_t saturated, flushed, nonfinite;
    uint64_t clamped_low, clamped_high;
};
/* Begins with the totals of that moment. */
void fl_interval_begin(struct fl_interval *since, const struct fl_slot *slot);
/* Looks again; returns how many writes there were since the last look, of those of the tensor's life. Of a state that
 * was set back the last write alone is known to be new. */
int64_t fl_interval_look(struct fl_interval *since, const struct fl_slot *slot);
/* Looks whether statistics were reset since the last step; writes after it remain to be looked at. */
void fl_interval_look_for_reset(struct fl_interval *since, const struct fl_slot *slot);
/* The members `before`, `low` and `high` are those that a checkpoint has; the slot is that of the same checkpoint, all
 * of whose writes had been looked at. */
void fl_interval_resume(struct fl_interval *since, const struct fl_slot *slot);
struct fl_interval_counts fl_interval_counts(const struct fl_interval *since, const struct fl_slot *slot);
/* Begins the next interval, after a record. */
void fl_interval_end(struct fl_interval *since, const struct fl_slot *slot);

/* Allocates the numbers that a checkpoint stores. */
tensor_status fl_recorder_numbers(const struct fl_recorder *r, int64_t **whole, int64_t whole_count, double **real,
                                  int64_t real_count);
/* Whether a text from a checkpoint can be the beginning of such a file: whole lines, the first of which starts with
 * `beginning`. */
bool fl_recorder_is_file(const char *text, int64_t bytes, const char *beginning);

#endif
