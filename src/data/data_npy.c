/* data_npy.c - the header of an array file: the magic number, the version, and a Python dictionary of three entries as
 * text. It is read strictly: quoted keys, each once; numbers without sign, suffix or leading zeros; no other syntax. */
#include "data/data_npy.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

enum { PREFIX = 8, LONGEST_HEADER = 65535, LONGEST_TYPE = 32, SAMPLE_DIMS = 4 };

/* --- the text of a dictionary --------------------------------------------------------------------------------------
 */

struct text {
    const char *begin, *at, *end;
    const char *expected; /* what is missing at `at`; NULL: no error */
};

static bool miss(struct text *t, const char *expected) {
    if (!t->expected)
        t->expected = expected;
    return false;
}

static void skip_spaces(struct text *t) {
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t'))
        t->at++;
}

/* Reads this character after spaces. */
static bool take(struct text *t, char c) {
    skip_spaces(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool take_word(struct text *t, const char *word) {
    const size_t length = strlen(word);
    skip_spaces(t);
    if ((size_t)(t->end - t->at) < length || memcmp(t->at, word, length) != 0)
        return false;
    t->at += length;
    return true;
}

/* Reads 'letters' or "letters", without escapes. */
static bool take_string(struct text *t, const char **string, int *length) {
    skip_spaces(t);
    const char quote = t->at < t->end ? *t->at : 0;
    if (quote != '\'' && quote != '"')
        return miss(t, "a quoted string");
    *string = ++t->at;
    while (t->at < t->end && *t->at != quote && *t->at != '\\' && (unsigned char)*t->at >= ' ')
        t->at++;
    if (t->at == t->end || *t->at != quote)
        return miss(t, "the end of a quoted string");
    *length = (int)(t->at++ - *string);
    return true;
}

static bool take_number(struct text *t, int64_t *value) {
    skip_spaces(t);
    const char *from = t->at;
    *value = 0;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9') {
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *t->at - '0', value))
            return miss(t, "a size of at most 63 bits");
        t->at++;
    }
    return t->at > from && (*from != '0' || t->at == from + 1) ? true : miss(t, "a whole number");
}

