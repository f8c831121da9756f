/* report_tensors.h - the tensors that the page can show, numbered, each name and role once. */
#ifndef FLEXLAB_REPORT_TENSORS_H
#define FLEXLAB_REPORT_TENSORS_H

#include <stdbool.h>
#include <stdio.h>

struct report_tensors {
    char **names, **roles;
    int count, room;
};

/* The number of a tensor, a new one where it is seen for the first time; `guess` is looked at first, for rows come in
 * the order of the step before. */
int report_tensor_number(struct report_tensors *t, const char *name, const char *role, int guess);
/* [["name","role"],...] */
void report_tensors_print(FILE *out, const struct report_tensors *t);
void report_tensors_clear(struct report_tensors *t);

#endif
