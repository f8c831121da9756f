/* tensor_statistics.h - what writes came to; what the elements look like, and what another format would make of them. A
 * part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_STATISTICS_H
#define FLEXLAB_TENSOR_STATISTICS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tensor_stats {
    double maximum;    /* largest |x| before rounding and saturation; Inf if an Inf was produced, but under a shared
                          exponent, where it is of finite results alone, as gamma is */
    int32_t gamma;     /* largest |mantissa| after; 0 for float formats */
    int64_t saturated; /* did not fit: +-32767 instead, or Inf where the binary32 result was finite (fp16, bf16) */
    int64_t flushed;   /* not zero before the last rounding (float formats: in binary32), zero after it */
    int64_t nonfinite; /* NaN and Inf among the stored elements; under a shared exponent, which stores them as 0 and
                          +-32767 (and counts Inf as saturated too), among the results */
    int64_t elements;  /* elements written */
    int64_t writes;    /* 1 for the last write; the number of writes for the total */
} tensor_stats;

/* Of the last write, and of all writes since the tensor was made or reset. Either pointer may be NULL. In the total,
 * maximum and gamma are the largest of all writes. */
FLEXLAB_API tensor_status tensor_statistics(tensor_stats *last, tensor_stats *total, const tensor *t);
/* Both become zero; exponent, history and the number of writes that keys stochastic rounding stay. NULL is allowed. */
FLEXLAB_API void tensor_reset_statistics(tensor *t);

/* Bin i of a description: 2^(TENSOR_FIRST_BIN + i) <= |x| < twice that. All values of the formats have one; of formats
 * added as folders, what is smaller or larger is in the first or the last. */
enum { TENSOR_FIRST_BIN = -152, TENSOR_BINS = 304 };
/* The elements as they are. Sums, smallest and largest are of the finite ones. */
typedef struct tensor_description {
    int64_t elements, zeros, infinite, nan;
    double mean, deviation;   /* the latter of all finite elements: divided by their number; NAN without one */
    double smallest, largest; /* |x|: the smallest above 0; 0 without one */
    double l1, l2;            /* sum of |x|; root of the sum of x^2 */
    /* Root mean square of the error that rounding to nearest is expected to make in such elements: u / sqrt(12) each, u
     * the unit of the last place of its binade, or that of the shared exponent. NAN without a finite element. */
    double rounding;
    int64_t bins[TENSOR_BINS]; /* of the elements that are finite and not 0 */
} tensor_description;
/* One pass over the elements, on the host; a device is waited for, and copied from. Counts, smallest and largest are
 * exact; sums of shared-exponent formats exact integers, rounded at the end (mean and the square of the deviation once
 * or twice), those of float formats added in double in one order: the same bits for every backend and number of
 * threads. A wide part does not count. TENSOR_E_ARGUMENT for a view with strides. */
FLEXLAB_API tensor_status tensor_describe(tensor_description *d, const tensor *x);

/* What another format would make of the elements. */
typedef struct tensor_measure {
    int64_t elements, finite;              /* finite: before and after */
    int64_t saturated, flushed, nonfinite; /* as tensor_stats of the conversion has them */
    double error, size; /* root mean squares of (value in that format - x) and of x, over the finite; 0 without any */
} tensor_measure;
/* Converts each element, to nearest, as tensor_convert_at does it for a format with a shared exponent, which is e then,
 * else as tensor_convert, and keeps none: counts are those of that write, sums are added in one order.
 * TENSOR_E_ARGUMENT for an exponent that the format does not have, or not 0 where it has none; otherwise as
 * tensor_describe. */
FLEXLAB_API tensor_status tensor_measure_in(tensor_measure *m, const tensor *x, tensor_format format, int e);

#ifdef __cplusplus
}
#endif
#endif
