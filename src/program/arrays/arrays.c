/* arrays.c - numbers of arrays by their type, shapes, and what needs no more. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>
#include <string.h>

bool fl_type_is_float(tensor_type type) {
    return type == TENSOR_TYPE_F16 || type == TENSOR_TYPE_BF16 || type == TENSOR_TYPE_F32 || type == TENSOR_TYPE_F64;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

static double from_words(uint32_t word) {
    float f;
    memcpy(&f, &word, sizeof f);
    return (double)f;
}

static double from_half(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(fraction + 1024, exponent - 25) : ldexp(fraction, -24));
}

/* Rounded once to a fraction of that many bits under exponents from least on, ties to even; beyond most it is Inf. */
static double rounded(double x, int bits, int least, int most) {
    int e;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &e);
    const int unit = (e - 1 < least ? least : e - 1) - bits;
    const double y = ldexp(rint(ldexp(x, -unit)), unit);
    return fabs(y) >= ldexp(1, most + 1) ? copysign((double)INFINITY, x) : y;
}

static uint16_t to_half(double x) {
    const double y = rounded(x, 10, -14, 15);
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    int e;
    if (isnan(y))
        return 0x7e00;
    if (isinf(y))
        return sign | 0x7c00;
    const double f = frexp(fabs(y), &e);
    if (y == 0)
        return sign;
    if (e - 1 < -14)
        return sign | (uint16_t)ldexp(fabs(y), 24);
    return sign | (uint16_t)((e + 14) << 10 | ((int)ldexp(f, 11) & 1023));
}

static uint16_t to_bfloat(double x) {
    const float f = (float)rounded(x, 7, -126, 127);
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    return isnan(x) ? 0x7fc0 : (uint16_t)(word >> 16);
}

double fl_array_number(const struct fl_array *a, int64_t i) {
    switch (a->type) {
    case TENSOR_TYPE_BOOL:
    case TENSOR_TYPE_U8:
        return ((const uint8_t *)a->data)[i];
    case TENSOR_TYPE_I8:
        return ((const int8_t *)a->data)[i];
    case TENSOR_TYPE_I16:
        return ((const int16_t *)a->data)[i];
    case TENSOR_TYPE_U16:
        return ((const uint16_t *)a->data)[i];
    case TENSOR_TYPE_I32:
        return ((const int32_t *)a->data)[i];
    case TENSOR_TYPE_U32:
        return ((const uint32_t *)a->data)[i];
    case TENSOR_TYPE_I64:
        return (double)((const int64_t *)a->data)[i];
    case TENSOR_TYPE_U64:
        return (double)((const uint64_t *)a->data)[i];
    case TENSOR_TYPE_F16:
        return from_half(((const uint16_t *)a->data)[i]);
    case TENSOR_TYPE_BF16:
        return from_words((uint32_t)((const uint16_t *)a->data)[i] << 16);
    case TENSOR_TYPE_F32:
        return ((const float *)a->data)[i];
    case TENSOR_TYPE_F64:
        return ((const double *)a->data)[i];
    }
    return 0;
}

/* Toward zero; NaN as 0. */
static int64_t whole(double x) {
    return x >= 0x1p63 ? INT64_MAX : x >= -0x1p63 ? (int64_t)x : x < 0 ? INT64_MIN : 0;
}

int64_t fl_array_integer(const struct fl_array *a, int64_t i) {
    if (a->type == TENSOR_TYPE_I64)
        return ((const int64_t *)a->data)[i];
    if (a->type == TENSOR_TYPE_U64)
        return (int64_t)((const uint64_t *)a->data)[i];
    return whole(fl_array_number(a, i));
}

void fl_array_put_number(struct fl_array *a, int64_t i, double value) {
    switch (a->type) {
    case TENSOR_TYPE_F16:
        ((uint16_t *)a->data)[i] = to_half(value);
        return;
    case TENSOR_TYPE_BF16:
        ((uint16_t *)a->data)[i] = to_bfloat(value);
        return;
    case TENSOR_TYPE_F32:
        ((float *)a->data)[i] = (float)value;
        return;
    case TENSOR_TYPE_F64:
        ((double *)a->data)[i] = value;
        return;
    case TENSOR_TYPE_BOOL:
        ((uint8_t *)a->data)[i] = value != 0;
        return;
    case TENSOR_TYPE_U64:
        ((uint64_t *)a->data)[i] = value >= 0x1p64   ? UINT64_MAX
                                   : value >= 0x1p63 ? (uint64_t)value
                                                     : (uint64_t)whole(value);
        return;
    default:
        fl_array_put_integer(a, i, whole(value));
    }
}

