/* int8.h - layers in int8 after training, as Migacz 2017 quantises them ("8-bit Inference with TensorRT"): symmetric,
 * one step for each filter and one for each tensor of activations, whose threshold comes from calibration. x is step
 * times an integer from -127 to 127.
 *
 * Between two int8 tensors there are only integers: products of int8 are summed in int32, exactly, together with a
 * bias; the sum is multiplied with an integer factor in int64, rounded once, and clamped to the limits. Steps and
 * factors are computed from floats before the first image. */
#ifndef FLEXLAB_INT8_H
#define FLEXLAB_INT8_H

#include <stdbool.h>
#include <stdint.h>

enum { INT8_LARGEST = 127, INT8_BINS = 2048, INT8_LEVELS = 128, INT8_LONGEST_SUM = 65536 };

/* How often magnitudes occur, in bins of equal width from 0 to `largest`: first int8_see_largest with all values, then
 * int8_see with the same ones. Starts as zeros. Zeros are not counted: any step has them exactly. False at a value that
 * is not finite, which has no bin: the histogram is then of no use. */
struct int8_histogram {
    double largest;
    int64_t count[INT8_BINS];
};
bool int8_see_largest(struct int8_histogram *h, const float *x, int64_t n);
bool int8_see(struct int8_histogram *h, const float *x, int64_t n);

/* How many of the bins lie below the threshold by which a distribution loses the least when it is quantised: of
 * INT8_LEVELS to INT8_BINS, that with the smallest Kullback-Leibler divergence of the distribution, what lies above the
 * threshold moved into the last bin, from what INT8_LEVELS levels leave of it (of equal ones the largest). */
int int8_divergence_bins(const int64_t *count);

/* The largest magnitude that is told from the ones above it: the step times INT8_LARGEST. 0 where all values are. */
double int8_threshold(const struct int8_histogram *h, bool by_divergence);

/* A convolution of images [height, width, channels] with filters [filters, window, window, channels] and a border of
 * zeros; a matrix is one with a window of 1 on one pixel. */
struct int8_layer {
    int channels, filters, window, stride, padding;
    bool relu;
    int8_t *weights;       /* as the filters */
    int32_t *bias;         /* [filters], in steps of the sums: that of the input times that of the filter */
    int64_t *factor;       /* [filters], times 2^-shift: from sums to steps of the output */
    int64_t shared_factor; /* the same of the residual */
    int shift;
};

/* From floats and the steps of input, output and residual (0: there is none), which are above 0. False where a sum has
 * more than INT8_LONGEST_SUM products, where a number is not finite, or where the steps lie so far apart that 62 bits
 * do not hold the factors. What was made is to be freed in either case. */
struct int8_steps {
    double input, output, residual;
};
bool int8_make(struct int8_layer *layer, const float *weights, const float *bias, struct int8_steps steps);
void int8_free(struct int8_layer *layer);

/* The sums [height', width', filters] of an image; height' = (height + 2 padding - window) / stride + 1. patch has room
 * for window * window * channels. */
void int8_sums(const struct int8_layer *layer, const int8_t *x, int height, int width, int8_t *patch, int32_t *sums);
/* Computes the output from the sums and a residual of as many elements (NULL: none). */
void int8_store(const struct int8_layer *layer, const int32_t *sums, const int8_t *residual, int64_t pixels, int8_t *y);
/* The filter of the largest sum of one pixel, in common steps; of equal ones the first. */
int int8_largest(const struct int8_layer *layer, const int32_t *sums);

/* round(v / 2^shift), halves to even, for 0 <= shift <= 62. */
int64_t int8_shifted(int64_t v, int shift);

#endif
