/* summary.c - figures over the seeds of each format, as a table and as CSV. */
#include "experiment.h"
#include "folder.h"
#include "output.h"
#include "text.h"
#include <math.h>
#include <stdlib.h>

static struct spread spread_of(const double *values, int count) {
    struct spread s = {NAN, NAN, count};
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    if (count)
        s.mean = sum / count;
    for (int i = 0; i < count; i++)
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    if (count > 1)
        s.deviation = sqrt(squares / (count - 1));
    return s;
}

static const struct run *baseline_of(const struct experiment *x, const struct run *run) {
    if (x->baseline < 0)
        return NULL;
    const struct run *base = &x->runs[(run - x->runs) / x->series_count * x->series_count + x->baseline];
    return base->finished ? base : NULL;
}

void summary_agreement(struct experiment *x) {
    for (int i = 0; i < x->run_count; i++) {
        struct run *run = &x->runs[i];
        const struct run *base = baseline_of(x, run);
        run->agreement = NAN;
        if (!run->finished || !base || !run->result.predicted_count ||
            run->result.predicted_count != base->result.predicted_count)
            continue;
        int64_t same = 0;
        for (int64_t k = 0; k < run->result.predicted_count; k++)
            same += run->result.predicted[k] == base->result.predicted[k];
        run->agreement = (double)same / (double)run->result.predicted_count;
    }
}

/* One number of a finished run; NAN where it has none. */
static double train_loss(const struct experiment *x, const struct run *run) {
    (void)x;
    return run->result.train_loss;
}
static double last_loss(const struct experiment *x, const struct run *run) {
    (void)x;
    return run->result.last_loss;
}
static double loss_difference(const struct experiment *x, const struct run *run) {
    const struct run *base = run->finished ? baseline_of(x, run) : NULL;
    return base ? run->result.last_loss - base->result.last_loss : NAN;
}
static double test_loss(const struct experiment *x, const struct run *run) {
    (void)x;
    return run->result.test_loss;
}
static double test_accuracy(const struct experiment *x, const struct run *run) {
    (void)x;
    return run->result.test_accuracy;
}
static double agreement(const struct experiment *x, const struct run *run) {
    (void)x;
    return run->agreement;
}

static struct spread over_seeds(const struct experiment *x, int series,
                                double (*number)(const struct experiment *, const struct run *)) {
    int seeds = x->run_count / x->series_count, count = 0;
    double *values = text_alloc((size_t)seeds, sizeof *values);
    bool missing = false;
    for (int s = 0; s < seeds; s++) {
        const struct run *run = experiment_run(x, s, series);
        if (!run->shown)
            continue;
        values[count] = number(x, run);
        missing = missing || isnan(values[count]);
        count++;
    }
    struct spread spread = spread_of(values, count);
    if (missing)
        spread.mean = spread.deviation = NAN;
    free(values);
    return spread;
}

static double speed_of(const struct experiment *x, int series) {
    double seconds = 0, images = 0;
    for (int i = series; i < x->run_count; i += x->series_count)
        if (x->runs[i].shown) {
            seconds += x->runs[i].result.seconds;
            images += (double)x->runs[i].result.images;
        }
    return seconds > 0 ? images / seconds : NAN;
}

struct summary summary_of(const struct experiment *x, int series) {
    struct summary s = {.train_loss = over_seeds(x, series, train_loss),
                        .last_loss = over_seeds(x, series, last_loss),
                        .loss_difference = over_seeds(x, series, loss_difference),
                        .test_loss = over_seeds(x, series, test_loss),
                        .accuracy = over_seeds(x, series, test_accuracy),
                        .agreement = over_seeds(x, series, agreement),
                        .images_per_second = speed_of(x, series),
                        .speed_ratio = NAN};
    if (x->baseline >= 0)
        s.speed_ratio = s.images_per_second / speed_of(x, x->baseline);
    for (int i = series; i < x->run_count; i += x->series_count) {
        const nn_train_result *r = &x->runs[i].result;
        if (!x->runs[i].shown)
            continue;
        s.runs += x->runs[i].finished;
        if (!x->runs[i].finished)
            s.stopped_step = r->steps;
        s.parameters = r->parameters;
        s.weight_bytes = r->weight_bytes;
        s.activation_bytes = r->activation_bytes;
        s.arena_bytes = r->arena_bytes;
        s.saturated += r->saturated;
        s.flushed += r->flushed;
        s.nonfinite += r->nonfinite;
        s.elements += r->elements;
        s.clamped_low += r->clamped_low;
        s.clamped_high += r->clamped_high;
    }
    return s;
}

/* "0.1234 ± 0.0005", the numbers times `unit`; "-" for one that does not exist. Large numbers lose their decimals. */
static void spread_cell(struct table *t, struct spread s, double unit, int digits, const char *sign) {
    bool large = fabs(unit * s.mean) >= 1000;
    char *mean = isnan(s.mean) ? text_format("-")
                 : large       ? text_format("%.4g", unit * s.mean)
                               : text_format(*sign ? "%+.*f" : "%.*f", digits, unit * s.mean);
    if (isnan(s.deviation))
        table_take(t, mean);
    else {
        table_take(t, large ? text_format("%s ± %.2g", mean, unit * s.deviation)
                            : text_format("%s ± %.*f", mean, digits, unit * s.deviation));
        free(mean);
    }
}

