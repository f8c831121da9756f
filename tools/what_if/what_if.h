/* what_if.h - what other number formats would do to each tensor of a trained network: the command `what-if`. */
#ifndef FLEXLAB_WHAT_IF_H
#define FLEXLAB_WHAT_IF_H

#include "flexlab/nn.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "runs/trained.h"
#include <stdio.h>

/* --- formats and their values (what_if_values.c) ------------------------------------------------------------------ */

enum { MOST_WHAT_IFS = 32 };

struct what_if_format {
    char *name;
    bool shared, blocks; /* mantissas under one exponent for a tensor; a scale for each block */
    bool scaled;         /* floats under one exponent for a tensor */
    double bits;         /* of an element, with its share of the scale of its block */
};
struct what_if_formats {
    int count;
    struct what_if_format list[MOST_WHAT_IFS];
};

/* Reads a list of names with commas between, of formats of tensors, blocks and elements as tensor_quantise_f32 takes
 * them; refuses one that is unknown or named twice, with its position. */
int what_if_formats_read(struct what_if_formats *f, const char *list);
void what_if_formats_clear(struct what_if_formats *f);

/* y = the numbers x, finite values of binary32, as the format stores them; saturated: those that did not fit, and
 * became the largest number, Inf or NaN. A shared exponent is that of the exact maximum, as a load chooses it; blocks
 * lie along dimension `dim`. Draws and signs of the options stochastic and hadamard have the key 0: equal in every run.
 */
tensor_status what_if_values(float *y, const float *x, int ndim, const int64_t *shape, int dim,
                             const struct what_if_format *format, int64_t *saturated);

/* --- measurements (what_if_measure.c) ----------------------------------------------------------------------------- */

/* A tensor in a format, over all batches. */
struct effect {
    double error2;                        /* sum of (y - x)^2; infinite if a number became Inf or NaN */
    int64_t saturated, flushed, infinite; /* infinite: became Inf or NaN */
    double worst, worst_from, worst_to;   /* the element with the largest |y - x| */
};

/* Mantissas of N bits under one exponent, N from LEAST_BITS to MOST_BITS. */
enum { LEAST_BITS = 2, MOST_BITS = 24, WIDTHS = MOST_BITS - LEAST_BITS + 1 };
/* Enough bits: an error of 40 dB below the numbers, and at most one in a thousand numbers lost to zero. */
#define ENOUGH_DB 40.0
#define ENOUGH_FLUSHED 0.001

struct seen {
    char *name;                /* as nn_tensor_at has it; NAME.shards of what all shards have for themselves */
    const char *role, *format; /* as nn_tensor_at has it; the format in which the network stores it */
    int role_number;
    char *shape;
    int ndim, summed; /* dimensions; the one that the forward product sums over, along which blocks lie */
    int64_t dim[TENSOR_MAX_DIMS];
    int64_t arrays; /* measured: one a batch and, of NAME.shards, shard; a weight once */
    int64_t elements, zeros, infinite, nan;
    double smallest, largest; /* |x|: the smallest above 0; 0 without one */
    double power;             /* sum of x^2 */
    int64_t bins[TENSOR_BINS];
    struct effect *effects; /* one for each format */
    double bits_error2[WIDTHS];
    int64_t bits_flushed[WIDTHS];
};

struct what_if {
    const struct settings *settings;
    const char *path, *data; /* the file of the network, and its data */
    struct trained trained;
    struct what_if_formats formats;
    nn_graph *g;
    int64_t batch, batches;
    uint64_t seed;
    double loss, loss_scale; /* mean over the batches; of the steps */
    struct seen *tensors;
    int count;
};

enum { WHAT_IF_ROLES = 4 };
/* "weight", "activation", "gradient", "weight gradient", as nn_tensor_at has them, and their plurals. */
const char *what_if_role(int i), *what_if_roles(int i);

/* Measures the tensors that --tensors chooses, in the forward and backward passes of the batches. */
int what_if_measure(struct what_if *w, const data_set *set);
void what_if_clear(struct what_if *w);

/* Decibels of sum x^2 over sum (y - x)^2: INFINITY if nothing changed, NAN without a number that is not 0, -INFINITY
 * where a number became Inf. */
double effect_snr(const struct seen *t, const struct effect *e);
double effect_relative(const struct seen *t, const struct effect *e); /* the square root of the inverse quotient */
double effect_flushed(const struct seen *t, const struct effect *e);  /* share of the finite numbers other than 0 */
int64_t seen_nonzero(const struct seen *t);
/* Bits that are enough under one exponent; 0: more than MOST_BITS, or there is no number other than 0. */
int seen_bits(const struct seen *t);
double seen_octaves(const struct seen *t); /* log2(largest / smallest); NAN without a number other than 0 */
/* The lowest SNR in any format; INFINITY if nothing changes in any. */
double seen_worst(const struct what_if *w, const struct seen *t);

/* A role in a format. */
struct role_effect {
    int tensors; /* with an SNR */
    double median, worst;
    int worst_tensor; /* -1: none */
    int64_t saturated, flushed;
};
struct role_effect what_if_role_effect(const struct what_if *w, int role, int format);
struct role_sum {
    int tensors;
    int64_t elements, zeros, nonfinite;
} what_if_role_sum(const struct what_if *w, int role);

/* --- what it tells ------------------------------------------------------------------------------------------------ */

/* One line about what the format loses and what helps, to be freed; NULL: nothing to mend (what_if_advice.c). */
char *what_if_advice(const struct what_if *w, const struct seen *t, int format);
/* The worst tensors that have one: at most `most` of a format, worst first. Returns their number. */
int what_if_worst(const struct what_if *w, int format, int most, int *tensors);
/* How the exponents of shared formats were chosen, and what else a reader has to know; NULL past the last. */
char *what_if_note(const struct what_if *w, int i);
/* "resnet8 in fp32 after 160 steps; 4 batches of 64 images of cifar10:DIR, mean loss 1.52"; to be freed. */
char *what_if_subject(const struct what_if *w);
char *snr_text(double snr); /* "41.2", "exact", "Inf", "-" */

void what_if_print(const struct what_if *w);
void what_if_csv(FILE *out, const struct what_if *w);
void what_if_json(FILE *out, const struct what_if *w);
void what_if_page(FILE *out, const struct what_if *w);

#endif
