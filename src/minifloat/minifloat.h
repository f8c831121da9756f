/* minifloat.h - floats made from their parameters (core/arithmetic/element.h) as formats of tensors: conversions in
 * vectors and kernels for every instruction set. Elements of up to 8 bits are bytes, others words of 16 bits. */
#ifndef FL_MINIFLOAT_H
#define FL_MINIFLOAT_H

#include "core/table/format.h"
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

/* Of an element under exponent e of its tensor, which formats without one ignore: an element times 2^-e is that of a
 * float with another bias, so that conversions round once whatever e is. */
struct fl_minifloat fl_minifloat_of(const struct fl_format *format, int e);

/* The conversions of n numbers for one instruction set; bytes: 1 or 2 of an element. decode returns the largest
 * magnitude as a word of binary32. count adds the statistics of encoding x. */
struct fl_minifloat_conversions {
    uint32_t (*decode)(const struct fl_minifloat *f, int bytes, const void *from, int64_t n, float *to);
    void (*encode)(const struct fl_minifloat *f, int bytes, const float *from, int64_t n, void *to);
    void (*count)(const struct fl_minifloat *f, const float *x, int64_t n, struct fl_stats *stats);
};
extern const struct fl_minifloat_conversions fl_minifloat_portable, fl_minifloat_avx2, fl_minifloat_avx512bw;

/* Counts x; beyond: it is too large. What a format cannot represent counts as under a shared exponent: NaN and Inf are
 * nonfinite, Inf is saturated besides. */
static inline void fl_minifloat_count(const struct fl_minifloat *f, float x, bool beyond, struct fl_stats *stats) {
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

/* Stores n numbers rounded once by `rounding`, from element `first` of the view on. x: binary32; with a stochastic
 * rounding `exact`, not NULL, is rounded instead, and x is the same to nearest. */
void fl_minifloat_store(const struct fl_minifloat_conversions *c, const struct fl_format *format,
                        const struct fl_view *out, int64_t first, int64_t n, const float *x, const double *exact,
                        const struct fl_rounding *rounding, struct fl_stats *stats);

/* A kernel of binary32 of that backend, between conversions of its operands; its workspace. */
tensor_status fl_minifloat_run(const struct fl_args *args, enum fl_backend backend,
                               const struct fl_minifloat_conversions *c);
size_t fl_minifloat_need(const struct fl_args *args, enum fl_backend backend);

extern const struct fl_kernels fl_minifloat_kernels_portable, fl_minifloat_kernels_avx2, fl_minifloat_kernels_avx512bw;

#endif
