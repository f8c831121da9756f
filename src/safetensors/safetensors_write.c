/* safetensors_write.c - composes the header of a safetensors file, and writes the file so that only a complete one has
 * its name. Tensors are in the order of the sizes of their elements, the largest first, so that each is aligned. */
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include "safetensors/json.h"
#include "safetensors/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

struct fl_stored_part {
    char *name;
    enum fl_stored_type type;
    int ndim;
    int64_t dim[FL_SAFETENSORS_DIMS];
    const void *bytes;
    int64_t size;
    int serial; /* number of the call that added it */
};

/* --- collecting ----------------------------------------------------------------------------------------------------
 */

static tensor_status check_text(const char *what, const char *text) {
    const size_t size = strlen(text);
    for (size_t i = 0, length; i < size; i += length)
        if (!(length = fl_utf8_length((const unsigned char *)text + i, size - i)))
            return fl_fail(TENSOR_E_ARGUMENT, "safetensors: %s '%.80s' is not UTF-8 text (byte %zu)", what, text, i);
    return TENSOR_OK;
}

tensor_status fl_safetensors_add(struct fl_safetensors_out *o, const char *name, enum fl_stored_type type, int ndim,
                                 const int64_t *dim, const void *bytes) {
    tensor_status status = check_text("the name", name);
    if (!status && !strcmp(name, "__metadata__"))
        status = fl_fail(TENSOR_E_ARGUMENT, "safetensors: no tensor can have the name '%s'", name);
    if (!status && (ndim < 0 || ndim > FL_SAFETENSORS_DIMS))
        status = fl_fail(TENSOR_E_ARGUMENT, "safetensors: tensor '%.80s' of %d dimensions, expected 0 to %d", name,
                         ndim, FL_SAFETENSORS_DIMS);
    if (!status)
        status = fl_safetensors_grow((void **)&o->parts, o->count, &o->capacity, sizeof *o->parts);
    if (status)
        return status;
    struct fl_stored_part part = {.type = type, .ndim = ndim, .bytes = bytes, .serial = o->count};
    part.size = fl_stored_size(type, ndim, dim);
    if (part.size < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "safetensors: tensor '%.80s' has a negative size, or 2^63 bytes or more",
                       name);
    if (ndim)
        memcpy(part.dim, dim, (size_t)ndim * sizeof *dim);
    if (!(part.name = fl_strdup(name)))
        return fl_fail(TENSOR_E_MEMORY, "safetensors: no memory for a name");
    o->parts[o->count++] = part;
    return TENSOR_OK;
}

tensor_status fl_safetensors_add_note(struct fl_safetensors_out *o, const char *key, const char *value) {
    tensor_status status = check_text("the key", key);
    if (!status)
        status = check_text("the value", value);
    if (!status)
        status = fl_safetensors_grow((void **)&o->notes, o->note_count, &o->note_capacity, sizeof *o->notes);
    if (status)
        return status;
    const struct fl_stored_note note = {fl_strdup(key), fl_strdup(value)};
    if (note.key && note.value) {
        o->notes[o->note_count++] = note;
        return TENSOR_OK;
    }
    fl_free((void *)(uintptr_t)note.key);
    fl_free((void *)(uintptr_t)note.value);
    return fl_fail(TENSOR_E_MEMORY, "safetensors: no memory for a note");
}

void fl_safetensors_end(struct fl_safetensors_out *o) {
    for (int i = 0; i < o->count; i++)
        fl_free(o->parts[i].name);
    for (int i = 0; i < o->note_count; i++) {
        fl_free((void *)(uintptr_t)o->notes[i].key);
        fl_free((void *)(uintptr_t)o->notes[i].value);
    }
    fl_free(o->parts);
    fl_free(o->notes);
    *o = (struct fl_safetensors_out){0};
}

/* --- the order of the file, and its checksum -----------------------------------------------------------------------
 */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct fl_stored_part *)a)->name, ((const struct fl_stored_part *)b)->name);
}

static int by_place(const void *a, const void *b) {
    const struct fl_stored_part *x = a, *y = b;
    const int64_t difference = fl_stored_type_bytes(y->type) - fl_stored_type_bytes(x->type);
    return difference ? (difference > 0) - (difference < 0) : (x->serial > y->serial) - (x->serial < y->serial);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct fl_stored_note *)a)->key, ((const struct fl_stored_note *)b)->key);
}

static tensor_status arrange(struct fl_safetensors_out *o) {
    if (o->count)
        qsort(o->parts, (size_t)o->count, sizeof *o->parts, by_name);
    for (int i = 1; i < o->count; i++)
        if (!by_name(&o->parts[i - 1], &o->parts[i]))
            return fl_fail(TENSOR_E_ARGUMENT, "safetensors: two tensors have the name '%.80s'", o->parts[i].name);
    if (o->count)
        qsort(o->parts, (size_t)o->count, sizeof *o->parts, by_place);
    if (o->note_count)
        qsort(o->notes, (size_t)o->note_count, sizeof *o->notes, by_key);
    for (int i = 1; i < o->note_count; i++)
        if (!by_key(&o->notes[i - 1], &o->notes[i]))
            return fl_fail(TENSOR_E_ARGUMENT, "safetensors: two notes have the key '%.80s'", o->notes[i].key);
    return TENSOR_OK;
}

