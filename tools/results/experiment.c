/* experiment.c - a comparison as a whole: its runs, which of them diverged, and the names of its files. */
#include "results/experiment.h"
#include "results/folder.h"
#include "base/number.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void experiment_make_runs(struct experiment *x) {
    static const char *const baselines[] = {"fp32", "fp32" SERIES_LAYERS}; /* the first that exists */
    x->baseline = -1;
    for (int b = 0; b < 2 && x->baseline < 0; b++)
        for (int i = 0; i < x->series_count; i++)
            if (!strcmp(x->series[i].label, baselines[b]))
                x->baseline = i;
    x->run_count = x->series_count * x->seed_count;
    x->runs = text_alloc((size_t)x->run_count, sizeof *x->runs);
    for (int i = 0; i < x->run_count; i++)
        x->runs[i] = (struct run){.series = i % x->series_count,
                                  .seed = x->seeds[i / x->series_count],
                                  .planned = true,
                                  .agreement = NAN,
                                  .timing = {NAN, NAN, NAN, 0, 0}};
}

int64_t experiment_labels(const struct experiment *x) {
    const int context = x->data.context;
    return context ? (x->data.test - 1) / context * context : x->data.test;
}

const char *experiment_token(const struct experiment *x) {
    return !x->data.context ? NULL : strstr(x->settings->data, "unit=characters") ? "character" : "byte";
}

int64_t experiment_step_samples(const struct experiment *x) {
    return x->settings->batch * (x->data.context ? x->data.context : 1);
}

void run_clear(struct run *run) {
    nn_train_result_clear(&run->result);
    free(run->windows);
    free(run->epochs);
    free(run->scales);
    free(run->stored);
    nonfinite_clear(&run->first);
    free(run->failure);
    *run = (struct run){0};
}

/* The stopped run of a format with the most steps; of equal ones the first. */
static struct run *longest_stopped(struct experiment *x, int series) {
    struct run *longest = NULL;
    for (int i = series; i < x->run_count; i += x->series_count)
        if (x->runs[i].stopped && (!longest || x->runs[i].result.steps > longest->result.steps))
            longest = &x->runs[i];
    return longest;
}

/* A stopped run is shown only if no run of its format was finished, and then only one: it does not enter means. */
void experiment_choose_shown(struct experiment *x) {
    for (int series = 0; series < x->series_count; series++) {
        bool any = false;
        for (int i = series; i < x->run_count; i += x->series_count) {
            x->runs[i].shown = x->runs[i].finished;
            any = any || x->runs[i].finished;
        }
        struct run *stopped = any ? NULL : longest_stopped(x, series);
        if (stopped)
            stopped->shown = true;
    }
}

bool experiment_began(const struct experiment *x) {
    for (int i = 0; i < x->run_count; i++)
        if (x->runs[i].began)
            return true;
    return false;
}

bool experiment_anything_trained(const struct experiment *x) {
    for (int i = 0; i < x->run_count; i++)
        if (x->runs[i].finished || x->runs[i].stopped || x->runs[i].window_count)
            return true;
    return false;
}

bool experiment_any_over(const struct experiment *x) {
    for (int i = 0; i < x->run_count; i++)
        if (x->runs[i].finished || x->runs[i].stopped)
            return true;
    return false;
}

int experiment_failed(const struct experiment *x) {
    int failed = 0;
    for (int i = 0; i < x->run_count; i++)
        failed += x->runs[i].failure != NULL;
    return failed;
}

int experiment_finished(const struct experiment *x) {
    int finished = 0;
    for (int i = 0; i < x->run_count; i++)
        finished += x->runs[i].finished;
    return finished;
}

int experiment_planned(const struct experiment *x) {
    int planned = 0;
    for (int i = 0; i < x->run_count; i++)
        planned += x->runs[i].planned;
    return planned;
}

char *experiment_trace_name(const struct experiment *x, const struct run *run) {
    return folder_trace_name(x->series[run->series].label, (unsigned long long)run->seed);
}

