/* blocks_axes.h - gradients of reductions, of broadcast operands and of choices. Part of tensor_blocks.h: building
 * blocks of training, which may change between versions. */
#ifndef FLEXLAB_BLOCKS_AXES_H
#define FLEXLAB_BLOCKS_AXES_H

#include "flexlab/api.h"
#include "flexlab/tensor_axes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients of reductions. dy has y's shape, x is the forward input; each result is rounded once.
 *  - sum: dy at each of its terms.
 *  - mean: dy / n, an exact quotient in shared-exponent formats, in double in float formats.
 *  - max and min: dy at the first largest (least) element, 0 elsewhere.
 *  - L1 norm: dy times the sign of x (0 where x is 0, NaN where x is NaN).
 *  - L2 norm: (dy x) / norm in double, 0 where the norm is 0; the norm is computed anew, as the root in double of the
 *    sum of squares of x (exact in shared-exponent formats). */
FLEXLAB_API tensor_status tensor_reduce_sum_grad(tensor *dx, const tensor *dy, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_mean_grad(tensor *dx, const tensor *dy, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_max_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_min_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_l1_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_l2_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes);
/* The gradient of an operand of tensor_broadcast_add or tensor_broadcast_mul, summed over the dimensions along which it
 * was repeated: the terms are dy for the sum, and dy times the other operand for the product. Shared-exponent formats:
 * one exact sum, rounded once. Float formats: chains as in tensor_reduce_sum, with fused multiply-adds for products. */
FLEXLAB_API tensor_status tensor_broadcast_add_grad(tensor *da, const tensor *dy);
FLEXLAB_API tensor_status tensor_broadcast_mul_grad(tensor *da, const tensor *dy, const tensor *b);

/* The gradient of operand a of tensor_where (marked true): da = dy where mask is not 0, else 0. That of operand b
 * (marked false): dy where mask is 0, else 0. da has dy's shape; for a broadcast operand, tensor_broadcast_add_grad of
 * that. */
FLEXLAB_API tensor_status tensor_where_grad(tensor *da, const tensor *dy, const tensor *mask, bool marked);

#ifdef __cplusplus
}
#endif
#endif
