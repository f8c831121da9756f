/* report_telemetry.c - histograms, counts, shadow formats and updates of telemetry as data of the page. Consecutive
 * steps with records become one point if there are too many for the page: histograms and counts are added up, the
 * largest error remains, measured errors are combined, and update-to-weight ratios become their mean. All tensors have
 * the points of the file; one without a row in any of a point's steps, such as a weight before its first update, has
 * nulls there. */
#include "report/report_telemetry.h"
#include "figures/drawing.h"
#include "report/page_json.h"
#include "base/text.h"
#include "readers/telemetry_rows.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of all tensors of all runs together; of one tensor of one run; how few make the seeds but the first be left out.
 * A row takes as much of the page again for so many shadows. */
enum { ROOM = 40000, LEAST = 16, MOST = 200, COARSE = 48, SHADOWS_A_ROW = 3 };
/* Magnitudes: below and above, elements count in the outermost bin. All formats lie within. */
enum { LOWEST = -256, BINS = 512 };

/* Columns of a point, then those of each shadow. */
enum { FIRST, ZEROS, NONFINITE, SATURATED, FLUSHED, LEAST_E, LARGEST_E, WRITES, LOOKED };
enum { ROUNDING = LOOKED + 1, SAMPLED, UPDATE, POINT };
enum { SHADOW_ERROR, SHADOW_SATURATED, SHADOW_FLUSHED, SHADOW_POINT };
struct column {
    const char *name;
    int digits;
};
static const struct column columns[POINT] = {{"first", 6},    {"zeros", 9},    {"nonfinite", 16}, {"saturated", 16},
                                             {"flushed", 16}, {"e_least", 6},  {"e_largest", 6},  {"writes", 16},
                                             {"looked", 16},  {"rounding", 9}, {"sampled", 9},    {"update", 9}},
                           shadow_columns[SHADOW_POINT] = {{"error", 9}, {"saturated", 16}, {"flushed", 16}};

/* The point of one tensor that is being added up, and the columns of complete points. */
struct lane {
    double bins[BINS], elements, zeros, nonfinite, saturated, flushed, least_e, largest_e, writes;
    double rounding; /* the largest, as part of the values; NAN so far */
    double errors;   /* sum of squares of measured errors, as parts of the values */
    double sampled;  /* of so many elements */
    double updates;  /* sum of update-to-weight ratios */
    double (*shadows)[SHADOW_POINT];
    int update_count, points; /* complete ones */
    bool any;                 /* there are rows of the point that follows */
    char *texts;              /* of the histograms, separated by commas */
    char *format;             /* of the tensor's own elements; NULL: the file does not say */
    double *columns;          /* POINT and SHADOW_POINT of each shadow, of each point */
};

/* Shadow formats of all runs, each name once. */
struct names {
    char **texts;
    int count;
};

struct telemetry {
    struct report_tensors *tensors;
    struct lane **lanes;
    double *elements; /* of the tensor itself, by its number */
    int64_t *steps;
    struct names shadows; /* of this file */
    int lane_count, group, last;
    int step_count, rows; /* points so far, the last of them open; different steps so far */
    int every, planned;   /* what the first line says: steps between rows, tensors */
};

/* --- adding up -----------------------------------------------------------------------------------------------------
 */

static struct lane *lane_at(struct telemetry *t, int n) {
    if (n >= t->lane_count) {
        t->lanes = text_realloc(t->lanes, (size_t)n + 1, sizeof(struct lane *));
        t->elements = text_realloc(t->elements, (size_t)n + 1, sizeof *t->elements);
        for (; t->lane_count <= n; t->lane_count++) {
            t->lanes[t->lane_count] = NULL;
            t->elements[t->lane_count] = 0;
        }
    }
    if (!t->lanes[n]) {
        t->lanes[n] = text_alloc(1, sizeof(struct lane));
        t->lanes[n]->shadows = text_alloc((size_t)t->shadows.count + 1, sizeof *t->lanes[n]->shadows);
    }
    return t->lanes[n];
}

static int point_size(const struct telemetry *t) {
    return POINT + SHADOW_POINT * t->shadows.count;
}

/* The larger of two numbers, either of which may be unknown, NAN. */
static double worse(double a, double b) {
    return isnan(a) || b > a ? b : a;
}

/* A digit of base 36 for each bin: 0 for none, then half octaves of its share of the elements, z for all of them. */
static char share_digit(double count, double elements) {
    if (!(count > 0))
        return '0';
    const double level = 35 + round(2 * log2(count / elements));
    const int digit = !(level >= 1) ? 1 : level > 35 ? 35 : (int)level;
    return (char)(digit < 10 ? '0' + digit : 'a' + digit - 10);
}

