/* int8_elementwise.c - additions, changes of scale, clamps: each element by itself. */
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include "int8/int8_kernels.h"
#include <string.h>

enum { PART = 1 << 14 }; /* elements of a part */

/* --- maps of one operand: tables of 256 ----------------------------------------------------------------------------
 */

struct lookup {
    uint8_t table[256]; /* by the bits of an element */
    const uint8_t *x;
    uint8_t *y;
    int64_t count;
};

static void lookup_part(void *context, int part, int worker) {
    const struct lookup *l = context;
    const int64_t from = (int64_t)part * PART, to = from + PART < l->count ? from + PART : l->count;
    (void)worker;
    for (int64_t i = from; i < to; i++)
        l->y[i] = l->table[l->x[i]];
}

static void look_up(struct lookup *l) {
    fl_parallel((int)((l->count + PART - 1) / PART), lookup_part, l);
}

static tensor_status check_count(int64_t count) {
    if (count < 0 || count > (int64_t)INT32_MAX * PART)
        return fl_fail(TENSOR_E_SHAPE, "%lld elements, expected 0 to 2^45", (long long)count);
    return TENSOR_OK;
}

static int32_t requantise_onnx(int32_t x, float x_scale, float y_scale, int32_t low, int32_t high) {
    float real = (float)x * x_scale / y_scale;
    real = real < (float)low ? (float)low : real > (float)high ? (float)high : real;
    return (int32_t)nearbyintf(real);
}

static tensor_status requantise_table(enum fl_int8_rounding rounding, const struct fl_int8_type *x_type,
                                      const struct fl_int8_type *y_type, struct fl_int8_range range, uint8_t *table) {
    struct int8_multiplier m = {0}, none = {0};
    const double real = (double)x_type->scale / (double)y_type->scale;
    const bool exact = rounding == FL_INT8_EXACT;
    const float ratio = x_type->scale / y_type->scale; /* XNNPACK: a coefficient of 1/256, ties up */
    const bool delegated = rounding == FL_INT8_TFLITE_XNNPACK && ratio >= 0x1p-8f && ratio <= 0x1p7f;
    const int64_t coefficient = delegated ? lrintf(256 * ratio) : 0;
    if (exact ? !int8_exact_multiplier(real, &m) : real >= 0x1p31)
        return fl_fail(TENSOR_E_ARGUMENT, "scales %g and %g: expected a ratio of 2^-96 to 2^31", (double)x_type->scale,
                       (double)y_type->scale);
    if (!exact)
        int8_tflite_multiplier(real, rounding == FL_INT8_TFLITE, &m);
    const int32_t low = range.low - y_type->zero, high = range.high - y_type->zero;
    for (int32_t i = int8_least(x_type->is_unsigned); i <= int8_most(x_type->is_unsigned); i++) {
        const int32_t x = i - x_type->zero;
        const int64_t y = exact                      ? int8_once_even(x, &m, 0, &none)
                          : rounding == FL_INT8_ONNX ? requantise_onnx(x, x_type->scale, y_type->scale, low, high)
                          : coefficient              ? (x * coefficient + 128) >> 8
                                                     : int8_twice(x, &m);
        table[(uint8_t)i] = (uint8_t)(int8_clamp(y, low, high) + y_type->zero);
    }
    return TENSOR_OK;
}

static tensor_status check_two(enum fl_int8_rounding rounding, const struct fl_int8_type *x_type,
                               const struct fl_int8_type *y_type, struct fl_int8_range range) {
    if ((unsigned)rounding >= FL_INT8_ROUNDINGS)
        return fl_fail(TENSOR_E_ARGUMENT, "rounding %d is none", (int)rounding);
    TRY(int8_check_type("the input", x_type));
    TRY(int8_check_type("the output", y_type));
    return int8_check_range(y_type, range);
}

tensor_status fl_int8_requantise(enum fl_int8_rounding rounding, int64_t count, const struct fl_int8_type *x_type,
                                 const void *x, const struct fl_int8_type *y_type, struct fl_int8_range range,
                                 void *y) {
    struct lookup l = {.x = x, .y = y, .count = count};
    range = int8_whole_range(y_type, range);
    TRY(check_count(count));
    TRY(check_two(rounding, x_type, y_type, range));
    TRY(requantise_table(rounding, x_type, y_type, range, l.table));
    look_up(&l);
    return TENSOR_OK;
}

tensor_status fl_int8_clamp(int64_t count, const struct fl_int8_type *type, const void *x, struct fl_int8_range range,
                            void *y) {
    struct lookup l = {.x = x, .y = y, .count = count};
    range = int8_whole_range(type, range);
    TRY(check_count(count));
    TRY(int8_check_type("the input", type));
    TRY(int8_check_range(type, range));
    for (int32_t i = int8_least(type->is_unsigned); i <= int8_most(type->is_unsigned); i++)
        l.table[(uint8_t)i] = (uint8_t)int8_clamp(i, range.low, range.high);
    look_up(&l);
    return TENSOR_OK;
}

