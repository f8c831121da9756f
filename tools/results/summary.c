/* summary.c - statistics over the seeds of each format, as a table and as CSV. */
#include "results/experiment.h"
#include "base/number.h"
#include "base/output.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static const int32_t *predictions_of(const struct run *run) {
    return run->stored ? run->stored : run->result.predicted;
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
            same += predictions_of(run)[k] == predictions_of(base)[k];
        run->agreement = (double)same / (double)run->result.predicted_count;
    }
}

/* One number of a finished run; false if it has none. */
typedef bool number_of_run(const struct experiment *x, const struct run *run, double *value);

static bool train_loss(const struct experiment *x, const struct run *run, double *value) {
    (void)x;
    *value = run->result.train_loss;
    return true;
}
static bool last_loss(const struct experiment *x, const struct run *run, double *value) {
    (void)x;
    *value = run->result.last_loss;
    return true;
}
static bool loss_difference(const struct experiment *x, const struct run *run, double *value) {
    const struct run *base = run->finished ? baseline_of(x, run) : NULL;
    *value = base ? run->result.last_loss - base->result.last_loss : NAN;
    return base != NULL;
}
static bool test_loss(const struct experiment *x, const struct run *run, double *value) {
    (void)x;
    *value = run->result.test_loss;
    return run->result.predicted_count > 0;
}
static bool test_accuracy(const struct experiment *x, const struct run *run, double *value) {
    (void)x;
    *value = run->result.test_accuracy;
    return run->result.predicted_count > 0;
}
static bool agreement(const struct experiment *x, const struct run *run, double *value) {
    (void)x;
    *value = run->agreement;
    return !isnan(run->agreement);
}