static void complete_shadows(const struct telemetry *t, struct lane *l, double *point) {
    for (int i = 0; i < t->shadows.count; i++)
        for (int c = 0; c < SHADOW_POINT; c++) {
            point[i * SHADOW_POINT + c] = l->shadows[i][c];
            l->shadows[i][c] = 0;
        }
}

/* Makes space for the numbers of one more point, whose histogram is the text. */
static double *add_point(const struct telemetry *t, struct lane *l, const char *text) {
    char *longer = l->texts ? text_format("%s,\"%s\"", l->texts, text) : text_format("\"%s\"", text);
    free(l->texts);
    l->texts = longer;
    const size_t size = (size_t)point_size(t);
    l->columns = text_realloc(l->columns, (size_t)(l->points + 1) * size, sizeof *l->columns);
    return l->columns + (size_t)l->points++ * size;
}

/* Points without rows, up to that number. */
static void pad(const struct telemetry *t, struct lane *l, int points) {
    while (l->points < points) {
        double *point = add_point(t, l, "");
        for (int i = 0; i < point_size(t); i++)
            point[i] = NAN;
    }
}

static void complete(const struct telemetry *t, struct lane *l) {
    if (!l->any)
        return;
    int low = 0, high = BINS;
    while (low < BINS && !l->bins[low])
        low++;
    while (high > low && !l->bins[high - 1])
        high--;
    char text[BINS + 1];
    for (int i = low; i < high; i++)
        text[i - low] = share_digit(l->bins[i], l->elements);
    text[high - low] = 0;
    double *point = add_point(t, l, text);
    point[FIRST] = high > low ? LOWEST + low : 0;
    point[ZEROS] = l->elements > 0 ? l->zeros / l->elements : 0;
    point[NONFINITE] = l->nonfinite;
    point[SATURATED] = l->saturated;
    point[FLUSHED] = l->flushed;
    point[LEAST_E] = l->least_e;
    point[LARGEST_E] = l->largest_e;
    point[WRITES] = l->writes;
    point[LOOKED] = l->elements;
    point[ROUNDING] = l->rounding;
    point[SAMPLED] = l->sampled > 0 ? sqrt(l->errors / l->sampled) : NAN;
    point[UPDATE] = l->update_count ? l->updates / l->update_count : NAN;
    complete_shadows(t, l, point + POINT);
    memset(l->bins, 0, sizeof l->bins);
    l->elements = l->zeros = l->nonfinite = l->saturated = l->flushed = l->writes = 0;
    l->errors = l->sampled = l->updates = 0;
    l->update_count = 0;
    l->any = false;
}

/* The step of the next line: it is of the last point or opens another. */
static void take_step(struct telemetry *t, int64_t step) {
    if (t->step_count && t->steps[t->step_count - 1] == step)
        return;
    if (t->rows++ % t->group == 0) {
        for (int i = 0; i < t->lane_count; i++)
            if (t->lanes[i])
                complete(t, t->lanes[i]);
        t->steps = text_realloc(t->steps, (size_t)t->step_count + 1, sizeof *t->steps);
        t->step_count++;
    }
    t->steps[t->step_count - 1] = step;
}

/* The measured error of a row (docs/output.md), whose elements have a root mean square of `size`: one weight for
 * each element. Where nothing was measured there is nothing to add. */
static void take_sampled(struct lane *l, const struct telemetry_row *row, double size) {
    const double finite = row->sampled - row->sampled_infinite, part = row->sampled_error / size;
    if (finite > 0 && size > 0 && !isnan(part)) {
        l->errors += finite * part * part;
        l->sampled += finite;
    }
}

static void take_shadows(const struct telemetry *t, struct lane *l, const struct telemetry_row *row, bool first) {
    for (int i = 0; i < t->shadows.count; i++) {
        const struct telemetry_shadow *shadow = &row->shadows[i];
        double *sums = l->shadows[i];
        sums[SHADOW_ERROR] = first ? shadow->error : worse(sums[SHADOW_ERROR], shadow->error);
        sums[SHADOW_SATURATED] += shadow->saturated;
        sums[SHADOW_FLUSHED] += shadow->flushed;
    }
}

