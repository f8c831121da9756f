/* block_quantise.h - operands of products in blocks: floats quantised along the dimension that a product sums over.
 *
 * The result has the rows of the operand with their k elements together, whatever the strides of the source, so that a
 * product is a sum over pairs of rows. The same bits on every instruction set and for every number of threads. */
#ifndef FL_BLOCK_QUANTISE_H
#define FL_BLOCK_QUANTISE_H

#include "core/table/block_format.h"
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Exponents of blocks that are no powers of two. They are far enough apart for the sum of two exponents to tell: above
 * FL_BLOCK_NAN / 2 the product of the blocks is NaN, else below FL_BLOCK_ZERO / 2 it is 0, else it is an exponent. */
enum { FL_BLOCK_ZERO = -1024, FL_BLOCK_NAN = 4096 };

/* Element j of block b of row r is at index (r * blocks + b) * width + j, the scale of the block at r * blocks + b. Its
 * value is
 *     bytes[...] * 2^element.unit * scale        or       floats[...] * scale
 * with scale = 2^exponent, and of nvfp4 significand * 2^exponent * tensor_scale. */
struct fl_block_rows {
    int64_t rows, k, blocks; /* blocks of a row = ceil(k / block) */
    int block;               /* elements under a stored scale: those of the format; a part of a channel, whose parts all
                                have the same scale */
    int width;               /* stored elements of a block: block, or where k is less k rounded up to 4 (with the option
                                hadamard: to 16); those beyond k are 0 (they may be others with hadamard) */
    const struct fl_block_format *format;
    int8_t *bytes;      /* elements as integers, value * 2^-unit, where format->bytes: never -128; else NULL, and */
    float *floats;      /* the values of elements */
    int16_t *exponents; /* rows x blocks; FL_BLOCK_ZERO: the block is all zeros, and its elements are 0. FL_BLOCK_NAN:
                           it contained a NaN or an Inf, as the NaN scale of the MX specification says; its elements
                           are 0, and every product with it is NaN */
    uint8_t *significands; /* of E4M3 scales: 1 ... 15, and 0 in blocks of zeros and of NaN; NULL: all are 1 */
    float tensor_scale;    /* 1 but for nvfp4 */
    /* What fl_block_quantise finds out. */
    int least_exponent, most_exponent; /* over blocks that are neither zero nor NaN; least > most: there are none */
    bool has_nan;                      /* there is a block of NaN */
    int64_t saturated;                 /* elements that their rounding left beyond the largest one, which they became */
    int64_t flushed;                   /* elements that were not 0, after the Hadamard transform if there is one, and
                                          are */
    uint32_t *maxima;                  /* memory of fl_block_quantise where it goes over the tensor twice; else NULL */
};

/* How a tensor is quantised where the format leaves a choice. All zero is allowed. */
struct fl_block_how {
    uint64_t key, write; /* stochastic: the draw of an element is that of Philox at (key, write, its index in x) */
    uint64_t signs;      /* hadamard: the key of the 16 random signs; the two operands of a product need the same */
    /* square: rows have numbers (h * square_length + i) * square_step + l, l < square_step, and the blocks of `block`
     * rows are those of neighbouring i with the same h and l. 0: square_length is all rows, square_step 1. Filters
     * [K, R, S, C] in blocks along C: length K, step R * S; along K (inner = R S C): length C, step 1; matrices of a
     * batch: length n, step 1. rows must be a multiple of length * step. */
    int64_t square_length, square_step;
    /* channel: rows with the same h and l, numbered likewise, have one scale. 0: a row has its own. */
    int64_t channel_length, channel_step;
};

/* Sets the members of out but for what fl_block_quantise finds out and the pointers, places the pointers in `memory`
 * (64-byte aligned) one after the other, and returns the bytes that they take. memory NULL: only tells the bytes. */
size_t fl_block_place(struct fl_block_rows *out, const struct fl_block_format *format, int64_t outer, int64_t k,
                      int64_t inner, void *memory);

/* Quantises x, which is [outer, k, inner], along k: row o * inner + i of the result has x[o][0 ... k - 1][i]. out comes
 * from fl_block_place. how: NULL is all zero. Parallel (core/base/parallel.h); takes no other memory, and cannot
 * fail. */
void fl_block_quantise(const struct fl_block_format *format, const float *x, int64_t outer, int64_t k, int64_t inner,
                       const struct fl_block_how *how, struct fl_block_rows *out);

/* The scale of block `at` times 2^unit, without the scale of the tensor: exact. */
static inline double fl_block_scale_by(const struct fl_block_rows *rows, int64_t at, int unit) {
    const int exponent = rows->exponents[at];
    if (exponent == FL_BLOCK_ZERO || exponent == FL_BLOCK_NAN)
        return exponent == FL_BLOCK_ZERO ? 0 : (double)NAN;
    const uint64_t bits = (uint64_t)(1023 + exponent + unit) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return rows->significands ? power * rows->significands[at] : power;
}

/* The scale of the elements as they are stored: with their unit where they are bytes. */
static inline double fl_block_scale(const struct fl_block_rows *rows, int64_t at) {
    return fl_block_scale_by(rows, at, rows->bytes ? rows->format->element.unit : 0);
}

/* The value of element j of row r as a double: exact but for nvfp4, whose product of three factors is exact too (33
 * bits). NaN in a block of NaN. It is in the transformed basis with hadamard. */
double fl_block_value(const struct fl_block_rows *rows, int64_t r, int64_t j);

#endif
