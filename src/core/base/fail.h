/* fail.h - how a failure is reported: sets the thread's message, calls the hook, returns the status. */
#ifndef FL_FAIL_H
#define FL_FAIL_H

#include "flexlab/status.h"

tensor_status fl_fail(tensor_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Passes a failure on. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        tensor_status try_status = (call);                                                                             \
        if (try_status)                                                                                                \
            return try_status;                                                                                         \
    } while (0)

#endif
