/* scratch.h - a temporary folder for targets whose subject reads files, and a limit on what the library may allocate.
 */
#ifndef FL_FUZZ_SCRATCH_H
#define FL_FUZZ_SCRATCH_H

#include "fuzz.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SCRATCH_PATH = 512 };
static char scratch_folder[SCRATCH_PATH / 2];

static inline int scratch_remove_one(const char *path, const struct stat *about, int kind, struct FTW *where) {
    (void)about, (void)kind, (void)where;
    return remove(path);
}

static inline void scratch_remove(void) {
    nftw(scratch_folder, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Makes a folder in TMPDIR, else in /dev/shm if there is one, else in /tmp. It is removed at exit. */
static inline void scratch_make(void) {
    const char *base = getenv("TMPDIR");
    if (!base || !*base)
        base = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(scratch_folder, sizeof scratch_folder, "%s/flexlab-fuzz-XXXXXX", base);
    MUST(mkdtemp(scratch_folder), "cannot make %s: %s", scratch_folder, strerror(errno));
    atexit(scratch_remove);
}

/* The path of a file there, until the next call. */
static inline const char *scratch_path(const char *name) {
    static char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%s/%s", scratch_folder, name);
    return path;
}

static inline void scratch_write(const char *name, const void *bytes, size_t size) {
    const char *path = scratch_path(name);
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MUST(file >= 0 && (!size || write(file, bytes, size) == (ssize_t)size) && !close(file), "cannot write %s: %s", path,
         strerror(errno));
}

/* --- allocation --------------------------------------------------------------------------------------------------- */

static unsigned long allocation_limit; /* bytes of one block; larger ones are refused */
static long allocations_until_failure; /* 0: none fails; 1: the next one does, and so on */

static inline void *limited_allocate(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    if (size > allocation_limit || (allocations_until_failure > 0 && --allocations_until_failure == 0) ||
        posix_memalign(&block, alignment, size))
        return NULL;
    memset(block, 0xA5, size < 4096 ? size : 4096); /* nobody relies on zeros */
    return block;
}

static inline void limit_allocation(unsigned long bytes) {
    allocation_limit = bytes;
    tensor_set_allocator(limited_allocate, free);
}

#endif
