/* Threads of the process: invalid numbers of them, a system that refuses them, children of a fork, and settings that
 * change while other threads compute. The results remain the same throughout. */
#define _GNU_SOURCE /* tgkill, SA_RESTART, sched_setaffinity */
#include "check.h"
#include "core/base/parallel.h"
#include "flexlab/flexlab.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

enum { ROWS = 70, INNER = 300, COLUMNS = 90, PATIENCE = 120 };

/* Computes a product and a convolution, each of many chunks; returns a hash of their elements and exponents (FNV-1a), 0
 * for failure. */
static uint64_t compute(void) {
    tensor *t[] = {
        tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(ROWS, INNER)),   tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(INNER, COLUMNS)),
        tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(ROWS, COLUMNS)), tensor_new(FMT_FP32, TENSOR_SHAPE(8, 20, 20, 16)),
        tensor_new(FMT_FP32, TENSOR_SHAPE(32, 3, 3, 16)),      tensor_new(FMT_FP32, TENSOR_SHAPE(8, 20, 20, 32))};
    static const int inputs[] = {0, 1, 3, 4};
    static float values[8 * 20 * 20 * 16];
    uint64_t hash = 0xcbf29ce484222325u;
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < 4 && !status; i++) {
        const int64_t count = tensor_count(t[inputs[i]]);
        uint64_t seed = (uint64_t)i;
        float *own = malloc((size_t)count * sizeof values[0]);
        for (int64_t k = 0; k < count; k++)
            own[k] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
        status = tensor_load_f32(t[inputs[i]], own, count);
        free(own);
    }
    if (!status)
        status = tensor_matmul(t[2], t[0], t[1]);
    if (!status)
        status = tensor_conv2d(t[5], t[3], t[4], &(tensor_window){TENSOR_SQUARE(0, 1, 1)});
    for (int i = 2; i < 6; i += 3) {
        const unsigned char *bytes = tensor_const_data(t[i]);
        for (size_t k = 0; k < tensor_bytes(t[i]); k++)
            hash = (hash ^ bytes[k]) * 0x100000001b3u;
        hash ^= (uint64_t)tensor_exponent(t[i]);
    }
    for (int i = 0; i < 6; i++)
        tensor_free(t[i]);
    return status ? 0 : hash;
}

static uint64_t expected;

/* --- children: 0 is success, and they are not waited for in vain --- */

/* The status of a child, -1 for one that a signal ended. */
static int wait_for(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs this program again with OMP_NUM_THREADS = text, for one part of it. */
static void again(const char *text, const char *part, const char *argument) {
    pid_t child = fork();
    if (!child) {
        alarm(PATIENCE);
        if (text)
            setenv("OMP_NUM_THREADS", text, 1);
        else
            unsetenv("OMP_NUM_THREADS");
        execl("/proc/self/exe", "test_threads", part, argument, (char *)NULL);
        _exit(99);
    }
    const int status = wait_for(child);
    CHECK(status == 0, "%s with OMP_NUM_THREADS=%s: exit status %d", part, text ? text : "(unset)", status);
}

/* The part that `again` runs: a valid number counts, any other is reported. */
static void in_environment(const char *sane) {
    const char *text = getenv("OMP_NUM_THREADS");
    const int threads = tensor_threads();
    const char *notice = tensor_threads_notice();
    CHECK(threads >= 1 && threads <= 256, "%d threads", threads);
    if (*sane) {
        CHECK(threads == atoi(sane), "OMP_NUM_THREADS=%s: %d threads", text, threads);
        CHECK(!*notice, "OMP_NUM_THREADS=%s: %s", text, notice);
    } else if (text && *text) {
        CHECK(strstr(notice, text) && strstr(notice, "1 to 256"), "OMP_NUM_THREADS=%s: '%s'", text, notice);
    }
    CHECK(compute() != 0, "%s", tensor_error());
    const uint64_t now = compute();
    CHECK(!tensor_set_threads(1) && compute() == now, "one thread computes something else");
    CHECK(!*tensor_threads_notice(), "asked for one thread: %s", tensor_threads_notice());
}

static void environments(void) {
    static const char *const absurd[] = {
        "0", "-1", "257", "1000000", "4294967296", "4294967297", "18446744073709551617", "abc", "3x", "0x10", "-0"};
    for (int i = 0; i < (int)(sizeof absurd / sizeof absurd[0]); i++)
        again(absurd[i], "environment", "");
    again(NULL, "environment", "");
    again("3", "environment", "3");
    again("2,4", "environment", "2");
    again("8", "environment", "8");
}

/* --- a system that has no more threads: no room for their stacks --- */

static void without_room(void) {
#ifndef __SANITIZE_ADDRESS__
    CHECK(!tensor_set_threads(1), "%s", tensor_error());
    const uint64_t serial = compute();
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1, "no size of this process");
    if (file)
        fclose(file);
    const rlim_t size = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)48 << 20);
    CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){size, size}), "no limit");
    CHECK(!tensor_set_threads(200), "%s", tensor_error());
    for (int i = 0; i < 3; i++)
        CHECK(compute() == serial, "run %d of few threads: %s", i, tensor_error());
    CHECK(tensor_threads() < 200 && tensor_threads() >= 1, "%d threads", tensor_threads());
    CHECK(strstr(tensor_threads_notice(), "of 200"), "'%s'", tensor_threads_notice());
