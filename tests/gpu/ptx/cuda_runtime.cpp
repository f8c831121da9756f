/* cuda_runtime.cpp - CUDA's runtime on the machine: devices, memory, streams, events, graphs and launches. Work is done
 * as late as CUDA allows, when somebody waits for it; memory is used again as late as possible; what a copy has not
 * written yet is rubbish. What CUDA forbids or leaves undefined is a finding. */
#include "cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <unistd.h>

using ptx::find;

static auto &lock = *new std::recursive_mutex;
typedef std::lock_guard<std::recursive_mutex> Locked;

/* --- errors ------------------------------------------------------------------------------------------------------- */

static thread_local cudaError_t last_error;
static cudaError_t context_error; /* of a kernel: it stays */

static cudaError_t give(cudaError_t error) {
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

static const struct Error {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                                              \
    { name, #name, text }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(cudaErrorUnsupportedPtxVersion, "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
};

static Error error_of(cudaError_t error) {
    for (const Error &known : errors)
        if (known.error == error)
            return known;
    return {error, "unrecognized error code", "unrecognized error code"};
}
const char *cudaGetErrorName(cudaError_t error) {
    return error_of(error).name;
}
const char *cudaGetErrorString(cudaError_t error) {
    return error_of(error).text;
}

static cudaError_t wrong(const char *kind, const std::string &text, cudaError_t error) {
    find(kind, text);
    return give(error);
}

static bool is_of_context(int error) {
    return error == cudaErrorIllegalAddress || error == cudaErrorMisalignedAddress || error == cudaErrorLaunchFailure;
}

/* FLEXLAB_PTX_FAIL, or what ptx_plan was given. */
struct Plan {
    std::string call;
    long at = -1; /* 0: each; -1: none */
    cudaError_t error = cudaErrorIllegalAddress;
    explicit Plan(const char *text) {
        const char *const sign = text ? strchr(text, '@') : nullptr;
        if (!sign)
            return;
        call.assign(text, sign);
        char *end;
        at = strtol(sign + 1, &end, 10);
        if (*end == '@')
            error = (cudaError_t)strtol(end + 1, nullptr, 10);
    }
};
static Plan &the_plan() {
    static Plan plan(getenv("FLEXLAB_PTX_FAIL"));
    return plan;
}

/* The error that this call shall return. */
static cudaError_t planned(const char *call) {
    Plan &plan = the_plan();
    if ((plan.call != call && plan.call != "*") || plan.at < 0 || (plan.at > 1 && plan.at--))
        return cudaSuccess;
    plan.at -= 2 * (plan.at == 1);
    fprintf(stderr, "ptx: %s fails as planned: %s\n", call, cudaGetErrorName(plan.error));
    if (is_of_context(plan.error))
        context_error = plan.error;
    return plan.error;
}

/* Does nothing in a fork of a process that has used it. */
static bool is_fork(const char *call) {
    static const pid_t first = getpid();
    if (first != getpid())
        find("a call in a fork", call);
    return first != getpid();
}

/* At the beginning of every call: the lock, errors that stay, and planned ones. */
#define ENTER                                                                                                          \
    Locked locked_(lock);                                                                                              \
    if (is_fork(__func__))                                                                                             \
        return cudaErrorInitializationError;                                                                           \
    if (context_error != cudaSuccess)                                                                                  \
        return give(context_error);                                                                                    \
    if (const cudaError_t error_ = planned(__func__))                                                                  \
        return give(error_);

/* --- memory ------------------------------------------------------------------------------------------------------- */

struct CUmemPoolHandle_st {
    int device;
    long blocks; /* that are not freed */
};
enum : uint64_t { ALIGNMENT = 256, KEPT_FOR_VARIABLES = 16 << 20 };

struct Allocation {
    uint64_t bytes, taken;
    int device;
    cudaMemPool_t pool;
    bool freed; /* by a call; the memory is free when the stream has come to it */
};
static auto &allocations = *new std::map<uint64_t, Allocation>;
static auto &holes = *new std::map<uint64_t, uint64_t>; /* of all devices: address, bytes */
static auto &pinned = *new std::map<const unsigned char *, size_t>;
static uint64_t next_hole, in_use;
static thread_local int current;

static cudaError_t check_device(int number) {
    const int count = ptx::options().devices;
    return number >= 0 && number < count ? cudaSuccess : count ? cudaErrorInvalidDevice : cudaErrorNoDevice;
}

static ptx::Device *device_at(const void *p) {
    const uint64_t at = (uint64_t)p;
    for (int i = 0; i < ptx::options().devices; i++) {
        ptx::Device &d = ptx::device(i);
        if (at >= d.at() && at < d.at() + d.bytes)
            return &d;
    }
    return nullptr;
}

static const Allocation *allocation_of(const void *p, size_t bytes) {
    auto it = allocations.upper_bound((uint64_t)p);
    if (it == allocations.begin())
        return nullptr;
    --it;
    return !it->second.freed && (uint64_t)p + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
}

static bool is_pinned(const void *p, size_t bytes) {
    auto it = pinned.upper_bound((const unsigned char *)p);
    if (it == pinned.begin())
        return false;
    --it;
    return (const unsigned char *)p + bytes <= it->first + it->second;
}

/* "pinned": all memory of the host counts as pinned, so that no copy ends before somebody waits. */
static bool counts_as_pinned(const void *p, size_t bytes) {
    return ptx::options().pinned || is_pinned(p, bytes);
}

static void add_hole(uint64_t at, uint64_t bytes) {
    auto after = holes.lower_bound(at);
    if (after != holes.end() && at + bytes == after->first) {
        bytes += after->second;
        after = holes.erase(after);
    }
    if (after != holes.begin() && std::prev(after)->first + std::prev(after)->second == at)
        std::prev(after)->second += bytes;
    else
        holes[at] = bytes;
}

/* The next hole behind the last one that is large enough: memory is used again late. 0: there is none. */
static uint64_t take(int number, uint64_t bytes) {
    static std::set<int> &known = *new std::set<int>;
    ptx::Device &d = ptx::device(number);
    if (known.insert(number).second)
        add_hole(d.at() + 4096, d.bytes - 4096 - std::min<uint64_t>(KEPT_FOR_VARIABLES, d.bytes / 2));
    const uint64_t need = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT; /* a gap behind each */
    for (int pass = 0; pass < 2; pass++)
        for (auto it = holes.lower_bound(pass ? d.at() : std::max(next_hole, d.at())); it != holes.end(); ++it) {
            const uint64_t at = it->first, room = it->second;
            if (at >= d.at() + d.bytes)
                break;
            if (room < need)
                continue;
            holes.erase(it);
            if (room > need)
                holes[at + need] = room - need;
            next_hole = at + need;
            in_use += need;
            allocations[at] = Allocation{bytes, need, number, nullptr, false};
            return at;
        }
    return 0;
}

static void set_state(const void *p, size_t bytes, unsigned char state) {
    ptx::Device &d = *device_at(p);
    memset(d.state + ((uint64_t)p - d.at()), state, bytes);
}

static void give_back(uint64_t at) {
    auto it = allocations.find(at);
    set_state((void *)at, it->second.bytes, ptx::FREE);
    in_use -= it->second.taken;
    add_hole(at, it->second.taken);
    allocations.erase(it);
}

/* The bytes of device memory for a copy; checks that the stream has allocated, and for sources written, them. */
static unsigned char *bytes_at(const void *p, size_t bytes, bool source, const char *what) {
    ptx::Device &d = *device_at(p);
    const uint64_t at = (uint64_t)p - d.at();
    bool is_free = false, unwritten = false;
    for (size_t i = 0; i < bytes; i++) {
        is_free |= d.state[at + i] == ptx::FREE;
        unwritten |= d.state[at + i] == ptx::ALLOCATED;
    }
    if (is_free)
        find("a copy of memory that is not allocated when the stream comes to it", what);
    if (source && unwritten)
        find("a copy of device memory that was never written", what);
    if (!source)
        memset(d.state + at, ptx::WRITTEN, bytes);
    return d.memory + at;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

typedef std::function<void()> Work;
typedef std::shared_ptr<std::vector<Work>> Works;

struct CUstream_st {
    int device;
    std::deque<Work> queue;
    Works capture;
    bool broken;
    uint64_t captured_by;
};
struct CUevent_st {
    cudaStream_t stream;
    uint64_t recorded, reached;
};
struct CUgraph_st {
    Works works;
};
struct CUgraphExec_st {
    Works works;
};

static auto &streams = *new std::set<cudaStream_t>;
static struct { long waits, stream_waits, recordings, replays, allocations, brought; } counts;

static uint64_t this_thread() {
    static thread_local char one;
    return (uint64_t)&one;
}

static void advance(cudaStream_t s) {
    const Work work = std::move(s->queue.front());
    s->queue.pop_front();
    work();
}

static void drain(cudaStream_t s) {
    while (!s->queue.empty())
        advance(s);
}

static void drain_all() {
    for (cudaStream_t s : streams)
        drain(s);
}

static cudaError_t add(cudaStream_t s, Work work) {
    enum { LONG_QUEUE = 4096 };
    if (s->capture) {
        s->capture->push_back(std::move(work));
        return cudaSuccess;
    }
    s->queue.push_back(std::move(work));
    while (s->queue.size() > LONG_QUEUE)
        advance(s);
    return cudaSuccess;
}

/* A thread that captures may not call this, nor may anybody wait for a stream that is captured. */
static bool is_forbidden(const char *call, cudaStream_t waited_for) {
    for (cudaStream_t s : streams)
        if (s->capture && (s->captured_by == this_thread() || s == waited_for)) {
            find("a call that is not allowed while a stream is captured", call);
            s->broken = true;
            return true;
        }
    return false;
}

#define KNOWN(s)                                                                                                       \
    if (!streams.count(s))                                                                                             \
        return wrong("a stream that is none", __func__, cudaErrorInvalidResourceHandle);
#define NOT_CAPTURING(s)                                                                                               \
    if (is_forbidden(__func__, s))                                                                                     \
        return give(cudaErrorStreamCaptureUnsupported);

extern "C" {

/* For tests: "waits", "stream waits", "recordings", "replays", "allocations", "brought": bytes to the host, "current":
 * the thread's device; "forget": runs what is queued, and begins to count instructions again. */
__attribute__((visibility("default"))) long ptx_count(const char *what) {
    Locked locked(lock);
    const std::string name = what;
    if (name == "forget") {
        drain_all();
        ptx::forget_counts();
    }
    return name == "waits"          ? counts.waits
           : name == "stream waits" ? counts.stream_waits
           : name == "recordings"   ? counts.recordings
           : name == "replays"      ? counts.replays
           : name == "allocations"  ? counts.allocations
           : name == "brought"      ? counts.brought
           : name == "current"      ? current
                                    : -1;
}
/* A plan in place of FLEXLAB_PTX_FAIL, NULL: none. Returns the N that is left of the one before, 0: it has come true.
 */
__attribute__((visibility("default"))) long ptx_plan(const char *text) {
    Locked locked(lock);
    const long left = std::max(the_plan().at, 0L);
    the_plan() = Plan(text);
    return left;
}
__attribute__((visibility("default"))) long ptx_findings(void) {
    Locked locked(lock);
    return ptx::findings();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    ENTER
    NOT_CAPTURING(nullptr)
    *s = new CUstream_st{current, {}, nullptr, false, 0};
    streams.insert(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    Locked locked(lock);
    KNOWN(s)
    drain(s);
    streams.erase(s);
    delete s;
    return give(planned(__func__));
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    ENTER
    counts.waits++;
    counts.stream_waits++;
    KNOWN(s)
    NOT_CAPTURING(s)
    drain(s);
    return give(context_error);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *of) {
    ENTER
    if (const cudaError_t error = check_device(of->location.id))
        return give(error);
    *pool = new CUmemPoolHandle_st{of->location.id, 0};
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, enum cudaMemPoolAttr, void *) {
    ENTER
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    Locked locked(lock);
    if (pool->blocks && context_error == cudaSuccess)
        return wrong("a pool is destroyed whose memory is in use", __func__, cudaErrorInvalidValue);
    delete pool;
    return give(planned(__func__));
}

cudaError_t cudaMallocFromPoolAsync(void **p, size_t bytes, cudaMemPool_t pool, cudaStream_t s) {
    ENTER
    counts.allocations++;
    KNOWN(s)
    if (!bytes)
        return wrong("an allocation of 0 bytes", __func__, cudaErrorInvalidValue);
    if (s->capture)
        return wrong("an allocation that is captured", __func__, cudaErrorStreamCaptureUnsupported);
    uint64_t at = take(pool->device, bytes);
    if (!at) {
        drain_all();
        at = context_error == cudaSuccess ? take(pool->device, bytes) : 0;
    }
    if (!at)
        return give(cudaErrorMemoryAllocation);
    *p = (void *)at;
    allocations[at].pool = pool;
    pool->blocks++;
    return add(s, [at, bytes] { set_state((void *)at, bytes, ptx::ALLOCATED); });
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t s) {
    ENTER
    KNOWN(s)
    auto it = allocations.find((uint64_t)p);
    if (it == allocations.end() || it->second.freed)
        return wrong("memory is freed that is none", __func__, cudaErrorInvalidValue);
    if (s->capture)
        return wrong("memory is freed while a stream is captured", __func__, cudaErrorStreamCaptureUnsupported);
    it->second.freed = true;
    it->second.pool->blocks--;
    return add(s, [p] { give_back((uint64_t)p); });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
    ENTER
    KNOWN(s)
    if (!bytes)
        return cudaSuccess;
    if (!allocation_of(p, bytes))
        return wrong("memory is set that is not allocated", __func__, cudaErrorInvalidValue);
    return add(s, [p, value, bytes] { memset(bytes_at(p, bytes, false, "cudaMemsetAsync"), value, bytes); });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s) {
    ENTER
    KNOWN(s)
    if (!bytes)
        return cudaSuccess;
    const bool to_device = device_at(to) != nullptr, from_device = device_at(from) != nullptr;
    if (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
        from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))
        return wrong("a copy in a direction that its addresses do not have", __func__, cudaErrorInvalidValue);
    if ((to_device && !allocation_of(to, bytes)) || (from_device && !allocation_of(from, bytes)))
        return wrong("a copy of what is not allocated", __func__, cudaErrorInvalidValue);
    if (to_device && from_device)
        return add(s, [to, from, bytes] {
            const unsigned char *const source = bytes_at(from, bytes, true, "on the device");
            memmove(bytes_at(to, bytes, false, "on the device"), source, bytes);
        });
    const bool pageable = !counts_as_pinned(to_device ? from : to, bytes);
    counts.brought += to_device ? 0 : (long)bytes;
    if (pageable && s->capture) {
        s->broken = true;
        return wrong("a copy with pageable memory is captured", __func__, cudaErrorStreamCaptureUnsupported);
    }
    if (to_device) {
        if (!pageable)
            return add(s, [to, from, bytes] { memcpy(bytes_at(to, bytes, false, "to the device"), from, bytes); });
        std::string copy((const char *)from, bytes);
        return add(s,
                   [to, copy] { memcpy(bytes_at(to, copy.size(), false, "to the device"), copy.data(), copy.size()); });
    }
    if (!pageable && !s->capture)
        memset(to, 0xdb, bytes);
    add(s, [to, from, bytes] { memcpy(to, bytes_at(from, bytes, true, "to the host"), bytes); });
    if (pageable)
        drain(s);
    return give(context_error);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
    ENTER
    counts.allocations++;
    NOT_CAPTURING(nullptr)
    void *const memory = aligned_alloc(4096, (bytes + 4096) / 4096 * 4096);
    if (!memory)
        return give(cudaErrorMemoryAllocation);
    memset(memory, 0xdb, bytes);
    pinned[(unsigned char *)memory] = bytes;
    *p = memory;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
    Locked locked(lock);
    if (!p)
        return cudaSuccess;
    NOT_CAPTURING(nullptr)
    if (!pinned.erase((unsigned char *)p))
        return wrong("pinned memory is freed that is none", __func__, cudaErrorInvalidValue);
    drain_all();
    free(p);
    return give(planned(__func__));
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *of, const void *p) {
    ENTER
    *of = cudaPointerAttributes{};
    of->type = device_at(p)             ? cudaMemoryTypeDevice
               : counts_as_pinned(p, 1) ? cudaMemoryTypeHost
                                        : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    ENTER
    *e = new CUevent_st{nullptr, 0, 0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    Locked locked(lock);
    drain_all(); /* a stream may have it */
    delete e;
    return give(planned(__func__));
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ENTER
    KNOWN(s)
    if (s->capture)
        return wrong("an event is recorded in a capture", __func__, cudaErrorStreamCaptureUnsupported);
    e->stream = s;
    const uint64_t record = ++e->recorded;
    return add(s, [e, record] { e->reached = record; });
}

/* Runs the other stream as far as the event, when this one comes to it. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    ENTER
    KNOWN(s)
    if (s->capture)
        return wrong("a capture waits for an event of before", __func__, cudaErrorStreamCaptureUnsupported);
    const uint64_t record = e->recorded;
    return add(s, [e, record] {
        while (e->reached < record && streams.count(e->stream) && !e->stream->queue.empty())
            advance(e->stream);
    });
}

/* Each look takes the stream one task further. */
cudaError_t cudaEventQuery(cudaEvent_t e) {
    ENTER
    NOT_CAPTURING(e->stream)
    if (e->reached < e->recorded && streams.count(e->stream) && !e->stream->queue.empty())
        advance(e->stream);
    return give(context_error != cudaSuccess ? context_error
                : e->reached < e->recorded   ? cudaErrorNotReady
                                             : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    ENTER
    counts.waits++;
    NOT_CAPTURING(e->stream)
    while (e->reached < e->recorded && streams.count(e->stream) && !e->stream->queue.empty())
        advance(e->stream); /* to the event, and no further */
    return give(context_error);
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode) {
    ENTER
    KNOWN(s)
    if (s->capture)
        return wrong("a capture is begun twice", __func__, cudaErrorIllegalState);
    s->capture = std::make_shared<std::vector<Work>>();
    s->broken = false;
    s->captured_by = this_thread();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    Locked locked(lock);
    *graph = nullptr;
    KNOWN(s)
    if (!s->capture)
        return give(context_error != cudaSuccess ? context_error : cudaErrorIllegalState);
    if (s->captured_by != this_thread())
        return wrong("a capture is ended by another thread", __func__, cudaErrorStreamCaptureWrongThread);
    const Works works = std::move(s->capture);
    s->capture = nullptr;
    if (const cudaError_t error = planned(__func__))
        return give(error);
    if (s->broken || context_error != cudaSuccess)
        return give(s->broken ? cudaErrorStreamCaptureInvalidated : context_error);
    *graph = new CUgraph_st{works};
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *runnable, cudaGraph_t graph, unsigned long long) {
    ENTER
    counts.recordings++;
    *runnable = new CUgraphExec_st{graph->works};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t runnable, cudaStream_t s) {
    ENTER
    KNOWN(s)
    counts.replays++;
    const Works works = runnable->works;
    return add(s, [works] {
        for (const Work &work : *works)
            work();
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    Locked locked(lock);
    delete graph;
    return give(planned(__func__));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t runnable) {
    Locked locked(lock);
    delete runnable;
    return give(planned(__func__));
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = ptx::options().driver ? ptx::options().driver : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    ENTER
    *count = ptx::options().devices;
    if (ptx::options().driver && ptx::options().driver / 1000 < CUDART_VERSION / 1000)
        return give(cudaErrorInsufficientDriver);
    return give(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int number) {
    ENTER
    if (const cudaError_t error = check_device(number))
        return give(error);
    current = number;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *number) {
    ENTER
    *number = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int number) {
    ENTER
    if (const cudaError_t error = check_device(number))
        return give(error);
    *p = cudaDeviceProp{};
    snprintf(p->name, sizeof p->name, "PTX machine of sm_%d", ptx::options().arch);
    p->major = ptx::major_capability();
    p->minor = ptx::options().arch % 10;
    p->multiProcessorCount = 4;
    p->totalGlobalMem = ptx::options().bytes;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = ptx::options().shared_bytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int number) {
    ENTER
    if (const cudaError_t error = check_device(number))
        return give(error);
    switch (attribute) {
    case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = ptx::major_capability();
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)ptx::options().shared_bytes;
        return cudaSuccess;
    default:
        return wrong("an attribute that the machine does not know", std::to_string((int)attribute),
                     cudaErrorInvalidValue);
    }
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *all) {
    ENTER
    *all = ptx::options().bytes;
    *available = ptx::options().bytes - in_use;
    return cudaSuccess;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value) {
    ENTER
    cuda::Function *const f = cuda::function_at(host);
    if (!f)
        return wrong("a kernel that was not registered", __func__, cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (uint32_t)value > ptx::options().shared_bytes)
        return give(cudaErrorInvalidValue);
    f->most_shared = std::max(value, 48 << 10);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *of, const void *host) {
    ENTER
    *of = cudaFuncAttributes{};
    return cuda::function_at(host)
               ? cudaSuccess
               : wrong("a kernel that was not registered", __func__, cudaErrorInvalidDeviceFunction);
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
static thread_local std::vector<Configuration> configurations;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    const Configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    memcpy(stream, &c.stream, sizeof c.stream);
    return cudaSuccess;
}

static cudaError_t check_launch(const cuda::Function &f, const ptx::Kernel &k, dim3 grid, dim3 block, size_t shared) {
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!threads || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z || grid.x > 0x7fffffff ||
        grid.y > 65535 || grid.z > 65535)
        return wrong("a launch with sizes out of range", f.name, cudaErrorInvalidConfiguration);
    const uint32_t size[3] = {block.x, block.y, block.z};
    for (int i = 0; i < 3 && k.most_threads[0]; i++)
        if (size[i] > std::max<uint32_t>(k.most_threads[i], 1))
            return wrong("a launch of more threads than the kernel's bounds", f.name, cudaErrorInvalidValue);
    if (shared + k.static_shared > (size_t)f.most_shared)
        return wrong("a launch with more shared memory than the kernel may have", f.name, cudaErrorInvalidValue);
    return cudaSuccess;
}

static cudaError_t launch(cuda::Function *f, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t s) {
    static uint64_t number;
    KNOWN(s)
    if (s->device != current)
        return wrong("a launch in a stream of another device than the current one", f->name,
                     cudaErrorInvalidResourceHandle);
    ptx::Kernel &k = cuda::kernel_of(*f);
    if (const cudaError_t error = check_launch(*f, k, grid, block, shared))
        return error;
    const cudaError_t failure = planned("launch");
    if (failure != cudaSuccess)
        return give(failure);
    std::string parameters(k.parameter_bytes + 16, '\xcd');
    for (size_t i = 0; i < k.parameters.size(); i++)
        memcpy(&parameters[k.parameters[i].at], arguments[i], k.parameters[i].bytes);
    const int device = s->device;
    return add(s, [&k, grid, block, shared, parameters, device] {
        if (context_error != cudaSuccess)
            return;
        const ptx::Launch l = {&k,
                               &ptx::device(device),
                               (const unsigned char *)parameters.data(),
                               {grid.x, grid.y, grid.z},
                               {block.x, block.y, block.z},
                               (uint32_t)shared,
                               ++number};
        try {
            ptx::run(l);
        } catch (const ptx::Fault &fault) {
            find("a fault", fault.text);
            context_error = (cudaError_t)fault.error;
        }
    });
}

cudaError_t __cudaGetKernel(void **kernel, const void *host) {
    Locked locked(lock);
    *kernel = cuda::function_at(host);
    return *kernel ? cudaSuccess : wrong("a kernel that was not registered", __func__, cudaErrorInvalidDeviceFunction);
}

cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t s) {
    Locked locked(lock);
    return context_error != cudaSuccess ? give(context_error)
                                        : launch((cuda::Function *)kernel, grid, block, arguments, shared, s);
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t s) {
    void *kernel;
    const cudaError_t error = __cudaGetKernel(&kernel, host);
    return error != cudaSuccess ? error : __cudaLaunchKernel(kernel, grid, block, arguments, shared, s);
}
}
