/* flex_mean_plan.h - how means over the positions of an image (global average pooling and its gradient) are computed in
 * integers. C and CUDA, on plain numbers: no tensor, no vector, no libm. */
#ifndef FL_FLEX_MEAN_PLAN_H
#define FL_FLEX_MEAN_PLAN_H

#include "core/arithmetic/exact.h"

struct flex_mean_plan {
    int64_t divisor;
    int exponent; /* of sums in units of 1 / divisor */
};

/* The plan for `positions` mantissas at exponent e. A power of two in the divisor is moved to the exponent. */
FL_BOTH struct flex_mean_plan flex_mean_plan_of(int64_t positions, int e) {
    const int zeros = fl_trailing_zeros((uint64_t)positions);
    const struct flex_mean_plan p = {positions >> zeros, e + zeros};
    return p;
}

/* sum / divisor * 2^-shift as a quotient and a remainder, 0 <= rest < denominator. |sum / divisor| < 2^16, divisor <
 * 2^40. */
struct flex_mean {
    int64_t quotient;
    fl_int128 rest, denominator;
};

FL_BOTH struct flex_mean flex_mean_of(int64_t sum, int64_t divisor, int shift) {
    /* Beyond these bounds every result exceeds all mantissas, or is below 2^-32. */
    const int up = shift < -62 ? 62 : shift < 0 ? -shift : 0;
    const int down = shift > 50 ? 50 : shift > 0 ? shift : 0;
    const fl_int128 numerator = sum * ((fl_int128)1 << up), denominator = divisor * ((fl_int128)1 << down);
    fl_int128 quotient = numerator / denominator, rest = numerator % denominator;
    if (rest < 0) {
        quotient--;
        rest += denominator;
    }
    const int64_t bound = (int64_t)1 << 30; /* far beyond saturation */
    const struct flex_mean x = {quotient > bound    ? bound
                                : quotient < -bound ? -bound
                                                    : (int64_t)quotient,
                                rest, denominator};
    return x;
}

/* Rounds to nearest, ties to even. */
FL_BOTH int64_t flex_mean_nearest(const struct flex_mean *x) {
    return x->quotient + (2 * x->rest > x->denominator || (2 * x->rest == x->denominator && (x->quotient & 1)));
}

/* With stochastic rounding the result is quotient + 1 if the draw of 32 bits is above this: rest / denominator + draw /
 * 2^32 >= 1. No draw is above 2^32 - 1. */
FL_BOTH uint32_t flex_mean_threshold(const struct flex_mean *x) {
    return (uint32_t)((((x->denominator - x->rest) << 32) - 1) / x->denominator);
}

#endif
