/* elements.c - operators of two and more operands, element by element: shapes are repeated to one as in numpy. */
#include "program/arrays/arrays.h"
#include "program/arrays/functions.h"
#include "core/base/fail.h"
#include <string.h>

/* --- shapes ------------------------------------------------------------------------------------------------------- */

/* The shape to which what it was and another operand are repeated. */
static tensor_status widen(struct fl_array *all, const struct fl_array *x) {
    const struct fl_array before = *all;
    return fl_broadcast_shape(&all->ndim, all->dim, &before, x);
}

static tensor_status set_broadcast(const struct fl_arrays *a, tensor_type type, bool any_types) {
    struct fl_array all = *a->in[0];
    for (int i = 1; i < a->in_count; i++) {
        if (!a->in[i])
            return fl_fail(TENSOR_E_DATA, "operand %d is not given", i);
        if (a->in[i]->type != a->in[0]->type && !any_types)
            return fl_fail(TENSOR_E_DATA, "operand %d has type %s, expected %s as the first", i,
                           fl_type_name(a->in[i]->type), fl_type_name(a->in[0]->type));
        TRY(widen(&all, a->in[i]));
    }
    return fl_shape_set(a->out[0], type, all.ndim, all.dim);
}

tensor_status fl_shape_broadcast(const struct fl_arrays *a) {
    return set_broadcast(a, a->in[0]->type, !strcmp(a->node->op, "Pow"));
}

tensor_status fl_shape_compare(const struct fl_arrays *a) {
    return set_broadcast(a, TENSOR_TYPE_BOOL, false);
}

tensor_status fl_shape_logic(const struct fl_arrays *a) {
    TRY(fl_want_type(a->in[0], TENSOR_TYPE_BOOL, "the first operand"));
    return set_broadcast(a, TENSOR_TYPE_BOOL, false);
}

tensor_status fl_shape_prelu(const struct fl_arrays *a) {
    int64_t dim[FL_ARRAY_DIMS];
    int ndim;
    TRY(fl_want_type(a->in[1], a->in[0]->type, "the slope"));
    TRY(fl_broadcast_shape(&ndim, dim, a->in[0], a->in[1]));
    TRY(fl_shape_set(a->out[0], a->in[0]->type, ndim, dim));
    if (ndim != a->in[0]->ndim || memcmp(dim, a->in[0]->dim, (size_t)ndim * sizeof *dim))
        return fl_fail(TENSOR_E_SHAPE,
                       "a slope of %lld elements in %d dimensions, expected one that the first operand "
                       "repeats",
                       (long long)a->in[1]->count, a->in[1]->ndim);
    return TENSOR_OK;
}

/* --- functions of blocks: y becomes y op x ------------------------------------------------------------------------ */

typedef void number_step(double *y, const double *x, int n);
typedef void integer_step(int64_t *y, const int64_t *x, int n);

#define STEP(name, expression)                                                                                         \
    static void name(double *ys, const double *xs, int n) {                                                            \
        for (int i = 0; i < n; i++) {                                                                                  \
            const double y = ys[i], x = xs[i];                                                                         \
            ys[i] = expression;                                                                                        \
        }                                                                                                              \
    }
#define INTEGER_STEP(name, type, expression)                                                                           \
    static void name(int64_t *ys, const int64_t *xs, int n) {                                                          \
        for (int i = 0; i < n; i++) {                                                                                  \
            const type y = (type)ys[i], x = (type)xs[i];                                                               \
            ys[i] = (int64_t)(expression);                                                                             \
        }                                                                                                              \
    }

/* Integers: y^x by squaring, wrapped; a negative exponent leaves what is not below 1. */
static uint64_t integer_power(uint64_t y, int64_t x) {
    uint64_t product = 1;
    if (x < 0)
        return y == 1 || (y == UINT64_MAX && !(x & 1)) ? 1 : y == UINT64_MAX ? y : 0;
    for (; x; x >>= 1, y *= y)
        if (x & 1)
            product *= y;
    return product;
}

/* The rest has the sign of the divisor. */
static int64_t floored_rest(int64_t y, int64_t x) {
    const int64_t rest = x == -1 ? 0 : y % x;
    return rest && (rest < 0) != (x < 0) ? rest + x : rest;
}

