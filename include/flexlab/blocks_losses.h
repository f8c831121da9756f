/* blocks_losses.h - gradients of softmax and its logarithm. Part of tensor_blocks.h: building blocks of training, which
 * may change between versions. The conventions of tensor.h hold. */
#ifndef FLEXLAB_BLOCKS_LOSSES_H
#define FLEXLAB_BLOCKS_LOSSES_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gradient of tensor_softmax: dx = scale y (dy - sum of y dy), from y as stored; 0 at masked elements.
 * Shared-exponent formats: exact, rounded once. Float formats: in double. */
FLEXLAB_API tensor_status tensor_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale, bool causal);
/* The gradient of tensor_log_softmax: dx = scale (dy - exp(y) sum of dy), from y as stored, in double, rounded once. In
 * place allowed. */
FLEXLAB_API tensor_status tensor_log_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale);

#ifdef __cplusplus
}
#endif
#endif
