/* parallel.c - threads: helpers that wait for the next team. They are started when a team first needs them, live as
 * long as the process and may run on every processor but the caller's (docs/decisions/0007-dispatch.md). They are the
 * library's own in every build: an OpenMP runtime ends the process where the system refuses a thread, and hangs in the
 * child of a fork. OpenMP, if built in, gives the number of threads and whether the caller is in a parallel region of
 * its own. The shared library stays loaded (nodelete, cmake/library.cmake): its threads outlive a dlclose. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "core/base/parallel.h"
#include "core/base/fail.h"
#include "core/base/verbose.h"
#include "flexlab/tensor.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef FL_OPENMP
#include <omp.h>
#endif

enum {
    NOTICE = 160,
    SPIN = 2000,  /* polls of a waiting thread before it sleeps: some 50 to 100 us */
    ALONE = 30000 /* nanoseconds of work that waking another thread and waiting for it may cost */
};

struct team {
    fl_part work;
    void *context;
    int parts;
    atomic_int next;
};

static _Thread_local int inside;

/* Helpers wait for the next team. Those up to `called` may join it while it is open; the caller waits for those that
 * joined, never for one that the system has not let run. Waiting threads poll `number` and `working` for a while before
 * they take the lock and sleep. */
struct pool {
    pthread_mutex_t owner; /* held by the caller whose team runs */
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t begin, end;
    struct team *team;           /* NULL: none is open */
    atomic_uint_fast64_t number; /* of the latest team: counts up */
    atomic_int working;          /* helpers that joined and are not done */
    int helpers, called;
    pthread_t threads[FL_MAX_THREADS]; /* of the helpers */
    int apart;                         /* of the helpers: the first ones, which are kept off `processor` */
    int processor;                     /* of the latest caller; -1: none */
    cpu_set_t permitted;               /* to the latest caller */
};
#define NEW_POOL                                                                                                       \
    {                                                                                                                  \
        .owner = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .begin = PTHREAD_COND_INITIALIZER,      \
        .end = PTHREAD_COND_INITIALIZER, .processor = -1                                                               \
    }
static struct pool pool = NEW_POOL;

static atomic_int wanted;                /* by tensor_set_threads; 0: the default */
static atomic_int most = FL_MAX_THREADS; /* threads that the system granted, once it has refused one */
static int spin;                         /* polls before a thread sleeps */
static cpu_set_t permitted;              /* processors of the thread that began */
static int processors, environment; /* processors that this process may use; the number in OMP_NUM_THREADS, 0: none */
static char environment_text[32];   /* OMP_NUM_THREADS if it is no number of threads, else "" */
static bool fork_is_seen;           /* otherwise a child would wait for helpers that it does not have */
static pthread_once_t begun = PTHREAD_ONCE_INIT;

/* --- how many --- */

/* 1 to FL_MAX_THREADS; 0 for anything else. Of a list, which has a number for each level of nesting, the first counts.
 */
static int threads_of(const char *text) {
    char *end;
    const long n = strtol(text, &end, 10);
    return end != text && (*end == 0 || *end == ',' || *end == ' ') && n >= 1 && n <= FL_MAX_THREADS ? (int)n : 0;
}

static int count_processors(void) {
    const bool unknown = sched_getaffinity(0, sizeof permitted, &permitted);
    const long n = unknown ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&permitted);
    return n < 1 ? 1 : n > FL_MAX_THREADS ? FL_MAX_THREADS : (int)n;
}

static void forked(void);

/* Writes why OMP_NUM_THREADS does not count. */
static void say_environment(char *text, size_t size) {
    snprintf(text, size, "OMP_NUM_THREADS=%s is not a number from 1 to %d: %d threads, one for each processor",
             environment_text, FL_MAX_THREADS, processors);
}

/* Writes one line to stderr under FLEXLAB_VERBOSE=1. */
static void tell(const char *text) {
    if (fl_verbose())
        fprintf(stderr, "flexlab: %s\n", text);
}

