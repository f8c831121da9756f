/* kept.h - what the program keeps of a run in a checkpoint: all that metrics.jsonl, tables and figures tell of its
 * steps. */
#ifndef FLEXLAB_KEPT_H
#define FLEXLAB_KEPT_H

#include "results/experiment.h"
#include "base/output.h"

/* The window under way, with --step-loss the loss and rate of every step so far, and how long steps took. */
struct kept {
    double window_sum;
    int window_count;
    double finite_sum; /* of losses that are finite */
    int nonfinite;     /* steps whose loss is not */
    double *steps;     /* two numbers each */
    int64_t step_count, step_room;
    double *times; /* s, of steps that are timed */
    int64_t time_count, time_room;
    double wall;     /* s, of the run so far */
    int64_t resumed; /* steps before this was stored; 0: none, the run began here */
    void *bytes;     /* of the last kept_bytes */
};

/* The loss of the window under way; the window so far, which then begins anew. */
void kept_loss(struct kept *k, double loss);
struct window kept_window(struct kept *k, int64_t step, double rate);
void kept_step(struct kept *k, double loss, double rate);
void kept_time(struct kept *k, double seconds);
/* To be read again by kept_take; stay until the next call. */
const void *kept_bytes(struct kept *k, const struct run *run, size_t *bytes);
/* Fills run and k; false where the bytes are none of ours. The run has room for all windows and epochs. Whether the
 * network stands at k->resumed is for the caller to see. */
bool kept_take(struct kept *k, const struct experiment *x, struct run *run, const void *bytes, size_t count);
/* Writes the lines of metrics.jsonl that there were; a STATUS_ code. */
int kept_write(const struct kept *k, const struct experiment *x, const struct run *run, struct output_lines *metrics);
void kept_clear(struct kept *k);

#endif
