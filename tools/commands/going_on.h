/* going_on.h - --resume: finds what to resume from, and the options that it was begun with. */
#ifndef FLEXLAB_GOING_ON_H
#define FLEXLAB_GOING_ON_H

#include "results/experiment.h"

/* Finds what settings->resume names, sets x->resume and x->again, and replaces the settings by those of the beginning,
 * except options that may be given anew. They then point into *words, an argv with a final NULL, to be freed. Returns a
 * STATUS_ code. */
int going_on_find(struct experiment *x, struct settings *settings, char ***words);
/* Refuses a training that has stored policies of more or fewer formats than its options name; a STATUS_ code. */
int going_on_check(const struct experiment *x);
/* The options of several runs as a folder stores them (folder.h); to be freed. */
char *going_on_options(const struct experiment *x);
/* The options that checkpoints store: those of the command line or, with words (NULL: none), those of the beginning and
 * those given anew. To be freed. */
char *going_on_kept(enum command command, char **words, int argc, char **argv);
/* The command as it could be typed again; to be freed. going_on_line has the options of the beginning of a resumed
 * training, whose checkpoint may be gone by then. */
char *command_line(int argc, char **argv);
char *going_on_line(const struct experiment *x);

#endif
