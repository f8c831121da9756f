/* blocks_copies.h - gradients of copies. Part of tensor_blocks.h: building blocks of training, which may change between
 * versions. */
#ifndef FLEXLAB_BLOCKS_COPIES_H
#define FLEXLAB_BLOCKS_COPIES_H

#include "flexlab/api.h"
#include "flexlab/tensor_copies.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gradient of tensor_embedding: row r of dtable is the sum of the rows of dy whose index is r; 0 if there is none.
 * Shared-exponent formats: exact integer sums, one rounding, one exponent for the table. Float formats: binary32 chains
 * of 512 rows of dy, in the order of their positions, added in order in double. */
FLEXLAB_API tensor_status tensor_embedding_grad(tensor *dtable, const tensor *dy, const tensor *indices);
/* The gradient of tensor_slice: dy at the indices first, first + 1, ... of dimension dim, 0 elsewhere. */
FLEXLAB_API tensor_status tensor_slice_grad(tensor *dx, const tensor *dy, int dim, int64_t first);

#ifdef __cplusplus
}
#endif
#endif
