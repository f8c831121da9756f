/* bf16_codec.h - bfloat16 to and from binary32.
 *
 *        15 14              7 6           0
 *       +--+----------------+--------------+
 *       | s|    exponent    |   fraction   |        the upper half of a binary32, subnormals included
 *       +--+----------------+--------------+
 *
 * Integer operations only: the conversion instructions of AVX512_BF16 flush subnormals, these keep them. */
#ifndef FL_BF16_CODEC_H
#define FL_BF16_CODEC_H

#include "autoflex/both.h"
#include <stdint.h>
#include <string.h>

FL_BOTH float bf16_to_float(uint16_t h) {
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Toward zero. The payload of a NaN is truncated and the NaN quieted, so that it stays one. */
FL_BOTH uint16_t bf16_from_float_truncated(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t quiet = (bits & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0u;
    return (uint16_t)(bits >> 16 | quiet);
}

/* Nearest, ties to even; a carry out of the fraction is the next exponent, the last one Inf. */
FL_BOTH uint16_t bf16_from_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t half = 0x7fffu + (bits >> 16 & 1u), quiet = ~bits & 0x400000u; /* what is added, quiet to a NaN */
    return (uint16_t)((bits + ((bits & 0x7fffffffu) > 0x7f800000u ? quiet : half)) >> 16);
}

/* What src/float/float_block.h asks of a codec. */
typedef uint16_t fl_element;
#define FL_DECODE bf16_to_float
#define FL_ENCODE bf16_from_float
#define FL_ENCODE_TRUNCATED bf16_from_float_truncated
#define FL_DIGITS 8
#define FL_MMA gpu_mma_bf16 /* of a GPU's tensor cores */
#define FL_LEAST_NORMAL 0x1p-126
enum {
    FL_BEYOND = 0x7f800000,             /* 2^128 */
    FL_OVERFLOW = 0x7f7f8000,           /* half way from the largest number to 2^128 */
    FL_FLUSH = 0x00008000,              /* half of the smallest subnormal */
    FL_OVERFLOW_TRUNCATED = 0x7f800000, /* toward zero: Inf alone is stored as Inf ... */
    FL_FLUSH_TRUNCATED = 0x0000ffff     /* ... and all below the smallest subnormal becomes zero */
};

#endif
