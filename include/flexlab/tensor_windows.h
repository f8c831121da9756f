/* tensor_windows.h - pooling; convolution with windows of any shape, transposed and along one direction. A part of
 * tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_WINDOWS_H
#define FLEXLAB_TENSOR_WINDOWS_H

#include "flexlab/api.h"
#include "flexlab/tensor_products.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- pooling and shortcuts, images [N,H,W,C] ---------------------------------------------------------------------- */

/* Largest element of each window (padding is never chosen; padding < window). The gradient goes to the first largest
 * element of a window in row-major order; x is the forward input. */
FLEXLAB_API tensor_status tensor_maxpool2d(tensor *y, const tensor *x, tensor_window how)
    FLEXLAB_SYMBOL(tensor_maxpool2d);
FLEXLAB_API tensor_status tensor_maxpool2d_grad(tensor *dx, const tensor *dy, const tensor *x, tensor_window how)
    FLEXLAB_SYMBOL(tensor_maxpool2d_grad);
/* y[N,C] = mean over H and W; dx[n,h,w,c] = dy[n,c] / (H W). */
FLEXLAB_API tensor_status tensor_avgpool_global(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_avgpool_global);
FLEXLAB_API tensor_status tensor_avgpool_global_grad(tensor *dx, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_avgpool_global_grad);
/* The mean of each window x window pixels, channel by channel, as many windows as max pooling has; padding is less than
 * the window. Padding counts, as zeros (every mean divides by window^2: PyTorch's count_include_pad), or does not (it
 * divides by the pixels of the image in the window: TensorFlow's SAME): padding_counts says which. Shared-exponent
 * formats: the exact sum divided by the count, rounded once. Float formats: binary32 chains of 512 pixels, row by row,
 * added and divided in double. */
FLEXLAB_API tensor_status tensor_avgpool2d(tensor *y, const tensor *x, tensor_window how, bool padding_counts)
    FLEXLAB_SYMBOL(tensor_avgpool2d);
/* dx of a pixel: the sum over the windows that hold it of dy by what their means divide by. Shared-exponent formats:
 * the exact fraction, rounded once; TENSOR_E_ARGUMENT where the counts of all windows, which differ where padding does
 * not count, have no common multiple up to 2^48 (windows up to 18 pixels wide always have one). Float formats: in
 * double, window by window, row by row. */
FLEXLAB_API tensor_status tensor_avgpool2d_grad(tensor *dx, const tensor *dy, tensor_window how, bool padding_counts)
    FLEXLAB_SYMBOL(tensor_avgpool2d_grad);
/* Means of as many windows as y [N,P,Q,C] has: window p of P is lines floor(p H / P) to ceil((p + 1) H / P) - 1 of x
 * [N,H,W,C], columns likewise. Sides of at most 2^20. Exactness and errors are those of tensor_avgpool2d. */
FLEXLAB_API tensor_status tensor_avgpool_adaptive(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_avgpool_adaptive);
FLEXLAB_API tensor_status tensor_avgpool_adaptive_grad(tensor *dx, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_avgpool_adaptive_grad);
/* Option-A shortcut (He et al. 2015): y[n,p,q,k] = x[n, p*stride, q*stride, k - pad], pad = (K - C) / 2, zero outside.
 * y is [N, ceil(H/stride), ceil(W/stride), K], K >= C. stride 1 to 2^20. */
FLEXLAB_API tensor_status tensor_shortcut_a(tensor *y, const tensor *x, int stride) FLEXLAB_SYMBOL(tensor_shortcut_a);
FLEXLAB_API tensor_status tensor_shortcut_a_grad(tensor *dx, const tensor *dy, int stride)
    FLEXLAB_SYMBOL(tensor_shortcut_a_grad);

/* --- windows of any shape ----------------------------------------------------------------------------------------- */

/* The largest stride, padding and dilation of these; windows of a pooling have TENSOR_WINDOW_LIMIT as well. */
enum { TENSOR_WINDOW2D_STEP_LIMIT = 4095 };

