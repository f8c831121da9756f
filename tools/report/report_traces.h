/* report_traces.h - the exponent traces as data of the page, thinned out so that no saturation disappears. */
#ifndef FLEXLAB_REPORT_TRACES_H
#define FLEXLAB_REPORT_TRACES_H

#include "results/experiment.h"
#include "report/report_tensors.h"

/* "traces":{...}. A STATUS_ code: a trace that cannot be read is reported. */
int report_traces(FILE *out, const struct experiment *x, struct report_tensors *tensors);

#endif
