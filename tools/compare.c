/* compare.c - the commands `compare` and `train`: every format with every seed, then table and files. */
#include "commands.h"
#include "experiment.h"
#include "figure.h"
#include "metrics.h"
#include "progress.h"
#include "report.h"
#include "text.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_WINDOW = 50, LEAST_WINDOWS = 40, TRACE_ROWS = 500 };

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

/* The first Ctrl-C ends the run in progress, the second the program. */
static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* --- one run ---------------------------------------------------------------------------------------------------- */

/* What the callbacks of a run in progress share. */
struct running {
    struct experiment *experiment;
    struct run *run;
    struct output *metrics;
    struct progress *progress;
    double window_sum;
    int window_count;
    int status; /* of writing metrics */
};

static int on_step(void *context, const nn_step_report *report) {
    struct running *r = context;
    struct run *run = r->run;
    progress_step(r->progress, report);
    r->window_sum += report->loss;
    r->window_count++;
    if (r->window_count == r->experiment->window || report->step == report->steps) {
        run->windows = text_realloc(run->windows, (size_t)run->window_count + 1, sizeof *run->windows);
        struct window *window = &run->windows[run->window_count++];
        *window = (struct window){report->step, r->window_count, r->window_sum / r->window_count, report->rate};
        r->window_sum = 0;
        r->window_count = 0;
        r->status = metrics_window(r->metrics, r->experiment, run, window);
    }
    return interrupted || r->status;
}

static int on_epoch(void *context, const nn_epoch_report *report) {
    struct running *r = context;
    struct run *run = r->run;
    progress_epoch(r->progress, report);
    run->epochs = text_realloc(run->epochs, (size_t)run->epoch_count + 1, sizeof *run->epochs);
    run->epochs[run->epoch_count++] = *report;
    r->status = metrics_epoch(r->metrics, r->experiment, run, report);
    return interrupted || r->status;
}

static int train_one(struct experiment *x, struct run *run, struct output *metrics, struct progress *progress) {
    const struct settings *s = x->settings;
    const struct series *series = &x->series[run->series];
    char *trace = NULL;
    if (series->shared && x->trace_every) {
        char *name = experiment_trace_name(x, run);
        trace = text_format("%s/%s", s->out, name);
        free(name);
    }
    const nn_train_config config = {.network = {.variant = series->variant->name,
                                                .predictor = series->predictor,
                                                .no_master = series->no_master,
                                                .batch = (int)s->batch,
                                                .seed = run->seed,
                                                .momentum = (float)s->momentum,
                                                .weight_decay = (float)s->weight_decay},
                                    .model = s->model,
                                    .epochs = (int)s->epochs,
                                    .rate = x->rate,
                                    .schedule = s->schedule,
                                    .warmup_epochs = s->warmup,
                                    .augment = x->augment,
                                    .max_steps = s->max_steps,
                                    .average_last = (int)s->average_last,
                                    .trace_path = trace,
                                    .trace_every = x->trace_every};
    struct running running = {.experiment = x, .run = run, .metrics = metrics, .progress = progress};
    const nn_train_events events = {on_step, on_epoch, &running};
    run->started = true;
    progress_run(progress, (int)(run - x->runs) + 1, series->label, run->seed);
    tensor_status failed = nn_train(&run->result, &config, x->train, x->test, &events);
    free(trace);
    if (!failed) {
        run->finished = true;
        progress_run_done(progress, &run->result);
        return metrics_run(metrics, x, run);
    }
    progress_clear(progress);
    if (running.status)
        return running.status;
    if (interrupted)
        return text_failed("stopped by the user during %s seed %llu", series->label, (unsigned long long)run->seed);
    return text_failed("%s seed %llu: %s", series->label, (unsigned long long)run->seed, tensor_error());
}

/* --- before the runs ---------------------------------------------------------------------------------------------- */

/* Status of the library's last failure: tells a wrong specification from an unreadable file. */
static tensor_status last_failure;

static void remember_failure(tensor_status status, const char *text, void *context) {
    (void)text;
    (void)context;
    last_failure = status;
}

static const char *data_kind(int i) {
    static const char *const kinds[] = {"synthetic", "cifar10", "idx"};
    return i < (int)(sizeof kinds / sizeof *kinds) ? kinds[i] : NULL;
}

static int open_split(const struct settings *s, data_split split, int64_t limit, data_set **set) {
    *set = data_open(s->data, split);
    if (!*set) {
        char *kind = text_format("%.*s", (int)strcspn(s->data, ":"), s->data);
        int status = last_failure == TENSOR_E_ARGUMENT
                         ? text_usage("--data '%s': %s%s", s->data, tensor_error(), text_did_you_mean(kind, data_kind))
                         : text_failed("--data '%s': %s", s->data, tensor_error());
        free(kind);
        return status;
    }
    if (limit > data_count(*set))
        return text_usage("--%s-limit %lld: the set has %lld images", split == DATA_TRAIN ? "train" : "test",
                          (long long)limit, (long long)data_count(*set));
    if (limit && data_limit(*set, limit))
        return text_failed("%s", tensor_error());
    return STATUS_OK;
}

static int open_data(struct experiment *x) {
    const struct settings *s = x->settings;
    int status = open_split(s, DATA_TRAIN, s->train_limit, &x->train);
    if (status == STATUS_OK)
        status = open_split(s, DATA_TEST, s->test_limit, &x->test);
    if (status == STATUS_OK && data_count(x->train) < s->batch)
        status = text_usage("--batch %lld: the training set has %lld images", (long long)s->batch,
                            (long long)data_count(x->train));
    return status;
}

