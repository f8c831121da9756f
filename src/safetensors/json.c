/* json.c - see json.h. */
#include "safetensors/json.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/shown.h"
#include "core/base/text.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- failures ----------------------------------------------------------------------------------------------------- */

tensor_status fl_json_refuse(const struct fl_json *r, size_t at, const char *format, ...) {
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fl_fail(TENSOR_E_DATA, "%s%s: byte %zu of the %s: %s", r->kind, r->path, at, r->part, what);
}

tensor_status fl_json_expected(const struct fl_json *r, const char *what) {
    if (r->at >= r->size)
        return fl_json_refuse(r, r->at, "the %s ends, expected %s", r->part, what);
    const unsigned c = r->text[r->at];
    return c > ' ' && c < 0x7f ? fl_json_refuse(r, r->at, "'%c', expected %s", (char)c, what)
                               : fl_json_refuse(r, r->at, "0x%02x, expected %s", c, what);
}

/* --- words -------------------------------------------------------------------------------------------------------- */

void fl_json_space(struct fl_json *r) {
    while (r->at < r->size && r->text[r->at] && strchr(" \t\n\r", r->text[r->at]))
        r->at++;
}

bool fl_json_take(struct fl_json *r, char c) {
    fl_json_space(r);
    if (r->at >= r->size || r->text[r->at] != (unsigned char)c)
        return false;
    r->at++;
    return true;
}

tensor_status fl_json_need(struct fl_json *r, char c) {
    const char what[] = {'\'', c, '\'', 0};
    return fl_json_take(r, c) ? TENSOR_OK : fl_json_expected(r, what);
}

/* Reads four hexadecimal digits. */
static tensor_status read_unit(struct fl_json *r, unsigned *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned c = r->at < r->size ? r->text[r->at] : 0;
        const unsigned digit = c >= '0' && c <= '9'   ? c - '0'
                               : c >= 'a' && c <= 'f' ? c - 'a' + 10
                               : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                      : 16;
        if (digit == 16)
            return fl_json_expected(r, "four hexadecimal digits");
        *unit = *unit << 4 | digit;
        r->at++;
    }
    return TENSOR_OK;
}

/* Reads the character after \u and writes it as UTF-8 at *to, which is never longer than the escape. */
static tensor_status read_code(struct fl_json *r, unsigned char **to) {
    const size_t from = r->at;
    unsigned code, low;
    TRY(read_unit(r, &code));
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || r->size - r->at < 2 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u')
            return fl_json_refuse(r, from, "half of a surrogate pair in a string");
        r->at += 2;
        TRY(read_unit(r, &low));
        if (low < 0xdc00 || low >= 0xe000)
            return fl_json_refuse(r, from, "half of a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code == 0)
        return fl_json_refuse(r, from, "a character U+0000 in a string");
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *(*to)++ = (unsigned char)(lead[more] | code >> 6 * more);
    for (int i = more - 1; i >= 0; i--)
        *(*to)++ = (unsigned char)(0x80 | (code >> 6 * i & 0x3f));
    return TENSOR_OK;
}

static tensor_status read_escape(struct fl_json *r, unsigned char **to) {
    static const char written[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const unsigned c = r->at < r->size ? r->text[r->at] : 0;
    const char *found = c ? strchr(written, (int)c) : NULL;
    if (!found && c != 'u')
        return fl_json_expected(r, "an escape of JSON");
    r->at++;
    if (!found)
        return read_code(r, to);
    *(*to)++ = (unsigned char)meant[found - written];
    return TENSOR_OK;
}

tensor_status fl_json_string(struct fl_json *r, const char **string) {
    if (!fl_json_take(r, '"'))
        return fl_json_expected(r, "a string");
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
            return fl_json_refuse(r, r->at, "the control character 0x%02x in a string", c);
        if (c == '\\') {
            r->at++;
            TRY(read_escape(r, &to));
            continue;
        }
        const size_t length = fl_utf8_length(r->text + r->at, r->size - r->at);
        if (!length)
            return fl_json_refuse(r, r->at, "0x%02x does not begin a UTF-8 character", c);
        memmove(to, r->text + r->at, length);
        to += length;
        r->at += length;
    }
    return fl_json_expected(r, "the end of a string");
}

/* Digits, from the least or up to the largest number of 64 bits. */
static tensor_status read_digits(struct fl_json *r, bool minus, int64_t *value) {
    fl_json_space(r);
    const size_t from = r->at;
    *value = 0;
    for (; r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        const int digit = minus ? '0' - r->text[r->at] : r->text[r->at] - '0';
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, digit, value))
            return fl_json_refuse(r, from, minus ? "a number below -2^63" : "a number above 2^63 - 1");
    }
    if (r->at == from)
        return fl_json_expected(r, "a whole number from 0");
    if (r->text[from] == '0' && r->at - from > 1)
        return fl_json_refuse(r, from, "a number that begins with 0");
    if (r->at < r->size && r->text[r->at] && strchr(".eE", r->text[r->at]))
        return fl_json_refuse(r, from, "a number with a fraction or an exponent, expected a whole one");
    return TENSOR_OK;
}

