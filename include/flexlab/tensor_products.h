/* tensor_products.h - bias and matmul. A part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_PRODUCTS_H
#define FLEXLAB_TENSOR_PRODUCTS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[..., c] = x[..., c] + b[c]. b is [C], C the last dimension of x. In place allowed. */
FLEXLAB_API tensor_status tensor_bias(tensor *y, const tensor *x, const tensor *b) FLEXLAB_SYMBOL(tensor_bias);

/* y[M,N] = a[M,K] b[K,N];  nt: b is [N,K], transposed;  tn: a is [K,M], transposed.
 *
 * Formats of matmul, of many matrices, and of the convolutions and their gradients (tensor_windows.h): both operands
 * have a shared exponent, each one of its own, or both are floats, each of any format; y, a bias and a residual may be
 * of any of the five. Sums are those of the operands: exact integers, or the binary32 chain of the operands' values,
 * which a y in fp32 holds as it is; what joins them does so exactly, or in binary32; and the whole is rounded once to y
 * (docs/semantics.md, Different formats). TENSOR_E_FORMAT for a shared exponent by a float: tensor_convert makes one of
 * the other; TENSOR_E_UNSUPPORTED on a device other than the host. Class fast has no kernels for that. */
FLEXLAB_API tensor_status tensor_matmul(tensor *y, const tensor *a, const tensor *b) FLEXLAB_SYMBOL(tensor_matmul);
FLEXLAB_API tensor_status tensor_matmul_nt(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_nt);
FLEXLAB_API tensor_status tensor_matmul_tn(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_tn);

/* Matmuls of matrices side by side, in one write: y[..., M, N] = a[..., M, K] b[..., K, N], the leading dimensions of
 * all three the same; nt: b is [..., N, K], tn: a is [..., K, M]. Exactness is that of tensor_matmul; one exponent for
 * all of y. The gradients are such matmuls too. */
FLEXLAB_API tensor_status tensor_matmul_batched(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_batched);
FLEXLAB_API tensor_status tensor_matmul_batched_nt(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_batched_nt);
FLEXLAB_API tensor_status tensor_matmul_batched_tn(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_batched_tn);

#ifdef __cplusplus
}
#endif
#endif