static void begin(void) {
    const char *text = getenv("OMP_NUM_THREADS"), *policy = getenv("OMP_WAIT_POLICY");
    processors = count_processors();
    environment = text ? threads_of(text) : 0;
    spin = policy && (*policy == 'p' || *policy == 'P') ? 0 : SPIN;
    fork_is_seen = !pthread_atfork(NULL, NULL, forked);
    if (text && *text && !environment) {
        char notice[NOTICE];
        snprintf(environment_text, sizeof environment_text, "%s", text);
        say_environment(notice, sizeof notice);
        tell(notice);
    }
}

static int threads_by_default(void) {
    if (environment_text[0])
        return processors;
#ifdef FL_OPENMP
    const int n = omp_get_max_threads(); /* the program may have changed it */
    return n < 1 ? 1 : n > FL_MAX_THREADS ? FL_MAX_THREADS : n;
#else
    return environment ? environment : processors;
#endif
}

static int threads_asked_for(void) {
    pthread_once(&begun, begin);
    const int n = atomic_load_explicit(&wanted, memory_order_relaxed);
    return n ? n : threads_by_default();
}

int fl_threads(void) {
    const int n = threads_asked_for(), given = atomic_load_explicit(&most, memory_order_relaxed);
    return n < given ? n : given;
}

int tensor_threads(void) {
    return fl_threads();
}

tensor_status tensor_set_threads(int threads) {
    if (threads < 0 || threads > FL_MAX_THREADS)
        return fl_fail(TENSOR_E_ARGUMENT, "set_threads: %d threads, expected 0 (default) to %d", threads,
                       FL_MAX_THREADS);
    pthread_once(&begun, begin);
    atomic_store(&wanted, threads);
    atomic_store(&most, FL_MAX_THREADS); /* the system may grant more now */
    return TENSOR_OK;
}

const char *tensor_threads_notice(void) {
    static _Thread_local char text[NOTICE];
    const int asked = threads_asked_for(), given = atomic_load(&most);
    text[0] = 0;
    if (given < asked)
        snprintf(text, sizeof text, "the system refused threads: %d of %d run", given, asked);
    else if (environment_text[0] && !atomic_load(&wanted))
        say_environment(text, sizeof text);
    return text;
}

/* --- teams --- */

static void run_parts(struct team *team, int worker) {
    inside = 1;
    for (int part; (part = atomic_fetch_add(&team->next, 1)) < team->parts;)
        team->work(team->context, part, worker);
    inside = 0;
}

