/* figure.c - the figures as gnuplot scripts with their data inside. */
#include "figure.h"
#include "gnuplot.h"
#include "text.h"
#include "trace.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1100, MOST_TENSORS = 8, MOST_COLUMNS = 4, MOST_POINTS = 1000 };

/* Okabe and Ito's palette, distinguishable with every kind of colour vision; the yellow is too pale for lines. */
static const struct {
    const char *label, *colour;
} colours[] = {{"fp32", "#000000"},  {"fp16", "#0072b2"},        {"bf16", "#e69f00"},          {"flex16+5", "#d55e00"},
               {"dfp16", "#009e73"}, {"flex16+5-sr", "#cc79a7"}, {"flex16+5-paper", "#56b4e9"}};
enum { COLOURS = sizeof colours / sizeof colours[0] };

/* Each well-known format has its own colour; any other takes the first that no format of the comparison has. */
const char *figure_colour(const struct experiment *x, int series) {
    bool taken[COLOURS] = {false};
    const char *chosen[64] = {0};
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->series_count && i < 64; i++) {
            for (int c = 0; c < COLOURS && !chosen[i]; c++)
                if (!taken[c] && (pass || !strcmp(colours[c].label, x->series[i].label))) {
                    taken[c] = true;
                    chosen[i] = colours[c].colour;
                }
        }
    return series < 64 && chosen[series] ? chosen[series] : colours[series % COLOURS].colour;
}

/* Closes the stream that a script was printed into. */
static char *script_done(FILE *out, char **text) {
    bool bad = ferror(out);
    bad |= fclose(out) != 0;
    if (bad || !*text)
        exit(text_failed("out of memory"));
    return *text;
}

static void common_style(FILE *out) {
    fputs("set border 3 linecolor rgb '#888888'\n"
          "set tics nomirror textcolor rgb '#333333'\n"
          "set grid linecolor rgb '#e4e4e4' linetype 1 linewidth 0.7\n"
          "set datafile missing 'NaN'\n"
          "unset key\nset multiplot\n",
          out);
}

/* --- loss and accuracy ---------------------------------------------------------------------------------------------
 */

/* Mean, smallest and largest over the seeds of one point of a curve. */
struct band {
    double sum, low, high;
    int count;
};

static void band_add(struct band *b, double value) {
    b->low = b->count && b->low < value ? b->low : value;
    b->high = b->count && b->high > value ? b->high : value;
    b->sum += value;
    b->count++;
}

/* Whether the point can be seen in a panel that reaches to `most`: gnuplot fails where no point of a plot can. */
static bool band_print(FILE *out, double x, const struct band *b, double most) {
    if (b->count && isfinite(b->sum))
        fprintf(out, "%.10g %.10g %.10g %.10g\n", x, b->sum / b->count, b->low, b->high);
    else
        fputs("\n", out);
    return b->count && isfinite(b->sum) && fabs(b->sum / b->count) < most;
}

static int most_windows(const struct experiment *x, int series) {
    int most = 0;
    for (int s = 0; s < x->seed_count; s++) {
        const struct run *run = experiment_run(x, s, series);
        if (run->shown && run->window_count > most)
            most = run->window_count;
    }
    return most;
}

/* A run that diverges would press all others to the floor: cut at five times the loss of guessing. */
static double loss_cut(const struct experiment *x) {
    return 5 * log(data_classes(x->train));
}

/* `against` < 0: the loss; otherwise the difference to that series, seed by seed. Whether there is a point to see. */
static bool loss_block(FILE *out, const struct experiment *x, const char *name, int series, int against) {
    bool any = false;
    fprintf(out, "$%s%d << EOD\n", name, series);
    for (int w = 0; w < most_windows(x, series); w++) {
        struct band band = {0};
        double step = 0;
        for (int s = 0; s < x->seed_count; s++) {
            const struct run *run = experiment_run(x, s, series),
                             *base = against < 0 ? NULL : experiment_run(x, s, against);
            if (!run->shown || w >= run->window_count || (base && (!base->shown || w >= base->window_count)))
                continue;
            band_add(&band, run->windows[w].loss - (base ? base->windows[w].loss : 0));
            step = (double)run->windows[w].step - 0.5 * (run->windows[w].count - 1);
        }
        any |= band_print(out, step, &band, loss_cut(x));
    }
    fputs("EOD\n", out);
    return any;
}

