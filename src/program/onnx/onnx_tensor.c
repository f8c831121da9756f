/* onnx_tensor.c - arrays of a network from the tensors of an ONNX file, whose numbers lie in it as bytes, in a field
 * for their type, or in another file of the same folder. */
#define _GNU_SOURCE
#include "program/onnx/onnx_internal.h"
#ifdef FL_HAVE_ONNX
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* --- numbers in the file itself ------------------------------------------------------------------------------------
 */

/* The field of typed numbers that a type has its own in, and how many of them there are. */
static size_t typed_count(const Onnx__TensorProto *t, tensor_type type) {
    switch (type) {
    case TENSOR_TYPE_F32:
        return t->n_float_data;
    case TENSOR_TYPE_F64:
        return t->n_double_data;
    case TENSOR_TYPE_I64:
        return t->n_int64_data;
    case TENSOR_TYPE_U32:
    case TENSOR_TYPE_U64:
        return t->n_uint64_data;
    default:
        return t->n_int32_data;
    }
}

/* The range of a type that is stored in wider numbers: floats of 16 bits as their bits. */
static bool in_range(tensor_type type, int64_t number) {
    switch (type) {
    case TENSOR_TYPE_BOOL:
        return number == 0 || number == 1;
    case TENSOR_TYPE_I8:
        return number == (int8_t)number;
    case TENSOR_TYPE_U8:
        return number == (uint8_t)number;
    case TENSOR_TYPE_I16:
        return number == (int16_t)number;
    case TENSOR_TYPE_U32:
        return number == (uint32_t)number;
    case TENSOR_TYPE_I32:
        return true;
    default: /* uint16, float16, bfloat16 */
        return number == (uint16_t)number;
    }
}

/* Numbers of a wider field, as the lower bytes of each (the machine is little-endian). */
static tensor_status narrow(struct fl_array *a, const Onnx__TensorProto *t, const char *what) {
    const size_t bytes = fl_type_bytes(a->type);
    for (int64_t i = 0; i < a->count; i++) {
        const bool wide = a->type == TENSOR_TYPE_U32;
        const int64_t number = wide ? (int64_t)t->uint64_data[i] : t->int32_data[i];
        if (!in_range(a->type, number))
            return fl_fail(TENSOR_E_DATA, "%s: element %lld is %lld, which is no %s", what, (long long)i,
                           (long long)number, fl_type_name(a->type));
        memcpy((char *)a->data + (size_t)i * bytes, &number, bytes);
    }
    return TENSOR_OK;
}

static tensor_status copy_typed(struct fl_array *a, const Onnx__TensorProto *t, const char *what) {
    const void *const from = a->type == TENSOR_TYPE_F32   ? (const void *)t->float_data
                             : a->type == TENSOR_TYPE_F64 ? (const void *)t->double_data
                             : a->type == TENSOR_TYPE_I64 ? (const void *)t->int64_data
                             : a->type == TENSOR_TYPE_U64 ? (const void *)t->uint64_data
                                                          : NULL;
    if (!from)
        return narrow(a, t, what);
    memcpy(a->data, from, (size_t)a->count * fl_type_bytes(a->type));
    return TENSOR_OK;
}

/* --- numbers in another file ---------------------------------------------------------------------------------------
 */

/* Tensors may share bytes of a file, but no file makes a multiple of its size of memory. */
enum { SHARED = 4 };
struct fl_onnx_file {
    struct fl_onnx_file *next;
    int64_t taken;
    char location[];
};

void fl_onnx_forget_files(struct fl_onnx_reader *r) {
    while (r->files) {
        struct fl_onnx_file *const file = r->files;
        r->files = file->next;
        fl_free(file);
    }
}

static struct fl_onnx_file *find_file(struct fl_onnx_reader *r, const char *location) {
    struct fl_onnx_file *file = r->files;
    while (file && strcmp(file->location, location) != 0)
        file = file->next;
    if (!file && (file = fl_alloc_zero(sizeof *file + strlen(location) + 1))) {
        strcpy(file->location, location);
        file->next = r->files;
        r->files = file;
    }
    return file;
}

static tensor_status read_whole(const char *text, const char *what, const char *key, int64_t *number) {
    uint64_t value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && value < (uint64_t)1 << 56; p++)
        value = 10 * value + (uint64_t)(*p - '0');
    if (p == text || *p)
        return fl_fail(TENSOR_E_DATA, "%s: the %s of its external data is '%s', expected a number of bytes", what, key,
                       text);
    *number = (int64_t)value;
    return TENSOR_OK;
}

/* The folder of the model, which may be reached by links as any path. -1: errno says why. */
static int open_folder(const char *path) {
    const char *const slash = strrchr(path, '/');
    if (!slash)
        return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *const name = fl_strdup(path);
    if (!name) {
        errno = ENOMEM;
        return -1;
    }
    name[slash == path ? 1 : slash - path] = 0;
    const int folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int reason = errno;
    fl_free(name);
    errno = reason;
    return folder;
}

