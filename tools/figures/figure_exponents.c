/* figure_exponents.c - the figure of shared exponents, as a gnuplot script with its data inside. Tensors are rows,
 * formats are columns, blocks of columns stand below each other. After Koster et al. 2017, Fig. 3. */
#include "figures/figure_exponents.h"
#include "figures/figure_style.h"
#include "figures/gnuplot.h"
#include "base/text.h"
#include "readers/trace.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_TENSORS = DRAWING_TENSORS, MOST_COLUMNS = 4, MOST_POINTS = 1000, MOST_NAMED = 12 };

/* Pixels: the key; of a block its heading, rows, axis; of a row its name and its panel. */
enum { BLOCK_HEAD = 44, ROW_NAME = 36, ROW_PANEL = 122, BLOCK_FOOT = 58, LEFT = 68, GAP = 62, RIGHT = 20 };

struct column {
    int series;
    const struct run *run;
    struct trace trace;
};

struct figure {
    struct column *columns;
    int count;
    int rows[MOST_TENSORS]; /* tensors with anything to see */
    int row_count;
};

static double ceiling_of(const struct trace_point *p) {
    return ldexp(32767, -p->e);
}

static bool is_visible(const struct trace_point *p) {
    return p->maximum > 0 && isfinite(p->maximum);
}

/* Exponent and maximum of a point hold since the point before: steps, as corners of lines. An empty line breaks the
 * lines if there is nothing to see. */
static void print_data(FILE *out, const struct trace_tensor *t, int row, int column) {
    int64_t from = 0;
    fprintf(out, "$t%d_%d << EOD\n", row, column);
    for (int i = 0; i < t->count; from = t->points[i++].step) {
        const struct trace_point *p = &t->points[i];
        if (is_visible(p))
            fprintf(out, "%lld %.9g %.9g\n%lld %.9g %.9g\n", (long long)from, ceiling_of(p), p->maximum,
                    (long long)p->step, ceiling_of(p), p->maximum);
        else
            fputs("\n", out);
    }
    fprintf(out, "EOD\n$s%d_%d << EOD\n", row, column);
    for (int i = 0; i < t->count; i++)
        if (t->points[i].saturated)
            fprintf(out, "%lld %.9g\n", (long long)t->points[i].step, ceiling_of(&t->points[i]));
    fputs("EOD\n", out);
}

static bool has_points(const struct trace_tensor *t) {
    for (int i = 0; i < t->count; i++)
        if (is_visible(&t->points[i]))
            return true;
    return false;
}

static bool has_saturated(const struct trace_tensor *t) {
    for (int i = 0; i < t->count; i++)
        if (t->points[i].saturated)
            return true;
    return false;
}

/* The octaves that the panels of a tensor show; false when nothing but zeros was ever written. */
static bool octaves_of(const struct figure *f, int row, int *low, int *high) {
    bool any = false;
    for (int c = 0; c < f->count; c++) {
        const struct trace_tensor *t = &f->columns[c].trace.tensors[row];
        for (int i = 0; i < t->count; i++) {
            const struct trace_point *p = &t->points[i];
            if (!is_visible(p))
                continue;
            int bottom = autoflex_floor_log2(fmin(p->maximum, ceiling_of(p))),
                top = autoflex_ceil_log2(fmax(p->maximum, ceiling_of(p)));
            *low = !any || bottom < *low ? bottom : *low;
            *high = !any || top > *high ? top : *high;
            any = true;
        }
    }
    return any;
}

/* --- the script ----------------------------------------------------------------------------------------------------
 */

static void print_label(FILE *out, int number, const char *text, int height, double x, int y, const char *how) {
    fprintf(out, "set label %d ", number);
    gnuplot_string(out, text);
    fprintf(out, " at screen %.4f,%.4f noenhanced %s\n", x, 1 - y / (double)height, how);
}

static void plot_panel(FILE *out, const char *colour, const struct trace_tensor *t, int row, int column) {
    if (!has_points(t)) {
        fputs("plot NaN\n", out);
        return;
    }
    fprintf(out,
            "plot $t%d_%d using 1:2:3 with filledcurves fillcolor rgb '%s' fillstyle transparent solid 0.10 noborder "
            "title 'headroom', \\\n  $t%d_%d using 1:2 with lines linewidth 2 linecolor rgb '%s' title 'largest value "
            "that the "
            "exponent can hold', \\\n"
            "  $t%d_%d using 1:3 with lines linewidth 1.1 linecolor rgb '#333333' title 'largest element'",
            row, column, colour, row, column, colour, row, column);
    if (has_saturated(t))
        fprintf(out,
                ", \\\n  $s%d_%d using 1:2 with points pointtype 11 pointsize 0.8 linecolor rgb '#cc0000' "
                "title 'elements saturated'",
                row, column);
    fputs("\n", out);
}

