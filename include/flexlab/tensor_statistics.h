/* tensor_statistics.h - statistics of writes; descriptions of elements, and of what another format would make of them.
 * Part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_STATISTICS_H
#define FLEXLAB_TENSOR_STATISTICS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tensor_stats {
    double maximum;    /* largest |x| before rounding and saturation. Float formats: Inf if the write produced an Inf.
                          Shared-exponent formats: of finite results only, as gamma */
    int32_t gamma;     /* largest |mantissa| after rounding and saturation; 0 for float formats */
    int64_t saturated; /* elements stored as the largest because they did not fit, or as Inf (NaN where the format has
                          no Inf) although the binary32 result was finite */
    int64_t flushed;   /* elements that were not zero before the last rounding (float formats: in binary32) and are zero
                          after it */
    int64_t nonfinite; /* NaN and Inf among the stored elements. Shared-exponent formats: among the results; they store
                          NaN as 0 and Inf as +-32767, and count Inf as saturated too */
    int64_t elements;  /* elements written */
    int64_t writes;    /* 1 for the last write; the number of writes for the total */
} tensor_stats;

/* The statistics of the last write, and of all writes since the tensor was created or reset. Either pointer may be
 * NULL. In the total, maximum and gamma are the largest of all writes. */
FLEXLAB_API tensor_status tensor_statistics(tensor_stats *last, tensor_stats *total, const tensor *t);
/* Sets both to zero; exponent, history and the number of writes that keys stochastic rounding remain. NULL is
 * allowed. */
FLEXLAB_API void tensor_reset_statistics(tensor *t);

/* Bin i of a description holds the elements with 2^(TENSOR_FIRST_BIN + i) <= |x| < twice that. Every value of the
 * built-in formats has a bin; smaller or larger values of added formats count in the first or the last. */
enum { TENSOR_FIRST_BIN = -152, TENSOR_BINS = 304 };
/* Describes the elements as stored. Sums, smallest and largest are those of the finite elements. */
typedef struct tensor_description {
    int64_t elements, zeros, infinite, nan;
    double mean,
        deviation; /* deviation: of the finite elements as a population (divided by their number); NAN without one */
    double smallest, largest; /* |x|: the smallest above 0; 0 without one */
    double l1, l2;            /* sum of |x|; root of the sum of x^2 */
    /* The root mean square of the error that rounding to nearest is expected to make in such elements: u / sqrt(12) for
     * each, where u is the unit in the last place of its binade, or that of the shared exponent. NAN without a finite
     * element. */
    double rounding;
    int64_t bins[TENSOR_BINS]; /* counts of the elements that are finite and not 0 */
} tensor_description;
/* Describes x in one pass over its elements on the host; for a tensor on a device it waits, and copies. Counts,
 * smallest and largest are exact. Sums of shared-exponent formats are exact integers, rounded at the end (mean and the
 * square of the deviation once or twice); those of float formats are added in double in one order: the same bits for
 * every backend and thread count. A wide part does not count. TENSOR_E_ARGUMENT for a view with strides. */
FLEXLAB_API tensor_status tensor_describe(tensor_description *d, const tensor *x);

/* The elements of a tensor as another format would store them. */
typedef struct tensor_measure {
    int64_t elements, finite;              /* finite: those that are finite before and after */
    int64_t saturated, flushed, nonfinite; /* as in tensor_stats of the conversion */
    double error,
        size; /* root mean squares of (value in that format - x) and of x, over the finite elements; 0 without any */
} tensor_measure;
/* Converts each element to nearest and discards the result: for a format with a shared exponent as tensor_convert_at
 * does with exponent e, else as tensor_convert. The counts are those of that write; the sums are added in one order.
 * TENSOR_E_ARGUMENT for an exponent that the format does not have, or that is not 0 where it has none; otherwise as
 * tensor_describe. */
FLEXLAB_API tensor_status tensor_measure_in(tensor_measure *m, const tensor *x, tensor_format format, int e);

#ifdef __cplusplus
}
#endif
#endif
