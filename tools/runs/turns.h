/* turns.h - the runs of one seed, each a slice of steps at a time, so that all formats meet the same machine. */
#ifndef FLEXLAB_TURNS_H
#define FLEXLAB_TURNS_H

#include "results/experiment.h"
#include "results/folder.h"
#include "base/output.h"
#include "runs/progress.h"

/* The note of a checkpoint that has the options of the training. */
extern const char turns_arguments_key[];

/* Trains every format with seed number `seed` of x, and puts what there is into x->runs and, run by run in their order,
 * into metrics; a STATUS_ code. After a failure or a signal the runs that have begun are kept as stopped. */
int turns_train(struct experiment *x, int seed, struct folder *folder, struct output_lines *metrics,
                struct progress *progress);

#endif
