/* status.h - what every fallible flexlab function returns.
 *
 * A function that can fail returns a tensor_status and, on failure, leaves a one-line message with the offending values
 * in a buffer of the calling thread (tensor_error). Outputs are untouched on failure. The library never aborts or
 * exits, and prints only where the environment asks for it: FLEXLAB_VERBOSE=1 names on standard error the kernels that
 * run and why there are fewer threads than asked for. Numbers in messages and files have a decimal point whatever
 * locale the program has set. */
#ifndef FLEXLAB_STATUS_H
#define FLEXLAB_STATUS_H

#include "flexlab/api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers are pinned: bindings may rely on them. */
typedef enum tensor_status {
    TENSOR_OK = 0,
    TENSOR_E_ARGUMENT = 1,    /* NULL, a value out of range, an unknown name */
    TENSOR_E_SHAPE = 2,       /* sizes that do not fit each other, zero, negative or overflowing */
    TENSOR_E_FORMAT = 3,      /* operands of different formats, or a format that cannot do this */
    TENSOR_E_MEMORY = 4,      /* the allocator returned NULL */
    TENSOR_E_IO = 5,          /* a file could not be opened, read or written */
    TENSOR_E_DATA = 6,        /* a file was read but is truncated, foreign or inconsistent */
    TENSOR_E_UNSUPPORTED = 7, /* the device that the tensors lie on does not offer this */
    TENSOR_E_DEVICE = 8       /* a device failed; every later call on it says so too */
} tensor_status;

/* The message of the last failure on this thread, "" if none. Valid until the next failure on this thread. */
FLEXLAB_API const char *tensor_error(void);

/* The status of that failure, TENSOR_OK if there was none: what a function that returns a pointer has no room for. */
FLEXLAB_API tensor_status tensor_error_status(void);

/* "argument", "shape", ... for a status; "unknown status" for any other number. */
FLEXLAB_API const char *tensor_status_name(tensor_status status);

/* Called with every failure before it is returned, on the failing thread; tests and tools use it to stop or log.
 * NULL removes it. May be changed at any time; a failure that is being reported on another thread may still reach the
 * former hook after this returns. */
typedef void (*tensor_error_hook)(tensor_status status, const char *message, void *context);
FLEXLAB_API void tensor_set_error_hook(tensor_error_hook hook, void *context);

/* Replaces the allocator of the whole library (aligned blocks; size is never 0, alignment a power of two).
 * Call before anything is allocated; NULL, NULL restores the default. Tests use it to fail the n-th allocation. */
typedef void *(*tensor_allocate_fn)(unsigned long size, unsigned long alignment);
typedef void (*tensor_release_fn)(void *block);
FLEXLAB_API void tensor_set_allocator(tensor_allocate_fn allocate, tensor_release_fn release);

#ifdef __cplusplus
}
#endif
#endif
