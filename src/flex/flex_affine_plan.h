/* flex_affine_plan.h - how the affine map of one channel is computed in integers: which of its forms is exact at an
 * exponent. C and CUDA, on plain numbers: no tensor, no vector, no libm.
 *
 * The map is first * (a - first_centre) + cross * (x - cross_centre) + offset, each coefficient m * 2^-e, a and x
 * 16-bit mantissas. It is computed at an exponent g at which all products are integers: t = F a + X x + C; the sticky
 * bit shows whether a part of the constant lies below. An exact sum strictly between t and t + 1 rounds as t with its
 * last bit set if the rounding drops two bits or more (round to odd: Boldo and Melquiond 2008). */
#ifndef FL_FLEX_AFFINE_PLAN_H
#define FL_FLEX_AFFINE_PLAN_H

#include "core/arithmetic/exact.h"
#include "core/table/kernel.h"
#include <limits.h>
#include <stdbool.h>

struct affine_channel {
    struct fl_coefficient first, cross, offset;
    int32_t first_centre, cross_centre;
};

FL_BOTH struct affine_channel affine_channel_of(const struct fl_channels *k, int64_t c, bool second) {
    const struct fl_coefficient none = {0, 0};
    struct affine_channel p;
    p.first = k->first[c];
    p.cross = second ? k->cross[c] : none;
    p.offset = k->offset[c];
    p.first_centre = k->first_centre[c];
    p.cross_centre = second ? k->cross_centre[c] : 0;
    return p;
}

FL_BOTH int64_t affine_abs(int64_t x) {
    return x < 0 ? -x : x;
}

/* |map| < 2^result in real units, for any mantissas. */
FL_BOTH int affine_size(const struct affine_channel *p) {
    const int parts[3] = {p->first.m ? fl_bits_of(p->first.m) + 17 - p->first.e : INT_MIN / 2,
                          p->cross.m ? fl_bits_of(p->cross.m) + 17 - p->cross.e : INT_MIN / 2,
                          p->offset.m ? fl_bits_of(p->offset.m) - p->offset.e : INT_MIN / 2};
    int most = parts[0];
    for (int i = 1; i < 3; i++)
        most = parts[i] > most ? parts[i] : most;
    return most + 2;
}

/* An exponent at which no result of maps of at most that size saturates, for writes that only measure. */
FL_BOTH int affine_measuring_exponent(int largest_size) {
    return largest_size > -900 && largest_size < 900 ? 14 - largest_size : 0;
}

/* The least exponent at which all products of mantissas are integers; `least` if there are none. */
FL_BOTH int affine_products_exponent(const struct affine_channel *p, int least) {
    int g = least;
    if (p->first.m && p->first.e > g)
        g = p->first.e;
    if (p->cross.m && p->cross.e > g)
        g = p->cross.e;
    return g;
}

/* The least exponent at which k, not zero, is an integer. */
FL_BOTH int affine_finest(struct fl_coefficient k) {
    return k.e - fl_trailing_zeros((uint32_t)k.m);
}

/* m * 2^(g - e), an integer; 0 for m = 0 at any exponents. */
FL_BOTH fl_int128 affine_scaled(int64_t m, int e, int g) {
    return m ? m * ((fl_int128)1 << (g - e)) : 0;
}

/* floor(k * 2^g); *sticky: it is below the exact value. |k| * 2^g < 2^120. */
FL_BOTH fl_int128 affine_floor(struct fl_coefficient k, int g, bool *sticky) {
    *sticky = false;
    if (k.m == 0 || k.e <= g)
        return affine_scaled(k.m, k.e, g);
    const int down = k.e - g < 40 ? k.e - g : 40;
    *sticky = (k.m & (((int64_t)1 << down) - 1)) != 0;
    return (int64_t)k.m >> down;
}

/* --- everything in one integer of 64 bits ------------------------------------------------------------------------- */

/* t = first a + cross x + constant at `exponent`, exact; |t| and its partial sums < 2^62. */
struct affine_whole {
    int64_t first, cross, constant;
    int exponent;
};

/* k * 2^g, an integer below 2^63. */
FL_BOTH int64_t affine_integer(struct fl_coefficient k, int g) {
    return !k.m ? 0 : k.e > g ? k.m >> (k.e - g) : k.m * ((int64_t)1 << (g - k.e));
}

/* The least exponent at which all coefficients are integers; 0 if all of them are zero. */
FL_BOTH int affine_whole_exponent(const struct affine_channel *p) {
    const struct fl_coefficient part[3] = {p->first, p->cross, p->offset};
    int g = INT_MIN / 4;
    for (int i = 0; i < 3; i++)
        if (part[i].m && affine_finest(part[i]) > g)
            g = affine_finest(part[i]);
    return g == INT_MIN / 4 ? 0 : g;
}

