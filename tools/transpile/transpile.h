/* transpile.h - the parts of `transpile`: which format each node gets, what that does to each tensor, and the reports.
 */
#ifndef FLEXLAB_TRANSPILE_H
#define FLEXLAB_TRANSPILE_H

#include "programs/networks.h"
#include <stdint.h>
#include <stdio.h>

struct settings;

/* --- formats of nodes (transpile_rules.c) ------------------------------------------------------------------------- */

/* Gives each node its format: that of --to; then by the rules of --policy and --format, of which the last that matches
 * wins; fp32 for what --exclude and --keep-op name. Nodes of 8-bit integers remain what they are. A pattern that
 * matches nothing is an error. *integers: some become 8-bit integers when the program is frozen. */
int transpile_rules(program *p, const struct settings *s, bool *integers);

/* --- what formats do to tensors (transpile_measure.c) ------------------------------------------------------------- */

enum measured_kind { MEASURED_WEIGHT, MEASURED_CAST, MEASURED_RESULT };
/* Bin i of a histogram has the numbers from 2^(FIRST_BIN + i) to twice that; the first and last also those beyond. */
enum { FIRST_BIN = -40, BINS = 64 };

/* A tensor in its format, and the same in fp32. */
struct measured {
    enum measured_kind kind;
    char *value, *node, *op;
    tensor_format format; /* 0: integers */
    tensor_type integers;
    int exponent;
    bool shared;
    int64_t elements, saturated, flushed, nonfinite;
    double largest, largest_error, signal, noise; /* of fp32, of the difference; their sums of squares */
    int64_t sizes[BINS], errors[BINS];
};

struct tensor_list {
    struct measured *list;
    int count, room, next;
    int64_t batches;
};

/* Tensors of the program in fp32, of one run. */
struct reference_list {
    struct reference {
        char *value;
        float *numbers;
        int64_t count;
    } * list;
    int count, room, next;
};

/* An output, or a result of a node, on the fixed input of program_probe: of the source and of the transpiled program.
 */
struct checksum {
    char *value, *node;
    program_sum source, here;
};
struct checksum_list {
    struct checksum *list;
    int count, outputs; /* outputs come first */
    int casts;          /* copies in another format that a run makes */
    char *why;          /* there are none; NULL: there are */
};

int measure_weights(struct tensor_list *t, const struct network *n);
/* Runs both on the same inputs, and adds what differs. */
int measure_run(struct tensor_list *t, const struct network *source, const struct network *n,
                const program_array *inputs);
/* Worst first: the lowest ratio of signal to noise; weights, casts and results as they are. */
void measure_sort(struct tensor_list *t);
void measure_free(struct tensor_list *t);
const char *measured_kind_name(enum measured_kind kind);
double measured_sqnr(const struct measured *m); /* decibels; INFINITY without a difference, NAN without a signal */

/* like: inputs of the calibration data, for their shapes; NULL: none. */
void measure_checksums(struct checksum_list *c, const struct network *source, const struct network *n,
                       const program_array *like);
void checksum_free(struct checksum_list *c);

/* --- reports (transpile_report.c) --------------------------------------------------------------------------------- */

struct transpiled {
    const struct settings *settings;
    const struct network *source, *network;
    const struct tensor_list *tensors;
    const struct checksum_list *sums;
    const char *data; /* what calibrated, and how much; NULL: nothing did */
    int64_t bytes_before, bytes_after;
};
void transpile_print(const struct transpiled *t);
void transpile_csv(FILE *out, const struct transpiled *t);
void transpile_page(FILE *out, const struct transpiled *t);

#endif
