/* block_kernels.h - what quantising in blocks computes with vectors: maxima, elements, transposed copies, the Hadamard
 * transform and draws. One text, block_kernels.inc, compiled for each instruction set; the same bits from each. */
#ifndef FL_BLOCK_KERNELS_H
#define FL_BLOCK_KERNELS_H

#include "blocks/block_quantise.h"
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

/* What the scale of a block with this maximum is, a word that is finite and not 0: its exponent. */
int fl_block_exponent(const struct fl_block_format *format, uint32_t maximum);
/* The E4M3 scale of a block of nvfp4: nearest to maximum / (6 tensor_scale), as significand * 2^exponent; 0 has
 * significand 0. It is 448 at most, because tensor_scale is nearest to the maximum of the tensor by 2688, or larger. */
int fl_block_e4m3_scale(float maximum, float tensor_scale, int *exponent);
/* The 16 signs of a key, a bit each: set where the value is negated. */
uint32_t fl_block_signs(uint64_t key);
/* The Hadamard transform of 16 values times 1/4: y = H D x / 4, where D has the signs and H is Sylvester's matrix. Four
 * rounds of sums and differences in binary32, at distances 8, 4, 2, 1. */
static inline void fl_block_transform(float *x, uint32_t signs) {
    for (int i = 0; i < FL_HADAMARD; i++)
        x[i] *= signs >> i & 1 ? -0.25f : 0.25f;
    for (int apart = FL_HADAMARD / 2; apart; apart /= 2)
        for (int i = 0; i < FL_HADAMARD; i += 2 * apart)
            for (int j = i; j < i + apart; j++) {
                const float a = x[j], b = x[j + apart];
                x[j] = a + b;
                x[j + apart] = a - b;
            }
}

#endif
