/* report_curves.h - formats, seeds and curves of the runs as data of the page. */
#ifndef FLEXLAB_REPORT_CURVES_H
#define FLEXLAB_REPORT_CURVES_H

#include "results/experiment.h"

/* "series":[...],"seeds":[...],"runs":[...] and what else the curves are drawn by, without braces around. */
void report_curves(FILE *out, const struct experiment *x);

#endif
