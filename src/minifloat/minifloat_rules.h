/* minifloat_rules.h - the conversions of a float made from its parameters, one number at a time, and how it is counted:
 * the text that the loops of processors and the kernels of devices compile. */
#ifndef FL_MINIFLOAT_RULES_H
#define FL_MINIFLOAT_RULES_H

#include "core/tensor/element_rules.h"

/* What conversions need to know of an element, in words of binary32. */
struct fl_minifloat {
    uint32_t shift;           /* places of the fraction that the element lacks */
    uint32_t rebias;          /* what exponents of normal numbers differ by */
    uint32_t odd;             /* 1 without fraction bits: the last place of every normal number is then odd */
    uint32_t least;           /* the smallest normal number */
    uint32_t magic;           /* the power of two whose last place is that of subnormal numbers */
    float unit;               /* their last place */
    uint32_t overflow, flush; /* the smallest magnitude that is too large, and the largest that becomes zero */
    uint32_t largest;         /* the largest number, and as codes that, Inf and NaN; the latter 0 where there is none */
    uint32_t largest_code, too_large, infinity, nan;
    uint32_t signed_nan; /* the sign, or 0 if NaN becomes 0 */
    uint32_t sign;       /* places from the sign of binary32 to that of the element */
    bool saturates;
    bool scaled; /* it is under an exponent: Inf is no maximum that one could be chosen for */
    int digits;  /* of a normal number */
    double least_normal, largest_value;
};

/* The operands of a task whose elements are decoded to binary32 before a kernel of binary32 runs, and where to. */
enum { FL_MINIFLOAT_OPERANDS = 12 };
struct fl_minifloat_operands {
    int count;
    struct fl_view view[FL_MINIFLOAT_OPERANDS];
    float *floats[FL_MINIFLOAT_OPERANDS];
};

/* The word of x 2^n, a binary32. */
FL_BOTH uint32_t fl_minifloat_scaled(uint32_t word, int n) {
    float x;
    memcpy(&x, &word, sizeof x);
    x = (float)fl_scale2((double)x, n);
    memcpy(&word, &x, sizeof word);
    return word;
}

/* What conversions need to know of the element under exponent e of its tensor; f: under 0. The numbers times 2^-e are
 * those of a float with another bias, so that conversions round once whatever e is. */
FL_BOTH struct fl_minifloat fl_minifloat_under(const struct fl_minifloat *f, int e) {
    struct fl_minifloat of = *f;
    of.rebias -= (uint32_t)e << 23;
    of.least = fl_minifloat_scaled(f->least, -e);
    of.magic = fl_minifloat_scaled(f->magic, -e);
    of.unit = (float)fl_scale2((double)f->unit, -e);
    of.overflow = fl_minifloat_scaled(f->overflow, -e);
    of.flush = fl_minifloat_scaled(f->flush, -e);
    of.largest = fl_minifloat_scaled(f->largest, -e);
    of.least_normal = fl_scale2(f->least_normal, -e);
    of.largest_value = fl_scale2(f->largest_value, -e);
    return of;
}

/* The number of a code, exactly. */
FL_BOTH __attribute__((always_inline)) float fl_minifloat_decode(const struct fl_minifloat *f, uint32_t code) {
    const uint32_t sign = (code << f->sign) & 0x80000000u, magnitude = code & (0x7fffffffu >> f->sign);
    const uint32_t normal = (magnitude << f->shift) + f->rebias;
    const float small = (float)(int32_t)magnitude * f->unit; /* exact */
    uint32_t subnormal, special = magnitude == f->infinity ? 0x7f800000u : 0x7fc00000u;
    memcpy(&subnormal, &small, sizeof subnormal);
    uint32_t bits = normal < f->least ? subnormal : normal;
    bits = (magnitude > f->largest_code ? special : bits) | sign;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Normal numbers are rounded in the integer, where a carry out of the fraction is the next exponent; below, adding the
 * power of two whose last place is theirs rounds to nearest even. */
FL_BOTH __attribute__((always_inline)) uint32_t fl_minifloat_encode(const struct fl_minifloat *f, float x) {
    uint32_t bits, subnormal;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t magnitude = bits & 0x7fffffffu, half = (1u << f->shift) >> 1;
    const uint32_t last = (magnitude >> f->shift & 1u) | f->odd;
    const uint32_t normal = (magnitude + (half - 1 + last) - f->rebias) >> f->shift;
    float aligned, magic;
    memcpy(&aligned, &magnitude, sizeof aligned);
    memcpy(&magic, &f->magic, sizeof magic);
    aligned += magic;
    memcpy(&subnormal, &aligned, sizeof subnormal);
    uint32_t code = magnitude < f->least ? subnormal - f->magic : normal;
    code = magnitude >= f->overflow ? f->too_large : code;
    const bool nan = magnitude > 0x7f800000u;
    code = nan ? f->nan : code;
    const uint32_t sign = (bits & 0x80000000u) >> f->sign;
    return code | (nan ? sign & f->signed_nan : sign);
}

/* Counts x; beyond: it is too large. What a format cannot represent counts as under a shared exponent: NaN and Inf are
 * nonfinite, Inf is saturated besides. */
FL_BOTH void fl_minifloat_count(const struct fl_minifloat *f, float x, bool beyond, struct fl_stats *stats) {
    if (!f->saturates) {
        fl_count_float(x, beyond, stats);
        return;
    }
    const bool finite = x - x == 0;
    if (finite || !f->scaled)
        fl_count_float(x, false, stats);
    stats->nonfinite += !finite;
    stats->saturated += beyond && x == x;
}

#endif
