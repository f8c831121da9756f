/* nn_steps.h - compiling a network; a training step, whole and in its phases; evaluation and prediction.
 *
 * A program needs nn_compile, nn_train_step, nn_evaluate and nn_predict. A training loop of its own calls nn_forward,
 * nn_backward and nn_update. The functions below the line are building blocks. Part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_STEPS_H
#define FLEXLAB_NN_STEPS_H

#include "flexlab/api.h"
#include "flexlab/data.h"
#include "flexlab/nn_network.h"
#include "flexlab/tensor_values.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ends building. The logits are [batch, classes], or [batch, length, classes], where each position has a label and a
 * loss of its own (nn_label_count of them per step; the loss is their mean). Plans all memory once (one arena for
 * activations, gradients and the workspace of operations, by lifetime) and initialises the weights. An operation that
 * the device does not offer is TENSOR_E_UNSUPPORTED here, not in a step. */
FLEXLAB_API tensor_status nn_compile(nn_graph *g, nn_node logits);
/* The number of labels in a forward pass: one for each row of the logits, in their order; a multiple of config.batch,
 * of several shards of config.batch / config.shards. 0 before nn_compile. */
FLEXLAB_API int64_t nn_label_count(const nn_graph *g);

/* --- batches ------------------------------------------------------------------------------------------------------ */

typedef struct nn_data nn_data;

/* The input of a step, an evaluation or a prediction, and the labels or targets. Missing, contradictory or unsuitable
 * members are TENSOR_E_ARGUMENT before anything is written, and so is a token, label or index out of range. */
typedef struct nn_batch {
    /* Exactly one of these four. */
    const float *images;    /* [count, height, width, channels] */
    const uint8_t *pixels;  /* the same as bytes, which nn_set_pixel_values has given values */
    const int32_t *tokens;  /* [count, length], 0 to vocabulary - 1: for a network whose input is nn_tokens */
    const int64_t *indices; /* [count]: images of `data` by index, whose bytes nn_set_pixel_values has given values */
    const nn_data *data;    /* with indices: a data set made for this network */
    const tensor_augmentation *augmentation; /* with indices, in training; NULL: the images as they are */
    /* One of these two, as the loss requires; with indices no labels, which come from `data`. A network of loss "none"
     * has neither, and nn_predict reads neither. */
    const int32_t *labels; /* one for each row of the logits: cross_entropy, wasserstein */
    const float *targets;  /* as many numbers as the output has elements: squared_error, huber */
    int count; /* images or sequences; 0: config.batch, which every training step has. Evaluation and prediction also
                  take fewer. Of several shards nn_train_step alone takes config.batch: all others, and 0 there, mean
                  config.batch / config.shards */
} nn_batch;

/* One training step on a whole batch: forward, backward, update of the weights. It allocates nothing from the third
 * step on. loss: the mean before the update; correct: the number of predicted classes that equal the labels, 0 for
 * targets. If both are NULL, the call does not wait for a device. rate: 0 or more. Failures other than
 * TENSOR_E_ARGUMENT (memory, a device) are as in nn_forward. */
FLEXLAB_API tensor_status nn_train_step(double *loss, int *correct, nn_graph *g, const nn_batch *batch, float rate);
/* Evaluates a batch: forward with running statistics and without dropout. It does not disturb training: its activations
 * are tensors of their own, with exponents from their exact maxima. loss: the mean; predicted: the classes, one for
 * each label of the batch; NULL for targets. */
FLEXLAB_API tensor_status nn_evaluate(double *loss, int32_t *predicted, nn_graph *g, const nn_batch *batch);
/* The logits as nn_evaluate computes them, exactly, as doubles: one row for each label of such a batch. */
FLEXLAB_API tensor_status nn_predict(double *logits, nn_graph *g, const nn_batch *batch);

/* --- a step in its phases ----------------------------------------------------------------------------------------- */

/* The forward phase: the loss and the gradient of the logits. A step calls each phase once, in this order;
 * TENSOR_E_ARGUMENT out of order. In S shards (nn_config) it calls forward and backward S times, each with the next
 * config.batch / S samples, then update; on R ranks each calls them S / R times, with the samples of its own shards,
 * and the loss is known after the last backward phase. Between phases a loop may read or change the gradients of the
 * parameters (nn_tensor_at: role "weight gradient"). A phase that fails for another reason than its arguments (memory,
 * a device) may have written some of its tensors; nn_state_restore with an earlier state makes the network consistent
 * again. */
FLEXLAB_API tensor_status nn_forward(nn_graph *g, const nn_batch *batch);
/* The backward phase: the gradients of the parameters. It needs the activations of a forward phase whose memory nothing
 * has used since. */
FLEXLAB_API tensor_status nn_backward(nn_graph *g);
/* The update phase: the optimiser's update, which uses the gradients of each pass once. rate: 0 or more. */
FLEXLAB_API tensor_status nn_update(nn_graph *g, float rate);
/* The mean loss and the number of correct predictions of the last forward phase. Waits for a device. */
FLEXLAB_API tensor_status nn_loss(double *loss, int *correct, const nn_graph *g);
/* The steps so far: calls of nn_update, including those in which a dynamic loss scale skipped the update. */
FLEXLAB_API uint64_t nn_steps(const nn_graph *g);

/* --- images as bytes ---------------------------------------------------------------------------------------------- */

