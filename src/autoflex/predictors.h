/* predictors.h - one row per exponent predictor. */
#ifndef FL_PREDICTORS_H
#define FL_PREDICTORS_H

#include "flexlab/autoflex.h"

struct autoflex_predictor {
    const char *name;
    const char *summary;
    /* The maximum to make room for, given a history that is not empty; NULL: e never moves by itself. */
    double (*predict)(const struct autoflex *a);
    /* The exponent for that maximum (above zero). */
    int (*exponent)(double maximum);
    bool needs_maximum; /* e comes from the very result it is for (autoflex_fit), not from the history */
};

#endif
