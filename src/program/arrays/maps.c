/* maps.c - functions of one operand, element by element. */
#include "program/arrays/arrays.h"
#include "program/arrays/functions.h"
#include "program/network/onnx_types.h"
#include "core/base/fail.h"
#include <string.h>

enum { NUMBERS = 2 }; /* that a function has besides its operand */

typedef void number_map(double *y, int n, const double *with);
typedef void integer_map(int64_t *y, int n, const double *with);

static inline double from_0_to_1(double x) {
    return x < 0 ? 0 : x > 1 ? 1 : x; /* a NaN stays */
}

#define MAP(name, expression)                                                                                          \
    static void name(double *y, int n, const double *with) {                                                           \
        (void)with;                                                                                                    \
        for (int i = 0; i < n; i++) {                                                                                  \
            const double x = y[i];                                                                                     \
            y[i] = expression;                                                                                         \
        }                                                                                                              \
    }
#define INTEGER_MAP(name, expression)                                                                                  \
    static void name(int64_t *y, int n, const double *with) {                                                          \
        (void)with;                                                                                                    \
        for (int i = 0; i < n; i++) {                                                                                  \
            const int64_t x = y[i];                                                                                    \
            y[i] = expression;                                                                                         \
        }                                                                                                              \
    }
#define ALPHA with[0]
#define BETA with[1]

MAP(absolute, fabs(x))
MAP(arc_cosine, fl_near_acos(x))
MAP(arc_cosine_hyperbolic, fl_near_acosh(fl_in_range(x)))
MAP(arc_sine, fl_near_asin(x))
MAP(arc_sine_hyperbolic, fl_near_asinh(fl_in_range(x)))
MAP(arc_tangent, fl_near_atan(fl_in_range(x)))
MAP(arc_tangent_hyperbolic, fl_near_atanh(x))
MAP(ceiling, ceil(x))
MAP(celu, x > 0 || x != x ? x : ALPHA * fl_expm1(x / ALPHA))
MAP(cosine, x - x != 0 ? (double)NAN : fl_near_cos(fl_in_range(x)))
MAP(cosine_hyperbolic, fl_near_cosh(fl_in_range(x)))
MAP(elu, x > 0 || x != x ? x : ALPHA * fl_expm1(x))
MAP(erf_map, fl_erf(x))
MAP(exponential, fl_exp(x))
MAP(floor_map, floor(x))
MAP(gelu, x - x != 0 ? (x < 0 ? -0.0 : x) : 0.5 * x * (1 + fl_erf(x * 0x1.6a09e667f3bcdp-1)))
MAP(gelu_tanh,
    x - x != 0 ? (x < 0 ? -0.0 : x) : 0.5 * x * (1 + fl_tanh(0x1.9884533d43651p-1 * (x + 0.044715 * (x * x * x)))))
MAP(hard_sigmoid, from_0_to_1(ALPHA *x + BETA))
MAP(hard_swish, x *from_0_to_1(x / 6 + 0.5))
MAP(leaky_relu, x < 0 ? ALPHA * x : x)
MAP(logarithm, fl_log(x))
MAP(mish, x == -(double)INFINITY ? -0.0 : x * fl_tanh(fl_softplus(x)))
MAP(negative, -x)
MAP(reciprocal, 1 / x)
MAP(relu, x < 0 ? 0 : x)
MAP(round_map, rint(x))
MAP(selu, x != x ? x : BETA * (x > 0 ? x : ALPHA * fl_expm1(x)))
MAP(shrink, x<-ALPHA ? x + BETA : x> ALPHA ? x - BETA : x != x ? x : 0)
MAP(sigmoid_map, fl_sigmoid(x))
MAP(sign, x > 0 ? 1 : x < 0 ? -1 : x)
MAP(sine, x - x != 0 ? (double)NAN : fl_near_sin(fl_in_range(x)))
MAP(sine_hyperbolic, fl_near_sinh(fl_in_range(x)))
MAP(softplus_map, fl_softplus(x))
MAP(softsign, x - x != 0 ? (x != x ? x : copysign(1, x)) : x / (1 + fabs(x)))
MAP(square_root, sqrt(x))
MAP(swish, x == -(double)INFINITY ? -0.0 : x * fl_sigmoid(ALPHA * x))
MAP(tangent, x - x != 0 ? (double)NAN : fl_near_tan(fl_in_range(x)))
MAP(tanh_map, fl_tanh(x))
MAP(thresholded_relu, x > ALPHA || x != x ? x : 0)
MAP(is_infinite, fabs(x) == (double)INFINITY && (x > 0 ? BETA : ALPHA) != 0)
MAP(is_nan, x != x)
INTEGER_MAP(integer_absolute, x < 0 ? (int64_t)(0 - (uint64_t)x) : x)
INTEGER_MAP(integer_negative, (int64_t)(0 - (uint64_t)x))
INTEGER_MAP(integer_relu, x < 0 ? 0 : x)
INTEGER_MAP(integer_sign, (x > 0) - (x < 0))
INTEGER_MAP(integer_not, ~x)
INTEGER_MAP(logical_not, !x)