static void set_axes(FILE *out, int low, int high, bool last_row) {
    int octaves = high - low;
    fprintf(out, "set yrange [%.9g:%.9g]\nset ytics %.9g,%.9g\n", ldexp(1, low), ldexp(1.3, high), ldexp(1, low),
            ldexp(1, (octaves + 3) / 4));
    fputs(last_row ? "set xlabel 'step' offset 0,0.3\nset format x '%.0f'\n" : "unset xlabel\nset format x ''\n", out);
}

static void print_key(struct key *k, const char *colour) {
    char *line = text_format("linecolor rgb '%s' linewidth 2", colour);
    key_entry(k, line, NULL, "largest value that the exponent can hold, 32767·2^{-e}");
    key_entry(k, "linecolor rgb '#333333' linewidth 1.1", NULL, "largest element of the result");
    key_entry(k, NULL, "pointtype 11 pointsize 0.8 linecolor rgb '#cc0000'", "elements saturated");
    free(line);
}

/* Format and predictor above the panels of a column. */
static void print_heading(FILE *out, const struct series *s, int height, double middle, int top) {
    char *predictor =
        s->predictor ? text_format("predictor %s", s->predictor) : text_format("predictors of the policy");
    print_label(out, 2, s->label, height, middle, top + 14, "center textcolor rgb '#000000'");
    print_label(out, 3, predictor, height, middle, top + 34, "center textcolor rgb '#555555'");
    free(predictor);
}

static int per_block(const struct figure *f) {
    int blocks = (f->count + MOST_COLUMNS - 1) / MOST_COLUMNS;
    return (f->count + blocks - 1) / blocks;
}

static int block_height(const struct figure *f) {
    return BLOCK_HEAD + f->row_count * (ROW_NAME + ROW_PANEL) + BLOCK_FOOT;
}

static int figure_height(const struct figure *f) {
    struct key key = key_begin(NULL, 1, true);
    print_key(&key, "");
    return key_height(&key) + (f->count + per_block(f) - 1) / per_block(f) * block_height(f);
}

/* A panel removes the labels and the key that it has drawn. */
static void print_panel(FILE *out, const struct experiment *x, const struct figure *f, int r, int c, int height,
                        int above) {
    const struct column *column = &f->columns[c];
    const struct trace_tensor *t = &column->trace.tensors[f->rows[r]];
    double pitch = (FIGURE_WIDTH - LEFT - RIGHT + GAP) / (double)per_block(f);
    double left = LEFT + pitch * (c % per_block(f)), right = left + pitch - GAP;
    int low = 0, high = 0, block = above + c / per_block(f) * block_height(f),
        top = block + BLOCK_HEAD + r * (ROW_NAME + ROW_PANEL) + ROW_NAME;
    octaves_of(f, f->rows[r], &low, &high);
    set_axes(out, low, high + (high == low), r + 1 == f->row_count);
    figure_step_marks(out, x->steps, (int)(right - left));
    figure_place(out, height, left / FIGURE_WIDTH, right / FIGURE_WIDTH, top, top + ROW_PANEL);
    if (r == 0)
        print_heading(out, &x->series[column->series], height, 0.5 * (left + right) / FIGURE_WIDTH, block);
    if (c % per_block(f) == 0) {
        char *name = text_format("%s (%s)", t->name, t->role);
        print_label(out, 1, name, height, left / FIGURE_WIDTH, top - 12, "left textcolor rgb '#222222'");
        free(name);
    }
    plot_panel(out, figure_colour(x, column->series).text, t, r, c);
    fputs("unset label 1\nunset label 2\nunset label 3\n", out);
}

static char *print_script(const struct experiment *x, const struct figure *f, int height) {
    struct figure_script script;
    figure_script_begin(&script);
    FILE *out = script.out;
    for (int r = 0; r < f->row_count; r++)
        for (int c = 0; c < f->count; c++)
            print_data(out, &f->columns[c].trace.tensors[f->rows[r]], r, c);
    figure_common_style(out);
    struct key key = key_begin(out, height, true);
    print_key(&key, figure_colour(x, f->columns[0].series).text);
    int above = key_height(&key);
    fprintf(out, "set logscale y 2\nset format y '2^{%%L}'\nset xrange [0:%lld]\n", (long long)x->steps);
    for (int r = 0; r < f->row_count; r++)
        for (int c = 0; c < f->count; c++) {
            print_panel(out, x, f, r, c, height, above);
            key_done(&key);
        }
    fputs("unset multiplot\n", out);
    return figure_script_end(&script);
}

/* --- what is drawn -------------------------------------------------------------------------------------------------
 */

/* The first run that is shown and has a trace; NULL without one. */
static const struct run *traced_run(const struct experiment *x, int series) {
    for (int s = 0; s < x->seed_count; s++)
        if (!x->settings->no_trace && experiment_run(x, s, series)->shown &&
            x->origins[experiment_run(x, s, series)->origin].trace_every)
            return experiment_run(x, s, series);
    return NULL;
}

