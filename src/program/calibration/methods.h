/* methods.h - from what calibration has seen of a tensor to the range that its 8-bit integers cover, and from that to
 * scale and zero point. */
#ifndef FL_PROGRAM_METHODS_H
#define FL_PROGRAM_METHODS_H

#include "int8/int8.h"
#include "program/calibration/histogram.h"
#include "flexlab/program.h"

struct fl_span {
    double low, high;
};

/* The range that a method chooses within [least, largest], the numbers that were seen.
 *
 * PROGRAM_MINMAX: all of it. PROGRAM_PERCENTILE: what remains when (100 - percentile) / 2 percent of the numbers are
 * cut off at each end (symmetric: 100 - percentile of the magnitudes), to the edge of a bin. PROGRAM_MSE: [least,
 * largest] times the i / 128, i = 13 ... 128, whose integers are nearest to the numbers, in the mean of squares over
 * the centres of bins; of equal ones the largest. PROGRAM_ENTROPY: the magnitudes below the threshold t whose
 * distribution, in bins of which 2048 make 2^exponent, has the least Kullback-Leibler divergence from what 128 levels
 * leave of it, what lies above t being moved into the last bin; of equal ones the largest.
 *
 * Sources: S. Migacz, 8-bit Inference with TensorRT, GTC 2017 (entropy); onnxruntime,
 * python/tools/quantization/calibrate.py (percentile and entropy, with ranges cut to what was seen). */
struct fl_span fl_range_by(const program_quantisation *how, double least, double largest, const struct fl_histogram *h);

/* The integers for a range, which always holds 0: symmetric: int8 with zero point 0, the larger magnitude is 127 steps;
 * else uint8, 255 steps from low to high, zero point to the nearest integer. */
struct fl_int8_type fl_type_of_range(struct fl_span span, bool symmetric);

/* For tests: the divergence of a threshold of `kept` of the 2048 bins, and that of least divergence. */
enum { FL_ENTROPY_BINS = 2048, FL_ENTROPY_LEVELS = 128 };
int fl_entropy_bins(const int64_t count[FL_ENTROPY_BINS]);

#endif
