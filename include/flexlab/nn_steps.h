/* nn_steps.h - compiling a network; a training step, whole and in its parts; evaluation and prediction.
 *
 * A program needs nn_compile, nn_train_step, nn_evaluate and nn_predict. A loop of its own calls nn_forward,
 * nn_backward and nn_update. The rest, below the line, are building blocks.
 * A part of nn.h, whose conventions hold. */
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

/* Ends building: the logits are [batch, classes], or [batch, length, classes], of which each position has a label and
 * a loss of its own (nn_label_count of them a step; the loss is their mean). Plans all memory once (one arena:
 * activations, gradients, workspace of the operations, by lifetime) and initialises the weights. An operation that the
 * device does not have is TENSOR_E_UNSUPPORTED here, not in a step. */
FLEXLAB_API tensor_status nn_compile(nn_graph *g, nn_node logits);
/* Labels of a step: one for each row of the logits, in the order of rows; a multiple of config.batch. 0 before
 * nn_compile. */
FLEXLAB_API int64_t nn_label_count(const nn_graph *g);

/* --- batches ------------------------------------------------------------------------------------------------------ */

typedef struct nn_data nn_data;

/* What a step, an evaluation or a prediction works on: inputs of one kind, and what is expected of the network. What is
 * missing, of the wrong kind or contradictory is TENSOR_E_ARGUMENT, before anything is written, and so is a token,
 * label or index out of range. */
typedef struct nn_batch {
    /* Exactly one of these four. */
    const float *images;    /* [count, height, width, channels] */
    const uint8_t *pixels;  /* the same as bytes, whose values nn_set_pixel_values has set */
    const int32_t *tokens;  /* [count, length], 0 to vocabulary - 1: of a network whose input is nn_tokens */
    const int64_t *indices; /* [count]: images of `data` by number, whose bytes nn_set_pixel_values has given values */
    const nn_data *data;    /* with indices: made for this network */
    const tensor_augmentation *augmentation; /* with indices, in training; NULL: the images as they are */
    /* One of these, as the loss asks; with indices neither, for labels come from `data`. A network of loss "none" has
     * neither, and nn_predict reads neither. */
    const int32_t *labels; /* one for each row of the logits: cross_entropy, wasserstein */
    const float *targets;  /* as many numbers as the output has elements: squared_error, huber */
    int count; /* images or sequences; 0: config.batch, as every training step has. Evaluation and prediction
                * take fewer, too */
} nn_batch;

/* One step on a whole batch: forward, backward, update of the weights; after the second it allocates nothing. loss: the
 * mean before the update; correct: how many predicted classes are the labels, 0 for targets. Where both are NULL, a
 * device is not waited for. rate: 0 or more. Other failures than of arguments (memory, a device) are as in nn_forward.
 */
FLEXLAB_API tensor_status nn_train_step(double *loss, int *correct, nn_graph *g, const nn_batch *batch, float rate);
/* Forward with running statistics and without dropout. Does not disturb training: activations of evaluation are tensors
 * of their own, with exponents from their exact maxima. loss: the mean; predicted: the classes, one for each label of
 * the batch; NULL for targets. */
FLEXLAB_API tensor_status nn_evaluate(double *loss, int32_t *predicted, nn_graph *g, const nn_batch *batch);
/* Logits as nn_evaluate computes them, one row for each label of such a batch, exactly, as doubles. */
FLEXLAB_API tensor_status nn_predict(double *logits, nn_graph *g, const nn_batch *batch);

/* --- a step in its parts ------------------------------------------------------------------------------------------ */

/* The first part: forward to the loss and the gradient of the logits. The parts are called once each, in this order;
 * TENSOR_E_ARGUMENT out of order. Between them a loop may look at the gradients of the parameters (nn_tensor_at: role
 * "weight gradient") or change them. A part that fails for another reason than its arguments (memory, a device) may
 * have written some of its tensors; nn_state_restore with an earlier state makes the network whole again. */
FLEXLAB_API tensor_status nn_forward(nn_graph *g, const nn_batch *batch);
/* The second part: gradients of the parameters. Needs the activations of a forward pass whose memory nothing has used
 * since. */
FLEXLAB_API tensor_status nn_backward(nn_graph *g);
/* The third part: the optimiser's update, which uses each pass's gradients once. rate: 0 or more. */
FLEXLAB_API tensor_status nn_update(nn_graph *g, float rate);
/* Mean loss and number of right predictions of the last forward pass. Waits for a device. */
FLEXLAB_API tensor_status nn_loss(double *loss, int *correct, const nn_graph *g);
/* Steps so far: calls of nn_update, including those in which a dynamic loss scale made no update. */
FLEXLAB_API uint64_t nn_steps(const nn_graph *g);

/* --- images as bytes ---------------------------------------------------------------------------------------------- */

/* What each byte of an image means: values, [C, 256] finite floats (data_pixel_values). Images as bytes are converted
 * to the network's format in one pass, and reach a device with a quarter of the traffic; the bits are the same as with
 * those floats. */
