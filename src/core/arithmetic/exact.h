/* exact.h - sums that must be exact, and the roundings that follow from them. What is FL_BOTH is for devices too. */
#ifndef FL_EXACT_H
#define FL_EXACT_H

#include "autoflex/both.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef __int128 fl_int128;
__extension__ typedef unsigned __int128 fl_uint128;

/* p + q rounded to odd: the nearest double towards zero, with the last bit set where the sum was inexact. Rounding the
 * result again to at most 51 bits is the same as rounding the exact sum (Boldo and Melquiond 2008). */
FL_BOTH double fl_sum_odd(double p, double q) {
    double s = p + q;
    double t = s - p;
    double error = (p - (s - t)) + (q - t); /* Knuth's two-sum: exact */
    uint64_t bits;
    memcpy(&bits, &s, sizeof bits);
    /* where the even neighbour was taken, step towards the exact sum: both neighbours of an even word are odd. Free of
     * branches, so that loops over sums are vectorised. */
    const uint64_t step = error != 0 && s - s == 0 ? ~bits & 1 : 0;
    bits += (error > 0) == (s > 0) ? step : -step;
    memcpy(&s, &bits, sizeof s);
    return s;
}

/* |x| < 2^that. */
FL_BOTH int fl_bits_of(int64_t x) {
    return x ? 64 - __builtin_clzll(x < 0 ? -(unsigned long long)x : (unsigned long long)x) : 0;
}

/* x is not 0. Computed by leading zeros, which devices count under the same name. */
FL_BOTH int fl_trailing_zeros(uint64_t x) {
    return 63 - __builtin_clzll(x & -x);
}

/* x / 2^shift to the nearest integer, ties to even; shift >= 0. */
FL_BOTH int64_t fl_shift_round(int64_t x, int shift) {
    if (shift == 0)
        return x;
    if (shift > 62)
        return 0; /* |x| < 2^62 by the callers' bounds: below one half */
    int64_t half = (int64_t)1 << (shift - 1);
    return (x + (half - 1) + ((x >> shift) & 1)) >> shift;
}

/* floor(x / 2^shift + draw / 2^32): stochastic rounding with a 32-bit draw; shift >= 0. */
FL_BOTH int64_t fl_shift_stochastic(int64_t x, int shift, uint32_t draw) {
    if (shift == 0)
        return x;
    if (shift > 62)
        shift = 62;
    return (x + (shift <= 32 ? (int64_t)(draw >> (32 - shift)) : (int64_t)draw << (shift - 32))) >> shift;
}

/* One term of an exact sum: m * 2^-e, |m| < 2^62. */
struct fl_term {
    int64_t m;
    int e;
};

/* A finite float as the term with the smallest |m|, which is below 2^24. */
FL_BOTH struct fl_term fl_term_of(float x) {
    /* | sign 1 | exponent 8 | fraction 23 |: 2^23 + fraction is the significand, in units of 2^(exponent - 150) */
    struct fl_term term = {0, 0};
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 23 & 0xff);
    const uint32_t significand = (bits & 0x7fffff) | (exponent ? (uint32_t)1 << 23 : 0);
    if (significand == 0)
        return term;
    const int zeros = fl_trailing_zeros(significand);
    term.m = bits >> 31 ? -(int64_t)(significand >> zeros) : (int64_t)(significand >> zeros);
    term.e = 150 - (exponent ? exponent : 1) - zeros;
    return term;
}

/* The sum of up to four terms as m * 2^-e with |m| < 2^126, exact or, where the terms lie more than 60 bits apart,
 * rounded to odd at least 50 bits below the leading one: rounding it to 32 bits or fewer rounds the exact sum. */
struct fl_wide_sum {
    fl_int128 m;
    int e;
};
struct fl_wide_sum fl_sum_terms(const struct fl_term *terms, int n);

/* A wide sum at exponent e_out as an integer: nearest, ties to even (draw NULL), or floor(x + *draw / 2^32); saturated
 * to +-limit, which *saturated counts. limit < 2^32. */
int64_t fl_wide_round(struct fl_wide_sum sum, int e_out, int64_t limit, const uint32_t *draw, int64_t *saturated);
/* |sum| as a double, correctly rounded (infinite when out of range). */
double fl_wide_abs(struct fl_wide_sum sum);
/* The sum as a double, rounded to odd (for rounding again to binary32). */
double fl_wide_odd(struct fl_wide_sum sum);

#endif