static bool accuracy_block(FILE *out, const struct experiment *x, int series) {
    bool any = false;
    fprintf(out, "$accuracy%d << EOD\n", series);
    for (int e = 0; e < (int)x->settings->epochs; e++) {
        struct band band = {0};
        for (int s = 0; s < x->seed_count; s++) {
            const struct run *run = experiment_run(x, s, series);
            if (run->shown && e < run->epoch_count)
                band_add(&band, 100 * run->epochs[e].test_accuracy);
        }
        any |= band_print(out, e + 1, &band, INFINITY);
    }
    fputs("EOD\n", out);
    return any;
}

/* The baseline is drawn first, the others in the order of the command line. */
static int drawn_at(const struct experiment *x, int n) {
    if (x->baseline < 0 || n > x->baseline)
        return n;
    return n ? n - 1 : x->baseline;
}

/* The n-th format drawn: each with wider gaps than the one below it, so that curves that coincide all stay visible. */
static char *line_style(const struct experiment *x, int series, int n) {
    static const char *const dashes[] = {"1", "1", "(10,6)", "(7,7)", "(4,7)", "(2,6)"};
    enum { DASHES = sizeof dashes / sizeof dashes[0] };
    return text_format("linecolor rgb '%s' linewidth %s dashtype %s", figure_colour(x, series), n ? "2" : "3.5",
                       dashes[n < DASHES ? n : DASHES - 1]);
}

/* Bands first, so that no line is covered; the baseline below the others. Series without a point are left out. */
static void plot_curves(FILE *out, const struct experiment *x, const char *block, const char *style,
                        const bool *has_points) {
    const char *separator = "plot ";
    for (int i = 0; i < x->series_count && x->seed_count > 1; i++)
        if (has_points[i]) {
            fprintf(out,
                    "%s$%s%d using 1:3:4 with filledcurves fillcolor rgb '%s' fillstyle transparent solid 0.09 "
                    "noborder notitle",
                    separator, block, i, figure_colour(x, i));
            separator = ", \\\n  ";
        }
    for (int n = 0; n < x->series_count; n++) {
        int i = drawn_at(x, n);
        if (!has_points[i])
            continue;
        char *look = line_style(x, i, n);
        fprintf(out, "%s$%s%d using 1:2 with %s %s", separator, block, i, style, look);
        free(look);
        separator = ", \\\n  ";
    }
    if (separator[0] == 'p') /* nothing yet: an empty panel */
        fputs("unset logscale y\nset yrange [0:1]\nplot NaN", out);
    fputs("\n", out);
}

/* The key is laid out by hand above the panels, in as many lines as it needs: gnuplot's own would be as wide as one
 * panel. Pixels; text is estimated by its number of characters. */
struct key {
    FILE *out;
    int height, x, y, entries;
    bool enhanced; /* texts of our own, with ^ for exponents */
};

enum { KEY_MARGIN = 50, KEY_LINE = 22, KEY_SAMPLE = 38, KEY_CHARACTER = 8, KEY_SPACE = 26 };

static int key_width(const char *text) {
    return KEY_SAMPLE + 8 + KEY_CHARACTER * text_width(text) + KEY_SPACE;
}

