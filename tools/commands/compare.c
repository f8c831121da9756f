/* compare.c - the commands `compare` and `train`: every format with every seed (turns.c), then table and files. */
#include "commands/commands.h"
#include "commands/going_on.h"
#include "results/experiment.h"
#include "base/failure.h"
#include "figures/figure.h"
#include "results/folder.h"
#include "results/metrics.h"
#include "runs/policy.h"
#include "runs/progress.h"
#include "runs/telemetry.h"
#include "report/report.h"
#include "base/signals.h"
#include "base/text.h"
#include "runs/ranks.h"
#include "runs/turns.h"
#include "runs/weights.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_WINDOW = 50, LEAST_WINDOWS = 40, TRACE_ROWS = 500 };

/* --- before the runs ---------------------------------------------------------------------------------------------- */

/* A resumed training has its data from the stored options, in which a path may be relative. */
static const char *seen_from(const struct settings *s) {
    const char *path = strchr(s->data, ':');
    return s->resume && !s->data_anew && path && path[1] != '/' && tensor_error_status() == TENSOR_E_IO
               ? "; the path is relative to the folder in which the training began: resume it there"
               : "";
}

static int open_splits(struct experiment *x) {
    const struct settings *s = x->settings;
    failure_forget();
    if (!data_open_splits(&x->train, &x->test, s->data))
        return STATUS_OK;
    char *kind = text_format("%.*s", (int)strcspn(s->data, ":"), s->data);
    int status = failure_is_usage() ? text_usage("--data '%s': %s%s", s->data, tensor_error(),
                                                 text_did_you_mean(kind, options_data_kind))
                                    : text_failed("--data '%s': %s%s", s->data, tensor_error(), seen_from(s));
    free(kind);
    return status;
}

static int check_split(const struct settings *s, data_split split, int64_t limit, data_set *set) {
    if (data_is_text(set) != nn_model_reads_text(s->model))
        return text_usage("--data '%s': %s, but the model %s reads %s", s->data,
                          data_is_text(set) ? "a text" : "images", s->model,
                          data_is_text(set) ? "images; --model gpt reads texts" : "texts (text:FILE)");
    if (s->context && !data_is_text(set))
        return text_usage("--context %lld: only for texts", (long long)s->context);
    if (limit > data_count(set))
        return text_usage("--%s-limit %lld: the set has %lld %s", split == DATA_TRAIN ? "train" : "test",
                          (long long)limit, (long long)data_count(set), data_is_text(set) ? "tokens" : "images");
    if (limit && data_limit(set, limit))
        return text_failed("%s", tensor_error());
    return STATUS_OK;
}

enum { DEFAULT_CONTEXT = 128 };

static bool is_augmented(const struct settings *s) {
    const bool usual =
        !strncmp(s->data, "cifar10:", 8) || !strncmp(s->data, "cifar100:", 9) || !strncmp(s->data, "text:", 5);
    return s->augment == SWITCH_UNSET ? usual : s->augment;
}

/* The number of sequences in an epoch, as a loader counts them at any offset. */
static int64_t window_count(const struct experiment *x) {
    const int64_t left = data_count(x->train) - (x->augment ? x->data.context : 1);
    return left < 0 ? 0 : left / x->data.context;
}

static int check_windows(struct experiment *x) {
    const struct settings *s = x->settings;
    x->data.context = s->context ? (int)s->context : DEFAULT_CONTEXT;
    x->augment = is_augmented(s);
    if (window_count(x) < s->batch)
        return text_usage("--batch %lld: %lld tokens of training are %lld sequences of --context %d",
                          (long long)s->batch, (long long)data_count(x->train), (long long)window_count(x),
                          x->data.context);
    return data_count(x->test) > x->data.context
               ? STATUS_OK
               : text_usage("--context %d: the test text has %lld tokens, expected more", x->data.context,
                            (long long)data_count(x->test));
}

static int open_data(struct experiment *x) {
    const struct settings *s = x->settings;
    int status = open_splits(x);
    if (status == STATUS_OK)
        status = check_split(s, DATA_TRAIN, s->train_limit, x->train);
    if (status == STATUS_OK)
        status = check_split(s, DATA_TEST, s->test_limit, x->test);
    if (status != STATUS_OK)
        return status;
    if (data_is_text(x->train))
        return check_windows(x);
    return data_count(x->train) >= s->batch ? STATUS_OK
                                            : text_usage("--batch %lld: the training set has %lld images",
                                                         (long long)s->batch, (long long)data_count(x->train));
}

