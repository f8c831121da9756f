/* input.h - opens files for reading: only regular ones, without waiting. */
#ifndef FLEXLAB_INPUT_H
#define FLEXLAB_INPUT_H

#include <stdio.h>

/* NULL on failure: *why is the reason, for a message "cannot read PATH: WHY", until the next call; errno is ENOENT if
 * there is no such file. */
FILE *input_open(const char *path, const char **why);

#endif
