/* tensor_losses.h - softmax, cross-entropy and other losses. A part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_LOSSES_H
#define FLEXLAB_TENSOR_LOSSES_H

#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- softmax of rows ---------------------------------------------------------------------------------------------- */

/* y = exp(scale x) / sum of exp(scale x) over the last dimension, fewer than 2^31 elements. causal: the last two
 * dimensions are [q, n], and row i of q has the elements 0 ... i + n - q alone; the others are no elements: they are
 * not read, and y is 0 there (a row without elements is all 0). Computed in double by a fixed sequence of IEEE
 * operations and rounded once. In place allowed. A shared-exponent y takes its exponent as any write does; to have it
 * fixed at 14, as probabilities may: tensor_set_predictor(y, "fixed") and tensor_set_exponent(y, 14). */
FLEXLAB_API tensor_status tensor_softmax(tensor *y, const tensor *x, float scale, bool causal)
    FLEXLAB_SYMBOL(tensor_softmax);
/* y = scale x - log of sum of exp(scale x), in double, rounded once. In place allowed. */
FLEXLAB_API tensor_status tensor_log_softmax(tensor *y, const tensor *x, float scale)
    FLEXLAB_SYMBOL(tensor_log_softmax);

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* Losses over x, in double by a fixed sequence (docs/losses.md), the same bits on every backend. loss: f64 [1]. dx
 * (NULL: not wanted): the gradient of the loss times the scale that the options give, of x's format and shape, rounded
 * once; dx may be x or targets. labels: i32, one a row, x's first dimension. targets: of x's shape, in its format or as
 * numbers of f64 or f32. All on one device. how NULL or zero: the plain loss. Errors: TENSOR_E_ARGUMENT for NULL, a
 * scale that is not finite, an option that the loss does not have or that is out of range; TENSOR_E_SHAPE and
 * TENSOR_E_FORMAT where a tensor is not as described. A label out of range and a scale in a tensor that is not finite
 * show when the operation runs: TENSOR_E_ARGUMENT, dx as it was, at once on the host and from the next wait elsewhere.
 */
typedef struct tensor_loss_options {
    double gradient_scale;               /* 0: 1 */
    const tensor *gradient_scale_tensor; /* f64 [1], read when the operation runs, in place of the number; NULL: none */
    /* Of cross-entropy. class_weights, f64 [classes] (NULL: 1 each): what a class counts, and a row by its label. */
    const tensor *class_weights;
    /* 0 to 1 (Szegedy et al. 2016, section 7): this part of a target goes to all classes alike. */
    float label_smoothing;
    int32_t ignored_label; /* rows of this label count nothing, where ignores is set; any number */
    bool ignores;
} tensor_loss_options;

/* Softmax with cross-entropy: x [N, classes], labels N entries in 0 ... classes - 1. The loss is the mean over N of
 * -log softmax(x)[label], its gradient (softmax - onehot) / N. predicted, i32 [N] (NULL: not wanted): the first largest
 * class of each row. correct, i32 [1] (NULL: not wanted): how many of these are the labels.
 *
 * With options: s the smoothing, K classes, w their weights, a row has the shares q[c] = w[c] ((1 - s) [c is the label]
 * + s / K) and the loss - sum of q[c] log softmax(x)[c], in which a class without a share takes no part; the mean
 * divides by the sum of w[label] of the rows that count. Where that is 0, as of a batch whose labels are all ignored,
 * loss and gradient are 0. predicted has every row; correct counts none that is ignored. */
FLEXLAB_API tensor_status tensor_cross_entropy(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                               const tensor *x, const tensor *labels, const tensor_loss_options *how)
    FLEXLAB_SYMBOL(tensor_cross_entropy);
/* The same with targets [N, classes] for the shares: q[c] = w[c] ((1 - s) targets[c] + s / K), any numbers; the mean
 * divides by N. No label is ignored. */
FLEXLAB_API tensor_status tensor_cross_entropy_targets(tensor *loss, tensor *dx, tensor *predicted, const tensor *x,
                                                       const tensor *targets, const tensor_loss_options *how)
    FLEXLAB_SYMBOL(tensor_cross_entropy_targets);
/* The mean over all elements of (x - target)^2. */
FLEXLAB_API tensor_status tensor_squared_error(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                               const tensor_loss_options *how) FLEXLAB_SYMBOL(tensor_squared_error);
/* The mean over all elements, d = x - target, of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2) (Huber 1964).
 * delta is a finite number above 0. */
FLEXLAB_API tensor_status tensor_huber(tensor *loss, tensor *dx, const tensor *x, const tensor *targets, float delta,
                                       const tensor_loss_options *how) FLEXLAB_SYMBOL(tensor_huber);
/* A critic's loss (Arjovsky et al. 2017, equation 3): the mean of x over the elements of rows of label 0, generated,
 * less that over rows of label 1, real; rows may be ignored. Its negative estimates the distance. A mean over no rows
 * is 0: with generated rows labelled 1 and no others, it is the loss of their generator. Shared-exponent formats: exact
 * sums, each rounded once to double. */
FLEXLAB_API tensor_status tensor_wasserstein(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                             const tensor_loss_options *how) FLEXLAB_SYMBOL(tensor_wasserstein);

#ifdef __cplusplus
}
#endif
#endif
