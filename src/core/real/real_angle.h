/* real_angle.h - x modulo pi / 2 for the trigonometric functions, for every |x| < 2^160 (Payne and Hanek 1983).
 *
 * x = m 2^k with an integer m of 53 bits. Only the part of x times 2 / pi modulo 4 counts, so the bits of 2 / pi whose
 * products with x are multiples of 4 are omitted, and the 256 bits after them suffice: the product is correct to
 * 2^-200, and no x of 53 bits comes closer to a multiple of pi / 2 than about 2^-62 of it. */
#ifndef FL_REAL_ANGLE_H
#define FL_REAL_ANGLE_H

#include "core/arithmetic/exact.h"
#include "core/real/real_pair.h"
#include "core/real/real_tables.h"

/* 64 bits of 2 / pi, from bit i after the binary point on (0 is the first); the bits before the point are zeros. */
FL_BOTH uint64_t fl_angle_word(int i) {
    const int shift = i & 63, word = (i - shift) / 64;
    const uint64_t high = fl_two_over_pi(word);
    return shift ? high << shift | fl_two_over_pi(word + 1) >> (64 - shift) : high;
}

/* The leading 128 bits of the fraction f / 2^256, which is below 2^-1, rounded down, as a pair; f[0] is the most
 * significant word. */
FL_BOTH struct fl_pair fl_angle_fraction(const uint64_t *f) {
    int first = 0;
    while (first < 3 && !f[first])
        first++;
    if (!f[first])
        return fl_pair_of(0);
    const int zeros = __builtin_clzll(f[first]);
    uint64_t words[3]; /* the zeros after the end replace less than 2^-192 */
    for (int i = 0; i < 3; i++)
        words[i] = first + i < 4 ? f[first + i] : 0;
    if (zeros) {
        words[0] = words[0] << zeros | words[1] >> (64 - zeros);
        words[1] = words[1] << zeros | words[2] >> (64 - zeros);
    }
    /* 53 bits, 53 bits and 22 bits, each exact */
    const double unit = fl_scale2(1, -64 * first - zeros);
    const double high = (double)(words[0] >> 11) * 0x1p-53,
                 middle = (double)((words[0] & 0x7ff) << 42 | words[1] >> 22) * 0x1p-106;
    return fl_pair_scale(fl_pair_ordered_sum(high, middle), unit);
}

/* Returns x - quadrant pi / 2, at most pi / 4 in size except for rounding; quadrant is modulo 4. */
FL_BOTH_CALLED struct fl_pair fl_angle(double x, int *quadrant) {
    const double size = x < 0 ? -x : x;
    *quadrant = 0;
    if (size < 0.785)
        return fl_pair_of(x);
    uint64_t m;
    const int k = fl_split(size, &m) - 52;
    m |= (uint64_t)1 << 52;
    uint64_t product[4];
    fl_uint128 carry = 0; /* the product modulo 2^256: x 2 / pi modulo 4, two bits before the point */
    for (int i = 3; i >= 0; i--) {
        const fl_uint128 p = (fl_uint128)m * fl_angle_word(k - 2 + 64 * i) + carry;
        product[i] = (uint64_t)p;
        carry = p >> 64;
    }
    *quadrant = (int)(product[0] >> 62);
    for (int i = 0; i < 4; i++)
        product[i] = product[i] << 2 | (i < 3 ? product[i + 1] >> 62 : 0);
    const bool above = product[0] >> 63; /* closer to the next multiple */
    if (above) {
        *quadrant = (*quadrant + 1) & 3;
        for (int i = 0; i < 4; i++)
            product[i] = ~product[i]; /* -1 in the last place, which does not count */
    }
    struct fl_pair r = fl_pair_mul(fl_angle_fraction(product), fl_pair_new(FL_REAL_HALF_PI));
    if (above != (x < 0))
        r = fl_pair_negative(r);
    if (x < 0)
        *quadrant = -*quadrant & 3;
    return r;
}

#endif
