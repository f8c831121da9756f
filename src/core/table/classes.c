/* classes.c - the classes of results by name: accumulator.h and operands.h have those that are families. */
#include "core/base/fail.h"
#include "core/base/text.h"
#include "core/table/accumulator.h"
#include "core/table/block_classes.h"
#include <string.h>

#define ACCUMULATE "accumulate="
#define OPERANDS "operands="

static const char *after(const char *text, const char *beginning) {
    const size_t length = strlen(beginning);
    return strncmp(text, beginning, length) ? NULL : text + length;
}

tensor_status tensor_class_find(tensor_class *class, const char *text) {
    const char *rest;
    if (!class || !text)
        return fl_fail(TENSOR_E_ARGUMENT, "class_find: %s is NULL", class ? "text" : "class");
    if (!strcmp(text, "exact") || !strcmp(text, "fast")) {
        *class = text[0] == 'f' ? TENSOR_FAST : TENSOR_EXACT;
        return TENSOR_OK;
    }
    if ((rest = after(text, ACCUMULATE)))
        return fl_accumulation_find(class, text, rest);
    if ((rest = after(text, OPERANDS)))
        return fl_operands_find(class, text, rest);
    return fl_fail(TENSOR_E_ARGUMENT, "class %s, expected exact, fast, " ACCUMULATE "GPU or " OPERANDS "BLOCKS",
                   fl_quote(text).text);
}

const char *tensor_class_name(tensor_class class) {
    if (class == TENSOR_EXACT || class == TENSOR_FAST)
        return class == TENSOR_FAST ? "fast" : "exact";
    const char *name = fl_accumulation_name(class);
    return name ? name : fl_operands_name(class);
}