/* Opens a path below the model's folder name by name, following no link: whoever gives a model away must not make its
 * reader read other files. Only regular files, without waiting for anybody (core/base/files.h). */
static tensor_status open_inside(const struct fl_onnx_reader *r, const char *location, const char *what, int *file,
                                 int64_t *size) {
    int folder = open_folder(r->path);
    for (const char *part = location; folder >= 0;) {
        const size_t length = strcspn(part, "/");
        const bool last = !part[length];
        char name[256];
        if (!length || length >= sizeof name || (length <= 2 && !strncmp(part, "..", length))) {
            close(folder);
            return fl_fail(TENSOR_E_DATA,
                           "%s: its data lie in '%s', expected a path below the model's folder, without '..'", what,
                           location);
        }
        memcpy(name, part, length);
        name[length] = 0;
        const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (last ? 0 : O_DIRECTORY);
        const int next = openat(folder, name, flags);
        const int reason = errno;
        struct stat about = {0};
        const bool link = next < 0 && !fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) && S_ISLNK(about.st_mode);
        close(folder);
        if (link)
            return fl_fail(TENSOR_E_DATA,
                           "%s: its data lie in '%s', where %s is a symbolic link, which is not followed", what,
                           location, name);
        folder = next;
        errno = reason;
        if (!last || next < 0) {
            part += length + 1;
            continue;
        }
        if (fstat(next, &about) || !S_ISREG(about.st_mode)) {
            close(next);
            return fl_fail(TENSOR_E_IO, "%s: its data lie in '%s', which is %s, expected a regular file", what,
                           location, fl_file_kind(about.st_mode));
        }
        *file = next;
        *size = about.st_size;
        return TENSOR_OK;
    }
    return fl_fail(TENSOR_E_IO, "%s: cannot open '%s', where its data lie: %s", what, location, strerror(errno));
}

static tensor_status read_at(int file, int64_t at, void *to, int64_t bytes, const char *what, const char *location) {
    for (char *rest = to; bytes;) {
        const ssize_t got = pread(file, rest, bytes > (1 << 30) ? 1u << 30 : (size_t)bytes, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fl_fail(TENSOR_E_IO, "%s: cannot read '%s' at byte %lld: %s", what, location, (long long)at,
                           got ? strerror(errno) : "the file ends");
        at += got;
        rest += got;
        bytes -= got;
    }
    return TENSOR_OK;
}

/* Where the bytes of a tensor lie, checked against the file; the caller closes it. */
struct place {
    int file;
    int64_t offset;
    const char *location;
};

static tensor_status find_place(struct fl_onnx_reader *r, const Onnx__TensorProto *t, int64_t bytes, const char *what,
                                struct place *p) {
    int64_t length = -1, size;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *const key = t->external_data[i]->key ? t->external_data[i]->key : "";
        const char *const value = t->external_data[i]->value ? t->external_data[i]->value : "";
        if (!strcmp(key, "location"))
            p->location = value;
        else if (!strcmp(key, "offset"))
            TRY(read_whole(value, what, key, &p->offset));
        else if (!strcmp(key, "length"))
            TRY(read_whole(value, what, key, &length));
    }
    if (!p->location)
        return fl_fail(TENSOR_E_DATA, "%s: its data are external, and their location is missing", what);
    TRY(open_inside(r, p->location, what, &p->file, &size));
    const int64_t rest = p->offset <= size ? size - p->offset : 0;
    if (length < 0)
        length = rest;
    if (length != bytes || length > rest)
        return fl_fail(TENSOR_E_DATA,
                       "%s: its data are %lld bytes of '%s' from byte %lld, expected %lld bytes of a file of %lld",
                       what, (long long)length, p->location, (long long)p->offset, (long long)bytes, (long long)size);
    struct fl_onnx_file *const file = find_file(r, p->location);
    if (!file)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the name of a file", what);
    file->taken += bytes;
    if (file->taken / SHARED > size)
        return fl_fail(TENSOR_E_DATA, "%s: tensors take more than %d times the %lld bytes of '%s'", what, SHARED,
                       (long long)size, p->location);
    return TENSOR_OK;
}

/* --- a tensor ------------------------------------------------------------------------------------------------------
 */

/* How many elements its dimensions make. */
static tensor_status count_elements(const Onnx__TensorProto *t, tensor_type type, const char *what, int64_t *count) {
    const int64_t limit = (INT64_C(1) << 40) / (int64_t)fl_type_bytes(type);
    *count = 1;
    if (t->n_dims > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_DATA, "%s has %zu dimensions, expected at most %d", what, t->n_dims, FL_ARRAY_DIMS);
    for (size_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 0 || (t->dims[i] && *count > limit / t->dims[i]))
            return fl_fail(TENSOR_E_DATA, "%s: dimension %zu is %lld, expected 0 or more, and 2^40 bytes in all", what,
                           i, (long long)t->dims[i]);
        *count *= t->dims[i];
    }
    return TENSOR_OK;
}

