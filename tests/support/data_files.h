/* data_files.h - common functions of the tests of the readers: a temporary folder, files in it, expected failures, and
 * an allocator that fails. */
#ifndef FL_DATA_FILES_H
#define FL_DATA_FILES_H

#include "check.h"
#include "flexlab/data.h"
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zlib.h>

/* --- a temporary folder, removed at the end ----------------------------------------------------- */

static char folder[PATH_MAX / 2];

static inline bool folder_make(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/flexlab-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(folder) != NULL;
}

static inline const char *folder_path(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline void file_remove(const char *name) {
    unlink(folder_path(name));
}

/* Writes a whole file; names ending in .gz are compressed. */
static inline void file_write(const char *name, const void *bytes, size_t size) {
    size_t length = strlen(name);
    bool good;
    if (length > 3 && !strcmp(name + length - 3, ".gz")) {
        gzFile file = gzopen(folder_path(name), "wb");
        good = file && (size == 0 || gzwrite(file, bytes, (unsigned)size) == (int)size);
        if (file)
            good &= gzclose(file) == Z_OK;
    } else {
        FILE *file = fopen(folder_path(name), "wb");
        good = file && fwrite(bytes, 1, size, file) == size;
        if (file)
            good &= fclose(file) == 0;
    }
    CHECK(good, "cannot write %s", folder_path(name));
}

/* Overwrites part of a file. */
static inline void file_patch(const char *name, long offset, const void *bytes, size_t size) {
    FILE *file = fopen(folder_path(name), "r+b");
    bool good = file && fseek(file, offset, SEEK_SET) == 0 && fwrite(bytes, 1, size, file) == size;
    if (file)
        good &= fclose(file) == 0;
    CHECK(good, "cannot patch %s", folder_path(name));
}

static inline void file_resize(const char *name, long size) {
    CHECK(truncate(folder_path(name), size) == 0, "cannot resize %s to %ld", folder_path(name), size);
}

/* --- failures --------------------------------------------------------------------------------- */

static tensor_status seen_status;
static int seen_failures;

static inline void see_failure(tensor_status status, const char *message, void *context) {
    (void)message, (void)context;
    seen_status = status;
    seen_failures++;
}

#define EXPECT_END ((const char *)0)

/* "kind:folder" must fail with this status, once, and name every word of the list, which ends with EXPECT_END. */
static inline void expect_failure(int line, const char *kind, data_split split, tensor_status status,
                                  const char *const *words) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "%s:%s", kind, folder);
    seen_failures = 0;
    tensor_set_error_hook(see_failure, NULL);
    data_set *set = data_open(specification, split);
    tensor_set_error_hook(NULL, NULL);
    CHECK(!set, "line %d: %s opened", line, specification);
    CHECK(set || (seen_failures == 1 && seen_status == status), "line %d: %d failures, status %s, expected %s: %s",
          line, seen_failures, tensor_status_name(seen_status), tensor_status_name(status), tensor_error());
    for (; *words && !set; words++)
        CHECK(strstr(tensor_error(), *words), "line %d: no '%s' in: %s", line, *words, tensor_error());
    data_free(set);
}
#define EXPECT_FAILURE(kind, split, status, ...)                                                                       \
    expect_failure(__LINE__, kind, split, status, (const char *const[]){__VA_ARGS__, EXPECT_END})

/* Puts a FIFO, a link to a device, a folder and a socket in place of file `name`. Each is refused at once, by its
 * kind. */
static inline void expect_regular_file(const char *kind, data_split split, const char *name) {
    const char *path = folder_path(name);
    alarm(60); /* a reader that waits for the other end of a FIFO waits for ever */
    CHECK(!mkfifo(path, 0600), "cannot make a FIFO");
    EXPECT_FAILURE(kind, split, TENSOR_E_IO, name, "not a regular file but a FIFO");
    unlink(path);
    CHECK(!symlink("/dev/zero", path), "cannot make a link");
    EXPECT_FAILURE(kind, split, TENSOR_E_IO, name, "not a regular file but a character device");
    unlink(path);
    CHECK(!mkdir(path, 0700), "cannot make a folder");
    EXPECT_FAILURE(kind, split, TENSOR_E_IO, name, "not a regular file but a folder");
    rmdir(path);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (s >= 0 && strlen(path) < sizeof address.sun_path) {
        memcpy(address.sun_path, path, strlen(path));
        CHECK(!bind(s, (struct sockaddr *)&address, sizeof address), "cannot make a socket");
        EXPECT_FAILURE(kind, split, TENSOR_E_IO, name, "not a regular file but a socket");
    }
    close(s);
    unlink(path);
    alarm(0);
}

/* --- an allocator that fails at one call and counts what is held ------------------------------ */

static atomic_long allocator_calls, allocator_held;
static long allocator_fail_at;         /* from 1; 0: never */
static atomic_ulong allocator_largest; /* the largest block requested */

static inline void *failing_allocate(unsigned long size, unsigned long alignment) {
    if (size > allocator_largest)
        allocator_largest = size;
    if (atomic_fetch_add(&allocator_calls, 1) + 1 == allocator_fail_at)
        return NULL;
    void *block = NULL;
    if (posix_memalign(&block, alignment, size))
        return NULL;
    memset(block, 0xA5, size < 4096 ? size : 4096); /* no code may rely on zeros */
    atomic_fetch_add(&allocator_held, 1);
    return block;
}

static inline void counting_release(void *block) {
    if (block)
        atomic_fetch_sub(&allocator_held, 1);
    free(block);
}

/* Runs attempt with the first, second, ... allocation failing until it succeeds: each failure must be reported as
 * memory and leave nothing behind. attempt frees what it made and returns whether it worked. */
static inline void fail_each_allocation(const char *what, bool (*attempt)(void)) {
    tensor_set_allocator(failing_allocate, counting_release);
    bool worked = false;
    for (long n = 1; n < 100 && !worked; n++) {
        allocator_calls = allocator_held = 0;
        allocator_fail_at = n;
        seen_failures = 0;
        tensor_set_error_hook(see_failure, NULL);
        worked = attempt();
        tensor_set_error_hook(NULL, NULL);
        CHECK(allocator_held == 0, "%s: allocation %ld fails: %ld blocks stay", what, n, (long)allocator_held);
        CHECK(worked == (n > allocator_calls), "%s: allocation %ld of %ld fails, worked %d", what, n,
              (long)allocator_calls, worked);
        CHECK(worked || (seen_failures == 1 && seen_status == TENSOR_E_MEMORY),
              "%s: allocation %ld fails: %d failures, %s: %s", what, n, seen_failures, tensor_status_name(seen_status),
              tensor_error());
    }
    CHECK(worked && allocator_calls > 0, "%s: never worked", what);
    allocator_fail_at = 0;
    tensor_set_allocator(NULL, NULL);
}

#endif
