/* tensor_losses.h - softmax, cross-entropy and other losses. A part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_LOSSES_H
#define FLEXLAB_TENSOR_LOSSES_H

#include "flexlab/api.h"
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
/* dx = scale y (dy - sum of y dy), from y as stored. Shared-exponent formats: exact, rounded once. Float formats: in
 * double. What is masked is 0. */
FLEXLAB_API tensor_status tensor_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale, bool causal)
    FLEXLAB_SYMBOL(tensor_softmax_grad);
/* y = scale x - log of sum of exp(scale x), and dx = scale (dy - exp(y) sum of dy); in double, rounded once. */
FLEXLAB_API tensor_status tensor_log_softmax(tensor *y, const tensor *x, float scale)
    FLEXLAB_SYMBOL(tensor_log_softmax);
FLEXLAB_API tensor_status tensor_log_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale)
    FLEXLAB_SYMBOL(tensor_log_softmax_grad);

/* --- softmax with cross-entropy ----------------------------------------------------------------------------------- */

/* x [N, classes], labels N entries in 0 ... classes-1. loss: mean over N of -log softmax(x)[label]. dx (NULL: not
 * wanted): gradient_scale * (softmax - onehot) / N. predicted (NULL: not wanted): the first largest class of each row.
 * Computed in double by a fixed sequence of IEEE operations, dx rounded once. */
FLEXLAB_API tensor_status tensor_softmax_cross_entropy(double *loss, tensor *dx, int32_t *predicted, const tensor *x,
                                                       const int32_t *labels, double gradient_scale)
    FLEXLAB_SYMBOL(tensor_softmax_cross_entropy);

/* tensor_softmax_cross_entropy with tensors of FMT_F64 and FMT_I32 on the device of the others in place of host arrays:
 * a training step then hands nothing to the host. Same definition, same bits. loss: f64 [1]; labels, predicted (NULL:
 * not wanted): i32 [N]; correct (NULL: not wanted): i32 [1], how many of the predicted classes are the labels. */
FLEXLAB_API tensor_status tensor_cross_entropy(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                               const tensor *x, const tensor *labels, double gradient_scale)
    FLEXLAB_SYMBOL(tensor_cross_entropy);
/* With the gradient scale in a tensor too, f64 [1], read when the operation runs. One that is not finite shows only
 * then: TENSOR_E_ARGUMENT, nothing written, at once on the host and from the next wait elsewhere. */
FLEXLAB_API tensor_status tensor_cross_entropy_by(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                                  const tensor *x, const tensor *labels, const tensor *gradient_scale)
    FLEXLAB_SYMBOL(tensor_cross_entropy_by);

/* --- losses --------------------------------------------------------------------------------------------------------
 */

/* Losses over x, in double by a fixed sequence (docs/training.md), the same bits on every backend. loss: f64 [1]. dx
 * (NULL: not wanted): the gradient of gradient_scale times the loss, of x's format and shape, rounded once; dx may be
 * x. labels: i32, one a row, x's first dimension. targets: of x's shape, in its format or as numbers of f64 or f32. All
 * on one device. Errors: TENSOR_E_ARGUMENT for NULL, a scale that is not finite, an option that the loss has not, or is
 * out of range; TENSOR_E_SHAPE and TENSOR_E_FORMAT where a tensor is not as described. A label out of range and a scale
 * in a tensor that is not finite show when the operation runs: TENSOR_E_ARGUMENT, dx as it was, at once on the host and
 * from the next wait elsewhere. */
typedef struct tensor_loss_options {
    const tensor *gradient_scale; /* f64 [1], read when the operation runs, in place of the number; NULL: the number */
    /* Of cross-entropy, all zero: none. class_weights, f64 [classes]: what a class counts, and a row by its label. */
    const tensor *class_weights;
    float
        label_smoothing; /* 0 to 1 (Szegedy et al. 2016, section 7): this part of a target goes to all classes alike */
    int32_t ignored_label; /* rows of this label count nothing, where ignores is set; any number */
    bool ignores;
    unsigned char unused[7]; /* no padding at the end, which nobody would set */
} tensor_loss_options;

FLEXLAB_API tensor_status tensor_cross_entropy_with_sized(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                                          const tensor *x, const tensor *labels, double gradient_scale,
                                                          const tensor_loss_options *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_cross_entropy_with_sized);
/* tensor_cross_entropy with options, its bits where none is set. x [N, classes]. With s the smoothing, K classes, w
 * their weights, a row has the shares q[c] = w[c] ((1 - s) [c is the label] + s / K) and the loss - sum of q[c]
 * log softmax(x)[c], in which a class without a share takes no part; the mean divides by the sum of w[label] of the
 * rows that count. Where that is 0, as of a batch whose labels are all ignored, loss and gradient are 0. predicted has
 * every row; correct counts none that is ignored. */
static inline tensor_status tensor_cross_entropy_with(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                                      const tensor *x, const tensor *labels, double gradient_scale,
                                                      tensor_loss_options how) {
    return tensor_cross_entropy_with_sized(loss, dx, predicted, correct, x, labels, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_cross_entropy_targets_sized(tensor *loss, tensor *dx, tensor *predicted,
                                                             const tensor *x, const tensor *targets,
                                                             double gradient_scale, const tensor_loss_options *how,
                                                             size_t how_size)
    FLEXLAB_SYMBOL(tensor_cross_entropy_targets_sized);
/* The same with targets [N, classes] for the shares: q[c] = w[c] ((1 - s) targets[c] + s / K), any numbers; the mean
 * divides by N. No label is ignored. */
static inline tensor_status tensor_cross_entropy_targets(tensor *loss, tensor *dx, tensor *predicted, const tensor *x,
                                                         const tensor *targets, double gradient_scale,
                                                         tensor_loss_options how) {
    return tensor_cross_entropy_targets_sized(loss, dx, predicted, x, targets, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_squared_error_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                                     double gradient_scale, const tensor_loss_options *how,
                                                     size_t how_size) FLEXLAB_SYMBOL(tensor_squared_error_sized);
/* The mean over all elements of (x - target)^2. */
static inline tensor_status tensor_squared_error(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                                 double gradient_scale, tensor_loss_options how) {
    return tensor_squared_error_sized(loss, dx, x, targets, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_huber_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                             float delta, double gradient_scale, const tensor_loss_options *how,
                                             size_t how_size) FLEXLAB_SYMBOL(tensor_huber_sized);
/* The mean over all elements, d = x - target, of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2) (Huber 1964).
 * delta above 0. */
static inline tensor_status tensor_huber(tensor *loss, tensor *dx, const tensor *x, const tensor *targets, float delta,
                                         double gradient_scale, tensor_loss_options how) {
    return tensor_huber_sized(loss, dx, x, targets, delta, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_wasserstein_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                                   double gradient_scale, const tensor_loss_options *how,
                                                   size_t how_size) FLEXLAB_SYMBOL(tensor_wasserstein_sized);
/* A critic's loss (Arjovsky et al. 2017, equation 3): the mean of x over the elements of rows of label 0, generated,
 * less that over rows of label 1, real; rows may be ignored. Its negative estimates the distance. A mean over no rows
 * is 0: with generated rows labelled 1 and no others, it is the loss of their generator. Shared-exponent formats: exact
 * sums, each rounded once to double. */
static inline tensor_status tensor_wasserstein(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                               double gradient_scale, tensor_loss_options how) {
    return tensor_wasserstein_sized(loss, dx, x, labels, gradient_scale, &how, sizeof how);
}

#ifdef __cplusplus
}
#endif
#endif
