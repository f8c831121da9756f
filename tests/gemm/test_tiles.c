/* The tiles of AMX and the rest of the process: permission is requested when tiles are about to be used, never under a
 * lower cap; if the system refuses it, the kernel set below runs; tiles are released after every operation; threads,
 * forked children and signals that interrupt products change no bit. */
#define _GNU_SOURCE
#include "check.h"
#include "core/base/cpu.h"
#include "core/table/format.h"
#include "flexlab/tensor.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GET_PERMISSIONS = 0x1022, ASK_PERMISSION = 0x1023, TILE_DATA = 18, SIDE = 200 };

static bool is_permitted(void) {
    unsigned long permitted = 0;
    return !syscall(SYS_arch_prctl, GET_PERMISSIONS, &permitted) && permitted >> TILE_DATA & 1;
}

/* Requests permission as the library would. */
static int is_offered(void) {
    return fl_cpu_tiles_refused() ? 1 : 0;
}

/* Whether this thread's tiles are in use, according to XGETBV(1). */
static bool tiles_in_use(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low & 0x60000;
}

static tensor *matrix(uint64_t seed) {
    tensor *t = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(SIDE, SIDE));
    float values[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        values[i] = (float)(int)(check_random(&seed) % 60001) / 30000 - 1;
    if (!t || tensor_load_f32(t, values, SIDE * SIDE))
        exit(9);
    return t;
}

/* A hash of a product and of a convolution. */
static uint64_t results(void) {
    const int64_t image[4] = {10, 10, 20, 20}, filter[4] = {20, 3, 3, 20};
    tensor *a = matrix(1), *b = matrix(2), *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(SIDE, SIDE)),
           *x = tensor_new_view(a, 4, image), *w = tensor_new(FMT_FLEX16_5, 4, filter),
           *z = tensor_new(FMT_FLEX16_5, 4, image);
    float values[20 * 9 * 20];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = (float)(i % 17) / 17 - 0.5f;
    uint64_t hash = 1469598103934665603u;
    if (!tensor_load_f32(w, values, 20 * 9 * 20) && !tensor_matmul(y, a, b) &&
        !tensor_conv2d(z, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 1)})) {
        const int16_t *of[2] = {tensor_const_data(y), tensor_const_data(z)};
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < SIDE * SIDE; j++)
                hash = (hash ^ (uint16_t)of[i][j]) * 1099511628211u;
    }
    tensor *const all[] = {x, a, b, y, w, z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    return hash;
}

static uint64_t want; /* of the reference kernels */

