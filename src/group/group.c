/* group.c - groups of ranks: the engines, and what is built on their one operation. */
#define _GNU_SOURCE /* gethostname */
#include "group/group.h"
#include "core/base/fail.h"
#include "core/base/hash.h"
#include "core/base/memory.h"
#include "core/base/plugin.h"
#include "core/base/text.h"
#include "core/tensor/device.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct nn_group {
    const struct fl_group_engine *engine; /* NULL: "none" */
    void *joined;
    int rank, size;
    int place; /* among the ranks of its host */
    double timeout;
    bool knows;  /* all ranks know of a failure (fl_group_all) */
    bool failed; /* a move failed: the ranks are out of step, and the engine cannot end in good order */
    char cause[FL_GROUP_WHY];
    nn_group_statistics statistics;
    uint64_t moves;             /* one after the other: they give each its tag */
    int flights;                /* exchanges under way beside them */
    double flying_since;        /* without a break */
    struct fl_piece *to, *from; /* room for a piece of each rank */
};

static const struct fl_plugin mpi = {"libflexlab_mpi.so", "FLEXLAB_MPI_LIBRARY", "engine for MPI", true};
static const struct fl_plugin nccl = {"libflexlab_nccl.so", "FLEXLAB_NCCL_LIBRARY", "engine for NCCL", false};
enum { USUAL_TIMEOUT = 30, MOST_TIMEOUT = 1000000 };

/* --- life --------------------------------------------------------------------------------------------------------- */

static const struct fl_group_engine *find_engine(const struct fl_plugin *plugin, char *why, size_t bytes) {
    void *library = fl_plugin_open(plugin, why, bytes);
    fl_group_engine_function function;
    void *symbol = library ? dlsym(library, FL_GROUP_ENGINE_SYMBOL) : NULL;
    memcpy(&function, &symbol, sizeof function);
    const struct fl_group_engine *engine = function ? function() : NULL;
    if (library && (!engine || engine->version != FL_GROUP_ENGINE))
        snprintf(why, bytes, "the %s is of another version: interface %d, expected %d", plugin->what,
                 engine ? engine->version : 0, FL_GROUP_ENGINE);
    return engine && engine->version == FL_GROUP_ENGINE ? engine : NULL;
}

static tensor_status take_timeout(double *timeout) {
    const char *text = getenv("FLEXLAB_GROUP_TIMEOUT");
    char *rest;
    *timeout = USUAL_TIMEOUT;
    if (!text || !*text)
        return TENSOR_OK;
    *timeout = fl_to_real(text, &rest);
    return rest != text && !*rest && *timeout > 0 && *timeout <= MOST_TIMEOUT
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "FLEXLAB_GROUP_TIMEOUT: '%.40s', expected seconds, above 0 and at most %d",
                         text, MOST_TIMEOUT);
}

/* PMIx tells a process its own number alone, Slurm that of all beside it; mpirun in a step of Slurm leaves the number
 * of the step, which is not that of its ranks. */
static int find_started(void) { /* by Open MPI; by MPICH, Intel MPI, Slurm with PMI-2 and others */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    bool told = !getenv("PMIX_RANK");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        told = told || text;
        if (text && atoi(text) > 1)
            return atoi(text);
    }
    const char *of_step = told ? NULL : getenv("SLURM_STEP_NUM_TASKS");
    return of_step && atoi(of_step) > 1 ? atoi(of_step) : 1;
}

int nn_group_started(void) {
    static int started; /* Open MPI, when it begins, changes what is told */
    if (!started)
        started = find_started();
    return started;
}

/* Ranks of a host have the same name of it. */
static tensor_status find_place(nn_group *g) {
    enum { NAME = 256 };
    char *names = fl_alloc_zero((size_t)g->size * NAME);
    if (!names)
        return fl_fail(TENSOR_E_MEMORY, "group: no memory for %d ranks", g->size);
    char *const own = names + (ptrdiff_t)g->rank * NAME;
    if (gethostname(own, NAME - 1))
        *own = '\0';
    const tensor_status status = fl_group_share(g, "the hosts of all ranks", names, NAME);
    for (int r = 0; r < g->rank && !status; r++)
        g->place += !strcmp(names + (ptrdiff_t)r * NAME, own);
    fl_group_free_memory(g, names);
    g->statistics = (nn_group_statistics){0}; /* they count what the group is used for */
    return status;
}

