/* data_numbers.c - arrays of numbers from files of NumPy, for whoever runs a network on them. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "data/data_inflate.h"
#include "data/data_internal.h"
#include "data/data_npy.h"
#include "data/data_zip.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static tensor_type type_of(const struct fl_npy *a) {
    const int size = a->bytes == 1 ? 0 : a->bytes == 2 ? 1 : a->bytes == 4 ? 2 : 3;
    static const tensor_type integers[2][4] = {{TENSOR_TYPE_I8, TENSOR_TYPE_I16, TENSOR_TYPE_I32, TENSOR_TYPE_I64},
                                               {TENSOR_TYPE_U8, TENSOR_TYPE_U16, TENSOR_TYPE_U32, TENSOR_TYPE_U64}};
    static const tensor_type floats[4] = {0, TENSOR_TYPE_F16, TENSOR_TYPE_F32, TENSOR_TYPE_F64};
    return a->kind == 'b' ? TENSOR_TYPE_BOOL : a->kind == 'f' ? floats[size] : integers[a->kind == 'u'][size];
}

static void swap_bytes(const struct fl_npy *a, uint8_t *elements) {
    for (int64_t i = 0; i < a->elements; i++)
        for (int k = 0; k < a->bytes / 2; k++) {
            uint8_t *const low = &elements[i * a->bytes + k], *const high = &elements[(i + 1) * a->bytes - 1 - k];
            const uint8_t byte = *low;
            *low = *high;
            *high = byte;
        }
}

/* From the order in which the first index runs fastest; from is freed. */
static tensor_status to_rows(const struct fl_npy *a, const struct fl_data_stream *s, uint8_t **elements) {
    uint8_t *const from = *elements, *const to = fl_alloc((size_t)(a->elements * a->bytes));
    int64_t index[FL_NPY_DIMS] = {0};
    for (int64_t i = 0; to && i < a->elements; i++) {
        int64_t at = 0;
        for (int d = a->dims - 1; d >= 0; d--)
            at = at * a->dim[d] + index[d];
        memcpy(to + i * a->bytes, from + at * a->bytes, (size_t)a->bytes);
        for (int d = a->dims - 1; d >= 0 && ++index[d] == a->dim[d]; d--)
            index[d] = 0;
    }
    fl_free(from);
    *elements = to;
    return to ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "%s: no memory to arrange the elements of %s", s->kind, s->path);
}

static tensor_status read_numbers(program_array *array, struct fl_data_stream *s) {
    struct fl_npy a;
    TRY(fl_npy_header(&a, s, FL_NPY_NUMBERS));
    uint8_t *elements = NULL;
    if (a.elements)
        TRY(fl_data_stream_take(s, "elements", a.elements * a.bytes, &elements));
    tensor_status status = fl_data_stream_end(s);
    if (!status && a.big_endian != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__))
        swap_bytes(&a, elements);
    if (!status && a.fortran && a.dims > 1 && a.elements)
        status = to_rows(&a, s, &elements);
    if (status) {
        fl_free(elements);
        return status;
    }
    *array = (program_array){.type = type_of(&a), .ndim = a.dims, .data = elements};
    memcpy(array->shape, a.dim, sizeof a.dim);
    return TENSOR_OK;
}

static tensor_status read_file(program_array *array, const char *path) {
    struct fl_data_stream s = {.kind = "npy", .path = path};
    TRY(fl_data_file_open(&s.file, &s.length, "npy", path, NULL));
    const tensor_status status = read_numbers(array, &s);
    close(s.file);
    return status;
}

static tensor_status read_member(program_array *array, const char *path, const char *member) {
    char name[512];
    struct fl_data_zip zip;
    struct fl_data_stream s = {0};
    if ((size_t)snprintf(name, sizeof name, "%s.npy", member) >= sizeof name)
        return fl_fail(TENSOR_E_ARGUMENT, "npz: a member's name of %zu bytes, expected at most %zu", strlen(member),
                       sizeof name - sizeof ".npy");
    TRY(fl_data_zip_open(&zip, "npz", path));
    tensor_status status = fl_data_zip_has(&zip, name)
                               ? fl_data_zip_member(&zip, name, &s)
                               : fl_fail(TENSOR_E_ARGUMENT, "npz: %s has no member '%s'", path, name);
    if (!status)
        status = read_numbers(array, &s);
    fl_data_inflate_free(s.inflate);
    fl_data_zip_close(&zip);
    return status;
}

tensor_status data_array_read(program_array *array, const char *path, const char *member) {
    if (!array || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "data_array_read: %s is NULL", array ? "path" : "array");
    *array = (program_array){0};
    return member ? read_member(array, path, member) : read_file(array, path);
}

void data_array_free(program_array *array) {
    if (array) {
        fl_free(array->data);
        array->data = NULL;
    }
}