/* Runs body in a child process; true if it exits with 0. */
static bool in_child(int (*body)(void)) {
    const pid_t child = fork();
    if (!child)
        _exit(body());
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* --- permission --- */

static int asks_late(void) {
    tensor_set_backend("avx512");
    if (results() != want || is_permitted())
        return 1;
    tensor_set_backend(NULL);
    tensor *a = matrix(1);
    if (tensor_add(a, a, a) || is_permitted())
        return 2;
    tensor_free(a);
    if (results() != want || !is_permitted() || tiles_in_use())
        return 3;
    return strcmp(tensor_kernel_backend(FMT_FLEX16_5, "matmul"), "avx512_amx") ? 4 : 0;
}

/* The kernel set below runs, with the same bits, and FLEXLAB_VERBOSE gives the reason. In a program that has not used
 * the library before, because its messages are decided once. */
static int runs_without(void) {
    int ends[2];
    char text[4096] = "";
    setenv("FLEXLAB_VERBOSE", "1", 1);
    if (pipe(ends) || dup2(ends[1], STDERR_FILENO) < 0)
        return 1;
    if (results() != want || strcmp(tensor_kernel_backend(FMT_FLEX16_5, "matmul"), "avx512"))
        return 2;
    close(ends[1]);
    close(STDERR_FILENO);
    if (read(ends[0], text, sizeof text - 1) <= 0)
        return 3;
    return strstr(text, "avx512_amx not used: the system refused the permission") ? 0 : 4;
}

/* A signal stack too small for a frame with tiles: the system refuses (ENOSPC). */
static int small_signal_stack(void) {
    static char stack[4096];
    const stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    return sigaltstack(&small, NULL) ? 9 : runs_without();
}

/* A filter of system calls that answers the request with "operation not permitted". */
static int filtered(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ASK_PERMISSION, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 0; /* the system has no such filters */
    return runs_without();
}

/* Explaining why an addition uses no tiles does not request them. */
static int tells_without_asking(void) {
    const int nowhere = open("/dev/null", O_WRONLY);
    setenv("FLEXLAB_VERBOSE", "1", 1);
    if (nowhere < 0 || dup2(nowhere, STDERR_FILENO) < 0)
        return 1;
    tensor *a = matrix(1);
    const bool added = !tensor_add(a, a, a);
    tensor_free(a);
    return added && !is_permitted() ? 0 : 2;
}

static const struct {
    const char *name;
    int (*body)(void);
} programs[] = {
    {"small_signal_stack", small_signal_stack}, {"filtered", filtered}, {"tells_without_asking", tells_without_asking}};

static const char *self;

/* Runs this program again as one of those. */
static void in_program(size_t i) {
    char hash[32];
    snprintf(hash, sizeof hash, "%llu", (unsigned long long)want);
    const pid_t child = fork();
    if (!child) {
        execl(self, self, programs[i].name, hash, (char *)NULL);
        _exit(8);
    }
    int status = 0;
    const bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    CHECK(ended && !WEXITSTATUS(status), "%s: exit status %d", programs[i].name, ended ? WEXITSTATUS(status) : -1);
}

/* --- processes, threads, signals --- */

static int forked_again(void) {
    return results() == want ? 0 : 1;
}

static int forks(void) {
    return results() == want && in_child(forked_again) && results() == want ? 0 : 1;
}

static void *in_thread(void *wrong) {
    for (int i = 0; i < 20; i++)
        if (results() != want || tiles_in_use())
            *(int *)wrong = 1;
    return NULL;
}

static int threads(void) {
    pthread_t thread[4];
    int wrong[4] = {0};
    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread[i], NULL, in_thread, &wrong[i]))
            return 1;
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    return wrong[0] | wrong[1] | wrong[2] | wrong[3];
}

static volatile sig_atomic_t interruptions;

/* Overwrites all vector registers that a compiler would use, and the stack. */
static void interrupted(int signal) {
    volatile float junk[512];
    (void)signal;
    for (int i = 0; i < 512; i++)
        junk[i] = (float)i;
    interruptions += junk[511] > 0;
}

static int signals(void) {
    const struct sigaction action = {.sa_handler = interrupted, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &often, NULL))
        return 9;
    int wrong = 0;
    for (int i = 0; i < 200; i++)
        wrong |= results() != want;
    setitimer(ITIMER_REAL, &never, NULL);
    return wrong ? 1 : interruptions > 20 ? 0 : 2;
}

int main(int argc, char **argv) {
    self = argv[0];
    tensor_set_threads(1);
    for (size_t i = 0; argc == 3 && i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(argv[1], programs[i].name)) {
            want = strtoull(argv[2], NULL, 10);
            return programs[i].body();
        }
    if (!fl_cpu_has(FL_CPU_AMX_TILE | FL_CPU_AMX_INT8 | FL_CPU_AVX512_VBMI | FL_CPU_AVX512_VNNI))
        return check_skip("this processor has no AMX");
    enum fl_backend cap;
    if (fl_backend_cap(&cap) || cap < FL_AVX512_AMX)
        return check_skip("FLEXLAB_ISA caps the kernels below the tiles");
    tensor_set_backend("ref");
    want = results();
    tensor_set_backend(NULL);
    if (!in_child(is_offered))
        return check_skip("the system does not permit tiles");
    /* each in a child, because permission persists */
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        in_program(i);
    CHECK(in_child(asks_late), "permission asked at the wrong time, or tiles not released");
    CHECK(in_child(forks), "forked children");
    CHECK(in_child(threads), "threads");
    CHECK(in_child(signals), "signals");
    tensor_set_threads(3);
    CHECK(results() == want && !tiles_in_use(), "three threads of the library");
    return check_summary();
}