/* A loss that is not a number is a result, not a gap: the run diverged. */
static void loss_cell(struct table *t, struct spread s, bool shown) {
    if (shown && !isfinite(s.mean))
        table_cell(t, "diverged");
    else
        spread_cell(t, s, 1, 5, "");
}

static void label_cell(struct table *t, const struct experiment *x, int series, const struct summary *s) {
    if (s->stopped_step)
        table_cell(t, "%s (stopped after step %lld)", x->series[series].label, (long long)s->stopped_step);
    else
        table_cell(t, "%s", x->series[series].label);
}

struct table *summary_table(const struct experiment *x) {
    static const char *const heads[] = {"format", "train loss", "last loss", "loss − fp32", "test acc. %", "agree %",
                                        "img/s",  "× fp32",     "weights",   "activations", "saturated",   "flushed"};
    struct table *t = table_new("lrrrrrrrrrrr");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        bool is_baseline = i == x->baseline, shown = s.runs || s.stopped_step;
        label_cell(t, x, i, &s);
        loss_cell(t, s.train_loss, shown);
        loss_cell(t, s.last_loss, shown);
        spread_cell(t, is_baseline ? (struct spread){NAN, NAN, 0} : s.loss_difference, 1, 5, "+");
        spread_cell(t, s.accuracy, 100, 2, "");
        spread_cell(t, is_baseline ? (struct spread){NAN, NAN, 0} : s.agreement, 100, 2, "");
        table_cell(t, isnan(s.images_per_second) ? "-" : "%.*f", s.images_per_second < 100 ? 1 : 0,
                   s.images_per_second);
        table_cell(t, isnan(s.speed_ratio) ? "-" : "%.2f", s.speed_ratio);
        table_take(t, shown ? text_bytes((double)s.weight_bytes) : text_format("-"));
        table_take(t, shown ? text_bytes((double)s.activation_bytes) : text_format("-"));
        table_take(t, shown ? text_count(s.saturated) : text_format("-"));
        table_take(t, shown ? text_count(s.flushed) : text_format("-"));
    }
    return t;
}

static char *share(int64_t part, int64_t whole) {
    if (!whole)
        return text_format("-");
    if (!part)
        return text_format("0");
    double percent = 100.0 * (double)part / (double)whole;
    return text_format(percent < 0.001 ? "%.1e %%" : "%.4f %%", percent);
}

struct table *summary_arithmetic_table(const struct experiment *x) {
    static const char *const heads[] = {"format",          "runs",  "elements written", "saturated",    "share",
                                        "flushed to zero", "share", "NaN or Inf",       "e at minimum", "e at maximum"};
    struct table *t = table_new("lrrrrrrrrr");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        bool shared = x->series[i].shared;
        label_cell(t, x, i, &s);
        table_cell(t, "%d", s.runs);
        table_take(t, text_count(s.elements));
        table_take(t, text_count(s.saturated));
        table_take(t, share(s.saturated, s.elements));
        table_take(t, text_count(s.flushed));
        table_take(t, share(s.flushed, s.elements));
        table_take(t, text_count(s.nonfinite));
        table_take(t, shared ? text_count(s.clamped_low) : text_format("-"));
        table_take(t, shared ? text_count(s.clamped_high) : text_format("-"));
    }
    return t;
}

static void csv_number(FILE *out, double value) {
    if (isnan(value))
        fputc(',', out);
    else
        fprintf(out, ",%.17g", value);
}

static void csv_spread(FILE *out, struct spread s) {
    csv_number(out, s.mean);
    csv_number(out, s.deviation);
}

int summary_write_csv(const struct experiment *x) {
    struct output o;
    int status = output_open(&o, x->folder, "summary.csv");
    if (status)
        return status;
    fputs("format,runs,train_loss_mean,train_loss_sd,last_loss_mean,last_loss_sd,last_loss_minus_fp32_mean,"
          "last_loss_minus_fp32_sd,test_loss_mean,test_loss_sd,test_accuracy_mean,test_accuracy_sd,agreement_mean,"
          "agreement_sd,images_per_second,speed_ratio,parameters,weight_bytes,activation_bytes,arena_bytes,saturated,"
          "flushed,nonfinite,elements,clamped_low,clamped_high,planned_runs,stopped_step\n",
          o.file);
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        fprintf(o.file, "%s,%d", x->series[i].label, s.runs);
        const struct spread spreads[] = {s.train_loss, s.last_loss, s.loss_difference,
                                         s.test_loss,  s.accuracy,  s.agreement};
        for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++)
            csv_spread(o.file, spreads[k]);
        csv_number(o.file, s.images_per_second);
        csv_number(o.file, s.speed_ratio);
        const int64_t counts[] = {s.parameters,
                                  s.weight_bytes,
                                  s.activation_bytes,
                                  s.arena_bytes,
                                  s.saturated,
                                  s.flushed,
                                  s.nonfinite,
                                  s.elements,
                                  s.clamped_low,
                                  s.clamped_high,
                                  x->run_count / x->series_count,
                                  s.stopped_step};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            fprintf(o.file, ",%lld", (long long)counts[k]);
        fputc('\n', o.file);
    }
    return output_commit(&o);
}

char *experiment_trace_name(const struct experiment *x, const struct run *run) {
    return folder_trace_name(x->series[run->series].label, (unsigned long long)run->seed);
}
