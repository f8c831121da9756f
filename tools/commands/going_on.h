/* going_on.h - --resume: what there is to go on from, and the options that it was begun with. */
#ifndef FLEXLAB_GOING_ON_H
#define FLEXLAB_GOING_ON_H

#include "results/experiment.h"

/* Finds what settings->resume names, into x->resume and x->again, and replaces the settings by those that it was begun
 * with, but for what may be given anew. They point into *words, argv with NULL behind it, to be freed. A STATUS_ code.
 */
int going_on_find(struct experiment *x, struct settings *settings, char ***words);
/* What was begun with other formats than its options name is refused; a STATUS_ code. */
int going_on_check(const struct experiment *x);
/* The options of several runs as a folder stores them (folder.h); to be freed. */
char *going_on_options(const struct experiment *x);
/* The options that checkpoints keep: those of the command line or, with words (NULL: none), those that it was begun
 * with and what is given anew. To be freed. */
char *going_on_kept(enum command command, char **words, int argc, char **argv);
/* The command as it could be typed again; to be freed. Of one that goes on, which with --resume would find nothing to
 * go on from, by the options that it was begun with. */
char *command_line(int argc, char **argv);
char *going_on_line(const struct experiment *x);

#endif
