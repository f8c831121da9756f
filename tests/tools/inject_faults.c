/* inject_faults.c - a library for LD_PRELOAD that makes the n-th call of one kind fail (test_cli_faults.py).
 *
 *   FAULT_PROGRAM  the program whose calls count, by its short name; in any other process nothing happens
 *   FAULT_KIND     memory, write, open, close, fsync, rename, link, mkdir, unlink, spawn or print
 *   FAULT_AT       n, from 1; 0: none fails
 *   FAULT_ERROR    errno of the failure; 0: a short write
 *   FAULT_LASTING  1: every call from the n-th on fails
 *   FAULT_COUNT    a file that gets the number of calls at the end
 *
 * Calls count from the beginning of main. What libc does inside one call of stdio is out of reach: `print` fails the
 * call itself and sets the stream's error flag, as a failed write would. */
#undef _FORTIFY_SOURCE /* the functions are defined here by their own names */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { NONE, MEMORY, WRITE, OPEN, CLOSE, FSYNC, RENAME, LINK, MKDIR, UNLINK, SPAWN, PRINT, KINDS };

static const char *const kind_names[] = {"",       "memory", "write", "open",   "close", "fsync",
                                         "rename", "link",   "mkdir", "unlink", "spawn", "print"};

static enum kind chosen; /* NONE until main begins */
static long calls, fail_at;
static int fail_error, lasting;
static const char *count_path;

static int fails(enum kind kind) {
    if (kind != chosen)
        return 0;
    long n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (!fail_at || n < fail_at || (n > fail_at && !lasting))
        return 0;
    errno = fail_error;
    return 1;
}

/* The real function of the same name. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* --- beginning and end ---------------------------------------------------------------------------------------------
 */

static void report(void) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%ld\n", calls);
    chosen = NONE;
    int descriptor = count_path ? REAL(open)(count_path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (descriptor >= 0 && REAL(write)(descriptor, digits, (size_t)length) == length)
        REAL(close)(descriptor);
}

typedef int (*main_fn)(int, char **, char **);
static main_fn real_main;

static int counted_main(int argc, char **argv, char **environment) {
    const char *program = getenv("FAULT_PROGRAM"), *kind = getenv("FAULT_KIND");
    if (program && kind && !strcmp(program, program_invocation_short_name)) {
        fail_at = atol(getenv("FAULT_AT") ? getenv("FAULT_AT") : "0");
        fail_error = atoi(getenv("FAULT_ERROR") ? getenv("FAULT_ERROR") : "5");
        lasting = getenv("FAULT_LASTING") != NULL;
        count_path = getenv("FAULT_COUNT");
        atexit(report);
        for (int i = 1; i < KINDS; i++)
            if (!strcmp(kind, kind_names[i]))
                chosen = (enum kind)i;
    }
    return real_main(argc, argv, environment);
}

int __libc_start_main(main_fn main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);

