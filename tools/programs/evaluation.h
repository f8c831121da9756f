/* evaluation.h - a network trained elsewhere on labelled images: how often it is right, how far its outputs are from
 * those of fp32, and the batches that calibrate it. */
#ifndef FLEXLAB_EVALUATION_H
#define FLEXLAB_EVALUATION_H

#include "programs/images.h"

struct table;

struct evaluation {
    const struct settings *settings;
    struct network network;
    struct images images;
    program_array *outputs;
    float *logits;                         /* of a batch */
    int64_t classes;                       /* numbers of an image in the first output */
    program_sum first_image, first_output; /* of the first image, and of what the network gives for it */
    float *reference;                      /* those of fp32, of all images */
};

/* Zeroed, it may be closed without having been opened. These functions print a message on failure and return a STATUS_
 * code. */
int evaluation_open(struct evaluation *e, const struct settings *s);
void evaluation_close(struct evaluation *e);
void evaluation_print_head(const struct evaluation *e);

struct score {
    int64_t right, agreeing, nonfinite;
    double largest, sum, noise, power, seconds; /* of the differences from fp32, and of fp32 */
};
/* All images once, in the format that the network has. The first run is the reference of all others. */
int evaluation_run(struct evaluation *e, struct score *s, bool is_reference);
/* Cells of a table: accuracy, agreement, largest and mean error, SQNR. */
void evaluation_cells(struct table *t, const struct evaluation *e, const struct score *s, bool is_reference);

/* The batches of --calibrate; without it the training part of the data, or the images that are evaluated. */
struct calibration {
    struct evaluation *e;
    const char *data;
    data_set *other; /* NULL: the evaluated images */
    data_loader *loader;
    int64_t batches, images; /* so far */
};
int calibration_open(struct calibration *c, struct evaluation *e, bool training_part);
/* Shows the program batches until it has seen so many, or all. */
int calibration_advance(struct calibration *c, const struct network *n, int64_t batches);
void calibration_close(struct calibration *c);

#endif
