/* fail.c - the failure message of each thread, and the hook. */
#include "core/fail.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[512];
static tensor_error_hook hook;
static void *hook_context;

/* Copies text into the message in one line of printable bytes: values of the caller may hold any. Bytes of UTF-8 stay.
 */
static void keep_message(const char *text) {
    size_t used = 0;
    for (; *text; text++) {
        const unsigned char byte = (unsigned char)*text;
        char escape[5] = {*text};
        if (byte < ' ' || byte == 0x7f)
            snprintf(escape, sizeof escape, "\\x%02X", byte);
        const size_t length = strlen(escape);
        if (used + length >= sizeof message)
            break;
        memcpy(message + used, escape, length);
        used += length;
    }
    message[used] = 0;
}

tensor_status fl_fail(tensor_status status, const char *format, ...) {
    char text[sizeof message]; /* the arguments may point into the old message */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    keep_message(text);
    if (hook)
        hook(status, message, hook_context);
    return status;
}

const char *tensor_error(void) {
    return message;
}

void tensor_set_error_hook(tensor_error_hook new_hook, void *context) {
    hook = new_hook;
    hook_context = context;
}

const char *tensor_status_name(tensor_status status) {
    switch (status) {
    case TENSOR_OK:
        return "ok";
    case TENSOR_E_ARGUMENT:
        return "argument";
    case TENSOR_E_SHAPE:
        return "shape";
    case TENSOR_E_FORMAT:
        return "format";
    case TENSOR_E_MEMORY:
        return "memory";
    case TENSOR_E_IO:
        return "io";
    case TENSOR_E_DATA:
        return "data";
    }
    return "unknown status";
}
