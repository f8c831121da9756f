/* report_traces.c - the exponent traces as data of the page. If a trace has too many records for the page, each run of
 * them becomes one bucket: least and largest exponent, least and largest maximum, and sums of the counts.
 */
#include "report/report_traces.h"
#include "figures/drawing.h"
#include "report/page_json.h"
#include "base/text.h"
#include "readers/trace.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* Buckets of all tensors of all runs together; of one tensor of one run; how few make the seeds but the first be left
 * out. */
enum { ROOM = 60000, LEAST = 24, MOST = 512, COARSE = 100 };

struct bucket {
    int e, least_e, largest_e;                            /* of the largest element, and of all rows */
    double least, largest, predicted, saturated, flushed; /* exact below 2^53 */
    int64_t gamma;
};

struct lane {
    struct bucket *buckets;
    int count, rows;
};

struct lanes {
    struct report_tensors *tensors;
    struct lane *lanes; /* by the number of the tensor */
    int lane_count, group;
    int last;       /* the tensor of the row before */
    int64_t *steps; /* the last of each bucket */
    int step_count;
};

static struct lane *lane_at(struct lanes *all, int n) {
    if (n >= all->lane_count) {
        all->lanes = text_realloc(all->lanes, (size_t)n + 1, sizeof *all->lanes);
        while (all->lane_count <= n)
            all->lanes[all->lane_count++] = (struct lane){0};
    }
    return &all->lanes[n];
}