static void take_row(void *context, const struct telemetry_row *row) {
    struct telemetry *t = context;
    take_step(t, row->step);
    t->last = report_tensor_number(t->tensors, row->tensor, row->role, t->last + 1);
    struct lane *l = lane_at(t, t->last);
    if (row->elements > 0) /* none in a row without a description */
        t->elements[t->last] = row->elements;
    if (row->format && !l->format)
        l->format = text_format("%s", row->format);
    const bool opens = !l->any;
    if (opens) {
        pad(t, l, t->step_count - 1);
        l->least_e = row->e_least;
        l->largest_e = row->e_largest;
        l->rounding = NAN;
        l->any = true;
    }
    for (int i = 0; i < row->bin_count; i++) {
        const int place = row->first_bin - LOWEST + i;
        l->bins[place < 0 ? 0 : place >= BINS ? BINS - 1 : place] += row->bins[i];
    }
    l->elements += row->elements;
    l->zeros += row->zeros;
    l->nonfinite += row->nonfinite;
    l->saturated += row->saturated;
    l->flushed += row->flushed;
    l->least_e = fmin(l->least_e, row->e_least);
    l->largest_e = fmax(l->largest_e, row->e_largest);
    l->writes += row->writes;
    l->rounding = worse(l->rounding, row->l2 > 0 ? row->rounding * sqrt(row->elements) / row->l2 : NAN);
    take_sampled(l, row, row->l2 > 0 ? row->l2 / sqrt(row->elements) : NAN);
    if (!isnan(row->update_ratio)) {
        l->updates += row->update_ratio;
        l->update_count++;
    }
    take_shadows(t, l, row, opens);
}

static int place_of(struct names *names, const char *text) {
    for (int i = 0; i < names->count; i++)
        if (!strcmp(names->texts[i], text))
            return i;
    names->texts = text_realloc(names->texts, (size_t)names->count + 1, sizeof *names->texts);
    names->texts[names->count] = text_format("%s", text);
    return names->count++;
}

static void clear_names(struct names *names) {
    for (int i = 0; i < names->count; i++)
        free(names->texts[i]);
    free(names->texts);
}

static void take_header(void *context, const struct telemetry_header *header) {
    struct telemetry *t = context;
    t->every = header->every;
    t->planned = header->tensors;
    for (int i = 0; i < header->shadow_count; i++)
        (void)place_of(&t->shadows, header->shadows[i]);
}

/* --- printing ------------------------------------------------------------------------------------------------------
 */

/* The columns from `from` on, of every point. */
static void print_columns(FILE *out, const struct telemetry *t, const struct lane *l, const struct column *list,
                          int count, int from) {
    double *values = text_alloc((size_t)l->points, sizeof *values);
    for (int c = 0; c < count; c++) {
        for (int i = 0; i < l->points; i++)
            values[i] = l->columns[i * (size_t)point_size(t) + (size_t)(from + c)];
        fprintf(out, "%s\"%s\":", c ? "," : "", list[c].name);
        page_column(out, values, l->points, list[c].digits);
    }
    free(values);
}

static void print_lane(FILE *out, const struct telemetry *t, const struct lane *l, double elements) {
    fputs("\"elements\":", out);
    page_number(out, elements, 16);
    tensor_format format;
    if (l->format && !tensor_format_find(&format, l->format)) {
        fputs(",\"format\":", out);
        page_text(out, l->format);
        fprintf(out, ",\"shared\":%s", tensor_format_is_shared(format) ? "true" : "false");
    }
    fprintf(out, ",\"bins\":[%s],", l->texts);
    print_columns(out, t, l, columns, POINT, 0);
    fputs(",\"shadows\":[", out);
    for (int i = 0; i < t->shadows.count; i++) {
        fputs(i ? ",{" : "{", out);
        print_columns(out, t, l, shadow_columns, SHADOW_POINT, POINT + i * SHADOW_POINT);
        fputc('}', out);
    }
    fputc(']', out);
}

static void print_run(FILE *out, const struct experiment *x, const struct run *run, struct telemetry *t,
                      struct names *shadows) {
    bool first = true;
    fprintf(out, "{\"series\":%d,\"seed\":%d,\"rows\":%d,\"shadows\":[", run->series,
            (int)((run - x->runs) / x->series_count), t->group);
    for (int i = 0; i < t->shadows.count; i++)
        fprintf(out, "%s%d", i ? "," : "", place_of(shadows, t->shadows.texts[i]));
    fputs("],\"steps\":[", out);
    for (int i = 0; i < t->step_count; i++)
        fprintf(out, "%s%lld", i ? "," : "", (long long)t->steps[i]);
    fputs("],\"lanes\":{", out);
    for (int i = 0; i < t->lane_count; i++)
        if (t->lanes[i]) {
            complete(t, t->lanes[i]);
            pad(t, t->lanes[i], t->step_count);
            fprintf(out, "%s\n\"%d\":{", first ? "" : ",", i);
            print_lane(out, t, t->lanes[i], t->elements[i]);
            fputc('}', out);
            first = false;
        }
    fputs("}}", out);
}

static void print_shadows(FILE *out, const struct experiment *x, const struct names *shadows) {
    fputs("\"shadows\":[", out);
    for (int i = 0; i < shadows->count; i++) {
        fputs(i ? ",{\"name\":" : "{\"name\":", out);
        page_text(out, shadows->texts[i]);
        fprintf(out, ",\"colour\":\"%s\"}", figure_shadow_colour(x, shadows->texts, i).text);
    }
    fputs("]", out);
}

