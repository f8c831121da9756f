/* data_problem.h - a failure that is not yet reported: threads that read parts of a set note theirs, and the caller
 * reports the first in the order of the set. */
#ifndef FL_DATA_PROBLEM_H
#define FL_DATA_PROBLEM_H

#include "flexlab/status.h"
#include <stdint.h>

struct fl_data_problem {
    tensor_status status;
    char text[480];
};

/* Notes the failure and returns the status. */
tensor_status fl_data_note(struct fl_data_problem *p, tensor_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As fl_data_file_open (data_internal.h), but notes a failure. */
tensor_status fl_data_file_try(struct fl_data_problem *p, int *file, int64_t *bytes, const char *what, const char *path,
                               const char *hint);

#endif
