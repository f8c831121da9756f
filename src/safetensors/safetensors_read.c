/* safetensors_read.c - opening a safetensors file and reading its elements. */
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include "safetensors/safetensors.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { LENGTH_BYTES = 8, CHUNK = 1 << 16 };

/* Reads `bytes` of the file from `at` on. */
static tensor_status read_at(const struct fl_safetensors *s, int64_t at, void *to, int64_t bytes) {
    char *rest = to;
    while (bytes) {
        const size_t wanted = bytes > (1 << 30) ? 1u << 30 : (size_t)bytes;
        const ssize_t got = pread(s->file, rest, wanted, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fl_fail(TENSOR_E_IO, "safetensors: cannot read %s: %s", s->path, strerror(errno));
        if (got == 0)
            return fl_fail(TENSOR_E_DATA, "safetensors: %s: ends at byte %lld, expected %lld more", s->path,
                           (long long)at, (long long)bytes);
        at += got;
        rest += got;
        bytes -= got;
    }
    return TENSOR_OK;
}

static tensor_status open_file(struct fl_safetensors *s, int64_t *size) {
    struct stat about;
    const char *kind;
    s->file = fl_file_open(s->path, &about, &kind);
    if (kind)
        return fl_fail(TENSOR_E_IO, "safetensors: %s is %s, expected a regular file", s->path, kind);
    if (s->file < 0)
        return fl_fail(errno == ENOMEM ? TENSOR_E_MEMORY : TENSOR_E_IO, "safetensors: cannot open %s: %s", s->path,
                       strerror(errno));
    *size = about.st_size;
    return TENSOR_OK;
}

/* --- files of other kinds ------------------------------------------------------------------------------------------
 */

enum { HEAD = 256 }; /* bytes that are examined */

static bool is_text(const unsigned char *head, size_t count) {
    size_t at = 0, bytes;
    while (at < count) {
        const bool control = head[at] < ' ' && (!head[at] || !strchr("\t\n\r", head[at]));
        bytes = control || head[at] == 0x7f ? 0 : fl_utf8_length(head + at, count - at);
        if (!bytes)
            break;
        at += bytes;
    }
    return count &&
           (at == count || (count == HEAD && count - at < 4 && head[at] >= 0xc0)); /* the end cuts a character */
}

/* The kind of file by its first bytes; NULL: unknown. */
static const char *looks_like(const unsigned char *head, size_t count) {
    static const struct {
        const char *bytes;
        size_t count, at;
        const char *what;
    } known[] = {{"PK\3\4", 4, 0, "a ZIP archive, as torch.save of PyTorch, .keras and .npz files are"},
                 {"\x80\2", 2, 0, "a pickle of Python, as torch.save of older versions of PyTorch wrote"},
                 {"\x80\3", 2, 0, "a pickle of Python"},
                 {"\x80\4", 2, 0, "a pickle of Python"},
                 {"\x80\5", 2, 0, "a pickle of Python"},
                 {"\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file, as .h5 files of Keras are"},
                 {"\x93NUMPY", 6, 0, "an array of NumPy (.npy)"},
                 {"\x1f\x8b", 2, 0, "a file compressed by gzip"},
                 {"\xfd"
                  "7zXZ",
                  5, 0, "a file compressed by xz"},
                 {"\x28\xb5\x2f\xfd", 4, 0, "a file compressed by zstd"},
                 {"BZh", 3, 0, "a file compressed by bzip2"},
                 {"GGUF", 4, 0, "a GGUF file"},
                 {"TFL3", 4, 4, "a model of TensorFlow Lite"},
                 {"\x89PNG", 4, 0, "a PNG picture"},
                 {"%PDF", 4, 0, "a PDF document"},
                 {"\x7f"
                  "ELF",
                  4, 0, "a program or a library"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (count >= known[i].at + known[i].count && !memcmp(head + known[i].at, known[i].bytes, known[i].count))
            return known[i].what;
    /* field 1 of ONNX's ModelProto, the version, is a small number; field 2, the producer, a string */
    if (count > 4 && head[0] == 8 && head[1] < 32 && head[2] == 0x12 && head[3] < 128 &&
        is_text(head + 4, count - 4 < head[3] ? count - 4 : head[3]))
        return "a model in ONNX";
    return is_text(head, count) ? "a text" : NULL;
}

/* Refuses known files of other kinds. A file with a brace after small first eight bytes is none of them. */
static tensor_status check_kind(const struct fl_safetensors *s, int64_t size) {
    unsigned char head[HEAD];
    const size_t count = size < HEAD ? (size_t)size : HEAD;
    tensor_status status = read_at(s, 0, head, (int64_t)count);
    const char *what = status || (count > LENGTH_BYTES && head[LENGTH_BYTES] == '{' && head[LENGTH_BYTES - 1] == 0)
                           ? NULL
                           : looks_like(head, count);
    if (what)
        status = fl_fail(TENSOR_E_DATA, "safetensors: %s is not a safetensors file: it looks like %s", s->path, what);
    return status;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static tensor_status read_header(struct fl_safetensors *s) {
    int64_t size = 0;
    unsigned char length[LENGTH_BYTES];
    uint64_t header = 0;
    tensor_status status = open_file(s, &size);
    if (!status)
        status = check_kind(s, size);
    if (!status && size < LENGTH_BYTES)
        status = fl_fail(TENSOR_E_DATA, "safetensors: %s has %lld bytes, expected at least %d", s->path,
                         (long long)size, LENGTH_BYTES);
    if (!status)
        status = read_at(s, 0, length, LENGTH_BYTES);
    if (status)
        return status;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        header = header << 8 | length[i];
    if (header > FL_SAFETENSORS_HEADER_LIMIT)
        return fl_fail(TENSOR_E_DATA,
                       "safetensors: %s is not a safetensors file: its first eight bytes would be the length of a "
                       "header, %llu, expected at most %d",
                       s->path, (unsigned long long)header, FL_SAFETENSORS_HEADER_LIMIT);
    if ((int64_t)header > size - LENGTH_BYTES)
        return fl_fail(TENSOR_E_DATA, "safetensors: %s: a header of %llu bytes, the file has %lld after its length",
                       s->path, (unsigned long long)header, (long long)(size - LENGTH_BYTES));
    s->data_at = LENGTH_BYTES + (int64_t)header;
    s->data_bytes = size - s->data_at;
    s->header = fl_alloc((size_t)header + 1);
    if (!s->header)
        return fl_fail(TENSOR_E_MEMORY, "safetensors: no memory for the header of %s, %llu bytes", s->path,
                       (unsigned long long)header);
    status = read_at(s, LENGTH_BYTES, s->header, (int64_t)header);
    return status ? status : fl_safetensors_parse(s, (size_t)header);
}

tensor_status fl_safetensors_open(struct fl_safetensors *s, const char *path) {
    *s = (struct fl_safetensors){.file = -1};
    const uint16_t one = 1;
    if (!*(const unsigned char *)&one)
        return fl_fail(TENSOR_E_UNSUPPORTED, "safetensors: the numbers of this machine are not little-endian");
    s->path = fl_strdup(path);
    const tensor_status status =
        s->path ? read_header(s) : fl_fail(TENSOR_E_MEMORY, "safetensors: no memory for the path");
    if (status)
        fl_safetensors_close(s);
    return status;
}

void fl_safetensors_close(struct fl_safetensors *s) {
    if (s->file >= 0)
        close(s->file);
    fl_free(s->path);
    fl_free(s->header);
    fl_free(s->tensors);
    fl_free(s->notes);
    *s = (struct fl_safetensors){.file = -1};
}

static int find_name(const void *name, const void *t) {
    return strcmp(name, ((const struct fl_stored_tensor *)t)->name);
}

static int find_key(const void *key, const void *note) {
    return strcmp(key, ((const struct fl_stored_note *)note)->key);
}

const struct fl_stored_tensor *fl_safetensors_find(const struct fl_safetensors *s, const char *name) {
    return s->count ? bsearch(name, s->tensors, (size_t)s->count, sizeof *s->tensors, find_name) : NULL;
}

const char *fl_safetensors_note(const struct fl_safetensors *s, const char *key) {
    const struct fl_stored_note *note =
        s->note_count ? bsearch(key, s->notes, (size_t)s->note_count, sizeof *s->notes, find_key) : NULL;
    return note ? note->value : NULL;
}

tensor_status fl_safetensors_read(const struct fl_safetensors *s, const struct fl_stored_tensor *t, void *bytes) {
    return read_at(s, s->data_at + t->begin, bytes, t->end - t->begin);
}

tensor_status fl_safetensors_verify(const struct fl_safetensors *s) {
    const char *recorded = fl_safetensors_note(s, FL_CHECKSUM);
    if (!recorded)
        return TENSOR_OK;
    unsigned char *chunk = fl_alloc(CHUNK);
    if (!chunk)
        return fl_fail(TENSOR_E_MEMORY, "safetensors: no memory for %d bytes", CHUNK);
    tensor_status status = TENSOR_OK;
    uLong sum = crc32(0, NULL, 0);
    for (int64_t at = 0; at < s->data_bytes && !status; at += CHUNK) {
        const int64_t bytes = s->data_bytes - at < CHUNK ? s->data_bytes - at : CHUNK;
        status = read_at(s, s->data_at + at, chunk, bytes);
        if (!status)
            sum = crc32(sum, chunk, (uInt)bytes);
    }
    fl_free(chunk);
    if (status)
        return status;
    for (int i = 0; i < s->note_count; i++)
        if (strcmp(s->notes[i].key, FL_CHECKSUM) != 0) {
            sum = crc32(sum, (const Bytef *)s->notes[i].key, (uInt)strlen(s->notes[i].key) + 1);
            sum = crc32(sum, (const Bytef *)s->notes[i].value, (uInt)strlen(s->notes[i].value) + 1);
        }
    char found[16];
    snprintf(found, sizeof found, "%08lx", sum);
    return strcmp(found, recorded) ? fl_fail(TENSOR_E_DATA,
                                             "safetensors: %s: the checksum of its contents is %s, expected %.20s: "
                                             "bytes have changed",
                                             s->path, found, recorded)
                                   : TENSOR_OK;
}
