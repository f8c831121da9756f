/* output.c - files that have their name only when they are complete. */
#include "base/output.h"
#include "base/text.h"
#include "core/base/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_place(const char *path) {
    char why[FL_FILE_WHY];
    return fl_file_may_take(path, why) ? STATUS_OK : text_failed("%s", why);
}

/* good: whether writing succeeded; if not, errno is its error. Removes the part on failure. */
static int give_name(int descriptor, bool good, const char *part, const char *path) {
    char why[FL_FILE_WHY];
    if (!fl_file_end(descriptor, good)) {
        const int status = text_failed("cannot write %s: %s", part, strerror(errno));
        unlink(part);
        return status;
    }
    return fl_file_publish(part, path, why) ? STATUS_OK : text_failed("%s", why);
}

static int sync_path(const char *path, int flags) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | flags);
    bool good = descriptor >= 0 && fl_file_sync(descriptor);
    int reason = errno;
    if (descriptor >= 0)
        close(descriptor);
    return good ? STATUS_OK : text_failed("cannot synchronise %s: %s", path, strerror(reason));
}

int output_sync_folder(const char *directory) {
    return sync_path(directory, O_DIRECTORY);
}

int output_sync_file(const char *path) {
    return sync_path(path, 0);
}

int output_write(const char *directory, const char *name, const void *bytes, size_t size) {
    char *path = text_format("%s/%s", directory, name), *part = text_format("%s.part", path);
    int descriptor = fl_file_create(part);
    int status = descriptor < 0 ? text_failed("cannot write %s: %s", part, strerror(errno))
                                : give_name(descriptor, fl_file_write(descriptor, bytes, size), part, path);
    free(path);
    free(part);
    return status;
}

/* --- composed in memory --------------------------------------------------------------------------------------------
 */

int output_may_replace(const char *option, const char *path, bool force) {
    struct stat found;
    return path && !force && !lstat(path, &found) && S_ISREG(found.st_mode)
               ? text_failed("--%s '%s': there is such a file already; give another name, or --force to replace it",
                             option, path)
               : STATUS_OK;
}

int output_open(struct output *o, const char *directory, const char *name) {
    *o = (struct output){.path = text_format("%s/%s", directory, name)};
    int status = check_place(o->path);
    o->file = status == STATUS_OK ? open_memstream(&o->text, &o->size) : NULL;
    if (o->file)
        return STATUS_OK;
    if (status == STATUS_OK)
        status = text_failed("cannot compose %s: out of memory", o->path);
    output_discard(o);
    return status;
}

int output_open_path(struct output *o, const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? text_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : text_format(".");
    const int status = output_open(o, folder, slash ? slash + 1 : path);
    free(folder);
    return status;
}

int output_commit(struct output *o) {
    bool bad = ferror(o->file);
    bad |= fclose(o->file) != 0;
    o->file = NULL;
    int status;
    char *slash = strrchr(o->path, '/');
    if (bad || !o->text)
        status = text_failed("cannot compose %s: out of memory", o->path);
    else {
        *slash = 0;
        status = output_write(o->path, slash + 1, o->text, o->size);
        *slash = '/';
    }
    output_discard(o);
    return status;
}

void output_discard(struct output *o) {
    if (o->file)
        fclose(o->file);
    free(o->text);
    free(o->path);
    *o = (struct output){0};
}

/* --- lines ---------------------------------------------------------------------------------------------------------
 */

int output_lines_open(struct output_lines *o, const char *directory, const char *name) {
    *o = (struct output_lines){.path = text_format("%s/%s", directory, name)};
    o->part = text_format("%s.part", o->path);
    int status = check_place(o->path);
    o->descriptor = status == STATUS_OK ? fl_file_create(o->part) : -1;
    if (o->descriptor >= 0)
        return STATUS_OK;
    if (status == STATUS_OK)
        status = text_failed("cannot write %s: %s", o->part, strerror(errno));
    output_lines_discard(o);
    return status;
}

static void hold(struct output_lines *o, const char *bytes, size_t size) {
    const size_t used = (size_t)o->size;
    if (o->room - used < size) {
        o->room = 2 * (o->room + size);
        o->text = text_realloc(o->text, o->room, 1);
    }
    memcpy(o->text + used, bytes, size);
    o->size += (long long)size;
}

static int add_bytes(struct output_lines *o, const char *whole, size_t size) {
    int status = STATUS_OK;
    if (o->held)
        hold(o, whole, size);
    else if (fl_file_write(o->descriptor, whole, size))
        o->size += (long long)size;
    else {
        status = text_failed("cannot write %s: %s", o->part, strerror(errno));
        o->torn = ftruncate(o->descriptor, o->size) || lseek(o->descriptor, o->size, SEEK_SET) < 0;
    }
    return status;
}

int output_lines_add(struct output_lines *o, const char *line) {
    char *whole = text_format("%s\n", line);
    const int status = add_bytes(o, whole, strlen(whole));
    free(whole);
    return status;
}

void output_lines_hold(struct output_lines *o) {
    *o = (struct output_lines){.descriptor = -1, .held = true};
}

int output_lines_release(struct output_lines *o, struct output_lines *to) {
    const int status = o->size ? add_bytes(to, o->text, (size_t)o->size) : STATUS_OK;
    output_lines_discard(o);
    return status;
}

int output_lines_commit(struct output_lines *o) {
    if (o->torn) {
        int status = text_failed("%s: its last line is incomplete, so the file is discarded", o->path);
        output_lines_discard(o);
        return status;
    }
    int status = give_name(o->descriptor, true, o->part, o->path);
    o->descriptor = -1;
    free(o->part);
    o->part = NULL;
    output_lines_discard(o);
    return status;
}

void output_lines_discard(struct output_lines *o) {
    if (o->descriptor >= 0) {
        close(o->descriptor);
        unlink(o->part);
    }
    free(o->part);
    free(o->path);
    free(o->text);
    *o = (struct output_lines){.descriptor = -1};
}
