/* tensor_axes.h - sums and extremes over all, rows or any dimensions; operands that are repeated along dimensions. A
 * part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_AXES_H
#define FLEXLAB_TENSOR_AXES_H

#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- reductions --------------------------------------------------------------------------------------------------- */

/* y[c] = sum of x[..., c] over all leading dimensions; the gradient of a bias. */
FLEXLAB_API tensor_status tensor_sum_rows(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_sum_rows);
/* Sum and largest |x| of all elements. Shared-exponent formats: exact where it fits a double (53 bits). */
FLEXLAB_API tensor_status tensor_sum(double *sum, const tensor *x) FLEXLAB_SYMBOL(tensor_sum);
FLEXLAB_API tensor_status tensor_max_abs(double *maximum, const tensor *x) FLEXLAB_SYMBOL(tensor_max_abs);

/* Whether every element is finite; NULL: TENSOR_E_ARGUMENT. Integer formats hold nothing else. On the host. */
FLEXLAB_API tensor_status tensor_all_finite(bool *yes, const tensor *x) FLEXLAB_SYMBOL(tensor_all_finite);
/* y (FMT_U8, x's shape): 1 where the element is NaN, or infinite, else 0. x: any format, or numbers. On the host. */
FLEXLAB_API tensor_status tensor_isnan(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_isnan);
FLEXLAB_API tensor_status tensor_isinf(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_isinf);

/* --- reductions over any dimensions --------------------------------------------------------------------------------
 */

/* y is x summed (averaged, ...) over the dimensions in axes, bit d for dimension d. y has the other dimensions of x in
 * their order, or all of them with 1 in place of those in axes; [1] where none is left. No axes: each element is a sum
 * of one. y is another tensor than x, which may be a view with strides. Terms come in row-major order.
 *  - Shared-exponent formats: exact sums of mantissas; the mean is the exact quotient, the L2 norm the real square root
 *    of the exact sum of squares; each rounded once.
 *  - Float formats: binary32 chains of 512 terms, added in order in double (of squares: chains of doubles); mean and
 *    root in double, rounded to binary32 and then to the format. Over all but the last dimension, the bits of
 *    tensor_sum_rows.
 *  - max and min: the first largest (least) element; a NaN counts as larger (less) than anything. Sums with a NaN are
 *    NaN. */
FLEXLAB_API tensor_status tensor_reduce_sum(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_sum);
FLEXLAB_API tensor_status tensor_reduce_mean(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_mean);
FLEXLAB_API tensor_status tensor_reduce_max(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_max);
FLEXLAB_API tensor_status tensor_reduce_min(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_min);
/* The sum of |x|, and the square root of the sum of squares. */
FLEXLAB_API tensor_status tensor_reduce_l1(tensor *y, const tensor *x, unsigned axes) FLEXLAB_SYMBOL(tensor_reduce_l1);
FLEXLAB_API tensor_status tensor_reduce_l2(tensor *y, const tensor *x, unsigned axes) FLEXLAB_SYMBOL(tensor_reduce_l2);
/* index (FMT_I32, the shape of a reduction over that axis): where along the axis, from 0 on, the first largest element
 * of x is. A NaN counts as larger than anything. */
FLEXLAB_API tensor_status tensor_argmax(tensor *index, const tensor *x, int axis) FLEXLAB_SYMBOL(tensor_argmax);

/* --- operands of other shapes --------------------------------------------------------------------------------------
 */

/* y = a + b and y = a b, where a and b are repeated along dimensions: with the last dimensions aligned, each of their
 * sizes is that of y or 1, and missing ones count as 1. One exact result, rounded once. y is another tensor than a and
 * b, which may be views with strides. */
FLEXLAB_API tensor_status tensor_broadcast_add(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_broadcast_add);
FLEXLAB_API tensor_status tensor_broadcast_mul(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_broadcast_mul);
/* y = a where mask (FMT_U8) is not 0, b where it is. mask, a and b are repeated as above. Values are copied exactly and
 * stored as the results of any write. */
FLEXLAB_API tensor_status tensor_where(tensor *y, const tensor *mask, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_where);
#ifdef __cplusplus
}
#endif
#endif
