/* tensor_copies.h - embedding; elements in another order. A part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_COPIES_H
#define FLEXLAB_TENSOR_COPIES_H

#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- embedding ---------------------------------------------------------------------------------------------------- */

/* Row i of y, [..., n], is row indices[i] of table, [rows, n]; indices: i32, one for each row of y, on the device of
 * the others. The values are those of the table, stored as the results of any write. An index out of range is
 * TENSOR_E_ARGUMENT, at once on the host and from the next wait elsewhere; nothing is written. */
FLEXLAB_API tensor_status tensor_embedding(tensor *y, const tensor *table, const tensor *indices)
    FLEXLAB_SYMBOL(tensor_embedding);

/* --- other orders of elements ------------------------------------------------------------------------------------- */

/* Values are copied exactly, and stored as the results of any write: in shared-exponent formats at the exponent of y,
 * rounded where it is coarser. y is another tensor than its inputs. */

/* Dimension d of y is dimension order[d] of x: a transpose is {1, 0}. order has each dimension of x once. The gradient
 * is the permutation back. */
FLEXLAB_API tensor_status tensor_permute(tensor *y, const tensor *x, const int *order) FLEXLAB_SYMBOL(tensor_permute);
/* The indices first, first + 1, ... of dimension dim of x, as many as y has. */
FLEXLAB_API tensor_status tensor_slice(tensor *y, const tensor *x, int dim, int64_t first) FLEXLAB_SYMBOL(tensor_slice);
/* a, b and c (NULL: two parts) one after the other along dimension dim, each with its own exponent, in one write. The
 * gradient of each part is a slice. */
FLEXLAB_API tensor_status tensor_concat(tensor *y, const tensor *a, const tensor *b, const tensor *c, int dim)
    FLEXLAB_SYMBOL(tensor_concat);

/* y = x, whose elements may lie at strides (tensor_new_strided), side by side. */
FLEXLAB_API tensor_status tensor_contiguous(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_contiguous);

#ifdef __cplusplus
}
#endif
#endif
