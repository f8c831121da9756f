/* inputs.h - the arrays that run, bench and diff give a network: read from files of NumPy, or random ones. */
#ifndef FLEXLAB_INPUTS_H
#define FLEXLAB_INPUTS_H

#include "options/options.h"
#include "programs/networks.h"

struct inputs {
    int count;
    program_array *array;  /* of each port, as program_run takes it */
    program_array *read;   /* as it was read */
    program_array *shapes; /* of random ones; -1: the batch */
    void **own;            /* memory of random numbers, or of numbers brought to another type; NULL: none */
    bool batched;          /* some size is the batch */
};

/* Finds the port of "NAME=FILE"; *port is -1 for a file alone. option: "input" or "output". */
int inputs_split(const struct network *n, const char *option, const char *word, const program_port *ports, int count,
                 int *port, const char **path);

/* Zeroed inputs are valid. Each of the other functions returns a STATUS_ code after a message. */
void inputs_free(struct inputs *in);
/* From the files of --input. */
int inputs_read(struct inputs *in, const struct network *n, const struct word_list *words);
/* Whether an array suits input i; arrays of several inputs may still be of different batches. */
int inputs_check(const struct network *n, int i, const program_array *a);
/* The shapes of random inputs: those of --shape, else what the network states; its first size may be open. */
int inputs_shapes(struct inputs *in, const struct network *n, const struct word_list *words);
/* Random numbers for a batch, after inputs_shapes; always the same ones. */
void inputs_random(struct inputs *in, const struct network *n, int64_t batch);

#endif
