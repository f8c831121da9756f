/* report_telemetry.c - histograms, counts, shadow formats and updates of telemetry as data of the page. Steps with rows
 * that follow each other become one point where there are more than the page has room for: histograms and counts are
 * added up, the largest error stays, measured errors are joined, and update-to-weight ratios become their mean. All
 * tensors have the points of the file; one without a row in any of a point's steps, such as a weight before its first
 * update, has nulls there. */
#include "report/report_telemetry.h"
#include "figures/figure_style.h"
#include "report/page_json.h"
#include "base/input.h"
#include "base/text.h"
#include <cJSON.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What is being added up of one tensor, and the columns of what is complete. */
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
    const char *path;
    struct report_tensors *tensors;
    struct lane **lanes;
    double *elements; /* of the tensor itself, by its number */
    int64_t *steps;
    struct names shadows; /* of this file */
    int lane_count, group, last;
    int step_count, rows; /* points so far, the last of them open; different steps so far */
    int every, planned;   /* what the first line says: steps between rows, tensors */
    long line;
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

/* The larger of what may not be known: NAN. */
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

/* Room for the numbers of a point more, whose histogram is the text. */
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

/* --- reading -------------------------------------------------------------------------------------------------------
 */

static int refuse(const struct telemetry *t, const char *what) {
    return text_failed("%s:%ld: %s", t->path, t->line, what);
}

static bool number(const cJSON *line, const char *name, double *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
    *value = cJSON_IsNumber(item) ? item->valuedouble : 0;
    return cJSON_IsNumber(item);
}

/* NAN where there is none; false for what is neither. */
static bool number_or_null(const cJSON *line, const char *name, double *value) {
    const bool there = number(line, name, value);
    if (!there)
        *value = NAN;
    return there || cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(line, name));
}

/* The measured error of a row (docs/output.md), whose elements have a root mean square of `size`: one weight for
 * each element. Where nothing was measured there is nothing to add; files of earlier versions have no such fields. */
static bool take_sampled(struct lane *l, const cJSON *line, double size) {
    double sampled, infinite, error;
    if (!cJSON_HasObjectItem(line, "sampled") && !cJSON_HasObjectItem(line, "sampled_error"))
        return true;
    if (!number(line, "sampled", &sampled) || !number(line, "sampled_infinite", &infinite) ||
        !number_or_null(line, "sampled_error", &error))
        return false;
    const double finite = sampled - infinite, part = error / size;
    if (finite > 0 && size > 0 && !isnan(part)) {
        l->errors += finite * part * part;
        l->sampled += finite;
    }
    return true;
}

static int take_shadows(const struct telemetry *t, struct lane *l, const cJSON *line, bool first) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, "shadows"), *shadow;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != t->shadows.count)
        return refuse(t, "'shadows' are not those of the first line");
    int i = 0;
    cJSON_ArrayForEach(shadow, list) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(shadow, "name"));
        double error, saturated, flushed, *sums = l->shadows[i];
        if (!name || strcmp(name, t->shadows.texts[i++]) != 0)
            return refuse(t, "'shadows' are not those of the first line");
        if (!number_or_null(shadow, "error", &error) || !number(shadow, "saturated", &saturated) ||
            !number(shadow, "flushed", &flushed))
            return refuse(t, "a field of 'shadows' is missing or of another type");
        sums[SHADOW_ERROR] = first ? error : worse(sums[SHADOW_ERROR], error);
        sums[SHADOW_SATURATED] += saturated;
        sums[SHADOW_FLUSHED] += flushed;
    }
    return STATUS_OK;
}

