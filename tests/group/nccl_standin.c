/* nccl_standin.c - what group_nccl.c calls of NCCL and of CUDA's runtime, for processes of one machine without a GPU,
 * in the place of both libraries (test_nccl.py). Bytes go through sockets. It is strict where they are: a stream's work
 * is done by a thread, late; copies need memory of the right kinds; a communicator that does not block accepts one
 * thing at a time, and its messages are on the stream only when it says so; messages of other lengths end wrongly or
 * never; after a failure what runs on the device ends only by ncclCommAbort, and freeing memory waits for it. A wrong
 * call ends the process with the word "misuse".
 *
 * Environment: STANDIN_FAIL=RANK:CALL:N, the n-th call that fails, or one of init, launch, transfer and kernel, which
 * fail later, and of init-hang, launch-hang and transfer-hang, which do not end; STANDIN_DELAY, microseconds at most
 * before each work; STANDIN_LOSS=silent, a lost rank is no error; STANDIN_DEVICES, of each host; STANDIN_HOSTS, between
 * which ranks take turns; STANDIN_COUNTS, a folder where each rank writes how often it made which call, and in
 * RANK.order the tag of each of its exchanges, which the heads of their messages have. */
#include <errno.h>
#include <nccl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;   /* of all that follows */
static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER; /* of the device */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static int number_of(const char *variable, int missing) {
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : missing;
}

static int own_rank(void) {
    return number_of("FLEXLAB_NCCL_RANK", number_of("OMPI_COMM_WORLD_RANK", number_of("PMI_RANK", 0)));
}

static void misuse(const char *what) {
    fprintf(stderr, "stand-in of NCCL: misuse: %s\n", what);
    abort();
}

static void need(bool condition, const char *what) {
    if (!condition)
        misuse(what);
}

static void rest(int microseconds) {
    usleep((useconds_t)microseconds);
}

/* As long as the test wants it to take at most. */
static void delay(void) {
    static _Atomic unsigned draw = 1;
    const int most = number_of("STANDIN_DELAY", 0);
    if (most)
        rest((int)((draw = draw * 1103515245u + 12345u + (unsigned)getpid()) / 7u % (unsigned)most));
}

/* --- planned failures --------------------------------------------------------------------------------------------- */

static struct count {
    const char *call;
    int calls;
} counts[64];

/* Counts the call, whose name is always the same literal. Whether it is the one that fails. Ranks that wait ask often,
 * hence the environment is not searched without need. */
static bool is_planned(const char *call) {
    pthread_mutex_lock(&lock);
    struct count *c = counts;
    while (c->call && c->call != call)
        c++;
    c->call = call;
    const int calls = ++c->calls;
    static const char *plan;
    static bool is_known;
    if (!is_known)
        plan = getenv("STANDIN_FAIL"), is_known = true;
    pthread_mutex_unlock(&lock);
    const char *name = plan ? strchr(plan, ':') : NULL;
    const size_t length = strlen(call);
    return name && !strncmp(name + 1, call, length) && name[length + 1] == ':' && atoi(name + length + 2) == calls &&
           atoi(plan) == own_rank();
}

static FILE *open_count(const char *what) {
    const char *folder = getenv("STANDIN_COUNTS");
    char path[4200];
    snprintf(path, sizeof path, "%s/%d%s", folder ? folder : "", own_rank(), what);
    return folder ? fopen(path, "a") : NULL;
}

__attribute__((destructor)) static void write_counts(void) {
    FILE *file = open_count("");
    for (int i = 0; file && counts[i].call; i++)
        fprintf(file, "%s %d\n", counts[i].call, counts[i].calls);
    if (file)
        fclose(file);
}

static void note_exchange(const char *message) {
    int64_t head[4];
    FILE *file = open_count(".order");
    if (!file)
        return;
    memcpy(head, message, sizeof head);
    fprintf(file, "%lld\n", (long long)head[2]);
    fclose(file);
}

int gethostname(char *name, size_t length) {
    snprintf(name, length, "host%d", own_rank() % number_of("STANDIN_HOSTS", 1));
    return 0;
}

/* --- CUDA: memory, streams, events -------------------------------------------------------------------------------- */

struct block {
    struct block *next;
    char *at;
    size_t bytes;
    bool pinned;
};

struct ncclComm;
struct transfer;

struct work {
    struct work *next;
    enum { COPY, SET, RECORD, TRANSFER } kind;
    void *to;
    const void *from;
    size_t bytes;
    bool of_device; /* a copy from it */
    cudaEvent_t event;
    struct transfer *transfer;
};

