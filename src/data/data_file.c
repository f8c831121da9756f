/* data_file.c - opening a file of a data set. Only regular files are read: a FIFO would wait for a writer for ever, a
 * device may deliver without end, and the size that every reader checks first means something for regular files
 * alone. /dev/stdin is what stands behind it. */
#include "core/base/fail.h"
#include "core/base/text.h"
#include "data/data_internal.h"
#include "data/data_problem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISSOCK(mode) ? "a socket"
                            : "no file of a known kind";
}

tensor_status fl_data_note(struct fl_data_problem *p, tensor_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fl_format(p->text, sizeof p->text, format, arguments);
    va_end(arguments);
    return p->status = status;
}

static tensor_status not_regular(struct fl_data_problem *p, const char *what, const char *path, mode_t mode) {
    return fl_data_note(p, TENSOR_E_IO, "%s: %s is not a regular file but %s", what, path, kind_of(mode));
}

/* Without waiting for the other end of a FIFO; a socket cannot be opened at all, so its kind is asked for. */
tensor_status fl_data_file_try(struct fl_data_problem *p, int *file, int64_t *bytes, const char *what, const char *path,
                               const char *hint) {
    struct stat about;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        const int why = errno;
        if (why == ENXIO && !stat(path, &about) && !S_ISREG(about.st_mode))
            return not_regular(p, what, path, about.st_mode);
        errno = why;
        return fl_data_note(p, why == ENOMEM ? TENSOR_E_MEMORY : TENSOR_E_IO, "%s: cannot open %s: %s%s%s", what, path,
                            strerror(why), hint ? "; " : "", hint ? hint : "");
    }
    tensor_status status = TENSOR_OK;
    if (fstat(fd, &about))
        status = fl_data_note(p, TENSOR_E_IO, "%s: %s: %s", what, path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = not_regular(p, what, path, about.st_mode);
    if (status) {
        close(fd);
        return status;
    }
    *file = fd;
    *bytes = about.st_size;
    return TENSOR_OK;
}

tensor_status fl_data_file_open(int *file, int64_t *bytes, const char *what, const char *path, const char *hint) {
    struct fl_data_problem p;
    const tensor_status status = fl_data_file_try(&p, file, bytes, what, path, hint);
    return status ? fl_fail(status, "%s", p.text) : TENSOR_OK;
}
