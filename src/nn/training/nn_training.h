/* nn_training.h - the state of a running training, shared by the loop (nn_train.c), its evaluations (nn_evaluation.c),
 * its checkpoints (nn_resume.c) and its learning rate (nn_schedule.c). */
#ifndef FL_NN_TRAINING_H
#define FL_NN_TRAINING_H

#include "nn/graph/nn_graph.h"

/* The position between two steps; all earlier steps are reported. */
struct fl_progress {
    int epoch;     /* from 1 */
    int64_t batch; /* the next batch of the epoch */
    /* Sums over the steps of the epoch so far. */
    double loss_sum, seconds;
    int64_t correct;
    bool done; /* after the last evaluation: nothing remains to be trained */
};

struct fl_best {
    int epoch; /* 0: none yet */
    double accuracy, loss;
};

struct run {
    const nn_train_config *config;
    const nn_train_events *events;
    nn_train_result *result;
    nn_graph *g;
    const data_set *train_set, *test_set;
    uint64_t train_hash, test_hash;    /* of their pixels and labels; set if there are checkpoints */
    data_loader *train, *test;         /* test NULL: no evaluation */
    nn_data *train_there, *test_there; /* the sets on the device of the network; NULL: batches are copied there */
    struct fl_trace *trace;
    nn_telemetry *telemetry;      /* NULL: none */
    struct fl_slot_copies *slots; /* of a device, if every step is examined; NULL until the first */
    nn_nonfinite first;           /* NaN or Inf; step 0: none so far */
    int64_t first_reported;       /* the step in which it was found by this process; 0: in none */
    double mean[4], deviation[4]; /* of images of the training set, used for both splits */
    int context;                  /* tokens of a sequence; 0: images */
    int64_t test_labels;          /* labels of an evaluation; 0 without a test set */
    int64_t epoch_steps, all_steps, warmup_steps, last_step;
    int64_t begun;  /* steps begun; result->steps are those whose loss is known */
    double *recent; /* ring of the last losses */
    int64_t recent_size;
    struct fl_progress at; /* the position at which the next epoch begins */
    struct fl_best best;
    /* The current epoch. */
    bool in_epoch;
    int64_t batch; /* index of the next batch */
    nn_epoch_report report;
    int64_t correct;
    /* For steps that have begun, by number. */
    struct fl_looked_step *looked;
    int64_t looked_size;
    int64_t updated; /* the last step that made an update, of those whose loss is known */
};

/* What is known of a step before its loss. */
struct fl_looked_step {
    const char *nonfinite; /* pass of its first NaN or Inf; NULL: none or unknown */
    bool looked_at;        /* whether its tensors were examined */
};

/* nn_train_nonfinite.c: the first is called after a step, before its loss is known, the second when it is known. */
tensor_status fl_training_look(struct run *run);
/* Lets telemetry tell what it finds; waits until it has examined a step. */
void fl_training_hear_telemetry(struct run *run);
tensor_status fl_training_await(struct run *run, int64_t step);
void fl_training_see_loss(struct run *run, double loss);
/* Convert the finding to numbers for a checkpoint, and back; TENSOR_E_DATA if this network cannot have it. */
enum { FL_FIRST_WHOLE = 6 };
void fl_training_first_get(const struct run *run, int64_t whole[FL_FIRST_WHOLE], double *maximum);
tensor_status fl_training_first_set(struct run *run, const char *path, const int64_t whole[FL_FIRST_WHOLE],
                                    double maximum);

/* nn_evaluation.c: loss, accuracy and predictions of the test set, in the result. */
tensor_status fl_training_evaluate(struct run *run);

/* nn_resume.c; all but fl_training_resume do nothing without config->checkpoint */
/* Checks before the first step that the folder is writable. */
tensor_status fl_training_check_folder(const struct run *run);
/* Hashes the data, so that a checkpoint is only resumed with the same. */
void fl_training_know_data(struct run *run);
/* Writes resume.safetensors, from which the training can be resumed. */
tensor_status fl_training_keep(struct run *run, const struct fl_progress *at);
/* Writes best.safetensors if the last evaluation is the best. */
tensor_status fl_training_keep_best(struct run *run, int epoch);
/* Writes last.safetensors. */
tensor_status fl_training_keep_last(const struct run *run);
/* Compares settings and data with config->resume, and makes nn_compile compare the network. */
tensor_status fl_training_compare(struct run *run);
/* Resumes config->resume, in a run that was set up. */
tensor_status fl_training_resume(struct run *run);

/* nn_schedule.c */
/* False for an unknown name, with tensor_error() set. */
bool fl_schedule_known(const char *name);
/* The rate of step `step` (from 0) of `steps`, after `warmup` steps of linear increase. */
float fl_schedule_rate(const char *name, double rate, int64_t step, int64_t steps, int64_t warmup);

#endif
