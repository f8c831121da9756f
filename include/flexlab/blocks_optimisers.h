/* blocks_optimisers.h - what optimisers compute. A part of tensor_blocks.h: building blocks of training, which may
 * change between versions. */
#ifndef FLEXLAB_BLOCKS_OPTIMISERS_H
#define FLEXLAB_BLOCKS_OPTIMISERS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- stochastic gradient descent with momentum -------------------------------------------------------------------- */

/* v = momentum * v + g + weight_decay * w, one exact result rounded once. v and g count as stored, w as its wide part
 * if it has one. */
FLEXLAB_API tensor_status tensor_sgd_momentum(tensor *v, const tensor *g, const tensor *w, float momentum,
                                              float weight_decay) FLEXLAB_SYMBOL(tensor_sgd_momentum);
/* w = w - rate * v, one exact result rounded once: into the wide part of w if there is one (the elements are then its
 * rounding), else into w. v counts as stored, w as its wide part if it has one. */
FLEXLAB_API tensor_status tensor_sgd_update(tensor *w, const tensor *v, float rate) FLEXLAB_SYMBOL(tensor_sgd_update);
/* The same with the rate in a tensor, f32 [1] on the device of w, which is read when the update runs: what is loaded
 * into it later, in the order of the queue, does not count. Same definition, same bits. A negative rate is arithmetic
 * as any other. One that is not finite shows only when the update runs: TENSOR_E_ARGUMENT, w as it was, at once on the
 * host and from the next wait elsewhere. */
FLEXLAB_API tensor_status tensor_sgd_update_by(tensor *w, const tensor *v, const tensor *rate)
    FLEXLAB_SYMBOL(tensor_sgd_update_by);

/* --- optimisers that keep more than a velocity ---------------------------------------------------------------------
 */

/* Adam, AdamW, RMSProp, Adagrad and LAMB are made of the operations below; docs/optimisers.md says how. Their factors
 * stand in a tensor f64 [rows, 4] on the device of the others, a row an operation, and are read when the operation
 * runs: a step of a network can then be recorded once and run again with other numbers. Shared-exponent formats want
 * factors that are finite as binary32: else TENSOR_E_ARGUMENT when the operation runs, nothing written, at once on the
 * host and from the next wait elsewhere. Other errors: TENSOR_E_ARGUMENT for NULL, tensors on several devices, a row
 * that is not there; TENSOR_E_FORMAT, TENSOR_E_SHAPE where the operands differ in format or shape, or the factors are
 * no such tensor. An operand that counts as its wide part does where it has one. An output that is the first operand
 * has its wide part written, of which the elements are the rounding. */

/* y = a p + b q + c w with a, b, c the first three numbers of the row as binary32: one exact result, rounded once. p
 * and w count as their wide parts, q as stored. w may be NULL: nothing is added. y may be p or q. Rounded to nearest in
 * 16 bits, y = a y + 0 with 0 < a < 1 stops below 1 / (2 (1 - a)) steps; a moment wants a wide part, or stochastic
 * rounding. A factor of 0 times Inf is NaN, as in IEEE 754. */
FLEXLAB_API tensor_status tensor_combine(tensor *y, const tensor *p, const tensor *q, const tensor *w,
                                         const tensor *factors, int row) FLEXLAB_SYMBOL(tensor_combine);
/* r = sqrt(a r^2 + b (c g)^2), in double: x = c g, then a (r r) + b (x x), then the root (0 of a sum below zero), each
 * rounded once to double; the root is rounded once. r counts as its wide part, g as stored. In place alone. A state
 * that stops moving is refused, TENSOR_E_ARGUMENT: r of 16 bits without a wide part, but in shared-exponent formats
 * with stochastic rounding. */
FLEXLAB_API tensor_status tensor_root_mean(tensor *r, const tensor *g, const tensor *factors, int row)
    FLEXLAB_SYMBOL(tensor_root_mean);
/* y = a w + b m / (c r + d), in double: a w; b m; c r + d; the quotient; the sum; rounded once. Where b m is 0: a w.
 * w, m and r count as their wide parts; in a shared-exponent format r as at least one step of what holds it, 2^-e or
 * 2^-(e + 16) of a wide part. y may be w. TENSOR_E_ARGUMENT where r is
 * refused as by tensor_root_mean, and where m has a wide part and r none. */
FLEXLAB_API tensor_status tensor_add_ratio(tensor *y, const tensor *w, const tensor *m, const tensor *r,
                                           const tensor *factors, int row) FLEXLAB_SYMBOL(tensor_add_ratio);
/* Number `index` of sums, f64 of any shape, becomes the sum of the squares of x's elements as stored. Shared-exponent
 * formats: exact, rounded once to double. Float formats: in double, by chunks of 4096 elements, which eight chains i
 * mod 8 make, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)); chunks are added in order. */
