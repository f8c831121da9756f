/* blocks_products.h - matmul with bias, residual and relu in one operation. Part of tensor_blocks.h: building blocks of
 * training, which may change between versions. */
#ifndef FLEXLAB_BLOCKS_PRODUCTS_H
#define FLEXLAB_BLOCKS_PRODUCTS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[..., c] = max(0, x[..., c] + b[c]); otherwise as tensor_bias. */
FLEXLAB_API tensor_status tensor_bias_relu(tensor *y, const tensor *x, const tensor *b);

/* The epilogue of a matmul or a convolution, which is applied to the sums before they are stored: y = max(0, sums +
 * bias + residual), each part if it is given. bias (NULL: none) is [columns of y], or [channels of y]; residual (NULL:
 * none) has the shape of y and may be y itself, which is then read with its old exponent; relu applies max(0, .). The
 * whole is rounded once: shared-exponent formats round the exact sum of products, bias and residual; float formats
 * compute the sum of products as without an epilogue, then add the bias, then the residual, each in binary32.
 * Statistics are those of the one write. All zero, or NULL: no epilogue. */
typedef struct tensor_epilogue {
    const tensor *bias;
    const tensor *residual;
    bool relu;
} tensor_epilogue;

/* tensor_matmul and tensor_matmul_nt with an epilogue. Shapes and errors are those of these functions; TENSOR_E_SHAPE,
 * TENSOR_E_FORMAT or TENSOR_E_ARGUMENT also if bias or residual do not suit y. */
FLEXLAB_API tensor_status tensor_matmul_fused(tensor *y, const tensor *a, const tensor *b, const tensor_epilogue *with);
FLEXLAB_API tensor_status tensor_matmul_nt_fused(tensor *y, const tensor *a, const tensor *b,
                                                 const tensor_epilogue *with);

#ifdef __cplusplus
}
#endif
#endif
