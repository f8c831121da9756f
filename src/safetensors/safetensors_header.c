/* safetensors_header.c - the header of a safetensors file: a parser of the part of JSON that it uses (RFC 8259). It
 * follows the structure of the header, so nothing nests deeper than the format. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "safetensors/safetensors.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct fl_safetensors *s;
    unsigned char *text;
    size_t at, size;
    int capacity, note_capacity;
    bool has_notes;
};

/* --- failures ------------------------------------------------------------------------------------------------------
 */

static tensor_status refuse(const struct reader *r, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static tensor_status refuse(const struct reader *r, size_t at, const char *format, ...) {
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fl_fail(TENSOR_E_DATA, "safetensors: %s: byte %zu of the header: %s", r->s->path, at, what);
}

/* Refuses the text at the current position, because `what` was expected. */
static tensor_status expected(const struct reader *r, const char *what) {
    if (r->at >= r->size)
        return refuse(r, r->at, "the header ends, expected %s", what);
    const unsigned c = r->text[r->at];
    return c > ' ' && c < 0x7f ? refuse(r, r->at, "'%c', expected %s", (char)c, what)
                               : refuse(r, r->at, "0x%02x, expected %s", c, what);
}

/* --- words of JSON -------------------------------------------------------------------------------------------------
 */

static void skip_space(struct reader *r) {
    while (r->at < r->size && r->text[r->at] && strchr(" \t\n\r", r->text[r->at]))
        r->at++;
}

static bool take(struct reader *r, char c) {
    skip_space(r);
    if (r->at >= r->size || r->text[r->at] != (unsigned char)c)
        return false;
    r->at++;
    return true;
}

static tensor_status need(struct reader *r, char c) {
    const char what[] = {'\'', c, '\'', 0};
    return take(r, c) ? TENSOR_OK : expected(r, what);
}

/* Reads four hexadecimal digits. */
static tensor_status read_unit(struct reader *r, unsigned *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned c = r->at < r->size ? r->text[r->at] : 0;
        const unsigned digit = c >= '0' && c <= '9'   ? c - '0'
                               : c >= 'a' && c <= 'f' ? c - 'a' + 10
                               : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                      : 16;
        if (digit == 16)
            return expected(r, "four hexadecimal digits");
        *unit = *unit << 4 | digit;
        r->at++;
    }
    return TENSOR_OK;
}