struct parameter {
    const char *name;
    double otherwise;
};

struct map {
    const char *op;
    number_map *numbers;   /* NULL: not of floats */
    integer_map *integers; /* NULL: not of integers */
    struct parameter parameters[NUMBERS];
};

static const struct map maps[] = {
    {"Abs", absolute, integer_absolute, {{0}}},
    {"Acos", arc_cosine, NULL, {{0}}},
    {"Acosh", arc_cosine_hyperbolic, NULL, {{0}}},
    {"Asin", arc_sine, NULL, {{0}}},
    {"Asinh", arc_sine_hyperbolic, NULL, {{0}}},
    {"Atan", arc_tangent, NULL, {{0}}},
    {"Atanh", arc_tangent_hyperbolic, NULL, {{0}}},
    {"BitwiseNot", NULL, integer_not, {{0}}},
    {"Ceil", ceiling, NULL, {{0}}},
    {"Celu", celu, NULL, {{"alpha", 1}}},
    {"Cos", cosine, NULL, {{0}}},
    {"Cosh", cosine_hyperbolic, NULL, {{0}}},
    {"Elu", elu, NULL, {{"alpha", 1}}},
    {"Erf", erf_map, NULL, {{0}}},
    {"Exp", exponential, NULL, {{0}}},
    {"Floor", floor_map, NULL, {{0}}},
    {"Gelu", gelu, NULL, {{0}}},
    {"HardSigmoid", hard_sigmoid, NULL, {{"alpha", 0.2f}, {"beta", 0.5f}}},
    {"HardSwish", hard_swish, NULL, {{0}}},
    {"IsInf", is_infinite, NULL, {{"detect_negative", 1}, {"detect_positive", 1}}},
    {"IsNaN", is_nan, NULL, {{0}}},
    {"LeakyRelu", leaky_relu, NULL, {{"alpha", 0.01f}}},
    {"Log", logarithm, NULL, {{0}}},
    {"Mish", mish, NULL, {{0}}},
    {"Neg", negative, integer_negative, {{0}}},
    {"Not", NULL, logical_not, {{0}}},
    {"Reciprocal", reciprocal, NULL, {{0}}},
    {"Relu", relu, integer_relu, {{0}}},
    {"Round", round_map, NULL, {{0}}},
    {"Selu", selu, NULL, {{"alpha", 1.67326319217681884765625f}, {"gamma", 1.05070102214813232421875f}}},
    {"Shrink", shrink, NULL, {{"lambd", 0.5f}, {"bias", 0}}},
    {"Sigmoid", sigmoid_map, NULL, {{0}}},
    {"Sign", sign, integer_sign, {{0}}},
    {"Sin", sine, NULL, {{0}}},
    {"Sinh", sine_hyperbolic, NULL, {{0}}},
    {"Softplus", softplus_map, NULL, {{0}}},
    {"Softsign", softsign, NULL, {{0}}},
    {"Sqrt", square_root, NULL, {{0}}},
    {"Swish", swish, NULL, {{"alpha", 1}}},
    {"Tan", tangent, NULL, {{0}}},
    {"Tanh", tanh_map, NULL, {{0}}},
    {"ThresholdedRelu", thresholded_relu, NULL, {{"alpha", 1}}},
};

