/* drawing.h - what the printed figures and the page draw alike: which curves there are, in which order and colours,
 * where axes end, what is marked, how many tensors a reader begins with (docs/decisions/0029-figures.md). */
#ifndef FLEXLAB_DRAWING_H
#define FLEXLAB_DRAWING_H

#include "results/experiment.h"

/* A curve over the steps, with a band over the seeds; the last row has no key. */
struct drawing_measure {
    const char *key, *title; /* key: as the page has it (tools/page/curves.js) */
    bool printed;            /* figure-loss has it, too */
};
extern const struct drawing_measure drawing_measures[];
const char *drawing_title(const char *key);

/* A run that diverges would press all others to the floor: axes of losses end at five times the loss of guessing. */
double drawing_loss_cut(const struct experiment *x);
/* The step at which curves of a run have a mark, 0: none. It is that of the first NaN or Inf; in older results, of a
 * loss. */
int64_t drawing_nonfinite_step(const struct run *run);
/* Tensors of a trace that are shown where nobody has chosen others. */
enum { DRAWING_TENSORS = 8 };

struct colour {
    char text[8]; /* "#rrggbb" */
};
/* Of a format, the same in every figure, and no other format of the comparison has it. A variant without suffix always
 * has the same. */
struct colour figure_colour(const struct experiment *x, int series);

/* The colour of shadow format number `shadow` of telemetry: neither a format nor another shadow has it. */
struct colour figure_shadow_colour(const struct experiment *x, char *const *shadows, int shadow);

/* The n-th series to be drawn: the baseline first, the others in the order of the command line. */
int figure_drawn_at(const struct experiment *x, int n);

#endif
