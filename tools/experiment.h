/* experiment.h - a comparison: what was asked for, what each run gave, and figures over the seeds. */
#ifndef FLEXLAB_EXPERIMENT_H
#define FLEXLAB_EXPERIMENT_H

#include "options.h"
#include "table.h"

/* Mean training loss over a window of steps. */
struct window {
    int64_t step; /* the last of the window */
    int count;
    double loss, rate;
};

struct run {
    int series; /* index of its format */
    uint64_t seed;
    bool started, finished;
    bool stopped; /* before its last step, and its result is that of the steps so far */
    bool shown;   /* its numbers stand in tables and figures */
    nn_train_result result;
    struct window *windows;
    nn_epoch_report *epochs;
    int window_count, epoch_count;
    double agreement; /* share of the test set predicted as by fp32 of the same seed; NAN without one */
};

struct experiment {
    const struct settings *settings;
    enum command command;
    char *command_line;
    const char *folder; /* where the files of this comparison are made */
    struct series *series;
    struct run *runs; /* [seed][series] */
    int series_count, run_count;
    int baseline; /* index of fp32, -1 without */
    data_set *train, *test;
    double rate;
    bool augment;
    int64_t steps_per_epoch, steps; /* of each run, all epochs and after --max-steps */
    int window;                     /* steps averaged in the loss curve */
    int trace_every;                /* 0: no traces */
    bool stopped;                   /* by Ctrl-C or a failure: not every run is finished */
};

static inline struct run *experiment_run(const struct experiment *x, int seed_index, int series) {
    return &x->runs[seed_index * x->series_count + series];
}

/* Name of a run's trace, to be freed. */
char *experiment_trace_name(const struct experiment *x, const struct run *run);

/* --- over the seeds ------------------------------------------------------------------------------------------------
 */

struct spread {
    double mean, deviation; /* sample standard deviation; NAN for fewer than two */
    int count;
};

struct summary {
    int runs;             /* finished */
    int64_t stopped_step; /* the numbers are those of a run that was stopped after this step; 0: of the finished runs */
    struct spread train_loss, last_loss, loss_difference, test_loss, accuracy, agreement;
    double images_per_second, speed_ratio; /* all images / all seconds; NAN where unknown */
    int64_t parameters, weight_bytes, activation_bytes, arena_bytes;
    int64_t saturated, flushed, nonfinite, elements, clamped_low, clamped_high; /* sums over the runs */
};

/* Fills in every run's agreement with the baseline. */
void summary_agreement(struct experiment *x);
struct summary summary_of(const struct experiment *x, int series);
/* The comparison and the arithmetic behind it; one line a format. */
struct table *summary_table(const struct experiment *x);
struct table *summary_arithmetic_table(const struct experiment *x);
/* Writes summary.csv into the folder of results; a STATUS_ code. */
int summary_write_csv(const struct experiment *x);

#endif
