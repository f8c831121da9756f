/* tensor_elementwise.h - elementwise operations, declared from their list, ops.def; dropout. Part of tensor.h, whose
 * conventions hold. */
#ifndef FLEXLAB_TENSOR_ELEMENTWISE_H
#define FLEXLAB_TENSOR_ELEMENTWISE_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- elementwise operations: one entry of ops.def each ------------------------------------------------------------ */

/* ops.def lists the elementwise operations with their definitions: tensor_add(y, a, b), tensor_scale(y, x, alpha), ...
 * All operands have one shape and one format, and y may be any of the inputs. The result is the exact value, rounded
 * once, in shared-exponent formats, and the binary32 value, rounded once, in float formats. Gradients are in
 * blocks_elementwise.h.
 *
 * Real functions, the entries FL_REAL1... of ops.def, give the value of the real function at the element, rounded once,
 * in every format; docs/precision.md lists their errors. Examples: tensor_exp(y, x), tensor_gelu (x times the normal
 * distribution), tensor_gelu_tanh (its approximation), tensor_round (ties to even), tensor_leaky_relu(y, x, alpha),
 * where alpha is the slope below 0, tensor_elu(y, x, alpha). NaN, Inf and zeros follow the recommendations of IEEE 754;
 * at infinite x the result is the limit. For shared-exponent formats see docs/semantics.md.
 *
 * Bounds: tensor_clip(y, x, alpha) limits x to -alpha ... alpha, tensor_clamp(y, x, alpha, beta) to alpha ... beta.
 * tensor_hardtanh has the results of tensor_clamp; the two differ in the gradient where x is one of the bounds, which
 * is 0 for hardtanh and dy for clamp. tensor_clip_by and tensor_clip_weight (blocks_optimisers.h) are tensor_clip with
 * the bound in a tensor, and for the wide part of a weight.
 *
 * Scalars are finite; the alpha of tensor_clip is 0 or more, that of tensor_clamp and tensor_hardtanh at most beta.
 * Otherwise TENSOR_E_ARGUMENT. */
#define FL_MAP1(id, CONSTANT, name, expr) FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x);
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x, float alpha);
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x, float alpha, float beta);
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b);
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha);
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha, float beta);
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, const tensor *c);
#define FL_MAP2_BLOCK(id, CONSTANT, name, expr)
#define FL_MAP3_BLOCK(id, CONSTANT, name, expr)
#define FL_REAL2(id, CONSTANT, name, expr)
#define FL_REAL2_SCALAR(id, CONSTANT, name, expr)
#define FL_REAL2_SCALARS(id, CONSTANT, name, expr)
#include "flexlab/ops.def"

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* Dropout (Srivastava et al. 2014): element i of y is either 0 or x times 1 / (1 - p) (rounded to binary32), an exact
 * product rounded once. The element is preserved if its draw is at least p 2^32 (truncated); the draw is 32 bits of
 * Philox 4x32-10 with key = key, counter = (the bits of the double in step, i / 4), word = i mod 4. It depends on
 * nothing else, so that the same call on dy is the gradient, and no mask is stored. 0 <= p < 1. step: f64 [1] on the
 * device of x, read when the operation runs; a step that is not finite is detected only then: TENSOR_E_ARGUMENT,
 * nothing written. In place allowed. */
FLEXLAB_API tensor_status tensor_dropout(tensor *y, const tensor *x, float p, uint64_t key, const tensor *step);

#ifdef __cplusplus
}
#endif
#endif