FLEXLAB_API tensor_status nn_set_pixel_values(nn_graph *g, const float *values);

/* A data set as bytes where the network lives: a batch is then indices instead of images, and augmentation is computed
 * there, with the same bytes as by a data loader (tensor_augmentation). For this compiled graph only; free it before
 * the graph and the set. NULL on failure: TENSOR_E_MEMORY where the device has no room, TENSOR_E_SHAPE or
 * TENSOR_E_ARGUMENT for images or labels that do not suit the network, TENSOR_E_DEVICE for a fault. nn_train does this
 * with its sets on a device other than the host; a set for which there is no room is copied batch by batch instead. */
FLEXLAB_API nn_data *nn_data_new(nn_graph *g, const data_set *set);
/* NULL is allowed. */
FLEXLAB_API void nn_data_free(nn_data *data);

/* --- the loss scale ----------------------------------------------------------------------------------------------- */

/* Where the scaling of a network's loss stands. */
typedef struct nn_loss_scale {
    double scale;     /* of the next step; 1 without scaling */
    int64_t good;     /* dynamic: steps since the scale rose or a step was skipped */
    int64_t skipped;  /* steps so far that made no update */
    int64_t in_a_row; /* the last steps that made none */
    int64_t longest;  /* the most in a row so far */
} nn_loss_scale;
/* After so many skipped steps in a row nn_train_events.starved is called: the network does not move. */
enum { NN_STARVED = 20 };
FLEXLAB_API tensor_status nn_loss_scale_of(nn_loss_scale *now, const nn_graph *g);

/* ================================================================================================================== *
 * Building blocks, for loops that nn_train does not have. They may change from one minor version to the next.
 * ================================================================================================================== */

/* --- losses without waiting for a device -------------------------------------------------------------------------- */

/* nn_note_loss, after a forward pass, notes its loss and number of right predictions on the device. After `every` steps
 * (nn_note_every: 1 to 4096, called while nothing is noted; 1 without it) these start on their way to the host as one
 * copy, which has arrived when the next group starts. nn_noted_loss gives the oldest that arrived; *there says whether
 * there was one. wait: it waits for those on their way and those only noted, so that *there is false when all have been
 * given. A failure that shows here drops those that had not arrived, since nobody knows which of them were computed. */
FLEXLAB_API tensor_status nn_note_every(nn_graph *g, int every);
FLEXLAB_API tensor_status nn_note_loss(nn_graph *g);
FLEXLAB_API tensor_status nn_noted_loss(double *loss, int *correct, bool *there, nn_graph *g, bool wait);

/* --- networks in a chain ------------------------------------------------------------------------------------------ */

/* The output of a network is the input of another one, such as a generator's and its critic's. A network of loss "none"
 * has a forward pass; backward begins with a gradient of its output that the caller gives: in the network's format, on
 * its device, of the output's shape, or with more rows, of which the first ones count. It is moved as by tensor_slice:
 * exactly, and in shared-exponent formats at an exponent of its own. A network with a policy takes it in any number
 * format, and rounds it to its own. nn_update follows as ever. Where the network's loss is scaled, the gradient is that
 * of the scaled loss (nn_loss_scale_of). */
FLEXLAB_API tensor_status nn_backward_from(nn_graph *g, const tensor *gradient);
/* The output of the last forward pass of a network of loss "none", until backward. To be read, not written. NULL where
 * it is not there, with tensor_error() set. */
FLEXLAB_API const tensor *nn_output(const nn_graph *g);
/* The gradient of the images after backward, where the network was made with input_gradient, until the next forward
 * pass or evaluation. Otherwise as nn_output. */
FLEXLAB_API const tensor *nn_input_gradient(const nn_graph *g);
/* Before either is compiled: the rules of the policy that both have are for both, so that each rule must match a layer
 * in one of the two. TENSOR_E_ARGUMENT where one matches in neither. */
FLEXLAB_API tensor_status nn_share_policy(nn_graph *a, nn_graph *b);
/* nn_forward in which the loss is scaled by the loss scale of `scaled_by`, a network on the same device before this one
 * in the chain, whose step it is: nn_backward, and nn_backward_from of that network, then have gradients of the loss
 * that it scales. The scale of g stays as it is. */
FLEXLAB_API tensor_status nn_forward_scaled_by(nn_graph *g, const nn_batch *batch, const nn_graph *scaled_by);
/* nn_update of a network whose gradients came through the backward pass of `next`: with a dynamic loss scale, what
 * overflowed there counts as well, and makes it leave the update out. */
FLEXLAB_API tensor_status nn_update_through(nn_graph *g, float rate, const nn_graph *next);
/* Holds every weight within +-limit (tensor_clip_weight), those of states (NAME.recurrent) too; not biases, gammas,
 * betas. limit: 0 or more. */
FLEXLAB_API tensor_status nn_clip_weights(nn_graph *g, float limit);

#ifdef __cplusplus
}
#endif
#endif
