/* tensor_blocks.h - building blocks of training: gradients, parts of normalisations, cells, steps of optimisers. All of
 * it, in parts, each of which may be included alone. Other than tensor.h, it may change between versions. */
#ifndef FLEXLAB_TENSOR_BLOCKS_H
#define FLEXLAB_TENSOR_BLOCKS_H

#include "flexlab/blocks_losses.h" /* gradients of softmax */
#include "flexlab/blocks_norms.h"  /* moments, running statistics, gradients of normalisations */

#endif
