/* files.c - which files are read and which may be replaced. */
#include "core/base/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

const char *fl_file_kind(mode_t mode) {
    return S_ISREG(mode)    ? "a regular file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISSOCK(mode) ? "a socket"
                            : "a file of unknown kind";
}

/* A socket cannot be opened at all, so its kind is asked for. */
int fl_file_open(const char *path, struct stat *about, const char **kind) {
    struct stat found;
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int reason = errno;
    *kind = NULL;
    if (file < 0) {
        if (reason == ENXIO && !stat(path, &found) && !S_ISREG(found.st_mode))
            *kind = fl_file_kind(found.st_mode);
        errno = reason;
        return -1;
    }
    if (!fstat(file, &found)) {
        if (S_ISREG(found.st_mode)) {
            if (about)
                *about = found;
            return file;
        }
        *kind = fl_file_kind(found.st_mode);
        reason = EINVAL;
    } else {
        reason = errno;
    }
    close(file);
    errno = reason;
    return -1;
}

const char *fl_file_in_the_way(const char *path) {
    struct stat found;
    return lstat(path, &found) || S_ISREG(found.st_mode) ? NULL : fl_file_kind(found.st_mode);
}

int fl_file_create(const char *path) {
    (void)unlink(path);
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}
