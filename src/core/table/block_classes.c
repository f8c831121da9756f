/* block_classes.c - the pairs of block formats that classes operands=A,B stand for, and their names. */
#include "core/table/block_classes.h"
#include "core/base/fail.h"
#include "core/base/text.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A class is FIRST + the number of its pair. No class accumulate=GPU has that bit (accumulator.c). */
enum { FIRST = 1 << 30 };

struct pair {
    const struct fl_block_format *of[2];
};
static struct pair pairs[FL_OPERAND_CLASSES];
static int count; /* a pair is written before it counts */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static const struct pair *pair_of(tensor_class class) {
    const int i = (int)class - FIRST;
    return i >= 0 && i < __atomic_load_n(&count, __ATOMIC_ACQUIRE) ? &pairs[i] : NULL;
}

bool fl_has_operands(tensor_class class) {
    return (int)class >= FIRST && pair_of(class);
}

const struct fl_block_format *fl_class_operands(tensor_class class, int i) {
    const struct pair *pair = (int)class >= FIRST ? pair_of(class) : NULL;
    return pair ? pair->of[i] : NULL;
}

tensor_status fl_operands_class(tensor_class *class, const struct fl_block_format *a, const struct fl_block_format *b) {
    pthread_mutex_lock(&making);
    int i = 0;
    while (i < count && (pairs[i].of[0] != a || pairs[i].of[1] != b))
        i++;
    const bool fits = i < FL_OPERAND_CLASSES;
    if (fits && i == count) {
        pairs[i] = (struct pair){{a, b}};
        __atomic_store_n(&count, i + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&making);
    if (!fits)
        return fl_fail(TENSOR_E_UNSUPPORTED,
                       "class operands=%s,%s: this process knows %d pairs of block formats, as many "
                       "as it can",
                       a->name, b->name, FL_OPERAND_CLASSES);
    *class = (tensor_class)(FIRST + i);
    return TENSOR_OK;
}

/* --- block formats with other options ----------------------------------------------------------------------------- */

enum { TEXT = 120 }; /* of a block format */

/* The options that the text may have are cut out of it and appended anew. */
tensor_status fl_block_format_with(const struct fl_block_format **format, const struct fl_block_format *base,
                                   bool stochastic, bool hadamard, bool square) {
    static const char *const options[] = {":stochastic", ":hadamard", ":square"};
    const bool wanted[] = {stochastic, hadamard, square};
    char text[TEXT];
    snprintf(text, sizeof text, "%s", base->name);
    for (int i = 0; i < 3; i++) {
        char *at = strstr(text, options[i]);
        if (at)
            memmove(at, at + strlen(options[i]), strlen(at + strlen(options[i])) + 1);
    }
    size_t length = strlen(text);
    for (int i = 0; i < 3 && length < sizeof text; i++)
        if (wanted[i])
            length += (size_t)snprintf(text + length, sizeof text - length, "%s", options[i]);
    return fl_block_format_find(format, text);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static tensor_status find_one(const struct fl_block_format **format, const char *class, const char *begin,
                              size_t length) {
    char text[TEXT], reason[400];
    if (length >= sizeof text)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "class %s: %zu characters at character %d, expected a block format of fewer than %d",
                       fl_quote(class).text, length, (int)(begin - class) + 1, TEXT);
    snprintf(text, sizeof text, "%.*s", (int)length, begin);
    fl_fail_hold();
    const tensor_status status = fl_block_format_find(format, text);
    snprintf(reason, sizeof reason, "%s", status ? tensor_error() : "");
    fl_fail_release(TENSOR_OK);
    return status ? fl_fail(status, "class %s: %s", fl_quote(class).text, reason) : TENSOR_OK;
}

tensor_status fl_operands_find(tensor_class *class, const char *text, const char *formats) {
    const struct fl_block_format *a, *b;
    const size_t first = strcspn(formats, ",");
    tensor_status status = find_one(&a, text, formats, first);
    b = a;
    if (!status && formats[first])
        status = find_one(&b, text, formats + first + 1, strlen(formats + first + 1));
    if (!status && a->hadamard != b->hadamard)
        return fl_fail(TENSOR_E_ARGUMENT, "class %s: hadamard, expected in both operands or in neither",
                       fl_quote(text).text);
    return status ? status : fl_operands_class(class, a, b);
}

const char *fl_operands_name(tensor_class class) {
    static _Thread_local char name[2 * TEXT + 16];
    const struct fl_block_format *a = fl_class_operands(class, 0), *b = fl_class_operands(class, 1);
    if (!a)
        return NULL;
    snprintf(name, sizeof name, "operands=%s%s%s", a->name, a == b ? "" : ",", a == b ? "" : b->name);
    return name;
}

/* The usual ones; any text of the grammar names one. */
const char *tensor_block_format_at(int i) {
    static const char *const usual[] = {"mx:int8", "mx:e4m3fn", "mx:e5m2",      "mx:e3m2",      "mx:e2m3",
                                        "mx:e2m1", "nvfp4",     "hbfp:int8/64", "channel:int8", "channel:e4m3fn"};
    return i >= 0 && i < (int)(sizeof usual / sizeof usual[0]) ? usual[i] : NULL;
}

tensor_status tensor_block_format_bits(double *bits, const char *text) {
    const struct fl_block_format *format;
    if (!bits || !text)
        return fl_fail(TENSOR_E_ARGUMENT, "block_format_bits: %s is NULL", bits ? "text" : "bits");
    const tensor_status status = fl_block_format_find(&format, text);
    if (!status)
        *bits = fl_block_format_bits(format);
    return status;
}