void fl_array_put_integer(struct fl_array *a, int64_t i, int64_t value) {
    switch (a->type) {
    case TENSOR_TYPE_BOOL:
        ((uint8_t *)a->data)[i] = value != 0;
        return;
    case TENSOR_TYPE_U8:
    case TENSOR_TYPE_I8:
        ((uint8_t *)a->data)[i] = (uint8_t)value;
        return;
    case TENSOR_TYPE_I16:
    case TENSOR_TYPE_U16:
        ((uint16_t *)a->data)[i] = (uint16_t)value;
        return;
    case TENSOR_TYPE_I32:
    case TENSOR_TYPE_U32:
        ((uint32_t *)a->data)[i] = (uint32_t)value;
        return;
    case TENSOR_TYPE_I64:
    case TENSOR_TYPE_U64:
        ((int64_t *)a->data)[i] = value;
        return;
    default:
        fl_array_put_number(a, i, (double)value);
    }
}

/* --- stretches of elements ---------------------------------------------------------------------------------------- */

#define LOAD(constant, type)                                                                                           \
    case constant:                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                                \
            to[i] = (TO)((const type *)a->data)[from + i * stride];                                                    \
        return;
#define STORE(constant, type)                                                                                          \
    case constant:                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                                \
            ((type *)a->data)[at + i * stride] = (type)from[i];                                                        \
        return;
#define INTEGERS(ROW)                                                                                                  \
    ROW(TENSOR_TYPE_I8, int8_t)                                                                                        \
    ROW(TENSOR_TYPE_U8, uint8_t)                                                                                       \
    ROW(TENSOR_TYPE_I16, int16_t)                                                                                      \
    ROW(TENSOR_TYPE_U16, uint16_t)                                                                                     \
    ROW(TENSOR_TYPE_I32, int32_t)                                                                                      \
    ROW(TENSOR_TYPE_U32, uint32_t)                                                                                     \
    ROW(TENSOR_TYPE_I64, int64_t)

#define TO double
void fl_load_numbers(double *to, const struct fl_array *a, int64_t from, int64_t stride, int64_t n) {
    switch (a->type) {
        LOAD(TENSOR_TYPE_BOOL, uint8_t)
        INTEGERS(LOAD)
        LOAD(TENSOR_TYPE_U64, uint64_t)
        LOAD(TENSOR_TYPE_F32, float)
        LOAD(TENSOR_TYPE_F64, double)
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = fl_array_number(a, from + i * stride);
    }
}
#undef TO

void fl_store_numbers(struct fl_array *a, int64_t at, int64_t stride, const double *from, int64_t n) {
    switch (a->type) {
        STORE(TENSOR_TYPE_F32, float)
        STORE(TENSOR_TYPE_F64, double)
    default:
        for (int64_t i = 0; i < n; i++)
            fl_array_put_number(a, at + i * stride, from[i]);
    }
}

#define TO int64_t
void fl_load_integers(int64_t *to, const struct fl_array *a, int64_t from, int64_t stride, int64_t n) {
    switch (a->type) {
        LOAD(TENSOR_TYPE_BOOL, uint8_t)
        INTEGERS(LOAD)
        LOAD(TENSOR_TYPE_U64, uint64_t)
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = fl_array_integer(a, from + i * stride);
    }
}
#undef TO

void fl_store_integers(struct fl_array *a, int64_t at, int64_t stride, const int64_t *from, int64_t n) {
    switch (a->type) {
        INTEGERS(STORE)
        STORE(TENSOR_TYPE_U64, uint64_t)
    default:
        for (int64_t i = 0; i < n; i++)
            fl_array_put_integer(a, at + i * stride, from[i]);
    }
}

/* Copies n elements one after the other, between types where they differ. */
void fl_copy_elements(struct fl_array *y, int64_t at, const struct fl_array *x, int64_t from, int64_t n) {
    const size_t bytes = fl_type_bytes(y->type);
    if (n < 1)
        return;
    if (x->type == y->type) {
        memcpy((char *)y->data + (size_t)at * bytes, (const char *)x->data + (size_t)from * bytes, (size_t)n * bytes);
        return;
    }
    double numbers[FL_BLOCK];
    int64_t integers[FL_BLOCK];
    const bool is_float = fl_type_is_float(x->type) || fl_type_is_float(y->type);
    for (int64_t i = 0; i < n; i += FL_BLOCK) {
        const int64_t some = n - i < FL_BLOCK ? n - i : FL_BLOCK;
        if (is_float) {
            fl_load_numbers(numbers, x, from + i, 1, some);
            fl_store_numbers(y, at + i, 1, numbers, some);
        } else {
            fl_load_integers(integers, x, from + i, 1, some);
            fl_store_integers(y, at + i, 1, integers, some);
        }
    }
}