FLEXLAB_API tensor_status tensor_sum_squares(tensor *sums, int64_t index, const tensor *x)
    FLEXLAB_SYMBOL(tensor_sum_squares);

/* tensor_clip with the limit, 0 or more, in a tensor, f32 [1], as tensor_sgd_update_by has its rate. */
FLEXLAB_API tensor_status tensor_clip_by(tensor *y, const tensor *x, const tensor *limit)
    FLEXLAB_SYMBOL(tensor_clip_by);
/* Each element of w becomes the nearest number of at most `limit` in size, rounded once: its wide part, where there is
 * one, of which the elements are then the rounding. What is inside stays what it is, down to the last place of the wide
 * part at the exponent of this write; tensor_clip of w into itself would leave the wide part no more than the elements.
 * limit 0 or more. */
FLEXLAB_API tensor_status tensor_clip_weight(tensor *w, float limit) FLEXLAB_SYMBOL(tensor_clip_weight);

typedef enum tensor_optimiser_kind {
    TENSOR_OPTIMISER_SGD = 0,
    TENSOR_OPTIMISER_ADAM = 1,
    TENSOR_OPTIMISER_ADAMW = 2,
    TENSOR_OPTIMISER_RMSPROP = 3,
    TENSOR_OPTIMISER_ADAGRAD = 4,
    TENSOR_OPTIMISER_LAMB = 5
} tensor_optimiser_kind;

/* What the numbers of a step follow from. */
typedef struct tensor_optimiser {
    tensor_optimiser_kind kind;
    float beta1, beta2; /* 0 or more, below 1: of the moment and of the mean square */
    float epsilon;      /* 0 or more */
    float weight_decay; /* 0 or more */
    float clip_norm;    /* gradients are scaled down to this norm of all together; 0: never */
    float momentum;     /* of SGD and RMSProp: 0 or more, below 1 */
} tensor_optimiser;

/* Rows of the numbers of a step, f64 [TENSOR_STEP_ROWS, 4]: docs/optimisers.md has the formula of each. */
enum tensor_step_row {
    TENSOR_STEP_STATE = 0, /* steps so far, beta1^steps, beta2^steps, the factor of clipping */
    TENSOR_STEP_HOW = 1,   /* two rows: kind, beta1, beta2, epsilon; weight decay, norm, momentum, the last rate */
    TENSOR_STEP_MOMENT = 3,
    TENSOR_STEP_ROOT = 4,
    TENSOR_STEP_WEIGHT = 5,
    TENSOR_STEP_WEIGHT_UNDECAYED = 6, /* the same for parameters that do not decay */
    TENSOR_STEP_DIRECTION = 7,
    TENSOR_STEP_DIRECTION_UNDECAYED = 8,
    TENSOR_STEP_ROWS = 9
};

/* The numbers before the first step. TENSOR_E_ARGUMENT where a value is outside of its range. */
FLEXLAB_API tensor_status tensor_optimiser_begin(tensor *numbers, const tensor_optimiser *how)
    FLEXLAB_SYMBOL(tensor_optimiser_begin);
/* The numbers of the next step, in one fixed sequence of double operations: powers by one more multiplication, all
 * factors of the rows. rate: f32 [1], as of tensor_sgd_update_by. sums (NULL: nothing is clipped): f64, squares of all
 * gradients, which are added in order. */
FLEXLAB_API tensor_status tensor_optimiser_step(tensor *numbers, const tensor *rate, const tensor *sums)
    FLEXLAB_SYMBOL(tensor_optimiser_step);
/* The same for gradients of a loss times a scale, and sums of their squares: the factors take it out again. scale: f64
 * [1], a power of two, which leaves every rounding where it was. d of an optimiser whose decay is in the gradient stays
 * scaled, as the gradient is. SGD has three rows more, by which a velocity counts as its wide part
 * (docs/optimisers.md).
 */
FLEXLAB_API tensor_status tensor_optimiser_step_scaled(tensor *numbers, const tensor *rate, const tensor *sums,
                                                       const tensor *scale)
    FLEXLAB_SYMBOL(tensor_optimiser_step_scaled);
/* to, f32 [1], becomes rate * sqrt(sums[0] / sums[1]) by roots and quotient in double; rate where either sum is zero
 * or NaN, or the result is not finite as binary32. LAMB: sums (f64 [2]) are the squares of a weight and of its
 * direction. */
FLEXLAB_API tensor_status tensor_trust_rate(tensor *to, const tensor *rate, const tensor *sums)
    FLEXLAB_SYMBOL(tensor_trust_rate);

#ifdef __cplusplus
}
#endif
#endif