static int read_column(const struct experiment *x, struct column *column, const struct trace *like) {
    char *path = experiment_trace_path(x, column->run);
    int status = STATUS_OK;
    if (like)
        column->trace = trace_like(like);
    else
        status = trace_choose(path, x->settings->trace_tensors, MOST_TENSORS, &column->trace);
    int every = x->origins[column->run->origin].trace_every;
    int64_t rows = (x->steps + every - 1) / every, group = (rows + MOST_POINTS - 1) / MOST_POINTS;
    if (status == STATUS_OK)
        status = trace_read(path, group < INT_MAX ? (int)group : INT_MAX, &column->trace);
    free(path);
    return status;
}

/* Appends ", NAME"; beyond MOST_NAMED it only counts. */
static void name_one(char **list, int *named, const char *name) {
    if (++*named > MOST_NAMED)
        return;
    char *longer = *list ? text_format("%s, %s", *list, name) : text_format("%s", name);
    free(*list);
    *list = longer;
}

static char *list_done(char *list, int named, const char *because) {
    if (!list)
        return text_format("%s", "");
    char *text = named > MOST_NAMED ? text_format("%s and %d more (%s)", list, named - MOST_NAMED, because)
                                    : text_format("%s (%s)", list, because);
    free(list);
    return text;
}

static char *name_left_out(const struct experiment *x, const struct figure *f, const struct trace *first) {
    char *formats = NULL, *tensors = NULL, *zeros = NULL;
    int format_count = 0, tensor_count = 0, zero_count = 0, low, high;
    for (int i = 0; i < x->series_count; i++)
        if (x->series[i].shared && !traced_run(x, i))
            name_one(&formats, &format_count, x->series[i].label);
    for (int i = 0; i < first->left_out_count; i++)
        name_one(&tensors, &tensor_count, first->left_out[i]);
    for (int r = 0; r < first->count; r++)
        if (!octaves_of(f, r, &low, &high))
            name_one(&zeros, &zero_count, first->tensors[r].name);
    char *most = text_format("the figure has %d tensors", MOST_TENSORS);
    char *const parts[] = {list_done(formats, format_count, "no run with a trace"),
                           list_done(tensors, tensor_count, most), list_done(zeros, zero_count, "all zero")};
    char *text = NULL;
    for (int i = 0; i < 3; i++) {
        if (parts[i][0]) {
            char *longer = text ? text_format("%s; %s", text, parts[i]) : text_format("Left out: %s", parts[i]);
            free(text);
            text = longer;
        }
        free(parts[i]);
    }
    free(most);
    char *sentence = text ? text_format("%s.", text) : NULL;
    free(text);
    return sentence;
}

static int read_columns(const struct experiment *x, struct figure *f) {
    int status = STATUS_OK, low, high;
    for (int i = 0; i < x->series_count && status == STATUS_OK; i++) {
        const struct run *run = x->series[i].shared ? traced_run(x, i) : NULL;
        if (!run)
            continue;
        f->columns[f->count] = (struct column){.series = i, .run = run};
        status = read_column(x, &f->columns[f->count], f->count ? &f->columns[0].trace : NULL);
        f->count++;
    }
    for (int r = 0; status == STATUS_OK && f->count && r < f->columns[0].trace.count; r++)
        if (octaves_of(f, r, &low, &high))
            f->rows[f->row_count++] = r;
    return status;
}

int figure_exponents_check(const struct experiment *x, bool *nothing_matches) {
    const struct run *run = NULL;
    *nothing_matches = false;
    for (int i = 0; i < x->series_count && !run && x->settings->trace_tensors; i++)
        run = x->series[i].shared ? traced_run(x, i) : NULL;
    if (!run)
        return STATUS_OK;
    char *path = experiment_trace_path(x, run);
    struct trace trace = {0};
    const int status = trace_choose(path, x->settings->trace_tensors, 1, &trace);
    *nothing_matches = status == STATUS_OK && !trace.count;
    if (*nothing_matches)
        text_note("--trace-tensors '%s': no tensor of the trace matches", x->settings->trace_tensors);
    trace_clear(&trace);
    free(path);
    return status;
}

int figure_exponents_draw(const struct experiment *x, char **svg, char **left_out, bool *nothing_matches) {
    struct figure f = {.columns = text_alloc((size_t)x->series_count, sizeof *f.columns)};
    int status = read_columns(x, &f);
    *svg = *left_out = NULL;
    *nothing_matches = status == STATUS_OK && f.count && !f.columns[0].trace.count;
    if (*nothing_matches && !x->settings->trace_tensors)
        text_note("no tensor has a shared exponent under these formats; the figure of exponents is left out");
    else if (*nothing_matches)
        text_note("--trace-tensors '%s': no tensor of the trace matches; the figure of exponents is left out",
                  x->settings->trace_tensors ? x->settings->trace_tensors : "");
    else if (status == STATUS_OK && f.row_count) {
        int height = figure_height(&f);
        char *script = print_script(x, &f, height);
        *left_out = name_left_out(x, &f, &f.columns[0].trace);
        status = gnuplot_draw(x->folder, "figure-exponents", FIGURE_WIDTH, height, script, svg);
        free(script);
    }
    for (int c = 0; c < f.count; c++)
        trace_clear(&f.columns[c].trace);
    free(f.columns);
    return status;
}
