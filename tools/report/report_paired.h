/* report_paired.h - differences to fp32, seed by seed. */
#ifndef FLEXLAB_REPORT_PAIRED_H
#define FLEXLAB_REPORT_PAIRED_H

#include "results/experiment.h"

/* A table with a line for each format and measure: mean difference over the seeds, its standard deviation, the interval
 * that holds the true mean with 95 %, and Student's paired test. NULL without fp32 or another format beside it. */
struct table *report_paired_table(const struct experiment *x);

#endif