STEP(add, y + x)
STEP(subtract, y - x)
STEP(multiply, y *x)
STEP(divide, y / x)
STEP(larger, y > x || y != y ? y : x)
STEP(smaller, y < x || y != y ? y : x)
STEP(power, fl_pow(y, x))
STEP(prelu, y < 0 ? y * x : y)
STEP(truncated_rest, fmod(y, x))
STEP(equal, y == x)
STEP(greater, y > x)
STEP(greater_or_equal, y >= x)
STEP(less, y < x)
STEP(less_or_equal, y <= x)
INTEGER_STEP(integer_add, uint64_t, y + x)
INTEGER_STEP(integer_subtract, uint64_t, y - x)
INTEGER_STEP(integer_multiply, uint64_t, y *x)
INTEGER_STEP(integer_divide, int64_t, x == -1 ? (int64_t)(0 - (uint64_t)y) : y / x)
INTEGER_STEP(integer_larger, int64_t, y > x ? y : x)
INTEGER_STEP(integer_smaller, int64_t, y < x ? y : x)
INTEGER_STEP(integer_prelu, int64_t, y < 0 ? (int64_t)((uint64_t)y * (uint64_t)x) : y)
INTEGER_STEP(integer_power_of, int64_t, integer_power((uint64_t)y, x))
INTEGER_STEP(integer_floored_rest, int64_t, floored_rest(y, x))
INTEGER_STEP(integer_truncated_rest, int64_t, x == -1 ? 0 : y % x)
INTEGER_STEP(integer_equal, int64_t, y == x)
INTEGER_STEP(integer_greater, int64_t, y > x)
INTEGER_STEP(integer_greater_or_equal, int64_t, y >= x)
INTEGER_STEP(integer_less, int64_t, y < x)
INTEGER_STEP(integer_less_or_equal, int64_t, y <= x)
INTEGER_STEP(bits_and, uint64_t, y &x)
INTEGER_STEP(bits_or, uint64_t, y | x)
INTEGER_STEP(bits_xor, uint64_t, y ^ x)
INTEGER_STEP(shift_left, uint64_t, x > 63 ? 0 : y << x)
INTEGER_STEP(shift_right, uint64_t, x > 63 ? 0 : y >> x)
INTEGER_STEP(word_divide, uint64_t, y / x)
INTEGER_STEP(word_rest, uint64_t, y % x)
INTEGER_STEP(word_larger, uint64_t, y > x ? y : x)
INTEGER_STEP(word_smaller, uint64_t, y < x ? y : x)
INTEGER_STEP(word_greater, uint64_t, y > x)
INTEGER_STEP(word_greater_or_equal, uint64_t, y >= x)
INTEGER_STEP(word_less, uint64_t, y < x)
INTEGER_STEP(word_less_or_equal, uint64_t, y <= x)

struct row {
    const char *op;
    number_step *numbers;
    integer_step *integers, *words; /* words: uint64; NULL as other integers */
};

static const struct row rows[] = {
    {"Add", add, integer_add, NULL},
    {"And", NULL, bits_and, NULL},
    {"BitShift", NULL, shift_left, NULL},
    {"BitwiseAnd", NULL, bits_and, NULL},
    {"BitwiseOr", NULL, bits_or, NULL},
    {"BitwiseXor", NULL, bits_xor, NULL},
    {"Div", divide, integer_divide, word_divide},
    {"Equal", equal, integer_equal, NULL},
    {"Greater", greater, integer_greater, word_greater},
    {"GreaterOrEqual", greater_or_equal, integer_greater_or_equal, word_greater_or_equal},
    {"Less", less, integer_less, word_less},
    {"LessOrEqual", less_or_equal, integer_less_or_equal, word_less_or_equal},
    {"Max", larger, integer_larger, word_larger},
    {"Mean", add, NULL, NULL},
    {"Min", smaller, integer_smaller, word_smaller},
    {"Mod", truncated_rest, integer_floored_rest, word_rest},
    {"Mul", multiply, integer_multiply, NULL},
    {"Or", NULL, bits_or, NULL},
    {"PRelu", prelu, integer_prelu, NULL},
    {"Pow", power, integer_power_of, NULL},
    {"Sub", subtract, integer_subtract, NULL},
    {"Sum", add, NULL, NULL},
    {"Xor", NULL, bits_xor, NULL},
};

struct call {
    const struct fl_arrays *a;
    number_step *numbers;
    integer_step *integers;
    double divisor; /* of a mean */
};

static void run_block(void *context, int64_t at, int n, const int64_t *from, const int64_t *stride) {
    const struct call *const c = context;
    const struct fl_array *const *const in = c->a->in;
    if (c->numbers) {
        double y[FL_BLOCK], x[FL_BLOCK];
        fl_load_numbers(y, in[0], from[0], stride[0], n);
        for (int i = 1; i < c->a->in_count; i++) {
            fl_load_numbers(x, in[i], from[i], stride[i], n);
            c->numbers(y, x, n);
        }
        for (int i = 0; i < n && c->divisor != 1; i++)
            y[i] /= c->divisor;
        fl_store_numbers(c->a->out[0], at, 1, y, n);
    } else {
        int64_t y[FL_BLOCK], x[FL_BLOCK];
        fl_load_integers(y, in[0], from[0], stride[0], n);
        for (int i = 1; i < c->a->in_count; i++) {
            fl_load_integers(x, in[i], from[i], stride[i], n);
            c->integers(y, x, n);
        }
        fl_store_integers(c->a->out[0], at, 1, y, n);
    }
}