char *experiment_telemetry_name(const struct experiment *x, const struct run *run, const char *ending) {
    return folder_telemetry_name(x->series[run->series].label, (unsigned long long)run->seed, ending);
}

char *experiment_trace_path(const struct experiment *x, const struct run *run) {
    const char *folder = x->origins[run->origin].folder;
    char *name = experiment_trace_name(x, run), *path = text_format("%s/%s", folder ? folder : x->folder, name);
    free(name);
    return path;
}

void experiment_clear(struct experiment *x) {
    for (int i = 0; i < x->run_count; i++)
        run_clear(&x->runs[i]);
    for (int i = 0; i < x->origin_count; i++)
        origin_clear(&x->origins[i]);
    free(x->resume);
    free(x->policies);
    free(x->kept);
    free(x->origins);
    free(x->seeds);
    free(x->runs);
    series_free(x->series, x->series_count);
    data_free(x->train);
    data_free(x->test);
    *x = (struct experiment){0};
}

/* --- divergence --------------------------------------------------------------------------------------------------- */

static const double divergence_factor = 1.5;

void run_scaled(struct run *run, int64_t step, double scale) {
    if (run->scale_count == run->scale_room) {
        run->scale_room = run->scale_room ? 2 * run->scale_room : 16;
        run->scales = text_realloc(run->scales, (size_t)run->scale_room, sizeof *run->scales);
    }
    run->scales[run->scale_count++] = (struct scale_change){step, scale};
}

void run_observe(struct run *run, const nn_step_report *report) {
    if (report->step == 1)
        run->first_loss = report->loss;
    if (!run->nonfinite_step && !isfinite(report->loss)) {
        run->nonfinite_step = report->step;
        run->nonfinite_loss = report->loss;
    }
}

static bool test_is_nonfinite(const struct run *run) {
    return run->result.predicted_count > 0 && !isfinite(run->result.test_loss);
}

bool run_diverged(const struct experiment *x, const struct run *run) {
    return (run->finished || run->stopped) &&
           (run->nonfinite_step || test_is_nonfinite(run) || run->result.skipped_at_end >= NN_STARVED ||
            !isfinite(run->result.last_loss) ||
            run->result.last_loss > divergence_factor * fmax(run->first_loss, log(x->data.classes)));
}

int experiment_diverged(const struct experiment *x) {
    int diverged = 0;
    for (int i = 0; i < x->run_count; i++)
        diverged += run_diverged(x, &x->runs[i]);
    return diverged;
}

/* On a device, later steps may have begun; a run that is resumed after its first NaN or Inf does not stop again. */
bool run_stopped_itself(const struct run *run) {
    return run->stopped && run->stops;
}

int experiment_stopped_themselves(const struct experiment *x) {
    int stopped = 0;
    for (int i = 0; i < x->run_count; i++)
        stopped += run_stopped_itself(&x->runs[i]);
    return stopped;
}

char *run_divergence_text(const struct experiment *x, const struct run *run) {
    const bool starved = run->result.skipped_at_end >= NN_STARVED;
    bool late = !run->nonfinite_step && !test_is_nonfinite(run);
    char *loss = number_text(run->nonfinite_step ? run->nonfinite_loss
                             : late              ? run->result.last_loss
                                                 : run->result.test_loss,
                             2),
         *first = number_text(run->first_loss, 2), *chance = number_text(log(x->data.classes), 2), *text;
    if (run->nonfinite_step)
        text = text_format("loss %s from step %lld", loss, (long long)run->nonfinite_step);
    else if (starved)
        text = text_format("its last %lld steps made no update, because their gradients %s down to loss scale %g",
                           (long long)run->result.skipped_at_end,
                           nonfinite_is_forward(run->first.pass) ? "were not finite" : "overflowed",
                           run->result.loss_scale);
    else if (late)
        text = text_format("loss %s at the end, %s at the start, %s by guessing", loss, first, chance);
    else
        text = text_format("test loss %s", loss);
    free(loss);
    free(first);
    free(chance);
    return text;
}
