/* nn_train.h - the training loop: epochs, schedule, reports, checkpoints. Part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_TRAIN_H
#define FLEXLAB_NN_TRAIN_H

#include "flexlab/api.h"
#include "flexlab/data.h"
#include "flexlab/nn_checkpoints.h"
#include "flexlab/nn_observation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Builds a network of the caller's for images of that size: adds nn_input and layers to g and returns the logits. For a
 * text: nn_tokens(g, height, classes) and layers; height is then the length of sequences, classes the vocabulary, and
 * width and channels are 0. */
typedef nn_node (*nn_build_fn)(nn_graph *g, int height, int width, int channels, int classes, void *context);

typedef struct nn_train_config {
    nn_config network;
    const char *model; /* see nn_model and, for texts, nn_model_text; NULL: build makes the network */
    int epochs;
    double rate;          /* peak learning rate */
    const char *schedule; /* "linear" (to zero), "cosine", "step" (x 0.1 at 1/2 and 3/4), "constant"; "linear:0.1",
                           * "cosine:0.1": to that share of the peak */
    double warmup_epochs; /* linear from 0 */
    bool augment;
    int64_t max_steps;      /* stop after so many steps; 0: no limit (the schedule still spans all epochs) */
    int average_last;       /* steps whose mean loss is reported as last_loss (e.g. 100) */
    int trace_every;        /* steps between trace records of a tensor, 1: all */
    const char *trace_path; /* NULL: no trace; else a CSV of every shared-exponent tensor; as nn_checkpoint_save */
    nn_build_fn build;      /* where model is NULL */
    void *build_context;
    /* 1 to 4096: the number of steps whose losses a device returns in one copy (nn_note_every). Their step reports then
     * follow one another, up to twice as many steps late, with the seconds at that time. 0: 1 on the host, 16
     * elsewhere. */
    int64_t report_every;
    /* The folder for checkpoints, which must exist (NULL: none). resume.safetensors holds all that is needed to resume
     * the training; it is written every checkpoint_every steps (0: after each epoch), when a callback stops the
     * training, and at the end. best.safetensors holds only the network, after the evaluation with the highest accuracy
     * so far (of equal ones, and for a text, that with the lowest loss); last.safetensors holds only the network, after
     * the last step. */
    const char *checkpoint;
    int64_t checkpoint_every;
    /* The resume.safetensors to resume from (NULL: start anew), written by a training with the same settings on the
     * same data, on any device: weights, later reports, result and trace are those of an uninterrupted training. */
    const char *resume;
    const nn_note *notes; /* stored in each of these files */
    int64_t note_count;
    int64_t context; /* for a text: tokens of a sequence; 0: 128. For images: 0 */
    /* Telemetry (nn_telemetry_config): every tensor of the pattern, every telemetry_every steps and at the last one. */
    int64_t telemetry_every;    /* 0: none */
    const char *telemetry_path; /* JSON Lines; NULL: no file */
    const char *telemetry_csv;  /* NULL: no file */
    const char *telemetry_pattern, *telemetry_shadows;
    bool resume_alone;   /* of the files of `checkpoint`, write only resume.safetensors */
    const char *weights; /* a file of initial weights (nn_weights_load); NULL, and with resume: none */
    /* Stop after the step with the first NaN or Inf (nn_train_events.nonfinite), as by a callback; a training resumed
     * from a later checkpoint does not stop again. The library then examines the tensors of every step, for which it
     * waits for a device. Without this setting it examines them on the host, and on a device with telemetry or a
     * dynamic loss scale (there the weights after the following step, and the host is told with the losses); otherwise
     * only a loss that is not finite shows on a device. */
    bool stop_on_nonfinite;
    /* The most bytes that a step may take beside the weights (nn_graph_limit); 0: no limit. Use it for settings from an
     * untrusted source, such as another user's `resume`, because nothing else limits the batch. */
    int64_t most_of_steps;
} nn_train_config;

typedef struct nn_epoch_report {
    int epoch;         /* from 1 */
    int64_t step;      /* steps so far */
    double train_loss; /* mean over the epoch's batches */
    double train_accuracy;
    double test_loss, test_accuracy; /* NAN without a test set */
    double seconds;                  /* training only, this epoch */
} nn_epoch_report;

typedef struct nn_step_report {
    int64_t step, steps; /* steps done, and steps in all */
    int epoch;
    double loss, rate;
    double seconds;           /* training time since the start */
    int64_t images;           /* trained on since the start; for a text: sequences */
    double loss_scale;        /* by which its loss was multiplied; 1 without scaling */
    int64_t skipped_in_a_row; /* consecutive steps without an update, up to this one; 0: it made its update */
    const char *nonfinite;    /* the pass of its first NaN or Inf: nn_nonfinite.pass; NULL: none, or not known */
} nn_step_report;

/* Callbacks may be NULL. A non-zero return, which must be the same on all ranks of a group, stops the training after
 * this step or epoch: nn_train returns TENSOR_OK with result->stopped set, the trace is complete up to that step, and
 * the result covers the steps so far. If reports come late (report_every above 1), up to twice as many steps have begun
 * by then: they are completed and reported one by one, whatever the callback returns, and belong to trace and result.
 */