tensor_status fl_int8_concatenate(enum fl_int8_rounding rounding, int64_t outer, int count, const int64_t *inner,
                                  const struct fl_int8_type *x_type, const void *const *x,
                                  const struct fl_int8_type *y_type, void *y) {
    const struct fl_int8_range range = int8_whole_range(y_type, (struct fl_int8_range){0, 0});
    int64_t whole = 0, before = 0;
    for (int i = 0; i < count; i++) {
        TRY(check_count(inner[i]));
        TRY(check_two(rounding, x_type + i, y_type, range));
        whole += inner[i];
    }
    for (int i = 0; i < count; before += inner[i], i++) {
        const struct fl_int8_type *t = x_type + i;
        const bool same = t->scale == y_type->scale && t->zero == y_type->zero && t->is_unsigned == y_type->is_unsigned;
        uint8_t table[256];
        if (!same)
            TRY(requantise_table(rounding, t, y_type, range, table));
        for (int64_t row = 0; row < outer; row++) {
            const uint8_t *from = (const uint8_t *)x[i] + row * inner[i];
            uint8_t *to = (uint8_t *)y + row * whole + before;
            if (same)
                memcpy(to, from, (size_t)inner[i]);
            for (int64_t j = 0; j < inner[i] && !same; j++)
                to[j] = table[from[j]];
        }
    }
    return TENSOR_OK;
}

/* --- binary32 ------------------------------------------------------------------------------------------------------
 */

struct quantise {
    enum fl_int8_rounding rounding;
    struct fl_int8_type type;
    const float *x;
    void *y;
    int64_t count;
};

enum { BLOCK = 256 };

static void quantise_part(void *context, int part, int worker) {
    const struct quantise *q = context;
    const int64_t from = (int64_t)part * PART, to = from + PART < q->count ? from + PART : q->count;
    const float low = (float)(int8_least(q->type.is_unsigned) - q->type.zero),
                high = (float)(int8_most(q->type.is_unsigned) - q->type.zero), inverse = 1 / q->type.scale;
    const bool multiply = q->rounding == FL_INT8_TFLITE_RUY || q->rounding == FL_INT8_TFLITE_XNNPACK;
    const float *const x = q->x;
    uint8_t *const y = q->y;
    float reals[BLOCK];
    (void)worker;
    for (int64_t i = from; i < to; i += BLOCK) {
        const int n = (int)(to - i < BLOCK ? to - i : BLOCK);
        for (int j = 0; j < n && multiply; j++)
            reals[j] = x[i + j] * inverse;
        for (int j = 0; j < n && !multiply; j++)
            reals[j] = x[i + j] / q->type.scale;
        for (int j = 0; j < n; j++) {
            const float r = reals[j] < low ? low : reals[j] > high ? high : reals[j];
            reals[j] = r == r ? r : 0;
        }
        for (int j = 0; j < n && q->rounding == FL_INT8_TFLITE; j++)
            reals[j] = roundf(reals[j]);
        for (int j = 0; j < n; j++) /* the nearest integer, ties to even */
            y[i + j] = (uint8_t)((int32_t)(reals[j] + 0x1.8p23f - 0x1.8p23f) + q->type.zero);
    }
}

tensor_status fl_int8_quantise(enum fl_int8_rounding rounding, int64_t count, const float *x,
                               const struct fl_int8_type *y_type, void *y) {
    struct quantise q = {rounding, *y_type, x, y, count};
    TRY(check_count(count));
    TRY(check_two(rounding, y_type, y_type, int8_whole_range(y_type, (struct fl_int8_range){0, 0})));
    fl_parallel((int)((count + PART - 1) / PART), quantise_part, &q);
    return TENSOR_OK;
}

struct dequantise {
    struct fl_int8_type type;
    const uint8_t *x;
    float *y;
    int64_t count;
};

static void dequantise_part(void *context, int part, int worker) {
    const struct dequantise *d = context;
    const int64_t from = (int64_t)part * PART, to = from + PART < d->count ? from + PART : d->count;
    const int32_t flip = d->type.is_unsigned ? 0 : 128, less = d->type.zero + flip;
    const float scale = d->type.scale;
    const uint8_t *const x = d->x;
    float *const y = d->y;
    (void)worker;
    for (int64_t i = from; i < to; i++)
        y[i] = (float)((x[i] ^ flip) - less) * scale;
}

tensor_status fl_int8_dequantise(int64_t count, const struct fl_int8_type *x_type, const void *x, float *y) {
    struct dequantise d = {*x_type, x, y, count};
    TRY(check_count(count));
    TRY(int8_check_type("the input", x_type));
    fl_parallel((int)((count + PART - 1) / PART), dequantise_part, &d);
    return TENSOR_OK;
}

