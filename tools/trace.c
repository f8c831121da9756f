/* trace.c - reading the exponent traces: step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed. */
#include "trace.h"
#include "text.h"
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 9 };

struct reader {
    FILE *file;
    char *line;
    size_t room;
};

/* One row, split in place. */
struct row {
    const char *name, *role;
    struct trace_point point;
};

static int reader_open(struct reader *r, const char *path) {
    *r = (struct reader){.file = fopen(path, "r")};
    if (!r->file)
        return text_failed("cannot read %s: %s", path, strerror(errno));
    if (getline(&r->line, &r->room, r->file) < 0) {
        fclose(r->file);
        free(r->line);
        return text_failed("%s: is empty, expected a heading", path);
    }
    return STATUS_OK;
}

static void reader_close(struct reader *r) {
    fclose(r->file);
    free(r->line);
}

static bool reader_next(struct reader *r, struct row *row) {
    char *fields[FIELDS], *rest;
    if (getline(&r->line, &r->room, r->file) < 0)
        return false;
    rest = r->line;
    for (int i = 0; i < FIELDS; i++)
        if (!(fields[i] = strsep(&rest, ",\n")))
            return false;
    *row = (struct row){fields[1],
                        fields[2],
                        {strtoll(fields[0], NULL, 10), atoi(fields[3]), strtod(fields[6], NULL), atoi(fields[7]) > 0}};
    return true;
}

static void add_tensor(struct trace *trace, const char *name, const char *role) {
    trace->tensors = text_realloc(trace->tensors, (size_t)trace->count + 1, sizeof *trace->tensors);
    trace->tensors[trace->count++] = (struct trace_tensor){text_format("%s", name), text_format("%s", role), NULL, 0};
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
    struct row row;
    struct trace all = {0};
    *trace = (struct trace){0};
    int status = reader_open(&reader, path);
    if (status)
        return status;
    for (int64_t first = -1; reader_next(&reader, &row) && (first < 0 || row.point.step == first);
         first = row.point.step)
        add_tensor(&all, row.name, row.role);
    reader_close(&reader);
    if (!patterns)
        choose_roles(&all, trace);
    else
        for (int i = 0; i < all.count && trace->count < most; i++)
            if (matches(patterns, all.tensors[i].name))
                add_tensor(trace, all.tensors[i].name, all.tensors[i].role);
    trace_clear(&all);
    return STATUS_OK;
}

struct trace trace_like(const struct trace *other) {
    struct trace trace = {0};
    for (int i = 0; i < other->count; i++)
        add_tensor(&trace, other->tensors[i].name, other->tensors[i].role);
    return trace;
}

int trace_read(const char *path, int group, struct trace *trace) {
    struct reader reader;
    struct row row;
    int status = reader_open(&reader, path);
    if (status)
        return status;
    int *seen = text_alloc((size_t)trace->count, sizeof *seen);
    while (reader_next(&reader, &row)) {
        struct trace_tensor *t = find_tensor(trace, row.name);
        if (!t)
            continue;
        if (seen[t - trace->tensors]++ % group == 0) {
            t->points = text_realloc(t->points, (size_t)t->count + 1, sizeof *t->points);
            t->points[t->count++] = row.point;
            continue;
        }
        struct trace_point *kept = &t->points[t->count - 1];
        bool saturated = kept->saturated || row.point.saturated;
        if (row.point.maximum > kept->maximum)
            *kept = row.point;
        kept->saturated = saturated;
    }
    free(seen);
    reader_close(&reader);
    return STATUS_OK;
}

void trace_clear(struct trace *trace) {
    for (int i = 0; i < trace->count; i++) {
        free(trace->tensors[i].name);
        free(trace->tensors[i].role);
        free(trace->tensors[i].points);
    }
    free(trace->tensors);
    *trace = (struct trace){0};
}
