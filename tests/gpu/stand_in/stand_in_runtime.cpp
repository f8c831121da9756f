/* stand_in_runtime.cpp - devices, memory, streams, events and graphs. */
#include "stand_in_internal.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

/* --- errors of calls -----------------------------------------------------------------------------------------------
 */

using namespace stand_in;

static thread_local cudaError_t last_error;

static cudaError_t give(cudaError_t error) {
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

/* The result of calls that succeed by themselves: an error of a kernel persists, as on a device. */
static cudaError_t give_device_error() {
    return give(device_error);
}

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define STAND_IN_ERROR(name, number, text)                                                                             \
    case name:                                                                                                         \
        return #name;
        STAND_IN_ERRORS(STAND_IN_ERROR)
#undef STAND_IN_ERROR
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define STAND_IN_ERROR(name, number, text)                                                                             \
    case name:                                                                                                         \
        return text;
        STAND_IN_ERRORS(STAND_IN_ERROR)
#undef STAND_IN_ERROR
    }
    return "unrecognized error code";
}

cudaError_t cudaGetLastError() {
    Locked locked(lock);
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() {
    Locked locked(lock);
    return last_error;
}

/* --- devices -------------------------------------------------------------------------------------------------------
 */

enum : size_t { ALIGNMENT = 256, GAP = 256 };

/* Memory of a device is mapped twice: at the addresses that kernels and callers use, inaccessible unless a kernel runs,
 * and at others, through which copies access it. */
struct Device {
    unsigned char *memory, *window;
    size_t bytes, used;
    int key; /* of memory protection, -1: none */
    bool open;
    std::map<size_t, size_t> spare; /* offset, bytes */
};

/* Objects that live for ever are not destroyed at exit, when others may still free their memory. */
static auto &devices = *new std::vector<Device>;
static auto &allocations = *new std::map<unsigned char *, Allocation>;
static auto &pinned = *new std::map<unsigned char *, size_t>; /* of cudaHostAlloc */
static thread_local int current_device;

static size_t from_environment(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? (size_t)strtoull(text, nullptr, 0) : otherwise;
}

/* Memory protection keys switch the access of this thread at once, if the processor has them. Otherwise the protection
 * of the pages is changed, which takes time for each page. */
#if defined(__x86_64__) && defined(PKEY_DISABLE_ACCESS)
static void take_key(Device &d) {
    d.key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (d.key >= 0 && pkey_mprotect(d.memory, d.bytes, PROT_READ | PROT_WRITE, d.key) != 0)
        d.key = -1;
}
static void set_key(const Device &d, bool open) {
    pkey_set(d.key, open ? 0 : PKEY_DISABLE_ACCESS);
}
#else
static void take_key(Device &d) {
    d.key = -1;
}
static void set_key(const Device &, bool) {}
#endif

static void set_reach(Device &d, bool open) {
    if (d.open == open)
        return;
    d.open = open;
    if (d.key >= 0)
        set_key(d, open);
    else
        mprotect(d.memory, d.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void start_device(Device &d, size_t bytes) {
    const int file = memfd_create("stand-in", 0);
    d.bytes = bytes / ALIGNMENT * ALIGNMENT;
    if (file < 0 || ftruncate(file, (off_t)(bytes + GAP))) {
        perror("stand-in: device memory");
        exit(2);
    }
    d.memory = (unsigned char *)mmap(nullptr, bytes + GAP, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    d.window = (unsigned char *)mmap(nullptr, bytes + GAP, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (d.memory == MAP_FAILED || d.window == MAP_FAILED) {
        perror("stand-in: device memory");
        exit(2);
    }
    close(file);
    take_key(d);
    d.spare[0] = d.bytes;
}

static void start_devices() {
    static bool started;
    if (started)
        return;
    started = true;
    devices.resize(from_environment("FLEXLAB_STAND_IN_DEVICES", 1));
    for (Device &d : devices)
        start_device(d, std::max(from_environment("FLEXLAB_STAND_IN_BYTES", (size_t)1 << 30), (size_t)4096));
}

static void open_device(int number) {
    set_reach(devices[(size_t)number], true);
}

static void close_devices() {
    for (Device &d : devices)
        set_reach(d, false);
}

static int device_at(const void *p) {
    for (size_t i = 0; i < devices.size(); i++)
        if ((unsigned char *)p >= devices[i].memory && (unsigned char *)p < devices[i].memory + devices[i].bytes)
            return (int)i;
    return -1;
}

/* The address at which the host's part of a copy accesses p. */
static unsigned char *window_of(const void *p) {
    const int device = device_at(p);
    return device < 0 ? (unsigned char *)p
                      : devices[(size_t)device].window + ((unsigned char *)p - devices[(size_t)device].memory);
}

const Allocation *stand_in::allocation_below(const void *p) {
    auto it = allocations.upper_bound((unsigned char *)p);
    return it == allocations.begin() ? nullptr : &(--it)->second;
}
bool stand_in::in_device_memory(const void *p) {
    return device_at(p) >= 0;
}
int stand_in::device_of(const void *p, size_t *offset) {
    const int device = device_at(p);
    if (device >= 0)
        *offset = (size_t)((unsigned char *)p - devices[(size_t)device].memory);
    return device;
}
size_t stand_in::device_bytes(int device) {
    return devices[(size_t)device].bytes;
}

static bool is_allocated(const void *p, size_t bytes) {
    const Allocation *a = allocation_below(p);
    return a && !a->freed && (unsigned char *)p + bytes <= a->at + a->bytes;
}

/* Allocates bytes on a device and returns their address. NULL: the memory is exhausted. */
static void *take(int number, size_t bytes) {
    Device &d = devices[(size_t)number];
    if (bytes > d.bytes)
        return nullptr;
    const size_t size = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
    for (auto it = d.spare.begin(); it != d.spare.end(); ++it) {
        const size_t at = it->first, room = it->second;
        const bool last = at + room == d.bytes; /* its gap may exceed the device's memory */
        if (room < (last ? size - GAP : size))
            continue;
        d.spare.erase(it);
        if (room > size)
            d.spare[at + size] = room - size;
        d.used += std::min(size, room);
        allocations[d.memory + at] = Allocation{d.memory + at, bytes, number, false};
        STAND_IN_POISON(d.memory + at, std::min(size, room));
        STAND_IN_UNPOISON(d.memory + at, bytes);
        return d.memory + at;
    }
    return nullptr;
}

static void put_back(unsigned char *p) {
    const Allocation a = allocations[p];
    allocations.erase(p);
    Device &d = devices[(size_t)a.device];
    size_t at = (size_t)(p - d.memory), size = (a.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
    size = std::min(size, d.bytes - at);
    d.used -= size;
    STAND_IN_POISON(p, size);
    auto after = d.spare.lower_bound(at);
    if (after != d.spare.end() && after->first == at + size) {
        size += after->second;
        after = d.spare.erase(after);
    }
    if (after != d.spare.begin()) {
        --after;
        if (after->first + after->second == at) {
            after->second += size;
            return;
        }
    }
    d.spare[at] = size;
}

static cudaError_t needs_device() {
    start_devices();
    if (devices.empty())
        return cudaErrorNoDevice;
    return device_error;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    Locked locked(lock);
    start_devices();
    *count = (int)devices.size();
    return give(devices.empty() ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
    Locked locked(lock);
    start_devices();
    if (device < 0 || (size_t)device >= devices.size())
        return give(devices.empty() ? cudaErrorNoDevice : cudaErrorInvalidDevice);
    current_device = device;
    return give_device_error();
}

cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
    Locked locked(lock);
    start_devices();
    if (device < 0 || (size_t)device >= devices.size())
        return give(devices.empty() ? cudaErrorNoDevice : cudaErrorInvalidDevice);
    *properties = cudaDeviceProp{};
    snprintf(properties->name, sizeof properties->name, "stand-in for CUDA (CPU)");
    properties->totalGlobalMem = devices[(size_t)device].bytes;
    properties->sharedMemPerBlock = SHARED_DEFAULT;
    properties->sharedMemPerBlockOptin = SHARED_LIMIT;
    properties->sharedMemPerMultiprocessor = SHARED_LIMIT + 1024;
    properties->major = 8;
    properties->multiProcessorCount = 4;
    properties->warpSize = WARP;
    properties->maxThreadsPerBlock = MAX_THREADS;
    properties->regsPerBlock = 65536;
    properties->l2CacheSize = 1 << 20;
    const int block[3] = {1024, 1024, 64}, grid[3] = {0x7fffffff, 65535, 65535};
    std::copy(block, block + 3, properties->maxThreadsDim);
    std::copy(grid, grid + 3, properties->maxGridSize);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p.sharedMemPerBlock;
        break;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
    default:
        return give(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

/* --- streams -------------------------------------------------------------------------------------------------------
 */

struct Stream;
struct Capture;
typedef std::shared_ptr<Stream> StreamPointer;

/* The first `count` operations of a stream. */
struct Position {
    StreamPointer stream;
    uint64_t count;
};

struct Operation {
    std::function<void()> run;
    std::vector<Position> after;
};

struct Node { /* of a graph */
    std::function<void()> run;
    std::vector<size_t> after;
};

struct Capture {
    std::vector<Node> nodes;
    Stream *origin;
    bool invalid;
};

struct Stream {
    int device;
    bool blocking;
    std::deque<Operation> queue;
    uint64_t queued, done;
    std::shared_ptr<Capture> capture;
    std::vector<size_t> last; /* nodes that the next one of the capture follows */
};

struct CUstream_st {
    StreamPointer stream;
};
struct CUevent_st {
    Position at;
    std::shared_ptr<Capture> capture;
    std::vector<size_t> nodes;
    std::shared_ptr<std::chrono::steady_clock::time_point> time;
};
struct CUgraph_st {
    std::vector<Node> nodes;
};
struct CUgraphExec_st {
    std::shared_ptr<std::vector<Node>> nodes;
};

enum : size_t { LONG_QUEUE = 1024 };
static auto &streams = *new std::vector<StreamPointer>;      /* that have work or a handle */
static auto &null_streams = *new std::vector<StreamPointer>; /* the default stream of each device */
static auto &handles = *new std::vector<CUstream_st *>;

static StreamPointer new_stream(int device, bool blocking) {
    StreamPointer s(new Stream{device, blocking, {}, 0, 0, nullptr, {}});
    streams.push_back(s);
    return s;
}

/* NULL: the handle is invalid. */
static StreamPointer stream_of(cudaStream_t handle) {
    if (!handle) {
        while (null_streams.size() < devices.size())
            null_streams.push_back(new_stream((int)null_streams.size(), true));
        return null_streams[(size_t)current_device];
    }
    return std::find(handles.begin(), handles.end(), handle) == handles.end() ? nullptr : handle->stream;
}

static bool can_advance(const Stream &s) {
    if (s.queue.empty())
        return false;
    for (const Position &p : s.queue.front().after)
        if (p.stream->done < p.count)
            return false;
    return true;
}

static void advance(Stream &s) {
    Operation now = std::move(s.queue.front());
    s.queue.pop_front();
    if (now.run)
        now.run();
    s.done++;
}

/* Runs work until `position` is reached. Seed 0: only what it needs, in order; otherwise any stream may run ahead. */
static void drain(const Position &position) {
    Stream *const wanted = position.stream.get();
    std::vector<Stream *> able;
    while (wanted->done < position.count) {
        if (!random_order() && can_advance(*wanted)) {
            advance(*wanted);
            continue;
        }
        able.clear();
        for (const StreamPointer &s : streams)
            if (can_advance(*s))
                able.push_back(s.get());
        if (able.empty())
            abort(); /* operations wait only for earlier ones */
        advance(*able[random_order() ? random_below((uint32_t)able.size()) : 0]);
    }
    close_devices();
}

static Position end_of(const StreamPointer &s) {
    return {s, s->queued};
}

static void drain_device(int device) {
    const std::vector<StreamPointer> all = streams;
    for (const StreamPointer &s : all)
        if (s->device == device)
            drain(end_of(s));
}

/* The default stream waits for blocking streams, and they wait for it. */
static void add_implicit_order(const StreamPointer &s, Operation &o) {
    if (!s->blocking)
        return;
    const StreamPointer null = null_streams.size() > (size_t)s->device ? null_streams[(size_t)s->device] : nullptr;
    if (s == null) {
        for (const StreamPointer &other : streams)
            if (other != s && other->blocking && other->device == s->device && !other->queue.empty())
                o.after.push_back(end_of(other));
    } else if (null && !null->queue.empty()) {
        o.after.push_back(end_of(null));
    }
}

static void enqueue(const StreamPointer &s, std::function<void()> run, std::vector<Position> after = {}) {
    if (s->capture) {
        s->capture->nodes.push_back({std::move(run), s->last});
        s->last = {s->capture->nodes.size() - 1};
        return;
    }
    Operation o{std::move(run), std::move(after)};
    add_implicit_order(s, o);
    s->queue.push_back(std::move(o));
    s->queued++;
    if (s->queue.size() > LONG_QUEUE)
        drain({s, s->queued - LONG_QUEUE / 2});
}

static cudaError_t needs_stream(cudaStream_t handle, StreamPointer &s) {
    const cudaError_t error = needs_device();
    if (error != cudaSuccess)
        return error;
    s = stream_of(handle);
    return s ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

/* Calls that wait are errors during the capture of a stream. */
static cudaError_t forbid_in_capture(const StreamPointer &s) {
    if (!s->capture)
        return cudaSuccess;
    s->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}
static cudaError_t forbid_in_any_capture() {
    for (const StreamPointer &s : streams)
        if (s->capture)
            return forbid_in_capture(s);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    Locked locked(lock);
    const cudaError_t error = needs_device();
    if (error != cudaSuccess)
        return give(error);
    *stream = new CUstream_st{new_stream(current_device, !(flags & cudaStreamNonBlocking))};
    handles.push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    Locked locked(lock);
    auto it = std::find(handles.begin(), handles.end(), handle);
    if (it == handles.end())
        return give(cudaErrorInvalidResourceHandle);
    drain(end_of(handle->stream));
    streams.erase(std::find(streams.begin(), streams.end(), handle->stream));
    handles.erase(it);
    delete handle;
    return give_device_error();
}

/* --- counts --------------------------------------------------------------------------------------------------------
 */

static struct { long waits, stream_waits, replays, allocations; } counts; /* waits: for events too */

long stand_in_count(const char *what) {
    Locked locked(lock);
    const std::string name = what;
    return name == "waits"          ? counts.waits
           : name == "stream waits" ? counts.stream_waits
           : name == "replays"      ? counts.replays
           : name == "allocations"  ? counts.allocations
                                    : -1;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    Locked locked(lock);
    counts.waits++;
    counts.stream_waits++;
    StreamPointer s;
    cudaError_t error = needs_stream(handle, s);
    if (error == cudaSuccess)
        error = forbid_in_capture(s);
    if (error != cudaSuccess)
        return give(error);
    drain(end_of(s));
    return give_device_error();
}

/* Each query does a little work, so that a loop of queries ends. */
static cudaError_t query(const Position &p) {
    if (p.stream && p.stream->done < p.count) {
        drain({p.stream, p.stream->done + 1});
        if (p.stream->done < p.count)
            return cudaErrorNotReady; /* CUDA does not keep this one as the last error either */
    }
    return give_device_error();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    Locked locked(lock);
    StreamPointer s;
    cudaError_t error = needs_stream(handle, s);
    if (error == cudaSuccess)
        error = forbid_in_capture(s);
    return error != cudaSuccess ? give(error) : query(end_of(s));
}

cudaError_t cudaDeviceSynchronize() {
    Locked locked(lock);
    counts.waits++;
    counts.stream_waits++;
    cudaError_t error = needs_device();
    if (error == cudaSuccess)
        error = forbid_in_any_capture();
    if (error != cudaSuccess)
        return give(error);
    drain_device(current_device);
    return give_device_error();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *user) {
    Locked locked(lock);
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess)
        return give(error);
    enqueue(s, [=] {
        close_devices();
        function(user);
    });
    return cudaSuccess;
}

/* --- events --------------------------------------------------------------------------------------------------------
 */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    Locked locked(lock);
    const cudaError_t error = needs_device();
    if (error != cudaSuccess)
        return give(error);
    *event = new CUevent_st{};
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    Locked locked(lock);
    if (!event)
        return give(cudaErrorInvalidResourceHandle);
    delete event;
    return give_device_error();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    Locked locked(lock);
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess || !event)
        return give(error != cudaSuccess ? error : cudaErrorInvalidResourceHandle);
    event->capture = s->capture;
    if (s->capture) {
        event->nodes = s->last;
        return cudaSuccess;
    }
    auto time = std::make_shared<std::chrono::steady_clock::time_point>();
    enqueue(s, [time] { *time = std::chrono::steady_clock::now(); });
    event->at = end_of(s);
    event->time = time;
    return cudaSuccess;
}

static cudaError_t forbid_captured(cudaEvent_t event) {
    if (!event)
        return cudaErrorInvalidResourceHandle;
    if (!event->capture)
        return device_error;
    event->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    Locked locked(lock);
    counts.waits++;
    const cudaError_t error = forbid_captured(event);
    if (error != cudaSuccess)
        return give(error);
    if (event->at.stream)
        drain(event->at);
    return give_device_error();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    Locked locked(lock);
    const cudaError_t error = forbid_captured(event);
    return error != cudaSuccess ? give(error) : query(event->at);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    Locked locked(lock);
    for (cudaEvent_t e : {start, end}) {
        if (!e || !e->time)
            return give(cudaErrorInvalidResourceHandle);
        if (e->at.stream->done < e->at.count)
            return cudaErrorNotReady;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    Locked locked(lock);
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess || !event)
        return give(error != cudaSuccess ? error : cudaErrorInvalidResourceHandle);
    if (event->capture) { /* the stream joins the capture */
        if (s->capture && s->capture != event->capture)
            return give(cudaErrorStreamCaptureIsolation);
        s->capture = event->capture;
        s->last.insert(s->last.end(), event->nodes.begin(), event->nodes.end());
        return cudaSuccess;
    }
    if (s->capture) {
        s->capture->invalid = true;
        return give(cudaErrorStreamCaptureIsolation);
    }
    if (event->at.stream && event->at.stream != s)
        enqueue(s, nullptr, {event->at});
    return cudaSuccess;
}

/* --- launches ------------------------------------------------------------------------------------------------------
 */

static auto &shared_limits = *new std::map<const void *, size_t>;
static struct {
    int launches; /* until the one that fails; 0: none fails */
    cudaError_t error;
} fault = {(int)from_environment("FLEXLAB_STAND_IN_FAIL", 0), cudaErrorIllegalAddress};

void stand_in_fail(int launch, cudaError_t error) {
    Locked locked(lock);
    fault = {launch, error};
}

static cudaError_t take_fault() {
    if (fault.launches == 0 || --fault.launches > 0)
        return cudaSuccess;
    return fault.error;
}

cudaError_t stand_in_set_shared_limit(const void *kernel, cudaFuncAttribute attribute, int value) {
    Locked locked(lock);
    const cudaError_t error = needs_device();
    if (error != cudaSuccess)
        return give(error);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || (size_t)value > SHARED_LIMIT)
        return give(cudaErrorInvalidValue);
    shared_limits[kernel] = (size_t)value;
    return cudaSuccess;
}

static cudaError_t check_launch(const Launch &l) {
    const size_t x = l.block.x, y = l.block.y, z = l.block.z;
    if (!x || !y || !z || x > MAX_THREADS || y > MAX_THREADS || z > 64 || x * y * z > MAX_THREADS)
        return cudaErrorInvalidConfiguration;
    if (!l.grid.x || !l.grid.y || !l.grid.z || l.grid.x > 0x7fffffff || l.grid.y > 65535 || l.grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    auto limit = shared_limits.find(l.kernel);
    if (l.shared_bytes >
        (limit == shared_limits.end() ? (size_t)SHARED_DEFAULT : std::max(limit->second, (size_t)SHARED_DEFAULT)))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

void stand_in::submit(const void *kernel, dim3 grid, dim3 threads, size_t shared_bytes, cudaStream_t handle,
                      void (*call)(const void *), std::shared_ptr<const void> arguments, size_t argument_bytes) {
    Locked locked(lock);
    StreamPointer s;
    cudaError_t error = needs_stream(handle, s);
    const Launch l{kernel, grid, threads, shared_bytes, call, std::move(arguments), argument_bytes};
    if (error == cudaSuccess)
        error = check_launch(l);
    const cudaError_t injected = error == cudaSuccess ? take_fault() : cudaSuccess;
    const bool at_once = injected < cudaErrorIllegalAddress || injected == cudaErrorLaunchOutOfResources;
    if (injected != cudaSuccess && at_once)
        error = injected;
    if (error != cudaSuccess) {
        give(error);
        return;
    }
    const int device = s->device;
    enqueue(s, [l, injected, device] {
        if (injected != cudaSuccess && device_error == cudaSuccess)
            device_error = injected;
        if (device_error != cudaSuccess)
            return;
        open_device(device);
        run_grid(l);
    });
}

/* --- memory --------------------------------------------------------------------------------------------------------
 */

static void fill_new(const void *p, size_t bytes) {
    fill_with_rubbish(window_of(p), bytes);
    check_written(p, bytes, false);
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    Locked locked(lock);
    *p = nullptr;
    cudaError_t error = needs_device();
    if (error == cudaSuccess)
        error = forbid_in_any_capture();
    if (error != cudaSuccess || !bytes)
        return give(error);
    *p = take(current_device, bytes);
    if (!*p) { /* memory that waits to be freed may suffice */
        drain_device(current_device);
        *p = take(current_device, bytes);
    }
    if (!*p)
        return give(cudaErrorMemoryAllocation);
    fill_new(*p, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    Locked locked(lock);
    if (!p)
        return give_device_error();
    auto it = allocations.find((unsigned char *)p);
    if (it == allocations.end() || it->second.freed) {
        report(cudaSuccess, "cudaFree of %p, which is not allocated", p);
        return give(cudaErrorInvalidValue);
    }
    drain_device(it->second.device);
    put_back((unsigned char *)p);
    return give_device_error();
}

cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t handle) {
    Locked locked(lock);
    counts.allocations++;
    *p = nullptr;
    StreamPointer s;
    cudaError_t error = needs_stream(handle, s);
    if (error == cudaSuccess)
        error = forbid_in_capture(s);
    if (error != cudaSuccess || !bytes)
        return give(error);
    *p = take(s->device, bytes);
    if (!*p) {
        drain_device(s->device);
        *p = take(s->device, bytes);
    }
    if (!*p)
        return give(cudaErrorMemoryAllocation);
    void *const at = *p;
    enqueue(s, [at, bytes] { fill_new(at, bytes); });
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t handle) {
    Locked locked(lock);
    StreamPointer s;
    cudaError_t error = needs_device();
    if (error != cudaErrorNoDevice) {
        s = stream_of(handle);
        error = s ? forbid_in_capture(s) : cudaErrorInvalidResourceHandle;
    }
    if (error != cudaSuccess)
        return give(error);
    auto it = allocations.find((unsigned char *)p);
    if (it == allocations.end() || it->second.freed) {
        report(cudaSuccess, "cudaFreeAsync of %p, which is not allocated", p);
        return give(cudaErrorInvalidValue);
    }
    it->second.freed = true;
    enqueue(s, [p] { put_back((unsigned char *)p); });
    return give_device_error();
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    Locked locked(lock);
    *pool = nullptr;
    const cudaError_t error = needs_device();
    return give(error != cudaSuccess                             ? error
                : device < 0 || (size_t)device >= devices.size() ? cudaErrorInvalidDevice
                                                                 : cudaSuccess);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) {
    return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    Locked locked(lock);
    const cudaError_t error = needs_device();
    if (error != cudaSuccess)
        return give(error);
    const Device &d = devices[(size_t)current_device];
    *free = d.bytes - d.used;
    *total = d.bytes;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
    Locked locked(lock);
    counts.allocations++;
    *p = nullptr;
    const cudaError_t error = needs_device();
    if (error != cudaSuccess || !bytes)
        return give(error);
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*p)
        return give(cudaErrorMemoryAllocation);
    fill_with_rubbish(*p, bytes);
    pinned[(unsigned char *)*p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
    Locked locked(lock);
    if (!p)
        return give_device_error();
    auto it = pinned.find((unsigned char *)p);
    if (it == pinned.end())
        return give(cudaErrorInvalidValue);
    for (size_t i = 0; i < devices.size(); i++)
        drain_device((int)i);
    pinned.erase(it);
    free(p);
    return give_device_error();
}

bool stand_in::is_pinned(const void *p) {
    auto it = pinned.upper_bound((unsigned char *)p);
    if (it == pinned.begin())
        return false;
    --it;
    return (unsigned char *)p < it->first + it->second;
}

/* Whether p is memory of the kind that a copy names. */
static bool is_side(const void *p, size_t bytes, bool device, bool any) {
    const bool there = device_at(p) >= 0;
    if (there ? is_allocated(p, bytes) && (device || any) : !device || any)
        return true;
    report(cudaSuccess, "a copy of %zu bytes: %p is not %s", bytes, p,
           there && device ? "within an allocation"
           : device        ? "on a device"
                           : "on the host");
    return false;
}

static cudaError_t copy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, const StreamPointer &s) {
    if (!bytes)
        return cudaSuccess;
    const bool any = kind == cudaMemcpyDefault;
    if (!is_side(dst, bytes, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, any) ||
        !is_side(src, bytes, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, any))
        return cudaErrorInvalidValue;
    const auto run = [](void *to, const void *from, size_t n) {
        if (device_error != cudaSuccess)
            return;
        memmove(window_of(to), window_of(from), n);
        if (device_at(to) >= 0 && device_at(from) >= 0)
            check_copied(to, from, n);
        else if (device_at(to) >= 0)
            check_written(to, n, true);
    };
    if (device_at(src) < 0 && !is_pinned(src) && !s->capture) {
        auto staged = std::make_shared<std::vector<unsigned char>>((const unsigned char *)src,
                                                                   (const unsigned char *)src + bytes);
        enqueue(s, [=] { run(dst, staged->data(), bytes); });
    } else {
        enqueue(s, [=] { run(dst, src, bytes); });
    }
    if (device_at(dst) < 0 && !is_pinned(dst) && !s->capture) {
        drain(end_of(s));
        return device_error;
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
    Locked locked(lock);
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    return give(error != cudaSuccess ? error : copy(dst, src, bytes, kind, s));
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int, const void *src, int, size_t bytes, cudaStream_t handle) {
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, handle);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
    Locked locked(lock);
    StreamPointer s;
    cudaError_t error = needs_stream(nullptr, s);
    if (error == cudaSuccess)
        error = forbid_in_any_capture();
    if (error == cudaSuccess)
        error = copy(dst, src, bytes, kind, s);
    if (error != cudaSuccess)
        return give(error);
    drain(end_of(s));
    return give_device_error();
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t handle) {
    Locked locked(lock);
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess || !bytes)
        return give(error);
    if (device_at(p) < 0 || !is_allocated(p, bytes)) {
        report(cudaSuccess, "a memset of %zu bytes at %p, which is not within an allocation", bytes, p);
        return give(cudaErrorInvalidValue);
    }
    enqueue(s, [=] {
        if (device_error != cudaSuccess)
            return;
        memset(window_of(p), value, bytes);
        check_written(p, bytes, true);
    });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    return cudaMemsetAsync(p, value, bytes, nullptr);
}

/* --- graphs --------------------------------------------------------------------------------------------------------
 */

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
    Locked locked(lock);
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess)
        return give(error);
    if (!handle)
        return give(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return give(cudaErrorInvalidValue);
    s->capture = std::make_shared<Capture>(Capture{{}, s.get(), false});
    s->last.clear();
    return cudaSuccess;
}

/* Whether each node of the capture comes before one of `last`, or is one. */
static bool is_joined(const Capture &c, const std::vector<size_t> &last) {
    std::vector<bool> reached(c.nodes.size());
    for (size_t i : last)
        reached[i] = true;
    for (size_t i = c.nodes.size(); i-- > 0;)
        if (reached[i])
            for (size_t before : c.nodes[i].after)
                reached[before] = true;
    return std::find(reached.begin(), reached.end(), false) == reached.end();
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
    Locked locked(lock);
    *graph = nullptr;
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess)
        return give(error);
    const std::shared_ptr<Capture> c = s->capture;
    if (!c || c->origin != s.get())
        return give(cudaErrorInvalidValue);
    const bool joined = is_joined(*c, s->last);
    for (const StreamPointer &other : streams)
        if (other->capture == c) {
            other->capture = nullptr;
            other->last.clear();
        }
    if (c->invalid || !joined)
        return give(c->invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{c->nodes};
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
    Locked locked(lock);
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess)
        return give(error);
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    Locked locked(lock);
    *exec = nullptr;
    if (!graph)
        return give(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{std::make_shared<std::vector<Node>>(graph->nodes)};
    return cudaSuccess;
}

/* Seed 0: in the order of the capture; otherwise in any that the edges allow. */
static void run_graph(const std::vector<Node> &nodes) {
    std::vector<bool> done(nodes.size());
    std::vector<size_t> able;
    for (size_t count = 0; count < nodes.size(); count++) {
        able.clear();
        for (size_t i = 0; i < nodes.size() && (random_order() || able.empty()); i++)
            if (!done[i] &&
                std::all_of(nodes[i].after.begin(), nodes[i].after.end(), [&](size_t j) { return done[j]; }))
                able.push_back(i);
        const size_t i = able[random_order() ? random_below((uint32_t)able.size()) : 0];
        if (nodes[i].run)
            nodes[i].run();
        done[i] = true;
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    Locked locked(lock);
    counts.replays++;
    StreamPointer s;
    const cudaError_t error = needs_stream(handle, s);
    if (error != cudaSuccess || !exec)
        return give(error != cudaSuccess ? error : cudaErrorInvalidValue);
    const std::shared_ptr<std::vector<Node>> nodes = exec->nodes;
    enqueue(s, [nodes] { run_graph(*nodes); });
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    Locked locked(lock);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    Locked locked(lock);
    delete exec;
    return cudaSuccess;
}
