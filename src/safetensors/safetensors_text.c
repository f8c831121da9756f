/* safetensors_text.c - types by name, and sizes. */
#include "safetensors/safetensors.h"
#include <stdbool.h>

static const struct {
    const char *name;
    int64_t bytes;
} types[FL_STORED_TYPES] = {
    [FL_STORED_BOOL] = {"BOOL", 1},       [FL_STORED_U8] = {"U8", 1},           [FL_STORED_I8] = {"I8", 1},
    [FL_STORED_F8_E5M2] = {"F8_E5M2", 1}, [FL_STORED_F8_E4M3] = {"F8_E4M3", 1}, [FL_STORED_I16] = {"I16", 2},
    [FL_STORED_U16] = {"U16", 2},         [FL_STORED_F16] = {"F16", 2},         [FL_STORED_BF16] = {"BF16", 2},
    [FL_STORED_I32] = {"I32", 4},         [FL_STORED_U32] = {"U32", 4},         [FL_STORED_F32] = {"F32", 4},
    [FL_STORED_I64] = {"I64", 8},         [FL_STORED_U64] = {"U64", 8},         [FL_STORED_F64] = {"F64", 8}};

const char *fl_stored_type_name(enum fl_stored_type type) {
    return types[type].name;
}

int64_t fl_stored_type_bytes(enum fl_stored_type type) {
    return types[type].bytes;
}

int64_t fl_stored_size(enum fl_stored_type type, int ndim, const int64_t *dim) {
    int64_t bytes = types[type].bytes;
    bool empty = false;
    for (int d = 0; d < ndim; d++) {
        if (dim[d] < 0)
            return -1;
        empty = empty || !dim[d];
    }
    for (int d = 0; d < ndim && !empty; d++)
        if (__builtin_mul_overflow(bytes, dim[d], &bytes))
            return -1;
    return empty ? 0 : bytes;
}
