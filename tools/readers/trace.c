/* trace.c - reading the exponent traces (docs/output.md). A line that training does not write is an error. */
#include "readers/trace.h"
#include "base/input.h"
#include "base/text.h"
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char heading[] = "step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed,nonfinite,"
                              "clamped_low,clamped_high,maximum_e\n";
enum { STEP, TENSOR, ROLE, E, GAMMA, PREDICTED, MAXIMUM, SATURATED, FLUSHED, NONFINITE, LOW, HIGH, MAXIMUM_E, FIELDS };

struct reader {
    FILE *file;
    const char *path;
    char *line;
    size_t room;
    long number; /* of the line */
};

static int reader_open(struct reader *r, const char *path) {
    const char *why;
    *r = (struct reader){.file = input_open(path, &why), .path = path, .number = 1};
    if (!r->file)
        return text_failed("cannot read %s: %s", path, why);
    if (getline(&r->line, &r->room, r->file) >= 0 && !strcmp(r->line, heading))
        return STATUS_OK;
    fclose(r->file);
    free(r->line);
    return text_failed("%s:1: is not the heading of an exponent trace, expected %.*s", path, (int)strlen(heading) - 1,
                       heading);
}

static void reader_close(struct reader *r) {
    fclose(r->file);
    free(r->line);
}

static int refuse(const struct reader *r, const char *what) {
    return text_failed("%s:%ld: %s", r->path, r->number, what);
}

enum { LARGEST_EXPONENT = 200 }; /* beyond those of every format */

/* Split in place. */
static bool parse_row(char *const fields[FIELDS], struct trace_row *row) {
    static const int whole[] = {STEP, E, GAMMA, SATURATED, FLUSHED, NONFINITE, LOW, HIGH, MAXIMUM_E};
    int64_t value[FIELDS] = {0};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        const bool exponent = whole[i] == E || whole[i] == MAXIMUM_E;
        const int64_t least = exponent ? -LARGEST_EXPONENT : whole[i] == STEP;
        if (!text_whole(fields[whole[i]], least, exponent ? LARGEST_EXPONENT : INT64_MAX, &value[whole[i]]))
            return false;
    }
    char *end, *predicted_end;
    double maximum = strtod(fields[MAXIMUM], &end), predicted = strtod(fields[PREDICTED], &predicted_end);
    *row = (struct trace_row){.name = fields[TENSOR],
                              .role = fields[ROLE],
                              .step = value[STEP],
                              .e = (int)value[E],
                              .maximum_e = (int)value[MAXIMUM_E],
                              .gamma = value[GAMMA],
                              .saturated = value[SATURATED],
                              .flushed = value[FLUSHED],
                              .predicted = predicted,
                              .maximum = maximum};
    return end != fields[MAXIMUM] && !*end && predicted_end != fields[PREDICTED] && !*predicted_end && maximum >= 0 &&
           predicted >= 0 && value[GAMMA] <= INT16_MAX && fields[TENSOR][0];
}

static struct trace_point point_of(const struct trace_row *row) {
    return (struct trace_point){row->step, row->maximum_e, row->maximum, row->saturated > 0};
}

/* *status is STATUS_OK at the end of the file too. */
static bool reader_next(struct reader *r, struct trace_row *row, int *status) {
    char *fields[FIELDS], *rest;
    errno = 0;
    ssize_t length = getline(&r->line, &r->room, r->file);
    r->number++;
    *status = STATUS_OK;
    if (length < 0) {
        *status = ferror(r->file) ? refuse(r, strerror(errno)) : STATUS_OK;
        return false;
    }
    if (r->line[length - 1] != '\n')
        *status = refuse(r, "is cut off");
    else
        r->line[length - 1] = 0;
    rest = r->line;
    for (int i = 0; i < FIELDS && *status == STATUS_OK; i++)
        if (!(fields[i] = strsep(&rest, ",")))
            *status = refuse(r, "has too few fields");
    if (*status == STATUS_OK && (rest || !parse_row(fields, row)))
        *status = refuse(
            r, "is not a row of an exponent trace: expected steps from 1, exponents, counts from 0, maxima from 0");
    return *status == STATUS_OK;
}

int trace_rows(const char *path, void (*take)(void *context, const struct trace_row *row), void *context) {
    struct reader reader;
    struct trace_row row;
    int status = reader_open(&reader, path);
    if (status)
        return status;
    while (reader_next(&reader, &row, &status))
        take(context, &row);
    reader_close(&reader);
    return status;
}

