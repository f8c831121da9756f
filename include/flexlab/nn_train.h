/* nn_train.h - the training loop: epochs, schedule, reports, checkpoints.
 * A part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_TRAIN_H
#define FLEXLAB_NN_TRAIN_H

#include "flexlab/api.h"
#include "flexlab/data.h"
#include "flexlab/nn_checkpoints.h"
#include "flexlab/nn_observation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Builds a network of one's own for images of that size: nn_input and layers on g; returns the logits. For a text:
 * nn_tokens(g, height, classes) and layers, height being the length of sequences and classes the vocabulary; width and
 * channels are 0. */
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
    int trace_every;        /* steps between trace rows of a tensor, 1: all */
    const char *trace_path; /* NULL: no trace; else a CSV of every shared-exponent tensor; as nn_checkpoint_save */
    nn_build_fn build;      /* where model is NULL */
    void *build_context;
    /* 1 to 4096: steps whose losses come from a device as one copy (nn_note_every), and whose step reports come one
     * after the other then, up to twice as many steps late, with the seconds at that time; 0: 1 on the host, 16
     * elsewhere. */
    int64_t report_every;
    /* Checkpoints go to this folder, which must be there (NULL: none): resume.safetensors holds all that a training
     * needs to go on; it is written every checkpoint_every steps (0: after each epoch), when a callback stops the
     * training, and at the end. best.safetensors is the network alone, after the evaluation with the highest accuracy
     * so far (of equal ones, and of a text, that with the lowest loss); last.safetensors the network alone after the
     * last step. */
    const char *checkpoint;
    int64_t checkpoint_every;
    /* A resume.safetensors to go on from (NULL: from the beginning), by a training of the same settings on the same
     * data, whatever the device: weights, reports that follow, result and trace are those of a training that was never
     * interrupted. */
    const char *resume;
    const nn_note *notes; /* go into each of these files */
    int64_t note_count;
    int64_t context; /* of a text: tokens of a sequence; 0: 128. Of images: 0 */
    /* Telemetry (nn_telemetry_config): every tensor of the pattern each telemetry_every steps and at the last one. */
    int64_t telemetry_every;    /* 0: none */
    const char *telemetry_path; /* JSON Lines; NULL: no file */
    const char *telemetry_csv;  /* NULL: no file */
    const char *telemetry_pattern, *telemetry_shadows;
    bool resume_alone;   /* of the files of `checkpoint` resume.safetensors alone is written */
    const char *weights; /* a file that initial weights come from (nn_weights_load); NULL, and with resume: none */
    /* The training stops after the step with the first NaN or Inf (nn_train_events.nonfinite), as by a callback;
     * one that goes on from a checkpoint behind it does not stop again. The tensors of every step are looked at then,
     * for which a device is waited for. Without it they are looked at on the host, and on a device with telemetry or a
     * dynamic loss scale (there weights after the step that follows); otherwise there a loss that is not finite is all
     * that shows. */
    bool stop_on_nonfinite;
    /* The most bytes that a step may take beside the weights (nn_graph_limit); 0: as many as it takes. For settings
     * that are none of the caller's own, such as a `resume` of somebody else's: the batch stands nowhere else. */
    int64_t most_of_steps;
} nn_train_config;

typedef struct nn_epoch_report {
    int epoch;         /* from 1 */
    int64_t step;      /* steps so far */
    double train_loss; /* mean over the epoch's batches */
    double train_accuracy;
    double test_loss, test_accuracy; /* NAN without a test set */
    double seconds;                  /* training alone, this epoch */
} nn_epoch_report;

typedef struct nn_step_report {
    int64_t step, steps; /* done so far, of all */
    int epoch;
    double loss, rate;
    double seconds;           /* training time since the start */
    int64_t images;           /* trained on since the start; of a text: sequences */
    double loss_scale;        /* that its loss was multiplied with; 1 without scaling */
    int64_t skipped_in_a_row; /* steps without an update, up to this one; 0: it made its own */
    const char *nonfinite;    /* where it wrote its first NaN or Inf: nn_nonfinite.pass; NULL: nowhere, or not known */
} nn_step_report;

/* Callbacks may be NULL. A non-zero return stops the training after this step or epoch: nn_train returns TENSOR_OK with
 * result->stopped set, the trace is complete up to that step, and the result is that of the steps so far. Where reports
 * come late (report_every above 1), up to twice as many steps have begun by then: they are done, reported one by one,
 * whatever is returned, and are part of trace and result. */
