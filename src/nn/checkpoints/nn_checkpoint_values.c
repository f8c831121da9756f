/* nn_checkpoint_values.c - single tensors of a safetensors file of any program. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "flexlab/tensor.h"
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

static const char *note_of(const struct fl_safetensors *s, const char *form, const char *name) {
    char *key = fl_format_name(form, name);
    const char *found = key ? fl_safetensors_note(s, key) : NULL;
    fl_free(key);
    return found;
}

/* The format that has such elements, by their type and what the notes say of them; FMT_NONE: none. */
static tensor_format format_of(const struct fl_safetensors *s, const char *name, enum fl_stored_type type) {
    const bool exponent = note_of(s, "%s.exponent", name);
    const char *const own = note_of(s, "%s.format", name);
    tensor_format found = FMT_NONE;
    switch (type) {
    case FL_STORED_F64:
        return FMT_F64;
    case FL_STORED_F32:
        return FMT_F32;
    case FL_STORED_F16:
        return FMT_FP16;
    case FL_STORED_BF16:
        return FMT_BF16;
    case FL_STORED_I16:
        return exponent ? FMT_FLEX16_5 : FMT_NONE;
    case FL_STORED_I32:
        return exponent ? FMT_I32 : FMT_NONE;
    default:
        if (own && fl_checkpoint_has_codes(type) && !tensor_format_find(&found, own) &&
            tensor_format_bytes(found) == (size_t)fl_stored_type_bytes(type))
            return found;
        return FMT_NONE;
    }
}

static tensor_status check_tensor(const struct fl_safetensors *s, const char *name, const struct fl_stored_tensor *t,
                                  int64_t count, tensor_format *format) {
    if (!t)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s has no tensor '%.100s'", s->path, name);
    *format = format_of(s, name, t->type);
    if (*format == FMT_NONE)
        return fl_fail(TENSOR_E_DATA,
                       "checkpoint: %s: '%.100s' is of type %s, expected F64, F32, F16, BF16, I16 or I32 with a note "
                       "'%.100s.exponent', or U8, U16 or U32 with a note '%.100s.format' that names a format of such "
                       "elements",
                       s->path, name, fl_stored_type_name(t->type), name, name);
    const int64_t there = (t->end - t->begin) / fl_stored_type_bytes(t->type);
    if (there != count)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.100s' has %lld elements, expected %lld", s->path, name,
                       (long long)there, (long long)count);
    return TENSOR_OK;
}

/* Decodes the elements, from the first on, by a tensor of their format. */
static tensor_status decode(double *values, const char *elements, int64_t count, tensor_format format, int64_t e) {
    enum { SOME = 512 };
    const size_t each = tensor_format_bytes(format);
    double block[SOME];
    tensor *const t = tensor_new(format, 1, &(int64_t){SOME});
    tensor_status status = t ? TENSOR_OK : TENSOR_E_MEMORY;
    for (int64_t first = 0; first < count && !status; first += SOME) {
        const int64_t n = count - first < SOME ? count - first : SOME;
        memcpy(tensor_data(t), elements + (size_t)first * each, (size_t)n * each);
        status = tensor_store_f64(t, block, SOME);
        for (int64_t i = 0; i < n && !status; i++)
            values[first + i] = ldexp(block[i], tensor_exponent(t) - (int)e);
    }
    tensor_free(t);
    return status;
}

/* The elements are read to the end of the array of doubles, so that decoding from the first on overwrites none before
 * it is read. */
tensor_status fl_checkpoint_values(const struct fl_safetensors *s, const char *name, double *values, int64_t count) {
    const struct fl_stored_tensor *t = fl_safetensors_find(s, name);
    tensor_format format = FMT_NONE;
    int64_t e = 0;
    TRY(check_tensor(s, name, t, count, &format));
    if (tensor_format_is_shared(format) || format == FMT_I32)
        TRY(exponent_of(s, name, &e));
    if (!count)
        return TENSOR_OK;
    char *const elements = (char *)values + (size_t)count * (sizeof *values - tensor_format_bytes(format));
    TRY(fl_safetensors_read(s, t, elements));
    return decode(values, elements, count, format, e);
}

tensor_status nn_checkpoint_values(double *values, int64_t count, const char *path, const char *name) {
    struct fl_safetensors s;
    TRY(check(path, name, values, values));
    TRY(fl_safetensors_open(&s, path));
    const tensor_status status = fl_checkpoint_values(&s, name, values, count);
    fl_safetensors_close(&s);
    return status;
}
