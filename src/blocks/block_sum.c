/* block_sum.c - exact sums in digits. */
#include "blocks/block_sum.h"
#include "core/arithmetic/exact.h"

enum { DIGIT = 32, ADDED_MOST = 1 << 29, SIGNIFICANT = 53 };

/* Leaves 0 ... 2^32 - 1 in every digit but the highest, which has the sign. */
static void take_carries(struct fl_block_sum *sum) {
    int64_t carry = 0;
    for (int i = 0; i < FL_SUM_DIGITS - 1; i++) {
        carry += sum->digit[i];
        sum->digit[i] = (int64_t)(uint32_t)carry;
        carry >>= DIGIT;
    }
    sum->digit[FL_SUM_DIGITS - 1] += carry;
    sum->added = 0;
}

void fl_block_sum_add(struct fl_block_sum *sum, int64_t m, int e) {
    const int at = e - FL_SUM_LEAST, first = at / DIGIT;
    const fl_int128 placed = (fl_int128)m * ((int64_t)1 << at % DIGIT); /* below 2^94 */
    sum->digit[first] += (int64_t)(uint32_t)placed;
    sum->digit[first + 1] += (int64_t)(uint32_t)(placed >> DIGIT);
    sum->digit[first + 2] += (int64_t)(placed >> 2 * DIGIT);
    if (++sum->added == ADDED_MOST)
        take_carries(sum);
}

/* Makes the sum its magnitude, whose digits are all below 2^32; whether it was negative. */
static bool take_sign(struct fl_block_sum *sum) {
    take_carries(sum);
    const bool negative = sum->digit[FL_SUM_DIGITS - 1] < 0;
    for (int i = 0; negative && i < FL_SUM_DIGITS; i++)
        sum->digit[i] = -sum->digit[i];
    take_carries(sum);
    return negative;
}

void fl_block_sum_scale(struct fl_block_sum *sum, float x) {
    const struct fl_term factor = fl_term_of(x); /* below 2^24, so products of digits are below 2^56 */
    const int64_t m = take_sign(sum) ? -factor.m : factor.m;
    struct fl_block_sum product = {{0}, 0};
    for (int i = 0; i < FL_SUM_DIGITS; i++)
        if (sum->digit[i])
            fl_block_sum_add(&product, sum->digit[i] * m, DIGIT * i + FL_SUM_LEAST - factor.e);
    *sum = product;
}

/* The leading bits of a magnitude whose digits are all below 2^32, and leaves the others. last: rounds to odd. */
static double take_leading(int64_t *digit, bool last) {
    int top = FL_SUM_DIGITS - 1;
    while (top >= 0 && !digit[top])
        top--;
    if (top < 0)
        return 0;
    const int highest = DIGIT * top + DIGIT - 1 - __builtin_clz((uint32_t)digit[top]), /* its place */
        lowest = highest - SIGNIFICANT + 1;
    uint64_t taken = 0;
    bool more = false;
    for (int i = top; i >= 0; i--) {
        const int from = DIGIT * i; /* the place of the digit's lowest bit */
        if (from >= lowest) {
            taken |= (uint64_t)digit[i] << (from - lowest);
            digit[i] = 0;
        } else if (lowest - from < DIGIT) {
            const uint32_t kept = (uint32_t)digit[i] & ((1u << (lowest - from)) - 1);
            taken |= (uint64_t)digit[i] >> (lowest - from);
            digit[i] = (int64_t)kept;
        }
        more |= digit[i] != 0;
    }
    return ldexp((double)(taken | (uint64_t)(last && more)), lowest + FL_SUM_LEAST);
}

void fl_block_sum_end(struct fl_block_sum *sum, double *high, double *low) {
    const bool negative = take_sign(sum);
    *high = take_leading(sum->digit, false);
    *low = take_leading(sum->digit, true);
    if (negative) {
        *high = -*high;
        *low = -*low;
    }
}