static bool has_zero(const struct fl_array *x) {
    for (int64_t i = 0; i < x->count; i++)
        if (!fl_array_integer(x, i))
            return true;
    return false;
}

/* What attributes choose. */
static tensor_status choose(struct call *c, const struct fl_arrays *a) {
    const bool is_mod = !strcmp(a->node->op, "Mod"), truncates = fl_net_int(a->node, "fmod", 0) != 0;
    if (is_mod && c->numbers && !truncates)
        return fl_fail(TENSOR_E_DATA, "fmod is 0, expected 1 for floats");
    if (is_mod && c->integers == integer_floored_rest && truncates)
        c->integers = integer_truncated_rest;
    if ((is_mod || !strcmp(a->node->op, "Div")) && c->integers && has_zero(a->in[1]))
        return fl_fail(TENSOR_E_DATA, "an integer is divided by zero");
    if (!strcmp(a->node->op, "BitShift")) {
        const char *const direction = fl_net_string(a->node, "direction", "");
        if (!strcmp(direction, "RIGHT"))
            c->integers = shift_right;
        else if (strcmp(direction, "LEFT"))
            return fl_fail(TENSOR_E_DATA, "direction \"%s\", expected LEFT or RIGHT", direction);
    }
    if (!strcmp(a->node->op, "Mean"))
        c->divisor = a->in_count;
    return TENSOR_OK;
}

tensor_status fl_compute_elements(const struct fl_arrays *a) {
    struct call c = {.a = a, .divisor = 1};
    const tensor_type type = a->in[0]->type;
    bool any_float = false;
    const struct row *row = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!strcmp(rows[i].op, a->node->op))
            row = &rows[i];
    for (int i = 0; i < a->in_count; i++)
        any_float |= fl_type_is_float(a->in[i]->type);
    if (!row)
        return fl_fail(TENSOR_E_UNSUPPORTED, "no function of two operands");
    if (any_float)
        c.numbers = row->numbers;
    else
        c.integers = type == TENSOR_TYPE_U64 && row->words ? row->words : row->integers;
    if (!c.numbers && !c.integers)
        return fl_fail(TENSOR_E_UNSUPPORTED, "operands of type %s, expected %s", fl_type_name(type),
                       row->numbers ? "floats" : "integers");
    TRY(choose(&c, a));
    return a->out[0] ? fl_walk(a->out[0], a->in_count, a->in, run_block, &c) : TENSOR_OK;
}

/* --- where -------------------------------------------------------------------------------------------------------- */

tensor_status fl_shape_where(const struct fl_arrays *a) {
    struct fl_array all = *a->in[0];
    TRY(fl_want_type(a->in[0], TENSOR_TYPE_BOOL, "the condition"));
    TRY(fl_want_type(a->in[2], a->in[1]->type, "the third operand"));
    for (int i = 1; i < 3; i++)
        TRY(widen(&all, a->in[i]));
    return fl_shape_set(a->out[0], a->in[1]->type, all.ndim, all.dim);
}

static void where_block(void *context, int64_t at, int n, const int64_t *from, const int64_t *stride) {
    const struct fl_arrays *const a = context;
    int64_t condition[FL_BLOCK];
    fl_load_integers(condition, a->in[0], from[0], stride[0], n);
    if (fl_type_is_float(a->in[1]->type)) {
        double y[FL_BLOCK], x[FL_BLOCK];
        fl_load_numbers(y, a->in[1], from[1], stride[1], n);
        fl_load_numbers(x, a->in[2], from[2], stride[2], n);
        for (int i = 0; i < n; i++)
            y[i] = condition[i] ? y[i] : x[i];
        fl_store_numbers(a->out[0], at, 1, y, n);
    } else {
        int64_t y[FL_BLOCK], x[FL_BLOCK];
        fl_load_integers(y, a->in[1], from[1], stride[1], n);
        fl_load_integers(x, a->in[2], from[2], stride[2], n);
        for (int i = 0; i < n; i++)
            y[i] = condition[i] ? y[i] : x[i];
        fl_store_integers(a->out[0], at, 1, y, n);
    }
}

tensor_status fl_compute_where(const struct fl_arrays *a) {
    return a->out[0] ? fl_walk(a->out[0], 3, a->in, where_block, (void *)a) : TENSOR_OK;
}
