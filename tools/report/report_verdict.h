/* report_verdict.h - what came out of a comparison, in a few sentences at the head of the page. */
#ifndef FLEXLAB_REPORT_VERDICT_H
#define FLEXLAB_REPORT_VERDICT_H

#include "results/experiment.h"

/* Which runs diverged, what the others reached, which differ from fp32, and what the formats lost; to be freed. */
char *report_verdict(const struct experiment *x);

#endif
