/* transfer.h - whole tensors from host numbers or another tensor, in threaded blocks. */
#ifndef FL_TRANSFER_H
#define FL_TRANSFER_H

#include "core/tensor/fill.h"
#include "core/tensor/sums.h"
#include "core/tensor/tensor_object.h"

enum { FL_BLOCK = 1024 }; /* numbers of one block */

/* The source of numbers: one of these six. */
struct fl_source {
    const float *f;
    const double *d;
    const uint8_t *pixels; /* number i is values[i % channels][pixels[i]]: values has 256 floats for each channel */
    const float *values;
    int64_t channels;
    const struct fl_format *format; /* a tensor of this format */
    struct fl_view view;
    struct fl_fill fill;      /* numbers computed as they are read */
    const struct fl_sum *sum; /* likewise */
};

void fl_source_fetch(const struct fl_source *source, int64_t first, int64_t n, double *block);
/* Stores all numbers of the source, each rounded once to binary32. */
void fl_store_floats(const struct fl_source *source, int64_t count, float *values);

struct fl_transfer {
    struct fl_source source;
    const struct fl_format *format; /* of the destination; NULL: only look at the source */
    struct fl_view out;
    struct fl_rounding rounding;
    bool op_result; /* see fl_format.encode */
    int64_t count;
};

struct fl_transfer_result {
    struct fl_stats stats; /* of the write */
    double maximum;        /* looking only: largest finite |x| of the source */
    int64_t nonfinite;     /* looking only: position of the first NaN or Inf, -1 */
};

/* The best kernel set of a format with conversions under the cap in force; NULL: none, as for narrow mantissas. */
const struct fl_kernels *fl_converting_set(const struct fl_format *format);

/* It allocates nothing, so that it cannot fail after it has written a part. */
void fl_transfer(const struct fl_transfer *t, struct fl_transfer_result *total);

#endif
