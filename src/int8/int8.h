/* int8.h - inference on 8-bit integers: sums that are exact, and one of five named ways to round them.
 *
 * A quantised tensor stores q, an int8 or a uint8, for the real number scale * (q - zero). Operations here work on
 * plain numbers and pointers; images are [N, H, W, C]. Every operation gives the same bits for every number of threads
 * and every instruction set, and an image's result depends on no other image of the batch.
 *
 * Roundings. With acc the exact sum of (q_x - z_x)(q_w - z_w) and M = s_x s_w / s_y:
 *
 *   exact           q = z_y + nearest(acc M + bias M + (q_r - z_r) s_r / s_y), ties to even, rounded once. M and s_r /
 * s_y are rounded to coefficients of 31 bits with an exponent beforehand; all else is exact. onnx onnxruntime's
 * QLinearConv and QLinearMatMul (MLAS, MlasRequantizeOutput): acc + bias in 32 bits that wrap, converted to binary32,
 * times M = (s_x s_w) / s_y in binary32; clamped, then to the nearest integer, ties to even; then plus z_y. tflite
 * TensorFlow Lite's reference kernels: M as a coefficient q31 and an exponent (QuantizeMultiplier); a saturating
 * rounding doubling high multiply, then a rounding right shift, ties away from zero. tflite-ruy      its optimised
 * kernels without the XNNPACK delegate. tflite-xnnpack  its default: XNNPACK where that has the operation (convolutions
 * and fully connected layers as onnx, additions), else the optimised kernels.
 *
 * The runtimes' accumulators have 32 bits: a sum beyond them wraps in all roundings but exact. Sums of exact are kept
 * in 64 bits where the weights do not prove that 32 suffice. */
#ifndef FL_INT8_H
#define FL_INT8_H

#include "flexlab/status.h"
#include <stdbool.h>
#include <stdint.h>

enum fl_int8_rounding {
    FL_INT8_EXACT,
    FL_INT8_ONNX,
    FL_INT8_TFLITE,
    FL_INT8_TFLITE_RUY,
    FL_INT8_TFLITE_XNNPACK,
    FL_INT8_ROUNDINGS
};

/* "exact", "onnx", ...; NULL for a number that is none. */
const char *fl_int8_rounding_name(enum fl_int8_rounding rounding);
/* By name; FL_INT8_ROUNDINGS if it is none. */
enum fl_int8_rounding fl_int8_rounding_named(const char *name);

/* How a tensor is quantised. The scale is positive and finite; the zero point is a value of its type. */
struct fl_int8_type {
    float scale;
    int32_t zero;
    bool is_unsigned;
};

/* Results are clamped to low ... high, integers of the output's type after its zero point was added. Zeros in both
 * mean the whole type, unless only_zero says that 0 is the one result. */
struct fl_int8_range {
    int32_t low, high;
    bool only_zero;
};

/* The integers of a fused activation: relu is [0, inf), relu6 [0, 6], in real numbers; rounded as TensorFlow Lite does
 * (CalculateActivationRangeQuantized: round(real / scale), ties away from zero), clamped to the type. */
struct fl_int8_range fl_int8_activation(const struct fl_int8_type *type, float low, float high);

/* --- convolution and matrix product ------------------------------------------------------------------------------- */

/* A window over images; padding is the real number 0. For a pooling as for a convolution. */
struct fl_int8_window {
    int64_t height, width;
    int64_t stride_h, stride_w, dilation_h, dilation_w; /* 0 means 1 */
    int64_t top, left, bottom, right;                   /* padding */
};

/* Positions of a window along images of `size`; 0 if it does not fit. */
int64_t fl_int8_positions(int64_t size, int64_t before, int64_t after, int64_t window, int64_t stride,
                          int64_t dilation);

enum fl_int8_filter_order {
    FL_INT8_KRSC, /* [K, R, S, C / groups], and [N, K] of a matrix product: as rows */
    FL_INT8_RSCK  /* [R, S, C / groups, K], and [K, N] of a matrix product: as columns */
};

/* What a layer computes: y = activation(x * filters + bias + residual). A matrix product [M, K] x [K, N] is a layer
 * with `channels` K, `filters` N and a window of 1 x 1. Pointers are only read by fl_int8_pack. */
struct fl_int8_layer_spec {
    enum fl_int8_rounding rounding;
    /* The source's operator is FullyConnected or Gemm, or is DepthwiseConv2D: tflite roundings treat these apart. */
    bool fully_connected, depthwise;
    int64_t channels, filters, groups; /* C of the images, K; groups 0 means 1 */
    struct fl_int8_window window;
    const void *weights; /* int8, or uint8 with weights_unsigned */
    enum fl_int8_filter_order order;
    bool weights_unsigned;
    int32_t weights_zero;
    const float *weights_scale; /* one, or one for each filter */
    bool per_channel;           /* weights_scale has `filters` values */
    const int32_t *bias;        /* at scale s_x s_w, or NULL */
    struct fl_int8_type x, y;   /* x.scale, weights_scale and y do not matter for sums as output */
    bool sums;                  /* the output is int32: the sums plus bias, modulo 2^32 (ConvInteger, MatMulInteger) */
    struct fl_int8_range range; /* the activation */
    const struct fl_int8_type *residual; /* a further operand in the same exact sum; rounding exact only; or NULL */
};

struct fl_int8_layer;

