/* stored.h - a comparison read back from its folder of results. */
#ifndef FLEXLAB_STORED_H
#define FLEXLAB_STORED_H

#include "results/experiment.h"

struct stored {
    struct settings settings;
    struct experiment x; /* without data sets; complete but for x.folder */
    void *config;        /* owns the texts of settings */
};

/* Reads FOLDER/metrics.jsonl. A STATUS_ code; a message names the file, the line and the field that is wrong.
 * stored_clear is needed in any case. */
int stored_read(struct stored *stored, const char *folder);
void stored_clear(struct stored *stored);

/* Moves the runs of `other` to `into`, which then has the formats and seeds of both and each run once. The comparisons
 * must have trained the same network in the same way, and runs that both have must agree. A STATUS_ code. */
int stored_merge(struct stored *into, struct stored *other);

#endif
