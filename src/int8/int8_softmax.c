/* int8_softmax.c - softmax of rows: TensorFlow Lite's fixed-point arithmetic (gemmlowp), its table of exponentials in
 * binary32, and one in double. */
#include "core/arithmetic/elementary.h"
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include "int8/int8_rules.h"
#include <stdlib.h>

struct softmax {
    int64_t length;
    const void *x;
    void *y;
    struct fl_int8_type x_type, y_type;
    int32_t multiplier, left_shift, least_difference; /* tflite */
    double table[256];                                /* of the exponentials, by the distance from the largest */
    bool binary32;
};

/* --- fixed point ----------------------------------------------------------------------------------------------------
 * Numbers of 31 fractional bits, and of 31 - i with i bits before the point (gemmlowp, fixedpoint.h). */

enum { ONE = INT32_MAX, DIFFERENCE_BITS = 5, SUM_BITS = 12 };

static int32_t shift_saturating(int32_t x, int shift) {
    const int64_t wide = (int64_t)x * ((int64_t)1 << shift);
    return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

/* exp(a) of -1/4 <= a < 0: a Taylor series of four terms about -1/8. */
static int32_t exp_of_quarter(int32_t a) {
    enum { EXP_OF_EIGHTH = 1895147668, THIRD = 715827883 };
    const int32_t x = a + (1 << 28), x2 = int8_high_product(x, x), x3 = int8_high_product(x2, x),
                  x4 = int8_high_product(x2, x2), x4_over_4 = int8_shift_away(x4, 2),
                  rest = int8_shift_away(int8_wrap((int64_t)int8_high_product(x4_over_4 + x3, THIRD) + x2), 1);
    return int8_wrap((int64_t)EXP_OF_EIGHTH + int8_high_product(EXP_OF_EIGHTH, x + rest));
}

/* exp(a) of a <= 0 with 5 bits before the point: that of its part within a quarter, times exp(-2^i) for each bit of the
 * rest. */
static int32_t exp_of_negative(int32_t a) {
    static const int32_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24, part = (a & (quarter - 1)) - quarter, rest = int8_wrap((int64_t)part - a);
    int32_t result = exp_of_quarter(shift_saturating(part, DIFFERENCE_BITS));
    for (int i = 0; i < 7; i++)
        if ((uint32_t)rest >> (24 + i) & 1)
            result = int8_high_product(result, factors[i]);
    return a ? result : ONE;
}

/* 1 / (1 + a) of 0 <= a < 1 by three steps of Newton and Raphson. */
static int32_t reciprocal(int32_t a) {
    enum { ONE_OF_2 = 1 << 29 };
    const int64_t sum = (int64_t)a + ONE;
    const int32_t half = (int32_t)((sum + (sum >= 0 ? 1 : -1)) / 2);
    int32_t x = 1515870810 + int8_high_product(half, -1010580540); /* 48/17 - 32/17 half */
    for (int i = 0; i < 3; i++)
        x += shift_saturating(int8_high_product(x, ONE_OF_2 - int8_high_product(half, x)), 2);
    return shift_saturating(x, 1);
}

static void row_in_fixed_point(const struct softmax *s, int64_t from) {
    const bool is_unsigned = s->x_type.is_unsigned;
    const int32_t least = int8_least(s->y_type.is_unsigned), most = int8_most(s->y_type.is_unsigned);
    int32_t largest = int8_least(is_unsigned), sum = 0, exps[256];
    for (int64_t i = from; i < from + s->length; i++)
        largest = int8_get(s->x, is_unsigned, i) > largest ? int8_get(s->x, is_unsigned, i) : largest;
    for (int32_t d = 0; d < 256; d++)
        exps[d] = -d < s->least_difference
                      ? 0
                      : exp_of_negative(int8_high_product(int8_shift_left(-d, s->left_shift), s->multiplier));
    for (int64_t i = from; i < from + s->length; i++)
        sum = int8_wrap((int64_t)sum + int8_shift_away(exps[largest - int8_get(s->x, is_unsigned, i)], SUM_BITS));
    const int above = sum > 0 ? __builtin_clz((unsigned)sum) : 0, over_one = SUM_BITS - above,
              shift = over_one + 31 - 8;
    const int32_t scale = reciprocal((int32_t)(((uint32_t)sum << above) - ((uint32_t)1 << 31)));
    for (int64_t i = from; i < from + s->length; i++) {
        const int32_t difference = int8_get(s->x, is_unsigned, i) - largest;
        int32_t q = least;
        if (difference >= s->least_difference)
            q = int8_clamp((int64_t)int8_shift_away(int8_high_product(scale, exps[-difference]), shift) + least, least,
                           most);
        int8_put(s->y, i, q);
    }
}

/* --- tables ---------------------------------------------------------------------------------------------------------
 */

static void row_by_table(const struct softmax *s, int64_t from) {
    const bool is_unsigned = s->x_type.is_unsigned;
    const int32_t least = int8_least(s->y_type.is_unsigned), most = int8_most(s->y_type.is_unsigned);
    int32_t largest = int8_least(is_unsigned);
    float sum = 0;
    double exact_sum = 0;
    for (int64_t i = from; i < from + s->length; i++)
        largest = int8_get(s->x, is_unsigned, i) > largest ? int8_get(s->x, is_unsigned, i) : largest;
    for (int64_t i = from; i < from + s->length; i++) {
        sum += (float)s->table[largest - int8_get(s->x, is_unsigned, i)];
        exact_sum += s->table[largest - int8_get(s->x, is_unsigned, i)];
    }
    const float inverse = 1 / (sum * s->y_type.scale);
    for (int64_t i = from; i < from + s->length; i++) {
        const double e = s->table[largest - int8_get(s->x, is_unsigned, i)];
        const double q =
            s->binary32 ? (double)roundf((float)e * inverse) : nearbyint(e / (exact_sum * (double)s->y_type.scale));
        int8_put(s->y, i, int8_clamp(q > 1000 ? 1000 : (int64_t)q + s->y_type.zero, least, most));
    }
}

static void fixed_part(void *context, int part, int worker) {
    const struct softmax *s = context;
    (void)worker;
    row_in_fixed_point(s, part * s->length);
}

static void table_part(void *context, int part, int worker) {
    const struct softmax *s = context;
    (void)worker;
    row_by_table(s, part * s->length);
}

/* TensorFlow Lite's PreprocessSoftmaxScaling and CalculateInputRadius. */
static bool prepare_fixed_point(struct softmax *s, float beta) {
    const double scale = (double)beta * (double)s->x_type.scale * (1 << (31 - DIFFERENCE_BITS)), most = 0x1p31 - 1;
    struct int8_multiplier m;
    if (!(scale > 1))
        return false;
    int8_tflite_multiplier(scale < most ? scale : most, true, &m);
    s->multiplier = m.coefficient;
    s->left_shift = -m.shift;
    s->least_difference =
        -(int32_t)floor(((1 << DIFFERENCE_BITS) - 1) * 0x1p26 / (double)((int64_t)1 << s->left_shift));
    return true;
}

tensor_status fl_int8_softmax(enum fl_int8_rounding rounding, int64_t rows, int64_t length, float beta,
                              const struct fl_int8_type *x_type, const void *x, const struct fl_int8_type *y_type,
                              void *y) {
    struct softmax s = {.length = length, .x = x, .y = y, .x_type = *x_type, .y_type = *y_type};
    if ((unsigned)rounding >= FL_INT8_ROUNDINGS)
        return fl_fail(TENSOR_E_ARGUMENT, "rounding %d is none", (int)rounding);
    TRY(int8_check_type("the input", x_type));
    TRY(int8_check_type("the output", y_type));
    if (rows < 0 || rows > INT32_MAX || length < 1 || length > 1 << 18)
        return fl_fail(TENSOR_E_SHAPE, "%lld rows of %lld: expected up to 2^31 - 1 of 1 to 2^18", (long long)rows,
                       (long long)length);
    if (!(beta > 0) || !isfinite(beta))
        return fl_fail(TENSOR_E_ARGUMENT, "beta is %g, expected a positive number", (double)beta);
    if (rounding == FL_INT8_TFLITE) {
        if (!prepare_fixed_point(&s, beta) || y_type->scale != 0x1p-8f ||
            y_type->zero != int8_least(y_type->is_unsigned))
            return fl_fail(
                TENSOR_E_ARGUMENT,
                "softmax of the rounding tflite has an output of scale 1/256 and zero point %d and an input of "
                "a scale above 2^-26, found %g, %d and %g",
                int8_least(y_type->is_unsigned), (double)y_type->scale, y_type->zero, (double)x_type->scale);
        fl_parallel((int)rows, fixed_part, &s);
        return TENSOR_OK;
    }
    s.binary32 = rounding == FL_INT8_TFLITE_RUY || rounding == FL_INT8_TFLITE_XNNPACK;
    for (int d = 0; d < 256; d++)
        s.table[d] = s.binary32 ? (double)(float)fl_exp((double)(-x_type->scale * beta * (float)d))
                                : fl_exp(-(double)x_type->scale * (double)beta * d);
    fl_parallel((int)rows, table_part, &s);
    return TENSOR_OK;
}
