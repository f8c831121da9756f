/* tensor_axes.h - reductions of a whole tensor, of its rows, or over any dimensions; broadcast operands. Part of
 * tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_AXES_H
#define FLEXLAB_TENSOR_AXES_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- reductions --------------------------------------------------------------------------------------------------- */

/* y[c] = sum of x[..., c] over all leading dimensions: y is [C], where C is the last dimension of x. This is the
 * gradient of a bias. Shared-exponent formats: the exact sum, rounded once. Float formats: binary32 sums of 512 rows
 * each, added in order in double, then rounded to binary32 and to the format, as tensor_reduce_sum. y is another tensor
 * than x; TENSOR_E_SHAPE if y has another size, TENSOR_E_FORMAT if the formats differ. */
FLEXLAB_API tensor_status tensor_sum_rows(tensor *y, const tensor *x);
/* *sum is the sum of all elements of x, *maximum the largest |x|. Shared-exponent formats: exact if the result fits a
 * double (53 bits). The sum in float formats: binary32 sums of 512 rows for each channel, as in tensor_sum_rows, added
 * in order in double. x lies on the host, else TENSOR_E_UNSUPPORTED; TENSOR_E_ARGUMENT for NULL. */
FLEXLAB_API tensor_status tensor_sum(double *sum, const tensor *x);
FLEXLAB_API tensor_status tensor_max_abs(double *maximum, const tensor *x);

/* *yes: whether every element of x is finite. Integer formats hold only finite numbers. TENSOR_E_ARGUMENT for NULL. x
 * lies on the host. */
FLEXLAB_API tensor_status tensor_all_finite(bool *yes, const tensor *x);
/* y (FMT_U8, x's shape) is 1 where the element of x is NaN (isnan) or infinite (isinf), else 0. x has any format, or
 * holds numbers. Both lie on the host. */
FLEXLAB_API tensor_status tensor_isnan(tensor *y, const tensor *x);
FLEXLAB_API tensor_status tensor_isinf(tensor *y, const tensor *x);

/* --- reductions over any dimensions ------------------------------------------------------------------------------- */

/* y is x reduced (summed, averaged, ...) over the dimensions in axes, bit d for dimension d. y has the other dimensions
 * of x in their order, or all of them with 1 in place of those in axes; [1] if none is left. Without axes each element
 * is a sum of one term. y is another tensor than x, which may be a view with strides. Terms are taken in row-major
 * order.
 *  - Shared-exponent formats: exact sums of mantissas; the mean is the exact quotient, the L2 norm the real square root
 *    of the exact sum of squares; each rounded once.
 *  - Float formats: binary32 chains of 512 terms, added in order in double (for squares: chains in double); mean and
 *    root in double, rounded to binary32 and then to the format. Over all but the last dimension the bits are those of
 *    tensor_sum_rows.
 *  - max and min: the first largest (least) element; a NaN counts as larger (less) than anything. A sum with a NaN is
 *    NaN. */
FLEXLAB_API tensor_status tensor_reduce_sum(tensor *y, const tensor *x, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_mean(tensor *y, const tensor *x, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_max(tensor *y, const tensor *x, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_min(tensor *y, const tensor *x, unsigned axes);
/* The L1 norm, the sum of |x|, and the L2 norm, the square root of the sum of squares. */
FLEXLAB_API tensor_status tensor_reduce_l1(tensor *y, const tensor *x, unsigned axes);
FLEXLAB_API tensor_status tensor_reduce_l2(tensor *y, const tensor *x, unsigned axes);
/* index (FMT_I32, of the shape of a reduction over that axis) is the position along the axis, from 0, of the first
 * largest element of x. A NaN counts as larger than anything. */
FLEXLAB_API tensor_status tensor_argmax(tensor *index, const tensor *x, int axis);

/* --- operands of other shapes ------------------------------------------------------------------------------------- */

/* y = a + b and y = a b with broadcasting: with the last dimensions aligned, each size of a and b is that of y or 1,
 * and missing dimensions count as 1; a and b are repeated along them. One exact result, rounded once. y is another
 * tensor than a and b, which may be views with strides. */
FLEXLAB_API tensor_status tensor_broadcast_add(tensor *y, const tensor *a, const tensor *b);
FLEXLAB_API tensor_status tensor_broadcast_mul(tensor *y, const tensor *a, const tensor *b);
/* y = a where mask (FMT_U8) is not 0, and b where it is 0. mask, a and b are broadcast as above. Values are copied
 * exactly and stored as the results of any write. */
FLEXLAB_API tensor_status tensor_where(tensor *y, const tensor *mask, const tensor *a, const tensor *b);
#ifdef __cplusplus
}
#endif
#endif
