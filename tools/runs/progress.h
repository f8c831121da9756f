/* progress.h - the progress of a run on stderr: one line for each epoch, and on a terminal below them one that is
 * redrawn. */
#ifndef FLEXLAB_PROGRESS_H
#define FLEXLAB_PROGRESS_H

#include "results/experiment.h"

struct progress {
    bool quiet, terminal, drawn;
    int run, runs, epochs; /* run: from 1 */
    int context;           /* tokens of a sequence; 0: images */
    const char *label;
    uint64_t seed;
    double begin, run_start, last_draw; /* wall clock; run_start: now less the time of the run so far */
    int64_t steps, done;                /* of all runs */
};

void progress_begin(struct progress *p, const struct experiment *x);
/* Shows this run from now on, which has taken `spent` seconds so far. */
void progress_run(struct progress *p, int run, const char *label, uint64_t seed, double spent);
/* The run is resumed after so many steps, which take no more time. */
void progress_resumed(struct progress *p, int64_t steps);
void progress_step(struct progress *p, const nn_step_report *report);
void progress_epoch(struct progress *p, const nn_epoch_report *report);
void progress_run_done(struct progress *p, const struct experiment *x, const struct run *run);
/* Removes the line, so that a message can be printed. */
void progress_clear(struct progress *p);

#endif