/* Reads "(2, 3)", "(2,)" or "()". */
static bool take_shape(struct text *t, struct fl_npy *array) {
    if (!take(t, '('))
        return miss(t, "a shape '(...)'");
    array->dims = 0;
    while (!take(t, ')')) {
        int64_t size;
        if (!take_number(t, &size))
            return false;
        if (array->dims < FL_NPY_DIMS)
            array->dim[array->dims] = size;
        array->dims++;
        if (take(t, ','))
            continue;
        if (array->dims == 1 || !take(t, ')'))
            return miss(t, "','");
        return true;
    }
    return true;
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

struct entries {
    int seen;
    const char *type; /* the value of descr */
    int type_length;
};

static bool take_value(struct text *t, struct entries *e, int key, struct fl_npy *array) {
    if (key == SHAPE)
        return take_shape(t, array);
    if (key == ORDER) {
        array->fortran = take_word(t, "True");
        return array->fortran || take_word(t, "False") || miss(t, "True or False");
    }
    if (take(t, '['))
        return miss(t, "the name of a type, not a structured one");
    return take_string(t, &e->type, &e->type_length);
}

static bool take_entry(struct text *t, struct entries *e, struct fl_npy *array) {
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    const char *key;
    int length;
    if (!take_string(t, &key, &length))
        return false;
    for (int i = 0; i < 3; i++)
        if ((int)strlen(names[i]) == length && !memcmp(names[i], key, (size_t)length)) {
            if (e->seen >> i & 1)
                return miss(t, "each key once");
            e->seen |= 1 << i;
            return take(t, ':') ? take_value(t, e, 1 << i, array) : miss(t, "':'");
        }
    return miss(t, "the keys descr, fortran_order and shape");
}

static bool take_dictionary(struct text *t, struct entries *e, struct fl_npy *array) {
    if (!take(t, '{'))
        return miss(t, "'{'");
    while (!take(t, '}')) {
        if (!take_entry(t, e, array))
            return false;
        if (take(t, ','))
            continue;
        if (!take(t, '}'))
            return miss(t, "',' or '}'");
        break;
    }
    if (e->seen != ALL)
        return miss(t, "the keys descr, fortran_order and shape");
    skip_spaces(t);
    if (t->end - t->at != 1 || *t->at != '\n')
        return miss(t, "spaces and a line feed at the end");
    return true;
}

/* --- the array -----------------------------------------------------------------------------------------------------
 */

static tensor_status refuse(const struct fl_data_stream *s, const char *what, const char *expected) {
    return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: %s, expected %s", FL_STREAM_WHERE(s), what, expected);
}

/* The name of a kind of types, for messages. */
static const char *type_name(char kind) {
    switch (kind) {
    case 'f':
        return " (floating point)";
    case 'c':
        return " (complex)";
    case 'b':
        return " (boolean)";
    case 'O':
        return " (objects)";
    case 'S':
    case 'U':
        return " (text)";
    case 'M':
    case 'm':
        return " (time)";
    }
    return "";
}

static bool is_type(char kind, int size, enum fl_npy_what what) {
    if (kind == 'u' || kind == 'i')
        return size == 1 || size == 2 || size == 4 || size == 8;
    return what == FL_NPY_NUMBERS && (kind == 'f' ? size == 2 || size == 4 || size == 8 : kind == 'b' && size == 1);
}

/* "<i4", ">u2", "|u1": byte order, kind, bytes. */
static tensor_status take_type(struct fl_npy *array, const struct fl_data_stream *s, const struct entries *e,
                               enum fl_npy_what what) {
    const char *type = e->type;
    const int size = e->type_length == 3 ? type[2] - '0' : 0;
    if (e->type_length == 3 && strchr("<>|=", type[0]) && is_type(type[1], size, what) &&
        (size == 1 || type[0] != '|')) {
        array->kind = type[1];
        array->bytes = size;
        array->big_endian = type[0] == '>' || (type[0] == '=' && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
        return TENSOR_OK;
    }
    const int shown = e->type_length < LONGEST_TYPE ? e->type_length : LONGEST_TYPE;
    return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: elements of type '%.*s'%s, expected %s", FL_STREAM_WHERE(s), shown, type,
                   type_name(e->type_length > 1 ? type[1] : 0),
                   what == FL_NPY_NUMBERS ? "floats of 2, 4 or 8 bytes, integers of 1, 2, 4 or 8, or bool"
                                          : "integers: of images uint8, of labels 1, 2, 4 or 8 bytes");
}

static tensor_status check_shape(struct fl_npy *array, const struct fl_data_stream *s, enum fl_npy_what what) {
    const int64_t left = s->length - s->done;
    const int least = what == FL_NPY_SAMPLES, most = what == FL_NPY_SAMPLES ? SAMPLE_DIMS : FL_NPY_DIMS;
    int64_t bytes = array->bytes;
    array->elements = 1;
    if (array->dims < least || array->dims > most)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: an array of %d dimensions, expected %d to %d", FL_STREAM_WHERE(s),
                       array->dims, least, most);
    bool fits = true;
    for (int i = 0; i < array->dims; i++) {
        if (array->dim[i] < 1 && what == FL_NPY_SAMPLES)
            return refuse(s, "an empty array", "sizes of at least 1");
        fits = fits && !__builtin_mul_overflow(bytes, array->dim[i], &bytes);
    }
    if (!fits || bytes != left)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s %s: its header declares %s%lld bytes of elements, %lld follow",
                       FL_STREAM_WHERE(s), fits && bytes < left ? "continues after the last element" : "is truncated",
                       fits ? "" : "more than ", (long long)(fits ? bytes : INT64_MAX), (long long)left);
    array->elements = bytes / array->bytes;
    return TENSOR_OK;
}

static tensor_status read_dictionary(struct fl_npy *array, struct fl_data_stream *s, const char *bytes, int length,
                                     enum fl_npy_what what) {
    struct text t = {bytes, bytes, bytes + length, NULL};
    struct entries e = {0};
    *array = (struct fl_npy){0};
    if (!take_dictionary(&t, &e, array))
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: header, character %d: expected %s", FL_STREAM_WHERE(s),
                       (int)(t.at - t.begin), t.expected);
    const tensor_status status = take_type(array, s, &e, what);
    return status ? status : check_shape(array, s, what);
}

tensor_status fl_npy_header(struct fl_npy *array, struct fl_data_stream *s, enum fl_npy_what what) {
    static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    uint8_t prefix[PREFIX], size[4] = {0};
    tensor_status status = fl_data_stream_read(s, "header", prefix, PREFIX);
    if (status)
        return status;
    if (memcmp(prefix, magic, sizeof magic) != 0)
        return refuse(s, "it does not begin as an array file", "\\x93NUMPY");
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: version %d.%d, expected 1.0, 2.0 or 3.0", FL_STREAM_WHERE(s),
                       prefix[6], prefix[7]);
    if ((status = fl_data_stream_read(s, "header", size, prefix[6] == 1 ? 2 : 4)))
        return status;
    const uint32_t length = size[0] | (uint32_t)size[1] << 8 | (uint32_t)size[2] << 16 | (uint32_t)size[3] << 24;
    if (length < 1 || length > LONGEST_HEADER)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: a header of %u bytes, expected 1 to %d", FL_STREAM_WHERE(s), length,
                       LONGEST_HEADER);
    uint8_t *text = NULL;
    if ((status = fl_data_stream_take(s, "header", length, &text)))
        return status;
    status = read_dictionary(array, s, (const char *)text, (int)length, what);
    fl_free(text);
    return status;
}
