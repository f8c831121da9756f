/* nn_rows_file.c - files that get their name when they are complete. The lock is that of flock: it belongs to the open
 * file, so it separates two files of one process, and ends with the process. */
#define _DEFAULT_SOURCE /* flock */
#include "nn/telemetry/nn_rows_file.h"
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static tensor_status io_failed(const struct fl_rows_file *f, const char *what, const char *path) {
    return fl_fail(errno == ENOMEM ? TENSOR_E_MEMORY : TENSOR_E_IO, "%s: cannot %s %s: %s", f->of, what, path,
                   strerror(errno));
}

static tensor_status check_place(const struct fl_rows_file *f, const char *path) {
    char why[FL_FILE_WHY];
    return fl_file_may_take(path, why) ? TENSOR_OK : fl_fail(TENSOR_E_IO, "%s: %s", f->of, why);
}

/* Empties the part only after it has the lock. */
static tensor_status open_part(struct fl_rows_file *f) {
    tensor_status status = check_place(f, f->path);
    if (!status)
        status = check_place(f, f->part);
    if (status)
        return status;
    const int descriptor = open(f->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return io_failed(f, "write", f->part);
    if (flock(descriptor, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(descriptor);
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is being written already, expected a file of its own", f->of,
                       f->path);
    }
    const bool empty = !ftruncate(descriptor, 0);
    f->lock = empty ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0) : -1;
    if (f->lock >= 0 && (f->file = fdopen(descriptor, "w+")))
        return TENSOR_OK;
    status = io_failed(f, "write", f->part);
    if (empty)
        remove(f->part);
    if (f->lock >= 0)
        close(f->lock);
    close(descriptor);
    return status;
}

tensor_status fl_rows_open(struct fl_rows_file *f, const char *of, const char *path) {
    *f = (struct fl_rows_file){.of = of, .path = fl_strdup(path), .part = fl_alloc(strlen(path) + sizeof ".part")};
    tensor_status status;
    if (f->path && f->part) {
        strcpy(f->part, path);
        strcat(f->part, ".part");
        status = open_part(f);
    } else {
        status = fl_fail(TENSOR_E_MEMORY, "%s: no memory for the path %s", of, path);
    }
    if (status)
        fl_rows_drop(f);
    return status;
}

tensor_status fl_rows_check(const struct fl_rows_file *f) {
    return f->file && ferror(f->file) ? io_failed(f, "write", f->part) : TENSOR_OK;
}

tensor_status fl_rows_text(const struct fl_rows_file *f, char **text, int64_t *bytes) {
    *text = NULL;
    *bytes = 0;
    if (!f->file)
        return TENSOR_OK;
    const long size = fflush(f->file) ? -1 : ftell(f->file);
    if (size < 0)
        return io_failed(f, "write", f->part);
    if (!(*text = fl_alloc((size_t)size + 1)))
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %ld bytes", f->of, size);
    *bytes = size;
    rewind(f->file);
    const bool good = fread(*text, 1, (size_t)size, f->file) == (size_t)size;
    return good && !fseek(f->file, size, SEEK_SET) ? TENSOR_OK : io_failed(f, "read", f->part);
}

tensor_status fl_rows_set_text(const struct fl_rows_file *f, const char *text, int64_t bytes) {
    if (!f->file)
        return TENSOR_OK;
    rewind(f->file);
    return fwrite(text, 1, (size_t)bytes, f->file) == (size_t)bytes ? TENSOR_OK : io_failed(f, "write", f->part);
}

tensor_status fl_rows_finish(struct fl_rows_file *f) {
    char why[FL_FILE_WHY];
    const bool failed = ferror(f->file) != 0;
    const bool good = fclose(f->file) == 0;
    f->file = NULL;
    if (good && failed)
        errno = EIO; /* errno of the write is lost */
    tensor_status status = TENSOR_OK;
    if (!good || failed || !fl_file_sync(f->lock)) {
        status = io_failed(f, "write", f->part);
        remove(f->part);
    } else if (!fl_file_publish(f->part, f->path, why)) {
        status = fl_fail(TENSOR_E_IO, "%s: %s", f->of, why);
    }
    close(f->lock);
    return status;
}

void fl_rows_drop(struct fl_rows_file *f) {
    if (f->file) {
        remove(f->part);
        fclose(f->file);
        close(f->lock);
    }
    fl_free(f->path);
    fl_free(f->part);
    *f = (struct fl_rows_file){0};
}
