/* parallel.c - threads: OpenMP, or POSIX threads where it is left out. Either way they live as long as the process, and
 * are not bound to processors: OMP_PROC_BIND is the user's (docs/decisions/0007-dispatch.md). A process that forks must
 * not compute in the child, as with OpenMP. */
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
#include <stdint.h>
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
    const int threads = fl_threads();
    if (threads <= 1 || parts <= 1 || omp_in_parallel()) {
        for (int part = 0; part < parts; part++)
            work(context, part);
        return;
    }
    /* the same number whatever the parts: OpenMP ends the threads that a smaller team leaves over */
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

/* Helpers wait for the next team; those up to `called` take part in it. */
static struct {
    pthread_mutex_t owner; /* held by the caller whose team runs */
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t begin, end;
    struct team *team;
    uint64_t number; /* of the team: counts up */
    int helpers, called, working;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .begin = PTHREAD_COND_INITIALIZER,
          .end = PTHREAD_COND_INITIALIZER};

static void run_parts(struct team *team) {
    inside = 1;
    for (int part; (part = atomic_fetch_add(&team->next, 1)) < team->parts;)
        team->work(team->context, part);
    inside = 0;
}

static void *help(void *pointer) {
    const int me = (int)(intptr_t)pointer;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.number == seen || me >= pool.called) {
            seen = pool.number;
            pthread_cond_wait(&pool.begin, &pool.lock);
        }
        seen = pool.number;
        struct team *team = pool.team;
        pthread_mutex_unlock(&pool.lock);
        run_parts(team);
        pthread_mutex_lock(&pool.lock);
        if (--pool.working == 0)
            pthread_cond_signal(&pool.end);
    }
    return NULL;
}

/* Until there are `count`, or no more are to be had: fewer threads than asked for change only the time. */
static void hire(int count) {
    pthread_attr_t detached;
    if (pthread_attr_init(&detached))
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (pool.helpers < count && !pthread_create(&thread, &detached, help, (void *)(intptr_t)pool.helpers))
        pool.helpers++;
    pthread_attr_destroy(&detached);
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
    if (threads <= 1 || inside || pthread_mutex_trylock(&pool.owner)) { /* another caller has the helpers */
        for (int part = 0; part < parts; part++)
            work(context, part);
        return;
    }
    struct team team = {work, context, parts, 0};
    pthread_mutex_lock(&pool.lock);
    hire(threads - 1);
    pool.team = &team;
    pool.called = pool.working = pool.helpers < threads - 1 ? pool.helpers : threads - 1;
    pool.number++;
    pthread_cond_broadcast(&pool.begin);
    pthread_mutex_unlock(&pool.lock);
    run_parts(&team);
    pthread_mutex_lock(&pool.lock);
    while (pool.working)
        pthread_cond_wait(&pool.end, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.owner);
}

#endif

int tensor_threads(void) {
    return fl_threads();
}
