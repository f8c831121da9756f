/* blocks_optimisers.h - the operations of optimisers. Part of tensor_blocks.h: building blocks of training, which may
 * change between versions. */
#ifndef FLEXLAB_BLOCKS_OPTIMISERS_H
#define FLEXLAB_BLOCKS_OPTIMISERS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- stochastic gradient descent with momentum -------------------------------------------------------------------- */

/* v = momentum * v + g + weight_decay * w, one exact result rounded once. v and g count as stored; w counts as its wide
 * part if it has one. */
FLEXLAB_API tensor_status tensor_sgd_momentum(tensor *v, const tensor *g, const tensor *w, float momentum,
                                              float weight_decay);
/* w = w - rate * v, one exact result rounded once, into the wide part of w if there is one (the elements are then its
 * rounding), else into w. v counts as stored; w counts as its wide part if it has one. */
FLEXLAB_API tensor_status tensor_sgd_update(tensor *w, const tensor *v, float rate);
/* tensor_sgd_update with the rate in a tensor, f32 [1] on the device of w, which the update reads when it runs: later
 * loads into it, in the order of the queue, do not count. Same definition, same bits. A negative rate is allowed. A
 * rate that is not finite is detected only when the update runs: TENSOR_E_ARGUMENT, w unchanged, at once on the host
 * and from the next wait on another device. */
FLEXLAB_API tensor_status tensor_sgd_update_by(tensor *w, const tensor *v, const tensor *rate);

/* --- optimisers with more state than a velocity ------------------------------------------------------------------- */

/* Adam, AdamW, RMSProp, Adagrad and LAMB consist of the operations below; docs/training.md explains how. Their factors
 * are in a tensor f64 [rows, 4] on the device of the others, one row for each operation, which reads it when it runs: a
 * step of a network can then be recorded once and replayed with other numbers. In shared-exponent formats, factors must
 * be finite as binary32, else TENSOR_E_ARGUMENT when the operation runs, nothing written, at once on the host and from
 * the next wait on another device. Other errors: TENSOR_E_ARGUMENT for NULL, tensors on several devices, or a row that
 * does not exist; TENSOR_E_FORMAT or TENSOR_E_SHAPE if the operands differ in format or shape, or the factors are not
 * such a tensor. "Counts as its wide part" applies to an operand that has one. If the output is the first operand, the
 * operation writes its wide part, and the elements are the rounding of that. */

/* y = a p + b q + c w, where a, b, c are the first three numbers of the row as binary32: one exact result, rounded
 * once. p and w count as their wide parts, q as stored. w may be NULL: nothing is added. y may be p or q. With rounding
 * to nearest in 16 bits, y = a y + 0 with 0 < a < 1 stops moving below 1 / (2 (1 - a)) units in the last place, so a
 * moment needs a wide part or stochastic rounding. A factor of 0 times Inf is NaN, as in IEEE 754. */
FLEXLAB_API tensor_status tensor_combine(tensor *y, const tensor *p, const tensor *q, const tensor *w,
                                         const tensor *factors, int row);
/* r = sqrt(a r^2 + b (c g)^2), in double: x = c g, then a (r r) + b (x x), then the root (0 for a sum below zero), each
 * rounded once to double; the root is rounded once. r counts as its wide part, g as stored. In place only. A state that
 * would stop moving is refused with TENSOR_E_ARGUMENT: a 16-bit r without a wide part, except in shared-exponent
 * formats with stochastic rounding. */
FLEXLAB_API tensor_status tensor_root_mean(tensor *r, const tensor *g, const tensor *factors, int row);
/* y = a w + b m / (c r + d), in double: a w; b m; c r + d; the quotient; the sum; rounded once. Where b m is 0, y = a
 * w. w, m and r count as their wide parts; in a shared-exponent format r counts as at least one unit of its
 * representation: 2^-e, or 2^-(e + 16) for a wide part. y may be w. TENSOR_E_ARGUMENT if tensor_root_mean would refuse
 * r, or if m has a wide part and r has none. */
