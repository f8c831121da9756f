/* fail.c - the failure message of each thread, and the hook. */
#include "core/base/fail.h"
#include "core/base/text.h"
#include "core/base/shown.h"
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 16384 }; /* a message may list what a file has and the library does not know */
static _Thread_local char message[LONGEST];
static _Thread_local tensor_status last;
static _Thread_local int held; /* calls of fl_fail_hold that have not ended */

/* Hook and context are one setting, changed and read together; without a hook nothing is locked. */
static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic tensor_error_hook hook;
static void *hook_context;

/* A child of a fork gets a hook with its own context, and a lock that nobody holds. */
static void before_fork(void) {
    pthread_mutex_lock(&hook_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&hook_lock);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static void call_hook(tensor_status status) {
    if (!hook || held)
        return;
    pthread_mutex_lock(&hook_lock);
    const tensor_error_hook call = hook;
    void *const context = hook_context;
    pthread_mutex_unlock(&hook_lock);
    if (call)
        call(status, message, context);
}

/* Copies text into the message as one line, its characters as fl_shown shows them, since values of the caller may
 * contain any. A text that is too long ends in "..." after a whole character. */
static void keep_message(const char *text) {
    static const char more[] = "...";
    size_t used = 0, fits = 0; /* fits: bytes that remain if the text is cut */
    while (*text) {
        char shown[FL_SHOWN_TEXT];
        text += fl_shown(text, shown);
        const size_t length = strlen(shown);
        if (used + sizeof more <= sizeof message)
            fits = used;
        if (used + length >= sizeof message) {
            memcpy(message + fits, more, sizeof more);
            return;
        }
        memcpy(message + used, shown, length);
        used += length;
    }
    message[used] = 0;
}

tensor_status fl_fail(tensor_status status, const char *format, ...) {
    char text[sizeof message + 4]; /* the arguments may point into the old message; a text longer than it is cut */
    va_list arguments;
    va_start(arguments, format);
    fl_format(text, sizeof text, format, arguments);
    va_end(arguments);
    keep_message(text);
    last = status;
    call_hook(status);
    return status;
}

tensor_status fl_unexpected(const char *what, const char *text, const char *at, const char *expected) {
    return fl_fail(TENSOR_E_ARGUMENT, "%s %s: character %d is %s, expected %s", what, fl_quote(text).text,
                   (int)(at - text) + 1, *at ? fl_quote(at).text : "the end", expected);
}

double fl_unsigned_nan(double x) {
    return x != x ? NAN : x;
}

void fl_fail_hold(void) {
    held++;
}

tensor_status fl_fail_release(tensor_status status) {
    held--;
    if (status)
        call_hook(status);
    return status;
}

const char *tensor_error(void) {
    return message;
}

tensor_status tensor_error_status(void) {
    return last;
}

void tensor_set_error_hook(tensor_error_hook new_hook, void *context) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&hook_lock);
    hook = new_hook;
    hook_context = context;
    pthread_mutex_unlock(&hook_lock);
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
    case TENSOR_E_UNSUPPORTED:
        return "unsupported";
    case TENSOR_E_DEVICE:
        return "device";
    case TENSOR_E_IO:
        return "io";
    case TENSOR_E_DATA:
        return "data";
    }
    return "unknown status";
}
