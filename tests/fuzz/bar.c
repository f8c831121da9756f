/* bar.c - bounds the memory of a target between it and libFuzzer, or driver.c: each input may use fuzz_bar bytes on the
 * heap, and PER_BYTE for each of its own, whoever allocates them. A file for whose missing contents memory is allocated
 * exceeds the bound and ends the process there, before it has the memory.
 *
 * Sanitizers report allocations; without one, the functions of the C library are replaced if that is glibc. */
#define _GNU_SOURCE
#define FUZZ_BAR
#include "fuzz.h"
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <unistd.h>

enum { PER_BYTE = 1024 }; /* the largest expansion of a byte by deflate */

size_t fuzz_bar = 64ul << 20;

static _Atomic long held;         /* bytes of all blocks */
static _Atomic long most = -1;    /* that they may have now; -1: no input is run */
static _Atomic long before_input; /* that they had */

/* Prints without the heap. */
static void say(const char *text, long number) {
    char digits[24];
    char *at = digits + sizeof digits;
    size_t length = strlen(text);
    ssize_t told = write(2, text, length);
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    told += write(2, at, (size_t)(digits + sizeof digits - at));
    (void)told;
}

static void ask(size_t bytes) {
    const long limit = most, had = before_input;
    if (limit < 0 || (bytes <= (size_t)limit && held + (long)bytes <= limit))
        return;
    most = -1;
    say("BROKEN memory: a block of ", bytes > LONG_MAX ? LONG_MAX : (long)bytes);
    say(" bytes asked for beside ", held - had > 0 ? held - had : 0);
    say(", the bar of this input is ", limit - had);
    (void)!write(2, "\n", 1);
    abort();
}

/* --- who tells of it ------------------------------------------------------------------------------------------------
 */

#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED
#endif

#ifdef SANITIZED
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *block, size_t bytes),
                                              void (*freed)(const volatile void *block));
size_t __sanitizer_get_allocated_size(const volatile void *block);

static void on_allocation(const volatile void *block, size_t bytes) {
    (void)block;
    ask(bytes);
    held += (long)bytes;
}

static void on_free(const volatile void *block) {
    if (block)
        held -= (long)__sanitizer_get_allocated_size(block);
}

static void listen(void) {
    static bool listening;
    if (!listening && !__sanitizer_install_malloc_and_free_hooks(on_allocation, on_free))
        MUST(listening, "nobody tells of allocations");
    listening = true;
}
#elif defined __GLIBC__
#pragma GCC visibility push(default) /* shared libraries, the C library too, call these */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

static void listen(void) {}

static void *took(void *block) {
    held += (long)malloc_usable_size(block);
    return block;
}

void *malloc(size_t bytes) {
    ask(bytes);
    return took(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes) {
    size_t all;
    ask(__builtin_mul_overflow(count, bytes, &all) ? SIZE_MAX : all);
    return took(__libc_calloc(count, bytes));
}

void *realloc(void *block, size_t bytes) {
    const long old = (long)malloc_usable_size(block);
    ask(bytes);
    void *other = __libc_realloc(block, bytes);
    if (other || !bytes)
        held -= old;
    return took(other);
}

void *memalign(size_t alignment, size_t bytes) {
    ask(bytes);
    return took(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes) {
    void *new = memalign(alignment, bytes);
    if (!new)
        return ENOMEM;
    *block = new;
    return 0;
}

void free(void *block) {
    held -= (long)malloc_usable_size(block);
    __libc_free(block);
}
#pragma GCC visibility pop
#else
static void listen(void) { /* nobody tells: the bar stands in the builds of others */
}
#endif

/* --- the input ------------------------------------------------------------------------------------------------------
 */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    listen();
    before_input = held;
    most = held + (long)(fuzz_bar + PER_BYTE * size);
    const int result = fuzz_input(data, size);
    most = -1;
    return result;
}
