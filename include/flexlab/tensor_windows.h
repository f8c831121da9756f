/* tensor_windows.h - windows: convolution, transposed convolution, pooling. A part of tensor.h, whose conventions hold.
 */
#ifndef FLEXLAB_TENSOR_WINDOWS_H
#define FLEXLAB_TENSOR_WINDOWS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest stride, padding and dilation; the largest window of a pooling and stride of a shortcut. */
enum { TENSOR_WINDOW_STEP_LIMIT = 4095, TENSOR_WINDOW_LIMIT = 1 << 20 };

/* How windows lie on an image, down and across each for itself. All zero, or NULL in its place: stride 1, no padding.
 * Values outside of these ranges are TENSOR_E_ARGUMENT. More fields may follow. */
typedef struct tensor_window {
    int window[2];         /* height and width of a pooling's window, 1 to 2^20; convolutions take them from the filters
                              (0, or the same numbers) */
    int stride[2];         /* down, across: 1 to 4095; 0 means 1 */
    int padding[4];        /* top, bottom, left, right: 0 to 4095 lines of zeros */
    int dilation[2];       /* pixels from one position of a window to the next, 1 to 4095; 0 means 1 */
    int groups;            /* of convolutions: parts of the channels and of the filters that see only each other; 0
                              means 1 */
    int output_padding[2]; /* of transposed convolutions: lines more at the bottom and right, less than the stride */
} tensor_window;

/* Windows as functions of nn.h take them: the same, and those of sequences. */
typedef tensor_window tensor_window2d;
typedef struct tensor_window1d {
    int window, stride;
    int padding[2]; /* left, right */
    int dilation, groups, output_padding;
} tensor_window1d;

/* The first fields where all is the same in both directions: (tensor_window){TENSOR_SQUARE(3, 1, 1), .groups = 4}. The
 * side of the window is 0 in a convolution. Each number is read several times. (C++ before 20 sets members.) */
#define TENSOR_SQUARE(side, step, margin)                                                                              \
    .window = {side, side}, .stride = {step, step}, .padding = {margin, margin, margin, margin}

/* --- convolution, images [N,H,W,C] -------------------------------------------------------------------------------- */

/* x [N,H,W,C], w [K,R,S,C / groups], y [N,P,Q,K] with P = (H + top + bottom - dilation (R - 1) - 1) / stride + 1
 * (floor), Q likewise. groups divides C and K: filters of group i, K / groups of them, see channels of group i. groups
 * = C is a depthwise convolution. Formats as of tensor_matmul. The order of summation of float formats is r, s, c
 * within the group. */
FLEXLAB_API tensor_status tensor_conv2d(tensor *y, const tensor *x, const tensor *w, const tensor_window *how)
    FLEXLAB_SYMBOL(tensor_conv2d);

/* Transposed convolution (Dumoulin and Visin 2016, chapter 4): the input gradient of the convolution with filters w,
 * computed as a forward operation. x [N,P,Q,K], w [K,R,S,C / groups] (as of the convolution that maps y to x: K are the
 * channels of x, C those of y), y [N,H,W,C] with H = (P - 1) stride + dilation (R - 1) + 1 - top - bottom + output
 * padding, W likewise: of the `stride` heights of which that convolution makes P lines, output_padding chooses one.
 * Sums are over (r, s, k), k within the group: exact, or in this order. TENSOR_E_ARGUMENT where output_padding is not
 * less than the stride, TENSOR_E_SHAPE where padding leaves nothing. */
FLEXLAB_API tensor_status tensor_conv_transpose2d(tensor *y, const tensor *x, const tensor *w, const tensor_window *how)
    FLEXLAB_SYMBOL(tensor_conv_transpose2d);

/* Sequences: x [N,W,C], N sequences of W places with C channels, w [K,S,C / groups], y [N,Q,K], computed as images of
 * height 1: same sums, order and checks. The numbers across count (stride[1], padding[2] and [3]); those down are 0.
 * Causal: padding {0, 0, (S - 1) dilation, 0}, y[q] then sees x up to place q. Transposed: x [N,Q,K], y [N,W,C]. */
FLEXLAB_API tensor_status tensor_conv1d(tensor *y, const tensor *x, const tensor *w, const tensor_window *how)
    FLEXLAB_SYMBOL(tensor_conv1d);
FLEXLAB_API tensor_status tensor_conv_transpose1d(tensor *y, const tensor *x, const tensor *w, const tensor_window *how)
    FLEXLAB_SYMBOL(tensor_conv_transpose1d);

/* --- pooling ------------------------------------------------------------------------------------------------------ */

/* The largest element of each window, channel by channel, in as many windows as a convolution has. Padding is never
 * chosen; on each side it is less than what a window reaches over, (window - 1) dilation + 1, and it is TENSOR_E_SHAPE
 * where a window would see nothing but padding. */
FLEXLAB_API tensor_status tensor_maxpool2d(tensor *y, const tensor *x, const tensor_window *how)
    FLEXLAB_SYMBOL(tensor_maxpool2d);
/* The same of sequences, x [N,W,C], y [N,Q,C]; how as of tensor_conv1d. */
FLEXLAB_API tensor_status tensor_maxpool1d(tensor *y, const tensor *x, const tensor_window *how)
    FLEXLAB_SYMBOL(tensor_maxpool1d);
/* y[N,C] = mean over H and W. */
FLEXLAB_API tensor_status tensor_avgpool_global(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_avgpool_global);
/* The mean of each window, channel by channel, as many windows as max pooling has, without dilation; padding is less
 * than the window. Padding counts, as zeros (every mean divides by the pixels of a window: PyTorch's
 * count_include_pad), or does not (it divides by the pixels of the image in the window: TensorFlow's SAME):
 * padding_counts says which. Shared-exponent formats: the exact sum divided by the count, rounded once. Float formats:
 * binary32 chains of 512 pixels, row by row, added and divided in double. */
FLEXLAB_API tensor_status tensor_avgpool2d(tensor *y, const tensor *x, const tensor_window *how, bool padding_counts)
    FLEXLAB_SYMBOL(tensor_avgpool2d);
/* Means of as many windows as y [N,P,Q,C] has: window p of P is lines floor(p H / P) to ceil((p + 1) H / P) - 1 of x
 * [N,H,W,C], columns likewise. Sides of at most 2^20. Exactness and errors are those of tensor_avgpool2d. */
FLEXLAB_API tensor_status tensor_avgpool_adaptive(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_avgpool_adaptive);

#ifdef __cplusplus
}
#endif
#endif