static void plan_runs(struct experiment *x) {
    const struct settings *s = x->settings;
    x->data = (struct dimensions){data_count(x->train), data_count(x->test),     data_height(x->train),
                                  data_width(x->train), data_channels(x->train), data_classes(x->train),
                                  x->data.context};
    x->rate = s->rate > 0 ? s->rate : options_rate(s);
    x->augment = is_augmented(s);
    x->steps_per_epoch = (x->data.context ? window_count(x) : data_count(x->train)) / s->batch;
    x->steps = x->steps_per_epoch * s->epochs;
    if (s->max_steps && s->max_steps < x->steps)
        x->steps = s->max_steps;
    int64_t window = x->steps / LEAST_WINDOWS;
    x->window = window > LONGEST_WINDOW ? LONGEST_WINDOW : window > 1 ? (int)window : 1;
    if (!s->no_trace)
        x->trace_every = s->trace_every ? (int)s->trace_every : (int)((x->steps + TRACE_ROWS - 1) / TRACE_ROWS);
    x->seed_count = (int)s->seeds;
    x->seeds = text_alloc((size_t)x->seed_count, sizeof *x->seeds);
    for (int i = 0; i < x->seed_count; i++)
        x->seeds[i] = (uint64_t)(s->seed_base + i);
    experiment_make_runs(x);
}

/* Passed to folder_open: names the traces and telemetry of all runs to come. */
static const char *planned_trace(void *context, int i) {
    static char *name;
    const struct experiment *x = context;
    free(name);
    name = NULL;
    for (int r = 0; r < x->run_count && !name; r++)
        if (x->trace_every && x->series[x->runs[r].series].shared && i-- == 0)
            name = experiment_trace_name(x, &x->runs[r]);
    for (int r = 0; r < 2 * x->run_count && !name && x->settings->telemetry_every; r++)
        if (i-- == 0)
            name = experiment_telemetry_name(x, &x->runs[r / 2], r % 2 ? "csv" : "jsonl");
    return name;
}

/* NCCL's ranks are GPUs. */
static int check_group(const struct experiment *x) {
    for (int i = 0; i < x->series_count && !strcmp(x->settings->group, "nccl"); i++)
        if (!strcmp(x->series[i].device, "cpu"))
            return text_usage("--group nccl: %s trains on cpu, expected --device cuda, or --group mpi",
                              x->series[i].label);
    return STATUS_OK;
}

