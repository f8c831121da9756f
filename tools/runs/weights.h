/* weights.h - initial weights of a file, tried before the runs. */
#ifndef FLEXLAB_WEIGHTS_H
#define FLEXLAB_WEIGHTS_H

#include "results/experiment.h"

/* Whether the file of --weights has all that the network wants; a STATUS_ code. */
int weights_check(const struct experiment *x);

#endif