static tensor_status add_checksum(struct fl_safetensors_out *o) {
    uLong sum = crc32(0, NULL, 0);
    for (int i = 0; i < o->count; i++)
        for (int64_t at = 0; at < o->parts[i].size;) {
            const int64_t left = o->parts[i].size - at, bytes = left < (1 << 30) ? left : 1 << 30;
            sum = crc32(sum, (const Bytef *)o->parts[i].bytes + at, (uInt)bytes);
            at += bytes;
        }
    for (int i = 0; i < o->note_count; i++) {
        sum = crc32(sum, (const Bytef *)o->notes[i].key, (uInt)strlen(o->notes[i].key) + 1);
        sum = crc32(sum, (const Bytef *)o->notes[i].value, (uInt)strlen(o->notes[i].value) + 1);
    }
    char text[16];
    snprintf(text, sizeof text, "%08lx", sum);
    tensor_status status = fl_safetensors_add_note(o, FL_CHECKSUM, text);
    return status ? status : arrange(o); /* refuses a note of the caller with this key */
}

/* --- the header ----------------------------------------------------------------------------------------------------
 */

static void put_part(struct fl_json_out *t, const struct fl_stored_part *part, int64_t begin) {
    fl_json_put_string(t, part->name);
    fl_json_put(t, ":{\"dtype\":\"%s\",\"shape\":[", fl_stored_type_name(part->type));
    for (int d = 0; d < part->ndim; d++)
        fl_json_put(t, "%s%lld", d ? "," : "", (long long)part->dim[d]);
    fl_json_put(t, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)(begin + part->size));
}

static void put_header(struct fl_json_out *t, const struct fl_safetensors_out *o) {
    fl_json_put(t, "{\"__metadata__\":{");
    for (int i = 0; i < o->note_count; i++) {
        fl_json_put(t, i ? "," : "");
        fl_json_put_string(t, o->notes[i].key);
        fl_json_put(t, ":");
        fl_json_put_string(t, o->notes[i].value);
    }
    fl_json_put(t, "}");
    int64_t at = 0;
    for (int i = 0; i < o->count; i++) {
        fl_json_put(t, ",");
        put_part(t, &o->parts[i], at);
        at += o->parts[i].size;
    }
    fl_json_put(t, "}");
    while (t->used % 8 && !t->failed)
        fl_json_put(t, " ");
}

/* --- the file ------------------------------------------------------------------------------------------------------
 */

static bool write_contents(int file, const struct fl_json_out *header, const struct fl_safetensors_out *o) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header->used >> 8 * i);
    bool good = fl_file_write(file, length, sizeof length) && fl_file_write(file, header->at, header->used);
    for (int i = 0; i < o->count && good; i++)
        good = fl_file_write(file, o->parts[i].bytes, (size_t)o->parts[i].size);
    return good;
}

static tensor_status write_part(const struct fl_safetensors_out *o, const struct fl_json_out *header,
                                const char *part) {
    const int file = fl_file_create(part);
    if (file < 0)
        return fl_fail(TENSOR_E_IO, "safetensors: cannot make %s: %s", part, strerror(errno));
    if (fl_file_end(file, write_contents(file, header, o)))
        return TENSOR_OK;
    const int reason = errno;
    unlink(part);
    return fl_fail(TENSOR_E_IO, "safetensors: cannot write %s: %s", part, strerror(reason));
}

static tensor_status write_file(const struct fl_safetensors_out *o, const struct fl_json_out *header, const char *part,
                                const char *path) {
    char why[FL_FILE_WHY];
    if (!fl_file_may_take(path, why))
        return fl_fail(TENSOR_E_IO, "safetensors: %s", why);
    const tensor_status status = write_part(o, header, part);
    if (status)
        return status;
    return fl_file_publish(part, path, why) ? TENSOR_OK : fl_fail(TENSOR_E_IO, "safetensors: %s", why);
}

tensor_status fl_safetensors_write(struct fl_safetensors_out *o, const char *path) {
    const uint16_t one = 1;
    if (!*(const unsigned char *)&one)
        return fl_fail(TENSOR_E_UNSUPPORTED, "safetensors: the numbers of this machine are not little-endian");
    tensor_status status = arrange(o);
    if (!status)
        status = add_checksum(o);
    if (status)
        return status;
    struct fl_json_out header = {0};
    put_header(&header, o);
    char *part = fl_alloc(strlen(path) + sizeof ".part");
    if (header.failed || !part)
        status = fl_fail(TENSOR_E_MEMORY, "safetensors: no memory for the header of %s", path);
    else if (header.used > FL_SAFETENSORS_HEADER_LIMIT)
        status = fl_fail(TENSOR_E_ARGUMENT, "safetensors: %s: a header of %zu bytes, expected at most %d", path,
                         header.used, FL_SAFETENSORS_HEADER_LIMIT);
    else {
        strcpy(part, path);
        strcat(part, ".part");
        status = write_file(o, &header, part, path);
    }
    fl_free(part);
    fl_free(header.at);
    return status;
}