static void plan_runs(struct experiment *x) {
    const struct settings *s = x->settings;
    x->rate = s->rate > 0 ? s->rate : options_default_rate(s->model);
    x->augment = s->augment == SWITCH_UNSET ? !strncmp(s->data, "cifar10:", 8) : s->augment;
    x->steps_per_epoch = data_count(x->train) / s->batch;
    x->steps = x->steps_per_epoch * s->epochs;
    if (s->max_steps && s->max_steps < x->steps)
        x->steps = s->max_steps;
    int64_t window = x->steps / LEAST_WINDOWS;
    x->window = window > LONGEST_WINDOW ? LONGEST_WINDOW : window > 1 ? (int)window : 1;
    if (!s->no_trace)
        x->trace_every = s->trace_every ? (int)s->trace_every : (int)((x->steps + TRACE_ROWS - 1) / TRACE_ROWS);
    x->baseline = -1;
    for (int i = 0; i < x->series_count; i++)
        if (!strcmp(x->series[i].label, "fp32"))
            x->baseline = i;
    x->run_count = x->series_count * (int)s->seeds;
    x->runs = text_alloc((size_t)x->run_count, sizeof *x->runs);
    for (int i = 0; i < x->run_count; i++) {
        x->runs[i].series = i % x->series_count;
        x->runs[i].seed = (uint64_t)(s->seed_base + i / x->series_count);
        x->runs[i].agreement = NAN;
    }
}

/* As it could be typed again; arguments with special characters in quotes. */
static char *join_command(int argc, char **argv) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,.:/@%";
    char *line = text_format("flexlab");
    for (int i = 0; i < argc; i++) {
        bool quoted = !argv[i][0] || strspn(argv[i], plain) != strlen(argv[i]);
        char *longer = text_format(quoted ? "%s '%s'" : "%s %s", line, argv[i]);
        free(line);
        line = longer;
    }
    return line;
}

static int prepare(struct experiment *x) {
    const struct settings *s = x->settings;
    int status = options_check_model(s->model);
    if (status == STATUS_OK && !tensor_kernel_backend(tensor_format_list(0), "add"))
        status = text_usage("%s", tensor_error());
    if (status == STATUS_OK)
        status = options_series(s, &x->series, &x->series_count);
    if (status == STATUS_OK && x->command == COMMAND_TRAIN && x->series_count > 1)
        status = text_usage("--format '%s': expected one format; 'flexlab compare' takes a list", s->formats);
    if (status == STATUS_OK && s->threads && tensor_set_threads((int)s->threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK)
        status = open_data(x);
    if (status == STATUS_OK)
        status = output_prepare(s->out, s->force);
    if (status == STATUS_OK)
        plan_runs(x);
    return status;
}

static void experiment_clear(struct experiment *x) {
    for (int i = 0; i < x->run_count; i++) {
        nn_train_result_clear(&x->runs[i].result);
        free(x->runs[i].windows);
        free(x->runs[i].epochs);
    }
    free(x->runs);
    series_free(x->series, x->series_count);
    data_free(x->train);
    data_free(x->test);
    free(x->command_line);
}

/* --- after the runs ----------------------------------------------------------------------------------------------- */

static int worse(int a, int b) {
    return a > b ? a : b;
}

static int write_results(const struct experiment *x) {
    struct figures figures;
    int status = summary_write_csv(x);
    status = worse(status, figures_draw(x, &figures));
    status = worse(status, report_write(x, &figures));
    figures_clear(&figures);
    return status;
}

static void print_table(const struct experiment *x, int finished) {
    struct table *t = summary_table(x);
    printf("\n%s on %s: %lld steps of %lld images, %d of %d runs\n\n", x->settings->model, x->settings->data,
           (long long)x->steps, (long long)x->settings->batch, finished, x->run_count);
    table_print(t, stdout, 0);
    table_free(t);
}

static int run_all(struct experiment *x) {
    struct output metrics;
    struct progress progress;
    int status = metrics_open(&metrics, x), finished = 0;
    if (status)
        return status;
    catch_interrupts();
    progress_begin(&progress, x->settings, x->run_count);
    for (int i = 0; i < x->run_count && status == STATUS_OK; i++) {
        status = train_one(x, &x->runs[i], &metrics, &progress);
        finished += x->runs[i].finished;
    }
    x->stopped = finished < x->run_count;
    if (!finished) {
        output_discard(&metrics);
        text_note("no run was finished, so nothing is kept in %s", x->settings->out);
        return status;
    }
    summary_agreement(x);
    status = worse(status, metrics_close(&metrics, x));
    status = worse(status, write_results(x));
    print_table(x, finished);
    printf("\nWritten to %s: report.html, figures, summary.csv, metrics.jsonl%s\n", x->settings->out,
           x->trace_every ? ", traces" : "");
    return status;
}

static int run_command(enum command command, int argc, char **argv) {
    struct settings settings;
    int status = options_parse(&settings, command, argc, argv);
    if (status)
        return status;
    if (settings.help) {
        options_help(command, stdout);
        return STATUS_OK;
    }
    struct experiment x = {.settings = &settings, .command = command, .command_line = join_command(argc, argv)};
    tensor_set_error_hook(remember_failure, NULL);
    status = prepare(&x);
    if (status == STATUS_OK)
        status = run_all(&x);
    experiment_clear(&x);
    return status;
}

int command_compare(int argc, char **argv) {
    return run_command(COMMAND_COMPARE, argc, argv);
}

int command_train(int argc, char **argv) {
    return run_command(COMMAND_TRAIN, argc, argv);
}
