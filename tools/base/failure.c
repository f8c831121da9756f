/* failure.c - the library's last failure. */
#include "base/failure.h"
#include "base/text.h"
#include "flexlab/status.h"
#include <stddef.h>
#include <string.h>

static _Thread_local tensor_status last;

static void remember(tensor_status status, const char *text, void *context) {
    (void)text;
    (void)context;
    last = status;
}

void failure_watch(void) {
    last = TENSOR_OK;
    tensor_set_error_hook(remember, NULL);
}

void failure_forget(void) {
    last = TENSOR_OK;
}

bool failure_is_usage(void) {
    return last == TENSOR_E_ARGUMENT;
}

char *failure_text(int64_t gib) {
    const bool limited = gib && tensor_error_status() == TENSOR_E_MEMORY && strstr(tensor_error(), "expected at most");
    return limited ? text_format("%s; --memory GIB allows more than %lld", tensor_error(), (long long)gib)
                   : text_format("%s", tensor_error());
}
