/* report_telemetry.h - histograms and counts of telemetry-FORMAT-seedN.jsonl (docs/output.md) as data of the page.
 */
#ifndef FLEXLAB_REPORT_TELEMETRY_H
#define FLEXLAB_REPORT_TELEMETRY_H

#include "results/experiment.h"
#include "report/report_tensors.h"

/* "telemetry":{...}, of the runs that have such a file. A STATUS_ code: a file that cannot be read is reported. */
int report_telemetry(FILE *out, const struct experiment *x, struct report_tensors *tensors);

#endif
