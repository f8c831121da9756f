/* block_kernels.h - what quantising in blocks computes with vectors: maxima, elements, transposed copies, the Hadamard
 * transform and draws. One text, block_kernels.inc, compiled for each instruction set; the same bits from each. */
#ifndef FL_BLOCK_KERNELS_H
#define FL_BLOCK_KERNELS_H

#include "blocks/block_rules.h"
#include "core/table/kernel.h"

/* `count` blocks of n values each. Elements n ... width - 1 of a block are written as 0. */
struct fl_block_run {
    const struct fl_block_format *format;
    const float *x;
    const uint32_t *draws; /* of each value, with the pitch of x; NULL: to nearest */
    int64_t pitch;         /* values from block to block */
    int64_t count;
    int n, width;
    int8_t *bytes;
    float *floats;
    int64_t to_pitch; /* elements from block to block */
    int16_t *exponents;
    uint8_t *significands;
    uint32_t *maxima; /* words of the largest magnitude of each block. fl_block_kernels.maxima writes them; quantise
                         reads them; NULL: it finds them itself */
    int64_t scale_pitch;
    float tensor_scale;
};

/* What runs find out beside their results; those of several runs are joined by fl_block_join. */
struct fl_block_found {
    int64_t saturated, flushed;
    int least, most;
    uint32_t maximum; /* word of the largest of the maxima that are finite */
    bool has_nan;
};

struct fl_block_kernels {
    /* maxima may be NULL in the run. */
    void (*maxima)(const struct fl_block_run *run, struct fl_block_found *found);
    void (*quantise)(const struct fl_block_run *run, struct fl_block_found *found);
    /* to[column][k] = from[k][column], of words. */
    void (*transpose)(const uint32_t *from, int64_t from_pitch, int k, int columns, uint32_t *to, int64_t to_pitch);
    /* Each 16 of the `n` values of each of `rows` rows becomes its random Hadamard transform, in place. */
    void (*hadamard)(float *x, int64_t pitch, int64_t rows, int n, uint32_t signs);
    /* The draws of elements first ... first + n - 1. */
    void (*draw)(const struct fl_rounding *how, int64_t first, int64_t n, uint32_t *to);
};
extern const struct fl_block_kernels fl_block_portable, fl_block_avx2, fl_block_avx512bw;

#endif