/* A function with its numbers, over arrays. */
struct call {
    number_map *numbers;
    integer_map *integers;
    double with[NUMBERS];
    const struct fl_array *x;
    struct fl_array *y;
};

static void map_block(void *context, int64_t at, int n, const int64_t *from, const int64_t *stride) {
    const struct call *const c = context;
    if (c->numbers) {
        double y[FL_BLOCK];
        fl_load_numbers(y, c->x, from[0], stride[0], n);
        c->numbers(y, n, c->with);
        fl_store_numbers(c->y, at, 1, y, n);
    } else {
        int64_t y[FL_BLOCK];
        fl_load_integers(y, c->x, from[0], stride[0], n);
        c->integers(y, n, c->with);
        fl_store_integers(c->y, at, 1, y, n);
    }
}

static tensor_status find_map(struct call *c, const struct fl_arrays *a) {
    const tensor_type type = a->in[0]->type;
    const struct map *map = NULL;
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        if (!strcmp(maps[i].op, a->node->op))
            map = &maps[i];
    if (!map)
        return fl_fail(TENSOR_E_UNSUPPORTED, "no function of one operand");
    *c = (struct call){.x = a->in[0], .y = a->out[0]};
    c->numbers = fl_type_is_float(type) ? map->numbers : NULL;
    c->integers = c->numbers ? NULL : map->integers;
    if (fl_type_is_float(type) ? !c->numbers : !c->integers)
        return fl_fail(TENSOR_E_UNSUPPORTED, "an operand of type %s, expected %s", fl_type_name(type),
                       map->numbers ? map->integers ? "numbers" : "floats" : "integers");
    for (int i = 0; i < NUMBERS && map->parameters[i].name; i++) {
        const struct fl_net_attribute *const given = fl_net_find(a->node, map->parameters[i].name);
        c->with[i] = !given                      ? map->parameters[i].otherwise
                     : given->kind == FL_NET_INT ? (double)given->i
                                                 : (double)given->f;
    }
    if (!strcmp(map->op, "Gelu")) {
        const char *const how = fl_net_string(a->node, "approximate", "none");
        if (!strcmp(how, "tanh"))
            c->numbers = gelu_tanh;
        else if (strcmp(how, "none"))
            return fl_fail(TENSOR_E_DATA, "approximate \"%s\", expected none or tanh", how);
    }
    return TENSOR_OK;
}

static tensor_status run_map(struct call *c) {
    return c->y ? fl_walk(c->y, 1, &c->x, map_block, c) : TENSOR_OK;
}

tensor_status fl_shape_map(const struct fl_arrays *a) {
    struct call c;
    TRY(find_map(&c, a));
    return fl_shape_same(a);
}

/* IsNaN, IsInf */
tensor_status fl_shape_test(const struct fl_arrays *a) {
    struct call c;
    TRY(find_map(&c, a));
    return fl_shape_set(a->out[0], TENSOR_TYPE_BOOL, a->in[0]->ndim, a->in[0]->dim);
}

tensor_status fl_compute_map(const struct fl_arrays *a) {
    struct call c;
    TRY(find_map(&c, a));
    return run_map(&c);
}

/* --- clip --------------------------------------------------------------------------------------------------------- */

tensor_status fl_shape_clip(const struct fl_arrays *a) {
    for (int i = 1; i <= 2; i++)
        if (fl_operand(a, i)) {
            TRY(fl_want_type(a->in[i], a->in[0]->type, i == 1 ? "min" : "max"));
            TRY(fl_want_numbers(a->in[i], 1, i == 1 ? "min" : "max"));
        }
    return fl_shape_same(a);
}

