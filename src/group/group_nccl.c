/* group_nccl.c - the engine for NCCL, between CUDA devices: libflexlab_nccl.so. Bytes go by grouped sends and receives
 * of one communicator that does not block, on a stream of its own; they cross the device from pinned memory to pinned
 * memory. NCCL knows neither lengths nor who is missing, so each message begins with a head that says what follows. */
#include "group/group_engine.h"
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* In front of the bytes of every message. */
struct head {
    uint64_t number; /* of the exchange, from 1 */
    int64_t bytes, tag, unused;
};
enum { HEAD = sizeof(struct head), LINE = 32 /* messages begin at multiples of it */ };
enum { HOST = 256 };
enum { MOMENT = 2 /* seconds for what waits for no other rank */ };

enum stage { UNUSED, QUEUED, LAUNCHED, ENQUEUED };

/* One exchange. Kept when it is over, for another one: only the leaving rank frees memory of the device, since that
 * may wait for what runs there. */
struct flight {
    struct flight *next;
    enum stage stage;
    uint64_t number;
    int tag;
    struct fl_piece *from;
    int64_t *to;         /* bytes */
    char *host, *device; /* first all that goes out, then all that comes in */
    int64_t room, out, all;
    cudaEvent_t here;
};

struct joined {
    struct fl_group_below below;
    ncclComm_t comm;
    int rank, size, device;
    cudaStream_t stream, looking;
    struct head *seen; /* pinned: the heads of a look at what has arrived */
    uint64_t exchanges;
    struct flight *flights, *launched; /* those of an engine in order: the first to begin is the first to end */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* false: the time is over. */
static bool wait_on(double start, double seconds, int *turn) {
    if (++*turn % 64)
        return true;
    const double waited = now() - start;
    fl_group_rest(waited);
    return waited <= seconds;
}

static bool cuda(cudaError_t error, const char *call, char *why) {
    if (error != cudaSuccess)
        snprintf(why, FL_GROUP_WHY, "%s: %.300s", call, cudaGetErrorString(error));
    return error == cudaSuccess;
}

/* Of a communicator that does not block a call may go on when it returns. */
static bool nccl(ncclComm_t comm, ncclResult_t result, const char *call, char *why) {
    const char *more = result == ncclSuccess || result == ncclInProgress ? "" : ncclGetLastError(comm);
    if (result != ncclSuccess && result != ncclInProgress)
        snprintf(why, FL_GROUP_WHY, "%s: %.200s%s%.200s", call, ncclGetErrorString(result), more && *more ? ": " : "",
                 more ? more : "");
    return result == ncclSuccess || result == ncclInProgress;
}

/* What of the last call goes on. false: it failed, or the communicator has later. */
static bool is_ready(const struct joined *j, const char *call, bool *ready, char *why) {
    ncclResult_t state = ncclInProgress;
    *ready = false;
    if (!nccl(j->comm, ncclCommGetAsyncError(j->comm, &state), "ncclCommGetAsyncError", why) ||
        !nccl(j->comm, state, call, why))
        return false;
    *ready = state == ncclSuccess;
    return true;
}

static bool wait_ready(const struct joined *j, const char *call, double seconds, char *why) {
    const double start = now();
    int turn = 0;
    for (bool ready = false; is_ready(j, call, &ready, why);) {
        if (ready)
            return true;
        if (!wait_on(start, seconds, &turn)) {
            snprintf(why, FL_GROUP_WHY, "%s: not all ranks arrived after %g seconds", call, seconds);
            return false;
        }
    }
    return false;
}

/* Ends what NCCL does on the device. Ranks that wait for this one learn of it, if NCCL's connection can tell. */
static void give_up(struct joined *j) {
    if (j->comm)
        ncclCommAbort(j->comm);
    j->comm = NULL;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* What every rank tells the others by the engine below. */
struct told {
    char host[HOST], why[FL_GROUP_WHY];
    int32_t refusal, version;
    ncclUniqueId id;
};

static bool share(struct joined *j, struct told *all, int tag, char *why) {
    struct fl_piece *pieces = j->below.engine ? calloc(2 * (size_t)j->size, sizeof *pieces) : NULL;
    if (!j->below.engine)
        return true;
    if (!pieces) {
        snprintf(why, FL_GROUP_WHY, "no memory for %d ranks", j->size);
        return false;
    }
    for (int r = 0; r < j->size; r++) {
        pieces[r] = (struct fl_piece){&all[j->rank], sizeof *all};
        pieces[j->size + r] = (struct fl_piece){&all[r], sizeof *all};
    }
    void *flight = j->below.engine->begin(j->below.joined, tag, pieces, pieces + j->size, why);
    const bool shared =
        flight && j->below.engine->end(j->below.joined, flight, j->below.seconds, why) == FL_GROUP_ARRIVED;
    free(pieces);
    return shared;
}

/* The ranks of the engine below, or those of which FLEXLAB_NCCL_RANK tells, or one. */
static bool find_ranks(struct joined *j, enum fl_group_refusal *refusal, char *why) {
    const char *text = getenv("FLEXLAB_NCCL_RANK"), *place = getenv("NCCL_COMM_ID");
    int used = 0;
    j->rank = j->below.engine ? j->below.rank : 0;
    j->size = j->below.engine ? j->below.size : 1;
    if (j->below.engine || !text || !*text)
        return true;
    if (sscanf(text, "%9d/%9d%n", &j->rank, &j->size, &used) != 2 || text[used] || j->rank < 0 || j->rank >= j->size)
        snprintf(why, FL_GROUP_WHY, "FLEXLAB_NCCL_RANK: '%.40s', expected RANK/RANKS, such as 0/2 and 1/2", text);
    else if (j->size > 1 && (!place || !*place))
        snprintf(why, FL_GROUP_WHY,
                 "FLEXLAB_NCCL_RANK is %.40s, but NCCL_COMM_ID is not set, expected HOST:PORT of rank 0", text);
    else
        return true;
    *refusal = FL_GROUP_ARGUMENT;
    return false;
}

/* The device of that number among those that this process sees: of ranks on one host each takes another. */
static bool open_device(struct joined *j, int number, enum fl_group_refusal *refusal, char *why) {
    int devices = 0;
    if (!cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount", why) || !devices) {
        if (!*why)
            snprintf(why, FL_GROUP_WHY, "there is no CUDA device");
        *refusal = FL_GROUP_UNSUPPORTED;
        return false;
    }
    j->device = number % devices;
    return cuda(cudaSetDevice(j->device), "cudaSetDevice", why) &&
           cuda(cudaStreamCreateWithFlags(&j->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", why) &&
           cuda(cudaStreamCreateWithFlags(&j->looking, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", why) &&
           cuda(cudaMallocHost((void **)&j->seen, (size_t)j->size * sizeof *j->seen), "cudaMallocHost", why);
}

/* Whether the other ranks can go on, too, and by the same NCCL. */
static bool agree(const struct joined *j, const struct told *all, enum fl_group_refusal *refusal, char *why) {
    for (int r = 0; r < j->size && j->below.engine; r++)
        if (*all[r].why) {
            snprintf(why, FL_GROUP_WHY, "rank %d: %.500s", r, all[r].why);
            *refusal = (enum fl_group_refusal)all[r].refusal;
            return false;
        } else if (all[r].version != all[0].version) {
            snprintf(why, FL_GROUP_WHY, "rank 0 has NCCL %d, rank %d has %d, expected one version", all[0].version, r,
                     all[r].version);
            *refusal = FL_GROUP_UNSUPPORTED;
            return false;
        }
    return true;
}

/* Opens a device and makes the number of the communicator. *together: whether a failure is that of all ranks. */
static bool prepare(struct joined *j, struct told *all, enum fl_group_refusal *refusal, bool *together, char *why) {
    struct told *own = &all[j->rank];
    char lost[FL_GROUP_WHY];
    int before = 0;
    gethostname(own->host, HOST - 1);
    if (!share(j, all, 0, why))
        return false;
    for (int r = 0; r < j->rank; r++)
        before += !j->below.engine || !strcmp(all[r].host, own->host);
    const bool opened =
        open_device(j, before, refusal, own->why) &&
        nccl(NULL, ncclGetVersion(&own->version), "ncclGetVersion", own->why) &&
        ((j->rank && j->below.engine) || nccl(NULL, ncclGetUniqueId(&own->id), "ncclGetUniqueId", own->why));
    own->refusal = *refusal;
    *together = share(j, all, 1, lost);
    if (!opened || !*together)
        snprintf(why, FL_GROUP_WHY, "%s", opened ? lost : own->why);
    return opened && *together && agree(j, all, refusal, why);
}

/* --- exchanges ---------------------------------------------------------------------------------------------------- */

/* Bytes of a message on the device. */
static int64_t room_of(int64_t bytes) {
    return (HEAD + bytes + LINE - 1) / LINE * LINE;
}

/* The k-th of the other ranks, k = 1 ... size - 1. */
static int peer(const struct joined *j, int k) {
    return (j->rank + k) % j->size;
}

/* Room for an exchange: one that is free and large enough, or a new one. */
static struct flight *find_flight(struct joined *j, int64_t all, char *why) {
    int64_t room = all;
    for (struct flight *f = j->flights; f; f = f->next) {
        if (f->stage == UNUSED && f->room >= all)
            return f;
        room = 2 * f->room > room ? 2 * f->room : room; /* so that there are few */
    }
    struct flight *f = calloc(1, sizeof *f);
    if (!f || !(f->from = calloc((size_t)j->size, sizeof *f->from)) ||
        !(f->to = calloc((size_t)j->size, sizeof *f->to))) {
        snprintf(why, FL_GROUP_WHY, "no memory for the messages of an exchange");
        if (f)
            free(f->from);
        free(f);
        return NULL;
    }
    f->next = j->flights;
    j->flights = f;
    if (!cuda(cudaMallocHost((void **)&f->host, (size_t)room), "cudaMallocHost", why) ||
        !cuda(cudaMalloc((void **)&f->device, (size_t)room), "cudaMalloc", why) ||
        !cuda(cudaMemsetAsync(f->device, 0, (size_t)room, j->stream), "cudaMemsetAsync", why) || /* no head of before */
        !cuda(cudaEventCreateWithFlags(&f->here, cudaEventDisableTiming), "cudaEventCreateWithFlags", why))
        return NULL;
    f->room = room;
    return f;
}

static bool send_and_receive(const struct joined *j, const struct flight *f, char *why) {
    char *out = f->device, *in = f->device + f->out;
    for (int k = 1; k < j->size; k++) {
        const int r = peer(j, k);
        if (!nccl(j->comm, ncclSend(out, (size_t)(HEAD + f->to[r]), ncclUint8, r, j->comm, j->stream), "ncclSend",
                  why) ||
            !nccl(j->comm, ncclRecv(in, (size_t)(HEAD + f->from[r].bytes), ncclUint8, r, j->comm, j->stream),
                  "ncclRecv", why))
            return false;
        out += room_of(f->to[r]);
        in += room_of(f->from[r].bytes);
    }
    return true;
}

static bool launch(struct joined *j, struct flight *f, char *why) {
    char ignored[FL_GROUP_WHY];
    if (!cuda(cudaMemcpyAsync(f->device, f->host, (size_t)f->out, cudaMemcpyHostToDevice, j->stream), "cudaMemcpyAsync",
              why) ||
        !nccl(j->comm, ncclGroupStart(), "ncclGroupStart", why))
        return false;
    const bool sent = send_and_receive(j, f, why); /* a group that was begun is ended: nothing else works in it */
    const bool launched = nccl(j->comm, ncclGroupEnd(), "ncclGroupEnd", sent ? why : ignored);
    f->stage = LAUNCHED;
    j->launched = f;
    return sent && launched;
}

/* NCCL has put the messages on the stream: now something can follow them there. */
static bool enqueue(struct joined *j, struct flight *f, char *why) {
    f->stage = ENQUEUED;
    j->launched = NULL;
    return cuda(cudaMemcpyAsync(f->host + f->out, f->device + f->out, (size_t)(f->all - f->out), cudaMemcpyDeviceToHost,
                                j->stream),
                "cudaMemcpyAsync", why) &&
           cuda(cudaEventRecord(f->here, j->stream), "cudaEventRecord", why);
}

/* Takes exchanges as far as they go without waiting: while one is launched, the communicator accepts no other. */
static bool advance(struct joined *j, char *why) {
    for (;;) {
        bool ready = true;
        if (j->launched && !is_ready(j, "ncclSend and ncclRecv", &ready, why))
            return false;
        if (!ready)
            return true;
        if (j->launched && !enqueue(j, j->launched, why))
            return false;
        struct flight *first = NULL;
        for (struct flight *f = j->flights; f; f = f->next)
            if (f->stage == QUEUED && (!first || f->number < first->number))
                first = f;
        if (!first || !launch(j, first, why))
            return !first;
    }
}

static bool is_usable(const struct joined *j, char *why) {
    if (!j->comm)
        snprintf(why, FL_GROUP_WHY, "NCCL's communicator was aborted");
    return j->comm && cuda(cudaSetDevice(j->device), "cudaSetDevice", why);
}

static void drop(void *joined, void *flight) {
    struct joined *j = joined;
    struct flight *f = flight;
    give_up(j);
    if (j->launched == f)
        j->launched = NULL;
    f->stage = UNUSED;
}

static void *begin(void *joined, int tag, const struct fl_piece *to, const struct fl_piece *from,
                   char why[FL_GROUP_WHY]) {
    struct joined *j = joined;
    int64_t out = 0, all = 0;
    for (int k = 1; k < j->size; k++) {
        out += room_of(to[peer(j, k)].bytes);
        all += room_of(from[peer(j, k)].bytes);
    }
    all += out;
    struct flight *f = is_usable(j, why) ? find_flight(j, all, why) : NULL;
    if (!f) {
        give_up(j);
        return NULL;
    }
    f->number = ++j->exchanges;
    f->tag = tag;
    f->out = out;
    f->all = all;
    f->stage = QUEUED;
    char *at = f->host;
    for (int k = 1; k < j->size; k++) {
        const int r = peer(j, k);
        const struct head head = {f->number, to[r].bytes, tag, 0};
        memcpy(at, &head, HEAD);
        if (to[r].bytes)
            memcpy(at + HEAD, to[r].data, (size_t)to[r].bytes);
        at += room_of(to[r].bytes);
        f->to[r] = to[r].bytes;
        f->from[r] = from[r];
    }
    if (advance(j, why))
        return f;
    drop(j, f);
    return NULL;
}

/* --- what has arrived --------------------------------------------------------------------------------------------- */

/* Whether a message is that of this exchange. */
static bool is_expected(const struct flight *f, const struct head *head, int of, char *why) {
    if (head->number != f->number || head->tag != f->tag)
        snprintf(why, FL_GROUP_WHY, "rank %d is in another exchange: it does something else", of);
    else if (head->bytes != f->from[of].bytes)
        snprintf(why, FL_GROUP_WHY, "rank %d sent %lld bytes, expected %lld: it does something else", of,
                 (long long)head->bytes, (long long)f->from[of].bytes);
    else
        return true;
    return false;
}

static bool deliver(const struct joined *j, const struct flight *f, char *why) {
    const char *in = f->host + f->out;
    for (int k = 1; k < j->size; k++) {
        const struct fl_piece *piece = &f->from[peer(j, k)];
        struct head head;
        memcpy(&head, in, HEAD);
        if (!is_expected(f, &head, peer(j, k), why))
            return false;
        if (piece->bytes)
            memcpy(piece->data, in + HEAD, (size_t)piece->bytes);
        in += room_of(piece->bytes);
    }
    return true;
}

/* Copies the heads that are on the device, beside the stream that waits for the others. */
static bool see_heads(struct joined *j, const struct flight *f) {
    const char *in = f->device + f->out;
    const double start = now();
    cudaError_t state = cudaSuccess;
    int turn = 0;
    for (int k = 1; k < j->size && !state; k++) {
        state = cudaMemcpyAsync(&j->seen[peer(j, k)], in, HEAD, cudaMemcpyDeviceToHost, j->looking);
        in += room_of(f->from[peer(j, k)].bytes);
    }
    while (!state && (state = cudaStreamQuery(j->looking)) == cudaErrorNotReady && wait_on(start, MOMENT, &turn))
        state = cudaSuccess;
    return !state;
}

/* Adds to `why` which ranks did not arrive. false: their messages do not tell. */
static bool name_missing(struct joined *j, const struct flight *f, char *why) {
    size_t used = strlen(why);
    int missing = 0;
    if (f->stage != ENQUEUED || !see_heads(j, f))
        return false;
    for (int r = 0; r < j->size; r++)
        if (r != j->rank && j->seen[r].number != f->number && used < FL_GROUP_WHY - 40)
            used +=
                (size_t)snprintf(why + used, FL_GROUP_WHY - used, "%s %d", missing++ ? "," : " nothing from rank", r);
    for (int r = 0; r < j->size && !missing; r++)
        missing = r != j->rank && !is_expected(f, &j->seen[r], r, why);
    return missing;
}

/* Whether all is in memory of the host. */
static bool look(const struct joined *j, const struct flight *f, bool *arrived, char *why) {
    const cudaError_t state = cudaEventQuery(f->here);
    bool ignored;
    *arrived = state == cudaSuccess;
    return *arrived || (state == cudaErrorNotReady ? j->launched || is_ready(j, "ncclSend and ncclRecv", &ignored, why)
                                                   : cuda(state, "cudaEventQuery", why));
}

static enum fl_group_state wait_for(struct joined *j, struct flight *f, double seconds, char *why) {
    const double start = now();
    bool arrived = false;
    int turn = 0;
    if (!is_usable(j, why))
        return FL_GROUP_LOST;
    for (;;) {
        if (!advance(j, why))
            return FL_GROUP_LOST;
        if (f->stage == ENQUEUED && !look(j, f, &arrived, why)) {
            const size_t end = strlen(why);
            snprintf(why + end, FL_GROUP_WHY - end, ";");
            if (!name_missing(j, f, why))
                why[end] = '\0';
            return FL_GROUP_LOST;
        }
        if (arrived)
            return deliver(j, f, why) ? FL_GROUP_ARRIVED : FL_GROUP_LOST;
        if (seconds <= 0)
            return FL_GROUP_UNDER_WAY;
        if (!wait_on(start, seconds, &turn)) {
            snprintf(why, FL_GROUP_WHY, "after %g seconds", seconds);
            if (!name_missing(j, f, why))
                snprintf(why, FL_GROUP_WHY, "after %g seconds not all has arrived, and NCCL does not tell from whom",
                         seconds);
            return FL_GROUP_LOST;
        }
    }
}

static enum fl_group_state end(void *joined, void *flight, double seconds, char why[FL_GROUP_WHY]) {
    struct flight *f = flight;
    const enum fl_group_state state = wait_for(joined, f, seconds, why);
    if (state == FL_GROUP_LOST)
        drop(joined, f);
    else if (state == FL_GROUP_ARRIVED)
        f->stage = UNUSED;
    return state;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Frees the memory. That of the device stays after a failure: freeing it may wait for what still runs there. */
static void release(struct joined *j, bool failed) {
    for (struct flight *f = j->flights, *next; f; f = next) {
        next = f->next;
        if (!failed) {
            cudaEventDestroy(f->here);
            cudaFree(f->device);
            cudaFreeHost(f->host);
        }
        free(f->from);
        free(f->to);
        free(f);
    }
    if (!failed) {
        cudaFreeHost(j->seen);
        cudaStreamDestroy(j->looking);
        cudaStreamDestroy(j->stream);
    }
    free(j);
}

/* Joins the communicator, and sends heads alone once: then NCCL's connections exist. */
static bool connect(struct joined *j, const struct told *all, char *why) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (!nccl(NULL, ncclCommInitRankConfig(&j->comm, j->size, all[j->below.engine ? 0 : j->rank].id, j->rank, &config),
              "ncclCommInitRankConfig", why) ||
        !wait_ready(j, "ncclCommInitRankConfig", j->below.seconds, why))
        return false;
    if (j->size == 1)
        return true;
    struct fl_piece *none = calloc((size_t)j->size, sizeof *none);
    if (!none)
        snprintf(why, FL_GROUP_WHY, "no memory for %d ranks", j->size);
    void *flight = none ? begin(j, 0, none, none, why) : NULL;
    const bool connected = flight && end(j, flight, j->below.seconds, why) == FL_GROUP_ARRIVED;
    free(none);
    return connected;
}

static void *join(int started, const struct fl_communicator *brought, int *rank, int *size,
                  enum fl_group_refusal *refusal, char why[FL_GROUP_WHY]) {
    struct joined *j = calloc(1, sizeof *j);
    bool together = false;
    (void)started;
    *refusal = FL_GROUP_BROKEN;
    *why = '\0';
    if (!j) {
        snprintf(why, FL_GROUP_WHY, "no memory");
        return NULL;
    }
    memcpy(&j->below, brought->handle, sizeof j->below);
    struct told *all = find_ranks(j, refusal, why) ? calloc((size_t)j->size, sizeof *all) : NULL;
    if (!all && !*why)
        snprintf(why, FL_GROUP_WHY, "no memory for %d ranks", j->size);
    const bool prepared = all && prepare(j, all, refusal, &together, why);
    if (prepared && connect(j, all, why)) {
        free(all);
        *rank = j->rank;
        *size = j->size;
        return j;
    }
    if (together) /* else the engine below may still write there */
        free(all);
    if (j->below.engine && (prepared || !together)) /* the others wait for what this rank does */
        *refusal = FL_GROUP_ALONE;
    give_up(j);
    release(j, true);
    return NULL;
}

static void end_all(void *joined) {
    const struct joined *j = joined;
    if (j->below.engine)
        j->below.engine->abort(j->below.joined);
    _Exit(1);
}

static void leave(void *joined, bool failed) {
    struct joined *j = joined;
    const struct fl_group_below below = j->below;
    char ignored[FL_GROUP_WHY]; /* all bytes have arrived: nothing is lost */
    const bool ended = !failed && is_usable(j, ignored) &&
                       nccl(j->comm, ncclCommFinalize(j->comm), "ncclCommFinalize", ignored) &&
                       wait_ready(j, "ncclCommFinalize", below.seconds, ignored);
    if (ended)
        ncclCommDestroy(j->comm);
    else
        give_up(j);
    release(j, !ended);
    if (below.engine)
        below.engine->leave(below.joined, failed);
}

static const struct fl_group_engine engine = {FL_GROUP_ENGINE, join, begin, end, drop, end_all, leave, true};

__attribute__((visibility("default"))) const struct fl_group_engine *fl_group_engine_v3(void);
const struct fl_group_engine *fl_group_engine_v3(void) {
    return &engine;
}
