/* figure_exponents.h - the figure of shared exponents. */
#ifndef FLEXLAB_FIGURE_EXPONENTS_H
#define FLEXLAB_FIGURE_EXPONENTS_H

#include "results/experiment.h"

/* Writes figure-exponents.svg and .png from the traces; as gnuplot_draw, *svg is NULL where there is nothing to draw.
 * *left_out: a sentence that names formats and tensors that have no place in it, NULL without any; to be freed.
 * *nothing_matches: x->settings->trace_tensors chooses no tensor, which a note has said. */
/* As it, of what would be drawn: *nothing_matches alone. */
int figure_exponents_check(const struct experiment *x, bool *nothing_matches);
int figure_exponents_draw(const struct experiment *x, char **svg, char **left_out, bool *nothing_matches);

#endif
