/* status.h - the status and the message of a failure.
 *
 * A function that can fail returns a tensor_status; on failure it leaves a one-line message with the offending values
 * in a buffer of the calling thread (tensor_error), and its outputs as they were. The library never aborts or exits. It
 * prints only if the environment asks for it: with FLEXLAB_VERBOSE=1 it reports on standard error which kernels run,
 * and why it uses fewer threads than requested. Numbers in messages and files have a decimal point in every locale. */
#ifndef FLEXLAB_STATUS_H
#define FLEXLAB_STATUS_H

#include "flexlab/api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers never change: bindings may rely on them. */
typedef enum tensor_status {
    TENSOR_OK = 0,
    TENSOR_E_ARGUMENT = 1,    /* NULL, a value out of range, an unknown name */
    TENSOR_E_SHAPE = 2,       /* sizes that do not match, or that are zero, negative or too large */
    TENSOR_E_FORMAT = 3,      /* operands of different formats, or a format that the function does not accept */
    TENSOR_E_MEMORY = 4,      /* the allocator returned NULL */
    TENSOR_E_IO = 5,          /* a file could not be opened, read or written */
    TENSOR_E_DATA = 6,        /* a file was read but is truncated, foreign or inconsistent */
    TENSOR_E_UNSUPPORTED = 7, /* the device of the tensors does not offer this operation */
    TENSOR_E_DEVICE = 8       /* a device failed; every later call on it returns this too */
} tensor_status;

/* The message of the last failure on this thread, "" if none. Valid until the next failure on this thread. */
FLEXLAB_API const char *tensor_error(void);

/* The status of that failure, TENSOR_OK if there was none. A function that returns a pointer reports its status
 * here. */
FLEXLAB_API tensor_status tensor_error_status(void);

/* "argument", "shape", ... for a status; "unknown status" for any other number. */
FLEXLAB_API const char *tensor_status_name(tensor_status status);

/* The library calls the hook with every failure, on the failing thread, before the function returns; tests and tools
 * use it to stop or to log. NULL removes it. It may be changed at any time; a failure that another thread is just
 * reporting may still reach the former hook after this function has returned. */
typedef void (*tensor_error_hook)(tensor_status status, const char *message, void *context);
FLEXLAB_API void tensor_set_error_hook(tensor_error_hook hook, void *context);

/* Replaces the allocator of the whole library. It must return blocks of the given alignment, a power of two; size is
 * never 0. Call this before anything is allocated; NULL, NULL restores the default. Tests use it to make the n-th
 * allocation fail. */
typedef void *(*tensor_allocate_fn)(unsigned long size, unsigned long alignment);
typedef void (*tensor_release_fn)(void *block);
FLEXLAB_API void tensor_set_allocator(tensor_allocate_fn allocate, tensor_release_fn release);

#ifdef __cplusplus
}
#endif
#endif