/* The first cause stays. */
static void mark_failed(nn_group *g, const char *what, const char *why) {
    if (!g->failed)
        snprintf(g->cause, sizeof g->cause, "rank %d of %d, %s: %.400s", g->rank, g->size, what, why);
    g->failed = true;
}

/* On failure the group is that of the engine before. */
static tensor_status join_engine(nn_group *g, const struct fl_plugin *plugin, const struct fl_communicator *brought) {
    char why[FL_GROUP_WHY];
    enum fl_group_refusal refusal = FL_GROUP_BROKEN;
    const struct fl_group_engine *engine = find_engine(plugin, why, sizeof why);
    if (!engine)
        return fl_fail(TENSOR_E_UNSUPPORTED, "group: %s", why);
    void *joined = engine->join(nn_group_started(), brought, &g->rank, &g->size, &refusal, why);
    if (!joined) {
        if (refusal == FL_GROUP_ALONE)
            mark_failed(g, "joining", why);
        return fl_fail(refusal == FL_GROUP_UNSUPPORTED ? TENSOR_E_UNSUPPORTED
                       : refusal == FL_GROUP_ARGUMENT  ? TENSOR_E_ARGUMENT
                                                       : TENSOR_E_DEVICE,
                       "group: %s", why);
    }
    g->engine = engine;
    g->joined = joined;
    return TENSOR_OK;
}

/* The ranks of this group, or without an engine those of the environment. */
static tensor_status join_nccl(nn_group *g) {
    const struct fl_group_below below = {g->engine, g->joined, g->rank, g->size, g->timeout};
    return join_engine(g, &nccl, &(struct fl_communicator){&below, sizeof below, FL_GROUP_BELOW});
}

/* The ranks of NCCL find each other by MPI where mpirun has started them, unless the environment numbers them. */
static tensor_status start_nccl(nn_group *g) {
    char why[FL_GROUP_WHY];
    const char *numbered = getenv("FLEXLAB_NCCL_RANK");
    if (nn_group_started() == 1 || (numbered && *numbered))
        return join_nccl(g);
    if (!find_engine(&nccl, why, sizeof why)) /* before MPI begins, for which others would wait at its end */
        return fl_fail(TENSOR_E_UNSUPPORTED, "group: %s", why);
    TRY(join_engine(g, &mpi, NULL));
    const tensor_status status = join_nccl(g);
    if (g->failed) /* the others wait for what this process does: it says why and ends, and MPI ends them */
        g->joined = NULL;
    return status;
}

static tensor_status join(nn_group *g, const char *name, const struct fl_communicator *brought) {
    g->size = 1;
    TRY(take_timeout(&g->timeout));
    if (strcmp(name, "none") != 0)
        TRY(!strcmp(name, "nccl") ? start_nccl(g) : join_engine(g, &mpi, brought));
    g->to = fl_alloc_zero((size_t)g->size * sizeof *g->to);
    g->from = fl_alloc_zero((size_t)g->size * sizeof *g->from);
    return g->to && g->from ? find_place(g) : fl_fail(TENSOR_E_MEMORY, "group: no memory for %d ranks", g->size);
}

static nn_group *new_group(const char *engine, const struct fl_communicator *brought) {
    nn_group *g = fl_alloc_zero(sizeof *g);
    if (!g) {
        fl_fail(TENSOR_E_MEMORY, "group: no memory");
        return NULL;
    }
    if (!join(g, engine, brought))
        return g;
    nn_group_free(g);
    return NULL;
}

nn_group *nn_group_new(const char *engine) {
    if (!engine || (strcmp(engine, "none") != 0 && strcmp(engine, "mpi") != 0 && strcmp(engine, "nccl") != 0)) {
        fl_fail(TENSOR_E_ARGUMENT, "group: engine '%.40s', expected none, mpi or nccl", engine ? engine : "NULL");
        return NULL;
    }
    return new_group(engine, NULL);
}

