/* report_paired.c - differences to fp32, seed by seed. */
#include "report/report_paired.h"
#include "base/number.h"
#include "results/student.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>

static double last_loss(const struct run *run) {
    return run->result.last_loss;
}
static double test_loss(const struct run *run) {
    return run->result.test_loss;
}
static double accuracy(const struct run *run) {
    return 100 * run->result.test_accuracy;
}

static const struct measure {
    const char *name;
    double (*of)(const struct run *run);
    bool tested; /* of the test set */
    int digits;
} measures[] = {
    {"last loss", last_loss, false, 5}, {"test loss", test_loss, true, 5}, {"test acc., points", accuracy, true, 2}};

static bool has(const struct run *run, const struct measure *m) {
    return run->finished && (!m->tested || run->result.predicted_count > 0);
}

/* Differences of the seeds that both have, into `values`; how many. */
static int differences(const struct experiment *x, int series, const struct measure *m, double *values) {
    int count = 0;
    for (int s = 0; s < x->seed_count; s++) {
        const struct run *run = experiment_run(x, s, series), *base = experiment_run(x, s, x->baseline);
        if (has(run, m) && has(base, m))
            values[count++] = m->of(run) - m->of(base);
    }
    return count;
}

static char *probability(double p) {
    return p < 0.0001 ? text_format("< 0.0001") : text_format("%.4f", p);
}

/* Mean, deviation, interval and test; dashes where fewer than two seeds or a number that is none leave nothing to say.
 */
static void difference_cells(struct table *t, const double *values, int count, int digits) {
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    const double mean = sum / count;
    for (int i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    const double deviation = sqrt(squares / (count - 1)), error = deviation / sqrt(count);
    table_cell(t, "%d", count);
    table_take(t, number_signed_text(mean, digits));
    if (count < 2 || !isfinite(deviation)) {
        for (int i = 0; i < 3; i++)
            table_cell(t, "-");
        return;
    }
    const double half = error * student_critical(0.05, count - 1);
    char *low = number_signed_text(mean - half, digits), *high = number_signed_text(mean + half, digits);
    table_take(t, number_text(deviation, digits));
    table_cell(t, "%s … %s", low, high);
    table_take(t, error > 0 ? probability(student_two_sided(mean / error, count - 1)) : text_format("-"));
    free(low);
    free(high);
}

struct table *report_paired_table(const struct experiment *x) {
    static const char *const heads[] = {"format", "minus fp32", "pairs", "mean", "sd", "95 % interval of the mean",
                                        "p"};
    if (x->baseline < 0 || x->series_count < 2)
        return NULL;
    struct table *t = table_new("llrrrrr");
    double *values = text_alloc((size_t)x->seed_count, sizeof *values);
    int lines = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < x->series_count; i++)
        for (size_t m = 0; m < sizeof measures / sizeof *measures && i != x->baseline; m++) {
            const int count = differences(x, i, &measures[m], values);
            if (!count)
                continue;
            table_cell(t, "%s", x->series[i].label);
            table_cell(t, "%s", measures[m].name);
            difference_cells(t, values, count, measures[m].digits);
            lines++;
        }
    free(values);
    if (lines)
        return t;
    table_free(t);
    return NULL;
}
