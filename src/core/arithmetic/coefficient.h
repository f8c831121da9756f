/* coefficient.h - a real number as an integer with an exponent of its own, by which batch normalisation passes doubles
 * to integer arithmetic. Plain C without libm. */
#ifndef FL_COEFFICIENT_H
#define FL_COEFFICIENT_H

#include "autoflex/both.h"
#include <stdint.h>
#include <string.h>

/* m * 2^-e, |m| < 2^31. fl_coefficient_of returns m = 0 or 2^30 <= |m|, so that a number of any size loses only its
 * last bits. */
struct fl_coefficient {
    int32_t m;
    int32_t e;
};

/* x, a finite double, rounded once to 31 bits: to nearest, ties to even. */
FL_BOTH struct fl_coefficient fl_coefficient_of(double x) {
    /* | sign 1 | exponent 11 | fraction 52 |: 2^52 + fraction is the significand, in units of 2^(exponent - 1075) */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t significand = bits & (((uint64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent) {
        significand |= (uint64_t)1 << 52;
    } else if (significand) { /* subnormal: shifted up until it has 53 bits too */
        exponent = 1;
        for (; !(significand >> 52); significand <<= 1)
            exponent--;
    } else {
        const struct fl_coefficient zero = {0, 0};
        return zero;
    }
    uint64_t m = (significand + ((uint64_t)1 << 21) - 1 + (significand >> 22 & 1)) >> 22;
    int e = 1075 - 22 - exponent;
    if (m >> 31) { /* rounded up to 2^31 */
        m >>= 1;
        e--;
    }
    const struct fl_coefficient k = {bits >> 63 ? -(int32_t)m : (int32_t)m, e};
    return k;
}

#endif