MAP(clip_numbers, x<ALPHA ? (ALPHA < BETA ? ALPHA : BETA) : x> BETA ? BETA : x)

struct bounds {
    int64_t low, high;
    bool is_unsigned;
    const struct fl_array *x;
    struct fl_array *y;
};

static void clip_integers(void *context, int64_t at, int n, const int64_t *from, const int64_t *stride) {
    const struct bounds *const b = context;
    int64_t y[FL_BLOCK];
    fl_load_integers(y, b->x, from[0], stride[0], n);
    for (int i = 0; i < n; i++)
        if (b->is_unsigned) {
            y[i] = (uint64_t)y[i] < (uint64_t)b->low ? b->low : y[i];
            y[i] = (uint64_t)y[i] > (uint64_t)b->high ? b->high : y[i];
        } else {
            y[i] = y[i] < b->low ? b->low : y[i];
            y[i] = y[i] > b->high ? b->high : y[i];
        }
    fl_store_integers(b->y, at, 1, y, n);
}

tensor_status fl_compute_clip(const struct fl_arrays *a) {
    const struct fl_array *const low = fl_operand(a, 1), *const high = fl_operand(a, 2);
    if (!a->out[0])
        return TENSOR_OK;
    if (fl_type_is_float(a->in[0]->type)) {
        struct call c = {.numbers = clip_numbers, .x = a->in[0], .y = a->out[0]};
        c.with[0] = low ? fl_array_number(low, 0) : -(double)INFINITY;
        c.with[1] = high ? fl_array_number(high, 0) : (double)INFINITY;
        return run_map(&c);
    }
    struct bounds b = {.is_unsigned = a->in[0]->type == TENSOR_TYPE_U64, .x = a->in[0], .y = a->out[0]};
    b.low = low ? fl_array_integer(low, 0) : b.is_unsigned ? 0 : INT64_MIN;
    b.high = high ? fl_array_integer(high, 0) : b.is_unsigned ? -1 : INT64_MAX;
    return fl_walk(b.y, 1, &b.x, clip_integers, &b);
}

/* --- types -------------------------------------------------------------------------------------------------------- */

tensor_status fl_type_of_onnx(tensor_type *type, int64_t number) {
    *type = number > 0 && number < 1 << 16 ? fl_onnx_type((int)number) : 0;
    return *type ? TENSOR_OK
                 : fl_fail(TENSOR_E_UNSUPPORTED, "type %lld of ONNX's list, which the library does not have",
                           (long long)number);
}

tensor_status fl_shape_cast(const struct fl_arrays *a) {
    tensor_type type;
    TRY(fl_type_of_onnx(&type, fl_net_int(a->node, "to", 0)));
    return fl_shape_set(a->out[0], type, a->in[0]->ndim, a->in[0]->dim);
}

tensor_status fl_shape_cast_like(const struct fl_arrays *a) {
    return fl_shape_set(a->out[0], a->in[1]->type, a->in[0]->ndim, a->in[0]->dim);
}

/* --- dropout, which keeps everything in inference ----------------------------------------------------------------- */

tensor_status fl_shape_dropout(const struct fl_arrays *a) {
    const struct fl_array *const training = fl_operand(a, 2);
    if (training) {
        TRY(fl_known(training, "training_mode"));
        TRY(fl_want_numbers(training, 1, "training_mode"));
        if (fl_array_integer(training, 0))
            return fl_fail(TENSOR_E_UNSUPPORTED, "training_mode is true, expected false: a program infers");
    }
    TRY(fl_shape_set(fl_result(a, 1), TENSOR_TYPE_BOOL, a->in[0]->ndim, a->in[0]->dim));
    return fl_shape_same(a);
}

tensor_status fl_compute_dropout(const struct fl_arrays *a) {
    struct fl_array *const mask = fl_result(a, 1);
    if (mask && mask->count)
        memset(mask->data, 1, (size_t)mask->count);
    return fl_compute_copy(a);
}
