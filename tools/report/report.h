/* report.h - report.html: one page that needs no other file. */
#ifndef FLEXLAB_REPORT_H
#define FLEXLAB_REPORT_H

#include "results/experiment.h"
#include "figures/figure.h"

/* A STATUS_ code. */
int report_write(const struct experiment *x, const struct figures *figures);

#endif
