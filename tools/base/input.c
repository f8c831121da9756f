/* input.c - files that are read. */
#include "base/input.h"
#include "core/base/files.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

FILE *input_open(const char *path, const char **why) {
    static char other[80];
    const char *kind;
    const int opened = fl_file_open(path, NULL, &kind);
    FILE *file = opened < 0 ? NULL : fdopen(opened, "r");
    const int reason = errno;
    if (!file && opened >= 0)
        close(opened);
    snprintf(other, sizeof other, "it is %s, expected a regular file", kind ? kind : "");
    *why = kind ? other : strerror(reason);
    errno = reason;
    return file;
}