FLEXLAB_API tensor_status tensor_add_ratio(tensor *y, const tensor *w, const tensor *m, const tensor *r,
                                           const tensor *factors, int row);
/* sums[index] becomes the sum of the squares of x's elements as stored; sums is f64 of any shape. Shared-exponent
 * formats: exact, rounded once to double. Float formats: in double, in chunks of 4096 elements; in a chunk, element i
 * goes to chain i mod 8, and the eight chains are added as ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)); the chunks are
 * added in order. */
FLEXLAB_API tensor_status tensor_sum_squares(tensor *sums, int64_t index, const tensor *x);

/* tensor_clip with the limit, 0 or more, in a tensor, f32 [1], read as the rate of tensor_sgd_update_by. */
FLEXLAB_API tensor_status tensor_clip_by(tensor *y, const tensor *x, const tensor *limit);
/* Clips each element of w to +-limit, rounded once, in its wide part if there is one, of which the elements are then
 * the rounding. Elements within the limit preserve their value, down to the last place of the wide part at the exponent
 * of this write; tensor_clip of w into itself would reduce the wide part to the values of the elements. limit is 0 or
 * more. */
FLEXLAB_API tensor_status tensor_clip_weight(tensor *w, float limit);

typedef enum tensor_optimiser_kind {
    TENSOR_OPTIMISER_SGD = 0,
    TENSOR_OPTIMISER_ADAM = 1,
    TENSOR_OPTIMISER_ADAMW = 2,
    TENSOR_OPTIMISER_RMSPROP = 3,
    TENSOR_OPTIMISER_ADAGRAD = 4,
    TENSOR_OPTIMISER_LAMB = 5
} tensor_optimiser_kind;

/* The settings of an optimiser, from which the numbers of a step follow. */
typedef struct tensor_optimiser {
    tensor_optimiser_kind kind;
    float beta1, beta2; /* decay rates of the moment and of the mean square: 0 or more, below 1 */
    float epsilon;      /* 0 or more */
    float weight_decay; /* 0 or more */
    float clip_norm;    /* gradients are scaled down so that their common norm is at most this; 0: never */
    float momentum;     /* for SGD and RMSProp: 0 or more, below 1 */
} tensor_optimiser;

/* The rows of the numbers of a step, f64 [TENSOR_STEP_ROWS, 4]; docs/training.md has the formula of each. */
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

/* Sets the numbers before the first step. TENSOR_E_ARGUMENT if a setting is out of range. */
FLEXLAB_API tensor_status tensor_optimiser_begin(tensor *numbers, const tensor_optimiser *how);
/* Computes the numbers of the next step in one fixed sequence of double operations: each power by one more
 * multiplication, then all factors of the rows. rate: f32 [1], as for tensor_sgd_update_by. sums (NULL: no clipping):
 * f64, the squares of all gradients, which are added in order. */
FLEXLAB_API tensor_status tensor_optimiser_step(tensor *numbers, const tensor *rate, const tensor *sums);
/* tensor_optimiser_step for the gradients of a scaled loss and the sums of their squares: the factors divide by the
 * scale. scale: f64 [1], a power of two, which changes no rounding. The d of an optimiser whose decay is in the
 * gradient remains scaled, as the gradient is. SGD has three more rows, by which a velocity counts as its wide part
 * (docs/training.md). */
FLEXLAB_API tensor_status tensor_optimiser_step_scaled(tensor *numbers, const tensor *rate, const tensor *sums,
                                                       const tensor *scale);
/* The rate of LAMB: to, f32 [1], becomes rate * sqrt(sums[0] / sums[1]), roots and quotient in double; it becomes rate
 * if either sum is zero or NaN, or the result is not finite as binary32. sums, f64 [2], are the squares of a weight and
 * of its direction. */
FLEXLAB_API tensor_status tensor_trust_rate(tensor *to, const tensor *rate, const tensor *sums);

#ifdef __cplusplus
}
#endif
#endif
