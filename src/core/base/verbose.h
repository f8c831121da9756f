/* verbose.h - FLEXLAB_VERBOSE: whether the library reports on stderr what it chose. */
#ifndef FL_VERBOSE_H
#define FL_VERBOSE_H

#include "flexlab/status.h"
#include <stdbool.h>

/* Whether FLEXLAB_VERBOSE=1. The variable is read once. */
bool fl_verbose(void);
/* TENSOR_E_ARGUMENT if the variable is set, but is neither 0 nor 1. */
tensor_status fl_check_verbose(void);

#endif