tensor_status fl_json_whole(struct fl_json *r, int64_t *value) {
    return read_digits(r, false, value);
}

tensor_status fl_json_integer(struct fl_json *r, int64_t *value) {
    const bool minus = fl_json_take(r, '-');
    return read_digits(r, minus, value);
}

tensor_status fl_json_real(struct fl_json *r, double *value) {
    char text[64], *end;
    size_t used = 0;
    fl_json_space(r);
    const size_t from = r->at;
    if (r->at < r->size && r->text[r->at] == '"') {
        const char *word;
        TRY(fl_json_string(r, &word));
        *value = strcmp(word, "nan") ? strcmp(word, "-inf") ? INFINITY : -INFINITY : NAN;
        return !isfinite(*value) && (*value != INFINITY || !strcmp(word, "inf"))
                   ? TENSOR_OK
                   : fl_json_refuse(r, from, "'%.20s', expected a number", word);
    }
    while (r->at < r->size && used < sizeof text - 1 && r->text[r->at] && strchr("+-.eE0123456789", r->text[r->at]))
        text[used++] = (char)r->text[r->at++];
    text[used] = 0;
    *value = fl_to_real(text, &end);
    return used && !*end && isfinite(*value) ? TENSOR_OK : fl_json_refuse(r, from, "'%s', expected a number", text);
}

tensor_status fl_json_switch(struct fl_json *r, bool *value) {
    fl_json_space(r);
    for (int k = 0; k < 2; k++) {
        const char *const word = k ? "true" : "false";
        if (r->size - r->at >= strlen(word) && !memcmp(r->text + r->at, word, strlen(word))) {
            r->at += strlen(word);
            *value = k;
            return TENSOR_OK;
        }
    }
    return fl_json_expected(r, "true or false");
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

void fl_json_put_bytes(struct fl_json_out *t, const char *bytes, size_t size) {
    if (!t->failed && t->room - t->used < size) {
        const size_t room = 2 * (t->used + size) + 4096;
        char *larger = fl_alloc(room);
        if (larger && t->used)
            memcpy(larger, t->at, t->used);
        t->failed = !larger;
        if (larger) {
            fl_free(t->at);
            t->at = larger;
            t->room = room;
        }
    }
    if (t->failed)
        return;
    memcpy(t->at + t->used, bytes, size);
    t->used += size;
}

void fl_json_put(struct fl_json_out *t, const char *format, ...) {
    char piece[100];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    fl_json_put_bytes(t, piece, (size_t)length);
}

void fl_json_put_string(struct fl_json_out *t, const char *string) {
    fl_json_put(t, "\"");
    for (const char *p = string; *p; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            fl_json_put(t, "\\%c", *p);
        else if (c < ' ')
            fl_json_put(t, "\\u%04x", c);
        else
            fl_json_put_bytes(t, p, 1);
    }
    fl_json_put(t, "\"");
}

static void put_number(struct fl_json_out *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_number(struct fl_json_out *t, const char *format, ...) {
    char piece[40];
    va_list arguments;
    va_start(arguments, format);
    const int length = fl_format(piece, sizeof piece, format, arguments);
    va_end(arguments);
    fl_json_put_bytes(t, piece, (size_t)length);
}

void fl_json_put_real(struct fl_json_out *t, double value, int digits) {
    if (isfinite(value))
        put_number(t, "%.*g", digits, value);
    else
        fl_json_put(t, isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
}
