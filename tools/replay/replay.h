/* replay.h - the exponents that each predictor would have chosen for recorded maxima, by the functions that tensors
 * use. */
#ifndef FLEXLAB_REPLAY_H
#define FLEXLAB_REPLAY_H

#include "flexlab/autoflex.h"
#include "readers/trace.h"

/* The results of one predictor for some of the writes. */
struct replay_counts {
    int64_t writes;    /* whose true maximum is above zero */
    int64_t saturated; /* writes in which something did not fit */
    int64_t late;      /* ... after the warm-up */
    int64_t changes;   /* of the exponent, from one write to the next */
    int64_t repeated;  /* computed again, because they did not fit ("repeat"), or fitted otherwise ("current") */
    int64_t same;      /* at the exponent that was recorded */
    int64_t kept;      /* with a mantissa that is not zero: those that unused counts */
    double unused;     /* sum of 15 - log2(gamma) over them, or of the powers of two up to the largest float */
    int64_t outliers, recovered;
    int64_t recovery, slowest; /* writes from an outlier to the first with at least 11 bits: sum, maximum */
};

void replay_add(struct replay_counts *to, const struct replay_counts *counts);

struct replay_options {
    int64_t warm_up; /* steps */
    int e_min, e_max, bits;
    double largest; /* of elements that are floats; 0: mantissas */
    double outlier; /* factor of every 100th maximum of a tensor; 0: as recorded */
};

struct replay_life {
    struct autoflex a;
    struct replay_counts counts;
    int e;           /* of the last write */
    int64_t waiting; /* writes since an outlier that has not been recovered from; 0: none */
};

/* One tensor under one predictor. */
void replay_begin(struct replay_life *life, autoflex_predictor predictor, const char *role,
                  const struct replay_options *how);
/* Its next row. `factor`: what the recorded maximum is multiplied by; `outlier`: it stands out from those before it. */
void replay_write(struct replay_life *life, const struct trace_row *row, double factor, bool outlier,
                  const struct replay_options *how);

#endif