/* --- attributes and operands -------------------------------------------------------------------------------------- */

const struct fl_array *fl_operand(const struct fl_arrays *a, int operand) {
    return operand < a->in_count ? a->in[operand] : NULL;
}

struct fl_array *fl_result(const struct fl_arrays *a, int result) {
    return result < a->out_count ? a->out[result] : NULL;
}

tensor_status fl_want_float(const struct fl_arrays *a, int operand) {
    if (!fl_type_is_float(a->in[operand]->type))
        return fl_fail(TENSOR_E_UNSUPPORTED, "operand %d has type %s, expected floats", operand,
                       fl_type_name(a->in[operand]->type));
    return TENSOR_OK;
}

tensor_status fl_want_type(const struct fl_array *x, tensor_type type, const char *what) {
    if (x && x->type != type && !(fl_type_is_float(x->type) && fl_type_is_float(type)))
        return fl_fail(TENSOR_E_DATA, "%s has type %s, expected %s", what, fl_type_name(x->type), fl_type_name(type));
    return TENSOR_OK;
}

tensor_status fl_want_integer(const struct fl_array *x, const char *what) {
    if (x && (fl_type_is_float(x->type) || x->type == TENSOR_TYPE_BOOL))
        return fl_fail(TENSOR_E_DATA, "%s has type %s, expected integers", what, fl_type_name(x->type));
    return TENSOR_OK;
}

tensor_status fl_want_numbers(const struct fl_array *x, int64_t count, const char *what) {
    if (x && (x->ndim > 1 || x->count != count))
        return fl_fail(TENSOR_E_SHAPE, "%s has %lld elements in %d dimensions, expected %lld in one", what,
                       (long long)x->count, x->ndim, (long long)count);
    return TENSOR_OK;
}

void fl_strides(const struct fl_array *x, int64_t *stride) {
    int64_t step = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= x->dim[d];
    }
}

tensor_status fl_memory(void *pointer, int64_t count, size_t size) {
    void *const memory = fl_alloc((size_t)(count > 0 ? count : 1) * size);
    memcpy(pointer, &memory, sizeof memory);
    return memory ? TENSOR_OK
                  : fl_fail(TENSOR_E_MEMORY, "no memory for %lld numbers of %zu bytes", (long long)count, size);
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

tensor_status fl_shape_set(struct fl_array *out, tensor_type type, int ndim, const int64_t *dim) {
    const int64_t limit = (int64_t)1 << 37;
    if (!out)
        return TENSOR_OK;
    if (ndim < 0 || ndim > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "a result of %d dimensions, expected at most %d", ndim, FL_ARRAY_DIMS);
    out->type = type;
    out->ndim = ndim;
    out->count = 1;
    out->data = NULL;
    for (int d = 0; d < ndim; d++) {
        if (dim[d] < 0 || (dim[d] && out->count > limit / dim[d]))
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of a result is %lld, expected 0 or more, and 2^37 elements", d,
                           (long long)dim[d]);
        out->dim[d] = dim[d];
        out->count *= dim[d];
    }
    return TENSOR_OK;
}

tensor_status fl_axis(int *axis, int64_t given, int ndim) {
    if (given < -ndim || given >= ndim)
        return fl_fail(TENSOR_E_ARGUMENT, "axis %lld, expected %d to %d", (long long)given, -ndim, ndim - 1);
    *axis = (int)(given < 0 ? given + ndim : given);
    return TENSOR_OK;
}

tensor_status fl_broadcast_shape(int *ndim, int64_t *dim, const struct fl_array *a, const struct fl_array *b) {
    *ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 0; d < *ndim; d++) {
        const int i = a->ndim - *ndim + d, j = b->ndim - *ndim + d;
        const int64_t m = i < 0 ? 1 : a->dim[i], n = j < 0 ? 1 : b->dim[j];
        if (m != n && m != 1 && n != 1)
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of two operands is %lld and %lld, expected equal sizes, or 1",
                           d, (long long)m, (long long)n);
        dim[d] = m == 1 ? n : m;
    }
    return TENSOR_OK;
}

tensor_status fl_known(const struct fl_array *a, const char *what) {
    if (a && a->count && !a->data)
        return fl_fail(TENSOR_E_UNSUPPORTED, "its %s follows from the network's inputs, expected a constant", what);
    return TENSOR_OK;
}

tensor_status fl_shape_same(const struct fl_arrays *a) {
    return fl_shape_set(a->out[0], a->in[0]->type, a->in[0]->ndim, a->in[0]->dim);
}

tensor_status fl_compute_copy(const struct fl_arrays *a) {
    if (a->out[0])
        fl_copy_elements(a->out[0], 0, a->in[0], 0, a->out[0]->count);
    return TENSOR_OK;
}
