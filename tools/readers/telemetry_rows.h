/* telemetry_rows.h - reading the telemetry that training wrote as lines of JSON (docs/output.md). */
#ifndef FLEXLAB_TELEMETRY_ROWS_H
#define FLEXLAB_TELEMETRY_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* The first line. */
struct telemetry_header {
    int every, tensors; /* steps between rows; tensors that have rows */
    char **shadows;     /* names of formats, each once */
    int shadow_count;
};

struct telemetry_shadow {
    double error; /* NAN: not known */
    double saturated, flushed;
};

/* A line 'tensor'; null becomes NAN. It is valid until the next line is read. */
struct telemetry_row {
    const char *tensor, *role;
    const char *format; /* NULL: not in the file */
    int64_t step;
    int first_bin, bin_count;
    const double *bins;
    double elements, zeros, infinite, nans, saturated, flushed, nonfinite, e_least, e_largest, writes, rounding, l2,
        update_ratio;
    double sampled, sampled_infinite, sampled_error; /* 0, 0, NAN in files of earlier versions */
    const struct telemetry_shadow *shadows;          /* in the order of the header */
};

/* Passes the header to `begin`, then every line to `take`; either may be NULL; without `take` only the header is read.
 * *found is false if there is no such file, which is no failure. STATUS_FAILED with a message otherwise. */
int telemetry_rows(const char *path, void (*begin)(void *context, const struct telemetry_header *header),
                   void (*take)(void *context, const struct telemetry_row *row), void *context, bool *found);

#endif