static void add_tensor(struct trace *trace, const char *name, const char *role) {
    trace->tensors = text_realloc(trace->tensors, (size_t)trace->count + 1, sizeof *trace->tensors);
    trace->tensors[trace->count++] = (struct trace_tensor){text_format("%s", name), text_format("%s", role), NULL, 0};
}

static void leave_out(struct trace *trace, const char *name) {
    trace->left_out = text_realloc(trace->left_out, (size_t)trace->left_out_count + 1, sizeof *trace->left_out);
    trace->left_out[trace->left_out_count++] = text_format("%s", name);
}

static struct trace_tensor *find_tensor(const struct trace *trace, const char *name) {
    for (int i = 0; i < trace->count; i++)
        if (!strcmp(trace->tensors[i].name, name))
            return &trace->tensors[i];
    return NULL;
}

static bool matches(const char *patterns, const char *name) {
    char *copy = text_format("%s", patterns), *rest = copy, *pattern;
    bool found = false;
    while ((pattern = strsep(&rest, ",")))
        found = found || !fnmatch(pattern, name, 0);
    free(copy);
    return found;
}

/* The first tensor of each role but the input, which is the data, and the last weight. */
static void choose_roles(const struct trace *all, struct trace *chosen) {
    static const struct {
        const char *role, *pattern;
        bool last;
    } wanted[] = {{"weight", "*.weight", false},
                  {"weight", "*.weight", true},
                  {"activation", "*", false},
                  {"gradient", "*", false},
                  {"weight gradient", "*.weight.*", false},
                  {"momentum", "*.weight.*", false}};
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
        const struct trace_tensor *found = NULL;
        for (int i = 0; i < all->count; i++) {
            const struct trace_tensor *t = &all->tensors[i];
            if (!strcmp(t->role, wanted[w].role) && strcmp(t->name, "input") &&
                !fnmatch(wanted[w].pattern, t->name, 0) && (!found || wanted[w].last))
                found = t;
        }
        if (found && !find_tensor(chosen, found->name))
            add_tensor(chosen, found->name, found->role);
    }
}

int trace_choose(const char *path, const char *patterns, int most, struct trace *trace) {
    struct reader reader;
    struct trace_row row;
    struct trace all = {0};
    *trace = (struct trace){0};
    int status = reader_open(&reader, path);
    if (status)
        return status;
    for (int64_t first = -1; reader_next(&reader, &row, &status) && (first < 0 || row.step == first); first = row.step)
        add_tensor(&all, row.name, row.role);
    reader_close(&reader);
    if (!patterns)
        choose_roles(&all, trace);
    else
        for (int i = 0; i < all.count; i++) {
            const struct trace_tensor *t = &all.tensors[i];
            if (matches(patterns, t->name) && trace->count < most)
                add_tensor(trace, t->name, t->role);
            else if (matches(patterns, t->name))
                leave_out(trace, t->name);
        }
    trace_clear(&all);
    return status;
}

struct trace trace_like(const struct trace *other) {
    struct trace trace = {0};
    for (int i = 0; i < other->count; i++)
        add_tensor(&trace, other->tensors[i].name, other->tensors[i].role);
    return trace;
}

int trace_read(const char *path, int group, struct trace *trace) {
    struct reader reader;
    struct trace_row row;
    int status = reader_open(&reader, path);
    if (status)
        return status;
    int *seen = text_alloc((size_t)trace->count, sizeof *seen);
    while (reader_next(&reader, &row, &status)) {
        struct trace_tensor *t = find_tensor(trace, row.name);
        if (!t)
            continue;
        if (seen[t - trace->tensors]++ % group == 0) {
            t->points = text_realloc(t->points, (size_t)t->count + 1, sizeof *t->points);
            t->points[t->count++] = point_of(&row);
            continue;
        }
        struct trace_point *kept = &t->points[t->count - 1];
        bool saturated = kept->saturated || row.saturated > 0;
        if (row.maximum > kept->maximum)
            *kept = point_of(&row);
        kept->saturated = saturated;
    }
    free(seen);
    reader_close(&reader);
    return status;
}

void trace_clear(struct trace *trace) {
    for (int i = 0; i < trace->count; i++) {
        free(trace->tensors[i].name);
        free(trace->tensors[i].role);
        free(trace->tensors[i].points);
    }
    for (int i = 0; i < trace->left_out_count; i++)
        free(trace->left_out[i]);
    free(trace->left_out);
    free(trace->tensors);
    *trace = (struct trace){0};
}
