/* telemetry.h - patterns of --telemetry, tried before the runs. */
#ifndef FLEXLAB_TELEMETRY_H
#define FLEXLAB_TELEMETRY_H

#include "results/experiment.h"

/* Whether they match a tensor of any format; a STATUS_ code. */
int telemetry_check(const struct experiment *x);

#endif
