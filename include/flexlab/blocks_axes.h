/* blocks_axes.h - gradients of reductions, of broadcast operands and of choices. A part of tensor_blocks.h: building
 * blocks of training, which may change between versions. */
#ifndef FLEXLAB_BLOCKS_AXES_H
#define FLEXLAB_BLOCKS_AXES_H

#include "flexlab/api.h"
#include "flexlab/tensor_axes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gradients of reductions, dy of y's shape; x: the forward input. Of the sum: dy, at each of its terms. Of the
 * mean: dy / n, an exact quotient in shared-exponent formats, in double in float formats. Of max and min: dy at the
 * first largest (least), 0 elsewhere. Of the L1 norm: dy times the sign of x (0 where x is 0, NaN where x is NaN). Of
 * the L2 norm: (dy x) / norm in double, the norm being the root in double of the sum of squares of x anew (exact in
 * shared-exponent formats); 0 where the norm is 0. Each rounded once. */
FLEXLAB_API tensor_status tensor_reduce_sum_grad(tensor *dx, const tensor *dy, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_sum_grad);
FLEXLAB_API tensor_status tensor_reduce_mean_grad(tensor *dx, const tensor *dy, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_mean_grad);
FLEXLAB_API tensor_status tensor_reduce_max_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_max_grad);
FLEXLAB_API tensor_status tensor_reduce_min_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_min_grad);
FLEXLAB_API tensor_status tensor_reduce_l1_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_l1_grad);
FLEXLAB_API tensor_status tensor_reduce_l2_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_l2_grad);
/* The gradient of an operand of tensor_broadcast_add or tensor_broadcast_mul, summed over the dimensions that it was
 * repeated along: of the sum, dy; of the product, dy times the other operand. Shared-exponent formats: one exact sum,
 * rounded once. Float formats: chains as in tensor_reduce_sum, of products by fused multiply-adds. */
FLEXLAB_API tensor_status tensor_broadcast_add_grad(tensor *da, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_broadcast_add_grad);
FLEXLAB_API tensor_status tensor_broadcast_mul_grad(tensor *da, const tensor *dy, const tensor *b)
    FLEXLAB_SYMBOL(tensor_broadcast_mul_grad);

/* da = dy where mask is not 0 (marked false: where it is 0), else 0: the gradient of operand a (b) of tensor_where, of
 * dy's shape. That of a repeated operand is tensor_broadcast_add_grad of it. */
FLEXLAB_API tensor_status tensor_where_grad(tensor *da, const tensor *dy, const tensor *mask, bool marked)
    FLEXLAB_SYMBOL(tensor_where_grad);

#ifdef __cplusplus
}
#endif
#endif