/* Reads the character after \u and writes it as UTF-8 at *to, which is never longer than the escape. */
static tensor_status read_code(struct reader *r, unsigned char **to) {
    const size_t from = r->at;
    unsigned code, low;
    TRY(read_unit(r, &code));
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || r->size - r->at < 2 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u')
            return refuse(r, from, "half of a surrogate pair in a string");
        r->at += 2;
        TRY(read_unit(r, &low));
        if (low < 0xdc00 || low >= 0xe000)
            return refuse(r, from, "half of a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code == 0)
        return refuse(r, from, "a character U+0000 in a string");
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *(*to)++ = (unsigned char)(lead[more] | code >> 6 * more);
    for (int i = more - 1; i >= 0; i--)
        *(*to)++ = (unsigned char)(0x80 | (code >> 6 * i & 0x3f));
    return TENSOR_OK;
}

static tensor_status read_escape(struct reader *r, unsigned char **to) {
    static const char written[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const unsigned c = r->at < r->size ? r->text[r->at] : 0;
    const char *found = c ? strchr(written, (int)c) : NULL;
    if (!found && c != 'u')
        return expected(r, "an escape of JSON");
    r->at++;
    if (!found)
        return read_code(r, to);
    *(*to)++ = (unsigned char)meant[found - written];
    return TENSOR_OK;
}

/* Reads a string and unescapes it in place. */
static tensor_status read_string(struct reader *r, const char **string) {
    if (!take(r, '"'))
        return expected(r, "a string");
    unsigned char *to = r->text + r->at;
    *string = (const char *)to;
    while (r->at < r->size) {
        const unsigned char c = r->text[r->at];
        if (c == '"') {
            r->at++;
            *to = 0;
            return TENSOR_OK;
        }
        if (c < ' ')
            return refuse(r, r->at, "the control character 0x%02x in a string", c);
        if (c == '\\') {
            r->at++;
            TRY(read_escape(r, &to));
            continue;
        }
        const size_t length = fl_utf8_length(r->text + r->at, r->size - r->at);
        if (!length)
            return refuse(r, r->at, "0x%02x does not begin a UTF-8 character", c);
        memmove(to, r->text + r->at, length);
        to += length;
        r->at += length;
    }
    return expected(r, "the end of a string");
}

/* Reads a whole number from 0, without sign, point, exponent or leading zeros. */
static tensor_status read_whole(struct reader *r, int64_t *value) {
    skip_space(r);
    const size_t from = r->at;
    *value = 0;
    for (; r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, r->text[r->at] - '0', value))
            return refuse(r, from, "a number above 2^63 - 1");
    if (r->at == from)
        return expected(r, "a whole number from 0");
    if (r->text[from] == '0' && r->at - from > 1)
        return refuse(r, from, "a number that begins with 0");
    if (r->at < r->size && r->text[r->at] && strchr(".eE", r->text[r->at]))
        return refuse(r, from, "a number with a fraction or an exponent, expected a whole one");
    return TENSOR_OK;
}

/* --- one tensor ----------------------------------------------------------------------------------------------------
 */

static tensor_status read_type(struct reader *r, struct fl_stored_tensor *t) {
    const char *name;
    skip_space(r);
    const size_t at = r->at;
    TRY(read_string(r, &name));
    for (int i = 0; i < FL_STORED_TYPES; i++)
        if (!strcmp(fl_stored_type_name((enum fl_stored_type)i), name)) {
            t->type = (enum fl_stored_type)i;
            return TENSOR_OK;
        }
    return refuse(r, at, "tensor '%.80s' has the unknown type '%.40s'", t->name, name);
}

static tensor_status read_shape(struct reader *r, struct fl_stored_tensor *t) {
    TRY(need(r, '['));
    if (take(r, ']'))
        return TENSOR_OK;
    do {
        if (t->ndim == FL_SAFETENSORS_DIMS)
            return refuse(r, r->at, "tensor '%.80s' has more than %d dimensions", t->name, FL_SAFETENSORS_DIMS);
        TRY(read_whole(r, &t->dim[t->ndim++]));
    } while (take(r, ','));
    return need(r, ']');
}

static tensor_status read_place(struct reader *r, struct fl_stored_tensor *t) {
    TRY(need(r, '['));
    TRY(read_whole(r, &t->begin));
    TRY(need(r, ','));
    TRY(read_whole(r, &t->end));
    return need(r, ']');
}

/* Checks that type, shape and position give the same number of bytes, inside the file. */
static tensor_status check_tensor(const struct reader *r, size_t at, const struct fl_stored_tensor *t) {
    const int64_t bytes = fl_stored_size(t->type, t->ndim, t->dim);
    if (bytes < 0)
        return refuse(r, at, "tensor '%.80s' has 2^63 bytes or more", t->name);
    if (t->begin > t->end || t->end > r->s->data_bytes)
        return refuse(r, at, "tensor '%.80s' is at bytes %lld to %lld, expected within 0 to %lld", t->name,
                      (long long)t->begin, (long long)t->end, (long long)r->s->data_bytes);
    if (t->end - t->begin != bytes)
        return refuse(r, at, "tensor '%.80s' occupies %lld bytes, its type and shape need %lld", t->name,
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
    skip_space(r);
    const size_t at = r->at;
    TRY(need(r, '{'));
    if (!take(r, '}')) {
        do {
            const char *name;
            skip_space(r);
            const size_t where = r->at;
            TRY(read_string(r, &name));
            int i = 0;
            while (i < FIELDS && strcmp(fields[i].name, name) != 0)
                i++;
            if (i == FIELDS)
                return refuse(r, where, "tensor '%.80s' has the unknown field '%.40s'", t->name, name);
            if (seen[i])
                return refuse(r, where, "tensor '%.80s' has the field '%s' twice", t->name, name);
            seen[i] = true;
            TRY(need(r, ':'));
            TRY(fields[i].read(r, t));
        } while (take(r, ','));
        TRY(need(r, '}'));
    }
    for (int i = 0; i < FIELDS; i++)
        if (!seen[i])
            return refuse(r, at, "tensor '%.80s' has no field '%s'", t->name, fields[i].name);
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
    TRY(need(r, '{'));
    if (take(r, '}'))
        return TENSOR_OK;
    do {
        struct fl_stored_note note;
        TRY(read_string(r, &note.key));
        TRY(need(r, ':'));
        TRY(read_string(r, &note.value));
        TRY(fl_safetensors_grow((void **)&s->notes, s->note_count, &r->note_capacity, sizeof *s->notes));
        s->notes[s->note_count++] = note;
    } while (take(r, ','));
    return need(r, '}');
}

static tensor_status read_entry(struct reader *r) {
    struct fl_safetensors *s = r->s;
    const char *name;
    skip_space(r);
    const size_t at = r->at;
    TRY(read_string(r, &name));
    TRY(need(r, ':'));
    if (!strcmp(name, "__metadata__")) {
        if (r->has_notes)
            return refuse(r, at, "'__metadata__' occurs twice");
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
    struct reader r = {.s = s, .text = (unsigned char *)s->header, .size = bytes};
    if (!bytes || r.text[0] != '{')
        return expected(&r, "'{'");
    r.at = 1;
    if (!take(&r, '}')) {
        do
            TRY(read_entry(&r));
        while (take(&r, ','));
        TRY(need(&r, '}'));
    }
    skip_space(&r);
    if (r.at < r.size)
        return expected(&r, "nothing but spaces after the last '}'");
    if (s->count)
        qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_place);
    TRY(check_places(s));
    if (s->count)
        qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_name);
    if (s->note_count)
        qsort(s->notes, (size_t)s->note_count, sizeof *s->notes, by_key);
    return check_names(s);
}