int __libc_start_main(main_fn main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end) {
    real_main = main;
    return REAL(__libc_start_main)(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

/* --- memory: glibc's own names, since dlsym itself allocates -------------------------------------------------------
 */

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t size) {
    return fails(MEMORY) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return fails(MEMORY) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    return fails(MEMORY) ? NULL : __libc_realloc(block, size);
}

void *reallocarray(void *block, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return fails(MEMORY) ? NULL : __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return fails(MEMORY) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    if (fails(MEMORY))
        return ENOMEM;
    *block = __libc_memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}

/* --- files ---------------------------------------------------------------------------------------------------------
 */

ssize_t write(int descriptor, const void *bytes, size_t size) {
    if (descriptor > 2 && fails(WRITE)) {
        if (fail_error)
            return -1;
        size = (size + 1) / 2; /* a short write, which is not a failure */
    }
    return REAL(write)(descriptor, bytes, size);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails(OPEN) ? -1 : REAL(open)(path, flags, mode);
}

FILE *fopen(const char *path, const char *how) {
    return fails(OPEN) ? NULL : REAL(fopen)(path, how);
}

DIR *opendir(const char *path) {
    return fails(OPEN) ? NULL : REAL(opendir)(path);
}

/* Linux closes the descriptor whatever close returns. */
int close(int descriptor) {
    int failed = fails(CLOSE);
    int result = REAL(close)(descriptor);
    if (!failed)
        return result;
    errno = fail_error;
    return -1;
}

int fclose(FILE *file) {
    int failed = fails(CLOSE);
    int result = REAL(fclose)(file);
    if (!failed)
        return result;
    errno = fail_error;
    return EOF;
}

int fsync(int descriptor) {
    return fails(FSYNC) ? -1 : REAL(fsync)(descriptor);
}

int rename(const char *from, const char *to) {
    return fails(RENAME) ? -1 : REAL(rename)(from, to);
}

int link(const char *from, const char *to) {
    return fails(LINK) ? -1 : REAL(link)(from, to);
}

int mkdir(const char *path, mode_t mode) {
    return fails(MKDIR) ? -1 : REAL(mkdir)(path, mode);
}

int unlink(const char *path) {
    return fails(UNLINK) ? -1 : REAL(unlink)(path);
}

int rmdir(const char *path) {
    return fails(UNLINK) ? -1 : REAL(rmdir)(path);
}

/* --- processes -----------------------------------------------------------------------------------------------------
 */

int posix_spawnp(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    return fails(SPAWN) ? fail_error : REAL(posix_spawnp)(child, file, actions, attributes, arguments, environment);
}

pid_t waitpid(pid_t child, int *state, int options) {
    return fails(SPAWN) ? -1 : REAL(waitpid)(child, state, options);
}

int memfd_create(const char *name, unsigned flags) {
    return fails(SPAWN) ? -1 : REAL(memfd_create)(name, flags);
}

FILE *fdopen(int descriptor, const char *how) {
    return fails(SPAWN) ? NULL : REAL(fdopen)(descriptor, how);
}

/* --- stdio: all but standard error, which reports the failure ----------------------------------------------------- */

static int print_fails(FILE *file) {
    if (file == stderr || !fails(PRINT))
        return 0;
    file->_flags |= 0x20; /* glibc's _IO_ERR_SEEN, which ferror tests */
    return 1;
}

static int print(FILE *file, const char *format, va_list arguments) {
    return print_fails(file) ? -1 : REAL(vfprintf)(file, format, arguments);
}

/* The functions of stdio, and those that fortified programs call instead, with a flag. */
#define PRINT_FUNCTION(signature, file, last)                                                                          \
    int signature {                                                                                                    \
        va_list arguments;                                                                                             \
        va_start(arguments, last);                                                                                     \
        const int length = print(file, last, arguments);                                                               \
        va_end(arguments);                                                                                             \
        return length;                                                                                                 \
    }
int __fprintf_chk(FILE *file, int flag, const char *format, ...);
int __printf_chk(int flag, const char *format, ...);
int __vfprintf_chk(FILE *file, int flag, const char *format, va_list arguments);
PRINT_FUNCTION(fprintf(FILE *file, const char *format, ...), file, format)
PRINT_FUNCTION(printf(const char *format, ...), stdout, format)
PRINT_FUNCTION(__fprintf_chk(FILE *file, __attribute__((unused)) int flag, const char *format, ...), file, format)
PRINT_FUNCTION(__printf_chk(__attribute__((unused)) int flag, const char *format, ...), stdout, format)

int vfprintf(FILE *file, const char *format, va_list arguments) {
    return print(file, format, arguments);
}

int __vfprintf_chk(FILE *file, int flag, const char *format, va_list arguments) {
    (void)flag;
    return print(file, format, arguments);
}

int fputs(const char *text, FILE *file) {
    return print_fails(file) ? EOF : REAL(fputs)(text, file);
}

int fputc(int c, FILE *file) {
    return print_fails(file) ? EOF : REAL(fputc)(c, file);
}

size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file) {
    return print_fails(file) ? 0 : REAL(fwrite)(bytes, size, count, file);
}

int fflush(FILE *file) {
    return file && print_fails(file) ? EOF : REAL(fflush)(file);
}