/* Down and across each for itself. Values outside of these ranges are TENSOR_E_ARGUMENT. More fields may follow. */
typedef struct tensor_window2d {
    int window[2];         /* height and width of a pooling's window; convolutions take them from the filters (0, or
                              the same numbers) */
    int stride[2];         /* down, across: 1 to 4095 */
    int padding[4];        /* top, bottom, left, right: 0 to 4095 lines of zeros */
    int dilation[2];       /* pixels from one position of a window to the next, 1 to 4095; {0, 0} means {1, 1} */
    int groups;            /* of convolutions, as in tensor_window; 0 means 1 */
    int output_padding[2]; /* of transposed convolutions: lines more at the bottom and right, less than the stride */
} tensor_window2d;

/* The same along one direction, for [N,L,C]: N sequences of L places with C channels. */
typedef struct tensor_window1d {
    int window, stride;
    int padding[2]; /* left, right. Causal: {(S - 1) dilation, 0}, y[l] then sees x up to place l */
    int dilation, groups, output_padding;
} tensor_window1d;

/* tensor_conv2d, its gradients and tensor_maxpool2d with such windows: P = (H + top + bottom - dilation (R - 1) - 1) /
 * stride + 1 (floor), Q likewise; sums in the same order. A pooling may have a dilation here; its padding is less than
 * what a window reaches over, (window - 1) dilation + 1, on each side, and TENSOR_E_SHAPE where a window would see
 * nothing but padding. `with` as in tensor_conv2d_fused; {0}: nothing joins. */
FLEXLAB_API tensor_status tensor_conv2d_with_sized(tensor *y, const tensor *x, const tensor *w,
                                                   const tensor_window2d *how, size_t how_size,
                                                   const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv2d_with_sized);
static inline tensor_status tensor_conv2d_with(tensor *y, const tensor *x, const tensor *w, tensor_window2d how,
                                               tensor_epilogue with) {
    return tensor_conv2d_with_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv2d_input_grad_with_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                              const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv2d_input_grad_with_sized);
static inline tensor_status tensor_conv2d_input_grad_with(tensor *dx, const tensor *dy, const tensor *w,
                                                          tensor_window2d how) {
    return tensor_conv2d_input_grad_with_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv2d_weight_grad_with_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                               const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv2d_weight_grad_with_sized);
