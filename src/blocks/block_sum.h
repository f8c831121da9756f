/* block_sum.h - an exact sum of numbers of any exponents that products of blocks can have: integers in digits of 32
 * bits, whose carries wait. It serves what the kernels of doubles leave, and it is their witness. */
#ifndef FL_BLOCK_SUM_H
#define FL_BLOCK_SUM_H

#include "core/arithmetic/exact.h"
#include <stdbool.h>

enum {
    FL_SUM_DIGITS = 40,
    FL_SUM_LEAST = -640 /* exponent of the lowest bit; the largest is 2^(32 * FL_SUM_DIGITS - 640 - 1) */
};

struct fl_block_sum {
    int64_t digit[FL_SUM_DIGITS]; /* value = the sum of digit[i] * 2^(32 i + FL_SUM_LEAST) */
    int added;                    /* terms since the carries were taken on */
};

enum { FL_SUM_DIGIT = 32, FL_SUM_ADDED = 1 << 29 /* at most before carries are taken */, FL_SUM_BITS = 53 };

FL_BOTH void fl_block_sum_begin(struct fl_block_sum *sum) {
    for (int i = 0; i < FL_SUM_DIGITS; i++)
        sum->digit[i] = 0;
    sum->added = 0;
}

/* Leaves 0 ... 2^32 - 1 in every digit but the highest, which has the sign. */
FL_BOTH void fl_block_sum_carry(struct fl_block_sum *sum) {
    int64_t carry = 0;
    for (int i = 0; i < FL_SUM_DIGITS - 1; i++) {
        carry += sum->digit[i];
        sum->digit[i] = (int64_t)(uint32_t)carry;
        carry >>= FL_SUM_DIGIT;
    }
    sum->digit[FL_SUM_DIGITS - 1] += carry;
    sum->added = 0;
}

/* Adds m * 2^e; e >= FL_SUM_LEAST, |m| < 2^62. */
FL_BOTH void fl_block_sum_add(struct fl_block_sum *sum, int64_t m, int e) {
    const int at = e - FL_SUM_LEAST, first = at / FL_SUM_DIGIT;
    const fl_int128 placed = (fl_int128)m * ((int64_t)1 << at % FL_SUM_DIGIT); /* below 2^94 */
    sum->digit[first] += (int64_t)(uint32_t)placed;
    sum->digit[first + 1] += (int64_t)(uint32_t)(placed >> FL_SUM_DIGIT);
    sum->digit[first + 2] += (int64_t)(placed >> 2 * FL_SUM_DIGIT);
    if (++sum->added == FL_SUM_ADDED)
        fl_block_sum_carry(sum);
}

/* Makes the sum its magnitude, whose digits are all below 2^32; whether it was negative. */
FL_BOTH bool fl_block_sum_sign(struct fl_block_sum *sum) {
    fl_block_sum_carry(sum);
    const bool negative = sum->digit[FL_SUM_DIGITS - 1] < 0;
    for (int i = 0; negative && i < FL_SUM_DIGITS; i++)
        sum->digit[i] = -sum->digit[i];
    fl_block_sum_carry(sum);
    return negative;
}

/* Multiplies by x, a finite binary32; no bit of the result lies below FL_SUM_LEAST. */
FL_BOTH void fl_block_sum_scale(struct fl_block_sum *sum, float x) {
    const struct fl_term factor = fl_term_of(x); /* below 2^24, so products of digits are below 2^56 */
    const int64_t m = fl_block_sum_sign(sum) ? -factor.m : factor.m;
    struct fl_block_sum product;
    fl_block_sum_begin(&product);
    for (int i = 0; i < FL_SUM_DIGITS; i++)
        if (sum->digit[i])
            fl_block_sum_add(&product, sum->digit[i] * m, FL_SUM_DIGIT * i + FL_SUM_LEAST - factor.e);
    *sum = product;
}

/* The leading bits of a magnitude whose digits are all below 2^32, and leaves the others. last: rounds to odd. */
FL_BOTH double fl_block_sum_leading(int64_t *digit, bool last) {
    int top = FL_SUM_DIGITS - 1;
    while (top >= 0 && !digit[top])
        top--;
    if (top < 0)
        return 0;
    const int highest =
                  FL_SUM_DIGIT * top + FL_SUM_DIGIT - 1 - (__builtin_clzll((uint64_t)digit[top]) - 32), /* its place */
        lowest = highest - FL_SUM_BITS + 1;
    uint64_t taken = 0;
    bool more = false;
    for (int i = top; i >= 0; i--) {
        const int from = FL_SUM_DIGIT * i; /* the place of the digit's lowest bit */
        if (from >= lowest) {
            taken |= (uint64_t)digit[i] << (from - lowest);
            digit[i] = 0;
        } else if (lowest - from < FL_SUM_DIGIT) {
            const uint32_t kept = (uint32_t)digit[i] & ((1u << (lowest - from)) - 1);
            taken |= (uint64_t)digit[i] >> (lowest - from);
            digit[i] = (int64_t)kept;
        }
        more |= digit[i] != 0;
    }
    return ldexp((double)(taken | (uint64_t)(last && more)), lowest + FL_SUM_LEAST);
}

/* The sum as high + low: high has its 53 leading bits, low the rest, rounded to odd where it has more than 53. */
FL_BOTH void fl_block_sum_end(struct fl_block_sum *sum, double *high, double *low) {
    const bool negative = fl_block_sum_sign(sum);
    *high = fl_block_sum_leading(sum->digit, false);
    *low = fl_block_sum_leading(sum->digit, true);
    if (negative) {
        *high = -*high;
        *low = -*low;
    }
}

#endif
