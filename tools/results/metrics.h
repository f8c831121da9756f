/* metrics.h - metrics.jsonl: one JSON object a line, the configuration first. */
#ifndef FLEXLAB_METRICS_H
#define FLEXLAB_METRICS_H

#include "results/experiment.h"
#include "base/output.h"

/* The version of the layout in docs/output.md. Raise it if readers of the previous layout would misread a file. */
enum { METRICS_SCHEMA = 1 };

/* All but metrics_close return a STATUS_ code of writing the line; lines reach the file at once. */
int metrics_open(struct output_lines *o, const struct experiment *x);
/* A component of a layer, or a parameter, under the policy of a series; network: which of several, or NULL. */
int metrics_roles(struct output_lines *o, const struct series *s, const char *network, const struct role_row *row);
int metrics_step(struct output_lines *o, const struct experiment *x, const struct run *run, const nn_step_report *step);
/* A change of the loss scale. */
int metrics_scale(struct output_lines *o, const struct experiment *x, const struct run *run,
                  const struct scale_change *change);
int metrics_window(struct output_lines *o, const struct experiment *x, const struct run *run,
                   const struct window *window);
int metrics_epoch(struct output_lines *o, const struct experiment *x, const struct run *run,
                  const nn_epoch_report *epoch);
/* A run that is over and its predictions of the test set. */
int metrics_run(struct output_lines *o, const struct experiment *x, const struct run *run);
/* A run that could not be trained. */
int metrics_failure(struct output_lines *o, const struct experiment *x, const struct run *run);
/* Writes one line for each format, then the end line; gives the file its name, even if these lines cannot be
 * written. */
int metrics_close(struct output_lines *o, const struct experiment *x);

#endif
