/* safetensors_read.c - opening a safetensors file and reading its elements. */
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include "safetensors/safetensors.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { LENGTH_BYTES = 8, CHUNK = 1 << 16 };

/* `bytes` of the file from `at` on. */
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

static tensor_status read_header(struct fl_safetensors *s) {
    int64_t size = 0;
    unsigned char length[LENGTH_BYTES];
    uint64_t header = 0;
    tensor_status status = open_file(s, &size);
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
        return fl_fail(TENSOR_E_DATA, "safetensors: %s: a header of %llu bytes, expected at most %d", s->path,
                       (unsigned long long)header, FL_SAFETENSORS_HEADER_LIMIT);
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
    const char *told = fl_safetensors_note(s, FL_CHECKSUM);
    if (!told)
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
    return strcmp(found, told) ? fl_fail(TENSOR_E_DATA,
                                         "safetensors: %s: the checksum of its contents is %s, expected %.20s: "
                                         "bytes have changed",
                                         s->path, found, told)
                               : TENSOR_OK;
}