nn_group *nn_group_from_handle(const void *communicator, size_t bytes, const char *kind) {
    if (!communicator || !kind) {
        fl_fail(TENSOR_E_ARGUMENT, "group: the %s is NULL", communicator ? "kind of MPI" : "communicator");
        return NULL;
    }
    return new_group("mpi", &(struct fl_communicator){communicator, bytes, kind});
}

tensor_status nn_group_set_engine(nn_group *g, const char *engine) {
    if (!g || !engine || strcmp(engine, "nccl") != 0)
        return fl_fail(TENSOR_E_ARGUMENT, g ? "group: engine '%.40s', expected nccl" : "group: the group is NULL",
                       engine ? engine : "NULL");
    if (g->failed)
        return fl_fail(TENSOR_E_DEVICE, "%s", g->cause);
    if (!g->engine || g->engine->in_order || g->flights)
        return fl_fail(TENSOR_E_ARGUMENT, "group: engine 'nccl' for a group %s, expected one of engine 'mpi'",
                       !g->engine   ? "of engine 'none'"
                       : g->flights ? "within a step"
                                    : "that has it");
    return join_nccl(g);
}

void nn_group_free(nn_group *g) {
    if (!g)
        return;
    if (g->joined)
        g->engine->leave(g->joined, g->failed);
    fl_free(g->to);
    fl_free(g->from);
    fl_free(g);
}

int nn_group_rank(const nn_group *g) {
    return g ? g->rank : 0;
}

int nn_group_size(const nn_group *g) {
    return g ? g->size : 1;
}

tensor_device *nn_group_device(const nn_group *g, const char *name) {
    return fl_device_find(name, g ? g->place : 0);
}

tensor_status nn_group_set_timeout(nn_group *g, double seconds) {
    if (!g || !(seconds > 0 && seconds <= MOST_TIMEOUT))
        return fl_fail(TENSOR_E_ARGUMENT,
                       g ? "group: a timeout of %g, expected seconds, above 0 and at most %d"
                         : "group: the group is NULL",
                       seconds, MOST_TIMEOUT);
    g->timeout = seconds;
    return TENSOR_OK;
}

void nn_group_abort(nn_group *g, const char *message) {
    fprintf(stderr, "flexlab: rank %d of %d: %s\n", nn_group_rank(g), nn_group_size(g), message ? message : "aborted");
    fflush(stderr);
    if (g && g->joined)
        g->engine->abort(g->joined);
    _Exit(1);
}

tensor_status nn_group_statistics_of(nn_group_statistics *now, const nn_group *g) {
    if (!now || !g)
        return fl_fail(TENSOR_E_ARGUMENT, "group: %s is NULL", g ? "now" : "the group");
    *now = g->statistics;
    return TENSOR_OK;
}

/* --- moving bytes ------------------------------------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tensor_status lose(nn_group *g, const char *what, const char *why) {
    mark_failed(g, what, why);
    return fl_fail(TENSOR_E_DEVICE, "%s", g->cause);
}

/* Time in which bytes are under way counts as overlapped, less what is waited for them. */
static void count_flights(nn_group *g, int more) {
    if (!g->flights)
        g->flying_since = now();
    g->flights += more;
    if (!g->flights)
        g->statistics.overlapped += now() - g->flying_since;
}

static tensor_status begin(nn_group *g, struct fl_flight *f, const char *what, int tag, const struct fl_piece *to,
                           const struct fl_piece *from) {
    char why[FL_GROUP_WHY];
    const int own = nn_group_rank(g);
    *f = (struct fl_flight){.of_engine = NULL};
    if (to[own].bytes && to[own].data != from[own].data)
        memcpy(from[own].data, to[own].data, (size_t)to[own].bytes);
    if (nn_group_size(g) == 1)
        return TENSOR_OK;
    if (g->failed)
        return fl_fail(TENSOR_E_DEVICE, "%s", g->cause);
    snprintf(f->what, sizeof f->what, "%s", what);
    if (!(f->of_engine = g->engine->begin(g->joined, tag, to, from, why)))
        return lose(g, what, why);
    for (int r = 0; r < g->size; r++) {
        f->sent += r != own ? to[r].bytes : 0;
        f->received += r != own ? from[r].bytes : 0;
    }
    g->statistics.calls++;
    return TENSOR_OK;
}

