/* experiment.h - a comparison: its settings, the results of each run, and statistics over the seeds. */
#ifndef FLEXLAB_EXPERIMENT_H
#define FLEXLAB_EXPERIMENT_H

#include "options/options.h"
#include "results/nonfinite.h"
#include "results/origin.h"
#include "options/series.h"
#include "base/table.h"
#include <math.h>

/* Mean training loss over a window of steps. */
struct window {
    int64_t step; /* the last of the window */
    int count;
    double loss, rate;
    int nonfinite;      /* steps whose loss was NaN or Inf; then `loss` is, too */
    double finite_loss; /* the mean of the finite losses, if there are any */
};
/* The mean over the steps whose loss was finite; NAN without one. */
static inline double window_loss(const struct window *w) {
    return !w->nonfinite ? w->loss : w->nonfinite < w->count ? w->finite_loss : NAN;
}

/* The steps from this one on were trained with this loss scale. */
struct scale_change {
    int64_t step;
    double scale;
};

/* The duration of the steps of a run in seconds: the 10th, 50th and 90th percentiles. */
struct timing {
    double low, median, high; /* NAN if count is 0 */
    int64_t count;            /* steps, or parts of the run if steps cannot be timed one by one; without warm-up */
    double wall;              /* of the whole run, with evaluation */
};

/* What rank 0 of several exchanged with the others in the training steps that this process has made. */
struct exchange {
    int ranks;          /* 0: there was one */
    const char *engine; /* which moved the bytes; NULL: unknown, or there was one rank */
    int64_t sent;       /* bytes */
    double waited, overlapped;
    int64_t steps; /* in which that was, and their seconds */
    double seconds;
};

struct run {
    int series; /* index of its format */
    int origin; /* index of the origin of its numbers */
    uint64_t seed;
    bool planned; /* it was to be trained for one of the folders */
    bool began;   /* a step was reported, or a checkpoint resumed */
    bool finished;
    bool stopped;  /* stopped before its last step; its result is that of the steps so far */
    char *failure; /* why it could not be trained; NULL: it could */
    bool shown;    /* its numbers appear in tables and figures */
    nn_train_result result;
    struct window *windows;
    nn_epoch_report *epochs;
    int window_count, epoch_count;
    struct scale_change *scales; /* of a scaled loss: the first step, then each change */
    int64_t scale_count, scale_room;
    struct timing timing;
    struct exchange exchange;
    double first_loss;      /* of step 1, with the initial weights */
    int64_t nonfinite_step; /* the first step with a loss of NaN or Inf, 0 without */
    double nonfinite_loss;  /* that loss; 0 without */
    struct nonfinite first; /* the first NaN or Inf of all that the run wrote */
    bool stops;             /* it was found by this process, and is to stop the run */
    int32_t *stored;        /* predictions read from a file; result.predicted_count of them */
    double agreement;       /* share of the test set predicted as by fp32 of the same seed; NAN without one */
};

/* The dimensions of the images or the text, for tables and figures. */
struct dimensions {
    int64_t train, test;
    int height, width, channels, classes;
    int context; /* tokens of a sequence; 0: images */
};

struct experiment {
    const struct settings *settings;
    enum command command;
    const char *folder;     /* where the files of this comparison are made */
    struct origin *origins; /* one for each folder of results */
    int origin_count;
    struct series *series;
    uint64_t *seeds;
    struct run *runs; /* [seed][series] */
    int series_count, seed_count, run_count;
    int baseline;           /* index of fp32, or else of fp32:layers; -1 without */
    data_set *train, *test; /* NULL if the results were read from files */
    struct dimensions data;
    double rate;
    bool augment;
    int64_t steps_per_epoch, steps; /* of each run, all epochs and after --max-steps */
    int window;                     /* steps averaged in the loss curve */
    int trace_every;                /* 0: no traces */
    bool networks;   /* a single training: its networks are results, its checkpoints have a folder of their own */
    char *resume;    /* the file of the checkpoint from which such a training resumes; NULL: none */
    bool again;      /* the checkpoints in the folder of results are resumed */
    char **policies; /* owns the policies of settings that are resumed */
    char *kept;      /* the options for a resumed training: options_kept; NULL: no checkpoints */
    bool stopped;    /* by Ctrl-C or a failure: not every run is finished */
};

static inline struct run *experiment_run(const struct experiment *x, int seed_index, int series) {
    return &x->runs[seed_index * x->series_count + series];
}

