/* block_rules.h - how a block and its elements follow from numbers, one at a time: scales, roundings, the Hadamard
 * transform. The vectors of processors (block_kernels.inc) and the kernels of devices compile this text.
 *
 * A magnitude u in units of the scale is rounded by adding and subtracting M = 2^(E - m + 23), E = max(exponent of u,
 * least exponent of the element), m fraction bits: the sum lies between M and 2 M, where neighbours of binary32 are
 * 2^(E - m) apart, so that the addition is the one rounding, to nearest even, to a number of the element's format.
 * Products with powers of two are exact: where u would be less than 2^-126 it becomes 0 either way. */
#ifndef FL_BLOCK_RULES_H
#define FL_BLOCK_RULES_H

#include "autoflex/both.h"
#include "blocks/block_quantise.h"
#include "core/arithmetic/philox.h"
#include <string.h>

#define FL_BLOCK_INLINE FL_BOTH __attribute__((always_inline))

enum { FL_BLOCK_FIELD = 0x7f800000, FL_BLOCK_SIGN_OFF = 0x7fffffff };

FL_BLOCK_INLINE uint32_t fl_block_word(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

FL_BLOCK_INLINE float fl_block_float(uint32_t word) {
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

/* 2^e, -149 <= e <= 127. */
FL_BLOCK_INLINE float fl_block_power(int e) {
    return fl_block_float(e >= -126 ? (uint32_t)(e + 127) << 23 : 1u << (e + 149));
}

/* --- scales ------------------------------------------------------------------------------------------------------ */

/* The tensor scale of a tensor with this maximum: nearest to maximum / (6 * 448), so that the largest block scale is
 * 448; not subnormal, because it would then have fewer bits. */
FL_BOTH float fl_block_tensor_scale(uint32_t maximum) {
    float x;
    memcpy(&x, &maximum, sizeof x);
    const float scale = (float)(x / 2688.0);
    return !maximum ? 1 : scale < 0x1p-126f ? 0x1p-126f : scale;
}

/* What the scale of a block with this maximum is, a word that is finite and not 0: its exponent. */
FL_BOTH int fl_block_exponent(const struct fl_block_format *f, uint32_t maximum) {
    enum { FRACTION = (1 << 23) - 1 };
    int exponent = (int)(maximum >> 23) - 127;
    uint32_t fraction = maximum & FRACTION;
    if (maximum <= FRACTION) { /* subnormal */
        const int zeros = __builtin_clzll(maximum) - 32;
        exponent = 31 - zeros - 149;
        fraction = maximum << (zeros - 8) & FRACTION;
    }
    const float most = (float)f->element.largest; /* 1.fraction * 2^top_exponent, with few bits */
    uint32_t largest;
    memcpy(&largest, &most, sizeof largest);
    largest &= FRACTION;
    bool up = false;
    switch (f->rule) {
    case FL_SCALE_FLOOR:
        break;
    case FL_SCALE_CEIL:
        up = fraction != 0;
        break;
    case FL_SCALE_EVEN: /* amax is nearer to the next power of two than to the number below it; a tie is odd */
        up = fraction + (1u << (22 - f->fraction_bits)) > FRACTION;
        break;
    case FL_SCALE_RCEIL:
        up = fraction > largest;
    }
    exponent += (up ? 1 : 0) - f->top_exponent;
    return exponent < FL_SCALE_LEAST ? FL_SCALE_LEAST : exponent > FL_SCALE_MOST ? FL_SCALE_MOST : exponent;
}

/* The E4M3 scale of a block of nvfp4: nearest to maximum / (6 tensor_scale), as significand * 2^exponent; 0 has
 * significand 0. It is 448 at most, because tensor_scale is nearest to the maximum of the tensor by 2688, or larger.
 * Source: arXiv 2509.25149. The quotient in binary64 is nearest to a number of E4M3, or to a tie of two,
 * only where the exact one is: a tie times 6 tensor_scale has 31 bits. Adding 2^(unit + 52) rounds to multiples of
 * 2^unit. */
FL_BOTH int fl_block_e4m3_scale(float maximum, float tensor_scale, int *exponent) {
    enum { LEAST = -9 };
    const double quotient = maximum / (6.0 * tensor_scale);
    uint64_t bits;
    memcpy(&bits, &quotient, sizeof bits);
    const int fine = (int)(bits >> 52) - 1023 - 3, unit = fine > LEAST ? fine : LEAST;
    bits = (uint64_t)(unit + 52 + 1023) << 52;
    double magic;
    memcpy(&magic, &bits, sizeof magic);
    const double sum = quotient + magic;
    memcpy(&bits, &sum, sizeof bits);
    const int significand = (int)(bits & 31); /* 16: the next power of two */
    *exponent = significand == 16 ? unit + 1 : unit;
    return significand == 16 ? 8 : significand;
}

/* --- elements ---------------------------------------------------------------------------------------------------- */

/* The grid of the format, in units of a scale. */
struct fl_block_grid {
    int32_t least; /* exponent field of the least exponent with steps of its own */
    int32_t up;    /* 23 - m as an exponent field */
    float largest, unit /* 2^-unit: values as integers */;
    double least_double;
    int digits; /* m + 1 */
};

FL_BLOCK_INLINE struct fl_block_grid fl_block_grid_of(const struct fl_block_format *f) {
    /* The steps of integers are those of floats below 2, whose exponent is 0 at least. */
    const int least = f->element.kind == FL_ELEMENT_INTEGER ? 0 : f->element.least_exponent;
    struct fl_block_grid g;
    g.least = (least + 127) << 23;
    g.up = (23 - f->fraction_bits) << 23;
    g.largest = (float)f->element.largest;
    g.unit = f->bytes ? fl_block_power(-f->element.unit) : 1;
    g.least_double = fl_block_power(least);
    g.digits = f->fraction_bits + 1;
    return g;
}

struct fl_block_counts {
    int saturated, flushed;
};

/* The rounded magnitude r of x to an element. */
FL_BLOCK_INLINE void fl_block_put(const struct fl_block_grid *g, bool bytes, float x, float r, int j, int8_t *to_bytes,
                                  float *to_floats, struct fl_block_counts *c) {
    const uint32_t word = fl_block_word(x);
    c->saturated += r > g->largest;
    r = r < g->largest ? r : g->largest;
    c->flushed += (r == 0) & ((word & FL_BLOCK_SIGN_OFF) != 0);
    const float value = fl_block_float(fl_block_word(r) | (word & ~(uint32_t)FL_BLOCK_SIGN_OFF));
    if (bytes)
        to_bytes[j] = (int8_t)(int)(value * g->unit);
    else
        to_floats[j] = value;
}

/* |x| times `by`, a power of two, to nearest. integers: all steps have one size. */
FL_BLOCK_INLINE float fl_block_nearest(const struct fl_block_grid *g, bool integers, float x, float by) {
    const float u = fl_block_float(fl_block_word(x) & FL_BLOCK_SIGN_OFF) * by;
    int32_t field = (int32_t)(fl_block_word(u) & FL_BLOCK_FIELD);
    field = field > g->least ? field : g->least;
    const float magic = fl_block_float((uint32_t)((integers ? g->least : field) + g->up));
    return (u + magic) - magic;
}

/* The least values of binary32 that have passed each tie between neighbours of E2M1, times a scale; the last one is
 * that beyond the largest. A tie times the scale has 31 bits, so that binary64 has it exactly. */
enum { FL_E2M1_TIES = 8 };
FL_BOTH void fl_block_e2m1_ties(double scale, float *from) {
    const double tie[FL_E2M1_TIES] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7};
    for (int i = 0; i < FL_E2M1_TIES; i++) {
        const double exact = tie[i] * scale;
        const float near = (float)exact;
        const bool passes = (i % 2 == 1) & ((double)near == exact); /* the tie itself: the element above it is even */
        from[i] = fl_block_float(fl_block_word(near) + !(((double)near > exact) | passes));
    }
}

/* The element of a magnitude, in units of 1/2. */
FL_BLOCK_INLINE int32_t fl_block_e2m1(float u, const float *from) {
    return (u >= from[0]) + (u >= from[1]) + (u >= from[2]) + (u >= from[3]) + 2 * ((u >= from[4]) + (u >= from[5])) +
           4 * (u >= from[6]);
}

/* --- the Hadamard transform --------------------------------------------------------------------------------------- */

/* The 16 signs of a key, a bit each: set where the value is negated. */
FL_BOTH uint32_t fl_block_signs(uint64_t key) {
    return fl_philox(key, UINT64_MAX, UINT64_MAX).word[0] & ((1u << FL_HADAMARD) - 1); /* no write has this number */
}

/* The Hadamard transform of 16 values times 1/4: y = H D x / 4, where D has the signs and H is Sylvester's matrix. Four
 * rounds of sums and differences in binary32, at distances 8, 4, 2, 1. */
FL_BOTH void fl_block_transform(float *x, uint32_t signs) {
    for (int i = 0; i < FL_HADAMARD; i++)
        x[i] *= signs >> i & 1 ? -0.25f : 0.25f;
    for (int apart = FL_HADAMARD / 2; apart; apart /= 2)
        for (int i = 0; i < FL_HADAMARD; i += 2 * apart)
            for (int j = i; j < i + apart; j++) {
                const float a = x[j], b = x[j + apart];
                x[j] = a + b;
                x[j + apart] = a - b;
            }
}

#endif