typedef struct nn_train_events {
    int (*step)(void *context, const nn_step_report *report);
    int (*epoch)(void *context, const nn_epoch_report *report);
    void *context;
    /* What the caller keeps in a resume.safetensors: bytes that stay until the next call, NULL without any. Called when
     * all steps so far were reported. */
    const void *(*keep)(void *context, size_t *bytes);
    /* These bytes, before the first step of a training that goes on. Non-zero where they are none of the caller's: the
     * training fails with TENSOR_E_DATA. */
    int (*resume)(void *context, const void *bytes, size_t count);
    /* Once: the first NaN or Inf, after the step in which it was written and before its report, with the writes before
     * it where there is telemetry. Gradients of steps that a dynamic loss scale left out do not count, unless
     * NN_STARVED of these came in a row; all else counts in them too. Not again of a training that goes on behind it:
     * nn_trainer_nonfinite. */
    void (*nonfinite)(void *context, const nn_nonfinite *first);
    void (*row)(void *context, const nn_telemetry_row *row); /* every row of the telemetry */
    /* NN_STARVED steps in a row made no update: once for each such row, before the report of the last of them. */
    void (*starved)(void *context, const nn_step_report *report);
} nn_train_events;

typedef struct nn_train_result {
    bool stopped;                    /* by a callback before the last step, or before the evaluation that follows it */
    double train_loss;               /* mean of the last epoch, or of what was trained of it */
    double last_loss;                /* mean over the last average_last steps */
    double test_loss, test_accuracy; /* of the last evaluation, NAN without any */
    double seconds;                  /* training alone, without evaluation */
    int64_t images, steps;
    int64_t parameters, weight_bytes, activation_bytes, arena_bytes;
    int64_t saturated, flushed, nonfinite, elements; /* over all tensors and writes of training */
    int64_t clamped_low, clamped_high;               /* exponents stopped at an end of their range */
    int32_t *predicted;      /* test set, in order; the caller frees with nn_train_result_clear */
    int64_t predicted_count; /* 0 without any evaluation */
    double loss_scale;       /* at the end; 1 without scaling */
    int64_t skipped, skipped_in_a_row, skipped_at_end; /* steps without an update: all, the most in a row, the last */
} nn_train_result;

/* Trains a new network. test and events may be NULL. On failure result is cleared. Of a text, which both sets are
 * then, a sample is a sequence of `context` tokens, its labels are the tokens that follow each, and losses, accuracies
 * and predictions are of those; `augment` draws where the sequences of an epoch begin (data_loader_config). Batches,
 * augmentation and initial weights depend on network.seed alone: two variants with one seed are a pair. */
FLEXLAB_API tensor_status nn_train(nn_train_result *result, const nn_train_config *config, const data_set *train,
                                   const data_set *test, const nn_train_events *events);
/* The same in parts, so that several trainings take turns. Until a trainer is freed, the sets and what config and
 * events point to must be there. NULL on failure. */
typedef struct nn_trainer nn_trainer;
FLEXLAB_API nn_trainer *nn_trainer_new(const nn_train_config *config, const data_set *train, const data_set *test,
                                       const nn_train_events *events);
/* At most so many steps, all of them reported when it returns, with the evaluation and the checkpoint that are due
 * after each. *over (NULL: not wanted): the last step was made, or a callback stopped it; more steps change nothing
 * then. Whatever the parts, the bits are those of nn_train. After a failure a trainer can be freed alone. */
FLEXLAB_API tensor_status nn_trainer_advance(bool *over, nn_trainer *t, int64_t steps);
/* Its network, to look at between two parts. */
FLEXLAB_API const nn_graph *nn_trainer_network(const nn_trainer *t);
/* The first NaN or Inf so far (nn_train_events.nonfinite), also of the steps before a training went on; NULL: none. It
 * stays as long as the trainer. */
FLEXLAB_API const nn_nonfinite *nn_trainer_nonfinite(const nn_trainer *t);
/* What nn_train ends with: last checkpoint, totals, trace. Before the last step the training is stopped as by a
 * callback. On failure result is cleared. */
FLEXLAB_API tensor_status nn_trainer_finish(nn_train_result *result, nn_trainer *t);
/* One that has not finished is abandoned: of its trace nothing is left, its checkpoints stay. NULL is allowed. */
FLEXLAB_API void nn_trainer_free(nn_trainer *t);
/* Frees what nn_train put into result, and sets it to zero. NULL is allowed. */
FLEXLAB_API void nn_train_result_clear(nn_train_result *result);

#ifdef __cplusplus
}
#endif
#endif
