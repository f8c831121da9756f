/* failure.h - the last failure on this thread, of the library or of a part of the program that reports as the library
 * does: its message, and whether the user caused it. */
#ifndef FLEXLAB_FAILURE_H
#define FLEXLAB_FAILURE_H

#include "flexlab/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Records failures from now on. */
void failure_watch(void);
/* Forgets the last failure: call it before code that may fail without a message. */
void failure_forget(void);
/* Whether the failure was an argument that the library does not accept, not lack of memory or an unreadable file. */
bool failure_is_usage(void);
/* Reports a failure of the program's own; returns the status. Then the message of the last failure of either. */
tensor_status failure_set(tensor_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *failure_message(void);
/* tensor_error() and, if a step of a network took more than these GiB, the option that allows them. To be freed. */
char *failure_text(int64_t gib);

#endif
