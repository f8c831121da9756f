/* report_curves.c - formats, seeds and curves of the runs as data of the page. */
#include "report/report_curves.h"
#include "figures/drawing.h"
#include "report/page_json.h"
#include "results/student.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_POINTS = 1000 };

/* Windows that make one point of a curve. */
static int windows_a_point(const struct experiment *x) {
    int most = 0;
    for (int i = 0; i < x->run_count; i++)
        most = x->runs[i].window_count > most ? x->runs[i].window_count : most;
    return (most + MOST_POINTS - 1) / MOST_POINTS;
}

static void print_series(FILE *out, const struct experiment *x) {
    fputs("\"series\":[", out);
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        fputs(i ? ",\n{\"name\":" : "\n{\"name\":", out);
        page_text(out, x->series[i].label);
        fprintf(out, ",\"colour\":\"%s\",\"shared\":%s,\"finished\":%d,\"diverged\":%d,\"stopped\":%lld}",
                figure_colour(x, i).text, x->series[i].shared ? "true" : "false", s.runs, s.diverged,
                (long long)s.stopped_step);
    }
    fprintf(out, "],\n\"baseline\":%d,\"order\":[", x->baseline);
    for (int n = 0; n < x->series_count; n++)
        fprintf(out, "%s%d", n ? "," : "", figure_drawn_at(x, n));
    fputs("]", out);
}

/* Steps and losses of the points, each the mean of the steps of its windows whose loss is finite: NaN without one. */
static void print_losses(FILE *out, const struct run *run, int group) {
    const int count = (run->window_count + group - 1) / group;
    double *steps = text_alloc((size_t)count + 1, 2 * sizeof *steps), *losses = steps + count + 1;
    bool *partial = text_alloc((size_t)count + 1, sizeof *partial), any = false;
    for (int p = 0; p < count; p++) {
        double sum = 0;
        int64_t seen = 0, finite = 0, last = 0;
        for (int w = p * group; w < run->window_count && w < (p + 1) * group; w++) {
            const struct window *window = &run->windows[w];
            const int known = window->count - window->nonfinite;
            sum += known ? window_loss(window) * known : 0;
            finite += known;
            seen += window->count;
            last = window->step;
        }
        losses[p] = group > 1 ? sum / (double)finite : window_loss(&run->windows[p]); /* one: as the file has it */
        partial[p] = finite < seen;
        steps[p] = (double)last - 0.5 * (double)(seen - 1);
    }
    fputs(",\"steps\":[", out);
    for (int p = 0; p < count; p++) {
        fputs(p ? "," : "", out);
        page_number(out, steps[p], 10);
    }
    fputs("],\"loss\":[", out);
    for (int p = 0; p < count; p++) {
        fputs(p ? "," : "", out);
        page_number(out, losses[p], PAGE_EXACT);
    }
    fputs("],\"partial\":[", out); /* points that are not compared with another run */
    for (int p = 0; p < count; p++)
        if (partial[p]) {
            fprintf(out, "%s%d", any ? "," : "", p);
            any = true;
        }
    fputs("]", out);
    free(partial);
    free(steps);
}

/* Prints the step of the mark of the curves, and its meaning. */
static void print_nonfinite(FILE *out, const struct run *run) {
    int64_t lost = 0;
    for (int w = 0; w < run->window_count; w++)
        lost += run->windows[w].nonfinite;
    const int64_t step = drawing_nonfinite_step(run);
    fprintf(out, ",\"lost\":%lld,\"nonfinite\":", (long long)lost);
    if (!step) {
        fputs("null", out);
        return;
    }
    char *what = run->first.step ? nonfinite_text(&run->first) : text_format("in the loss");
    fprintf(out, "{\"step\":%lld,\"text\":", (long long)step);
    page_text(out, what);
    fputs("}", out);
    free(what);
}

static void print_epochs(FILE *out, const struct run *run) {
    fputs(",\"epoch_steps\":[", out);
    for (int e = 0; e < run->epoch_count; e++)
        fprintf(out, "%s%lld", e ? "," : "", (long long)run->epochs[e].step);
    fputs("],\"test_loss\":[", out);
    for (int e = 0; e < run->epoch_count; e++) {
        fputs(e ? "," : "", out);
        page_number(out, run->epochs[e].test_loss, PAGE_EXACT);
    }
    fputs("],\"accuracy\":[", out);
    for (int e = 0; e < run->epoch_count; e++) {
        fputs(e ? "," : "", out);
        page_number(out, 100 * run->epochs[e].test_accuracy, PAGE_EXACT);
    }
    fputs("]", out);
}

/* What stands in the table of pairs: last loss, loss and accuracy of the test set. */
static void print_results(FILE *out, const struct run *run) {
    const bool tested = run->result.predicted_count > 0;
    fputs(",\"last_loss\":", out);
    page_number(out, run->result.last_loss, 17);
    fputs(",\"last_test_loss\":", out);
    page_number(out, tested ? run->result.test_loss : NAN, 17);
    fputs(",\"last_accuracy\":", out);
    page_number(out, tested ? 100 * run->result.test_accuracy : NAN, 17);
}

void report_curves(FILE *out, const struct experiment *x) {
    const int group = windows_a_point(x) > 1 ? windows_a_point(x) : 1;
    bool first = true;
    fprintf(out, "\"total_steps\":%lld,\"steps_a_point\":%lld,\"cut\":%.9g,\n\"measures\":{", (long long)x->steps,
            (long long)x->window * group, drawing_loss_cut(x));
    for (const struct drawing_measure *m = drawing_measures; m->key; m++)
        fprintf(out, "%s\"%s\":\"%s\"", m == drawing_measures ? "" : ",", m->key, m->title);
    fputs("},\n", out);
    print_series(out, x);
    fputs(",\n\"critical\":[", out); /* for the interval of a mean of 2, 3, ... pairs */
    for (int s = 1; s < x->seed_count; s++)
        fprintf(out, "%s%.6g", s > 1 ? "," : "", student_critical(0.05, s));
    fputs("],\n\"seeds\":[", out);
    for (int s = 0; s < x->seed_count; s++)
        fprintf(out, "%s\"%llu\"", s ? "," : "", (unsigned long long)x->seeds[s]);
    fputs("],\n\"runs\":[", out);
    for (int i = 0; i < x->run_count; i++) {
        const struct run *run = &x->runs[i];
        if (!run->shown)
            continue;
        fprintf(out, "%s\n{\"series\":%d,\"seed\":%d,\"finished\":%s,\"diverged\":", first ? "" : ",", run->series,
                i / x->series_count, run->finished ? "true" : "false");
        first = false;
        char *divergence = run_diverged(x, run) ? run_divergence_text(x, run) : NULL;
        if (divergence)
            page_text(out, divergence);
        else
            fputs("null", out);
        free(divergence);
        print_losses(out, run, group);
        print_nonfinite(out, run);
        print_epochs(out, run);
        print_results(out, run);
        fputs("}", out);
    }
    fputs("]", out);
}
