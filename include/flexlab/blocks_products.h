/* blocks_products.h - what joins the sums of a product before they are rounded. A part of tensor_blocks.h:
 * building blocks of training, which may change between versions. */
#ifndef FLEXLAB_BLOCKS_PRODUCTS_H
#define FLEXLAB_BLOCKS_PRODUCTS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[..., c] = max(0, x[..., c] + b[c]), as tensor_bias. */
FLEXLAB_API tensor_status tensor_bias_relu(tensor *y, const tensor *x, const tensor *b)
    FLEXLAB_SYMBOL(tensor_bias_relu);

/* What joins the sums of a matmul or a convolution before they are stored: y = max(0, sums + bias + residual), each
 * part if it is there. bias (NULL: none) is [columns of y], or [channels of y]; residual (NULL: none) has the shape of
 * y and may be y itself, which is then read with its old exponent; max(0, .) if relu. One rounding of the whole:
 * shared-exponent formats round the exact sum of products, bias and residual; float formats compute the sum of products
 * as without, then add the bias, then the residual, each in binary32. Statistics are those of the one write. All zero,
 * or NULL in its place: as without. */
typedef struct tensor_epilogue {
    const tensor *bias;
    const tensor *residual;
    bool relu;
} tensor_epilogue;

/* tensor_matmul and tensor_matmul_nt with that; their shapes and errors, and TENSOR_E_SHAPE, TENSOR_E_FORMAT or
 * TENSOR_E_ARGUMENT where bias or residual do not suit y. */
FLEXLAB_API tensor_status tensor_matmul_fused(tensor *y, const tensor *a, const tensor *b, const tensor_epilogue *with)
    FLEXLAB_SYMBOL(tensor_matmul_fused);
FLEXLAB_API tensor_status tensor_matmul_nt_fused(tensor *y, const tensor *a, const tensor *b,
                                                 const tensor_epilogue *with) FLEXLAB_SYMBOL(tensor_matmul_nt_fused);

#ifdef __cplusplus
}
#endif
#endif