static struct spread over_seeds(const struct experiment *x, int series, number_of_run *number) {
    int count = 0;
    double *values = text_alloc((size_t)x->seed_count, sizeof *values);
    bool missing = false;
    for (int s = 0; s < x->seed_count; s++) {
        const struct run *run = experiment_run(x, s, series);
        if (run->shown)
            missing |= !number(x, run, &values[count++]);
    }
    struct spread spread = spread_of(values, missing ? 0 : count);
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

/* The means of the medians and spreads of runs, which differ only in their seeds. */
static struct timing timing_of(const struct experiment *x, int series) {
    struct timing t = {0, 0, 0, 0, 0};
    int runs = 0;
    for (int i = series; i < x->run_count; i += x->series_count) {
        const struct timing *r = &x->runs[i].timing;
        if (!x->runs[i].shown)
            continue;
        t.wall += r->wall;
        if (!r->count)
            continue;
        t.low += r->low;
        t.median += r->median;
        t.high += r->high;
        t.count += r->count;
        runs++;
    }
    t.low = runs ? t.low / runs : NAN;
    t.median = runs ? t.median / runs : NAN;
    t.high = runs ? t.high / runs : NAN;
    return t;
}

struct summary summary_of(const struct experiment *x, int series) {
    struct summary s = {.train_loss = over_seeds(x, series, train_loss),
                        .last_loss = over_seeds(x, series, last_loss),
                        .loss_difference = over_seeds(x, series, loss_difference),
                        .test_loss = over_seeds(x, series, test_loss),
                        .accuracy = over_seeds(x, series, test_accuracy),
                        .agreement = over_seeds(x, series, agreement),
                        .images_per_second = speed_of(x, series),
                        .speed_ratio = NAN,
                        .timing = timing_of(x, series)};
    if (x->baseline >= 0) {
        const double base = timing_of(x, x->baseline).median;
        s.speed_ratio = base / s.timing.median;
        if (isnan(s.speed_ratio)) /* too few steps, or results from before steps were timed */
            s.speed_ratio = s.images_per_second / speed_of(x, x->baseline);
    }
    for (int i = series; i < x->run_count; i += x->series_count) {
        const nn_train_result *r = &x->runs[i].result;
        s.planned += x->runs[i].planned;
        s.failed += x->runs[i].failure != NULL;
        if (!x->runs[i].shown)
            continue;
        s.runs += x->runs[i].finished;
        if (!x->runs[i].finished)
            s.stopped_step = r->steps;
        s.diverged += run_diverged(x, &x->runs[i]);
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
        s.skipped += r->skipped;
        if (r->skipped_in_a_row > s.skipped_in_a_row)
            s.skipped_in_a_row = r->skipped_in_a_row;
    }
    return s;
}

/* Adds "0.1234 ± 0.0005", the numbers times `unit`; "-" if there is none. */
static void spread_cell(struct table *t, struct spread s, double unit, int digits, bool sign) {
    if (!s.count) {
        table_cell(t, "-");
        return;
    }
    char *mean = sign ? number_signed_text(unit * s.mean, digits) : number_text(unit * s.mean, digits);
    if (!isfinite(s.deviation)) {
        table_take(t, mean);
        return;
    }
    char *deviation = number_text(unit * s.deviation, digits);
    table_cell(t, "%s ± %s", mean, deviation);
    free(mean);
    free(deviation);
}

static void ratio_cell(struct table *t, double value, int digits) {
    table_take(t, isnan(value) ? text_format("-") : number_text(value, digits));
}

/* Adds milliseconds, such as "12.3 (11.9–14.0)". */
static void timing_cell(struct table *t, const struct timing *s) {
    if (!s->count) {
        table_cell(t, "-");
        return;
    }
    const int digits = s->median < 0.01 ? 3 : s->median < 0.1 ? 2 : s->median < 1 ? 1 : 0;
    char *median = number_text(1000 * s->median, digits), *low = number_text(1000 * s->low, digits),
         *high = number_text(1000 * s->high, digits);
    table_cell(t, "%s (%s–%s)", median, low, high);
    free(median);
    free(low);
    free(high);
}

/* Adds the label of the format, with the facts that its numbers depend on. */
static void label_cell(struct table *t, const struct experiment *x, int series, const struct summary *s) {
    char *label = s->stopped_step
                      ? text_format("%s (stopped after step %lld)", x->series[series].label, (long long)s->stopped_step)
                      : text_format("%s", x->series[series].label);
    if (s->failed)
        table_cell(t, s->planned > 1 ? "%s %d/%d FAILED" : "%s FAILED", label, s->failed, s->planned);
    else if (!s->diverged)
        table_cell(t, "%s", label);
    else if (s->runs > 1)
        table_cell(t, "%s %d/%d DIVERGED", label, s->diverged, s->runs);
    else
        table_cell(t, "%s DIVERGED", label);
    free(label);
}

/* Makes the table. For texts it also has the test loss in bits for each byte or character. */
static struct table *new_table(const struct experiment *x) {
    static const char *const first[] = {"format", "train loss", "last loss", "loss − fp32"},
                             *const rest[] = {"test acc. %", "agree %",     NULL,        "ms/step", "wall s", "× fp32",
                                              "weights",     "activations", "saturated", "flushed", "skipped"};
    const char *token = experiment_token(x);
    struct table *t = table_new(token ? "lrrrrrrrrrrrrrrrr" : "lrrrrrrrrrrrrrr");
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        table_cell(t, "%s", first[i]);
    if (token) {
        table_cell(t, "test loss");
        table_cell(t, "bits/%s", token);
    }
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        table_cell(t, "%s", rest[i] ? rest[i] : token ? "tokens/s" : "img/s");
    return t;
}

static bool is_dynamic(const struct series *s) {
    return !strncmp(s->loss_scale, "dynamic", 7);
}

struct table *summary_table(const struct experiment *x) {
    const int each = x->data.context ? x->data.context : 1;
    struct table *t = new_table(x);
    for (int i = 0; i < x->series_count; i++) {
        static const struct spread none = {NAN, NAN, 0};
        struct summary s = summary_of(x, i);
        bool is_baseline = i == x->baseline, shown = s.runs || s.stopped_step;
        label_cell(t, x, i, &s);
        spread_cell(t, s.train_loss, 1, 5, false);
        spread_cell(t, s.last_loss, 1, 5, false);
        spread_cell(t, is_baseline ? none : s.loss_difference, 1, 5, true);
        if (x->data.context) {
            spread_cell(t, s.test_loss, 1, 5, false);
            spread_cell(t, s.test_loss, 1 / log(2), 4, false);
        }
        spread_cell(t, s.accuracy, 100, 2, false);
        spread_cell(t, is_baseline ? none : s.agreement, 100, 2, false);
        ratio_cell(t, each * s.images_per_second, each * s.images_per_second < 100 ? 1 : 0);
        timing_cell(t, &s.timing);
        ratio_cell(t, s.timing.wall > 0 ? s.timing.wall : NAN, 1);
        ratio_cell(t, s.speed_ratio, 2);
        table_take(t, shown ? text_bytes((double)s.weight_bytes) : text_format("-"));
        table_take(t, shown ? text_bytes((double)s.activation_bytes) : text_format("-"));
        table_take(t, shown ? text_count(s.saturated) : text_format("-"));
        table_take(t, shown ? text_count(s.flushed) : text_format("-"));
        table_take(t, shown && is_dynamic(&x->series[i]) ? text_count(s.skipped) : text_format("-"));
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
    static const char *const heads[] = {
        "format",          "runs",          "elements written", "saturated",    "saturated share",
        "flushed to zero", "flushed share", "NaN or Inf",       "e at minimum", "e at maximum"};
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

static char *divergence_note(const struct experiment *x, int series, const struct summary *s) {
    enum { MOST_NAMED = 3 };
    char *note = s->runs > 1
                     ? text_format("DIVERGED: %s, %d of %d runs:", x->series[series].label, s->diverged, s->runs)
                     : text_format("DIVERGED: %s,", x->series[series].label);
    int named = 0;
    for (int i = series; i < x->run_count && named < MOST_NAMED; i += x->series_count) {
        if (!x->runs[i].shown || !run_diverged(x, &x->runs[i]))
            continue;
        char *why = run_divergence_text(x, &x->runs[i]),
             *longer =
                 text_format("%s%s seed %llu: %s", note, named ? ";" : "", (unsigned long long)x->runs[i].seed, why);
        free(why);
        free(note);
        note = longer;
        named++;
    }
    if (named == s->diverged)
        return note;
    char *longer = text_format("%s; and %d more", note, s->diverged - named);
    free(note);
    return longer;
}

/* Whether a role in which gradients are written or read is fp16. */
static bool has_fp16_gradients(const struct series *s) {
    for (int i = 0; i < s->role_count; i++)
        for (int r = 0; r < ROLE_LIMIT && nn_role_name_at(r); r++) {
            const char *role = nn_role_name_at(r), *value = s->roles[i].role[r];
            if (value && !strcmp(value, "fp16") &&
                (strstr(role, "gradients") || !strcmp(role, "operands") || !strcmp(role, "result")))
                return true;
        }
    return false;
}

/* The words of a policy are formats, as in "variant fp16;" or "operands=fp16". */
static bool has_fp16(const struct series *s) {
    if (s->role_count)
        return has_fp16_gradients(s);
    const char *at = strstr(s->policy, "fp16");
    while (at && (at[-1] == 'd' || !strncmp(at, "fp16:", 5)))
        at = strstr(at + 1, "fp16");
    return at != NULL;
}

/* Gradients in fp16 need loss scaling (Micikevicius et al. 2018). */
static char *scaling_note(const struct experiment *x) {
    char *names = NULL;
    int count = 0;
    for (int i = 0; i < x->series_count; i++)
        if (has_fp16(&x->series[i]) && !strcmp(x->series[i].loss_scale, "none")) {
            char *longer = text_format("%s%s%s", count ? names : "", count ? ", " : "", x->series[i].label);
            free(names);
            names = longer;
            count++;
        }
    char *note = count ? text_format("Note: %s train%s without loss scaling; gradients below 3e-8 become zero, those "
                                     "below 6e-5 lose bits.",
                                     names, count == 1 ? "s" : "")
                       : NULL;
    free(names);
    return note;
}

static bool has_layers(const struct series *s) {
    return !s->plain && strstr(s->label, SERIES_LAYERS) && strncmp(s->label, "policy:", 7) != 0;
}

/* Names formats with layers in other formats (--layer-format); a single format is compared with nothing. */
static char *layers_note(const struct experiment *x) {
    const bool baseline = x->baseline >= 0 && has_layers(&x->series[x->baseline]);
    char *names = NULL;
    int count = 0, n = 0;
    for (int i = 0; i < x->series_count; i++)
        count += has_layers(&x->series[i]);
    for (int i = 0; i < x->series_count && x->series_count > 1; i++) {
        if (!has_layers(&x->series[i]))
            continue;
        char *longer = text_format("%s%s%s", names ? names : "",
                                   !n              ? ""
                                   : n + 1 < count ? ", "
                                                   : " and ",
                                   x->series[i].label);
        free(names);
        names = longer;
        n++;
    }
    char *note = names ? text_format("Note: %s %s some layers in other formats (--layer-format).%s%s%s", names,
                                     count == 1 ? "has" : "have",
                                     baseline ? " Where a column or figure names fp32, it compares with " : "",
                                     baseline ? x->series[x->baseline].label : "",
                                     baseline ? ": no run has all its layers in fp32." : "")
                       : NULL;
    free(names);
    return note;
}

/* All seeds fail for the same reason: the first is reported. */
static char *failure_note(const struct experiment *x, int series) {
    int i = series;
    while (!x->runs[i].failure)
        i += x->series_count;
    return text_format("FAILED: %s seed %llu: %s", x->series[series].label, (unsigned long long)x->runs[i].seed,
                       x->runs[i].failure);
}

/* Gradients after an overflow of the forward pass are not finite either, but they did not overflow. */
static char *starved_note(const struct experiment *x, int series, const struct summary *s) {
    bool forward = false;
    for (int i = series; i < x->run_count; i += x->series_count)
        forward = forward || (x->runs[i].shown && nonfinite_is_forward(x->runs[i].first.pass));
    return text_format(
        "WARNING: %s: %lld consecutive steps made no update, because their gradients %s at every loss scale.",
        x->series[series].label, (long long)s->skipped_in_a_row, forward ? "were not finite" : "overflowed");
}

/* The first NaN or Inf of each run of a format, that of the first run in full; NULL: all runs were finite. */
static char *nonfinite_note(const struct experiment *x, int series) {
    enum { MOST_NAMED = 8 };
    char *note = NULL;
    int more = 0;
    for (int i = series; i < x->run_count; i += x->series_count) {
        const struct run *run = &x->runs[i];
        if (!run->shown || !run->first.step)
            continue;
        char *what = note ? NULL : nonfinite_sentence(&run->first, x->settings), *longer = NULL;
        if (!note)
            longer = text_format("First NaN or Inf: %s, seed %llu, step %lld, %s", x->series[series].label,
                                 (unsigned long long)run->seed, (long long)run->first.step, what);
        else if (++more <= MOST_NAMED)
            longer = text_format("%s; seed %llu, step %lld, %s%s%s", note, (unsigned long long)run->seed,
                                 (long long)run->first.step, run->first.pass, *run->first.tensor ? ", " : "",
                                 run->first.tensor);
        free(what);
        if (!longer)
            continue;
        free(note);
        note = longer;
    }
    char *whole = note ? text_format(more > MOST_NAMED ? "%s; and %d more." : "%s.", note, more - MOST_NAMED) : NULL;
    free(note);
    return whole;
}

char *summary_note(const struct experiment *x, int i) {
    for (int series = 0; series < x->series_count; series++) {
        struct summary s = summary_of(x, series);
        if (s.failed && i-- == 0)
            return failure_note(x, series);
        if (s.diverged && i-- == 0)
            return divergence_note(x, series, &s);
        if (s.skipped_in_a_row >= NN_STARVED && i-- == 0)
            return starved_note(x, series, &s);
        char *nonfinite = nonfinite_note(x, series);
        if (nonfinite && i-- == 0)
            return nonfinite;
        free(nonfinite);
    }
    char *layers = layers_note(x);
    if (layers && i-- == 0)
        return layers;
    free(layers);
    return i == 0 ? scaling_note(x) : NULL;
}

void summary_print(const struct experiment *x) {
    int width = output_columns();
    struct table *t = summary_table(x);
    char *model = text_shown(x->settings->model), *data = text_shown(x->settings->data);
    char *note,
        *heading = text_format("%s on %s: %lld steps of %lld %s, %d of %d runs", model, data, (long long)x->steps,
                               (long long)experiment_step_samples(x), x->data.context ? "tokens" : "images",
                               experiment_finished(x), experiment_planned(x));
    putchar('\n');
    paragraph_print(heading, stdout, width);
    putchar('\n');
    table_print(t, stdout, 0, width);
    for (int i = 0; (note = summary_note(x, i)); i++) {
        if (!i)
            putchar('\n');
        paragraph_print(note, stdout, width);
        free(note);
    }
    free(heading);
    free(model);
    free(data);
    table_free(t);
}

static void csv_number(FILE *out, double value) {
    if (isfinite(value))
        fprintf(out, ",%.17g", value);
    else
        fprintf(out, ",%s", number_state(value));
}

static void csv_ratio(FILE *out, double value) {
    if (isnan(value))
        fputc(',', out);
    else
        csv_number(out, value);
}

/* Writes mean and deviation: empty if there is none, or else a number, nan, inf or -inf. */
static void csv_spread(FILE *out, struct spread s) {
    if (s.count)
        csv_number(out, s.mean);
    else
        fputc(',', out);
    if (s.count > 1)
        csv_number(out, s.deviation);
    else
        fputc(',', out);
}

int summary_write_csv(const struct experiment *x) {
    struct output o;
    int status = output_open(&o, x->folder, "summary.csv");
    if (status)
        return status;
    fputs("format,runs,diverged,train_loss_mean,train_loss_sd,last_loss_mean,last_loss_sd,last_loss_minus_fp32_mean,"
          "last_loss_minus_fp32_sd,test_loss_mean,test_loss_sd,test_accuracy_mean,test_accuracy_sd,agreement_mean,"
          "agreement_sd,images_per_second,speed_ratio,parameters,weight_bytes,activation_bytes,arena_bytes,saturated,"
          "flushed,nonfinite,elements,clamped_low,clamped_high,planned_runs,stopped_step,"
          "step_seconds,step_seconds_low,step_seconds_high,wall_seconds,skipped,skipped_in_a_row\n",
          o.file);
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        text_print_csv(o.file, x->series[i].label);
        fprintf(o.file, ",%d,%d", s.runs, s.diverged);
        const struct spread spreads[] = {s.train_loss, s.last_loss, s.loss_difference,
                                         s.test_loss,  s.accuracy,  s.agreement};
        for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++)
            csv_spread(o.file, spreads[k]);
        csv_ratio(o.file, s.images_per_second);
        csv_ratio(o.file, s.speed_ratio);
        const int64_t counts[] = {s.parameters,  s.weight_bytes, s.activation_bytes, s.arena_bytes,
                                  s.saturated,   s.flushed,      s.nonfinite,        s.elements,
                                  s.clamped_low, s.clamped_high, s.planned,          s.stopped_step};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            fprintf(o.file, ",%lld", (long long)counts[k]);
        const double times[] = {s.timing.median, s.timing.low, s.timing.high, s.timing.wall};
        for (size_t k = 0; k < sizeof times / sizeof *times; k++)
            csv_ratio(o.file, times[k]);
        fprintf(o.file, ",%lld,%lld\n", (long long)s.skipped, (long long)s.skipped_in_a_row);
    }
    return output_commit(&o);
}
