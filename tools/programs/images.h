/* images.h - labelled images as the input of a network trained elsewhere: normalised, in its layout, batch by batch. */
#ifndef FLEXLAB_IMAGES_H
#define FLEXLAB_IMAGES_H

#include "flexlab/data.h"
#include "programs/networks.h"
#include <stdbool.h>

enum { MOST_CHANNELS = 4 };
struct settings;

/* settings: --mean, --std, --layout, --split, --test-limit, --batch. */
struct images {
    const struct settings *settings;
    const struct network *network;
    const char *option, *specification; /* --OPTION SPEC */
    data_set *set;
    double mean[MOST_CHANNELS], deviation[MOST_CHANNELS];
    bool channels_first;
    program_array input; /* a batch */
    float *floats;       /* its numbers, before they become integers where the network takes such */
};

/* Opens the data, finds the layout and allocates a batch. Prints a message on failure and returns a STATUS_ code. */
int images_open(struct images *e, data_split split);
/* Also where opening failed. */
void images_close(struct images *e);
int images_open_set(data_set **set, const char *option, const char *specification, data_split split);
/* Batches of a set with this normalisation; NULL with tensor_error(). */
data_loader *images_load(const struct images *e, const data_set *set);
/* A batch in the layout of the network. Images that the last one lacks are its first one again: a run of the same shape
 * plans nothing anew, and calibration sees no image that is none of the data. */
void images_take(struct images *e, const data_batch *batch);

#endif
