/* nn_checkpoint_values.c - single tensors of a safetensors file, whoever has written it. */
#include "core/base/fail.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include "safetensors/safetensors.h"
#include <stdlib.h>
#include <string.h>

static tensor_status check(const char *path, const char *name, const void *first, const void *second) {
    return path && name && first && second ? TENSOR_OK
                                           : fl_fail(TENSOR_E_ARGUMENT, "checkpoint: %s is NULL",
                                                     !path   ? "the path"
                                                     : !name ? "the name of the tensor"
                                                             : "where the answer goes");
}

tensor_status nn_checkpoint_shape(const char *path, const char *name, int *ndim, int64_t dim[8]) {
    struct fl_safetensors s;
    FL_TRY(check(path, name, ndim, dim));
    FL_TRY(fl_safetensors_open(&s, path));
    const struct fl_stored_tensor *t = fl_safetensors_find(&s, name);
    *ndim = t ? t->ndim : -1;
    for (int i = 0; t && i < t->ndim; i++)
        dim[i] = t->dim[i];
    fl_safetensors_close(&s);
    return TENSOR_OK;
}

static tensor_status check_tensor(const char *path, const char *name, const struct fl_stored_tensor *t, int64_t count) {
    if (!t)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s has no tensor '%.100s'", path, name);
    if (t->type != FL_STORED_F32 && t->type != FL_STORED_F64)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.100s' is of type %s, expected F32 or F64", path, name,
                       fl_stored_type_name(t->type));
    const int64_t there = (t->end - t->begin) / fl_stored_type_bytes(t->type);
    if (there != count)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.100s' has %lld elements, expected %lld", path, name,
                       (long long)there, (long long)count);
    return TENSOR_OK;
}

static tensor_status read_values(const struct fl_safetensors *s, const char *name, double *values, int64_t count) {
    const struct fl_stored_tensor *t = fl_safetensors_find(s, name);
    FL_TRY(check_tensor(s->path, name, t, count));
    if (t->type == FL_STORED_F64 || !count)
        return fl_safetensors_read(s, t, values);
    /* floats into the upper half of the doubles' room: widened from the first on, none is overwritten before it is
     * read */
    char *const half = (char *)values + (size_t)count * sizeof(float);
    FL_TRY(fl_safetensors_read(s, t, half));
    for (int64_t i = 0; i < count; i++) {
        float x;
        memcpy(&x, half + (size_t)i * sizeof x, sizeof x);
        values[i] = x;
    }
    return TENSOR_OK;
}

tensor_status nn_checkpoint_values(const char *path, const char *name, double *values, int64_t count) {
    struct fl_safetensors s;
    FL_TRY(check(path, name, values, values));
    FL_TRY(fl_safetensors_open(&s, path));
    const tensor_status status = read_values(&s, name, values, count);
    fl_safetensors_close(&s);
    return status;
}