FL_BOTH bool affine_as_whole(const struct affine_channel *p, struct affine_whole *t) {
    const struct fl_coefficient part[3] = {p->first, p->cross, p->offset};
    const int g = affine_whole_exponent(p);
    if (affine_abs(g) > 1000)
        return false;
    int64_t whole[3];
    uint64_t size = 0; /* a mantissa is less than 2^16 from a centre */
    for (int i = 0; i < 3; i++) {
        const int spread = i < 2 ? 16 : 0;
        if (part[i].m && fl_bits_of(part[i].m) + g - part[i].e + spread > 62)
            return false;
        whole[i] = affine_integer(part[i], g);
        size += (uint64_t)affine_abs(whole[i]) << spread;
    }
    t->first = whole[0];
    t->cross = whole[1];
    t->constant = whole[2] - whole[0] * p->first_centre - whole[1] * p->cross_centre;
    t->exponent = g;
    return size < (uint64_t)1 << 62;
}

/* --- everything in one integer of 128 bits ------------------------------------------------------------------------ */

/* As struct affine_whole, where each of the three is below 2^118, so that the sum of terms (fl_terms_sum) is exact too.
 */
struct affine_wide {
    fl_int128 first, cross, constant;
    int exponent;
};

FL_BOTH bool affine_as_wide(const struct affine_channel *p, struct affine_wide *t) {
    const struct fl_coefficient part[3] = {p->first, p->cross, p->offset};
    const int g = affine_whole_exponent(p);
    fl_int128 whole[3];
    for (int i = 0; i < 3; i++) {
        const int up = g - part[i].e;
        if (part[i].m && fl_bits_of(part[i].m) + up + 17 > 118)
            return false;
        whole[i] = !part[i].m ? 0 : up < 0 ? part[i].m >> -up : part[i].m * ((fl_int128)1 << up);
    }
    t->first = whole[0];
    t->cross = whole[1];
    t->constant = whole[2] - whole[0] * p->first_centre - whole[1] * p->cross_centre;
    t->exponent = g;
    return true;
}

/* --- 64-bit lanes, multipliers of 32 bits ------------------------------------------------------------------------- */

/* coarse and fine are the two products, m times mantissa, by their exponents; each m < 2^31:
 *     t = (((coarse << coarse_up) + floor((fine + fine_constant) / 2^fine_down)) << up) + constant
 * and the last bit of t is set if the division was not exact or `sticky` is 1. */
struct affine_lane {
    int64_t first, cross;
    int64_t first_is_coarse; /* -1 yes, 0 no: the fine product is that of `first` */
    int64_t coarse_up, fine_constant, fine_down, up, constant;
    int64_t sticky; /* 1 or 0 */
    int exponent;   /* of t */
};

/* Plans a sum to be rounded at e_out, which drops 2 to 60 bits. False if 64 bits do not suffice. */
FL_BOTH bool affine_as_lane(const struct affine_channel *p, int e_out, struct affine_lane *t) {
    const bool two = p->first.m && p->cross.m;
    const int least = e_out + 2;
    const int e1 = p->first.m ? p->first.e : p->cross.m ? p->cross.e : least, e2 = two ? p->cross.e : e1;
    const bool first_is_coarse = e1 <= e2;
    const int coarse_e = first_is_coarse ? e1 : e2, fine_e = first_is_coarse ? e2 : e1;
    const int most = 61 - affine_size(p) < e_out + 60 ? 61 - affine_size(p) : e_out + 60;
    if (most < least || affine_abs(coarse_e) > 900 || affine_abs(fine_e) > 900)
        return false;
    const fl_int128 first_constant = -(fl_int128)p->first.m * p->first_centre;
    const fl_int128 cross_constant = -(fl_int128)p->cross.m * p->cross_centre;
    bool sticky;
    t->first = p->first.m;
    t->cross = p->cross.m;
    t->first_is_coarse = first_is_coarse ? -1 : 0;
    t->coarse_up = t->fine_constant = t->fine_down = t->up = 0;
    const int g = fine_e > least ? fine_e : least;
    if (g <= most) {
        t->coarse_up = fine_e - coarse_e;
        t->up = g - fine_e;
        t->constant =
            (int64_t)(affine_floor(p->offset, g, &sticky) + affine_scaled((int64_t)first_constant, p->first.e, g) +
                      affine_scaled((int64_t)cross_constant, p->cross.e, g));
        t->sticky = sticky;
        t->exponent = g;
        return true;
    }
    /* The fine product is divided and rounded to odd; everything else must be even at that place. */
    if (most <= coarse_e)
        return false;
    const int down = fine_e - most;
    const fl_int128 even = 2 * affine_floor(p->offset, most - 1, &sticky);
    const bool in_fine = sticky; /* the offset is added to the fine product if it is not even */
    if (in_fine && fl_bits_of(p->offset.m) + fine_e - p->offset.e > 60)
        return false;
    t->fine_constant = (int64_t)(first_is_coarse ? cross_constant : first_constant);
    if (in_fine)
        t->fine_constant += (int64_t)affine_floor(p->offset, fine_e, &sticky);
    t->constant =
        (int64_t)((in_fine ? 0 : even) +
                  affine_scaled((int64_t)(first_is_coarse ? first_constant : cross_constant), coarse_e, most));
    t->coarse_up = most - coarse_e;
    t->fine_down = down < 62 ? down : 62;
    t->sticky = sticky;
    t->exponent = most;
    return true;
}

