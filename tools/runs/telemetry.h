/* telemetry.h - checks the patterns of --telemetry before the runs. */
#ifndef FLEXLAB_TELEMETRY_H
#define FLEXLAB_TELEMETRY_H

#include "results/experiment.h"

/* Whether the patterns match a tensor of any format; a STATUS_ code. */
int telemetry_check(const struct experiment *x);

#endif
