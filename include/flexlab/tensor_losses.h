/* tensor_losses.h - softmax, cross-entropy and other losses. Part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_LOSSES_H
#define FLEXLAB_TENSOR_LOSSES_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- softmax of rows ---------------------------------------------------------------------------------------------- */

/* Softmax: y = exp(scale x) / sum of exp(scale x) over the last dimension, which has fewer than 2^31 elements. causal:
 * the last two dimensions are [q, n], and row i of the q rows uses only the elements 0 ... i + n - q; the function does
 * not read the others, and y is 0 there (a row without elements is all 0). Computed in double by a fixed sequence of
 * IEEE operations and rounded once. In place allowed. A shared-exponent y takes its exponent as in any write; to fix it
 * at 14, which suits probabilities: tensor_set_predictor(y, "fixed") and tensor_set_exponent(y, 14). */
FLEXLAB_API tensor_status tensor_softmax(tensor *y, const tensor *x, float scale, bool causal);
/* Logarithm of softmax: y = scale x - log(sum of exp(scale x)), in double, rounded once. In place allowed. */
FLEXLAB_API tensor_status tensor_log_softmax(tensor *y, const tensor *x, float scale);

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* Options of the losses. Every loss is computed over x in double by a fixed sequence (docs/training.md), with the same
 * bits on every backend, into loss, f64 [1]. dx (NULL: not wanted) is the gradient of the loss times the scale that the
 * options give, of x's format and shape, rounded once; dx may be x or targets. labels: i32, one for each row (x's first
 * dimension). targets: of x's shape, in its format or as numbers of f64 or f32. All tensors lie on one device. how NULL
 * or zero: the loss without options.
 *
 * Errors: TENSOR_E_ARGUMENT for NULL, a scale that is not finite, and an option that the loss does not have or that is
 * out of range; TENSOR_E_SHAPE and TENSOR_E_FORMAT for a tensor that is not as described. A label out of range, and a
 * scale in a tensor that is not finite, are detected when the operation runs: TENSOR_E_ARGUMENT, dx unchanged, at once
 * on the host and from the next wait on another device. */
typedef struct tensor_loss_options {
    double gradient_scale;               /* 0: 1 */
    const tensor *gradient_scale_tensor; /* f64 [1], read when the operation runs, replaces the number; NULL: none */
    /* The members below are for cross-entropy. class_weights, f64 [classes] (NULL: 1 each): the weight of each class,
     * and of a row by its label. */
    const tensor *class_weights;
    /* 0 to 1 (Szegedy et al. 2016, section 7): the share of a target that is spread evenly over all classes. */
    float label_smoothing;
    int32_t ignored_label; /* if ignores is set, rows with this label count nothing; any number */
    bool ignores;
} tensor_loss_options;

/* Softmax with cross-entropy: x [N, classes], labels N entries in 0 ... classes - 1. The loss is the mean over N of
 * -log softmax(x)[label], its gradient (softmax - onehot) / N. predicted, i32 [N] (NULL: not wanted): the first largest
 * class of each row. correct, i32 [1] (NULL: not wanted): how many of these equal the label.
 *
 * With options: let s be the smoothing, K the number of classes and w their weights. A row has the shares q[c] = w[c]
 * ((1 - s) [c is the label] + s / K) and the loss -(sum of q[c] log softmax(x)[c]), in which a class without a share
 * takes no part; the mean divides by the sum of w[label] over the rows that count. If that sum is 0, as in a batch
 * whose labels are all ignored, loss and gradient are 0. predicted has every row; correct counts no ignored row. */
FLEXLAB_API tensor_status tensor_cross_entropy(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                               const tensor *x, const tensor *labels, const tensor_loss_options *how);
/* Cross-entropy with targets [N, classes] instead of labels: q[c] = w[c] ((1 - s) targets[c] + s / K), any numbers; the
 * mean divides by N. No row is ignored. */
FLEXLAB_API tensor_status tensor_cross_entropy_targets(tensor *loss, tensor *dx, tensor *predicted, const tensor *x,
                                                       const tensor *targets, const tensor_loss_options *how);
/* Mean squared error: the mean over all elements of (x - target)^2. */
FLEXLAB_API tensor_status tensor_squared_error(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                               const tensor_loss_options *how);
/* Huber loss (Huber 1964): with d = x - target, the mean over all elements of d^2 / 2 where |d| <= delta, and of delta
 * (|d| - delta / 2) elsewhere. delta is a finite number above 0. */
FLEXLAB_API tensor_status tensor_huber(tensor *loss, tensor *dx, const tensor *x, const tensor *targets, float delta,
                                       const tensor_loss_options *how);
/* Loss of a critic (Arjovsky et al. 2017, equation 3): the mean of x over the elements of rows with label 0 (generated)
 * minus that over rows with label 1 (real); rows may be ignored. Its negative estimates the distance. A mean over no
 * rows is 0: with generated rows labelled 1 and no others, it is the loss of their generator. Shared-exponent formats:
 * exact sums, each rounded once to double. */
FLEXLAB_API tensor_status tensor_wasserstein(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                             const tensor_loss_options *how);

#ifdef __cplusplus
}
#endif
#endif