#endif
}

/* --- children of a fork --- */

#ifndef __SANITIZE_THREAD__ /* ThreadSanitizer allows no threads in such a child */

static void in_child(data_loader *parents, const data_set *set) {
    data_batch batch;
    CHECK(compute() == expected, "a child computes something else: %s", tensor_error());
    CHECK(compute() == expected, "a child computes something else the second time: %s", tensor_error());
    CHECK(data_loader_next(&batch, parents) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "fork"), "%s",
          tensor_error());
    CHECK(data_loader_start(parents, 1) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "fork"), "%s", tensor_error());
    data_loader_free(parents);
    static const double mean[3], deviation[3] = {1, 1, 1};
    data_loader *own = data_loader_new(set, &(data_loader_config){.batch = 5, .mean = mean, .deviation = deviation});
    CHECK(own && !data_loader_start(own, 0) && !data_loader_next(&batch, own) && batch.count == 5, "%s",
          tensor_error());
    data_loader_free(own);
    pid_t grandchild = fork();
    if (!grandchild) {
        alarm(PATIENCE);
        _exit(compute() != expected);
    }
    CHECK(wait_for(grandchild) == 0, "the child of the child");
}

static void forks(void) {
    static const double mean[3], deviation[3] = {1, 1, 1};
    data_set *set = data_open("synthetic:train=40", DATA_TRAIN);
    data_loader *loader = data_loader_new(set, &(data_loader_config){.batch = 5, .mean = mean, .deviation = deviation});
    data_batch batch;
    CHECK(loader && !data_loader_start(loader, 0) && !data_loader_next(&batch, loader), "%s", tensor_error());
    CHECK(compute() == expected, "%s", tensor_error());
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        alarm(PATIENCE);
        in_child(loader, set);
        fflush(stdout);
        _exit(check_failures ? 1 : 0);
    }
    CHECK(wait_for(child) == 0, "a child of a process that has computed");
    CHECK(!data_loader_next(&batch, loader) && compute() == expected, "the parent afterwards: %s", tensor_error());
    data_loader_free(loader);
    data_free(set);
}

#endif

/* ThreadSanitizer allows no threads in such a child, and the allocator of AddressSanitizer leaves its own locks there
 * as they were. */
#if !defined __SANITIZE_THREAD__ && !defined __SANITIZE_ADDRESS__
#define FORKS_BESIDE_THREADS

static atomic_bool stop;

static void *keep_computing(void *wrong) {
    while (!stop)
        if (compute() != expected)
            atomic_fetch_add((atomic_int *)wrong, 1);
    return NULL;
}

static void fail_hook(tensor_status status, const char *message, void *context) {
    (void)status, (void)message;
    atomic_fetch_add((atomic_int *)context, 1);
}

/* The child does not inherit a lock that the other thread holds at that moment. */
static void forks_while_computing(void) {
    static atomic_int wrong, failures;
    pthread_t thread;
    stop = false;
    tensor_set_error_hook(fail_hook, &failures);
    CHECK(!pthread_create(&thread, NULL, keep_computing, &wrong), "no thread");
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(PATIENCE);
            _exit(compute() != expected || tensor_set_threads(-1) != TENSOR_E_ARGUMENT || !failures);
        }
        CHECK(wait_for(child) == 0, "child %d of a process that computes", i);
    }
    stop = true;
    pthread_join(thread, NULL);
    tensor_set_error_hook(NULL, NULL);
    CHECK(!wrong, "%d wrong results beside forks", wrong);
}

/* Children of a process whose threads are making tensors can make tensors, too. */
static void *make_tensors(void *pointer) {
    atomic_int *ended = pointer;
    while (!atomic_load(ended))
        tensor_free(tensor_new(FMT_DFP16, TENSOR_SHAPE(3)));
    return NULL;
}

static void forks_while_making_tensors(void) {
    enum { THREADS = 2, FORKS = 200 };
    pthread_t thread[THREADS];
    atomic_int over = 0;
    int wrong = 0;
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&thread[i], NULL, make_tensors, &over), "no thread");
    for (int i = 0; i < FORKS; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20); /* otherwise it might wait for ever */
            tensor *t = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4));
            tensor_free(t);
            _exit(t ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    CHECK(!wrong, "%d of %d children could not make a tensor", wrong, FORKS);
}

