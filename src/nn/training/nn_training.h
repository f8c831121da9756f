/* nn_training.h - a training under way: what the loop (nn_train.c), its checkpoints (nn_resume.c) and its learning rate
 * (nn_schedule.c) share. */
#ifndef FL_NN_TRAINING_H
#define FL_NN_TRAINING_H

#include "nn/graph/nn_graph.h"

/* Between two steps, all of which are reported. */
struct fl_progress {
    int epoch;     /* from 1 */
    int64_t batch; /* of the epoch, the next one */
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
    uint64_t train_hash, test_hash;    /* of their pixels and labels; known where there are checkpoints */
    data_loader *train, *test;         /* test NULL: no evaluation */
    nn_data *train_there, *test_there; /* the sets where the network lives; NULL: batches are brought there */
    struct fl_trace *trace;
    nn_telemetry *telemetry;      /* NULL: none */
    struct fl_slot_copies *slots; /* of a device, where every step is looked at; NULL until the first */
    nn_nonfinite first;           /* NaN or Inf; step 0: none so far */
    int64_t first_reported;       /* the step in which it was found by this process; 0: in none */
    double mean[4], deviation[4]; /* of the training set, for both splits; of images */
    int context;                  /* tokens of a sequence; 0: images */
    int64_t test_labels;          /* of an evaluation; 0 without a test set */
    int64_t epoch_steps, all_steps, warmup_steps, last_step;
    int64_t begun;  /* steps; result->steps are those whose loss is known */
    double *recent; /* ring of the last losses */
    int64_t recent_size;
    struct fl_progress at; /* where the next epoch begins */
    struct fl_best best;
    /* The epoch under way. */
    bool in_epoch;
    int64_t batch; /* the next one */
    nn_epoch_report report;
    int64_t correct;
    /* For steps that have begun, by number: the scale that is reported with their losses. */
    struct fl_scaled_step *scaled;
    int64_t scaled_size;
};

/* How a step's loss was scaled. */
struct fl_scaled_step {
    double scale;
    int64_t in_a_row;      /* skipped steps, up to this one */
    const char *nonfinite; /* pass of its first NaN or Inf; NULL: none, or not known */
    bool looked_at;        /* its tensors */
};

/* nn_train_nonfinite.c: after a step, before its loss is known; when it is known. */
tensor_status fl_training_look(struct run *run);
void fl_training_see_loss(struct run *run, double loss);
/* In a checkpoint: a list of numbers, and back; TENSOR_E_DATA for what none of this network's can be. */
enum { FL_FIRST_WHOLE = 6 };
void fl_training_first_get(const struct run *run, int64_t whole[FL_FIRST_WHOLE], double *maximum);
tensor_status fl_training_first_set(struct run *run, const char *path, const int64_t whole[FL_FIRST_WHOLE],
                                    double maximum);

/* nn_resume.c; all but fl_training_resume do nothing without config->checkpoint */
/* Before the first step: the folder can be written. */
tensor_status fl_training_check_folder(const struct run *run);
/* Looks through the data, so that a checkpoint goes with no other. */
void fl_training_know_data(struct run *run);
/* resume.safetensors: from there the training goes on. */
tensor_status fl_training_keep(struct run *run, const struct fl_progress *at);
/* best.safetensors, where the evaluation just made is the best. */
tensor_status fl_training_keep_best(struct run *run, int epoch);
/* last.safetensors */
tensor_status fl_training_keep_last(const struct run *run);
/* Compares what the training is told, and has as data, with config->resume, and has nn_compile compare the network. */
tensor_status fl_training_compare(struct run *run);
/* Goes on from config->resume, in a run that has begun. */
tensor_status fl_training_resume(struct run *run);

/* nn_schedule.c */
/* False for an unknown name, with tensor_error() set. */
bool fl_schedule_known(const char *name);
/* The rate of step `step` (from 0) of `steps`, after `warmup` steps of linear increase. */
float fl_schedule_rate(const char *name, double rate, int64_t step, int64_t steps, int64_t warmup);

#endif
