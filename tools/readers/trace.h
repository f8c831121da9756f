/* trace.h - reading the exponent traces that training wrote, for figure and page. */
#ifndef FLEXLAB_TRACE_H
#define FLEXLAB_TRACE_H

#include <stdbool.h>
#include <stdint.h>

struct trace_point {
    int64_t step;
    int e;          /* exponent of the largest element */
    double maximum; /* largest |element| before rounding, since the point before */
    bool saturated; /* whether an element saturated since the point before */
};

struct trace_tensor {
    char *name, *role;
    struct trace_point *points;
    int count;
};

struct trace {
    struct trace_tensor *tensors;
    int count;
    char **left_out; /* names that match, beyond the most */
    int left_out_count;
};

/* One row as it stands in the file (docs/output.md). */
struct trace_row {
    const char *name, *role; /* until the next row is read */
    int64_t step;
    int e, maximum_e;
    int64_t gamma, saturated, flushed;
    double predicted, maximum;
};

/* Passes every line to `take`. STATUS_FAILED with a message if the file cannot be read. */
int trace_rows(const char *path, void (*take)(void *context, const struct trace_row *row), void *context);

/* The tensors of the first step in a trace, without points: those that match one of the comma-separated patterns, or
 * with NULL a few that show one of each role. At most `most`; the others are named in left_out. STATUS_FAILED with
 * a message when the file cannot be read. */
int trace_choose(const char *path, const char *patterns, int most, struct trace *trace);
/* Reads the points of the tensors that are listed in trace: of every `group` lines of a tensor the one with the largest
 * maximum. */
int trace_read(const char *path, int group, struct trace *trace);
/* The same list of tensors, without points. */
struct trace trace_like(const struct trace *other);
void trace_clear(struct trace *trace);

#endif