static inline tensor_status tensor_conv2d_weight_grad_with(tensor *dw, const tensor *dy, const tensor *x,
                                                           tensor_window2d how) {
    return tensor_conv2d_weight_grad_with_sized(dw, dy, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool2d_with_sized(tensor *y, const tensor *x, const tensor_window2d *how,
                                                      size_t how_size) FLEXLAB_SYMBOL(tensor_maxpool2d_with_sized);
static inline tensor_status tensor_maxpool2d_with(tensor *y, const tensor *x, tensor_window2d how) {
    return tensor_maxpool2d_with_sized(y, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool2d_grad_with_sized(tensor *dx, const tensor *dy, const tensor *x,
                                                           const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_maxpool2d_grad_with_sized);
static inline tensor_status tensor_maxpool2d_grad_with(tensor *dx, const tensor *dy, const tensor *x,
                                                       tensor_window2d how) {
    return tensor_maxpool2d_grad_with_sized(dx, dy, x, &how, sizeof how);
}

/* Transposed convolution (Dumoulin and Visin 2016, chapter 4): the input gradient of the convolution with filters w,
 * computed as a forward operation. x [N,P,Q,K], w [K,R,S,C / groups] (as of the convolution that maps y to x: K are the
 * channels of x, C those of y), y [N,H,W,C] with H = (P - 1) stride + dilation (R - 1) + 1 - top - bottom + output
 * padding, W likewise: of the `stride` heights of which that convolution makes P lines, output_padding chooses one.
 * Sums are over (r, s, k), k within the group: exact, or in this order, as of tensor_conv2d_input_grad. What joins them
 * is that of tensor_conv2d_fused, bias [C]. TENSOR_E_ARGUMENT where output_padding is not less than the stride,
 * TENSOR_E_SHAPE where padding leaves nothing.
 *
 * Its input gradient is the convolution: dx[N,P,Q,K] from dy and w, sums over (r, s, c). Its weight gradient is that of
 * the convolution with x and dy in each other's place: sums over (n, p, q). */
FLEXLAB_API tensor_status tensor_conv_transpose2d_sized(tensor *y, const tensor *x, const tensor *w,
                                                        const tensor_window2d *how, size_t how_size,
                                                        const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose2d_sized);
static inline tensor_status tensor_conv_transpose2d(tensor *y, const tensor *x, const tensor *w, tensor_window2d how,
                                                    tensor_epilogue with) {
    return tensor_conv_transpose2d_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv_transpose2d_input_grad_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                                   const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose2d_input_grad_sized);
static inline tensor_status tensor_conv_transpose2d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                               tensor_window2d how) {
    return tensor_conv_transpose2d_input_grad_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv_transpose2d_weight_grad_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                                    const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose2d_weight_grad_sized);
static inline tensor_status tensor_conv_transpose2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                                tensor_window2d how) {
    return tensor_conv_transpose2d_weight_grad_sized(dw, dy, x, &how, sizeof how);
}

/* Sequences: x [N,L,C], w [K,S,C / groups], y [N,M,K], computed as images of height 1: same sums, order and checks.
 * tensor_conv_transpose1d: x [N,M,K], y [N,L,C]. tensor_maxpool1d: y [N,M,C]. */
FLEXLAB_API tensor_status tensor_conv1d_sized(tensor *y, const tensor *x, const tensor *w, const tensor_window1d *how,
                                              size_t how_size, const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv1d_sized);
static inline tensor_status tensor_conv1d(tensor *y, const tensor *x, const tensor *w, tensor_window1d how,
                                          tensor_epilogue with) {
    return tensor_conv1d_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv1d_input_grad_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                         const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv1d_input_grad_sized);
static inline tensor_status tensor_conv1d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                     tensor_window1d how) {
    return tensor_conv1d_input_grad_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv1d_weight_grad_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                          const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv1d_weight_grad_sized);
static inline tensor_status tensor_conv1d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                      tensor_window1d how) {
    return tensor_conv1d_weight_grad_sized(dw, dy, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv_transpose1d_sized(tensor *y, const tensor *x, const tensor *w,
                                                        const tensor_window1d *how, size_t how_size,
                                                        const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose1d_sized);
static inline tensor_status tensor_conv_transpose1d(tensor *y, const tensor *x, const tensor *w, tensor_window1d how,
                                                    tensor_epilogue with) {
    return tensor_conv_transpose1d_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv_transpose1d_input_grad_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                                   const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose1d_input_grad_sized);
static inline tensor_status tensor_conv_transpose1d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                               tensor_window1d how) {
    return tensor_conv_transpose1d_input_grad_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv_transpose1d_weight_grad_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                                    const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose1d_weight_grad_sized);
static inline tensor_status tensor_conv_transpose1d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                                tensor_window1d how) {
    return tensor_conv_transpose1d_weight_grad_sized(dw, dy, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool1d_sized(tensor *y, const tensor *x, const tensor_window1d *how,
                                                 size_t how_size) FLEXLAB_SYMBOL(tensor_maxpool1d_sized);
static inline tensor_status tensor_maxpool1d(tensor *y, const tensor *x, tensor_window1d how) {
    return tensor_maxpool1d_sized(y, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool1d_grad_sized(tensor *dx, const tensor *dy, const tensor *x,
                                                      const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_maxpool1d_grad_sized);
static inline tensor_status tensor_maxpool1d_grad(tensor *dx, const tensor *dy, const tensor *x, tensor_window1d how) {
    return tensor_maxpool1d_grad_sized(dx, dy, x, &how, sizeof how);
}

#ifdef __cplusplus
}
#endif
#endif