/* --- additions -----------------------------------------------------------------------------------------------------
 */

/* tflite: Add of integer_ops, PrepareGeneralAddOp. */
enum { TFLITE_LEFT_SHIFT = 20 };

static bool prepare_tflite(struct int8_addition *s) {
    const float largest = s->a_type.scale > s->b_type.scale ? s->a_type.scale : s->b_type.scale;
    const double twice = (double)(2 * largest);
    const double sum = twice / ((1 << TFLITE_LEFT_SHIFT) * (double)s->y_type.scale);
    if (!(sum < 1))
        return false;
    int8_tflite_multiplier((double)s->a_type.scale / twice, true, &s->of_a);
    int8_tflite_multiplier((double)s->b_type.scale / twice, true, &s->of_b);
    int8_tflite_multiplier(sum, true, &s->of_sum);
    for (int i = 0; i < 256; i++) {
        const uint8_t bits = (uint8_t)i;
        s->scaled[0][i] = int8_twice(
            (int8_get(&bits, s->a_type.is_unsigned, 0) - s->a_type.zero) * (1 << TFLITE_LEFT_SHIFT), &s->of_a);
        s->scaled[1][i] = int8_twice(
            (int8_get(&bits, s->b_type.is_unsigned, 0) - s->b_type.zero) * (1 << TFLITE_LEFT_SHIFT), &s->of_b);
    }
    return true;
}

/* XNNPACK: s_a / s_y and s_b / s_y in binary32, as integers of up to 21 bits over a common power of two. */
static bool prepare_xnnpack(struct int8_addition *s) {
    const float a = s->a_type.scale / s->y_type.scale, b = s->b_type.scale / s->y_type.scale, most = a > b ? a : b;
    if (!(most >= 0x1p-10f && most < 0x1p8f))
        return false;
    const int shift = 20 - ilogbf(most);
    s->of_a.coefficient = (int32_t)lrintf(ldexpf(a, shift));
    s->of_b.coefficient = (int32_t)lrintf(ldexpf(b, shift));
    s->of_sum.shift = shift;
    return true;
}

static bool prepare_addition(struct int8_addition *s) {
    switch (s->rounding) {
    case FL_INT8_ONNX:
        s->of_a.factor = s->a_type.scale / s->y_type.scale;
        s->of_b.factor = s->b_type.scale / s->y_type.scale;
        s->fixed =
            (float)s->y_type.zero - (s->of_a.factor * (float)s->a_type.zero + s->of_b.factor * (float)s->b_type.zero);
        return true;
    case FL_INT8_TFLITE:
    case FL_INT8_TFLITE_RUY:
        return prepare_tflite(s);
    case FL_INT8_TFLITE_XNNPACK:
        return prepare_xnnpack(s);
    default:
        if (!int8_exact_multiplier((double)s->a_type.scale / (double)s->y_type.scale, &s->of_a) ||
            !int8_exact_multiplier((double)s->b_type.scale / (double)s->y_type.scale, &s->of_b))
            return false;
        s->real_a = ldexp(s->of_a.coefficient, -s->of_a.shift);
        s->real_b = ldexp(s->of_b.coefficient, -s->of_b.shift);
        return true;
    }
}

static void add_part(void *context, int part, int worker) {
    const struct int8_addition *s = context;
    const int64_t from = (int64_t)part * PART, to = from + PART < s->count ? from + PART : s->count;
    (void)worker;
    s->add(s, from, to);
}

tensor_status fl_int8_add(enum fl_int8_rounding rounding, int64_t count, const struct fl_int8_type *a_type,
                          const void *a, const struct fl_int8_type *b_type, const void *b,
                          const struct fl_int8_type *y_type, struct fl_int8_range range, void *y) {
    struct int8_addition s = {.rounding = rounding, .a_type = *a_type, .b_type = *b_type, .y_type = *y_type};
    range = int8_whole_range(y_type, range);
    TRY(check_count(count));
    TRY(check_two(rounding, a_type, y_type, range));
    TRY(int8_check_type("the second operand", b_type));
    if (!prepare_addition(&s))
        return fl_fail(TENSOR_E_ARGUMENT, "scales %g and %g for an output of %g are too far apart for the rounding %s",
                       (double)a_type->scale, (double)b_type->scale, (double)y_type->scale,
                       fl_int8_rounding_name(rounding));
    s.low = range.low - y_type->zero;
    s.high = range.high - y_type->zero;
    s.a = a;
    s.b = b;
    s.y = y;
    s.count = count;
    const struct int8_kernels *kernels;
    TRY(int8_choose_kernels(true, &kernels));
    s.add = kernels ? kernels->add : fl_int8_portable.add;
    fl_parallel((int)((count + PART - 1) / PART), add_part, &s);
    return TENSOR_OK;
}
