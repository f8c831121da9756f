/* turns.c - the runs of one seed. Formats are trained in alternating slices of about half a second, so that the load
 * and the clock of the machine affect all of them alike; bits do not depend on the slices. Lines of metrics.jsonl are
 * nevertheless those of one run after the other: a run that is not first in that order holds its lines back. */
#include "runs/turns.h"
#include "runs/kept.h"
#include "runs/ranks.h"
#include "results/metrics.h"
#include "base/failure.h"
#include "base/signals.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char turns_arguments_key[] = "flexlab.arguments";

static const double slice_seconds = 0.5;
/* Steps of a run that are not timed, because they touch memory and make tables for the first time. At most a tenth. */
enum { WARM_UP = 10, MOST_SLICE = 1000 };
/* All ranks make the same steps before they ask each other for signals and failures. */
enum { SLICE_OF_RANKS = 8 };

/* A run in progress: the data that its callbacks share. */
struct running {
    struct experiment *experiment;
    struct run *run;
    struct output_lines *metrics; /* the file, or the lines held back */
    struct output_lines held;
    struct progress *progress;
    struct folder *folder;
    struct kept kept;
    nn_note note;               /* the options, in checkpoints */
    char *checkpoint, *resume;  /* a folder, and the file to resume from; NULL: none */
    char *trace, *telemetry[2]; /* jsonl, csv */
    nn_trainer *trainer;        /* NULL: not begun, or over */
    bool begun;                 /* there has been a trainer */
    bool over;                  /* nothing remains to be done */
    bool unreported;            /* it failed before its first step, which is still to be reported */
    int status;                 /* the status of writing metrics */
    double last_scale;          /* 0 before the first step */
    double seconds, turn;       /* time of the last report; time at which this slice of steps began */
    int64_t steps, slice;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- how long steps take ------------------------------------------------------------------------------------------ */

static bool is_host(const struct running *r) {
    return !strcmp(r->experiment->series[r->run->series].device, "cpu");
}

static int64_t warm_up(const struct experiment *x) {
    return x->steps / 10 < WARM_UP ? x->steps / 10 : WARM_UP;
}

/* On the host, times every step by itself. */
static void time_step(struct running *r, const nn_step_report *report) {
    const double seconds = report->seconds - r->seconds;
    const bool next = report->step == r->steps + 1;
    r->steps = report->step;
    r->seconds = report->seconds;
    if (is_host(r) && next && report->step > warm_up(r->experiment))
        kept_time(&r->kept, seconds);
}

/* On a device, whose steps overlap, records the mean of a slice, at whose end all its steps are complete. */
static void time_slice(struct running *r, int64_t first, double from) {
    const int64_t steps = r->steps - first;
    const bool continues = first > 0 || !r->resume; /* else the seconds include those before the checkpoint */
    if (!is_host(r) && steps > 0 && continues && first >= warm_up(r->experiment))
        kept_time(&r->kept, (r->seconds - from) / (double)steps);
    if (steps > 0) {
        const double each = (r->seconds - from) / (double)steps;
        const double next = ranks_group() ? SLICE_OF_RANKS : each > 0 ? slice_seconds / each : MOST_SLICE;
        r->slice = next < 1 ? 1 : next > MOST_SLICE ? MOST_SLICE : (int64_t)next;
    }
}

static int by_size(const void *a, const void *b) {
    const double one = *(const double *)a, two = *(const double *)b;
    return one < two ? -1 : one > two;
}

/* The quantile of sorted numbers at this share, interpolated linearly. */
static double quantile(const double *sorted, int64_t count, double share) {
    const double place = share * (double)(count - 1);
    const int64_t below = (int64_t)place, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

static void sum_up_times(struct running *r) {
    struct kept *k = &r->kept;
    struct timing *t = &r->run->timing;
    *t = (struct timing){NAN, NAN, NAN, k->time_count, k->wall};
    if (!k->time_count)
        return;
    qsort(k->times, (size_t)k->time_count, sizeof *k->times, by_size);
    t->low = quantile(k->times, k->time_count, 0.1);
    t->median = quantile(k->times, k->time_count, 0.5);
    t->high = quantile(k->times, k->time_count, 0.9);
}

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

static void see_scale(struct running *r, const nn_step_report *report) {
    if (!strcmp(r->experiment->series[r->run->series].loss_scale, "none") || report->loss_scale == r->last_scale)
        return;
    r->last_scale = report->loss_scale;
    run_scaled(r->run, report->step, report->loss_scale);
    r->status = r->status ? r->status
                          : metrics_scale(r->metrics, r->experiment, r->run, &r->run->scales[r->run->scale_count - 1]);
}

static int on_step(void *context, const nn_step_report *report) {
    struct running *r = context;
    struct run *run = r->run;
    progress_step(r->progress, report);
    run_observe(run, report);
    time_step(r, report);
    struct kept *k = &r->kept;
    run->began = true;
    see_scale(r, report);
    if (r->experiment->settings->step_loss) {
        r->status = r->status ? r->status : metrics_step(r->metrics, r->experiment, run, report);
        kept_step(k, report->loss, report->rate);
    }
    kept_loss(k, report->loss);
    if (k->window_count == r->experiment->window || report->step == report->steps) {
        struct window *window = &run->windows[run->window_count++];
        *window = kept_window(k, report->step, report->rate);
        r->status = r->status ? r->status : metrics_window(r->metrics, r->experiment, run, window);
    }
    return signals_received() || (r->status && !ranks_group());
}

/* Reports a checkpoint that was changed by hand. */
static int tell_other_steps(const struct running *r, const char *what, int64_t kept, int64_t stands_at) {
    progress_clear(r->progress);
    return text_failed("--resume: %s: its state of the program has %lld %s, the network has %lld", r->resume,
                       (long long)kept, what, (long long)stands_at);
}

static int on_epoch(void *context, const nn_epoch_report *report) {
    struct running *r = context;
    struct run *run = r->run;
    progress_epoch(r->progress, report);
    if (report->epoch != run->epoch_count + 1) /* run->epochs has no entry for another one */
        r->status = tell_other_steps(r, "epochs", run->epoch_count, report->epoch - 1);
    else
        run->epochs[run->epoch_count++] = *report;
    r->status = r->status ? r->status : metrics_epoch(r->metrics, r->experiment, run, report);
    return signals_received() || (r->status && !ranks_group());
}

static void on_starved(void *context, const nn_step_report *report) {
    struct running *r = context;
    const bool forward = nonfinite_is_forward(report->nonfinite);
    progress_clear(r->progress);
    text_note("%s seed %llu: WARNING: %lld consecutive steps made no update, up to step %lld: %s at loss scale %g and "
              "above%s",
              r->experiment->series[r->run->series].label, (unsigned long long)r->run->seed,
              (long long)report->skipped_in_a_row, (long long)report->step,
              forward ? "the gradients are not finite" : "the gradients overflow", report->loss_scale,
              forward ? ", because of a NaN or Inf before them, against which no loss scale helps" : "");
}

/* Prints a message, with the writes that led to it if there is telemetry. */
static void on_nonfinite(void *context, const nn_nonfinite *first) {
    struct running *r = context;
    struct run *run = r->run;
    struct nonfinite known = nonfinite_of(first);
    run->stops = r->experiment->settings->stop_on_nonfinite;
    char *what = nonfinite_sentence(&known, r->experiment->settings);
    progress_clear(r->progress);
    text_note("%s seed %llu, step %lld: the first NaN or Inf, %s", r->experiment->series[run->series].label,
              (unsigned long long)run->seed, (long long)first->step, what);
    free(what);
    nonfinite_clear(&known);
    for (int64_t i = 0; i < first->before_count; i++) {
        const nn_seen_write *w = &first->before[i];
        fprintf(stderr, "  %s step %lld %-28s %-15s largest %-11.4g saturated %lld flushed %lld\n",
                i ? "      " : "before", (long long)w->step, w->tensor, w->role, w->maximum, (long long)w->saturated,
                (long long)w->flushed);
    }
}

/* Adds the time since the last call to that of the run. */
static void take_time(struct running *r) {
    const double time = now();
    r->kept.wall += time - r->turn;
    r->turn = time;
}

static const void *on_keep(void *context, size_t *bytes) {
    struct running *r = context;
    take_time(r);
    return kept_bytes(&r->kept, r->run, bytes);
}

/* The library continues without it, and takes the best of the evaluations to come. */
static void tell_no_best(const struct running *r) {
    const char *from = r->resume, *slash = strrchr(from, '/');
    char *beside = text_format("%.*sbest.safetensors", slash ? (int)(slash - from) + 1 : 0, from),
         *here = text_format("%s/best.safetensors", r->checkpoint);
    if (access(beside, F_OK) && access(here, F_OK)) {
        progress_clear(r->progress);
        text_note("there is no %s: best.safetensors will be the best of the coming evaluations only", beside);
    }
    free(beside);
    free(here);
}

static int on_resume(void *context, const void *bytes, size_t count) {
    struct running *r = context;
    struct run *run = r->run;
    const bool refused = !kept_take(&r->kept, r->experiment, run, bytes, count);
    if (refused)
        return refused;
    if (run->scale_count)
        r->last_scale = run->scales[run->scale_count - 1].scale;
    if (run->epoch_count && r->experiment->networks)
        tell_no_best(r);
    run->began = true;
    progress_resumed(r->progress, r->kept.resumed);
    r->status = kept_write(&r->kept, r->experiment, run, r->metrics); /* a failure ends the training at its next step */
    return 0;
}

/* --- one run ------------------------------------------------------------------------------------------------------ */

/* Allocates all windows and epochs before the first step, so that none is lost for lack of memory. */
static void make_room(const struct experiment *x, struct run *run) {
    run->windows = text_alloc((size_t)(x->steps / x->window + 1), sizeof *run->windows);
    run->epochs = text_alloc((size_t)((x->steps - 1) / x->steps_per_epoch + 1), sizeof *run->epochs);
}

/* An error of the format, its optimiser or its device would recur at the next attempt and does not affect the other
 * runs, which continue. Memory and files are common to all, and the comparison can be resumed from its checkpoints. */
static bool is_its_own(tensor_status status) {
    return status == TENSOR_E_ARGUMENT || status == TENSOR_E_SHAPE || status == TENSOR_E_FORMAT ||
           status == TENSOR_E_UNSUPPORTED || (status == TENSOR_E_DEVICE && !ranks_group());
}

static void tell_run(struct running *r, const char *why) {
    progress_clear(r->progress);
    text_failed("%s seed %llu: %s", r->experiment->series[r->run->series].label, (unsigned long long)r->run->seed, why);
    r->unreported = false;
}

/* unreported: tell_beginnings reports the reason, unless all runs end with this one. */
static int fail(struct running *r, tensor_status failed, bool unreported) {
    const bool own = is_its_own(failed) && !r->status;
    if (!own && ranks_group())
        ranks_lose(failed == TENSOR_E_DEVICE);
    char *why = failure_text(r->experiment->settings->memory);
    r->over = true;
    r->unreported = own && unreported;
    if (!r->unreported)
        tell_run(r, why);
    if (!own) {
        free(why);
        return STATUS_FAILED;
    }
    r->run->failure = why;
    return metrics_failure(r->metrics, r->experiment, r->run);
}

/* Reports the runs that failed before their first step. If nothing has begun and every format failed, the other seeds
 * would fail too: the comparison ends. A reason that is the same for every format is reported once. */
static int tell_beginnings(struct running *all, int count) {
    bool none = !experiment_began(all->experiment), same = count > 1;
    for (int i = 0; i < count && none; i++) {
        none = all[i].unreported;
        same = same && none && !strcmp(all[i].run->failure, all->run->failure);
    }
    if (none && same) {
        progress_clear(all->progress);
        text_failed("%s", all->run->failure);
    }
    for (int i = 0; i < count; i++) {
        if (all[i].unreported && !(none && same))
            tell_run(&all[i], all[i].run->failure);
        if (!none)
            continue;
        free(all[i].run->failure);
        all[i].run->failure = NULL;
    }
    return none ? STATUS_FAILED : STATUS_OK;
}

/* Names the checkpoints of a run and the one from which it resumes. */
static int name_checkpoints(struct running *r) {
    const struct experiment *x = r->experiment;
    if (x->networks) {
        r->checkpoint = x->kept ? text_format("%s", r->folder->resume) : NULL;
        r->resume = x->resume ? text_format("%s", x->resume) : NULL;
        return STATUS_OK;
    }
    if (!x->kept)
        return STATUS_OK;
    r->checkpoint = folder_make_run(r->folder, x->series[r->run->series].label, (unsigned long long)r->run->seed);
    if (!r->checkpoint)
        return STATUS_FAILED;
    r->resume = x->again ? folder_checkpoint_in(r->checkpoint) : NULL;
    return STATUS_OK;
}

static char *trace_of(const struct experiment *x, const struct run *run) {
    if (!x->series[run->series].shared || !x->trace_every)
        return NULL;
    char *name = experiment_trace_name(x, run), *path = text_format("%s/%s", x->folder, name);
    free(name);
    return path;
}

static void name_telemetry(struct running *r) {
    const struct experiment *x = r->experiment;
    for (int i = 0; i < 2 && x->settings->telemetry_every && !r->telemetry[i]; i++) {
        char *name = experiment_telemetry_name(x, r->run, i ? "csv" : "jsonl");
        r->telemetry[i] = text_format("%s/%s", x->folder, name);
        free(name);
    }
}

/* Shows this run in the progress line and its estimates. */
static void show(struct running *r) {
    const struct experiment *x = r->experiment;
    progress_run(r->progress, (int)(r->run - x->runs) + 1, x->series[r->run->series].label, r->run->seed, r->kept.wall);
}

/* *later: there is no memory for it beside the runs in progress; it begins when one of them is over. */
static int begin_run(struct running *r, bool others, bool *later) {
    struct experiment *x = r->experiment;
    const struct settings *s = x->settings;
    nn_config network = series_network(s, &x->series[r->run->series]);
    network.seed = r->run->seed;
    network.group = ranks_group();
    if (!r->trace)
        r->trace = trace_of(x, r->run);
    name_telemetry(r);
    if (!r->checkpoint && name_checkpoints(r))
        return STATUS_FAILED;
    if (!r->run->windows)
        make_room(x, r->run);
    const nn_train_config config = {.network = network,
                                    .model = s->model,
                                    .epochs = (int)s->epochs,
                                    .rate = x->rate,
                                    .schedule = s->schedule,
                                    .warmup_epochs = s->warmup,
                                    .augment = x->augment,
                                    .max_steps = s->max_steps,
                                    .average_last = (int)s->average_last,
                                    .context = x->data.context,
                                    .trace_path = r->trace,
                                    .trace_every = x->trace_every,
                                    .checkpoint = r->checkpoint,
                                    .checkpoint_every = s->checkpoint_every,
                                    .resume = r->resume,
                                    .resume_alone = !x->networks,
                                    .weights = s->weights,
                                    .notes = &r->note,
                                    .note_count = x->kept && x->networks ? 1 : 0,
                                    .telemetry_every = s->telemetry_every,
                                    .telemetry_path = r->telemetry[0],
                                    .telemetry_csv = r->telemetry[1],
                                    .telemetry_pattern = s->telemetry_pattern,
                                    .telemetry_shadows = s->shadow,
                                    .stop_on_nonfinite = s->stop_on_nonfinite,
                                    .most_of_steps = s->memory << 30};
    const nn_train_events events = {.step = on_step,
                                    .epoch = on_epoch,
                                    .context = r,
                                    .keep = on_keep,
                                    .resume = on_resume,
                                    .nonfinite = on_nonfinite,
                                    .starved = on_starved};
    show(r);
    r->turn = now();
    r->trainer = nn_trainer_new(&config, x->train, x->test, &events);
    const tensor_status failed = r->trainer ? TENSOR_OK : tensor_error_status();
    take_time(r);
    *later = others && failed == TENSOR_E_MEMORY;
    r->begun = r->trainer != NULL;
    r->slice = 2;
    const int64_t stands_at = r->trainer ? (int64_t)nn_steps(nn_trainer_network(r->trainer)) : 0;
    if (r->kept.resumed && r->trainer && stands_at != r->kept.resumed) {
        nn_trainer_free(r->trainer);
        r->trainer = NULL;
        r->over = true;
        return tell_other_steps(r, "steps", r->kept.resumed, stands_at);
    }
    return r->trainer || *later ? STATUS_OK : fail(r, failed, true);
}

/* Handles a training that was stopped: by a signal, because metrics.jsonl cannot be written, or because another run
 * failed. */
static int keep_stopped(struct running *r) {
    struct experiment *x = r->experiment;
    struct run *run = r->run;
    progress_clear(r->progress);
    run->stopped = true;
    if (r->status)
        return r->status;
    const char *label = x->series[run->series].label;
    if (signals_received())
        text_note("stopped by %s during %s seed %llu, after step %lld of %lld", signals_name(signals_received()), label,
                  (unsigned long long)run->seed, (long long)run->result.steps, (long long)x->steps);
    else if (run_stopped_itself(run))
        text_note("%s seed %llu is stopped by its first NaN or Inf (--stop-on-nonfinite), after step %lld of %lld",
                  label, (unsigned long long)run->seed, (long long)run->result.steps, (long long)x->steps);
    else
        text_note("%s seed %llu is stopped too, after step %lld of %lld", label, (unsigned long long)run->seed,
                  (long long)run->result.steps, (long long)x->steps);
    return metrics_run(r->metrics, x, run);
}

/* Ends a run, whether it was trained to its end or not. */
static int finish_run(struct running *r) {
    struct experiment *x = r->experiment;
    struct run *run = r->run;
    r->turn = now();
    const tensor_status failed = nn_trainer_finish(&run->result, r->trainer);
    nonfinite_clear(&run->first);
    run->first = nonfinite_of(nn_trainer_nonfinite(r->trainer));
    nn_trainer_free(r->trainer);
    r->trainer = NULL;
    r->over = true;
    take_time(r);
    sum_up_times(r);
    show(r);
    if (failed)
        return fail(r, failed, false);
    if (ranks_writes())
        folder_rescue(r->folder); /* before its lines are written, which takes memory */
    if (run->result.stopped)
        return keep_stopped(r);
    run->finished = true;
    progress_run_done(r->progress, x, run);
    if (x->kept && x->networks && folder_take_networks(r->folder))
        r->status = STATUS_FAILED;
    return r->status ? r->status : metrics_run(r->metrics, x, run);
}

static void take_exchange(struct running *r, const nn_group_statistics *before, const nn_group_statistics *after,
                          int64_t steps, double seconds) {
    struct exchange *e = &r->run->exchange;
    e->ranks = nn_group_size(ranks_group());
    e->engine = r->experiment->settings->group;
    e->sent += after->sent - before->sent;
    e->waited += after->waited - before->waited;
    e->overlapped += after->overlapped - before->overlapped;
    e->steps += steps;
    e->seconds += seconds;
}

/* Asks the other ranks for signals and failures. */
static int agree(const struct running *r) {
    char *when = text_format("%s seed %llu, after step %lld", r->experiment->series[r->run->series].label,
                             (unsigned long long)r->run->seed, (long long)r->steps);
    const int status = ranks_agree(r->status, when);
    free(when);
    return status;
}

static int take_turn(struct running *r) {
    const double seconds = r->seconds;
    const int64_t first = r->steps;
    bool over = false;
    show(r);
    r->turn = now();
    const double turn_began = now();
    nn_group_statistics before = {0}, after = {0};
    if (ranks_group())
        (void)nn_group_statistics_of(&before, ranks_group());
    const tensor_status failed = nn_trainer_advance(&over, r->trainer, r->slice);
    if (ranks_group()) {
        (void)nn_group_statistics_of(&after, ranks_group());
        take_exchange(r, &before, &after, r->steps - first, now() - turn_began);
    }
    if (failed) {
        nn_trainer_free(r->trainer);
        r->trainer = NULL;
        return fail(r, failed, false);
    }
    take_time(r);
    time_slice(r, first, seconds);
    if ((r->status = agree(r)))
        return r->status;
    return over ? finish_run(r) : STATUS_OK;
}

/* --- all runs of a seed ------------------------------------------------------------------------------------------- */

static bool others_run(const struct running *all, int count, const struct running *except) {
    for (int i = 0; i < count; i++)
        if (&all[i] != except && all[i].trainer)
            return true;
    return false;
}

/* Begins the runs that have not begun, as far as there is memory; the first of them is always tried. */
static int begin_each(struct running *all, int count) {
    for (int i = 0; i < count; i++) {
        bool later = false;
        if (all[i].begun || all[i].over)
            continue;
        if (all[i].experiment->settings->one_by_one && others_run(all, count, &all[i]))
            return STATUS_OK;
        const int status = begin_run(&all[i], others_run(all, count, &all[i]), &later);
        if (status || later)
            return status;
    }
    return STATUS_OK;
}

static int begin_runs(struct running *all, int count) {
    const int status = begin_each(all, count), reported = tell_beginnings(all, count);
    return status ? status : reported;
}

/* Writes the lines of the runs up to the first that is not over. */
static int release_lines(struct running *all, int count, struct output_lines *metrics) {
    for (int i = 0; i < count; i++) {
        if (all[i].metrics != metrics) {
            all[i].metrics = metrics;
            const int status = output_lines_release(&all[i].held, metrics);
            if (status)
                return status;
        }
        if (!all[i].over)
            return STATUS_OK;
    }
    return STATUS_OK;
}

static int train_all(struct running *all, int count, struct output_lines *metrics) {
    int status = begin_runs(all, count), left = count;
    while (status == STATUS_OK && left && !signals_received()) {
        left = 0;
        for (int i = 0; i < count && status == STATUS_OK && !signals_received(); i++) {
            if (all[i].trainer)
                status = take_turn(&all[i]);
            if (status == STATUS_OK && all[i].over)
                status = release_lines(all, count, metrics);
            if (status == STATUS_OK && all[i].over)
                status = begin_runs(all, count);
            left += !all[i].over;
        }
    }
    return status;
}

/* After a signal or a failure: stores the results so far of each run that has begun. */
static int stop_all(struct running *all, int count, struct output_lines *metrics, int status) {
    for (int i = 0; i < count; i++) {
        struct running *r = &all[i];
        if (r->trainer && r->run->began && ranks_are_together()) {
            const int stopped = finish_run(r);
            status = status ? status : stopped;
        }
        nn_trainer_free(r->trainer);
        r->trainer = NULL;
        r->over = true;
    }
    const int released = release_lines(all, count, metrics);
    return status ? status : released;
}

int turns_train(struct experiment *x, int seed, struct folder *folder, struct output_lines *metrics,
                struct progress *progress) {
    const int count = x->series_count;
    struct running *all = text_alloc((size_t)count, sizeof *all);
    for (int i = 0; i < count; i++) {
        struct running *r = &all[i];
        *r = (struct running){.experiment = x,
                              .run = experiment_run(x, seed, i),
                              .metrics = i ? &r->held : metrics,
                              .note = {turns_arguments_key, x->kept},
                              .progress = progress,
                              .folder = folder};
        output_lines_hold(&r->held);
    }
    int status = train_all(all, count, metrics);
    status = stop_all(all, count, metrics, status);
    if (experiment_anything_trained(x) && ranks_writes())
        folder_rescue(folder);
    for (int i = 0; i < count; i++) {
        kept_clear(&all[i].kept);
        output_lines_discard(&all[i].held);
        free(all[i].checkpoint);
        free(all[i].resume);
        free(all[i].trace);
        free(all[i].telemetry[0]);
        free(all[i].telemetry[1]);
    }
    free(all);
    return status;
}
