/* blocks_windows.h - gradients of convolutions and poolings, convolutions with an epilogue, shortcuts. Part of
 * tensor_blocks.h: building blocks of training, which may change between versions. */
#ifndef FLEXLAB_BLOCKS_WINDOWS_H
#define FLEXLAB_BLOCKS_WINDOWS_H

#include "flexlab/api.h"
#include "flexlab/blocks_products.h"
#include "flexlab/tensor_windows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The convolutions of tensor_windows.h with an epilogue (blocks_products.h); errors as of tensor_matmul_fused. */
FLEXLAB_API tensor_status tensor_conv2d_fused(tensor *y, const tensor *x, const tensor *w, const tensor_window *how,
                                              const tensor_epilogue *with);
FLEXLAB_API tensor_status tensor_conv_transpose2d_fused(tensor *y, const tensor *x, const tensor *w,
                                                        const tensor_window *how, const tensor_epilogue *with);
FLEXLAB_API tensor_status tensor_conv1d_fused(tensor *y, const tensor *x, const tensor *w, const tensor_window *how,
                                              const tensor_epilogue *with);
FLEXLAB_API tensor_status tensor_conv_transpose1d_fused(tensor *y, const tensor *x, const tensor *w,
                                                        const tensor_window *how, const tensor_epilogue *with);

/* Input and weight gradients; how is that of the forward call. Float formats sum in the order r, s, k (input gradient)
 * and n, p, q (weight gradient); k and c run within the group. */
FLEXLAB_API tensor_status tensor_conv2d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                   const tensor_window *how);
FLEXLAB_API tensor_status tensor_conv2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                    const tensor_window *how);
FLEXLAB_API tensor_status tensor_conv1d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                   const tensor_window *how);
FLEXLAB_API tensor_status tensor_conv1d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                    const tensor_window *how);
/* The input gradient of a transposed convolution is the convolution: dx[N,P,Q,K] from dy and w, sums over (r, s, c).
 * Its weight gradient is that of the convolution with x and dy exchanged: sums over (n, p, q). */
FLEXLAB_API tensor_status tensor_conv_transpose2d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                             const tensor_window *how);
FLEXLAB_API tensor_status tensor_conv_transpose2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                              const tensor_window *how);
FLEXLAB_API tensor_status tensor_conv_transpose1d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                             const tensor_window *how);
FLEXLAB_API tensor_status tensor_conv_transpose1d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                              const tensor_window *how);

/* The gradient of max pooling: each dy goes to the first largest element of its window in row-major order; x is the
 * forward input. */
FLEXLAB_API tensor_status tensor_maxpool2d_grad(tensor *dx, const tensor *dy, const tensor *x,
                                                const tensor_window *how);
FLEXLAB_API tensor_status tensor_maxpool1d_grad(tensor *dx, const tensor *dy, const tensor *x,
                                                const tensor_window *how);
/* The gradient of global average pooling: dx[n,h,w,c] = dy[n,c] / (H W). */
FLEXLAB_API tensor_status tensor_avgpool_global_grad(tensor *dx, const tensor *dy);
/* The gradient of average pooling: dx of a pixel is the sum, over the windows that contain it, of dy divided by the
 * divisor of that window's mean. Shared-exponent formats: the exact fraction, rounded once; TENSOR_E_ARGUMENT if the
 * divisors of all windows, which differ if padding does not count, have no common multiple up to 2^48 (windows up to 18
 * pixels wide always have one). Float formats: in double, window by window, line by line. */
FLEXLAB_API tensor_status tensor_avgpool2d_grad(tensor *dx, const tensor *dy, const tensor_window *how,
                                                bool padding_counts);
FLEXLAB_API tensor_status tensor_avgpool_adaptive_grad(tensor *dx, const tensor *dy);

/* Option-A shortcut (He et al. 2015): y[n,p,q,k] = x[n, p*stride, q*stride, k - pad] with pad = (K - C) / 2, zero
 * outside. y is [N, ceil(H/stride), ceil(W/stride), K], K >= C. stride is 1 to 2^20. */
FLEXLAB_API tensor_status tensor_shortcut_a(tensor *y, const tensor *x, int stride);
FLEXLAB_API tensor_status tensor_shortcut_a_grad(tensor *dx, const tensor *dy, int stride);

#ifdef __cplusplus
}
#endif
#endif
