/* histogram.h - how often numbers of each size occur in a tensor, on a grid that the numbers alone decide: bins of
 * equal width up to a power of two. When a larger magnitude comes, pairs of bins are merged until it fits, so that the
 * outcome depends neither on the order of the numbers nor on how they were divided into calls. */
#ifndef FL_PROGRAM_HISTOGRAM_H
#define FL_PROGRAM_HISTOGRAM_H

#include <stdint.h>

enum { FL_HISTOGRAM_BINS = 4096 };

/* Bin i of a sign counts magnitudes above i * width, up to and with (i + 1) * width; width is 2^exponent / BINS, and
 * 2^exponent the least power of two that is not below the largest magnitude. Zeros as they are set: empty. */
struct fl_histogram {
    int exponent;                        /* of no meaning while both counts are 0 */
    int64_t zeros, numbers;              /* numbers other than 0 */
    int64_t count[2][FL_HISTOGRAM_BINS]; /* [0]: above 0; [1]: below */
};

/* Adds finite numbers. */
void fl_histogram_add(struct fl_histogram *h, const float *x, int64_t count);
double fl_histogram_width(const struct fl_histogram *h);

#endif
