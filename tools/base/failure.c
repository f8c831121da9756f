/* failure.c - the last failure. */
#include "base/failure.h"
#include "base/text.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static _Thread_local tensor_status last;
static _Thread_local char own[800]; /* message of the program's own; "": the last failure is the library's */

static void remember(tensor_status status, const char *text, void *context) {
    (void)text;
    (void)context;
    last = status;
    own[0] = 0;
}

void failure_watch(void) {
    last = TENSOR_OK;
    tensor_set_error_hook(remember, NULL);
}

void failure_forget(void) {
    last = TENSOR_OK;
}

tensor_status failure_set(tensor_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(own, sizeof own, format, arguments);
    va_end(arguments);
    last = status;
    return status;
}

const char *failure_message(void) {
    return own[0] ? own : tensor_error();
}

bool failure_is_usage(void) {
    return last == TENSOR_E_ARGUMENT;
}

char *failure_text(int64_t gib) {
    const bool limited = gib && tensor_error_status() == TENSOR_E_MEMORY && strstr(tensor_error(), "expected at most");
    return limited ? text_format("%s; --memory GIB allows more than %lld", tensor_error(), (long long)gib)
                   : text_format("%s", tensor_error());
}