static tensor_status end(nn_group *g, struct fl_flight *f, double seconds, bool *arrived) {
    char why[FL_GROUP_WHY];
    *arrived = true;
    if (!f->of_engine)
        return TENSOR_OK;
    const enum fl_group_state state = g->engine->end(g->joined, f->of_engine, seconds, why);
    *arrived = state == FL_GROUP_ARRIVED;
    if (state == FL_GROUP_UNDER_WAY)
        return TENSOR_OK;
    f->of_engine = NULL;
    if (state == FL_GROUP_LOST)
        return lose(g, f->what, why);
    g->statistics.sent += f->sent;
    g->statistics.received += f->received;
    return TENSOR_OK;
}

static tensor_status move(nn_group *g, double seconds, const char *what, const struct fl_piece *to,
                          const struct fl_piece *from) {
    struct fl_flight flight;
    bool arrived;
    const double start = now();
    TRY(begin(g, &flight, what, g ? (int)(g->moves++ % FL_GROUP_CHANNELS) : 0, to, from));
    if (!flight.of_engine)
        return TENSOR_OK;
    const tensor_status status = end(g, &flight, seconds, &arrived);
    g->statistics.waited += now() - start;
    return status;
}

tensor_status fl_group_move(nn_group *g, const char *what, const struct fl_piece *to, const struct fl_piece *from) {
    return move(g, g ? g->timeout : 0, what, to, from);
}

tensor_status fl_group_begin(nn_group *g, struct fl_flight *flight, const char *what, int channel,
                             const struct fl_piece *to, const struct fl_piece *from) {
    TRY(begin(g, flight, what, FL_GROUP_CHANNELS + channel, to, from));
    if (flight->of_engine)
        count_flights(g, 1);
    return TENSOR_OK;
}

tensor_status fl_group_end(nn_group *g, struct fl_flight *flight, bool waits, bool *arrived) {
    *arrived = true;
    if (!flight->of_engine)
        return TENSOR_OK;
    const double start = now();
    const tensor_status status = end(g, flight, waits ? g->timeout : 0, arrived);
    if (waits) {
        g->statistics.waited += now() - start;
        g->statistics.overlapped -= now() - start;
    }
    if (*arrived || status)
        count_flights(g, -1);
    return status;
}

void fl_group_drop(nn_group *g, struct fl_flight *flight) {
    if (!flight->of_engine)
        return;
    g->engine->drop(g->joined, flight->of_engine);
    flight->of_engine = NULL;
    count_flights(g, -1);
    mark_failed(g, flight->what, "this rank has failed while they were under way");
}

void fl_group_free_memory(const nn_group *g, void *memory) {
    if (!g || !g->failed)
        fl_free(memory);
}

bool fl_group_is_in_order(const nn_group *g) {
    return g->engine->in_order;
}

static tensor_status gather(nn_group *g, double seconds, const char *what, const struct fl_piece *part) {
    for (int r = 0; r < g->size; r++)
        g->to[r] = part[g->rank];
    return move(g, seconds, what, g->to, part);
}

static tensor_status share(nn_group *g, double seconds, const char *what, void *all, int64_t bytes) {
    for (int r = 0; r < g->size; r++)
        g->from[r] = (struct fl_piece){(char *)all + r * bytes, bytes};
    return gather(g, seconds, what, g->from);
}

tensor_status fl_group_gather(nn_group *g, const char *what, const struct fl_piece *part) {
    return g ? gather(g, g->timeout, what, part) : TENSOR_OK;
}

tensor_status fl_group_share(nn_group *g, const char *what, void *all, int64_t bytes) {
    return g ? share(g, g->timeout, what, all, bytes) : TENSOR_OK;
}

