/* safetensors_header.c - the header of a safetensors file. Its reader follows the structure of the header, so nothing
 * nests deeper than the format. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "safetensors/json.h"
#include "safetensors/safetensors.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct fl_safetensors *s;
    struct fl_json j;
    int capacity, note_capacity;
    bool has_notes;
};

/* --- one tensor ----------------------------------------------------------------------------------------------------
 */

static tensor_status read_type(struct reader *r, struct fl_stored_tensor *t) {
    const char *name;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_string(&r->j, &name));
    for (int i = 0; i < FL_STORED_TYPES; i++)
        if (!strcmp(fl_stored_type_name((enum fl_stored_type)i), name)) {
            t->type = (enum fl_stored_type)i;
            return TENSOR_OK;
        }
    return fl_json_refuse(&r->j, at, "tensor '%.80s' has the unknown type '%.40s'", t->name, name);
}

static tensor_status read_shape(struct reader *r, struct fl_stored_tensor *t) {
    TRY(fl_json_need(&r->j, '['));
    if (fl_json_take(&r->j, ']'))
        return TENSOR_OK;
    do {
        if (t->ndim == FL_SAFETENSORS_DIMS)
            return fl_json_refuse(&r->j, r->j.at, "tensor '%.80s' has more than %d dimensions", t->name,
                                  FL_SAFETENSORS_DIMS);
        TRY(fl_json_whole(&r->j, &t->dim[t->ndim++]));
    } while (fl_json_take(&r->j, ','));
    return fl_json_need(&r->j, ']');
}

static tensor_status read_place(struct reader *r, struct fl_stored_tensor *t) {
    TRY(fl_json_need(&r->j, '['));
    TRY(fl_json_whole(&r->j, &t->begin));
    TRY(fl_json_need(&r->j, ','));
    TRY(fl_json_whole(&r->j, &t->end));
    return fl_json_need(&r->j, ']');
}

/* Checks that type, shape and position give the same number of bytes, inside the file. */
static tensor_status check_tensor(const struct reader *r, size_t at, const struct fl_stored_tensor *t) {
    const int64_t bytes = fl_stored_size(t->type, t->ndim, t->dim);
    if (bytes < 0)
        return fl_json_refuse(&r->j, at, "tensor '%.80s' has 2^63 bytes or more", t->name);
    if (t->begin > t->end || t->end > r->s->data_bytes)
        return fl_json_refuse(&r->j, at, "tensor '%.80s' is at bytes %lld to %lld, expected within 0 to %lld", t->name,
                              (long long)t->begin, (long long)t->end, (long long)r->s->data_bytes);
    if (t->end - t->begin != bytes)
        return fl_json_refuse(&r->j, at, "tensor '%.80s' occupies %lld bytes, its type and shape need %lld", t->name,
                              (long long)(t->end - t->begin), (long long)bytes);
    return TENSOR_OK;
}

static tensor_status read_tensor(struct reader *r, struct fl_stored_tensor *t) {
    static const struct {
        const char *name;
        tensor_status (*read)(struct reader *r, struct fl_stored_tensor *t);
    } fields[] = {{"dtype", read_type}, {"shape", read_shape}, {"data_offsets", read_place}};
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    bool seen[FIELDS] = {false};
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_need(&r->j, '{'));
    if (!fl_json_take(&r->j, '}')) {
        do {
            const char *name;
            fl_json_space(&r->j);
            const size_t where = r->j.at;
            TRY(fl_json_string(&r->j, &name));
            int i = 0;
            while (i < FIELDS && strcmp(fields[i].name, name) != 0)
                i++;
            if (i == FIELDS)
                return fl_json_refuse(&r->j, where, "tensor '%.80s' has the unknown field '%.40s'", t->name, name);
            if (seen[i])
                return fl_json_refuse(&r->j, where, "tensor '%.80s' has the field '%s' twice", t->name, name);
            seen[i] = true;
            TRY(fl_json_need(&r->j, ':'));
            TRY(fields[i].read(r, t));
        } while (fl_json_take(&r->j, ','));
        TRY(fl_json_need(&r->j, '}'));
    }
    for (int i = 0; i < FIELDS; i++)
        if (!seen[i])
            return fl_json_refuse(&r->j, at, "tensor '%.80s' has no field '%s'", t->name, fields[i].name);
    return check_tensor(r, at, t);
}

/* --- the whole header ----------------------------------------------------------------------------------------------
 */

