/* report_paired.h - differences to fp32, seed by seed. */
#ifndef FLEXLAB_REPORT_PAIRED_H
#define FLEXLAB_REPORT_PAIRED_H

#include "results/experiment.h"

enum report_measure { REPORT_LAST_LOSS, REPORT_TEST_LOSS, REPORT_ACCURACY }; /* accuracy in points, of 100 */

/* Differences of one format to fp32 over the seeds that both finished. */
struct report_pair {
    int count;
    double mean;
    double deviation, half, p; /* half: of the 95 % interval; NAN with fewer than two pairs, or where one is not finite;
                                  p also where all are equal */
};

struct report_pair report_pair_of(const struct experiment *x, int series, enum report_measure measure);
/* "< 0.0001", "0.0131"; to be freed. */
char *report_probability(double p);

/* A table with a line for each format and measure: mean difference over the seeds, its standard deviation, the interval
 * that holds the true mean with 95 %, and Student's paired test. NULL without fp32 or another format beside it. */
struct table *report_paired_table(const struct experiment *x);

#endif