typedef struct nn_train_events {
    int (*step)(void *context, const nn_step_report *report);
    int (*epoch)(void *context, const nn_epoch_report *report);
    void *context;
    /* Returns the bytes that the caller stores in a resume.safetensors; they must stay valid until the next call; NULL
     * for none. Called when all steps so far have been reported. */
    const void *(*keep)(void *context, size_t *bytes);
    /* Receives these bytes before the first step of a resumed training. It returns non-zero if they are not the
     * caller's: the training then fails with TENSOR_E_DATA. */
    int (*resume)(void *context, const void *bytes, size_t count);
    /* Called once, with the first NaN or Inf, after the step in which it was written and before that step's report; it
     * lists the writes before it if there is telemetry. Gradients of steps that a dynamic loss scale skipped do not
     * count, unless NN_STARVED consecutive steps were skipped; everything else in such steps counts. Not called again
     * when a training is resumed after it: nn_trainer_nonfinite. */
    void (*nonfinite)(void *context, const nn_nonfinite *first);
    void (*row)(void *context, const nn_telemetry_row *row); /* every record of the telemetry; of ranks, on rank 0 */
    /* NN_STARVED consecutive steps made no update: called once for each such sequence, before the report of its last
     * step. */
    void (*starved)(void *context, const nn_step_report *report);
} nn_train_events;

typedef struct nn_train_result {
    bool stopped;      /* stopped by a callback before the last step, or before the evaluation that follows it */
    double train_loss; /* mean of the last epoch, or of the part of it that was trained */
    double last_loss;  /* mean over the last average_last steps */
    double test_loss, test_accuracy; /* of the last evaluation, NAN without any */
    double seconds;                  /* training only, without evaluation */
    int64_t images, steps;
    int64_t parameters, weight_bytes, activation_bytes,
        arena_bytes; /* as nn_arena_bytes; with batchnorm_global of the shards of all ranks */
    int64_t saturated, flushed, nonfinite, elements; /* over all tensors and writes of training */
    int64_t clamped_low, clamped_high;               /* exponents clamped to an end of their range */
    int32_t *predicted;      /* test set, in order; the caller frees with nn_train_result_clear */
    int64_t predicted_count; /* 0 without any evaluation */
    double loss_scale;       /* at the end; 1 without scaling */
    int64_t skipped, skipped_in_a_row,
        skipped_at_end; /* steps without an update: all, the most consecutive ones, those at the end */
} nn_train_result;

/* Trains a new network. test and events may be NULL. On failure result is cleared. If the sets are texts, which both
 * must be then, a sample is a sequence of `context` tokens, its labels are the tokens that follow each, losses,
 * accuracies and predictions are those of these labels, and `augment` draws where the sequences of an epoch begin
 * (data_loader_config). Batches, augmentation and initial weights depend on network.seed only: two variants with one
 * seed are comparable. */
FLEXLAB_API tensor_status nn_train(nn_train_result *result, const nn_train_config *config, const data_set *train,
                                   const data_set *test, const nn_train_events *events);
/* nn_train in several calls, so that a program can alternate between trainings. The sets, and what config and events
 * point to, must outlive the trainer. NULL on failure. */
typedef struct nn_trainer nn_trainer;
FLEXLAB_API nn_trainer *nn_trainer_new(const nn_train_config *config, const data_set *train, const data_set *test,
                                       const nn_train_events *events);
/* Makes at most `steps` steps, all of which are reported when it returns, with the evaluation and the checkpoint due
 * after each. *over (NULL: not wanted): the last step was made, or a callback stopped the training; further calls then
 * change nothing. The bits are those of nn_train, however the steps are divided. After a failure a trainer can only be
 * freed. */
FLEXLAB_API tensor_status nn_trainer_advance(bool *over, nn_trainer *t, int64_t steps);
/* The trainer's network, read-only, between two calls. */
FLEXLAB_API const nn_graph *nn_trainer_network(const nn_trainer *t);
/* The first NaN or Inf so far (nn_train_events.nonfinite), also from before the training was resumed; NULL: none. Valid
 * as long as the trainer. */
FLEXLAB_API const nn_nonfinite *nn_trainer_nonfinite(const nn_trainer *t);
/* Ends the training as nn_train does: last checkpoint, totals, trace. Before the last step it stops the training as a
 * callback would. On failure result is cleared. */
FLEXLAB_API tensor_status nn_trainer_finish(nn_train_result *result, nn_trainer *t);
/* Frees a trainer. One that has not finished is abandoned: its trace is removed, its checkpoints remain. NULL is
 * allowed. */
FLEXLAB_API void nn_trainer_free(nn_trainer *t);
/* Frees the memory of a result, and sets it to zero. NULL is allowed. */
FLEXLAB_API void nn_train_result_clear(nn_train_result *result);

#ifdef __cplusplus
}
#endif
#endif