static tensor_status check_bools(const struct fl_array *a, const char *what) {
    const unsigned char *const bytes = a->data;
    for (int64_t i = 0; a->type == TENSOR_TYPE_BOOL && i < a->count; i++)
        if (bytes[i] > 1)
            return fl_fail(TENSOR_E_DATA, "%s: element %lld is %d, which is no bool", what, (long long)i, bytes[i]);
    return TENSOR_OK;
}

/* Whether elements are integers of 4 bits, two to a byte, the first in its lower half. */
static bool has_four_bits(const Onnx__TensorProto *t) {
    return t->data_type == 21 || t->data_type == 22; /* UINT4, INT4 */
}

static tensor_status fill(struct fl_onnx_reader *r, struct fl_array **array, const Onnx__TensorProto *t,
                          tensor_type type, const char *what, const struct place *p) {
    TRY(fl_net_array(r->n, array, type, (int)t->n_dims, t->dims));
    struct fl_array stored = **array;
    if (!stored.count)
        return TENSOR_OK;
    if (has_four_bits(t)) {
        stored.type = TENSOR_TYPE_U8;
        stored.count = (stored.count + 1) / 2;
        stored.data = (char *)stored.data + (*array)->count - stored.count;
    }
    const int64_t bytes = stored.count * (int64_t)fl_type_bytes(type);
    if (p->location)
        TRY(read_at(p->file, p->offset, stored.data, bytes, what, p->location));
    else if (t->has_raw_data && t->raw_data.len)
        memcpy(stored.data, t->raw_data.data, (size_t)bytes);
    else
        TRY(copy_typed(&stored, t, what));
    if (has_four_bits(t))
        fl_net_spread(*array, stored.data);
    return check_bools(*array, what);
}

tensor_status fl_onnx_tensor(struct fl_onnx_reader *r, struct fl_array **array, const Onnx__TensorProto *t,
                             const char *what, bool *four_bits) {
    const uint16_t one = 1;
    const bool four = four_bits && has_four_bits(t);
    const tensor_type type = !four ? fl_onnx_type(t->data_type) : t->data_type == 22 ? TENSOR_TYPE_I8 : TENSOR_TYPE_U8;
    const size_t all = t->n_float_data + t->n_int32_data + t->n_int64_data + t->n_double_data + t->n_uint64_data;
    int64_t count;
    if (!*(const unsigned char *)&one)
        return fl_fail(TENSOR_E_UNSUPPORTED, "the numbers of this machine are not little-endian");
    if (!type)
        return fl_fail(TENSOR_E_DATA,
                       "%s has elements of type %s (%d), expected bool, integers of 8 to 64 bits, "
                       "float16, bfloat16, float32 or float64",
                       what, fl_onnx_type_name(t->data_type), t->data_type);
    if (t->has_segment)
        return fl_fail(TENSOR_E_DATA, "%s is stored in segments, expected one tensor", what);
    TRY(count_elements(t, type, what, &count));
    const int64_t stored = four ? (count + 1) / 2 : count, bytes = stored * (int64_t)fl_type_bytes(type);
    struct place p = {.file = -1};
    tensor_status status = TENSOR_OK;
    if (t->data_location == 1)
        status = find_place(r, t, bytes, what, &p);
    else if (t->data_location)
        status = fl_fail(TENSOR_E_DATA, "%s: its data location is %d, expected 0 or 1", what, t->data_location);
    else if (all && t->raw_data.len)
        status =
            fl_fail(TENSOR_E_DATA, "%s has numbers as bytes and in a field of their type, expected one of them", what);
    else if (all != typed_count(t, type))
        status =
            fl_fail(TENSOR_E_DATA, "%s: numbers lie in a field for another type than %s", what, fl_type_name(type));
    else if (all && all != (uint64_t)stored)
        status = fl_fail(TENSOR_E_DATA, "%s has %zu numbers, its dimensions make %lld", what, all, (long long)stored);
    else if (!all && t->raw_data.len != (uint64_t)bytes)
        status = fl_fail(TENSOR_E_DATA, "%s has %zu bytes, its dimensions make %lld elements of %s: %lld bytes", what,
                         t->raw_data.len, (long long)count, four ? "4 bits" : fl_type_name(type), (long long)bytes);
    if (four_bits)
        *four_bits = four;
    if (!status)
        status = fill(r, array, t, type, what, &p);
    if (p.file >= 0)
        close(p.file);
    return status;
}
#endif