tensor_status fl_safetensors_grow(void **array, int count, int *capacity, size_t size) {
    if (count < *capacity)
        return TENSOR_OK;
    const int room = *capacity ? 2 * *capacity : 16;
    void *larger = fl_alloc((size_t)room * size);
    if (!larger)
        return fl_fail(TENSOR_E_MEMORY, "safetensors: no memory for %d entries of a header", room);
    if (count)
        memcpy(larger, *array, (size_t)count * size);
    fl_free(*array);
    *array = larger;
    *capacity = room;
    return TENSOR_OK;
}

static tensor_status read_notes(struct reader *r) {
    struct fl_safetensors *s = r->s;
    TRY(fl_json_need(&r->j, '{'));
    if (fl_json_take(&r->j, '}'))
        return TENSOR_OK;
    do {
        struct fl_stored_note note;
        TRY(fl_json_string(&r->j, &note.key));
        TRY(fl_json_need(&r->j, ':'));
        TRY(fl_json_string(&r->j, &note.value));
        TRY(fl_safetensors_grow((void **)&s->notes, s->note_count, &r->note_capacity, sizeof *s->notes));
        s->notes[s->note_count++] = note;
    } while (fl_json_take(&r->j, ','));
    return fl_json_need(&r->j, '}');
}

static tensor_status read_entry(struct reader *r) {
    struct fl_safetensors *s = r->s;
    const char *name;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_string(&r->j, &name));
    TRY(fl_json_need(&r->j, ':'));
    if (!strcmp(name, "__metadata__")) {
        if (r->has_notes)
            return fl_json_refuse(&r->j, at, "'__metadata__' occurs twice");
        r->has_notes = true;
        return read_notes(r);
    }
    struct fl_stored_tensor t = {.name = name};
    TRY(read_tensor(r, &t));
    TRY(fl_safetensors_grow((void **)&s->tensors, s->count, &r->capacity, sizeof *s->tensors));
    s->tensors[s->count++] = t;
    return TENSOR_OK;
}

static int by_place(const void *a, const void *b) {
    const struct fl_stored_tensor *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct fl_stored_tensor *)a)->name, ((const struct fl_stored_tensor *)b)->name);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct fl_stored_note *)a)->key, ((const struct fl_stored_note *)b)->key);
}

/* Checks that the tensors fill the bytes after the header, without holes and overlaps. */
static tensor_status check_places(const struct fl_safetensors *s) {
    int64_t at = 0;
    for (int i = 0; i < s->count; i++) {
        const struct fl_stored_tensor *t = &s->tensors[i];
        if (t->begin != at)
            return fl_fail(TENSOR_E_DATA,
                           "safetensors: %s: tensor '%.80s' begins at byte %lld of the data, expected %lld", s->path,
                           t->name, (long long)t->begin, (long long)at);
        at = t->end;
    }
    return at == s->data_bytes
               ? TENSOR_OK
               : fl_fail(TENSOR_E_DATA, "safetensors: %s: tensors have %lld bytes, the file %lld after its header",
                         s->path, (long long)at, (long long)s->data_bytes);
}

static tensor_status check_names(const struct fl_safetensors *s) {
    for (int i = 1; i < s->count; i++)
        if (!by_name(&s->tensors[i - 1], &s->tensors[i]))
            return fl_fail(TENSOR_E_DATA, "safetensors: %s: two tensors have the name '%.80s'", s->path,
                           s->tensors[i].name);
    for (int i = 1; i < s->note_count; i++)
        if (!by_key(&s->notes[i - 1], &s->notes[i]))
            return fl_fail(TENSOR_E_DATA, "safetensors: %s: the metadata have the key '%.80s' twice", s->path,
                           s->notes[i].key);
    return TENSOR_OK;
}

tensor_status fl_safetensors_parse(struct fl_safetensors *s, size_t bytes) {
    struct reader r = {.s = s,
                       .j = {.kind = "safetensors: ",
                             .path = s->path,
                             .part = "header",
                             .text = (unsigned char *)s->header,
                             .size = bytes}};
    if (!bytes || r.j.text[0] != '{')
        return fl_json_expected(&r.j, "'{'");
    r.j.at = 1;
    if (!fl_json_take(&r.j, '}')) {
        do
            TRY(read_entry(&r));
        while (fl_json_take(&r.j, ','));
        TRY(fl_json_need(&r.j, '}'));
    }
    fl_json_space(&r.j);
    if (r.j.at < r.j.size)
        return fl_json_expected(&r.j, "nothing but spaces after the last '}'");
    if (s->count)
        qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_place);
    TRY(check_places(s));
    if (s->count)
        qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_name);
    if (s->note_count)
        qsort(s->notes, (size_t)s->note_count, sizeof *s->notes, by_key);
    return check_names(s);
}
