/* tensor_windows.h - convolution, transposed convolution, pooling. Part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_WINDOWS_H
#define FLEXLAB_TENSOR_WINDOWS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits: the largest stride, padding and dilation; the largest window of a pooling and the largest stride of a
 * shortcut. */
enum { TENSOR_WINDOW_STEP_LIMIT = 4095, TENSOR_WINDOW_LIMIT = 1 << 20 };

/* The geometry of windows on an image, down and across separately. All zero, or NULL: stride 1, no padding. Values
 * outside these ranges are TENSOR_E_ARGUMENT. Later versions may add members. */
typedef struct tensor_window {
    int window[2];  /* height and width of a pooling's window, 1 to 2^20; for a convolution the filters give them (0, or
                       the same numbers) */
    int stride[2];  /* down, across: 1 to 4095; 0 means 1 */
    int padding[4]; /* top, bottom, left, right: 0 to 4095 lines of zeros */
    int dilation[2]; /* distance in pixels between neighbouring positions of a window, 1 to 4095; 0 means 1 */
    int groups; /* convolutions: number of groups of channels and filters, each of which sees only its own; 0 means 1 */
    int output_padding[2]; /* transposed convolutions: additional lines at the bottom and right, fewer than the stride
                            */
} tensor_window;

/* The windows of functions of nn.h: the same for images, and a struct for sequences. */
typedef tensor_window tensor_window2d;
typedef struct tensor_window1d {
    int window, stride;
    int padding[2]; /* left, right */
    int dilation, groups, output_padding;
} tensor_window1d;

/* The first members of a window that is the same in both directions: (tensor_window){TENSOR_SQUARE(3, 1, 1), .groups =
 * 4}. For a convolution, side is 0. The macro evaluates each argument several times. (C++ before C++20 sets the members
 * instead.) */
#define TENSOR_SQUARE(side, step, margin)                                                                              \
    .window = {side, side}, .stride = {step, step}, .padding = {margin, margin, margin, margin}

/* --- convolution, images [N,H,W,C] -------------------------------------------------------------------------------- */

/* Convolution: x [N,H,W,C], w [K,R,S,C / groups], y [N,P,Q,K] with P = (H + top + bottom - dilation (R - 1) - 1) /
 * stride + 1 (rounded down), Q likewise. groups divides C and K: the K / groups filters of group i see the channels of
 * group i; groups = C is a depthwise convolution. Formats as for tensor_matmul. Float formats sum in the order r, s, c
 * within the group. */
FLEXLAB_API tensor_status tensor_conv2d(tensor *y, const tensor *x, const tensor *w, const tensor_window *how);

/* Transposed convolution (Dumoulin and Visin 2016, chapter 4): the input gradient of the convolution with filters w,
 * computed as a forward operation. x [N,P,Q,K], w [K,R,S,C / groups] (as in the convolution that maps y to x: K are the
 * channels of x, C those of y), y [N,H,W,C] with H = (P - 1) stride + dilation (R - 1) + 1 - top - bottom + output
 * padding, W likewise. That convolution maps `stride` different heights to P lines; output_padding chooses one of them.
 * Sums are over (r, s, k), k within the group: exact, or in this order. TENSOR_E_ARGUMENT if output_padding is not less
 * than the stride, TENSOR_E_SHAPE if padding leaves nothing. */
FLEXLAB_API tensor_status tensor_conv_transpose2d(tensor *y, const tensor *x, const tensor *w,
                                                  const tensor_window *how);

/* Sequences: x [N,W,C], N sequences of W positions with C channels, w [K,S,C / groups], y [N,Q,K], computed as images
 * of height 1 with the same sums, order and checks. The members across count (stride[1], padding[2] and padding[3]);
 * those down are 0. Causal: padding {0, 0, (S - 1) dilation, 0}, so that y[q] sees x up to position q. Transposed: x
 * [N,Q,K], y [N,W,C]. */
FLEXLAB_API tensor_status tensor_conv1d(tensor *y, const tensor *x, const tensor *w, const tensor_window *how);
FLEXLAB_API tensor_status tensor_conv_transpose1d(tensor *y, const tensor *x, const tensor *w,
                                                  const tensor_window *how);

/* --- pooling ------------------------------------------------------------------------------------------------------ */

/* Max pooling: the largest element of each window, channel by channel; y has as many windows as a convolution would.
 * Padding is never chosen; on each side it is less than the extent of a window, (window - 1) dilation + 1.
 * TENSOR_E_SHAPE if a window would see nothing but padding. */
FLEXLAB_API tensor_status tensor_maxpool2d(tensor *y, const tensor *x, const tensor_window *how);
/* The same for sequences, x [N,W,C], y [N,Q,C]; how as for tensor_conv1d. */
FLEXLAB_API tensor_status tensor_maxpool1d(tensor *y, const tensor *x, const tensor_window *how);
/* Global average pooling: y[N,C] is the mean of x [N,H,W,C] over H and W. */
FLEXLAB_API tensor_status tensor_avgpool_global(tensor *y, const tensor *x);
/* Average pooling: the mean of each window, channel by channel; as many windows as in max pooling, without dilation;
 * padding is less than the window. With padding_counts, padding counts as zeros, and every mean divides by the pixels
 * of a window (PyTorch's count_include_pad); without it, each mean divides by the pixels of the image in the window
 * (TensorFlow's SAME). Shared-exponent formats: the exact sum divided by the count, rounded once. Float formats:
 * binary32 chains of 512 pixels, line by line, added and divided in double. */
FLEXLAB_API tensor_status tensor_avgpool2d(tensor *y, const tensor *x, const tensor_window *how, bool padding_counts);
/* Adaptive average pooling: the shape of y [N,P,Q,C] gives the number of windows. Window p of P is lines floor(p H / P)
 * to ceil((p + 1) H / P) - 1 of x [N,H,W,C], columns likewise. Sides are at most 2^20. Exactness and errors are those
 * of tensor_avgpool2d. */
FLEXLAB_API tensor_status tensor_avgpool_adaptive(tensor *y, const tensor *x);

#ifdef __cplusplus
}
#endif
#endif
