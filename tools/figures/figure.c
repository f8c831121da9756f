/* figure.c - the figures of a comparison. */
#include "figures/figure.h"
#include "figures/figure_exponents.h"
#include "figures/figure_loss.h"
#include "figures/gnuplot.h"
#include "base/text.h"
#include <stdlib.h>

int figures_draw(const struct experiment *x, bool wanted, struct figures *figures) {
    *figures = (struct figures){0};
    if (!wanted)
        return figure_exponents_check(x, &figures->nothing_matches);
    int status = figure_loss_draw(x, &figures->loss);
    if (status == GNUPLOT_MISSING) {
        text_note("gnuplot was not found, so the figures are left out; apt-get install gnuplot-nox");
        return STATUS_OK;
    }
    int second = figure_exponents_draw(x, &figures->exponents, &figures->left_out, &figures->nothing_matches);
    if (figures->left_out)
        text_note("figure of exponents: %s", figures->left_out);
    return status > second ? status : second;
}

const char *figures_named(const struct figures *figures) {
    return figures->loss && figures->exponents ? ", figures"
           : figures->loss                     ? ", figure of losses"
           : figures->exponents                ? ", figure of exponents"
                                               : "";
}

void figures_clear(struct figures *figures) {
    free(figures->loss);
    free(figures->exponents);
    free(figures->left_out);
    *figures = (struct figures){0};
}
