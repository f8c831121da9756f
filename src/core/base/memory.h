/* memory.h - aligned memory from the library's one allocator, and per-thread scratch for kernels. */
#ifndef FL_MEMORY_H
#define FL_MEMORY_H

#include <stddef.h>

enum { FL_ALIGNMENT = 64 };

/* 64-byte aligned, not cleared; NULL when the allocator fails or the size is 0. Free with fl_free (NULL allowed). */
void *fl_alloc(size_t bytes);
void *fl_alloc_zero(size_t bytes);
void fl_free(void *block);
char *fl_strdup(const char *text);

/* Scratch of the calling thread, 64-byte aligned, at least `bytes`, contents undefined; NULL on failure. Slots 0 ... 2
 * are independent blocks that keep their memory until the thread ends, so a training step allocates nothing after the
 * first. A slot must not be asked for again while its block is in use. Slots 0 and 1 belong to the kernel's calling
 * thread, 2 to the operation that calls the kernel. */
void *fl_scratch(int slot, size_t bytes);

/* `bytes` rounded up to whole cache lines: parts of a workspace lie side by side. */
static inline size_t fl_line_bytes(size_t bytes) {
    return (bytes + FL_ALIGNMENT - 1) / FL_ALIGNMENT * FL_ALIGNMENT;
}

#endif
