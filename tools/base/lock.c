/* lock.c - a POSIX record lock on an empty file: the kernel drops it when its process dies and knows who holds it, so
 * there is no stale lock and no number to trust in a file. */
#include "base/lock.h"
#include "base/text.h"
#include "core/base/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether another process holds the lock; 0 in *process: one that has no number here. */
static bool is_held(int descriptor, long *process) {
    struct flock holder = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const bool held = !fcntl(descriptor, F_GETLK, &holder) && holder.l_type != F_UNLCK;
    *process = held && holder.l_pid > 0 ? (long)holder.l_pid : 0;
    return held;
}

static int refuse(const struct lock *l, const char *directory, const char *option) {
    long holder;
    if (is_held(l->descriptor, &holder) && holder)
        return text_failed("%s'%s': flexlab process %ld is writing there; wait for it%s", option, directory, holder,
                           *option ? " or give another folder" : "");
    return text_failed("%s'%s': another flexlab process is writing there; wait for it%s", option, directory,
                       *option ? " or give another folder" : "");
}

/* The previous holder removes its file, so the file that we have locked may have no name any more. */
static bool has_its_name(const struct lock *l) {
    struct stat opened, named;
    return !fstat(l->descriptor, &opened) && !stat(l->path, &named) && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

static void forget(struct lock *l) {
    if (l->descriptor >= 0)
        close(l->descriptor);
    free(l->path);
    *l = (struct lock){.descriptor = -1};
}

int lock_check(const char *directory, const char *option) {
    struct lock l = {text_format("%s/.flexlab-lock", directory), -1};
    l.descriptor = open(l.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    long holder;
    const bool held = l.descriptor >= 0 && is_held(l.descriptor, &holder);
    const int status = held ? refuse(&l, directory, option) : STATUS_OK;
    forget(&l);
    return status;
}

bool lock_try(struct lock *l, const char *directory) {
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *l = (struct lock){text_format("%s/.flexlab-lock", directory), -1};
    l->descriptor = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    const bool taken = l->descriptor >= 0 && !fcntl(l->descriptor, F_SETLK, &all) && has_its_name(l);
    if (!taken)
        forget(l);
    return taken;
}

int lock_take(struct lock *l, const char *directory, const char *option) {
    *l = (struct lock){text_format("%s/.flexlab-lock", directory), -1};
    for (;;) {
        struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int status;
        const char *kind = fl_file_in_the_way(l->path);
        l->descriptor = kind ? -1 : open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (kind)
            status = text_failed("%s'%s': %s is %s, expected a file or none", option, directory, l->path, kind);
        else if (l->descriptor < 0)
            status = text_failed("%s'%s': cannot make %s: %s", option, directory, l->path, strerror(errno));
        else if (!fcntl(l->descriptor, F_SETLK, &all)) {
            if (has_its_name(l))
                return STATUS_OK;
            close(l->descriptor);
            continue;
        } else if (errno == EACCES || errno == EAGAIN) {
            status = refuse(l, directory, option);
        } else {
            text_note("%s'%s': cannot be locked (%s), so a second flexlab may write there at the same time", option,
                      directory, strerror(errno));
            unlink(l->path);
            status = STATUS_OK;
        }
        forget(l);
        return status;
    }
}

void lock_release(struct lock *l) {
    struct stat found;
    if (l->descriptor >= 0 && !fstat(l->descriptor, &found) && S_ISREG(found.st_mode) && !found.st_size)
        unlink(l->path); /* while the lock is held, so that another process which has opened it finds that it has no
                            name */
    forget(l);
}
