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
} measures[] = {[REPORT_LAST_LOSS] = {"last loss", last_loss, false, 5},
                [REPORT_TEST_LOSS] = {"test loss", test_loss, true, 5},
                [REPORT_ACCURACY] = {"test acc., points", accuracy, true, 2}};

static bool has(const struct run *run, const struct measure *m) {
    return run->finished && (!m->tested || run->result.predicted_count > 0);
}

/* Stores the differences of the seeds that both have in `values`; returns how many. */
static int differences(const struct experiment *x, int series, const struct measure *m, double *values) {
    int count = 0;
    for (int s = 0; s < x->seed_count; s++) {
        const struct run *run = experiment_run(x, s, series), *base = experiment_run(x, s, x->baseline);
        if (has(run, m) && has(base, m))
            values[count++] = m->of(run) - m->of(base);
    }
    return count;
}

char *report_probability(double p) {
    return p < 0.0001 ? text_format("< 0.0001") : text_format("%.4f", p);
}

struct report_pair report_pair_of(const struct experiment *x, int series, enum report_measure measure) {
    struct report_pair pair = {0, NAN, NAN, NAN, NAN};
    double *values = text_alloc((size_t)x->seed_count, sizeof *values), sum = 0, squares = 0;
    pair.count = differences(x, series, &measures[measure], values);
    for (int i = 0; i < pair.count; i++)
        sum += values[i];
    if (pair.count)
        pair.mean = sum / pair.count;
    for (int i = 0; i < pair.count; i++)
        squares += (values[i] - pair.mean) * (values[i] - pair.mean);
    free(values);
    if (pair.count < 2 || !isfinite(squares))
        return pair;
    const int freedom = pair.count - 1;
    pair.deviation = sqrt(squares / freedom);
    const double error = pair.deviation / sqrt(pair.count);
    pair.half = error * student_critical(0.05, freedom);
    if (error > 0)
        pair.p = student_two_sided(pair.mean / error, freedom);
    return pair;
}

/* Mean, deviation, interval and test; dashes if there are fewer than two seeds or a number is NaN.
 */
static void difference_cells(struct table *t, const struct report_pair *pair, int digits) {
    table_cell(t, "%d", pair->count);
    table_take(t, number_signed_text(pair->mean, digits));
    if (isnan(pair->deviation)) {
        for (int i = 0; i < 3; i++)
            table_cell(t, "-");
        return;
    }
    char *low = number_signed_text(pair->mean - pair->half, digits),
         *high = number_signed_text(pair->mean + pair->half, digits);
    table_take(t, number_text(pair->deviation, digits));
    table_cell(t, "%s … %s", low, high);
    table_take(t, isnan(pair->p) ? text_format("-") : report_probability(pair->p));
    free(low);
    free(high);
}

struct table *report_paired_table(const struct experiment *x) {
    static const char *const heads[] = {"format", "minus fp32", "pairs", "mean", "sd", "95 % interval of the mean",
                                        "p"};
    if (x->baseline < 0 || x->series_count < 2)
        return NULL;
    struct table *t = table_new("llrrrrr");
    int lines = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < x->series_count; i++)
        for (size_t m = 0; m < sizeof measures / sizeof *measures && i != x->baseline; m++) {
            const struct report_pair pair = report_pair_of(x, i, (enum report_measure)m);
            if (!pair.count)
                continue;
            table_cell(t, "%s", x->series[i].label);
            table_cell(t, "%s", measures[m].name);
            difference_cells(t, &pair, measures[m].digits);
            lines++;
        }
    if (lines)
        return t;
    table_free(t);
    return NULL;
}
