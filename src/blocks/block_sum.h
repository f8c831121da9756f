/* block_sum.h - an exact sum of numbers of any exponents that products of blocks can have: integers in digits of 32
 * bits, whose carries wait. It serves what the kernels of doubles leave, and it is their witness. */
#ifndef FL_BLOCK_SUM_H
#define FL_BLOCK_SUM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FL_SUM_DIGITS = 40,
    FL_SUM_LEAST = -640 /* exponent of the lowest bit; the largest is 2^(32 * FL_SUM_DIGITS - 640 - 1) */
};

struct fl_block_sum {
    int64_t digit[FL_SUM_DIGITS]; /* value = the sum of digit[i] * 2^(32 i + FL_SUM_LEAST) */
    int added;                    /* terms since the carries were taken on */
};

/* Adds m * 2^e; e >= FL_SUM_LEAST, |m| < 2^62. */
void fl_block_sum_add(struct fl_block_sum *sum, int64_t m, int e);
/* Multiplies by x, a finite binary32; no bit of the result lies below FL_SUM_LEAST. */
void fl_block_sum_scale(struct fl_block_sum *sum, float x);
/* The sum as high + low: high has its 53 leading bits, low the rest, rounded to odd where it has more than 53. */
void fl_block_sum_end(struct fl_block_sum *sum, double *high, double *low);

#endif
