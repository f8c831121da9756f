/* figure_loss.c - the figure of loss and accuracy, as a gnuplot script with its data inside. */
#include "figures/figure_loss.h"
#include "figures/figure_style.h"
#include "figures/gnuplot.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>

enum { MARKERS = 12 }; /* on a curve of losses */

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

/* Whether the point is below `most`, the top of the panel: gnuplot fails on a plot without visible points. */
static bool band_print(FILE *out, double x, const struct band *b, double most) {
    if (!b->count || !isfinite(b->sum)) {
        fputs("\n", out);
        return false;
    }
    fprintf(out, "%.10g %.10g %.10g %.10g\n", x, b->sum / b->count, b->low, b->high);
    return fabs(b->sum / b->count) < most;
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

static int most_windows_of_all(const struct experiment *x) {
    int most = 0;
    for (int i = 0; i < x->series_count; i++)
        most = most_windows(x, i) > most ? most_windows(x, i) : most;
    return most;
}

/* Every curve is a single point, drawn as one. */
static bool draws_points(const struct experiment *x) {
    return most_windows_of_all(x) == 1;
}

/* `against` < 0: the loss; otherwise the difference to that series, seed by seed. Whether there is anything to see: a
 * line between two points in view. *largest grows to the largest size of what is in view. */
static bool loss_block(FILE *out, const struct experiment *x, const char *name, int series, int against,
                       double *largest) {
    bool any = false, before = draws_points(x);
    fprintf(out, "$%s%d << EOD\n", name, series);
    for (int w = 0; w < most_windows(x, series); w++) {
        struct band band = {0};
        double step = 0;
        for (int s = 0; s < x->seed_count; s++) {
            const struct run *run = experiment_run(x, s, series),
                             *base = against < 0 ? NULL : experiment_run(x, s, against);
            if (!run->shown || w >= run->window_count || (base && (!base->shown || w >= base->window_count)))
                continue;
            band_add(&band, base ? run->windows[w].loss - base->windows[w].loss : window_loss(&run->windows[w]));
            step = (double)run->windows[w].step - 0.5 * (run->windows[w].count - 1);
        }
        bool in_view = band_print(out, step, &band, drawing_loss_cut(x));
        any |= before && in_view;
        before = in_view;
        if (in_view)
            *largest = fmax(*largest, fmax(fabs(band.low), fabs(band.high)));
    }
    fputs("EOD\n", out);
    return any;
}

static bool accuracy_block(FILE *out, const struct experiment *x, int series) {
    bool any = false;
    fprintf(out, "$accuracy%d << EOD\n", series);
    for (int e = 0; e < (int)x->settings->epochs; e++) { /* single points have markers */
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

/* The power of ten that small differences are drawn in: their own numbers are too wide for the room beside the axis,
 * and some of them the same. */
static int power_of_differences(double largest) {
    return largest > 1e-300 && largest < 1e-3 ? (int)floor(log10(largest)) : 0;
}

/* A column as gnuplot reads it, as multiples of 10^power; to be freed. */
static char *column(int number, int power) {
    return power ? text_format("($%d*1e%d)", number, -power) : text_format("%d", number);
}

/* Bands first, so that no line is covered; the baseline below the others. Series without a point are left out.
 * `marker`: the style of the series whose line tells them apart; the markers of the others are `interval` points apart.
 * Values are drawn as multiples of 10^power. */
static void plot_curves(FILE *out, const struct experiment *x, const char *block, int power, const char *marker,
                        int interval, const bool *has_points) {
    const char *separator = "plot ";
    char *mean = column(2, power), *low = column(3, power), *high = column(4, power);
    for (int i = 0; i < x->series_count && x->seed_count > 1; i++)
        if (has_points[i]) {
            fprintf(out,
                    "%s$%s%d using 1:%s:%s with filledcurves fillcolor rgb '%s' fillstyle transparent solid 0.09 "
                    "noborder title ",
                    separator, block, i, low, high, figure_colour(x, i).text);
            gnuplot_string(out, x->series[i].label);
            fputs(" noenhanced", out);
            separator = ", \\\n  ";
        }
    for (int n = 0; n < x->series_count; n++) {
        int i = figure_drawn_at(x, n);
        if (!has_points[i])
            continue;
        char *look = figure_line(x, n);
        fprintf(out, "%s$%s%d using 1:%s with ", separator, block, i, mean);
        if (figure_marker(n))
            fprintf(out, "linespoints %s pointtype %d pointsize 0.7 pointinterval %d", look, figure_marker(n),
                    interval);
        else
            fprintf(out, "%s %s", marker, look);
        fputs(" title ", out);
        gnuplot_string(out, x->series[i].label);
        fputs(" noenhanced", out);
        free(look);
        separator = ", \\\n  ";
    }
    if (separator[0] == 'p') /* nothing yet: an empty panel */
        fputs("unset logscale y\nset yrange [0:1]\nplot NaN", out);
    fputs("\n", out);
    free(mean);
    free(low);
    free(high);
}

static void loss_limits(FILE *out, const struct experiment *x) {
    double low = INFINITY, high = 0;
    for (int i = 0; i < x->run_count; i++)
        for (int w = 0; x->runs[i].shown && w < x->runs[i].window_count; w++) {
            double loss = window_loss(&x->runs[i].windows[w]);
            low = loss < low ? loss : low;
            high = loss > high ? loss : high;
        }
    bool wide = low > 0 && high / low > 30;
    fputs(wide ? "set logscale y\n" : "", out);
    if (!(high <= drawing_loss_cut(x)))
        fprintf(out, "set yrange [*:%g]\n", drawing_loss_cut(x));
}

/* Marks at the first NaN or Inf of each run, in the colour of its format. */
enum { FIRST_MARK = 100, MOST_MARKS = 100 };

static int mark_nonfinite(FILE *out, const struct experiment *x) {
    int marks = 0;
    for (int i = 0; i < x->run_count && marks < MOST_MARKS; i++) {
        const struct run *run = &x->runs[i];
        const int64_t step = drawing_nonfinite_step(run);
        if (run->shown && step)
            fprintf(out,
                    "set arrow %d from first %lld, graph 1 to first %lld, graph 0 nohead dashtype 3 linewidth 1.2 "
                    "linecolor rgb '%s' back\n",
                    FIRST_MARK + marks++, (long long)step, (long long)step, figure_colour(x, run->series).text);
    }
    return marks;
}

static void unmark(FILE *out, int marks) {
    for (int i = 0; i < marks; i++)
        fprintf(out, "unset arrow %d\n", FIRST_MARK + i);
}

/* Why a format of the key has no curve. */
static char *key_label(const struct experiment *x, int series, bool has_points) {
    const char *label = x->series[series].label;
    bool shown = false, diverged = false;
    for (int s = 0; s < x->seed_count; s++) {
        const struct run *run = experiment_run(x, s, series);
        shown = shown || run->shown;
        diverged = diverged || (run->shown && run_diverged(x, run));
    }
    return text_format("%s%s", label,
                       has_points ? ""
                       : diverged ? " (not in view: diverged)"
                       : shown    ? " (not in view: no two losses)"
                                  : " (no finished run)");
}

static void key_formats(struct key *k, const struct experiment *x, const bool *has_points) {
    for (int n = 0; n < x->series_count; n++) {
        int i = figure_drawn_at(x, n);
        char *line = figure_line(x, n), *label = key_label(x, i, has_points[i]), *point = NULL;
        if (figure_marker(n))
            point = text_format("pointtype %d pointsize 0.7 linecolor rgb '%s'", figure_marker(n),
                                figure_colour(x, i).text);
        key_entry(k, line, point, label);
        free(line);
        free(label);
        free(point);
    }
}

enum { PANEL = 300, DIFFERENCE = 190, PANEL_HEAD = 38, PANEL_FOOT = 60 };

static int loss_height(int above, bool difference) {
    return above + PANEL_HEAD + PANEL + PANEL_FOOT + (difference ? PANEL_HEAD + DIFFERENCE + PANEL_FOOT : 0);
}

static char *loss_script(const struct experiment *x, int *figure_height) {
    struct figure_script script;
    figure_script_begin(&script);
    FILE *out = script.out;
    bool *has_loss = text_alloc((size_t)x->series_count, 3 * sizeof(bool)), *has_accuracy = has_loss + x->series_count,
         *has_difference = has_accuracy + x->series_count, difference = false;
    double largest_loss = 0, largest = 0;
    for (int i = 0; i < x->series_count; i++) {
        has_loss[i] = loss_block(out, x, "loss", i, -1, &largest_loss);
        has_accuracy[i] = accuracy_block(out, x, i);
        has_difference[i] =
            x->baseline >= 0 && i != x->baseline && loss_block(out, x, "difference", i, x->baseline, &largest);
        difference |= has_difference[i];
    }
    struct key key = key_begin(NULL, 1, false);
    key_formats(&key, x, has_loss);
    int top = key_height(&key), height = *figure_height = loss_height(top, difference);
    top += PANEL_HEAD;
    key = key_begin(out, height, false);
    figure_common_style(out);
    key_formats(&key, x, has_loss);
    figure_place(out, height, 0.065, 0.485, top, top + PANEL);
    fprintf(out, "set title '%s", drawing_title("loss"));
    if (x->window > 1)
        fprintf(out, ", means of %d steps", x->window);
    fputs("'\n", out);
    fprintf(out, "set xlabel 'step' offset 0,0.3\nset xrange [0:%lld]\n", (long long)x->steps);
    figure_step_marks(out, x->steps, (int)(0.42 * FIGURE_WIDTH));
    loss_limits(out, x);
    const char *marker = draws_points(x) ? "linespoints pointtype 7 pointsize 0.5" : "lines";
    int interval = most_windows_of_all(x) / MARKERS + 1;
    const int marks = mark_nonfinite(out, x);
    plot_curves(out, x, "loss", 0, marker, interval, has_loss);
    unmark(out, marks);
    key_done(&key);
    fprintf(out, "unset logscale y\nset yrange [*:*]\nset title '%s'\nset xlabel 'epoch'\n", drawing_title("accuracy"));
    figure_place(out, height, 0.565, 0.985, top, top + PANEL);
    int64_t epochs = (x->steps + x->steps_per_epoch - 1) / x->steps_per_epoch;
    fprintf(out, "set xrange [%g:%g]\nset xtics %lld\n", epochs > 1 ? 1 - 0.02 * (double)epochs : 0.5,
            epochs > 1 ? 1.02 * (double)epochs : 1.5, (long long)(epochs > 10 ? (epochs + 9) / 10 : 1));
    plot_curves(out, x, "accuracy", 0, "linespoints pointtype 7 pointsize 0.5", 1, has_accuracy);
    if (difference) {
        const int power = power_of_differences(largest);
        const double cut = drawing_loss_cut(x) * pow(10, -power);
        top += PANEL + PANEL_FOOT + PANEL_HEAD;
        figure_place(out, height, 0.065, 0.985, top, top + DIFFERENCE);
        fprintf(out, "set title '%s with the same seed", drawing_title("difference"));
        if (power)
            fprintf(out, ", in units of 10^{%d}", power);
        fprintf(out,
                "'\nset xlabel 'step'\nset xrange [0:%lld]\nset yrange [%g < * : * < %g]\nset arrow 1 from graph 0, "
                "first 0 to graph 1, first 0 nohead "
                "linecolor rgb '#000000' linewidth 1.5 back\n",
                (long long)x->steps, -cut, cut);
        figure_step_marks(out, x->steps, (int)(0.92 * FIGURE_WIDTH));
        plot_curves(out, x, "difference", power, marker, interval, has_difference);
    }
    fputs("unset multiplot\n", out);
    free(has_loss);
    return figure_script_end(&script);
}

int figure_loss_draw(const struct experiment *x, char **svg) {
    int height;
    char *script = loss_script(x, &height);
    int status = gnuplot_draw(x->folder, "figure-loss", FIGURE_WIDTH, height, script, svg);
    free(script);
    return status;
}
