/* failure.c - the library's last failure. */
#include "base/failure.h"
#include "flexlab/status.h"
#include <stddef.h>

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
