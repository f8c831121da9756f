/* tensorcore.c - the model, in integers. */
#include "tensorcore/tensorcore.h"
#include <limits.h>
#include <math.h>
#include <string.h>

enum { FRACTION = 23, HALF_FRACTION = 10, LEAST = -126, HALF_LEAST = -14, HALF_MOST = 15 };

/* value = integer * 2^at; exponent: of the leading bit, not below `least`. */
struct number {
    int64_t integer;
    int at, exponent;
};

static struct number number_of(float x, int least) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int field = (int)(bits >> FRACTION & 255), e = (field ? field : 1) - 127;
    const int64_t m = (int64_t)(bits & ((1u << FRACTION) - 1)) | (field ? (int64_t)1 << FRACTION : 0);
    return (struct number){bits >> 31 ? -m : m, e - FRACTION, e > least ? e : least};
}

/* Integer multiples of 2^unit, truncated towards zero. */
static int64_t aligned(int64_t integer, int at, int unit) {
    const int shift = at - unit;
    if (!integer) /* its exponent, which took no part in the largest, may be any */
        return 0;
    if (shift >= 0)
        return integer * ((int64_t)1 << shift);
    if (shift <= -63)
        return 0;
    return (integer + (integer < 0 ? ((int64_t)1 << -shift) - 1 : 0)) >> -shift;
}

struct sum {
    int64_t integer; /* of units of 2^unit */
    int unit;
};

/* The terms of a group, aligned and added; c = 0 takes no part. */
static struct sum add_terms(const struct fl_accumulation *how, struct fl_operand_kinds kinds, const float *a,
                            const float *b, int n, float c) {
    const int least_a = fl_operand_least_exponent(kinds.a), least_b = fl_operand_least_exponent(kinds.b);
    const struct number addend = number_of(c, LEAST);
    struct number product[FL_GROUP_MOST];
    int largest = addend.integer ? addend.exponent : INT_MIN;
    for (int i = 0; i < n; i++) {
        const struct number x = number_of(a[i], least_a), y = number_of(b[i], least_b);
        product[i] = (struct number){x.integer * y.integer, x.at + y.at, x.exponent + y.exponent};
        if (product[i].integer && product[i].exponent > largest)
            largest = product[i].exponent;
    }
    if (largest == INT_MIN)
        return (struct sum){0, 0};
    struct sum s = {0, largest - how->fraction};
    if (addend.integer)
        s.integer = aligned(addend.integer, addend.at, s.unit);
    for (int i = 0; i < n; i++)
        s.integer += aligned(product[i].integer, product[i].at, s.unit);
    return s;
}

/* The sum with `fraction` bits behind the leading one, or fewer if it is below 2^least, truncated or to nearest even.
 */
static float rounded(struct sum s, int fraction, int least, bool nearest) {
    uint64_t size = s.integer < 0 ? 0 - (uint64_t)s.integer : (uint64_t)s.integer;
    if (!size)
        return 0;
    const int exponent = 63 - __builtin_clzll(size) + s.unit, unit = (exponent > least ? exponent : least) - fraction,
              lost = unit - s.unit;
    if (lost > 0) {
        const uint64_t whole = lost < 64 ? size >> lost : 0, rest = lost < 64 ? size - (whole << lost) : size,
                       half = lost <= 64 ? (uint64_t)1 << (lost - 1) : UINT64_MAX;
        size = whole + (nearest && (rest > half || (rest == half && (whole & 1))));
        s.unit = unit;
    }
    const float value = ldexpf((float)size, s.unit); /* at most 24 bits: exact, or Inf */
    return s.integer < 0 ? -value : value;
}

/* Whether a NaN or an Inf decides the result. */
static bool is_special(const float *a, const float *b, int n, float c, float *result) {
    double sum = isfinite(c) ? 0 : (double)c;
    bool special = !isfinite(c);
    for (int i = 0; i < n; i++)
        if (!isfinite(a[i]) || !isfinite(b[i])) {
            special = true;
            sum += (double)a[i] * (double)b[i];
        }
    *result = sum != sum ? NAN : (float)sum;
    return special;
}

float fl_tensorcore_group(const struct fl_accumulation *how, struct fl_operand_kinds kinds, const float *a,
                          const float *b, int n, float c) {
    float special;
    if (is_special(a, b, n, c, &special))
        return special;
    const bool half = how->result == HALF_FRACTION;
    const struct sum s = add_terms(how, kinds, a, b, n, how->apart ? 0 : c);
    const float sum = rounded(s, how->result, half ? HALF_LEAST : LEAST, half);
    if (half && fabsf(sum) >= ldexpf(1, HALF_MOST + 1))
        return copysignf(INFINITY, sum);
    return how->apart ? c + sum : sum;
}

float fl_tensorcore_sum(const struct fl_accumulation *how, struct fl_operand_kinds kinds, const float *a,
                        const float *b, int64_t b_step, int64_t n, float c) {
    float group[FL_GROUP_MOST];
    for (int64_t i = 0; i < n; i += how->k) {
        const int count = n - i < how->k ? (int)(n - i) : how->k;
        for (int j = 0; j < count; j++)
            group[j] = b[(i + j) * b_step];
        c = fl_tensorcore_group(how, kinds, a + i, group, count, c);
    }
    return c;
}

const struct fl_tc_kernels fl_tensorcore_portable = {0};
