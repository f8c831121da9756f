/* trained.h - a network that `train` has written, with the data that it reads, from the notes of its file. */
#ifndef FLEXLAB_TRAINED_H
#define FLEXLAB_TRAINED_H

#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "options/options.h"

enum { TRAINED_CHANNELS = 4, TRAINED_NOTE = 200 };

/* The properties, from the file, of the images or the text that its network reads. */
struct trained {
    char model[TRAINED_NOTE], format[TRAINED_NOTE], vocabulary[TRAINED_NOTE];
    bool text, augment;
    int64_t height, width, channels, classes, batch, steps, context, shards; /* batch: of a shard */
    double mean[TRAINED_CHANNELS], deviation[TRAINED_CHANNELS];
};

/* All of these functions return a STATUS_ code; the message is printed. */
int trained_read(struct trained *t, const char *path);
/* Opens the part `split` of `data` in the settings, and refuses data that do not suit the network. */
int trained_data(data_set **set, const struct settings *s, const struct trained *t);
/* Opens the network of s->checkpoint, in the state of the file, on s->device; a step may take s->memory GiB. With
 * another s->batch than that of the file (0: the same) it has the weights of the file, and its exponents begin anew. */
int trained_network(nn_graph **g, const struct settings *s, const struct trained *t);

#endif
