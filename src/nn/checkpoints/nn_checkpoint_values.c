/* nn_checkpoint_values.c - single tensors of a safetensors file, whoever has written it. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "nn/checkpoints/nn_checkpoint.h"
#include <math.h>
#include <string.h>

static tensor_status check(const char *path, const char *name, const void *first, const void *second) {
    return path && name && first && second ? TENSOR_OK
                                           : fl_fail(TENSOR_E_ARGUMENT, "checkpoint: %s is NULL",
                                                     !path   ? "the path"
                                                     : !name ? "the name of the tensor"
                                                             : "the result");
}

tensor_status nn_checkpoint_shape(int *ndim, int64_t dim[8], const char *path, const char *name) {
    struct fl_safetensors s;
    TRY(check(path, name, ndim, dim));
    TRY(fl_safetensors_open(&s, path));
    const struct fl_stored_tensor *t = fl_safetensors_find(&s, name);
    *ndim = t ? t->ndim : -1;
    for (int i = 0; t && i < t->ndim; i++)
        dim[i] = t->dim[i];
    fl_safetensors_close(&s);
    return TENSOR_OK;
}

/* The exponent of mantissas is in the note NAME.exponent, which holds for the wide part NAME.wide too. */
static tensor_status exponent_of(const struct fl_safetensors *s, const char *name, int64_t *e) {
    char *key = fl_format_name("%s.exponent", name);
    const tensor_status status = key ? fl_checkpoint_whole(s, key, INT16_MIN, INT16_MAX, e)
                                     : fl_fail(TENSOR_E_MEMORY, "checkpoint: no memory for a name");
    fl_free(key);
    return status;
}

static bool is_real(enum fl_stored_type type) {
    return type == FL_STORED_F64 || type == FL_STORED_F32 || type == FL_STORED_F16 || type == FL_STORED_BF16;
}

static bool is_mantissas(const struct fl_safetensors *s, const char *name, enum fl_stored_type type) {
    char *key = fl_format_name("%s.exponent", name);
    const bool known = (type == FL_STORED_I16 || type == FL_STORED_I32) && key && fl_safetensors_note(s, key);
    fl_free(key);
    return known;
}

static tensor_status check_tensor(const struct fl_safetensors *s, const char *name, const struct fl_stored_tensor *t,
                                  int64_t count) {
    if (!t)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s has no tensor '%.100s'", s->path, name);
    if (!is_real(t->type) && !is_mantissas(s, name, t->type))
        return fl_fail(
            TENSOR_E_DATA,
            "checkpoint: %s: '%.100s' is of type %s, expected F64, F32, F16, BF16, or I16 or I32 with a note "
            "'%.100s.exponent'",
            s->path, name, fl_stored_type_name(t->type), name);
    const int64_t there = (t->end - t->begin) / fl_stored_type_bytes(t->type);
    if (there != count)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.100s' has %lld elements, expected %lld", s->path, name,
                       (long long)there, (long long)count);
    return TENSOR_OK;
}

/* binary16: a sign, 5 bits of exponent, 10 of the fraction. */
static double half_value(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    const double magnitude = exponent == 31 ? fraction ? NAN : INFINITY
                             : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                            : ldexp(fraction, -24);
    return h >> 15 ? -magnitude : magnitude;
}

/* One element; e: of mantissas. */
static double value_of(enum fl_stored_type type, const char *at, int64_t e) {
    double real;
    float single;
    uint16_t half;
    uint32_t bits;
    int16_t narrow;
    int32_t wide;
    switch (type) {
    case FL_STORED_F64:
        return memcpy(&real, at, sizeof real), real;
    case FL_STORED_F32:
        return memcpy(&single, at, sizeof single), (double)single;
    case FL_STORED_F16:
        return memcpy(&half, at, sizeof half), half_value(half);
    case FL_STORED_BF16:
        memcpy(&half, at, sizeof half); /* the upper half of a binary32 */
        bits = (uint32_t)half << 16;
        return memcpy(&single, &bits, sizeof single), (double)single;
    case FL_STORED_I16:
        return memcpy(&narrow, at, sizeof narrow), ldexp(narrow, (int)-e);
    default:
        return memcpy(&wide, at, sizeof wide), ldexp(wide, (int)-e);
    }
}

/* The elements go to the end of the doubles' room: widened from the first on, none is overwritten before it is read. */
tensor_status fl_checkpoint_values(const struct fl_safetensors *s, const char *name, double *values, int64_t count) {
    const struct fl_stored_tensor *t = fl_safetensors_find(s, name);
    int64_t e = 0;
    TRY(check_tensor(s, name, t, count));
    if (!is_real(t->type))
        TRY(exponent_of(s, name, &e));
    if (!count)
        return TENSOR_OK;
    const size_t each = (size_t)fl_stored_type_bytes(t->type);
    const char *at = (char *)values + (size_t)count * (sizeof *values - each);
    TRY(fl_safetensors_read(s, t, (char *)values + (size_t)count * (sizeof *values - each)));
    for (int64_t i = 0; i < count; i++)
        values[i] = value_of(t->type, at + (size_t)i * each, e);
    return TENSOR_OK;
}

tensor_status nn_checkpoint_values(double *values, int64_t count, const char *path, const char *name) {
    struct fl_safetensors s;
    TRY(check(path, name, values, values));
    TRY(fl_safetensors_open(&s, path));
    const tensor_status status = fl_checkpoint_values(&s, name, values, count);
    fl_safetensors_close(&s);
    return status;
}
