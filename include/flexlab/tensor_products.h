/* tensor_products.h - bias and matmul. Part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_PRODUCTS_H
#define FLEXLAB_TENSOR_PRODUCTS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[..., c] = x[..., c] + b[c], where b is [C] and C the last dimension of x. In place allowed. */
FLEXLAB_API tensor_status tensor_bias(tensor *y, const tensor *x, const tensor *b);

/* Matrix product: y[M,N] = a[M,K] b[K,N]. nt: b is [N,K], transposed. tn: a is [K,M], transposed.
 *
 * Different formats, in matmul, batched matmul, and the convolutions with their gradients (tensor_windows.h): the two
 * operands are either both mantissas, each under its own exponent, or both floats of any format; y, a bias and a
 * residual may have any format. The sums are those of the operands: exact integers, or the binary32 chain of the
 * operands' values, which a y in fp32 stores unchanged. Bias and residual are added exactly, or in binary32, and the
 * whole is rounded once to y (docs/semantics.md, Different formats). TENSOR_E_FORMAT for mantissas times
 * floats: use tensor_convert on one of them. TENSOR_E_UNSUPPORTED on a device other than the host, unless operands are
 * taken in blocks (tensor_class_find). Class fast has no kernels for different formats. */
FLEXLAB_API tensor_status tensor_matmul(tensor *y, const tensor *a, const tensor *b);
FLEXLAB_API tensor_status tensor_matmul_nt(tensor *y, const tensor *a, const tensor *b);
FLEXLAB_API tensor_status tensor_matmul_tn(tensor *y, const tensor *a, const tensor *b);

/* Batched matmul in one write: y[..., M, N] = a[..., M, K] b[..., K, N], with the same leading dimensions in all three.
 * nt: b is [..., N, K]; tn: a is [..., K, M]. Exactness is that of tensor_matmul; all of y has one exponent. The
 * gradients are batched matmuls too. */
FLEXLAB_API tensor_status tensor_matmul_batched(tensor *y, const tensor *a, const tensor *b);
FLEXLAB_API tensor_status tensor_matmul_batched_nt(tensor *y, const tensor *a, const tensor *b);
FLEXLAB_API tensor_status tensor_matmul_batched_tn(tensor *y, const tensor *a, const tensor *b);

#ifdef __cplusplus
}
#endif
#endif
