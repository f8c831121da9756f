/* arrays.c - numbers of arrays by their type, shapes, and what needs no more. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
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

int64_t fl_array_integer(const struct fl_array *a, int64_t i) {
    if (a->type == TENSOR_TYPE_I64)
        return ((const int64_t *)a->data)[i];
    if (a->type == TENSOR_TYPE_U64)
        return (int64_t)((const uint64_t *)a->data)[i];
    const double x = fl_array_number(a, i);
    return x >= 0x1p63 ? INT64_MAX : x >= -0x1p63 ? (int64_t)x : x < 0 ? INT64_MIN : 0;
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
    default:
        fl_array_put_integer(a, i,
                             value >= 0x1p63    ? INT64_MAX
                             : value >= -0x1p63 ? (int64_t)value
                             : value < 0        ? INT64_MIN
                                                : 0);
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
    if (a->out[0] && a->out[0]->count)
        memcpy(a->out[0]->data, a->in[0]->data, (size_t)a->out[0]->count * fl_type_bytes(a->out[0]->type));
    return TENSOR_OK;
}