/* `sample` is what follows `set arrow`, or with `point` what follows `set label ... point`. */
static void key_entry(struct key *k, const char *sample, bool point, const char *text) {
    if (k->x > KEY_MARGIN && k->x + key_width(text) > WIDTH) {
        k->x = KEY_MARGIN;
        k->y += KEY_LINE;
    }
    double left = k->x / (double)WIDTH, right = (k->x + KEY_SAMPLE) / (double)WIDTH, y = 1 - k->y / (double)k->height;
    k->entries++;
    if (point)
        fprintf(k->out, "set label %d '' at screen %.4f,%.4f point %s front\n", 100 + k->entries, 0.5 * (left + right),
                y, sample);
    else
        fprintf(k->out, "set arrow %d from screen %.4f,%.4f to screen %.4f,%.4f nohead %s front\n", 100 + k->entries,
                left, y, right, y, sample);
    fprintf(k->out, "set label %d ", 200 + k->entries);
    gnuplot_string(k->out, text);
    fprintf(k->out, " at screen %.4f,%.4f left %s textcolor rgb '#222222' front\n", right + 8.0 / WIDTH, y,
            k->enhanced ? "enhanced" : "noenhanced");
    k->x += key_width(text);
}

/* After the first panel, which draws it. */
static void key_done(struct key *k) {
    for (int i = 1; i <= k->entries; i++)
        fprintf(k->out, "unset arrow %d\nunset label %d\nunset label %d\n", 100 + i, 100 + i, 200 + i);
    k->entries = 0;
}

/* Lines that the key of the formats takes. */
static int key_lines(const struct experiment *x) {
    int lines = 1, at = KEY_MARGIN;
    for (int n = 0; n < x->series_count; n++) {
        int width = key_width(x->series[drawn_at(x, n)].label);
        if (at > KEY_MARGIN && at + width > WIDTH) {
            at = KEY_MARGIN;
            lines++;
        }
        at += width;
    }
    return lines;
}

static void key_formats(struct key *k, const struct experiment *x) {
    for (int n = 0; n < x->series_count; n++) {
        int i = drawn_at(x, n);
        char *sample = line_style(x, i, n);
        key_entry(k, sample, false, x->series[i].label);
        free(sample);
    }
}

static void loss_limits(FILE *out, const struct experiment *x) {
    double low = INFINITY, high = 0;
    for (int i = 0; i < x->run_count; i++)
        for (int w = 0; x->runs[i].shown && w < x->runs[i].window_count; w++) {
            double loss = x->runs[i].windows[w].loss;
            low = loss < low ? loss : low;
            high = loss > high || !isfinite(loss) ? loss : high;
        }
    bool wide = low > 0 && high / low > 30;
    fputs(wide ? "set logscale y\n" : "", out);
    if (!(high <= loss_cut(x)))
        fprintf(out, "set yrange [*:%g]\n", loss_cut(x));
}

enum { PANEL = 300, DIFFERENCE = 190, PANEL_HEAD = 38, PANEL_FOOT = 60 };

static void place(FILE *out, int height, double left, double right, int top, int bottom) {
    fprintf(out,
            "set lmargin at screen %.4f\nset rmargin at screen %.4f\nset tmargin at screen %.4f\n"
            "set bmargin at screen %.4f\n",
            left, right, 1 - top / (double)height, 1 - bottom / (double)height);
}

static int loss_height(const struct experiment *x, bool difference) {
    return key_lines(x) * KEY_LINE + 8 + PANEL_HEAD + PANEL + PANEL_FOOT +
           (difference ? PANEL_HEAD + DIFFERENCE + PANEL_FOOT : 0);
}