#endif

/* --- settings that change meanwhile --- */

static atomic_int hooked[2];

static void count_hook(tensor_status status, const char *message, void *context) {
    (void)status, (void)message;
    atomic_fetch_add((atomic_int *)context, 1);
}
static void other_hook(tensor_status status, const char *message, void *context) {
    count_hook(status, message, (char *)context - 1); /* a context that belongs to this hook alone */
}

static void *compute_and_fail(void *wrong) {
    for (int i = 0; i < 12; i++) {
        if (compute() != expected || tensor_matmul(NULL, NULL, NULL) != TENSOR_E_ARGUMENT)
            atomic_fetch_add((atomic_int *)wrong, 1);
        (void)tensor_threads_notice();
    }
    return NULL;
}

static void settings(void) {
    enum { WORKERS = 3 };
    static atomic_int wrong;
    static const char *const caps[] = {NULL, "avx2", "portable", "avx512bw", NULL};
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, compute_and_fail, &wrong), "no thread");
    for (int i = 0; i < 3000; i++) {
        CHECK(!tensor_set_threads(i % 5), "%s", tensor_error());
        CHECK(!tensor_set_backend(caps[i % 5]), "%s", tensor_error());
        CHECK(!tensor_set_class(i % 2 ? TENSOR_FAST : TENSOR_EXACT), "%s", tensor_error());
        if (i % 3)
            tensor_set_error_hook(count_hook, &hooked[0]);
        else
            tensor_set_error_hook(other_hook, (char *)&hooked[1] + 1);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    tensor_set_error_hook(NULL, NULL);
    tensor_set_class(TENSOR_EXACT);
    tensor_set_threads(0);
    CHECK(!wrong, "%d wrong results while settings changed", wrong);
}

/* Chunks of one worker are consecutive; no number is larger than requested. */
enum { WORKERS = 3, PARTS = 500 };
struct crew {
    atomic_int busy[WORKERS], parts, wrong;
};

static void crew_part(void *context, int part, int worker) {
    struct crew *crew = context;
    (void)part;
    if (worker < 0 || worker >= WORKERS || atomic_exchange(&crew->busy[worker], 1))
        atomic_fetch_add(&crew->wrong, 1);
    atomic_fetch_add(&crew->parts, 1);
    if (worker >= 0 && worker < WORKERS)
        atomic_store(&crew->busy[worker], 0);
}

static void workers(void) {
    static struct crew crew;
    CHECK(!tensor_set_threads(4), "%s", tensor_error());
    for (int i = 0; i < 20; i++)
        fl_parallel_within(WORKERS, PARTS, crew_part, &crew);
    CHECK(crew.parts == 20 * PARTS && !crew.wrong, "%d parts, %d by a worker that is busy or beyond %d", crew.parts,
          crew.wrong, WORKERS);
}

/* --- helpers that the system does not let run --- */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void wait_us(double us) {
    for (const double end = now_us() + us; now_us() < end;)
        ;
}

static atomic_int stopped, go_on;

/* A helper waits here as if its processor were busy with another program. */
static void stop_here(int number) {
    (void)number;
    atomic_fetch_add(&stopped, 1);
    while (!atomic_load(&go_on))
        usleep(1000);
    atomic_fetch_sub(&stopped, 1);
}

/* A thread of a sanitizer does not, because it blocks all signals. */
static bool takes_signals(long id) {
    char path[64], line[128];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%ld/status", id);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "SigBlk:", 7))
            blocked = strtoull(line + 7, NULL, 16);
    if (status)
        fclose(status);
    return !(blocked >> (SIGUSR1 - 1) & 1);
}

/* Stops every other thread of this process that takes signals; returns their number. */
static int stop_others(void) {
    int others = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *d; tasks && (d = readdir(tasks));) {
        const long id = strtol(d->d_name, NULL, 10);
        if (id > 0 && id != syscall(SYS_gettid) && takes_signals(id) && !syscall(SYS_tgkill, getpid(), id, SIGUSR1))
            others++;
    }
    if (tasks)
        closedir(tasks);
    return others;
}

struct slow {
    double us;
    atomic_int parts, others;
};

static void slow_part(void *context, int part, int worker) {
    struct slow *slow = context;
    (void)part;
    wait_us(slow->us);
    atomic_fetch_add(&slow->parts, 1);
    if (worker > 0)
        atomic_fetch_add(&slow->others, 1);
}

/* If helpers are stopped, the caller runs every chunk and returns; once they run again they help, and the work for
 * which they wake up late is over. Sleeping helpers hold no lock, so they are stopped when they sleep. */
