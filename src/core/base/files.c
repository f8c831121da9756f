/* files.c - which files are read and which may be replaced, and how a file takes its name. */
#include "core/base/files.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
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

/* A socket cannot be opened at all, so its kind comes from stat. */
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

/* --- a name when it is complete ----------------------------------------------------------------------------------- */

bool fl_file_write(int file, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size) {
        const ssize_t written = write(file, at, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            errno = written ? errno : ENOSPC;
            return false;
        }
        at += written;
        size -= (size_t)written;
    }
    return true;
}

/* A file system that cannot synchronise returns EINVAL, which is no failure. */
bool fl_file_sync(int file) {
    int failed;
    do
        failed = fsync(file);
    while (failed && errno == EINTR);
    return !failed || errno == EINVAL || errno == ENOTSUP;
}

bool fl_file_end(int file, bool good) {
    good = good && fl_file_sync(file);
    int reason = errno;
    if (close(file) && good && errno != EINTR) { /* Linux has closed it all the same */
        reason = errno;
        good = false;
    }
    errno = reason;
    return good;
}

/* Opens the folder that holds, or will hold, the file. -1: errno says why. */
static int open_folder(const char *path) {
    char name[PATH_MAX];
    const size_t length = strlen(path);
    if (length >= sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name, path, length + 1);
    char *slash = strrchr(name, '/');
    if (slash)
        slash[slash == name] = 0;
    return open(slash ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Opens the folder: one that may not be read cannot be synchronised, and the caller must learn that before it replaces
 * the file. */
static int open_place(const char *path, char why[FL_FILE_WHY]) {
    const char *kind = fl_file_in_the_way(path);
    if (kind) {
        snprintf(why, FL_FILE_WHY, "cannot write %s: it is %s, expected a regular file or none", path, kind);
        return -1;
    }
    const int folder = open_folder(path);
    if (folder < 0)
        snprintf(why, FL_FILE_WHY, "cannot write %s: its folder cannot be opened: %s", path, strerror(errno));
    return folder;
}

bool fl_file_may_take(const char *path, char why[FL_FILE_WHY]) {
    const int folder = open_place(path, why);
    if (folder >= 0)
        close(folder);
    return folder >= 0;
}

bool fl_file_publish(const char *part, const char *path, char why[FL_FILE_WHY]) {
    const int folder = open_place(path, why);
    bool named = folder >= 0, good = false;
    if (named && rename(part, path)) {
        snprintf(why, FL_FILE_WHY, "cannot rename %s to %s: %s", part, path, strerror(errno));
        named = false;
    }
    if (!named)
        unlink(part);
    else if (!(good = fl_file_sync(folder)))
        snprintf(why, FL_FILE_WHY, "cannot synchronise the folder of %s: %s", path, strerror(errno));
    if (folder >= 0)
        close(folder);
    return good;
}