static char *loss_script(const struct experiment *x, int *figure_height) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        exit(text_failed("out of memory"));
    bool *has_loss = text_alloc((size_t)x->series_count, 3 * sizeof(bool)), *has_accuracy = has_loss + x->series_count,
         *has_difference = has_accuracy + x->series_count, difference = false;
    for (int i = 0; i < x->series_count; i++) {
        has_loss[i] = loss_block(out, x, "loss", i, -1);
        has_accuracy[i] = accuracy_block(out, x, i);
        has_difference[i] = x->baseline >= 0 && i != x->baseline && loss_block(out, x, "difference", i, x->baseline);
        difference |= has_difference[i];
    }
    int height = *figure_height = loss_height(x, difference);
    int top = key_lines(x) * KEY_LINE + 8 + PANEL_HEAD;
    struct key key = {.out = out, .height = height, .x = KEY_MARGIN, .y = 16};
    common_style(out);
    key_formats(&key, x);
    place(out, height, 0.065, 0.485, top, top + PANEL);
    if (x->window > 1)
        fprintf(out, "set title 'Training loss, means of %d steps'\n", x->window);
    else
        fputs("set title 'Training loss'\n", out);
    fprintf(out, "set xlabel 'step' offset 0,0.3\nset xrange [0:%lld]\n", (long long)x->steps);
    loss_limits(out, x);
    plot_curves(out, x, "loss", "lines", has_loss);
    key_done(&key);
    fputs("unset logscale y\nset yrange [*:*]\nset title 'Test accuracy, %'\nset xlabel 'epoch'\n", out);
    place(out, height, 0.565, 0.985, top, top + PANEL);
    int epochs = (int)((x->steps + x->steps_per_epoch - 1) / x->steps_per_epoch);
    fprintf(out, "set xrange [%g:%g]\nset xtics %d\n", epochs > 1 ? 1 - 0.02 * epochs : 0.5,
            epochs > 1 ? 1.02 * epochs : 1.5, epochs > 10 ? (epochs + 9) / 10 : 1);
    plot_curves(out, x, "accuracy", "linespoints pointtype 7 pointsize 0.5", has_accuracy);
    if (difference) {
        top += PANEL + PANEL_FOOT + PANEL_HEAD;
        place(out, height, 0.065, 0.985, top, top + DIFFERENCE);
        fprintf(out,
                "set title 'Training loss minus that of fp32 with the same seed'\nset xlabel 'step'\n"
                "set xrange [0:%lld]\nset yrange [%g < * : * < %g]\nset xtics autofreq\nset arrow 1 from graph 0, "
                "first 0 to graph 1, first 0 nohead "
                "linecolor rgb '#000000' linewidth 1.5 back\n",
                (long long)x->steps, -loss_cut(x), loss_cut(x));
        plot_curves(out, x, "difference", "lines", has_difference);
    }
    fputs("unset multiplot\n", out);
    free(has_loss);
    return script_done(out, &text);
}

static int draw_loss(const struct experiment *x, char **svg) {
    int height;
    char *script = loss_script(x, &height);
    int status = gnuplot_draw(x->folder, "figure-loss", WIDTH, height, script, svg);
    free(script);
    return status;
}

/* --- exponents -----------------------------------------------------------------------------------------------------
 */

static double ceiling_of(const struct trace_point *p) {
    return ldexp(32767, -p->e);
}

static void exponent_block(FILE *out, const struct trace_tensor *t, int row, int column) {
    fprintf(out, "$t%d_%d << EOD\n", row, column);
    for (int i = 0; i < t->count; i++) {
        const struct trace_point *p = &t->points[i];
        if (p->maximum > 0 && isfinite(p->maximum))
            fprintf(out, "%lld %.9g %.9g\n", (long long)p->step, ceiling_of(p), p->maximum);
    }
    fprintf(out, "EOD\n$s%d_%d << EOD\n", row, column);
    for (int i = 0; i < t->count; i++)
        if (t->points[i].saturated)
            fprintf(out, "%lld %.9g\n", (long long)t->points[i].step, ceiling_of(&t->points[i]));
    fputs("EOD\n", out);
}

