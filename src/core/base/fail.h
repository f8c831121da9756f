/* fail.h - how a failure is reported: sets the thread's message, calls the hook, returns the status. */
#ifndef FL_FAIL_H
#define FL_FAIL_H

#include "flexlab/status.h"

tensor_status fl_fail(tensor_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Refuses a text from its character `at` on: "WHAT "TEXT": character N is "REST", expected ...". */
tensor_status fl_unexpected(const char *what, const char *text, const char *at, const char *expected);

/* A number for a message: drops the sign of a NaN, which has no meaning and differs between processors. */
double fl_unsigned_nan(double x);

/* Until the call of fl_fail_release, failures of this thread set the message and the hook is not called: for attempts
 * that may fail, and failures that get a better message. Pairs may be nested. */
void fl_fail_hold(void);
/* Calls the hook with the last message if status is a failure, and returns it. */
tensor_status fl_fail_release(tensor_status status);

/* Passes a failure on. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        tensor_status try_status = (call);                                                                             \
        if (try_status)                                                                                                \
            return try_status;                                                                                         \
    } while (0)

#endif