/* Sets the value of each byte of an image: values, [C, 256] finite floats (data_pixel_values). Images given as bytes
 * are converted to the network's format in one pass, and reach a device with a quarter of the traffic; the bits are the
 * same as with those floats. */
FLEXLAB_API tensor_status nn_set_pixel_values(nn_graph *g, const float *values);

/* A data set as bytes on the network's device: a batch then consists of indices instead of images, and the device
 * computes the augmentation, with the same bytes as a data loader (tensor_augmentation). For this compiled graph only;
 * free it before the graph and the set. NULL on failure: TENSOR_E_MEMORY if the set does not fit the device's memory,
 * TENSOR_E_SHAPE or TENSOR_E_ARGUMENT for images or labels that do not suit the network, TENSOR_E_DEVICE for a failure
 * of the device. nn_train does this with its sets on a device other than the host, and copies a set that does not fit
 * batch by batch. */
FLEXLAB_API nn_data *nn_data_new(nn_graph *g, const data_set *set);
/* NULL is allowed. */
FLEXLAB_API void nn_data_free(nn_data *data);

/* --- the loss scale ----------------------------------------------------------------------------------------------- */

/* The state of a network's loss scale. */
typedef struct nn_loss_scale {
    double scale;     /* for the next step; 1 without scaling */
    int64_t good;     /* dynamic: steps since the scale rose or a step was skipped */
    int64_t skipped;  /* steps so far without an update */
    int64_t in_a_row; /* consecutive steps without an update, up to the last step */
    int64_t longest;  /* the most consecutive steps without an update so far */
} nn_loss_scale;
/* After this many consecutive skipped steps the library calls nn_train_events.starved: the network does not move. */
enum { NN_STARVED = 20 };
/* The loss scale as of the last finished update, and its counts so far. TENSOR_E_ARGUMENT if now is NULL, or the graph
 * is NULL or not compiled. */
FLEXLAB_API tensor_status nn_loss_scale_of(nn_loss_scale *now, const nn_graph *g);

/* ================================================================================================================== *
 * Building blocks for training loops that differ from nn_train. They may change between minor versions.
 * ================================================================================================================== */

/* --- losses without waiting for a device -------------------------------------------------------------------------- */

/* nn_note_loss, called after a forward phase, notes its loss and number of correct predictions on the device. After
 * `every` steps (nn_note_every: 1 to 4096, called while nothing is noted; the default is 1) the device sends these to
 * the host in one copy, which has arrived when the next group starts. nn_noted_loss returns the oldest that has
 * arrived; *there: whether there was one. If wait is true, it first waits for losses under way or only noted: *there is
 * then false only when all have been returned. A failure that shows here discards those that had not arrived, since it
 * is unknown which of them were computed. */
FLEXLAB_API tensor_status nn_note_every(nn_graph *g, int every);
FLEXLAB_API tensor_status nn_note_loss(nn_graph *g);
FLEXLAB_API tensor_status nn_noted_loss(double *loss, int *correct, bool *there, nn_graph *g, bool wait);

/* --- networks in a chain ------------------------------------------------------------------------------------------ */

/* In a chain of networks the output of one is the input of the next, such as a generator and its critic. A network of
 * loss "none" has a forward phase; its backward phase, nn_backward_from, starts from a gradient of its output that the
 * caller gives: in the network's format, on its device, of the output's shape, or with more rows, of which the first
 * count. The function copies it as tensor_slice does: exactly, and in shared-exponent formats at an exponent of its
 * own. A network with a policy accepts it in any number format, and rounds it to its own. nn_update follows as usual.
 * If the network's loss is scaled, the gradient is that of the scaled loss (nn_loss_scale_of). */
FLEXLAB_API tensor_status nn_backward_from(nn_graph *g, const tensor *gradient);
/* The output of the last forward phase of a network of loss "none", valid until backward; read-only. NULL if there is
 * none, with tensor_error() set. */
FLEXLAB_API const tensor *nn_output(const nn_graph *g);
/* The gradient of the images after backward, for a network with input_gradient, valid until the next forward phase or
 * evaluation. Otherwise as nn_output. */
FLEXLAB_API const tensor *nn_input_gradient(const nn_graph *g);
/* Shares the rules of the policy that both networks have, so that each rule must match a layer in one of the two. Call
 * it before either is compiled. TENSOR_E_ARGUMENT if a rule matches in neither. */
FLEXLAB_API tensor_status nn_share_policy(nn_graph *a, nn_graph *b);
/* nn_forward with the loss scaled by the loss scale of `scaled_by`, an earlier network of the chain on the same device,
 * whose step it is: nn_backward, and nn_backward_from of that network, then compute gradients of the loss scaled so.
 * The scale of g does not change. */
FLEXLAB_API tensor_status nn_forward_scaled_by(nn_graph *g, const nn_batch *batch, const nn_graph *scaled_by);
/* nn_update for a network whose gradients came through the backward phase of `next`: with a dynamic loss scale,
 * overflows in `next` count as well, and skip the update. */
FLEXLAB_API tensor_status nn_update_through(nn_graph *g, float rate, const nn_graph *next);
/* Clips every weight to +-limit (tensor_clip_weight), including those of states (NAME.recurrent), but not biases,
 * gammas and betas. limit: 0 or more. */
FLEXLAB_API tensor_status nn_clip_weights(nn_graph *g, float limit);

#ifdef __cplusplus
}
#endif
#endif
