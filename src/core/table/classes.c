/* classes.c - the classes of results by name: accumulator.h and operands.h have those that are families. */
#include "core/base/fail.h"
#include "core/base/text.h"
#include "core/table/accumulator.h"
#include "core/table/block_classes.h"
#include "core/table/fast_class.h"
#include <stdio.h>
#include <string.h>

#define ACCUMULATE "accumulate="
#define OPERANDS "operands="

static const char *after(const char *text, const char *beginning) {
    const size_t length = strlen(beginning);
    return strncmp(text, beginning, length) ? NULL : text + length;
}

/* Of class fast, by the bits of the class above TENSOR_FAST. */
static const char *const requests[] = {"", ":tf32", ":sums=fp16", ":tf32:sums=fp16"};

tensor_status tensor_class_find(tensor_class *class, const char *text) {
    const char *rest;
    if (!class || !text)
        return fl_fail(TENSOR_E_ARGUMENT, "class_find: %s is NULL", class ? "text" : "class");
    if (!strcmp(text, "exact")) {
        *class = TENSOR_EXACT;
        return TENSOR_OK;
    }
    if ((rest = after(text, "fast"))) {
        for (int i = 0; i < FL_FAST_CLASSES / 2; i++)
            if (!strcmp(rest, requests[i])) {
                *class = (tensor_class)(TENSOR_FAST + 2 * i);
                return TENSOR_OK;
            }
        return fl_fail(TENSOR_E_ARGUMENT, "class %s: '%.40s' at character 5, expected the end, %s, %s or %s",
                       fl_quote(text).text, rest, requests[1], requests[2], requests[3]);
    }
    if ((rest = after(text, ACCUMULATE)))
        return fl_accumulation_find(class, text, rest);
    if ((rest = after(text, OPERANDS)))
        return fl_operands_find(class, text, rest);
    return fl_fail(TENSOR_E_ARGUMENT, "class %s, expected exact, fast, " ACCUMULATE "GPU or " OPERANDS "BLOCKS",
                   fl_quote(text).text);
}

const char *tensor_class_name(tensor_class class) {
    static _Thread_local char fast[24];
    if (class == TENSOR_EXACT)
        return "exact";
    if (fl_is_fast(class)) {
        snprintf(fast, sizeof fast, "fast%s", requests[(int)class / 2]);
        return fast;
    }
    const char *name = fl_accumulation_name(class);
    return name ? name : fl_operands_name(class);
}
