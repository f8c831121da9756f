/* exact_number.h - arithmetic by hand for tests: numbers as sign and a 768-bit magnitude in units of 2^-384, enough for
 * every sum and product of two shared-exponent operands and a binary32 scalar. Division keeps a sticky bit. */
#ifndef FL_EXACT_NUMBER_H
#define FL_EXACT_NUMBER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { NUMBER_LIMBS = 24, NUMBER_UNIT = 384 };

struct number {
    bool negative;
    bool sticky;              /* the magnitude is larger by less than one unit */
    uint32_t w[NUMBER_LIMBS]; /* little-endian */
};

static int number_compare_magnitude(const struct number *a, const struct number *b) {
    for (int i = NUMBER_LIMBS - 1; i >= 0; i--)
        if (a->w[i] != b->w[i])
            return a->w[i] > b->w[i] ? 1 : -1;
    return 0;
}

static bool number_is_zero(const struct number *a) {
    for (int i = 0; i < NUMBER_LIMBS; i++)
        if (a->w[i])
            return false;
    return !a->sticky;
}

/* m * 2^-e */
static struct number number_of(int64_t m, int e) {
    struct number r = {.negative = m < 0};
    uint64_t size = m < 0 ? -(uint64_t)m : (uint64_t)m;
    for (int bit = 0; bit < 64; bit++)
        if (size >> bit & 1) {
            const int at = NUMBER_UNIT - e + bit;
            r.w[at / 32] |= 1u << at % 32;
        }
    return r;
}

/* x, a finite double above 2^-330 in size or zero. */
static inline struct number number_of_double(double x) {
    int exponent;
    const double m = frexp(x, &exponent);
    return number_of((int64_t)ldexp(m, 53), 53 - exponent);
}

static struct number number_add(struct number a, struct number b) {
    struct number r = {0};
    if (a.negative == b.negative) {
        uint64_t carry = 0;
        for (int i = 0; i < NUMBER_LIMBS; i++) {
            carry += (uint64_t)a.w[i] + b.w[i];
            r.w[i] = (uint32_t)carry;
            carry >>= 32;
        }
        r.negative = a.negative;
        return r;
    }
    const bool swap = number_compare_magnitude(&a, &b) < 0;
    const struct number *large = swap ? &b : &a, *small = swap ? &a : &b;
    int64_t borrow = 0;
    for (int i = 0; i < NUMBER_LIMBS; i++) {
        int64_t d = (int64_t)large->w[i] - small->w[i] + borrow;
        r.w[i] = (uint32_t)d;
        borrow = d < 0 ? -1 : 0;
    }
    r.negative = large->negative && !number_is_zero(&r);
    return r;
}

static inline struct number number_divide(struct number a, uint32_t divisor) {
    uint64_t rest = 0;
    for (int i = NUMBER_LIMBS - 1; i >= 0; i--) {
        rest = rest << 32 | a.w[i];
        a.w[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    a.sticky = rest != 0;
    return a;
}

static int number_bit(const struct number *a, int at) {
    return at < 0 || at >= 32 * NUMBER_LIMBS ? 0 : a->w[at / 32] >> at % 32 & 1;
}

static bool number_any_below(const struct number *a, int at) {
    for (int i = 0; i < at && i < 32 * NUMBER_LIMBS; i++)
        if (i % 32 == 0 && i + 32 <= at) {
            if (a->w[i / 32])
                return true;
            i += 31;
        } else if (number_bit(a, i)) {
            return true;
        }
    return a->sticky;
}

/* The bits from `at` up, at most 2^62 (then just that). */
static int64_t number_bits_from(const struct number *a, int at) {
    const int64_t huge = (int64_t)1 << 62;
    for (int i = 32 * NUMBER_LIMBS - 1; i >= at + 62 && i >= 0; i--)
        if (number_bit(a, i))
            return huge;
    int64_t r = 0;
    for (int i = 61; i >= 0; i--)
        r = r << 1 | number_bit(a, at + i);
    return r;
}

/* x * 2^e to the nearest integer, ties to even; beyond 2^62 in size: +-2^62. */
static int64_t number_nearest(const struct number *a, int e) {
    const int at = NUMBER_UNIT - e; /* the bit of weight one */
    int64_t r = number_bits_from(a, at);
    if (number_bit(a, at - 1) && (number_any_below(a, at - 1) || (r & 1)))
        r++;
    return a->negative ? -r : r;
}

/* floor(x * 2^e + draw / 2^32) */
static int64_t number_stochastic(const struct number *a, int e, uint32_t draw) {
    struct number sum = *a;
    const bool sticky = a->sticky;
    sum.sticky = false;
    const bool negative = a->negative;
    sum = number_add(sum, number_of(draw, e + 32));
    const int at = NUMBER_UNIT - e;
    int64_t r = number_bits_from(&sum, at);
    if (!sum.negative) /* a magnitude larger by a fraction of a unit: of a negative x, the sum is smaller */
        return negative && sticky && !number_any_below(&sum, at) ? r - 1 : r;
    return -(r + (number_any_below(&sum, at) || sticky));
}

/* |x|, rounded to the nearest double. */
static inline double number_double(const struct number *a) {
    int top = 32 * NUMBER_LIMBS - 1;
    while (top >= 0 && !number_bit(a, top))
        top--;
    if (top < 0)
        return 0;
    struct number size = *a;
    size.negative = false;
    const int e = NUMBER_UNIT - (top - 52);
    return ldexp((double)number_nearest(&size, e), -e);
}

#endif