static int take_tensor(struct telemetry *t, const cJSON *line) {
    const cJSON *label = cJSON_GetObjectItemCaseSensitive(line, "tensor"),
                *role = cJSON_GetObjectItemCaseSensitive(line, "role"),
                *bins = cJSON_GetObjectItemCaseSensitive(line, "bins"), *bin;
    double step, elements, zeros, infinite, nans, first, saturated, flushed, nonfinite, least_e, largest_e, writes,
        rounding, l2, update;
    if (!cJSON_IsString(label) || !cJSON_IsString(role) || !cJSON_IsArray(bins) || !number(line, "step", &step) ||
        !number(line, "elements", &elements) || !number(line, "zeros", &zeros) ||
        !number(line, "infinite", &infinite) || !number(line, "nan", &nans) || !number(line, "first_bin", &first) ||
        !number(line, "saturated", &saturated) || !number(line, "flushed", &flushed) ||
        !number(line, "nonfinite", &nonfinite) || !number(line, "e_least", &least_e) ||
        !number(line, "e_largest", &largest_e) || !number(line, "writes", &writes) ||
        !number_or_null(line, "rounding", &rounding) || !number_or_null(line, "l2", &l2) ||
        !number_or_null(line, "update_ratio", &update))
        return refuse(t, "is not a line 'tensor' of telemetry: a field is missing or of another type");
    if (!(step >= 1 && step < 9e15 && fabs(first) < 1e6))
        return refuse(t, "'step' or 'first_bin' is out of its range");
    if (t->step_count && (int64_t)step < t->steps[t->step_count - 1])
        return refuse(t, "'step' is below that of the line before");
    take_step(t, (int64_t)step);
    t->last = report_tensor_number(t->tensors, label->valuestring, role->valuestring, t->last + 1);
    struct lane *l = lane_at(t, t->last);
    if (elements > 0) /* none in a row without a description */
        t->elements[t->last] = elements;
    const char *format = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, "format"));
    if (format && !l->format)
        l->format = text_format("%s", format);
    const bool opens = !l->any;
    if (opens) {
        pad(t, l, t->step_count - 1);
        l->least_e = least_e;
        l->largest_e = largest_e;
        l->rounding = NAN;
        l->any = true;
    }
    int place = (int)first - LOWEST;
    cJSON_ArrayForEach(bin, bins) {
        if (!cJSON_IsNumber(bin) || !(bin->valuedouble >= 0))
            return refuse(t, "'bins' contains something that is not a count");
        l->bins[place < 0 ? 0 : place >= BINS ? BINS - 1 : place] += bin->valuedouble;
        place++;
    }
    l->elements += elements;
    l->zeros += zeros;
    l->nonfinite += nonfinite;
    l->saturated += saturated;
    l->flushed += flushed;
    l->least_e = fmin(l->least_e, least_e);
    l->largest_e = fmax(l->largest_e, largest_e);
    l->writes += writes;
    l->rounding = worse(l->rounding, l2 > 0 ? rounding * sqrt(elements) / l2 : NAN);
    if (!take_sampled(l, line, l2 > 0 ? l2 / sqrt(elements) : NAN))
        return refuse(t, "'sampled', 'sampled_infinite' or 'sampled_error' is missing or of another type");
    if (!isnan(update)) {
        l->updates += update;
        l->update_count++;
    }
    return take_shadows(t, l, line, opens);
}

/* The kind of a line; NULL where it has none. */
static const char *type_of(const cJSON *line) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, "type"));
}

/* Each line to `take`; *found is false where there is no such file. */
static int read_lines(struct telemetry *t, bool header_alone,
                      int (*take)(struct telemetry *t, const cJSON *line, const char *type), bool *found) {
    const char *why;
    FILE *file = input_open(t->path, &why);
    char *text = NULL;
    size_t room = 0;
    int status = STATUS_OK;
    bool begun = false, ended = false;
    *found = file != NULL;
    if (!file)
        return errno == ENOENT ? STATUS_OK : text_failed("cannot read %s: %s", t->path, why);
    for (t->line = 1; status == STATUS_OK && getline(&text, &room, file) >= 0; t->line++) {
        cJSON *line = cJSON_Parse(text);
        const char *type = type_of(line);
        begun = true;
        if (!type)
            status = refuse(t, "is not a JSON object with a type");
        else if ((t->line == 1) != !strcmp(type, "telemetry"))
            status = refuse(t, "a line 'telemetry' comes first, and only first");
        else if (ended)
            status = refuse(t, "follows the line 'end'");
        else
            status = take(t, line, type);
        ended = ended || (type && !strcmp(type, "end"));
        cJSON_Delete(line);
        if (header_alone)
            break;
    }
    if (status == STATUS_OK && ferror(file))
        status = refuse(t, strerror(errno));
    if (status == STATUS_OK && !begun)
        status = refuse(t, "is empty, expected a line 'telemetry'");
    if (status == STATUS_OK && !ended && !header_alone)
        status = refuse(t, "expected a line 'end': the file is cut off");
    free(text);
    fclose(file);
    return status;
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

static int take_shadow_names(struct telemetry *t, const cJSON *line) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, "shadows"), *item;
    int count = 0;
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsString(item) || place_of(&t->shadows, item->valuestring) != count++)
            return refuse(t, "'shadows' contains something that is not a name, or a name twice");
    }
    return cJSON_IsArray(list) ? STATUS_OK : refuse(t, "is not the first line of telemetry");
}

static int take_line(struct telemetry *t, const cJSON *line, const char *type) {
    return !strcmp(type, "tensor")      ? take_tensor(t, line)
           : !strcmp(type, "telemetry") ? take_shadow_names(t, line)
                                        : STATUS_OK;
}

/* What tells how many rows there are. */
static int take_header(struct telemetry *t, const cJSON *line, const char *type) {
    double schema, every, tensors;
    (void)type;
    if (!number(line, "schema", &schema) || !number(line, "every", &every) || !number(line, "tensors", &tensors) ||
        !(every >= 1 && every < INT_MAX) || !(tensors >= 0 && tensors < 1e7))
        return refuse(t, "is not the first line of telemetry");
    if (schema != 1)
        return refuse(t, "has another layout than 1, which this program reads");
    t->every = (int)every;
    t->planned = (int)tensors;
    return take_shadow_names(t, line);
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
        struct telemetry t = {.path = path};
        bool found;
        status = read_lines(&t, true, take_header, &found);
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

/* Whether the page has no room for all seeds at a useful grain, and fewer would help. */
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
        struct telemetry t = {
            .path = path, .tensors = tensors, .group = group < INT_MAX ? (int)group : INT_MAX, .last = -1};
        bool found;
        status = read_lines(&t, false, take_line, &found);
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
