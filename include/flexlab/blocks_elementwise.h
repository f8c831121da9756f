/* blocks_elementwise.h - gradients of elementwise operations; sums with relu. Part of tensor_blocks.h: building blocks
 * of training, which may change between versions. The conventions of tensor.h hold. */
#ifndef FLEXLAB_BLOCKS_ELEMENTWISE_H
#define FLEXLAB_BLOCKS_ELEMENTWISE_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The entries FL_MAP2_BLOCK, FL_MAP3_BLOCK and FL_REAL2... of ops.def, with the rules of tensor_elementwise.h.
 *
 * The gradient of a real function f is dx = dy f'(x), one exact product rounded once, of dy and the forward input:
 * tensor_gelu_grad(dx, dy, x), tensor_elu_grad(dx, dy, x, alpha), ... Scalars are those of the forward call. The
 * gradient of tensor_hardtanh is dy where alpha < x < beta, that of tensor_clamp where alpha <= x <= beta, else 0.
 *
 * tensor_relu_grad(dx, dy, y): dy where the result y is above 0, else 0. tensor_add_relu(y, a, b) is max(0, a + b);
 * tensor_add_relu_grad(dx, a, b, y) is a + b where y is above 0, else 0. */
#define FL_MAP2_BLOCK(id, CONSTANT, name, expr)                                                                        \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b);
#define FL_MAP3_BLOCK(id, CONSTANT, name, expr)                                                                        \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, const tensor *c);
#define FL_REAL2 FL_MAP2_BLOCK
#define FL_REAL2_SCALAR(id, CONSTANT, name, expr)                                                                      \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha);
#define FL_REAL2_SCALARS(id, CONSTANT, name, expr)                                                                     \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha, float beta);
#include "flexlab/ops.def"

#ifdef __cplusplus
}
#endif
#endif
