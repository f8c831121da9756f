/* figure_loss.h - the figure of loss and accuracy. */
#ifndef FLEXLAB_FIGURE_LOSS_H
#define FLEXLAB_FIGURE_LOSS_H

#include "results/experiment.h"

/* Writes figure-loss.svg and .png; as gnuplot_draw. */
int figure_loss_draw(const struct experiment *x, char **svg);

#endif