/* The octaves that a row of panels shows; false when nothing was ever written. */
static bool octaves_of(const struct trace *columns, int count, int row, int *low, int *high) {
    bool any = false;
    for (int c = 0; c < count; c++) {
        const struct trace_tensor *t = &columns[c].tensors[row];
        for (int i = 0; i < t->count; i++) {
            const struct trace_point *p = &t->points[i];
            if (!(p->maximum > 0) || !isfinite(p->maximum))
                continue;
            int bottom = autoflex_floor_log2(p->maximum), top = autoflex_ceil_log2(fmax(p->maximum, ceiling_of(p)));
            *low = !any || bottom < *low ? bottom : *low;
            *high = !any || top > *high ? top : *high;
            any = true;
        }
    }
    return any;
}

static bool has_saturated(const struct trace_tensor *t) {
    for (int i = 0; i < t->count; i++)
        if (t->points[i].saturated)
            return true;
    return false;
}

/* Pixels of a row of panels: its name, the panel; above all rows the key and the formats, below them the axis. */
enum { ROW_NAME = 24, ROW_PANEL = 122, ROWS_HEAD = 62, ROWS_FOOT = 52 };

static void plot_exponents(FILE *out, const char *colour, const struct trace_tensor *t, int row, int column) {
    fprintf(out,
            "plot $t%d_%d using 1:2:3 with filledcurves fillcolor rgb '%s' fillstyle transparent solid 0.10 noborder, "
            "\\\n  $t%d_%d using 1:2 with fsteps linewidth 2 linecolor rgb '%s', \\\n"
            "  $t%d_%d using 1:3 with lines linewidth 1.1 linecolor rgb '#333333'",
            row, column, colour, row, column, colour, row, column);
    if (has_saturated(t))
        fprintf(out, ", \\\n  $s%d_%d using 1:2 with points pointtype 11 pointsize 0.8 linecolor rgb '#cc0000'", row,
                column);
    fputs("\n", out);
}

static void exponent_axes(FILE *out, int low, int high, bool last_row) {
    int octaves = high - low;
    fprintf(out, "set yrange [%.9g:%.9g]\nset ytics %.9g,%.9g\n", ldexp(1, low), ldexp(1.3, high), ldexp(1, low),
            ldexp(1, (octaves + 3) / 4));
    fputs(last_row ? "set xlabel 'step' offset 0,0.3\nset format x '%g'\n" : "unset xlabel\nset format x ''\n", out);
}

static void exponent_heading(FILE *out, const struct series *s, bool first_row) {
    if (!first_row) {
        fputs("unset title\n", out);
        return;
    }
    char *title = text_format("%s%s%s", s->label, s->predictor ? ", predictor " : "", s->predictor ? s->predictor : "");
    fputs("set title ", out);
    gnuplot_string(out, title);
    fputs(" noenhanced offset 0,0.6\n", out);
    free(title);
}

static void exponent_row_name(FILE *out, const struct trace_tensor *t) {
    char *name = text_format("%s (%s)", t->name, t->role);
    fputs("set label 1 ", out);
    gnuplot_string(out, name);
    fputs(" at graph 0, graph 1.09 left noenhanced textcolor rgb '#222222'\n", out);
    free(name);
}

static void exponent_key(struct key *k, const char *colour) {
    char *sample = text_format("linecolor rgb '%s' linewidth 2", colour);
    key_entry(k, sample, false, "largest value that the exponent can hold, 32767·2^{-e}");
    key_entry(k, "linecolor rgb '#333333' linewidth 1.1", false, "largest element of the result");
    key_entry(k, "pointtype 11 pointsize 0.8 linecolor rgb '#cc0000'", true, "elements saturated");
    free(sample);
}