/* Checks a description and packs its weights for the instruction set in force (FLEXLAB_ISA, tensor_set_backend). */
tensor_status fl_int8_pack(const struct fl_int8_layer_spec *spec, struct fl_int8_layer **layer);
void fl_int8_free(struct fl_int8_layer *layer); /* NULL allowed */

/* y [n, positions of h, positions of w, K] of x [n, h, w, C]; residual has the shape of y. y overlaps no operand. A
 * layer may run in several threads at once. Allocates scratch of the calling and the worker threads only. */
tensor_status fl_int8_conv(const struct fl_int8_layer *layer, int64_t n, int64_t h, int64_t w, const void *x,
                           const void *residual, void *y);

/* y [rows, filters] of x [rows, channels]: a layer with a window of 1 x 1. */
tensor_status fl_int8_matmul(const struct fl_int8_layer *layer, int64_t rows, const void *x, const void *residual,
                             void *y);

/* --- elementwise ---------------------------------------------------------------------------------------------------
 * count elements each; y may be x. */

/* y = a + b. exact: one exact sum, rounded once. onnx: as onnxruntime's QLinearAdd. tflite, tflite-ruy: operands
 * shifted left by 20, each rescaled, then the sum. tflite-xnnpack: coefficients of 21 bits, one rounding, ties up. */
tensor_status fl_int8_add(enum fl_int8_rounding rounding, int64_t count, const struct fl_int8_type *a_type,
                          const void *a, const struct fl_int8_type *b_type, const void *b,
                          const struct fl_int8_type *y_type, struct fl_int8_range range, void *y);

/* The same real numbers at another scale. exact: one rounding, ties to even. onnx: DequantizeLinear, then
 * QuantizeLinear, in binary32. tflite, tflite-ruy: as a sum of a convolution; tflite-xnnpack: the ratio of the
 * scales as an integer over 256, ties up. */
tensor_status fl_int8_requantise(enum fl_int8_rounding rounding, int64_t count, const struct fl_int8_type *x_type,
                                 const void *x, const struct fl_int8_type *y_type, struct fl_int8_range range, void *y);

/* saturate(z + nearest(x / scale)): exact and onnx: ties to even (x / scale in binary32, as QuantizeLinear); tflite,
 * tflite-ruy: ties away from zero (AffineQuantize); tflite-xnnpack: x times the binary32 reciprocal of the scale, ties
 * to even. A NaN gives z. */
tensor_status fl_int8_quantise(enum fl_int8_rounding rounding, int64_t count, const float *x,
                               const struct fl_int8_type *y_type, void *y);

/* (q - z) scale, rounded to binary32: the same in every rounding. */
tensor_status fl_int8_dequantise(int64_t count, const struct fl_int8_type *x_type, const void *x, float *y);

/* Clamps to the range: relu is low = zero. */
tensor_status fl_int8_clamp(int64_t count, const struct fl_int8_type *type, const void *x, struct fl_int8_range range,
                            void *y);

/* Joins `count` tensors [outer, inner[i]] to [outer, sum of inner], each requantised to the scale of y; those that have
 * it already are copied. */
tensor_status fl_int8_concatenate(enum fl_int8_rounding rounding, int64_t outer, int count, const int64_t *inner,
                                  const struct fl_int8_type *x_type, const void *const *x,
                                  const struct fl_int8_type *y_type, void *y);

/* --- pooling, softmax ----------------------------------------------------------------------------------------------
 */

/* The largest of each window of x [n, h, w, c]; padding does not count. */
tensor_status fl_int8_max_pool(int64_t n, int64_t h, int64_t w, int64_t c, const struct fl_int8_window *window,
                               const struct fl_int8_type *type, struct fl_int8_range range, const void *x, void *y);

/* The mean of each window. exact: of the real numbers, rounded once at the scale of y. onnx: the integers' sum times
 * one binary32 number, as QLinearGlobalAveragePool; QLinearAveragePool sums in binary32 and may round a near tie
 * otherwise. The tflite roundings: input and output have the same scale, the integers' mean, ties away from zero.
 * Padding counts as zeros if count_padding, and else not at all. */
tensor_status fl_int8_average_pool(enum fl_int8_rounding rounding, int64_t n, int64_t h, int64_t w, int64_t c,
                                   const struct fl_int8_window *window, bool count_padding,
                                   const struct fl_int8_type *x_type, const void *x, const struct fl_int8_type *y_type,
                                   struct fl_int8_range range, void *y);

/* The mean of each channel of an image: [n, h, w, c] to [n, c]. */
tensor_status fl_int8_global_average(enum fl_int8_rounding rounding, int64_t n, int64_t h, int64_t w, int64_t c,
                                     const struct fl_int8_type *x_type, const void *x,
                                     const struct fl_int8_type *y_type, struct fl_int8_range range, void *y);

/* Softmax of beta x over rows of `length`. tflite: the reference kernel's fixed-point arithmetic, whose output has
 * scale 1/256 and the type's least number as zero point. tflite-ruy, tflite-xnnpack: a table of 256 exponentials in
 * binary32. exact and onnx: exponentials in double; their order of summation is that of the row. */
tensor_status fl_int8_softmax(enum fl_int8_rounding rounding, int64_t rows, int64_t length, float beta,
                              const struct fl_int8_type *x_type, const void *x, const struct fl_int8_type *y_type,
                              void *y);

#endif
