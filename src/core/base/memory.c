/* memory.c - the one allocator, and scratch memory of threads that outlasts a kernel. */
#define _DEFAULT_SOURCE /* madvise */
#include "core/base/memory.h"
#include "flexlab/tensor.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 * 1024 * 1024 };

/* Large blocks request large pages: packing reads many rows of a matrix at a time, each of which would lie on a page of
 * its own. */
static void *default_allocate(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    if (posix_memalign(&block, size < HUGE_PAGE ? alignment : HUGE_PAGE, size))
        return NULL;
#ifdef MADV_HUGEPAGE
    if (size >= HUGE_PAGE) /* a system without large pages is only slower */
        (void)madvise(block, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return block;
}

static tensor_allocate_fn allocate = default_allocate;
static tensor_release_fn release = free;

void tensor_set_allocator(tensor_allocate_fn new_allocate, tensor_release_fn new_release) {
    allocate = new_allocate && new_release ? new_allocate : default_allocate;
    release = new_allocate && new_release ? new_release : free;
}

void *fl_alloc(size_t bytes) {
    return bytes ? allocate(bytes, FL_ALIGNMENT) : NULL;
}

void *fl_alloc_zero(size_t bytes) {
    void *block = fl_alloc(bytes);
    if (block)
        memset(block, 0, bytes);
    return block;
}

void fl_free(void *block) {
    if (block)
        release(block);
}

char *fl_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = fl_alloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

/* A thread's scratch memory. A block goes back to the release function of the allocator that it came from, even if the
 * allocator has been replaced since. */
enum { SCRATCH_SLOTS = 3 };
struct scratch {
    void *block[SCRATCH_SLOTS];
    size_t bytes[SCRATCH_SLOTS];
    tensor_release_fn release[SCRATCH_SLOTS];
};

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static int scratch_key_failed;

static void scratch_destroy(void *pointer) {
    struct scratch *s = pointer;
    for (int i = 0; i < SCRATCH_SLOTS; i++)
        if (s->block[i])
            s->release[i](s->block[i]);
    free(s);
}

static struct scratch *main_scratch; /* the initial thread's key destructors do not run at exit */

static void scratch_at_exit(void) {
    if (main_scratch && pthread_getspecific(scratch_key) == main_scratch) {
        pthread_setspecific(scratch_key, NULL);
        scratch_destroy(main_scratch);
        main_scratch = NULL;
    }
}

static void scratch_start(void) {
    scratch_key_failed = pthread_key_create(&scratch_key, scratch_destroy);
    atexit(scratch_at_exit);
}

void *fl_scratch(int slot, size_t bytes) {
    pthread_once(&scratch_once, scratch_start);
    if (scratch_key_failed || slot < 0 || slot >= SCRATCH_SLOTS)
        return NULL;
    struct scratch *s = pthread_getspecific(scratch_key);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            return NULL;
        if (pthread_setspecific(scratch_key, s)) {
            free(s);
            return NULL;
        }
        struct scratch *none = NULL;
        __atomic_compare_exchange_n(&main_scratch, &none, s, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    if (s->bytes[slot] < bytes || !s->block[slot]) {
        size_t wanted = (bytes + bytes / 8 + 4095) & ~(size_t)4095;
        void *block = fl_alloc(wanted ? wanted : 4096);
        if (!block)
            return NULL;
        if (s->block[slot])
            s->release[slot](s->block[slot]);
        s->block[slot] = block;
        s->bytes[slot] = wanted;
        s->release[slot] = release;
    }
    return s->block[slot];
}
