/* weights.h - checks the initial weights of a file before the runs. */
#ifndef FLEXLAB_WEIGHTS_H
#define FLEXLAB_WEIGHTS_H

#include "results/experiment.h"

/* Whether the file of --weights has all weights of the network; a STATUS_ code. */
int weights_check(const struct experiment *x);

#endif