static char *exponent_script(const struct experiment *x, const struct trace *columns, const int *series, int count,
                             int height) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        exit(text_failed("out of memory"));
    int rows = columns[0].count;
    struct key key = {.out = out, .height = height, .x = KEY_MARGIN, .y = 16, .enhanced = true};
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < count; c++)
            exponent_block(out, &columns[c].tensors[r], r, c);
    common_style(out);
    exponent_key(&key, figure_colour(x, series[0]));
    fprintf(out, "set logscale y 2\nset format y '2^{%%L}'\nset xrange [0:%lld]\n", (long long)x->steps);
    double left = 0.062, pitch = (1 - left) / count;
    for (int r = 0; r < rows; r++) {
        int low, high, top = ROWS_HEAD + r * (ROW_NAME + ROW_PANEL) + ROW_NAME;
        if (!octaves_of(columns, count, r, &low, &high))
            continue;
        exponent_axes(out, low, high + (high == low), r == rows - 1);
        for (int c = 0; c < count; c++) {
            place(out, height, left + pitch * c, left + pitch * (c + 1) - (c + 1 < count ? 0.055 : 0.015), top,
                  top + ROW_PANEL);
            exponent_heading(out, &x->series[series[c]], r == 0);
            if (c == 0)
                exponent_row_name(out, &columns[c].tensors[r]);
            plot_exponents(out, figure_colour(x, series[c]), &columns[c].tensors[r], r, c);
            fputs("unset label 1\n", out);
            key_done(&key);
        }
    }
    fputs("unset multiplot\n", out);
    return script_done(out, &text);
}

/* The first run of a shared-exponent format that is shown; NULL without one. */
static const struct run *traced_run(const struct experiment *x, int series) {
    for (int s = 0; x->series[series].shared && s < x->seed_count; s++)
        if (experiment_run(x, s, series)->shown)
            return experiment_run(x, s, series);
    return NULL;
}

static int read_trace(const struct experiment *x, const struct run *run, const struct trace *like,
                      struct trace *trace) {
    char *path = experiment_trace_path(x, run);
    int status = STATUS_OK;
    if (like)
        *trace = trace_like(like);
    else
        status = trace_choose(path, x->settings->trace_tensors, MOST_TENSORS, trace);
    int64_t rows = (x->steps + x->trace_every - 1) / x->trace_every;
    if (status == STATUS_OK)
        status = trace_read(path, (int)((rows + MOST_POINTS - 1) / MOST_POINTS), trace);
    free(path);
    return status;
}

static int draw_exponents(const struct experiment *x, char **svg) {
    struct trace columns[MOST_COLUMNS] = {0};
    int series[MOST_COLUMNS], count = 0, status = STATUS_OK;
    *svg = NULL;
    for (int i = 0; i < x->series_count && count < MOST_COLUMNS && x->trace_every && status == STATUS_OK; i++) {
        const struct run *run = traced_run(x, i);
        if (!run)
            continue;
        status = read_trace(x, run, count ? &columns[0] : NULL, &columns[count]);
        series[count++] = i;
    }
    if (status == STATUS_OK && count && !columns[0].count)
        text_note("--trace-tensors '%s': no tensor of the trace matches; the figure of exponents is left out",
                  x->settings->trace_tensors ? x->settings->trace_tensors : "");
    else if (status == STATUS_OK && count) {
        int height = ROWS_HEAD + columns[0].count * (ROW_NAME + ROW_PANEL) + ROWS_FOOT;
        char *script = exponent_script(x, columns, series, count, height);
        status = gnuplot_draw(x->folder, "figure-exponents", WIDTH, height, script, svg);
        free(script);
    }
    for (int c = 0; c < count; c++)
        trace_clear(&columns[c]);
    return status;
}

int figures_draw(const struct experiment *x, struct figures *figures) {
    *figures = (struct figures){0};
    int status = draw_loss(x, &figures->loss);
    if (status == GNUPLOT_MISSING) {
        text_note("gnuplot was not found, so the figures are left out; apt-get install gnuplot-nox");
        return STATUS_OK;
    }
    int second = draw_exponents(x, &figures->exponents);
    return status > second ? status : second;
}

void figures_clear(struct figures *figures) {
    free(figures->loss);
    free(figures->exponents);
    *figures = (struct figures){0};
}
