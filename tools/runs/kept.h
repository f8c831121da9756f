/* kept.h - what the program stores of a run in a checkpoint: all that metrics.jsonl, tables and figures report of its
 * steps. */
#ifndef FLEXLAB_KEPT_H
#define FLEXLAB_KEPT_H

#include "results/experiment.h"
#include "base/output.h"

/* The current window, with --step-loss the loss and rate of every step so far, and the times of steps. */
struct kept {
    double window_sum;
    int window_count;
    double finite_sum; /* of losses that are finite */
    int nonfinite;     /* steps whose loss is not finite */
    double *steps;     /* two numbers each */
    int64_t step_count, step_room;
    double *times; /* s, of steps that are timed */
    int64_t time_count, time_room;
    double wall;     /* s, of the run so far */
    int64_t resumed; /* steps before this was stored; 0: none, the run began here */
    void *bytes;     /* the result of the last kept_bytes */
};

/* Adds a loss to the current window; returns the window so far and begins a new one. */
void kept_loss(struct kept *k, double loss);
struct window kept_window(struct kept *k, int64_t step, double rate);
void kept_step(struct kept *k, double loss, double rate);
void kept_time(struct kept *k, double seconds);
/* The bytes that kept_take reads; valid until the next call. */
const void *kept_bytes(struct kept *k, const struct run *run, size_t *bytes);
/* Fills run and k; false if the bytes were not written by kept_bytes. The run has memory for all windows and epochs.
 * The caller checks that the network is at step k->resumed. */
bool kept_take(struct kept *k, const struct experiment *x, struct run *run, const void *bytes, size_t count);
/* Writes the lines of metrics.jsonl up to that step again; a STATUS_ code. */
int kept_write(const struct kept *k, const struct experiment *x, const struct run *run, struct output_lines *metrics);
void kept_clear(struct kept *k);

#endif