static void stopped_helpers(void) {
    enum { SLICES = 40 };
    struct slow slow = {.us = 200};
    CHECK(!tensor_set_threads(3), "%s", tensor_error());
    for (int i = 0; i < 50 && !slow.others; i++)
        fl_parallel(SLICES, slow_part, &slow);
    CHECK(slow.others > 0, "no other thread has taken a part");
    usleep(50000); /* they sleep */
    const struct sigaction action = {.sa_handler = stop_here, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGUSR1, &action, NULL), "no handler");
    const int others = stop_others();
    for (int i = 0; i < 5000 && atomic_load(&stopped) < others; i++)
        usleep(1000);
    CHECK(others >= 2 && atomic_load(&stopped) == others, "%d of %d threads stopped", atomic_load(&stopped), others);
    for (int i = 0; i < 4; i++) {
        struct slow alone = {.us = 50};
        alarm(PATIENCE);
        if (i % 2)
            fl_parallel(SLICES, slow_part, &alone);
        else
            fl_parallel_large(3, SLICES, slow_part, &alone);
        alarm(0);
        CHECK(alone.parts == SLICES && !alone.others, "%d parts of %d, %d by threads that are stopped", alone.parts,
              SLICES, alone.others);
    }
    CHECK(compute() == expected, "a product beside stopped threads: %s", tensor_error());
    atomic_store(&go_on, 1);
    for (int i = 0; i < 5000 && atomic_load(&stopped); i++)
        usleep(1000);
    slow.others = 0;
    for (int i = 0; i < 50 && !slow.others; i++)
        fl_parallel(SLICES, slow_part, &slow);
    CHECK(slow.others > 0, "threads that were stopped do not come back");
    CHECK(compute() == expected, "%s", tensor_error());
}

/* Work of some microseconds wakes no helper, whatever its number of chunks, and neither does a small product. */
static void little_work(void) {
    struct slow little = {.us = 0.5}, large = {.us = 500};
    CHECK(!tensor_set_threads(3), "%s", tensor_error());
    int alone = 0;
    for (int i = 0; i < 100; i++) {
        little.others = 0;
        fl_parallel(8, slow_part, &little);
        alone += !little.others;
    }
    CHECK(alone >= 50, "%d of 100 regions of 4 us ran on one thread", alone); /* a busy machine may prolong some */
    for (int i = 0; i < 20 && !large.others; i++)
        fl_parallel(8, slow_part, &large);
    CHECK(large.others > 0, "4 ms of work in 8 parts ran on one thread");
}

/* --- helpers stay off the caller's processor --- */

struct apart {
    int processor; /* of the caller */
    atomic_int others, beside;
};

static void apart_part(void *context, int part, int worker) {
    struct apart *apart = context;
    (void)part;
    wait_us(200);
    if (worker > 0) {
        atomic_fetch_add(&apart->others, 1);
        if (sched_getcpu() == apart->processor)
            atomic_fetch_add(&apart->beside, 1);
    }
}

/* The caller moves from processor to processor and is bound to each for a while, as a program may bind it. */
static void apart_from_caller(void) {
    cpu_set_t all;
    CHECK(!sched_getaffinity(0, sizeof all, &all), "no processors");
    if (CPU_COUNT(&all) < 2) {
        printf("threads: one processor: where helpers run was not tested\n");
        return;
    }
    CHECK(!tensor_set_threads(3), "%s", tensor_error());
    for (int round = 0; round < 2; round++)
        for (int processor = 0, tried = 0; processor < CPU_SETSIZE && tried < 4; processor++) {
            if (!CPU_ISSET(processor, &all))
                continue;
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(processor, &one);
            struct apart apart = {.processor = processor};
            CHECK(!sched_setaffinity(0, sizeof one, &one), "processor %d", processor);
            for (int i = 0; i < 50 && apart.others < 20; i++)
                fl_parallel(20, apart_part, &apart);
            CHECK(apart.others >= 20 && !apart.beside, "caller on processor %d: %d parts by helpers, %d of them there",
                  processor, apart.others, apart.beside);
            tried++;
        }
    CHECK(!sched_setaffinity(0, sizeof all, &all), "processors");
}

int main(int count, char **arguments) {
    if (count > 2 && !strcmp(arguments[1], "environment"))
        in_environment(arguments[2]);
    else if (count > 1 && !strcmp(arguments[1], "room"))
        without_room();
    if (count > 1)
        return check_summary() && check_failures;
    CHECK(!tensor_set_threads(4), "%s", tensor_error());
    workers();
    expected = compute();
    CHECK(expected, "%s", tensor_error());
    little_work();
    apart_from_caller();
    stopped_helpers();
    CHECK(!tensor_set_threads(4), "%s", tensor_error());
#ifndef __SANITIZE_THREAD__
    forks();
#endif
#ifdef FORKS_BESIDE_THREADS
    forks_while_computing();
    forks_while_making_tensors();
#endif
    environments();
    again(NULL, "room", "");
    settings();
    return check_summary();
}
