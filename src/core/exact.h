/* exact.h - sums that must be exact, and the roundings that follow from them. */
#ifndef FL_EXACT_H
#define FL_EXACT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef __int128 fl_int128;
__extension__ typedef unsigned __int128 fl_uint128;

/* p + q rounded to odd: the nearest double towards zero, with the last bit set where the sum was inexact. Rounding the
 * result again to at most 51 bits is the same as rounding the exact sum (Boldo and Melquiond 2008). */
static inline double fl_sum_odd(double p, double q) {
    double s = p + q;
    double t = s - p;
    double error = (p - (s - t)) + (q - t); /* Knuth's two-sum: exact */
    if (error != 0 && isfinite(s)) {
        uint64_t bits;
        memcpy(&bits, &s, sizeof bits);
        if (!(bits & 1)) {
            /* the even neighbour was taken: step towards the exact sum; both neighbours of an even word are odd */
            if ((error > 0) == (s > 0))
                bits++;
            else
                bits--;
            memcpy(&s, &bits, sizeof s);
        }
    }
    return s;
}

/* x / 2^shift to the nearest integer, ties to even; shift >= 0. */
static inline int64_t fl_shift_round(int64_t x, int shift) {
    if (shift == 0)
        return x;
    if (shift > 62)
        return 0; /* |x| < 2^62 by the callers' bounds: below one half */
    int64_t half = (int64_t)1 << (shift - 1);
    return (x + (half - 1) + ((x >> shift) & 1)) >> shift;
}

/* floor(x / 2^shift + draw / 2^32): stochastic rounding with a 32-bit draw; shift >= 0. */
static inline int64_t fl_shift_stochastic(int64_t x, int shift, uint32_t draw) {
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
