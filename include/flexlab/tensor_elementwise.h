/* tensor_elementwise.h - one row of ops.def each; dropout. A part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_ELEMENTWISE_H
#define FLEXLAB_TENSOR_ELEMENTWISE_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- elementwise operations: one row of ops.def each -------------------------------------------------------------- */

/* Operands have one shape. tensor_add(y, a, b), tensor_scale(y, x, alpha), ...
 *
 * Real functions, the rows FL_REAL... of ops.def: the value of the real function at the element, rounded once, in every
 * format; docs/precision.md has their errors. tensor_exp(y, x), tensor_gelu (x times the normal distribution),
 * tensor_gelu_tanh (its approximation), tensor_round (ties to even), tensor_leaky_relu(y, x, slope below 0),
 * tensor_elu(y, x, alpha), tensor_hardtanh(y, x, least, largest), ... Their gradients dx = dy f'(x), one exact product
 * rounded once, take dy and the forward input: tensor_gelu_grad(dx, dy, x), tensor_elu_grad(dx, dy, x, alpha), ...
 * NaN, Inf and zeros: as IEEE 754 recommends, at infinite x the limit; in shared-exponent formats docs/semantics.md.
 * Scalars are finite; least (of hardtanh, clamp and their gradients) is at most largest, and tensor_clip(y, x, limit),
 * x within +-limit, takes a limit of 0 or more. */
#define FL_MAP1(id, CONSTANT, name, expr) FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x);
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x, float alpha);
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b);
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x, float alpha, float beta);
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha, float beta);
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha);
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, const tensor *c);
#include "flexlab/ops.def"

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* Dropout (Srivastava et al. 2014): element i of y is 0, or x times 1 / (1 - p) (rounded to binary32), an exact product
 * rounded once. It is kept where its draw, 32 bits of Philox 4x32-10 with key = key, counter = (the bits of the double
 * in step, i / 4), word = i mod 4, is at least p 2^32 (cut): by nothing else, so that the same call on dy is the
 * gradient, and no mask is stored. 0 <= p < 1. step: f64 [1] on the device of x, read when the operation runs; one that
 * is not finite shows only then: TENSOR_E_ARGUMENT, nothing written. In place allowed. */
FLEXLAB_API tensor_status tensor_dropout(tensor *y, const tensor *x, float p, uint64_t key, const tensor *step);

#ifdef __cplusplus
}
#endif
#endif
