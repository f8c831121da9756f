/* fixed_sum.h - exact sums of any doubles, for a processor and for devices: a fixed-point number in two's complement
 * that holds any sum of 2^20 doubles exactly (Kulisch 1971), in units of 2^-1138: 64 bits below the smallest double,
 * which a division fills. */
#ifndef FL_FIXED_SUM_H
#define FL_FIXED_SUM_H

#include "core/arithmetic/exact_rules.h"

enum { FL_FIXED_LIMBS = 36, FL_FIXED_BELOW = 1138 };
struct fl_fixed {
    uint64_t limb[FL_FIXED_LIMBS]; /* the lowest first */
};

FL_BOTH void fl_fixed_add(struct fl_fixed *a, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    const uint64_t significand = (bits & (((uint64_t)1 << 52) - 1)) | (exponent ? (uint64_t)1 << 52 : 0);
    const int shift = (exponent ? exponent : 1) - 1075 + FL_FIXED_BELOW; /* x is significand * 2^(exponent - 1075) */
    const bool negative = bits >> 63;
    fl_uint128 part = (fl_uint128)significand << shift % 64;
    for (int i = shift / 64; i < FL_FIXED_LIMBS; i++) { /* part: what is still to be added, and the carry or borrow */
        const uint64_t now = a->limb[i], word = (uint64_t)part;
        part >>= 64;
        a->limb[i] = negative ? now - word : now + word;
        part += negative ? now < word : a->limb[i] < now;
        if (!part)
            return;
    }
}

/* Makes the number its magnitude; returns whether it was negative. */
FL_BOTH bool fl_fixed_sign(struct fl_fixed *a) {
    if (!(a->limb[FL_FIXED_LIMBS - 1] >> 63))
        return false;
    uint64_t carry = 1;
    for (int i = 0; i < FL_FIXED_LIMBS; i++) {
        a->limb[i] = ~a->limb[i] + carry;
        carry = carry && !a->limb[i];
    }
    return true;
}

/* a / divisor, the remainder collected in the last bit. */
FL_BOTH void fl_fixed_divide(struct fl_fixed *a, uint32_t divisor) {
    uint64_t rest = 0;
    for (int i = FL_FIXED_LIMBS - 1; i >= 0; i--) { /* half a limb at a time: devices divide 64 bits */
        const uint64_t high = rest << 32 | a->limb[i] >> 32, low = high % divisor << 32 | (uint32_t)a->limb[i];
        a->limb[i] = high / divisor << 32 | low / divisor;
        rest = low % divisor;
    }
    a->limb[0] |= rest != 0;
}

/* The leading 64 bits of a magnitude, what follows collected in the last of them; *scale: their unit is 2^*scale. */
FL_BOTH uint64_t fl_fixed_leading(const struct fl_fixed *a, int *scale) {
    int top = FL_FIXED_LIMBS - 1;
    while (top > 0 && !a->limb[top])
        top--;
    const int spare = a->limb[top] ? __builtin_clzll(a->limb[top]) : 0;
    uint64_t bits = a->limb[top] << spare, rest = 0;
    if (top > 0 && spare) {
        bits |= a->limb[top - 1] >> (64 - spare);
        rest = a->limb[top - 1] << spare;
    } else if (top > 0) {
        rest = a->limb[top - 1];
    }
    for (int i = top - 2; i >= 0 && !rest; i--)
        rest = a->limb[i];
    *scale = 64 * top - spare - FL_FIXED_BELOW;
    return bits | (rest != 0);
}

/* The magnitude as a double: to odd, or to nearest. Where doubles have fewer bits, below 2^-1022, the bits that are too
 * fine are collected in the last one first. */
FL_BOTH double fl_fixed_round(uint64_t bits, int scale, bool odd) {
    int shift = 11; /* leaves 53 bits */
    if (scale + shift < -1074)
        shift = -1074 - scale;
    if (shift > 63) /* at most half of the smallest double, or just above */
        return odd || (shift == 64 && bits > (uint64_t)1 << 63) ? 0x1p-1074 : 0;
    const uint64_t low = bits & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    uint64_t kept = bits >> shift;
    if (odd)
        kept |= low != 0;
    else
        kept += low > half || (low == half && (kept & 1));
    return fl_scale2((double)kept, scale + shift);
}

/* The sum of x[0], x[stride], ..., divided by a number, rounded to odd or to nearest. If one is not finite, what adding
 * them gives. count: 1 to 2^20. */
FL_BOTH double fl_fixed_sum(const double *x, int count, int64_t stride, uint32_t divisor, bool odd) {
    struct fl_fixed a;
    double plain = 0;
    bool finite = true;
    for (int i = 0; i < FL_FIXED_LIMBS; i++)
        a.limb[i] = 0;
    for (int i = 0; i < count; i++) {
        plain += x[i * stride];
        finite = finite && fl_is_finite(x[i * stride]);
        if (finite)
            fl_fixed_add(&a, x[i * stride]);
    }
    if (!finite)
        return plain;
    const bool negative = fl_fixed_sign(&a);
    int scale;
    if (divisor > 1)
        fl_fixed_divide(&a, divisor);
    const uint64_t bits = fl_fixed_leading(&a, &scale);
    const double size = bits ? fl_fixed_round(bits, scale, odd) : 0;
    return negative ? -size : size;
}

#endif
