/* exact.c - sums of a few terms of any exponents, rounded once. */
#include "core/exact.h"

static int bit_length(fl_uint128 x) {
    uint64_t high = (uint64_t)(x >> 64), low = (uint64_t)x;
    return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

static fl_uint128 magnitude(fl_int128 x) {
    return x < 0 ? -(fl_uint128)x : (fl_uint128)x;
}

/* m shifted right with the lost bits collected in the last one (round to odd); works on the magnitude. */
static fl_int128 shift_odd(fl_int128 m, int shift) {
    if (shift <= 0)
        return m;
    fl_uint128 a = magnitude(m), r;
    if (shift >= 127)
        r = a != 0;
    else
        r = (a >> shift) | ((a & (((fl_uint128)1 << shift) - 1)) != 0);
    return m < 0 ? -(fl_int128)r : (fl_int128)r;
}

/* Sums terms[0 ... n), coarsest (smallest e) first. What a finer term meets is the exact sum of everything above it, so
 * a cancellation among coarse terms loses nothing. Where the next term is too fine for 128 bits, all finer terms are
 * summed among themselves first and enter once, rounded to odd: the coarse sum, shifted left by two bits or more, ends
 * in zeros there, so the odd last bit survives the addition. */
static struct fl_wide_sum sum_sorted(const struct fl_term *terms, int n) {
    struct fl_wide_sum sum = {0, 0};
    for (int i = 0; i < n; i++) {
        if (sum.m == 0) {
            sum.m = terms[i].m;
            sum.e = terms[i].e;
            continue;
        }
        int finer = terms[i].e - sum.e;
        int room = 122 - bit_length(magnitude(sum.m));
        if (finer <= room) {
            sum.m = sum.m * ((fl_int128)1 << finer) + terms[i].m;
            sum.e = terms[i].e;
            continue;
        }
        struct fl_wide_sum rest = sum_sorted(terms + i, n - i);
        sum.m *= (fl_int128)1 << (room + 2);
        sum.e += room + 2;
        /* one exponent finer than there was room for: `rest` is of one exponent, below 2^64, and lies one bit higher */
        const int down = rest.e - sum.e;
        sum.m += down < 0 ? rest.m * 2 : shift_odd(rest.m, down);
        break;
    }
    return sum;
}

struct fl_wide_sum fl_sum_terms(const struct fl_term *terms, int n) {
    struct fl_term sorted[4];
    int count = 0;
    for (int i = 0; i < n && i < 4; i++) {
        if (terms[i].m == 0)
            continue;
        int j = count++;
        for (; j > 0 && sorted[j - 1].e > terms[i].e; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = terms[i];
    }
    return sum_sorted(sorted, count);
}

int64_t fl_wide_round(struct fl_wide_sum sum, int e_out, int64_t limit, const uint32_t *draw, int64_t *saturated) {
    if (sum.m == 0)
        return 0;
    int shift = sum.e - e_out;
    int negative = sum.m < 0;
    fl_uint128 a = magnitude(sum.m);
    int bits = bit_length(a);
    fl_uint128 r;
    if (bits - shift > 40) { /* beyond any limit, whatever the rounding */
        if (saturated)
            ++*saturated;
        return negative ? -limit : limit;
    }
    if (shift <= 0) {
        r = a << -shift;
    } else if (draw) {
        /* floor(x + draw/2^32) of a negative x is taken on the two's complement value */
        if (shift > 92) {
            sum.m = shift_odd(sum.m, shift - 92);
            shift = 92;
        }
        fl_int128 u = shift <= 32 ? (fl_int128)(*draw >> (32 - shift)) : (fl_int128)*draw << (shift - 32);
        fl_int128 x = (sum.m + u) >> shift;
        negative = x < 0;
        r = magnitude(x);
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

double fl_wide_odd(struct fl_wide_sum sum) {
    int excess = bit_length(magnitude(sum.m)) - 53;
    if (excess > 0) {
        sum.m = shift_odd(sum.m, excess);
        sum.e -= excess;
    }
    return ldexp((double)sum.m, -sum.e);
}

double fl_wide_abs(struct fl_wide_sum sum) {
    /* 128-bit to double rounds to nearest even in hardware-independent code of the compiler's library */
    return ldexp((double)magnitude(sum.m), -sum.e);
}