static inline void look_again(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void *help(void *pointer) {
    const int me = (int)(intptr_t)pointer;
    uint64_t seen = 0;
    for (;;) {
        for (int i = 0; i < spin && atomic_load_explicit(&pool.number, memory_order_relaxed) == seen; i++)
            look_again();
        pthread_mutex_lock(&pool.lock);
        while (pool.number == seen || !pool.team || me >= pool.called) {
            seen = pool.number;
            pthread_cond_wait(&pool.begin, &pool.lock);
        }
        seen = pool.number;
        struct team *team = pool.team;
        pool.working++;
        pthread_mutex_unlock(&pool.lock);
        run_parts(team, me + 1);
        pthread_mutex_lock(&pool.lock);
        if (--pool.working == 0)
            pthread_cond_signal(&pool.end);
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

/* Starts helpers until there are `count`, or the system refuses one; fewer threads change only the time. After a
 * refusal it starts no more until tensor_set_threads is called. */
static void hire(int count) {
    pthread_attr_t detached;
    if (pthread_attr_init(&detached))
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (pool.helpers < count &&
           !pthread_create(&pool.threads[pool.helpers], &detached, help, (void *)(intptr_t)pool.helpers))
        pool.helpers++;
    pthread_attr_destroy(&detached);
    if (pool.helpers < count) {
        atomic_store(&most, pool.helpers + 1);
        if (fl_verbose())
            tell(tensor_threads_notice());
    }
}

static bool alone(int threads) {
#ifdef FL_OPENMP
    if (omp_in_parallel())
        return true;
#endif
    return threads <= 1 || inside || !fork_is_seen;
}

static void run_alone(int first, int parts, fl_part work, void *context) {
    for (int part = first; part < parts; part++)
        work(context, part, 0);
}

/* A helper on the caller's processor would only take the caller's time. Linux wakes a thread on the processor of the
 * one that wakes it if others have been busy lately, idle as they may be now, lets it wait there for some milliseconds,
 * and does not move what soon sleeps again. The helpers of a team may use the caller's other processors, or those of
 * the thread that began if the caller has one alone. A mask that the system refuses changes only the time. */
static void keep_helpers_off(void) {
    const int processor = sched_getcpu();
    cpu_set_t caller;
    if (processor < 0 || sched_getaffinity(0, sizeof caller, &caller))
        return;
    if (processor != pool.processor || !CPU_EQUAL(&caller, &pool.permitted))
        pool.apart = 0;
    pool.processor = processor;
    pool.permitted = caller;
    cpu_set_t others = CPU_COUNT(&caller) < 2 ? permitted : caller;
    CPU_CLR(processor, &others);
    for (; CPU_COUNT(&others) > 0 && pool.apart < pool.called; pool.apart++)
        pthread_setaffinity_np(pool.threads[pool.apart], sizeof others, &others);
}

static void open_team(struct team *team, int helpers) {
    pthread_mutex_lock(&pool.lock);
    hire(helpers);
    pool.called = pool.helpers < helpers ? pool.helpers : helpers;
    keep_helpers_off();
    pool.team = team;
    pool.number++;
    pthread_cond_broadcast(&pool.begin);
    pthread_mutex_unlock(&pool.lock);
}

/* Every part has been taken, so no more helpers may join. */
static void close_team(void) {
    pthread_mutex_lock(&pool.lock);
    pool.team = NULL;
    const bool done = !pool.working;
    pthread_mutex_unlock(&pool.lock);
    if (done)
        return;
    for (int i = 0; i < spin && atomic_load_explicit(&pool.working, memory_order_relaxed); i++)
        look_again();
    pthread_mutex_lock(&pool.lock);
    while (pool.working)
        pthread_cond_wait(&pool.end, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* Parts first ... parts - 1. */
static void run_team(int first, int workers, int parts, fl_part work, void *context) {
    const int threads = workers < parts - first ? workers : parts - first;
    if (alone(threads) || pthread_mutex_trylock(&pool.owner)) { /* another caller has the helpers */
        run_alone(first, parts, work, context);
        return;
    }
    struct team team = {work, context, parts, first};
    open_team(&team, threads - 1);
    run_parts(&team, 0);
    close_team();
    pthread_mutex_unlock(&pool.owner);
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Runs the first parts on this thread while the remaining ones are expected to take less than ALONE; returns how many
 * it ran. */
static int run_first(int parts, fl_part work, void *context) {
    const int64_t begin = nanoseconds();
    int done = 0;
    inside = 1;
    do
        work(context, done++, 0);
    while (done < parts && (nanoseconds() - begin) * (parts - done) < (int64_t)ALONE * done);
    inside = 0;
    return done;
}

void fl_parallel_within(int workers, int parts, fl_part work, void *context) {
    int first = 0;
    if (!alone(workers < parts ? workers : parts))
        first = run_first(parts, work, context);
    run_team(first, workers, parts, work, context);
}

void fl_parallel_large(int workers, int parts, fl_part work, void *context) {
    run_team(0, workers, parts, work, context);
}

void fl_parallel(int parts, fl_part work, void *context) {
    fl_parallel_within(fl_threads(), parts, work, context);
}

/* --- the child of a fork: it has the thread that forked, and none of the helpers --- */

static atomic_int forks;

static void forked(void) {
    pool = (struct pool)NEW_POOL;
    atomic_fetch_add(&forks, 1);
}

int fl_fork_number(void) {
    pthread_once(&begun, begin);
    return atomic_load(&forks);
}
