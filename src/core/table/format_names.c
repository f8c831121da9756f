/* format_names.c - the public functions that list formats, and find them by name. */
#include "core/base/fail.h"
#include "core/base/text.h"
#include "core/table/format.h"
#include <string.h>

const char *tensor_format_name(tensor_format format) {
    const struct fl_format *f = fl_format_of(format);
    return f ? f->name : NULL;
}

tensor_format tensor_format_at(int i) {
    const struct fl_format *f = fl_format_at(i);
    return f ? f->id : FMT_NONE;
}

size_t tensor_format_bytes(tensor_format format) {
    const struct fl_format *f = fl_format_of(format);
    return f ? (size_t)f->bytes : 0;
}

int tensor_format_bits(tensor_format format) {
    const struct fl_format *f = fl_format_of(format);
    return !f ? 0 : f->bits ? f->bits : 8 * f->bytes;
}

bool tensor_format_is_shared(tensor_format format) {
    const struct fl_format *f = fl_format_of(format);
    return f && fl_has_exponent(f);
}

bool tensor_format_has_mantissas(tensor_format format) {
    const struct fl_format *f = fl_format_of(format);
    return f && f->arithmetic == FL_ARITHMETIC_SHARED;
}

size_t tensor_format_extent(const char *text) {
    static const char scaled[] = "tensor:";
    const size_t scale = text && !strncmp(text, scaled, strlen(scaled)) ? strlen(scaled) : 0;
    return text ? scale + strcspn(text + scale, ":") : 0;
}

static const char *name_at(int i) {
    const struct fl_format *f = fl_format_at(i);
    return f ? f->name : NULL;
}

tensor_status tensor_format_find(tensor_format *format, const char *name) {
    const struct fl_format *f = fl_format_named(name);
    if (!format)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_format_find: result is NULL");
    if (f) {
        *format = f->id;
        return TENSOR_OK;
    }
    tensor_format made;
    const tensor_status status = fl_made_format_find(&made, name);
    if (status)
        return status;
    if (!made)
        return fl_fail(
            TENSOR_E_ARGUMENT,
            "unknown format %s: expected one of %s, or flexN+E or dfpN with N bits, a float eXmY, or tensor:eXmY",
            fl_quote(name).text, fl_list_names(name_at).text);
    *format = made;
    return TENSOR_OK;
}
