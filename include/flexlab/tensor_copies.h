/* tensor_copies.h - embedding; permutations, slices, concatenation. Part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_COPIES_H
#define FLEXLAB_TENSOR_COPIES_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- embedding ---------------------------------------------------------------------------------------------------- */

/* Embedding: row i of y, [..., n], is row indices[i] of table, [rows, n]; indices: i32, one for each row of y, on the
 * same device. The values of the table are stored as the results of any write. An index out of range is
 * TENSOR_E_ARGUMENT, at once on the host and from the next wait on another device; nothing is written. */
FLEXLAB_API tensor_status tensor_embedding(tensor *y, const tensor *table, const tensor *indices);

/* --- other orders of elements ------------------------------------------------------------------------------------- */

/* The functions below copy values exactly and store them as the results of any write: in shared-exponent formats at the
 * exponent of y, rounded if it is coarser. y is another tensor than the inputs. */

/* Permutation: dimension d of y is dimension order[d] of x; {1, 0} transposes a matrix. order has each dimension of x
 * once. The gradient is the inverse permutation. */
FLEXLAB_API tensor_status tensor_permute(tensor *y, const tensor *x, const int *order);
/* Slice: the indices first, first + 1, ... of dimension dim of x, as many as y has. */
FLEXLAB_API tensor_status tensor_slice(tensor *y, const tensor *x, int dim, int64_t first);
/* Concatenation: a, b and c (NULL: only a and b) one after the other along dimension dim, each with its own exponent,
 * in one write. The gradient of each is a slice. */
FLEXLAB_API tensor_status tensor_concat(tensor *y, const tensor *a, const tensor *b, const tensor *c, int dim);

/* y = x with contiguous elements; x may be a view with strides (tensor_new_strided). */
FLEXLAB_API tensor_status tensor_contiguous(tensor *y, const tensor *x);

#ifdef __cplusplus
}
#endif
#endif
