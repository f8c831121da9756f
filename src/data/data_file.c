/* data_file.c - opening a file of a data set. Only regular files are read: every reader checks the size first, which
 * only they have. */
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/text.h"
#include "data/data_internal.h"
#include "data/data_problem.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

tensor_status fl_data_note(struct fl_data_problem *p, tensor_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fl_format(p->text, sizeof p->text, format, arguments);
    va_end(arguments);
    return p->status = status;
}

tensor_status fl_data_file_try(struct fl_data_problem *p, int *file, int64_t *bytes, const char *what, const char *path,
                               const char *hint) {
    struct stat about;
    const char *kind;
    const int fd = fl_file_open(path, &about, &kind);
    if (kind)
        return fl_data_note(p, TENSOR_E_IO, "%s: %s is not a regular file but %s", what, path, kind);
    if (fd < 0)
        return fl_data_note(p, errno == ENOMEM ? TENSOR_E_MEMORY : TENSOR_E_IO, "%s: cannot open %s: %s%s%s", what,
                            path, strerror(errno), hint ? "; " : "", hint ? hint : "");
    *file = fd;
    *bytes = about.st_size;
    return TENSOR_OK;
}

tensor_status fl_data_file_open(int *file, int64_t *bytes, const char *what, const char *path, const char *hint) {
    struct fl_data_problem p;
    const tensor_status status = fl_data_file_try(&p, file, bytes, what, path, hint);
    return status ? fl_fail(status, "%s", p.text) : TENSOR_OK;
}