tensor_status nn_group_worst(nn_group *g, int32_t own, int32_t *first, int32_t *largest) {
    if (!g || !first || !largest)
        return fl_fail(TENSOR_E_ARGUMENT, "group: %s is NULL", g ? "a result" : "the group");
    int32_t *all = fl_alloc_zero((size_t)g->size * sizeof *all);
    if (!all)
        return fl_fail(TENSOR_E_MEMORY, "group: no memory for %d ranks", g->size);
    all[g->rank] = own;
    const tensor_status status = fl_group_share(g, "the numbers of all ranks", all, sizeof *all);
    *first = status ? own : all[0];
    *largest = own;
    for (int r = 0; r < g->size && !status; r++)
        *largest = all[r] > *largest ? all[r] : *largest;
    fl_group_free_memory(g, all);
    return status;
}

/* --- what all ranks must agree on --------------------------------------------------------------------------------- */

enum { SHOWN = 900 };
struct side {
    uint64_t hash, bytes;
    char text[SHOWN];
};

static int word_at(const char *text) {
    return (int)strcspn(text, " ");
}

tensor_status fl_group_agree(nn_group *g, const char *what, const char *text) {
    const int size = nn_group_size(g);
    if (size == 1)
        return TENSOR_OK;
    struct side *sides = fl_alloc_zero((size_t)size * sizeof *sides);
    if (!sides)
        return fl_fail(TENSOR_E_MEMORY, "group: no memory for %d ranks", size);
    struct side *own = &sides[g->rank];
    own->bytes = strlen(text);
    own->hash = fl_hash(FL_HASH, text, own->bytes);
    snprintf(own->text, sizeof own->text, "%s", text);
    tensor_status status = fl_group_share(g, what, sides, sizeof *sides);
    for (int r = 1; r < size && !status; r++)
        if (sides[r].hash != sides[0].hash || sides[r].bytes != sides[0].bytes) {
            size_t at = 0; /* the first word in which they differ */
            while (sides[0].text[at] && sides[0].text[at] == sides[r].text[at])
                at++;
            while (at && sides[0].text[at - 1] != ' ')
                at--;
            status = fl_fail(TENSOR_E_ARGUMENT, "ranks differ in %s: rank 0 has '%.*s', rank %d '%.*s'", what,
                             word_at(sides[0].text + at), sides[0].text + at, r, word_at(sides[r].text + at),
                             sides[r].text + at);
        }
    fl_group_free_memory(g, sides);
    return status;
}

struct outcome {
    int32_t status;
    char message[SHOWN];
};

void fl_group_fresh(nn_group *g) {
    if (g)
        g->knows = false;
}

static tensor_status all_of(nn_group *g, double patience, const char *what, tensor_status status) {
    const int size = nn_group_size(g);
    if (size == 1 || (g->knows && status))
        return status;
    if (g->failed)
        return status ? status : fl_fail(TENSOR_E_DEVICE, "%s", g->cause);
    struct outcome *all = fl_alloc_zero((size_t)size * sizeof *all);
    if (!all)
        nn_group_abort(g, "no memory for the outcomes of the ranks");
    all[g->rank].status = status;
    snprintf(all[g->rank].message, SHOWN, "%s", status ? tensor_error() : "");
    const tensor_status shared = share(g, patience * g->timeout, what, all, sizeof *all);
    int first = 0;
    while (!shared && first < size && !all[first].status)
        first++;
    const tensor_status found =
        shared          ? shared
        : first == size ? TENSOR_OK
        : status        ? status
                        : fl_fail((tensor_status)all[first].status, "rank %d: %s", first, all[first].message);
    fl_group_free_memory(g, all);
    g->knows = found != TENSOR_OK;
    return found;
}

tensor_status fl_group_all(nn_group *g, const char *what, tensor_status status) {
    return all_of(g, 1, what, status);
}

tensor_status fl_group_await(nn_group *g, const char *what, tensor_status status) {
    return all_of(g, 10, what, status);
}
