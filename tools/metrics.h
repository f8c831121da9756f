/* metrics.h - metrics.jsonl: one JSON object a line, the configuration first. */
#ifndef FLEXLAB_METRICS_H
#define FLEXLAB_METRICS_H

#include "experiment.h"
#include "output.h"

/* All but metrics_close return a STATUS_ code of writing the line; lines reach the file at once. */
int metrics_open(struct output_lines *o, const struct experiment *x);
int metrics_window(struct output_lines *o, const struct experiment *x, const struct run *run,
                   const struct window *window);
int metrics_epoch(struct output_lines *o, const struct experiment *x, const struct run *run,
                  const nn_epoch_report *epoch);
int metrics_run(struct output_lines *o, const struct experiment *x, const struct run *run);
/* One line a format, then the end line; gives the file its name, also when these lines cannot be written. */
int metrics_close(struct output_lines *o, const struct experiment *x);

#endif
