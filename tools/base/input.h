/* input.h - files that are read: regular ones alone, opened without waiting for anybody. */
#ifndef FLEXLAB_INPUT_H
#define FLEXLAB_INPUT_H

#include <stdio.h>

/* NULL: *why says why, for a message "cannot read PATH: WHY", until the next call; errno is ENOENT where there is no
 * such file. */
FILE *input_open(const char *path, const char **why);

#endif