static void clear(struct telemetry *t) {
    for (int i = 0; i < t->lane_count; i++)
        if (t->lanes[i]) {
            free(t->lanes[i]->texts);
            free(t->lanes[i]->format);
            free(t->lanes[i]->columns);
            free(t->lanes[i]->shadows);
            free(t->lanes[i]);
        }
    free(t->lanes);
    free(t->elements);
    free(t->steps);
    clear_names(&t->shadows);
}

/* --- which runs, and how finely ------------------------------------------------------------------------------------
 */

static char *path_of(const struct experiment *x, const struct run *run) {
    const char *folder = x->origins[run->origin].folder;
    char *name = experiment_telemetry_name(x, run, "jsonl"),
         *path = text_format("%s/%s", folder ? folder : x->folder, name);
    free(name);
    return path;
}

struct plan {
    int every, tensors; /* of the file; 0: there is none */
};

/* The shadows of all runs into `shadows`. */
static int plan_runs(const struct experiment *x, struct plan *plans, struct names *shadows) {
    int status = STATUS_OK;
    for (int i = 0; i < x->run_count && status == STATUS_OK; i++) {
        if (!x->runs[i].shown)
            continue;
        char *path = path_of(x, &x->runs[i]);
        struct telemetry t = {0};
        bool found;
        status = telemetry_rows(path, take_header, NULL, &t, &found);
        if (found && status == STATUS_OK)
            plans[i] = (struct plan){t.every, t.planned};
        for (int k = 0; k < t.shadows.count; k++)
            (void)place_of(shadows, t.shadows.texts[k]);
        clear_names(&t.shadows);
        free(path);
    }
    return status;
}

static bool is_first_of_series(const struct experiment *x, const struct plan *plans, int run) {
    for (int i = run - x->series_count; i >= 0; i -= x->series_count)
        if (plans[i].every)
            return false;
    return true;
}

static int lanes_of(const struct experiment *x, const struct plan *plans, bool first_alone) {
    int64_t lanes = 1;
    for (int i = 0; i < x->run_count; i++)
        if (plans[i].every && (!first_alone || is_first_of_series(x, plans, i)))
            lanes += plans[i].tensors;
    return lanes < INT_MAX ? (int)lanes : INT_MAX;
}

/* Rows that a tensor has in the file, the last step included. */
static int64_t rows_of(const struct experiment *x, const struct plan *plan) {
    return (x->steps + plan->every - 1) / plan->every + 1;
}

/* Whether all seeds do not fit the page at a useful resolution, and fewer would. */
static bool want_first_alone(const struct experiment *x, const struct plan *plans, int room) {
    int64_t rows = 1;
    for (int i = 0; i < x->run_count; i++)
        if (plans[i].every && rows_of(x, &plans[i]) > rows)
            rows = rows_of(x, &plans[i]);
    const int lanes = lanes_of(x, plans, false);
    return room / lanes < (rows < COARSE ? rows : COARSE) && lanes_of(x, plans, true) < lanes;
}

int report_telemetry(FILE *out, const struct experiment *x, struct report_tensors *tensors) {
    struct plan *plans = text_alloc((size_t)x->run_count, sizeof *plans);
    struct names shadows = {0};
    int status = plan_runs(x, plans, &shadows);
    const int room = ROOM * SHADOWS_A_ROW / (SHADOWS_A_ROW + shadows.count);
    const bool first_alone = want_first_alone(x, plans, room);
    const int share = room / lanes_of(x, plans, first_alone), buckets = share < LEAST  ? LEAST
                                                                        : share > MOST ? MOST
                                                                                       : share;
    bool first = true;
    fprintf(out, "\"telemetry\":{\"first_seed_alone\":%s,", first_alone ? "true" : "false");
    print_shadows(out, x, &shadows);
    fputs(",\"runs\":[", out);
    for (int i = 0; i < x->run_count && status == STATUS_OK; i++) {
        if (!plans[i].every || (first_alone && !is_first_of_series(x, plans, i)))
            continue;
        const int64_t group = (rows_of(x, &plans[i]) + buckets - 1) / buckets;
        char *path = path_of(x, &x->runs[i]);
        struct telemetry t = {.tensors = tensors, .group = group < INT_MAX ? (int)group : INT_MAX, .last = -1};
        bool found;
        status = telemetry_rows(path, take_header, take_row, &t, &found);
        fputs(first ? "\n" : ",\n", out);
        print_run(out, x, &x->runs[i], &t, &shadows);
        first = false;
        clear(&t);
        free(path);
    }
    fputs("]}", out);
    clear_names(&shadows);
    free(plans);
    return status;
}