struct CUstream_st {
    struct CUstream_st *next;
    pthread_t thread;
    struct work *first;
    bool busy, ends;
    int device;
};

struct CUevent_st {
    int awaited;
};

static struct block *blocks;
static struct CUstream_st *streams;
static cudaError_t broken; /* by a kernel: every later call says so */
static _Thread_local int current;

static void run_transfer(struct transfer *t);

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        if (is_planned(#call))                                                                                         \
            return cudaErrorECCUncorrectable;                                                                          \
    } while (0)

static int devices(void) {
    return number_of("STANDIN_DEVICES", 8);
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorNoDevice           ? "no CUDA-capable device is detected"
           : error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorIllegalAddress   ? "an illegal memory access was encountered"
           : error == cudaErrorECCUncorrectable ? "uncorrectable ECC error encountered"
                                                : "another error";
}

cudaError_t cudaGetDeviceCount(int *count) {
    CUDA(cudaGetDeviceCount);
    *count = devices();
    return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
    CUDA(cudaSetDevice);
    need(device >= 0 && device < devices(), "cudaSetDevice: no such device");
    current = device;
    return cudaSuccess;
}

static cudaError_t allocate(void **at, size_t bytes, bool pinned) {
    struct block *b = malloc(sizeof *b);
    need(bytes > 0 && b, "an allocation of no bytes");
    *b = (struct block){NULL, malloc(bytes), bytes, pinned};
    memset(b->at, 0x5a, bytes);
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
    *at = b->at;
    return cudaSuccess;
}

/* Waits for the device, as CUDA does. */
static cudaError_t release(void *at, bool pinned) {
    if (!at)
        return cudaSuccess;
    pthread_mutex_lock(&lock);
    for (struct CUstream_st *s = streams; s;)
        if (s->busy || s->first) {
            pthread_cond_wait(&changed, &lock);
            s = streams;
        } else {
            s = s->next;
        }
    struct block **place = &blocks;
    while (*place && (*place)->at != at)
        place = &(*place)->next;
    struct block *b = *place;
    need(b && b->pinned == pinned, "memory is freed that was not allocated in this way");
    *place = b->next;
    pthread_mutex_unlock(&lock);
    free(b->at);
    free(b);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **at, size_t bytes) {
    CUDA(cudaMalloc);
    return allocate(at, bytes, false);
}

cudaError_t cudaMallocHost(void **at, size_t bytes) {
    CUDA(cudaMallocHost);
    return allocate(at, bytes, true);
}

cudaError_t cudaFree(void *at) {
    CUDA(cudaFree);
    return release(at, false);
}

cudaError_t cudaFreeHost(void *at) {
    CUDA(cudaFreeHost);
    return release(at, true);
}

/* With the lock. */
static void need_memory(const void *at, size_t bytes, bool pinned, const char *what) {
    const char *first = at;
    for (struct block *b = blocks; b; b = b->next)
        if (b->pinned == pinned && first >= b->at && first + bytes <= b->at + b->bytes)
            return;
    misuse(what);
}

static void *serve(void *stream) {
    struct CUstream_st *s = stream;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first && !s->ends)
            pthread_cond_wait(&changed, &lock);
        struct work *w = s->first;
        if (!w)
            break;
        s->first = w->next;
        s->busy = true;
        pthread_mutex_unlock(&lock);
        delay();
        if (w->kind == TRANSFER) {
            run_transfer(w->transfer);
        } else if (w->kind != RECORD) {
            pthread_mutex_lock(&memory);
            if (w->kind == SET)
                memset(w->to, 0, w->bytes);
            else
                memcpy(w->to, w->from, w->bytes);
            pthread_mutex_unlock(&memory);
        }
        pthread_mutex_lock(&lock);
        if (w->kind == RECORD)
            w->event->awaited--;
        free(w);
        s->busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* With the lock. */
static void add_work(struct CUstream_st *s, struct work work) {
    struct work *w = malloc(sizeof *w), **last = &s->first;
    need(w, "no memory");
    *w = work;
    while (*last)
        last = &(*last)->next;
    *last = w;
    pthread_cond_broadcast(&changed);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    CUDA(cudaStreamCreateWithFlags);
    need(flags == cudaStreamNonBlocking, "a stream that waits for the usual one");
    struct CUstream_st *s = calloc(1, sizeof *s);
    need(s, "no memory");
    s->device = current;
    need(!pthread_create(&s->thread, NULL, serve, s), "no thread");
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    CUDA(cudaStreamDestroy);
    pthread_mutex_lock(&lock);
    struct CUstream_st **place = &streams;
    while (*place != s)
        place = &(*place)->next;
    *place = s->next;
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    free(s);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
    CUDA(cudaStreamQuery);
    pthread_mutex_lock(&lock);
    const bool ready = !s->first && !s->busy;
    const cudaError_t error = broken;
    pthread_mutex_unlock(&lock);
    return error ? error : ready ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s) {
    CUDA(cudaMemcpyAsync);
    const bool out = kind == cudaMemcpyHostToDevice;
    need(out || kind == cudaMemcpyDeviceToHost, "a copy of another kind");
    need(s->device == current, "a copy on a stream of another device");
    pthread_mutex_lock(&lock);
    need_memory(out ? from : to, bytes, true, "a copy of memory that is not pinned");
    need_memory(out ? to : from, bytes, false, "a copy of memory that is not the device's");
    add_work(s, (struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s) {
    CUDA(cudaMemsetAsync);
    need(!value && s->device == current, "bytes that are set to another value, or on another device");
    pthread_mutex_lock(&lock);
    need_memory(to, bytes, false, "memory is set that is not the device's");
    add_work(s, (struct work){.kind = SET, .to = to, .bytes = bytes});
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    CUDA(cudaEventCreateWithFlags);
    need(flags == cudaEventDisableTiming, "an event that takes times");
    *event = calloc(1, sizeof **event);
    need(*event, "no memory");
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
    CUDA(cudaEventRecord);
    pthread_mutex_lock(&lock);
    event->awaited++;
    add_work(s, (struct work){.kind = RECORD, .event = event});
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    CUDA(cudaEventQuery);
    pthread_mutex_lock(&lock);
    const bool ready = !event->awaited;
    const cudaError_t error = broken;
    pthread_mutex_unlock(&lock);
    return error ? error : ready ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    CUDA(cudaEventDestroy);
    need(!event || !event->awaited, "an event is destroyed that is awaited");
    free(event);
    return cudaSuccess;
}

/* --- NCCL: communicators ------------------------------------------------------------------------------------------ */

struct ncclComm {
    int rank, size, device, transfers;
    int *sockets; /* one for each other rank */
    ncclUniqueId id;
    ncclResult_t state;
    bool aborted, finalised, has_thread;
    pthread_t thread;
};

enum { MOST_RANKS = 16, CHUNK = 1 << 16 };

struct message {
    char *out, *in; /* on the device */
    uint64_t out_bytes, in_bytes;
};

struct transfer {
    struct ncclComm *comm;
    struct message of[MOST_RANKS];
};

static char last_error[200];
static _Thread_local int depth;
static _Thread_local struct transfer *grouped;
static _Thread_local cudaStream_t stream_of_group;

#define NCCL(call)                                                                                                     \
    do {                                                                                                               \
        if (is_planned(#call))                                                                                         \
            return fail_later(NULL, ncclSystemError, "planned failure of " #call);                                     \
    } while (0)

static ncclResult_t fail_later(struct ncclComm *c, ncclResult_t result, const char *what) {
    pthread_mutex_lock(&lock);
    snprintf(last_error, sizeof last_error, "%s", what);
    if (c)
        c->state = result;
    pthread_mutex_unlock(&lock);
    return result;
}

static bool is_aborted(struct ncclComm *c) {
    pthread_mutex_lock(&lock);
    const bool aborted = c->aborted;
    pthread_mutex_unlock(&lock);
    return aborted;
}

static void hang(struct ncclComm *c) {
    while (!is_aborted(c))
        rest(1000);
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSystemError       ? "unhandled system error (run with NCCL_DEBUG=INFO for details)"
           : result == ncclInvalidArgument ? "invalid argument (run with NCCL_DEBUG=WARN for details)"
           : result == ncclInvalidUsage    ? "invalid usage (run with NCCL_DEBUG=WARN for details)"
           : result == ncclRemoteError     ? "remote process exited or there was a network error"
                                           : "another error";
}

const char *ncclGetLastError(ncclComm_t comm) {
    static _Thread_local char text[sizeof last_error];
    (void)comm;
    pthread_mutex_lock(&lock);
    memcpy(text, last_error, sizeof text);
    pthread_mutex_unlock(&lock);
    return text;
}

ncclResult_t ncclGetVersion(int *version) {
    NCCL(ncclGetVersion);
    *version = number_of("STANDIN_OTHER", -1) == own_rank() ? NCCL_VERSION_CODE - 1 : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    NCCL(ncclGetUniqueId);
    const char *place = getenv("NCCL_COMM_ID");
    memset(id, 0, sizeof *id);
    if (place)
        snprintf(id->internal, sizeof id->internal, "%s", place);
    else
        snprintf(id->internal, sizeof id->internal, "%d-%d", (int)getpid(), counts[0].calls);
    return ncclSuccess;
}

/* One after the other on a thread of its own; until then the communicator is in progress. */
static void begin_thread(struct ncclComm *c, void *(*function)(void *), void *argument) {
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    pthread_mutex_lock(&lock);
    c->state = ncclInProgress;
    pthread_mutex_unlock(&lock);
    need(!pthread_create(&c->thread, NULL, function, argument), "no thread");
    c->has_thread = true;
}

static void set_state(struct ncclComm *c, ncclResult_t state) {
    pthread_mutex_lock(&lock);
    if (c->state == ncclInProgress)
        c->state = state;
    pthread_mutex_unlock(&lock);
}

static socklen_t address_of(struct sockaddr_un *a, const struct ncclComm *c, int rank) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX; /* a name that begins with 0 is no file */
    snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "flexlab-nccl-%.60s-%d", c->id.internal, rank);
    return (socklen_t)(sizeof a->sun_family + 1 + strlen(a->sun_path + 1));
}

/* All bytes, or false: aborted, or the other end is gone. */
static bool move_all(struct ncclComm *c, int socket, void *data, size_t bytes, bool sends) {
    for (size_t done = 0; done < bytes;) {
        char *at = (char *)data + done;
        const ssize_t n = sends ? send(socket, at, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(socket, at, bytes - done, MSG_DONTWAIT);
        if (!n || (n < 0 && errno != EAGAIN) || is_aborted(c))
            return false;
        done += n > 0 ? (size_t)n : 0;
        if (n < 0)
            rest(500);
    }
    return true;
}

/* Connects to lower ranks, and waits for the others. */
static bool connect_ranks(struct ncclComm *c) {
    struct sockaddr_un a;
    socklen_t length = address_of(&a, c, c->rank);
    const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    while (bind(listening, (struct sockaddr *)&a, length) && !is_aborted(c))
        rest(2000);
    listen(listening, MOST_RANKS);
    int met = 1;
    for (int r = 0; r < c->rank && !is_aborted(c); r++, met++) {
        length = address_of(&a, c, r);
        c->sockets[r] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        while (connect(c->sockets[r], (struct sockaddr *)&a, length) && !is_aborted(c))
            rest(2000);
        if (!move_all(c, c->sockets[r], &c->rank, sizeof c->rank, true))
            break;
    }
    while (met < c->size && !is_aborted(c)) {
        int rank, s = accept(listening, NULL, NULL);
        if (s < 0) {
            rest(500);
            continue;
        }
        if (!move_all(c, s, &rank, sizeof rank, false))
            break;
        c->sockets[rank] = s;
        met++;
    }
    close(listening);
    return met == c->size;
}

static void *init(void *comm) {
    struct ncclComm *c = comm;
    char text[100];
    delay();
    if (is_planned("init"))
        fail_later(c, ncclSystemError, "planned failure of init");
    if (is_planned("init-hang"))
        hang(c);
    bool connected = connect_ranks(c);
    for (int r = 0; r < c->size && connected; r++) { /* which device, of all hosts */
        int own = c->device + devices() * (c->rank % number_of("STANDIN_HOSTS", 1)), other = -1;
        if (r == c->rank)
            continue;
        connected = move_all(c, c->sockets[r], &own, sizeof own, true) &&
                    move_all(c, c->sockets[r], &other, sizeof other, false);
        if (connected && own == other) {
            snprintf(text, sizeof text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", c->rank,
                     r, c->device);
            fail_later(c, ncclInvalidUsage, text);
        }
    }
    if (connected)
        set_state(c, ncclSuccess);
    else if (!is_aborted(c))
        fail_later(c, ncclRemoteError, "a rank is gone");
    return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    NCCL(ncclCommInitRankConfig);
    need(config->magic == 0xcafebeef && !config->blocking, "a communicator that blocks");
    need(rank >= 0 && rank < size && size <= MOST_RANKS, "ranks");
    struct ncclComm *c = calloc(1, sizeof *c);
    need(c && (c->sockets = malloc((size_t)size * sizeof *c->sockets)), "no memory");
    for (int r = 0; r < size; r++)
        c->sockets[r] = -1;
    c->rank = rank;
    c->size = size;
    c->id = id;
    c->device = current;
    *comm = c;
    begin_thread(c, init, c);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    NCCL(ncclCommGetAsyncError);
    pthread_mutex_lock(&lock);
    *state = c->state;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static void need_ready(struct ncclComm *c, const char *what) {
    pthread_mutex_lock(&lock);
    need(c->state != ncclInProgress, what);
    pthread_mutex_unlock(&lock);
}

static void free_comm(struct ncclComm *c) {
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    pthread_mutex_lock(&lock);
    while (c->transfers)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    for (int r = 0; r < c->size; r++)
        if (c->sockets[r] >= 0)
            close(c->sockets[r]);
    free(c->sockets);
    free(c);
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
    need(!depth, "a communicator is aborted within a group of calls");
    pthread_mutex_lock(&lock);
    c->aborted = true;
    pthread_mutex_unlock(&lock);
    free_comm(c);
    NCCL(ncclCommAbort);
    return ncclSuccess;
}

static void *finalise(void *comm) {
    delay();
    set_state(comm, ncclSuccess);
    return NULL;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    NCCL(ncclCommFinalize);
    need_ready(c, "ncclCommFinalize while the communicator is in progress");
    c->finalised = true;
    begin_thread(c, finalise, c);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    need(c->finalised, "ncclCommDestroy before ncclCommFinalize");
    need_ready(c, "ncclCommDestroy while the communicator is in progress");
    free_comm(c);
    NCCL(ncclCommDestroy);
    return ncclSuccess;
}

/* --- NCCL: messages ----------------------------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void); /* the header has no prototypes of these two */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void) {
    NCCL(ncclGroupStart);
    need(!depth, "a group of calls within another");
    depth = 1;
    grouped = calloc(1, sizeof *grouped);
    need(grouped, "no memory");
    return ncclSuccess;
}

static void take(ncclComm_t c, cudaStream_t s, const void *at, size_t bytes, ncclDataType_t type, int peer) {
    need(depth == 1 && type == ncclUint8, "a message outside of a group, or not of bytes");
    need(peer >= 0 && peer < c->size && peer != c->rank, "a message to no other rank");
    need(s->device == c->device && current == c->device, "a message on another device");
    need_ready(c, "a message while the communicator is in progress");
    pthread_mutex_lock(&lock);
    need_memory(at, bytes, false, "a message of memory that is not the device's");
    pthread_mutex_unlock(&lock);
    grouped->comm = c;
    stream_of_group = s;
}

ncclResult_t ncclSend(const void *at, size_t bytes, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
    NCCL(ncclSend);
    take(c, s, at, bytes, type, peer);
    need(!grouped->of[peer].out, "two messages to a rank");
    grouped->of[peer].out = (char *)(uintptr_t)at;
    grouped->of[peer].out_bytes = bytes;
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *at, size_t bytes, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
    NCCL(ncclRecv);
    take(c, s, at, bytes, type, peer);
    need(!grouped->of[peer].in, "two messages from a rank");
    grouped->of[peer].in = at;
    grouped->of[peer].in_bytes = bytes;
    return ncclSuccess;
}

struct launch {
    struct transfer *transfer;
    cudaStream_t stream;
};

static void *launch(void *argument) {
    struct launch *l = argument;
    struct ncclComm *c = l->transfer->comm;
    delay();
    if (is_planned("launch"))
        fail_later(c, ncclSystemError, "planned failure of launch");
    if (is_planned("launch-hang"))
        hang(c);
    pthread_mutex_lock(&lock);
    const bool goes = c->state == ncclInProgress && !c->aborted;
    if (goes) {
        c->transfers++;
        add_work(l->stream, (struct work){.kind = TRANSFER, .transfer = l->transfer});
    }
    pthread_mutex_unlock(&lock);
    if (goes)
        set_state(c, ncclSuccess);
    else
        free(l->transfer);
    free(l);
    return NULL;
}

ncclResult_t ncclGroupEnd(void) {
    need(depth == 1, "the end of no group");
    depth = 0;
    struct transfer *t = grouped;
    grouped = NULL;
    if (is_planned("ncclGroupEnd")) {
        free(t);
        return fail_later(NULL, ncclSystemError, "planned failure of ncclGroupEnd");
    }
    if (!t->comm) {
        free(t);
        return ncclSuccess;
    }
    struct launch *l = malloc(sizeof *l);
    need(l, "no memory");
    *l = (struct launch){t, stream_of_group};
    begin_thread(t->comm, launch, l);
    return ncclInProgress;
}

/* What of a message of a pair of ranks has gone and come, its length of 8 bytes before it. */
struct progress {
    uint64_t sent, received, length;
};

static bool is_over(const struct message *m, const struct progress *p) {
    const bool sent = !m->out || p->sent == 8 + m->out_bytes;
    const bool received = !m->in || (p->received >= 8 && p->received == 8 + p->length && p->length >= m->in_bytes);
    return sent && received;
}

/* Sends and receives what goes at once. false: the other end is gone. */
static bool move_some(int socket, const struct message *m, struct progress *p) {
    char data[CHUNK];
    ssize_t n = 1;
    if (m->out && p->sent < 8 + m->out_bytes) {
        const bool head = p->sent < 8;
        const uint64_t rest_of = head ? 8 - p->sent : 8 + m->out_bytes - p->sent;
        const size_t bytes = rest_of < CHUNK ? (size_t)rest_of : CHUNK;
        pthread_mutex_lock(&memory);
        memcpy(data, head ? (const char *)&m->out_bytes + p->sent : m->out + (p->sent - 8), bytes);
        pthread_mutex_unlock(&memory);
        n = send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        p->sent += n > 0 ? (uint64_t)n : 0;
        if (n < 0 && errno != EAGAIN)
            return false;
    }
    if (m->in && p->received < 8 + (p->received < 8 ? 0 : p->length)) {
        const bool head = p->received < 8;
        const uint64_t rest_of = head ? 8 - p->received : 8 + p->length - p->received;
        n = recv(socket, data, rest_of < CHUNK ? (size_t)rest_of : CHUNK, MSG_DONTWAIT);
        if (!n || (n < 0 && errno != EAGAIN))
            return false;
        for (ssize_t i = 0; i < n && head; i++)
            ((char *)&p->length)[p->received + (uint64_t)i] = data[i];
        if (n > 0 && !head && p->received - 8 < m->in_bytes) { /* what is too much is lost */
            const uint64_t at = p->received - 8, room = m->in_bytes - at;
            pthread_mutex_lock(&memory);
            memcpy(m->in + at, data, (uint64_t)n < room ? (size_t)n : (size_t)room);
            pthread_mutex_unlock(&memory);
        }
        p->received += n > 0 ? (uint64_t)n : 0;
    }
    return true;
}

static void move_messages(struct transfer *t) {
    struct ncclComm *c = t->comm;
    struct progress progress[MOST_RANKS] = {{0}};
    bool gone[MOST_RANKS] = {false};
    for (bool over = false; !over && !is_aborted(c);) {
        struct pollfd poll_of[MOST_RANKS];
        nfds_t n = 0;
        over = true;
        for (int r = 0; r < c->size; r++) {
            const struct message *m = &t->of[r];
            if ((!m->out && !m->in) || is_over(m, &progress[r]))
                continue;
            over = false;
            if (!gone[r] && !move_some(c->sockets[r], m, &progress[r])) {
                const char *loss = getenv("STANDIN_LOSS");
                gone[r] = true;
                if (!loss || strcmp(loss, "silent") != 0)
                    fail_later(c, ncclRemoteError, "Connection closed by remote peer");
            }
            const bool sends = m->out && progress[r].sent < 8 + m->out_bytes;
            if (!gone[r])
                poll_of[n++] = (struct pollfd){c->sockets[r], (short)(POLLIN | (sends ? POLLOUT : 0)), 0};
        }
        if (!over)
            poll(poll_of, n, 2);
    }
}

static void run_transfer(struct transfer *t) {
    struct ncclComm *c = t->comm;
    note_exchange(t->of[c->rank ? 0 : 1].out);
    if (is_planned("transfer"))
        fail_later(c, ncclRemoteError, "planned failure of transfer");
    if (is_planned("transfer-hang"))
        hang(c);
    if (is_planned("kernel")) {
        pthread_mutex_lock(&lock);
        broken = cudaErrorIllegalAddress;
        pthread_mutex_unlock(&lock);
    } else {
        move_messages(t);
    }
    pthread_mutex_lock(&lock);
    c->transfers--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(t);
}
