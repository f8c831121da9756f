/* parallel.c - threads: OpenMP, or POSIX threads where it is left out. */
#include "core/parallel.h"
#include "core/fail.h"
#include "flexlab/tensor.h"
#include <stdlib.h>
#include <unistd.h>

#ifdef FL_OPENMP
#include <omp.h>
#else
#include <pthread.h>
#include <stdatomic.h>
#endif

enum { MAX_THREADS = 256 };

static int wanted; /* 0: the default */

tensor_status tensor_set_threads(int threads) {
    if (threads < 0 || threads > MAX_THREADS)
        return fl_fail(TENSOR_E_ARGUMENT, "set_threads: %d threads, expected 0 (default) to %d", threads, MAX_THREADS);
    wanted = threads;
    return TENSOR_OK;
}

#ifdef FL_OPENMP

int fl_threads(void) {
    return wanted ? wanted : omp_get_max_threads();
}

void fl_parallel(int parts, void (*work)(void *context, int part), void *context) {
    int threads = fl_threads();
    if (threads > parts)
        threads = parts;
    if (threads <= 1 || omp_in_parallel()) {
        for (int part = 0; part < parts; part++)
            work(context, part);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int part = 0; part < parts; part++)
        work(context, part);
}

#else

struct team {
    void (*work)(void *context, int part);
    void *context;
    int parts;
    atomic_int next;
};

static _Thread_local int inside;

static void *run_parts(void *pointer) {
    struct team *team = pointer;
    inside = 1;
    for (int part; (part = atomic_fetch_add(&team->next, 1)) < team->parts;)
        team->work(team->context, part);
    inside = 0;
    return NULL;
}

int fl_threads(void) {
    if (wanted)
        return wanted;
    const char *text = getenv("OMP_NUM_THREADS");
    int threads = text ? atoi(text) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
}

void fl_parallel(int parts, void (*work)(void *context, int part), void *context) {
    int threads = fl_threads();
    if (threads > parts)
        threads = parts;
    if (threads <= 1 || inside) {
        for (int part = 0; part < parts; part++)
            work(context, part);
        return;
    }
    struct team team = {work, context, parts, 0};
    pthread_t helper[MAX_THREADS];
    int helpers = 0;
    while (helpers < threads - 1 && !pthread_create(&helper[helpers], NULL, run_parts, &team))
        helpers++; /* fewer threads than asked for change only the time */
    run_parts(&team);
    for (int i = 0; i < helpers; i++)
        pthread_join(helper[i], NULL);
}

#endif

int tensor_threads(void) {
    return fl_threads();
}
