/* figure.h - the figures for print, drawn by gnuplot where they are wanted and it is installed. */
#ifndef FLEXLAB_FIGURE_H
#define FLEXLAB_FIGURE_H

#include "results/experiment.h"

/* SVG text for the report, NULL for a figure that was not drawn. */
struct figures {
    char *loss, *exponents;
    char *left_out;       /* a sentence that names what the figure of exponents omits; NULL: nothing */
    bool nothing_matches; /* --trace-tensors chooses none, which is reported */
};

/* Writes figure-loss and figure-exponents as .svg and .png into the folder of results, if they are wanted. Without
 * gnuplot it prints what to install and draws nothing, which is no failure. Says in any case if --trace-tensors chooses
 * nothing. A STATUS_ code. */
int figures_draw(const struct experiment *x, bool wanted, struct figures *figures);
/* ", figures" or the ones that were drawn, for the list of written files. */
const char *figures_named(const struct figures *figures);
void figures_clear(struct figures *figures);

#endif
