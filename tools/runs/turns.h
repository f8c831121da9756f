/* turns.h - the runs of one seed in alternating slices of steps, so that all formats meet the same machine. */
#ifndef FLEXLAB_TURNS_H
#define FLEXLAB_TURNS_H

#include "results/experiment.h"
#include "results/folder.h"
#include "base/output.h"
#include "runs/progress.h"

/* The name of the note in a checkpoint that has the options of the training. */
extern const char turns_arguments_key[];

/* Trains every format with seed number `seed` of x, and puts the results into x->runs and, run by run in their order,
 * into metrics; a STATUS_ code. After a failure or a signal the runs that have begun are stored as stopped. */
int turns_train(struct experiment *x, int seed, struct folder *folder, struct output_lines *metrics,
                struct progress *progress);

#endif
