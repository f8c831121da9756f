/* tensor_products.h - bias, matmul, convolution, and what joins their sums. A part of tensor.h, whose conventions hold.
 */
#ifndef FLEXLAB_TENSOR_PRODUCTS_H
#define FLEXLAB_TENSOR_PRODUCTS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[..., c] = x[..., c] + b[c], and max(0, that). b is [C], C the last dimension of x. In place allowed. */
FLEXLAB_API tensor_status tensor_bias(tensor *y, const tensor *x, const tensor *b) FLEXLAB_SYMBOL(tensor_bias);
FLEXLAB_API tensor_status tensor_bias_relu(tensor *y, const tensor *x, const tensor *b)
    FLEXLAB_SYMBOL(tensor_bias_relu);

/* y[M,N] = a[M,K] b[K,N];  nt: b is [N,K], transposed;  tn: a is [K,M], transposed.
 *
 * Formats of matmul, of many matrices, and of the convolutions and their gradients below: both operands have a shared
 * exponent, each one of its own, or both are floats, each of any format; y, a bias and a residual may be of any of the
 * five. Sums are those of the operands: exact integers, or the binary32 chain of the operands' values, which a y in
 * fp32 holds as it is; what joins them does so exactly, or in binary32; and the whole is rounded once to y
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

/* The largest stride, padding and dilation; the largest window of a pooling and stride of a shortcut. */
enum { TENSOR_WINDOW_STEP_LIMIT = 255, TENSOR_WINDOW_LIMIT = 1 << 20 };

/* The same in both directions, and on all sides: where that does not do, tensor_window2d. Values outside of these
 * ranges are TENSOR_E_ARGUMENT. */
typedef struct tensor_window {
    int window;   /* side of the square window of a pooling, 1 to 2^20; tensor_conv2d takes it from the filters */
    int stride;   /* 1 to 255 */
    int padding;  /* zeros on each side, 0 to 255 */
    int dilation; /* convolution only: pixels from one filter position to the next, 1 to 255; 0 means 1 */
    int groups;   /* convolution only: parts of the channels and of the filters that see only each other; 0 means 1 */
} tensor_window;

/* x [N,H,W,C], w [K,R,S,C / groups], y [N,P,Q,K] with P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1 (floor),
 * Q likewise. groups divides C and K: filters of group i, K / groups of them, see channels of group i. groups = C is a
 * depthwise convolution. The order of summation of float formats: forward r, s, c; input gradient r, s, k; weight
 * gradient n, p, q; c and k within the group. */
FLEXLAB_API tensor_status tensor_conv2d(tensor *y, const tensor *x, const tensor *w, tensor_window how)
    FLEXLAB_SYMBOL(tensor_conv2d);
FLEXLAB_API tensor_status tensor_conv2d_input_grad(tensor *dx, const tensor *dy, const tensor *w, tensor_window how)
    FLEXLAB_SYMBOL(tensor_conv2d_input_grad);
FLEXLAB_API tensor_status tensor_conv2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x, tensor_window how)
    FLEXLAB_SYMBOL(tensor_conv2d_weight_grad);

/* What joins the sums of a matmul or a convolution before they are stored: y = max(0, sums + bias + residual), each
 * part if it is there. bias (NULL: none) is [columns of y], or [filters]; residual (NULL: none) has the shape of y and
 * may be y itself, which is then read with its old exponent; max(0, .) if relu. One rounding of the whole:
 * shared-exponent formats round the exact sum of products, bias and residual; float formats compute the sum of products
 * as without, then add the bias, then the residual, each in binary32. Statistics are those of the one write. All zero:
 * as without. */
typedef struct tensor_epilogue {
    const tensor *bias;
    const tensor *residual;
    bool relu;
    unsigned char unused[7]; /* no padding at the end, which nobody would set */
} tensor_epilogue;

FLEXLAB_API tensor_status tensor_matmul_fused_sized(tensor *y, const tensor *a, const tensor *b,
                                                    const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_matmul_fused_sized);
FLEXLAB_API tensor_status tensor_matmul_nt_fused_sized(tensor *y, const tensor *a, const tensor *b,
                                                       const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_matmul_nt_fused_sized);
FLEXLAB_API tensor_status tensor_conv2d_fused_sized(tensor *y, const tensor *x, const tensor *w, tensor_window how,
                                                    const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv2d_fused_sized);
/* tensor_matmul, tensor_matmul_nt and tensor_conv2d with that; their shapes and errors, and TENSOR_E_SHAPE,
 * TENSOR_E_FORMAT or TENSOR_E_ARGUMENT where bias or residual do not suit y. */
static inline tensor_status tensor_matmul_fused(tensor *y, const tensor *a, const tensor *b, tensor_epilogue with) {
    return tensor_matmul_fused_sized(y, a, b, &with, sizeof with);
}
static inline tensor_status tensor_matmul_nt_fused(tensor *y, const tensor *a, const tensor *b, tensor_epilogue with) {
    return tensor_matmul_nt_fused_sized(y, a, b, &with, sizeof with);
}
static inline tensor_status tensor_conv2d_fused(tensor *y, const tensor *x, const tensor *w, tensor_window how,
                                                tensor_epilogue with) {
    return tensor_conv2d_fused_sized(y, x, w, how, &with, sizeof with);
}

#ifdef __cplusplus
}
#endif
#endif