/* --- 32-bit lanes, digits of 16 bits ------------------------------------------------------------------------------ */

enum { AFFINE_LEVELS = 4 };

/* t = sum over levels of 2^(16 level) times first[level] a + cross[level] x + constant[level], digits of 16 bits, the
 * top one with the sign of the whole: each level's sum, with the carry from the level below, fits 32 bits, and so does
 * the top one with the half unit for rounding. */
struct affine_digits {
    int levels;
    int32_t first[AFFINE_LEVELS], cross[AFFINE_LEVELS], constant[AFFINE_LEVELS];
    int32_t shift;  /* the top level's sum is rounded here: 2 ... 30 */
    int32_t sticky; /* 1 or 0; only with two levels: with more, the constant is an integer too */
};

/* Splits x into signed digits; false if the top one needs more than `top` bits and a sign. */
FL_BOTH bool affine_cut(fl_int128 x, int levels, int top, int32_t *digits) {
    const int64_t limit = (int64_t)1 << top;
    if (x == (int64_t)x) { /* the usual case */
        int64_t rest = (int64_t)x;
        for (int level = 0; level < levels - 1; level++) {
            digits[level] = (int16_t)(uint16_t)rest;
            rest = (rest >> 16) + (digits[level] < 0);
        }
        digits[levels - 1] = (int32_t)rest;
        return rest < limit && rest >= -limit;
    }
    for (int level = 0; level < levels - 1; level++) {
        digits[level] = (int16_t)(uint16_t)x;
        x = (x >> 16) + (digits[level] < 0);
    }
    digits[levels - 1] = (int32_t)x;
    return x < limit && x >= -limit;
}

/* Plans digits with exactly `levels` levels; false if 32 bits do not suffice. */
FL_BOTH bool affine_as_digits_of(const struct affine_channel *p, int e_out, int levels, struct affine_digits *t) {
    int g = affine_products_exponent(p, e_out + 16 * (levels - 1) + 2);
    if (levels > 2 && p->offset.m && affine_finest(p->offset) > g)
        g = affine_finest(p->offset);
    const int shift = g - e_out - 16 * (levels - 1);
    const int64_t limit = (int64_t)1 << 31, mantissa = (int64_t)1 << 15;
    if (shift > 30 || affine_size(p) + g > 110)
        return false;
    const fl_int128 first = affine_scaled(p->first.m, p->first.e, g), cross = affine_scaled(p->cross.m, p->cross.e, g);
    bool sticky;
    const fl_int128 constant = affine_floor(p->offset, g, &sticky) - first * p->first_centre - cross * p->cross_centre;
    t->levels = levels;
    t->shift = shift;
    t->sticky = sticky;
    if (!affine_cut(first, levels, 15, t->first) || !affine_cut(cross, levels, 15, t->cross) ||
        !affine_cut(constant, levels, 31, t->constant))
        return false;
    for (int level = 0; level < levels; level++) {
        int64_t size =
            (affine_abs(t->first[level]) + affine_abs(t->cross[level])) * mantissa + affine_abs(t->constant[level]) + 2;
        if (level > 0)
            size += mantissa + 1; /* the carry from the level below */
        if (level == levels - 1)
            size += (int64_t)1 << (shift - 1);
        if (size >= limit)
            return false;
    }
    return true;
}

/* Plans digits with the fewest levels from `levels` on; false if 32 bits do not suffice. */
FL_BOTH bool affine_as_digits(const struct affine_channel *p, int e_out, int levels, struct affine_digits *t) {
    for (; levels <= AFFINE_LEVELS; levels++)
        if (affine_as_digits_of(p, e_out, levels, t))
            return true;
    return false;
}

#endif