/* The number of predictions of an evaluation: one for each image, or for each target token. */
int64_t experiment_labels(const struct experiment *x);
/* The token of a text, for bits of loss: "byte" or "character"; NULL: images. */
const char *experiment_token(const struct experiment *x);
/* The number of images, or tokens, in a step. */
int64_t experiment_step_samples(const struct experiment *x);

/* Finds the baseline and makes the runs of x->series and x->seeds, all of them planned, without results. */
void experiment_make_runs(struct experiment *x);
/* Frees what the run holds. */
void run_clear(struct run *run);
/* Decides which runs are shown: those that are finished, and a stopped one if its format has no other. */
void experiment_choose_shown(struct experiment *x);
/* Whether any run has begun; whether any has results to store. */
bool experiment_began(const struct experiment *x);
bool experiment_anything_trained(const struct experiment *x);
/* Whether any run is finished or was stopped. */
bool experiment_any_over(const struct experiment *x);
/* Runs that failed by themselves; runs that are finished. */
int experiment_failed(const struct experiment *x);
int experiment_finished(const struct experiment *x);
/* The number of runs that were to be trained: fewer than run_count if folders of other formats and seeds become one
 * comparison. */
int experiment_planned(const struct experiment *x);
/* Name and path of a run's trace, to be freed. */
char *experiment_trace_name(const struct experiment *x, const struct run *run);
/* The name of the telemetry file: ending "jsonl" or "csv". */
char *experiment_telemetry_name(const struct experiment *x, const struct run *run, const char *ending);
char *experiment_trace_path(const struct experiment *x, const struct run *run);
void experiment_clear(struct experiment *x);

/* --- divergence --------------------------------------------------------------------------------------------------- */

/* Records that the steps from this one on have this loss scale. */
void run_scaled(struct run *run, int64_t step, double scale);
/* Records what run_diverged needs; to be called at every step. */
void run_observe(struct run *run, const nn_step_report *report);
/* A run that is over has diverged when the loss of any step or of the test set is NaN or Inf, or when its last loss is
 * more than 1.5 times the larger of its first loss and the loss of guessing, log(classes); or when it ended with
 * NN_STARVED consecutive steps that made no update. */
bool run_diverged(const struct experiment *x, const struct run *run);
int experiment_diverged(const struct experiment *x);
/* Whether it was stopped by --stop-on-nonfinite, after the step with its first NaN or Inf; how many were. */
bool run_stopped_itself(const struct run *run);
int experiment_stopped_themselves(const struct experiment *x);
/* "loss NaN from step 17"; to be freed. */
char *run_divergence_text(const struct experiment *x, const struct run *run);

/* --- over the seeds ----------------------------------------------------------------------------------------------- */

struct spread {
    double mean, deviation; /* NAN or infinite if a value is; deviation: of a sample, NAN for fewer than two values */
    int count;              /* 0: a run has no such value, or none is finished; mean and deviation are NAN */
};

struct summary {
    int runs, diverged; /* finished; shown and diverged */
    int failed;
    int planned;
    int64_t stopped_step; /* the numbers are those of a run that was stopped after this step; 0: of the finished runs */
    struct spread train_loss, last_loss, loss_difference, test_loss, accuracy, agreement;
    double images_per_second, speed_ratio; /* all images / all seconds; NAN if unknown */
    int64_t parameters, weight_bytes, activation_bytes, arena_bytes;
    int64_t saturated, flushed, nonfinite, elements, clamped_low, clamped_high, skipped; /* sums over the runs */
    int64_t skipped_in_a_row;                                                            /* the most of any run */
    struct timing timing; /* means over the runs; wall and count: sums */
};

/* Fills in every run's agreement with the baseline. */
void summary_agreement(struct experiment *x);
struct summary summary_of(const struct experiment *x, int series);
/* Tables of the comparison and of the arithmetic behind it, with one line for each format. */
struct table *summary_table(const struct experiment *x);
struct table *summary_arithmetic_table(const struct experiment *x);
/* Prints the comparison with its heading and notes on standard output, no wider than the terminal. */
void summary_print(const struct experiment *x);
/* The notes on the table, one sentence each: which runs diverged, what a format does without. NULL past the last; to be
 * freed. */
char *summary_note(const struct experiment *x, int i);
/* Writes summary.csv into the folder of results; a STATUS_ code. */
int summary_write_csv(const struct experiment *x);

#endif