static void note_step(struct lanes *all, int bucket, int64_t step) {
    if (bucket >= all->step_count) {
        all->steps = text_realloc(all->steps, (size_t)bucket + 1, sizeof *all->steps);
        all->steps[bucket] = step;
        all->step_count = bucket + 1;
    }
    all->steps[bucket] = step > all->steps[bucket] ? step : all->steps[bucket];
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

static void take_row(void *context, const struct trace_row *row) {
    struct lanes *all = context;
    all->last = report_tensor_number(all->tensors, row->name, row->role, all->last + 1);
    struct lane *lane = lane_at(all, all->last);
    if (lane->rows++ % all->group == 0) {
        lane->buckets = text_realloc(lane->buckets, (size_t)lane->count + 1, sizeof *lane->buckets);
        lane->buckets[lane->count++] = (struct bucket){.e = row->maximum_e,
                                                       .least_e = row->maximum_e,
                                                       .largest_e = row->maximum_e,
                                                       .least = row->maximum,
                                                       .largest = row->maximum,
                                                       .predicted = row->predicted};
    }
    struct bucket *b = &lane->buckets[lane->count - 1];
    note_step(all, lane->count - 1, row->step);
    b->least_e = smaller(b->least_e, smaller(row->e, row->maximum_e));
    b->largest_e = larger(b->largest_e, larger(row->e, row->maximum_e));
    if (row->maximum > b->largest || isnan(row->maximum)) {
        b->e = row->maximum_e;
        b->predicted = row->predicted;
        b->largest = row->maximum;
    }
    if (row->maximum < b->least)
        b->least = row->maximum;
    b->gamma = row->gamma > b->gamma ? row->gamma : b->gamma;
    b->saturated += (double)row->saturated;
    b->flushed += (double)row->flushed;
}

/* --- printing ------------------------------------------------------------------------------------------------------
 */

static double value_of(const struct bucket *b, int column) {
    const double values[] = {b->e,         b->least_e,       b->largest_e, b->largest, b->least,
                             b->predicted, (double)b->gamma, b->saturated, b->flushed};
    return values[column];
}

static bool equal_columns(const struct lane *lane, int a, int b) {
    for (int i = 0; i < lane->count; i++) {
        const double one = value_of(&lane->buckets[i], a), two = value_of(&lane->buckets[i], b);
        if (one != two && !(isnan(one) && isnan(two)))
            return false;
    }
    return true;
}

/* Least and largest are omitted if they add nothing. Magnitudes have the digits that a trace has. */
static void print_lane(FILE *out, const struct lane *lane) {
    static const struct {
        const char *name;
        int digits, same_as;
    } columns[] = {{"e", 6, -1},    {"e_least", 6, 0}, {"e_largest", 6, 0},   {"max", 9, -1},     {"max_least", 9, 3},
                   {"room", 9, -1}, {"gamma", 6, -1},  {"saturated", 16, -1}, {"flushed", 16, -1}};
    double *values = text_alloc((size_t)lane->count, sizeof *values);
    for (int c = 0; c < (int)(sizeof columns / sizeof *columns); c++) {
        if (columns[c].same_as >= 0 && equal_columns(lane, c, columns[c].same_as))
            continue;
        for (int i = 0; i < lane->count; i++)
            values[i] = value_of(&lane->buckets[i], c);
        fprintf(out, "%s\"%s\":", c ? "," : "", columns[c].name);
        page_column(out, values, lane->count, columns[c].digits);
    }
    free(values);
}

static void print_run(FILE *out, const struct experiment *x, const struct run *run, const struct lanes *all) {
    fprintf(out, "{\"series\":%d,\"seed\":%d,\"every\":%d,\"rows\":%d,\"steps\":[", run->series,
            (int)((run - x->runs) / x->series_count), x->origins[run->origin].trace_every, all->group);
    for (int i = 0; i < all->step_count; i++)
        fprintf(out, "%s%lld", i ? "," : "", (long long)all->steps[i]);
    fputs("],\"lanes\":{", out);
    bool first = true;
    for (int i = 0; i < all->lane_count; i++)
        if (all->lanes[i].count) {
            fprintf(out, "%s\n\"%d\":{", first ? "" : ",", i);
            print_lane(out, &all->lanes[i]);
            fputc('}', out);
            first = false;
        }
    fputs("}}", out);
}

static void clear(struct lanes *all) {
    for (int i = 0; i < all->lane_count; i++)
        free(all->lanes[i].buckets);
    free(all->lanes);
    free(all->steps);
}

/* --- which runs, and how finely ------------------------------------------------------------------------------------
 */

static bool is_traced(const struct experiment *x, const struct run *run) {
    return !x->settings->no_trace && run->shown && x->series[run->series].shared && x->origins[run->origin].trace_every;
}

static bool is_first_of_series(const struct experiment *x, const struct run *run) {
    for (const struct run *r = run - x->series_count; r >= x->runs; r -= x->series_count)
        if (is_traced(x, r))
            return false;
    return true;
}

/* Rows that a trace has of a tensor, the last step included; of all of them the most. */
static int64_t rows_of(const struct experiment *x, const struct run *run) {
    const int every = x->origins[run->origin].trace_every;
    return (x->steps + every - 1) / every + 1;
}

static int64_t most_rows(const struct experiment *x) {
    int64_t most = 1;
    for (int i = 0; i < x->run_count; i++)
        if (is_traced(x, &x->runs[i]) && rows_of(x, &x->runs[i]) > most)
            most = rows_of(x, &x->runs[i]);
    return most;
}

static int print_runs(FILE *out, const struct experiment *x, struct report_tensors *tensors, int buckets,
                      bool first_alone) {
    int status = STATUS_OK;
    bool first = true;
    for (int i = 0; i < x->run_count && status == STATUS_OK; i++) {
        const struct run *run = &x->runs[i];
        if (!is_traced(x, run) || (first_alone && !is_first_of_series(x, run)))
            continue;
        const int64_t group = (rows_of(x, run) + buckets - 1) / buckets;
        struct lanes all = {.tensors = tensors, .group = group < INT_MAX ? (int)group : INT_MAX, .last = -1};
        char *path = experiment_trace_path(x, run);
        status = trace_rows(path, take_row, &all);
        fputs(first ? "\n" : ",\n", out);
        print_run(out, x, run, &all);
        first = false;
        free(path);
        clear(&all);
    }
    return status;
}

/* The tensors that the figure shows, for the page to begin with. */
static int print_chosen(FILE *out, const struct experiment *x, const char *path, struct report_tensors *tensors) {
    struct trace trace;
    int status = trace_choose(path, x->settings->trace_tensors, DRAWING_TENSORS, &trace);
    fputs(",\"chosen\":[", out);
    for (int i = 0; i < trace.count; i++)
        fprintf(out, "%s%d", i ? "," : "",
                report_tensor_number(tensors, trace.tensors[i].name, trace.tensors[i].role, -1));
    fputs("]", out);
    trace_clear(&trace);
    return status;
}

int report_traces(FILE *out, const struct experiment *x, struct report_tensors *tensors) {
    int64_t traced = 0, formats = 0, tensor_count = 1;
    int status = STATUS_OK;
    char *path = NULL;
    for (int i = 0; i < x->run_count; i++)
        if (is_traced(x, &x->runs[i])) {
            traced++;
            formats += is_first_of_series(x, &x->runs[i]);
            if (!path)
                path = experiment_trace_path(x, &x->runs[i]);
        }
    if (path) {
        struct trace trace;
        status = trace_choose(path, "*", INT_MAX, &trace);
        tensor_count = trace.count ? trace.count : 1;
        trace_clear(&trace);
    }
    const bool first_alone =
        traced > formats && ROOM / (tensor_count * traced) < COARSE && ROOM / (tensor_count * traced) < most_rows(x);
    const int64_t share = ROOM / (tensor_count * (first_alone ? formats : traced > 0 ? traced : 1));
    const int buckets = share < LEAST ? LEAST : share > MOST ? MOST : (int)share;
    fprintf(out, "\"traces\":{\"first_seed_alone\":%s,\"runs\":[", first_alone ? "true" : "false");
    if (status == STATUS_OK)
        status = print_runs(out, x, tensors, buckets, first_alone);
    fputs("]", out);
    if (status == STATUS_OK && path)
        status = print_chosen(out, x, path, tensors);
    fputs("}", out);
    free(path);
    return status;
}