static int prepare(struct experiment *x) {
    const struct settings *s = x->settings;
    int status = options_check_model(s->model);
    if (status == STATUS_OK && !tensor_kernel_backend(tensor_format_at(0), "add"))
        status = text_usage("%s", tensor_error());
    if (status == STATUS_OK)
        status = series_read(s, &x->series, &x->series_count);
    if (status == STATUS_OK)
        status = going_on_check(x);
    if (status == STATUS_OK)
        status = check_group(x);
    if (status == STATUS_OK && x->command == COMMAND_TRAIN && x->series_count > 1)
        status = text_usage("--format '%s': expected one format; 'flexlab compare' takes a list", s->formats);
    if (status == STATUS_OK && s->threads && tensor_set_threads((int)s->threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK && x->series_count > MOST_RUNS / s->seeds)
        status = text_usage("--seeds %lld: of %d formats, expected at most %d runs", (long long)s->seeds,
                            x->series_count, MOST_RUNS);
    if (status == STATUS_OK)
        status = open_data(x);
    if (status == STATUS_OK)
        plan_runs(x);
    if (status == STATUS_OK)
        status = policy_resolve(x);
    if (status == STATUS_OK && s->weights && !s->resume) /* otherwise the checkpoints have them */
        status = weights_check(x);
    if (status == STATUS_OK && s->telemetry_pattern)
        status = telemetry_check(x);
    return status;
}

/* --- after the runs ----------------------------------------------------------------------------------------------- */

static int worse(int a, int b) {
    return a > b ? a : b;
}

/* Sets *drawn to a description of the figures. */
static int write_results(const struct experiment *x, const char **drawn) {
    struct figures figures;
    int status = summary_write_csv(x);
    status = worse(status, figures_draw(x, x->settings->figures, &figures));
    status = worse(status, report_write(x, &figures));
    *drawn = figures_named(&figures);
    figures_clear(&figures);
    return status;
}

/* "the run diverged", "2 of 3 runs diverged" */
static int tell_runs(const struct experiment *x, int count, const char *what) {
    return x->run_count == 1 ? text_failed("the run %s", what)
                             : text_failed("%d of %d runs %s", count, x->run_count, what);
}

static int judge_divergence(const struct experiment *x) {
    int diverged = experiment_diverged(x);
    return diverged && !x->settings->allow_divergence
               ? tell_runs(x, diverged, "diverged; with --allow-divergence that is not a failure")
               : STATUS_OK;
}

static int judge_nonfinite(const struct experiment *x) {
    const int stopped = experiment_stopped_themselves(x);
    return stopped ? tell_runs(x, stopped,
                               x->run_count == 1 ? "stopped after its first NaN or Inf (--stop-on-nonfinite)"
                                                 : "stopped after their first NaN or Inf (--stop-on-nonfinite)")
                   : STATUS_OK;
}

static int judge_failures(const struct experiment *x) {
    const int failed = experiment_failed(x);
    return !failed             ? STATUS_OK
           : x->run_count == 1 ? STATUS_FAILED /* its message is printed already */
                               : tell_runs(x, failed, "failed");
}

static bool has_traces(const struct experiment *x, const char *place) {
    bool any = false;
    for (int i = 0; i < x->run_count && !any && x->trace_every; i++)
        if (x->series[x->runs[i].series].shared) {
            char *name = experiment_trace_name(x, &x->runs[i]), *path = text_format("%s/%s", place, name);
            any = !access(path, F_OK);
            free(name);
            free(path);
        }
    return any;
}

static void add_name(char **list, const char *between, const char *name) {
    char *longer = text_format("%s%s%s", *list, **list && *name ? between : "", name);
    free(*list);
    *list = longer;
}

/* Prints which files the folder has: after a failure some are missing. */
static void print_written(const struct experiment *x, const char *place, const char *drawn) {
    static const char *const names[] = {
        "report.html", "", "summary.csv", "metrics.jsonl", "trace-*.csv", "best.safetensors", "last.safetensors"};
    char *list = text_format("%s", "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = text_format("%s/%s", place, names[i]);
        if (!*names[i])
            add_name(&list, ", ", drawn + strspn(drawn, ", "));
        else if (*names[i] == 't' ? has_traces(x, place) : !access(path, F_OK))
            add_name(&list, ", ", *names[i] == 't' ? "traces" : names[i]);
        free(path);
    }
    char *shown = text_shown(place);
    if (*list)
        printf("\nWritten to %s: %s\n", shown, list);
    free(shown);
    free(list);
}

/* Prints how to resume if there is a checkpoint, even an earlier one. */
static void tell_resume(const struct experiment *x, const struct folder *folder) {
    if (!x->kept || !experiment_began(x) || !folder_has_checkpoint(folder))
        return;
    char *place = text_quoted(folder->path);
    text_note("'flexlab %s --resume %s' resumes it", x->command == COMMAND_TRAIN ? "train" : "compare", place);
    free(place);
}

/* Publishes all existing results, also after a failure: each file is complete or absent. */
static int publish(struct experiment *x, struct folder *folder, struct output_lines *metrics, int status) {
    const char *drawn;
    experiment_choose_shown(x);
    summary_agreement(x);
    status = worse(status, metrics_close(metrics, x));
    if (ranks_writes())
        status = worse(status, write_results(x, &drawn));
    else
        drawn = "";
    summary_print(x);
    bool complete = status == STATUS_OK && !x->stopped;
    int published = folder_publish(folder, complete);
    if (published == STATUS_OK && complete && x->kept)
        published = folder_remove_resume(folder);
    else if (!x->stopped)
        tell_resume(x, folder); /* all is trained, but not all is written */
    if (published == STATUS_OK)
        print_written(x, folder->replaces && !complete ? folder->set_apart : folder->path, drawn);
    return worse(worse(worse(status, published), judge_failures(x)), worse(judge_nonfinite(x), judge_divergence(x)));
}

static int run_all(struct experiment *x, struct folder *folder) {
    struct output_lines metrics;
    struct progress progress;
    signals_catch();
    int status = metrics_open(&metrics, x);
    if (status)
        return status;
    if (!x->settings->quiet)
        policy_print(x);
    progress_begin(&progress, x);
    ranks_train();
    for (int i = 0; i < x->seed_count && status == STATUS_OK && !signals_received(); i++)
        status = turns_train(x, i, folder, &metrics, &progress);
    status = ranks_leave(status);
    x->stopped = experiment_finished(x) < x->run_count;
    if (x->stopped)
        tell_resume(x, folder);
    if (experiment_anything_trained(x))
        status = publish(x, folder, &metrics, status);
    else {
        output_lines_discard(&metrics);
        text_note("no step was trained, so nothing is stored in %s", x->settings->out);
        status = worse(status, judge_failures(x));
    }
    return signals_received() ? 128 + signals_received() : status;
}

/* --- the commands ------------------------------------------------------------------------------------------------- */

/* The options of several runs are stored beside their checkpoints. */
static int make_resume(const struct experiment *x, const struct folder *folder) {
    int status = folder_make_resume(folder, x->again);
    if (status == STATUS_OK && !x->networks) {
        char *options = going_on_options(x);
        status = folder_keep_options(folder, options);
        free(options);
    }
    return status;
}

/* Whether there is nothing to resume: nothing was resumed, and no run has begun or none of several has a checkpoint. */
static bool has_nothing(const struct experiment *x, const struct folder *folder) {
    return !x->again && (!experiment_began(x) || (!x->networks && !folder_has_checkpoint(folder)));
}

/* All ranks make the same runs in the same order; of each run they compare the rest when it begins. */
static int agree_on_runs(const struct experiment *x) {
    const struct settings *s = x->settings;
    char *text = text_format("%s%s group-%s shards-%lld seeds-%lld,%lld formats",
                             x->command == COMMAND_TRAIN ? "train" : "compare", s->one_by_one ? " one-by-one" : "",
                             s->group, (long long)s->shards, (long long)s->seed_base, (long long)s->seeds);
    for (int i = 0; i < x->series_count; i++)
        add_name(&text, " ", x->series[i].label);
    const int status = ranks_compare(text);
    free(text);
    return status;
}

static int run_command(enum command command, int argc, char **argv) {
    struct settings settings;
    failure_watch();
    int status = ranks_agree(options_parse(&settings, command, argc, argv), "before the training");
    if (status == STATUS_OK)
        status = ranks_compare(settings.help ? "--help" : "a training");
    if (status)
        return status;
    if (settings.help) {
        options_help(command, stdout);
        return STATUS_OK;
    }
    if ((status = ranks_move_out(&settings)))
        return status;
    struct experiment x = {.settings = &settings, .command = command};
    char **words = NULL;
    if (settings.resume)
        status = going_on_find(&x, &settings, &words);
    if (status == STATUS_OK)
        status = lock_check(settings.out, "--out "); /* before data is read */
    if (status == STATUS_OK)
        status = prepare(&x);
    status = ranks_agree(status, "before the training");
    if (status == STATUS_OK)
        status = agree_on_runs(&x);
    if (status == STATUS_OK)
        status = ranks_carry(settings.group);
    if (status == STATUS_OK) {
        struct folder folder;
        x.networks = command == COMMAND_TRAIN && x.run_count == 1;
        x.kept = settings.no_checkpoint ? NULL : going_on_kept(command, words, argc, argv);
        x.origins = text_alloc(1, sizeof *x.origins);
        x.origins[x.origin_count++] = origin_here(argv[0], words ? going_on_line(&x) : command_line(argc, argv));
        x.origins[0].trace_every = x.trace_every;
        status = x.again ? folder_open_again(&folder, settings.out, planned_trace, &x)
                         : folder_open(&folder, settings.out, settings.force, planned_trace, &x);
        x.folder = folder.made;
        const bool keeps = status == STATUS_OK && x.kept;
        if (keeps)
            status = make_resume(&x, &folder);
        status = ranks_agree(status, "before the training");
        if (status == STATUS_OK)
            status = run_all(&x, &folder);
        if (keeps && has_nothing(&x, &folder))
            (void)folder_remove_resume(&folder);
        folder_close(&folder);
    }
    experiment_clear(&x);
    free(words);
    return status;
}

int command_compare(int argc, char **argv) {
    return run_command(COMMAND_COMPARE, argc, argv);
}

int command_train(int argc, char **argv) {
    return run_command(COMMAND_TRAIN, argc, argv);
}
