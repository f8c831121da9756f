/* exact_rules.h - sums of a few terms of any exponents, rounded once: the same code for a processor and a device.
 * exact.h describes the functions; the host's, which lack FL_BOTH, call these (exact.c). */
#ifndef FL_EXACT_RULES_H
#define FL_EXACT_RULES_H

#include "autoflex/autoflex_rules.h"
#include "core/arithmetic/exact.h"

FL_BOTH int fl_bits_of_128(fl_uint128 x) { /* x < 2^that */
    const uint64_t high = (uint64_t)(x >> 64), low = (uint64_t)x;
    return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

FL_BOTH fl_uint128 fl_magnitude_128(fl_int128 x) {
    return x < 0 ? -(fl_uint128)x : (fl_uint128)x;
}

/* A finite double as a term of 53 bits. */
FL_BOTH struct fl_term fl_term_of_double(double x) {
    struct fl_term term = {0, 0};
    if (x == 0)
        return term;
    uint64_t fraction;
    const int exponent = fl_split(x < 0 ? -x : x, &fraction);
    const int64_t m = (int64_t)(fraction | (uint64_t)1 << 52);
    term.m = x < 0 ? -m : m;
    term.e = 52 - exponent;
    return term;
}

/* m shifted right with the lost bits collected in the last one (round to odd); works on the magnitude. */
FL_BOTH fl_int128 fl_shift_odd(fl_int128 m, int shift) {
    if (shift <= 0)
        return m;
    const fl_uint128 a = fl_magnitude_128(m);
    fl_uint128 r;
    if (shift >= 127)
        r = a != 0;
    else
        r = (a >> shift) | ((a & (((fl_uint128)1 << shift) - 1)) != 0);
    return m < 0 ? -(fl_int128)r : (fl_int128)r;
}

/* x rounded once to double, ties to even, by 64-bit conversions only: the bits that 64 bits lose are collected in the
 * last of them, far below the 53 bits of the result. */
FL_BOTH double fl_double_of_128(fl_int128 x) {
    const int bits = fl_bits_of_128(fl_magnitude_128(x)), shift = bits > 64 ? bits - 64 : 0;
    const double value = fl_scale2((double)(uint64_t)fl_magnitude_128(fl_shift_odd(x, shift)), shift);
    return x < 0 ? -value : value;
}

/* Terms are summed coarsest (smallest e) first. A finer term is added to the exact sum of all coarser ones, so a
 * cancellation among coarse terms loses nothing. A term that is too fine for 128 bits begins another sum; in the end
 * the finer sum is added to the coarser one, rounded to odd: the coarser sum, shifted left by two bits or more, ends in
 * zeros there, so the odd last bit survives the addition. */
FL_BOTH struct fl_wide_sum fl_terms_sum(const struct fl_term *terms, int n) {
    struct fl_term sorted[4];
    struct fl_wide_sum coarser[3], sum;
    int spare[3], count = 0, sums = 0;
    for (int i = 0; i < n && i < 4; i++) {
        if (terms[i].m == 0)
            continue;
        int j = count++;
        for (; j > 0 && sorted[j - 1].e > terms[i].e; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = terms[i];
    }
    sum.m = 0;
    sum.e = 0;
    for (int i = 0; i < count; i++) {
        if (sum.m != 0) {
            const int finer = sorted[i].e - sum.e, room = 122 - fl_bits_of_128(fl_magnitude_128(sum.m));
            if (finer <= room) {
                sum.m = sum.m * ((fl_int128)1 << finer) + sorted[i].m;
                sum.e = sorted[i].e;
                continue;
            }
            coarser[sums] = sum;
            spare[sums++] = room;
        }
        sum.m = sorted[i].m;
        sum.e = sorted[i].e;
    }
    while (sums > 0) {
        struct fl_wide_sum above = coarser[--sums];
        above.m *= (fl_int128)1 << (spare[sums] + 2);
        above.e += spare[sums] + 2;
        /* the finer term was one bit too fine: `sum` has then a single exponent, is below 2^64, and moves up one bit */
        const int down = sum.e - above.e;
        above.m += down < 0 ? sum.m * 2 : fl_shift_odd(sum.m, down);
        sum = above;
    }
    return sum;
}

FL_BOTH int64_t fl_terms_round(struct fl_wide_sum sum, int e_out, int64_t limit, const uint32_t *draw,
                               int64_t *saturated) {
    if (sum.m == 0)
        return 0;
    int shift = sum.e - e_out;
    const fl_int128 bound = (fl_int128)1 << 100;
    if (!draw && shift >= 1 && shift <= 100 && sum.m <= bound && sum.m >= -bound) { /* the usual case, in a few steps */
        const fl_int128 below_half = ((fl_int128)1 << (shift - 1)) - 1;
        const fl_int128 rounded = (sum.m + below_half + ((sum.m >> shift) & 1)) >> shift;
        if (saturated)
            *saturated += rounded > limit || rounded < -limit;
        return rounded > limit ? limit : rounded < -limit ? -limit : (int64_t)rounded;
    }
    int negative = sum.m < 0;
    fl_uint128 a = fl_magnitude_128(sum.m);
    int bits = fl_bits_of_128(a);
    fl_uint128 r;
    if (bits - shift > 40) { /* beyond any limit, however it is rounded */
        if (saturated)
            ++*saturated;
        return negative ? -limit : limit;
    }
    if (shift <= 0) {
        r = a << -shift;
    } else if (draw) {
        /* floor(x + draw/2^32) of a negative x needs the two's complement value */
        if (shift > 92) {
            sum.m = fl_shift_odd(sum.m, shift - 92);
            shift = 92;
        }
        fl_int128 u = shift <= 32 ? (fl_int128)(*draw >> (32 - shift)) : (fl_int128)*draw << (shift - 32);
        fl_int128 x = (sum.m + u) >> shift;
        negative = x < 0;
        r = fl_magnitude_128(x);
    } else if (shift > 126) {
        r = 0;
    } else {
        fl_uint128 half = (fl_uint128)1 << (shift - 1);
        r = (a + (half - 1) + ((a >> shift) & 1)) >> shift;
    }
    if (r > (fl_uint128)limit) {
        if (saturated)
            ++*saturated;
        r = (fl_uint128)limit;
    }
    return negative ? -(int64_t)r : (int64_t)r;
}

FL_BOTH double fl_terms_abs(struct fl_wide_sum sum) {
    return fl_scale2(fl_double_of_128(sum.m < 0 ? -sum.m : sum.m), -sum.e);
}

FL_BOTH double fl_terms_odd(struct fl_wide_sum sum) {
    const int excess = fl_bits_of_128(fl_magnitude_128(sum.m)) - 53;
    if (excess > 0) {
        sum.m = fl_shift_odd(sum.m, excess);
        sum.e -= excess;
    }
    return ldexp((double)(int64_t)sum.m, -sum.e);
}

#endif
