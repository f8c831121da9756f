/* int8_rules.h - the rules by which a sum becomes an integer, one function each, and the coefficients that they use. */
#ifndef FL_INT8_RULES_H
#define FL_INT8_RULES_H

#include "int8/int8.h"
#include <math.h>

/* How one sum is rounded. Several named roundings share a rule, and a rounding has several. */
enum int8_rule {
    INT8_ONCE_EVEN, /* exact */
    INT8_BINARY32,  /* one product of binary32, ties to even */
    INT8_TWICE,     /* doubling high multiply, then a rounding shift (gemmlowp, ruy) */
    INT8_ONCE_UP    /* 64-bit product, one shift, ties up */
};

/* The multiplier of one channel in the form that a rule wants: coefficient * 2^-shift, coefficient in [2^30, 2^31); for
 * gemmlowp's rules coefficient / 2^31 * 2^-shift, where shift may be negative; factor for binary32. */
struct int8_multiplier {
    float factor;
    int32_t coefficient, shift;
    bool away; /* INT8_TWICE: ties of the shift go away from zero (gemmlowp), not up (ruy) */
};

enum {
    INT8_SHIFT_MOST = 127 /* of an exact coefficient */
};

/* By frexp: m 2^-31 2^e, m a number of 31 bits, ties to even. False unless 2^-96 <= real < 2^31. */
static inline bool int8_exact_multiplier(double real, struct int8_multiplier *m) {
    int e;
    if (!(real >= 0x1p-96 && real < 0x1p31))
        return false;
    double f = nearbyint(frexp(real, &e) * 0x1p31);
    if (f == 0x1p31) {
        f = 0x1p30;
        e++;
    }
    m->coefficient = (int32_t)f;
    m->shift = 31 - e;
    return m->shift >= 0;
}

/* TensorFlow Lite's QuantizeMultiplier: ties away from zero; what would be shifted away entirely becomes 0. */
static inline void int8_tflite_multiplier(double real, bool away, struct int8_multiplier *m) {
    int e;
    double f = round(frexp(real, &e) * 0x1p31);
    if (f == 0x1p31) {
        f = 0x1p30;
        e++;
    }
    const bool nothing = real == 0 || e < -31;
    m->coefficient = nothing ? 0 : (int32_t)f;
    m->shift = nothing ? 0 : -e;
    m->away = away;
}

static inline int32_t int8_wrap(int64_t x) {
    return (int32_t)(uint32_t)(uint64_t)x;
}

/* acc m + r n to the nearest integer, ties to even; |acc| < 2^62, |r| < 2^31. Whole parts and fractions are added
 * apart: a fraction has at most 127 binary digits. */
static inline int64_t int8_once_even(int64_t acc, const struct int8_multiplier *m, int64_t r,
                                     const struct int8_multiplier *n) {
    const __int128 a = (__int128)acc * m->coefficient, b = (__int128)r * n->coefficient;
    const unsigned __int128 half = (unsigned __int128)1 << 126,
                            part_a = m->shift ? (unsigned __int128)a << (128 - m->shift) >> 1 : 0,
                            part_b = n->shift ? (unsigned __int128)b << (128 - n->shift) >> 1 : 0,
                            parts = part_a + part_b, rest = parts << 1 >> 1;
    __int128 whole = (a >> m->shift) + (b >> n->shift) + (__int128)(parts >> 127);
    whole += rest > half || (rest == half && (whole & 1));
    return whole > INT32_MAX ? INT32_MAX : whole < INT32_MIN ? INT32_MIN : (int64_t)whole;
}

/* Where no binary32 number between them rounds otherwise, clamping to integers before or after rounding is the same. */
static inline int32_t int8_binary32(int32_t acc, float factor, int32_t low, int32_t high) {
    float x = (float)acc * factor;
    x = x < (float)low ? (float)low : x > (float)high ? (float)high : x;
    return (int32_t)nearbyintf(x);
}

/* gemmlowp's SaturatingRoundingDoublingHighMul: a b / 2^31 to the nearest integer, ties up for either sign; -2^31 by
 * itself saturates. */
static inline int32_t int8_high_product(int32_t a, int32_t b) {
    return a == INT32_MIN && b == INT32_MIN ? INT32_MAX : (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

/* round(x / 2^shift), ties away from zero; 0 <= shift <= 31. */
static inline int32_t int8_shift_away(int32_t x, int shift) {
    const int64_t mask = ((int64_t)1 << shift) - 1;
    return (int32_t)(((int64_t)x >> shift) + ((x & mask) > (mask >> 1) + (x < 0)));
}

/* The same with ties up. */
static inline int32_t int8_shift_up(int32_t x, int shift) {
    return shift ? (int32_t)(((int64_t)x + ((int64_t)1 << (shift - 1))) >> shift) : x;
}

static inline int32_t int8_shift_left(int32_t x, int shift) {
    return int8_wrap((int64_t)((uint64_t)(int64_t)x << shift));
}

/* TensorFlow Lite's MultiplyByQuantizedMultiplier with two roundings. */
static inline int32_t int8_twice(int32_t x, const struct int8_multiplier *m) {
    const int left = m->shift < 0 ? -m->shift : 0, right = m->shift > 0 ? m->shift : 0;
    const int32_t high = int8_high_product(int8_shift_left(x, left), m->coefficient);
    return m->away ? int8_shift_away(high, right) : int8_shift_up(high, right);
}

/* The same with one rounding. */
static inline int32_t int8_once_up(int32_t x, const struct int8_multiplier *m) {
    const int shift = 31 + m->shift;
    const int64_t sum = (int64_t)x * m->coefficient;
    return int8_wrap(shift ? (sum + ((int64_t)1 << (shift - 1))) >> shift : sum);
}

static inline int32_t int8_clamp(int64_t x, int32_t low, int32_t high) {
    return (int32_t)(x < low ? low : x > high ? high : x);
}

/* The integer at i of a tensor, and one stored. */
static inline int32_t int8_get(const void *x, bool is_unsigned, int64_t i) {
    return is_unsigned ? ((const uint8_t *)x)[i] : ((const int8_t *)x)[i];
}

static inline void int8_put(void *y, int64_t i, int32_t value) {
    ((uint8_t *)y)[i] = (uint8_t)value; /* the same bits for an int8 */
}

static inline int32_t int8_least(bool is_unsigned) {
    return is_unsigned ? 0 : INT8_MIN;
}

static inline int32_t int8_most(bool is_unsigned) {
    return is_unsigned ? UINT8_MAX : INT8_MAX;
}

static inline struct fl_int8_range int8_whole_range(const struct fl_int8_type *type, struct fl_int8_range range) {
    if (!range.low && !range.high && !range.only_zero)
        range = (struct fl_int8_range){int8_least(type->is_unsigned), int8_most(type->is_unsigned), false};
    return range;
}

/* Complains of a type or range that is none; `name` says which operand's. */
tensor_status int8_check_type(const char *name, const struct fl_int8_type *type);
tensor_status int8_check_range(const struct fl_int8_type *type, struct fl_int8_range range);

#endif
