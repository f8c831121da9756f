// gpu_runtime.cu - devices, memory, copies and errors: the functions of gpu_plugin.h.
#include "gpu/gpu_blocks.h"
#include "gpu/gpu_calls.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct fl_gpu_device {
    int number;
    cudaStream_t stream, beside; // the tasks; copies to the host that they do not wait for
    cudaEvent_t written;         // before such a copy
    cudaMemPool_t pool;          /* its own: the device's default pool is the program's */
    struct gpu_control *control; /* memory of the device */
    cudaError_t failed;          /* errors of CUDA remain: the first is reported again */
    bool recording;
    char text[400];
};

static pid_t user; // the process that has used CUDA

// CUDA does not work in a fork of a process that has used it.
static bool is_fork() {
    return user && user != getpid();
}

// What CUDA reports, and the versions where they are the reason.
static void describe_error(cudaError_t error, char *text, size_t bytes) {
    int driver = 0;
    int n = snprintf(text, bytes, "CUDA reports %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    if (error == cudaErrorInsufficientDriver || error == cudaErrorUnsupportedPtxVersion ||
        error == cudaErrorNoKernelImageForDevice) {
        (void)cudaDriverGetVersion(&driver);
        snprintf(text + n, bytes - (size_t)n, "; the driver is for CUDA %d.%d, the backend for %d.%d", driver / 1000,
                 driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
}

// Stores the text of an error. Unless memory was lacking, every later call on the device returns it.
static const char *failed(struct fl_gpu_device *d, cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return NULL;
    (void)cudaGetLastError(); // otherwise the next launch would report it
    if (error != cudaErrorMemoryAllocation)
        d->failed = error;
    const int n = snprintf(d->text, sizeof d->text, "%s: ", what);
    describe_error(error, d->text + n, sizeof d->text - (size_t)n);
    return d->text;
}

// A function of the plugin on its device, unless that failed before: the thread's current device becomes this one, and
// is again what it was when the function returns. now: of a function that runs at once, which is not allowed while
// tasks are recorded.
class On {
  public:
    On(struct fl_gpu_device *d, const char *what, bool now) : text(NULL), before_(d->number), number_(d->number) {
        if (is_fork())
            snprintf(d->text, sizeof d->text, "%s: process %ld has opened the device, and this is a fork of it", what,
                     (long)user);
        else if (d->failed == cudaSuccess && now && d->recording)
            snprintf(d->text, sizeof d->text, "%s: not allowed while tasks are recorded", what);
        if (is_fork() || d->failed != cudaSuccess || (now && d->recording)) {
            text = d->text;
            return;
        }
        text = failed(d, cudaGetDevice(&before_), what);
        if (!text && before_ != number_)
            text = failed(d, cudaSetDevice(number_), what);
    }
    ~On() {
        if (before_ != number_)
            (void)cudaSetDevice(before_);
    }
    On(const On &) = delete;
    const char *text; // why it cannot; NULL: it can

  private:
    int before_, number_;
};

// Returns the text of a failure to the caller: of a call of CUDA, and of On at the beginning of a function.
#define TRY(d, call, what)                                                                                             \
    do {                                                                                                               \
        if (const char *const text_ = failed(d, call, what))                                                           \
            return text_;                                                                                              \
    } while (0)
#define BEGIN(d, what, now)                                                                                            \
    const On on(d, what, now);                                                                                         \
    if (on.text)                                                                                                       \
    return on.text

static int count_devices(char *why, size_t bytes) {
    if (is_fork()) {
        snprintf(why, bytes, "process %ld has used CUDA, and this is a fork of it", (long)user);
        return 0;
    }
    user = getpid();
    int count = 0, driver = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        return count;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        snprintf(why, bytes, "no CUDA device (%s)", cudaGetErrorString(cudaErrorNoDevice));
    else if (driver == 0)
        snprintf(why, bytes, "no CUDA driver: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    else
        describe_error(error, why, bytes);
    return 0;
}

static const char *device_facts(struct fl_gpu_device *d, struct fl_gpu_facts *facts) {
    BEGIN(d, "properties", false);
    cudaDeviceProp properties;
    TRY(d, cudaGetDeviceProperties(&properties, d->number), "properties");
    memset(facts, 0, sizeof *facts);
    snprintf(facts->name, sizeof facts->name, "%s", properties.name);
    facts->major = properties.major;
    facts->minor = properties.minor;
    facts->processors = properties.multiProcessorCount;
    (void)cudaDriverGetVersion(&facts->driver);
    (void)cudaRuntimeGetVersion(&facts->runtime);
    return failed(d, cudaMemGetInfo(&facts->available, &facts->bytes), "memory");
}

static void close_device(struct fl_gpu_device *d) {
    {
        const On on(d, "close", false);
        if (d->control)
            (void)cudaFreeAsync(d->control, d->stream);
        if (d->written)
            (void)cudaEventDestroy(d->written);
        if (d->beside)
            (void)cudaStreamDestroy(d->beside);
        if (d->stream)
            (void)cudaStreamDestroy(d->stream);
        if (d->pool)
            (void)cudaMemPoolDestroy(d->pool);
    }
    free(d);
}

static const char *prepare(struct fl_gpu_device *d, struct fl_gpu_facts *facts) {
    const On on(d, "first use", false);
    if (const char *const text = device_facts(d, facts))
        return text;
    if (facts->major < 8) {
        snprintf(d->text, sizeof d->text, "%s has compute capability %d.%d, expected 8.0 or more", facts->name,
                 facts->major, facts->minor);
        return d->text;
    }
    int pools = 0;
    TRY(d, cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, d->number), "memory pools");
    if (!pools) {
        snprintf(d->text, sizeof d->text, "%s has no memory pools", facts->name);
        return d->text;
    }
    cudaMemPoolProps of;
    memset(&of, 0, sizeof of);
    of.allocType = cudaMemAllocationTypePinned;
    of.location.type = cudaMemLocationTypeDevice;
    of.location.id = d->number;
    unsigned long long kept = 256 << 20; // of freed memory: a wait returns the rest to the system
    TRY(d, cudaMemPoolCreate(&d->pool, &of), "memory pools");
    TRY(d, cudaMemPoolSetAttribute(d->pool, cudaMemPoolAttrReleaseThreshold, &kept), "memory pools");
    TRY(d, gpu_load_kernels(), "kernels");
    TRY(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "stream");
    TRY(d, cudaStreamCreateWithFlags(&d->beside, cudaStreamNonBlocking), "stream");
    TRY(d, cudaEventCreateWithFlags(&d->written, cudaEventDisableTiming), "stream");
    TRY(d, cudaMallocFromPoolAsync((void **)&d->control, sizeof *d->control, d->pool, d->stream), "memory");
    TRY(d, cudaMemsetAsync(d->control, 0, sizeof *d->control, d->stream), "memory");
    return failed(d, cudaStreamSynchronize(d->stream), "first use");
}

static struct fl_gpu_device *open_device(int number, struct fl_gpu_facts *facts, char *why, size_t bytes) {
    struct fl_gpu_device *d = (struct fl_gpu_device *)calloc(1, sizeof *d);
    if (!d) {
        snprintf(why, bytes, "no memory");
        return NULL;
    }
    d->number = number;
    const char *text = prepare(d, facts);
    if (!text)
        return d;
    snprintf(why, bytes, "%s", text);
    close_device(d);
    return NULL;
}

static const char *allocate(struct fl_gpu_device *d, size_t bytes, void **memory) {
    *memory = NULL;
    BEGIN(d, "allocation", true);
    const cudaError_t error = cudaMallocFromPoolAsync(memory, bytes, d->pool, d->stream);
    if (error != cudaSuccess) {
        *memory = NULL;
        return failed(d, error, "allocation");
    }
    return failed(d, cudaMemsetAsync(*memory, 0, bytes, d->stream), "allocation");
}

static const char *release(struct fl_gpu_device *d, void *memory) {
    BEGIN(d, "release", true);
    return failed(d, cudaFreeAsync(memory, d->stream), "release");
}

// Whether CUDA may know the caller's memory (cudaHostAlloc, PyTorch's pin_memory): copies from it end after the call.
// If CUDA does not say, the copy is waited for, which is right for any memory.
static bool is_pinned(const void *from) {
    cudaPointerAttributes of;
    if (cudaPointerGetAttributes(&of, from) == cudaSuccess)
        return of.type != cudaMemoryTypeUnregistered;
    (void)cudaGetLastError();
    return true;
}

static const char *put(struct fl_gpu_device *d, void *to, const void *from, size_t bytes) {
    BEGIN(d, "copy to the device", true);
    TRY(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->stream), "copy to the device");
    return is_pinned(from) ? failed(d, cudaStreamSynchronize(d->stream), "copy to the device") : NULL;
}

static const char *get(struct fl_gpu_device *d, void *to, const void *from, size_t bytes,
                       struct fl_gpu_failure *failure) {
    BEGIN(d, "copy to the host", true);
    if (bytes)
        TRY(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, d->stream), "copy to the host");
    TRY(d, cudaMemcpyAsync(failure, &d->control->failure, sizeof *failure, cudaMemcpyDeviceToHost, d->stream),
        "copy to the host");
    return failed(d, cudaStreamSynchronize(d->stream), "copy to the host");
}

static const char *copy(struct fl_gpu_device *d, void *to, const void *from, size_t bytes) {
    BEGIN(d, "copy", false);
    return failed(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->stream), "copy");
}

// --- copies to the host without waiting --------------------------------------------------------------------

struct fl_gpu_fetch {
    unsigned char *memory; // pinned memory of the host: a failure, then the bytes
    size_t room, bytes;
    cudaEvent_t arrived;
};

static const char *new_fetch(struct fl_gpu_device *d, struct fl_gpu_fetch **fetch, size_t bytes) {
    struct fl_gpu_fetch *f = (struct fl_gpu_fetch *)calloc(1, sizeof *f);
    if (!f)
        return failed(d, cudaErrorMemoryAllocation, "fetch");
    const char *text = failed(
        d, cudaHostAlloc((void **)&f->memory, sizeof(struct fl_gpu_failure) + bytes, cudaHostAllocDefault), "fetch");
    if (!text)
        text = failed(d, cudaEventCreateWithFlags(&f->arrived, cudaEventDisableTiming), "fetch");
    f->room = bytes;
    if (text) {
        (void)cudaFreeHost(f->memory);
        free(f);
        return text;
    }
    *fetch = f;
    return NULL;
}

static const char *fetch(struct fl_gpu_device *d, struct fl_gpu_fetch **fetch, const void *from, size_t bytes,
                         bool beside) {
    BEGIN(d, "fetch", true);
    if (!*fetch)
        if (const char *const text = new_fetch(d, fetch, bytes))
            return text;
    struct fl_gpu_fetch *f = *fetch;
    if (bytes > f->room) {
        snprintf(d->text, sizeof d->text, "fetch: %zu bytes, expected at most %zu", bytes, f->room);
        return d->text;
    }
    if (beside) { // the stream of copies, behind what is queued so far
        TRY(d, cudaEventRecord(d->written, d->stream), "fetch");
        TRY(d, cudaStreamWaitEvent(d->beside, d->written, 0), "fetch");
    }
    f->bytes = bytes;
    const size_t head = sizeof(struct fl_gpu_failure);
    const cudaStream_t stream = beside ? d->beside : d->stream;
    TRY(d, cudaMemcpyAsync(f->memory + head, from, bytes, cudaMemcpyDeviceToHost, stream), "fetch");
    if (beside)
        memset(f->memory, 0, head);
    else
        TRY(d, cudaMemcpyAsync(f->memory, &d->control->failure, head, cudaMemcpyDeviceToHost, stream), "fetch");
    return failed(d, cudaEventRecord(f->arrived, stream), "fetch");
}

static const char *has_arrived(struct fl_gpu_device *d, const struct fl_gpu_fetch *f, bool *arrived) {
    BEGIN(d, "fetch", true);
    const cudaError_t error = cudaEventQuery(f->arrived);
    *arrived = error == cudaSuccess;
    if (error != cudaErrorNotReady)
        return failed(d, error, "fetch");
    (void)cudaGetLastError(); // otherwise the next launch would report it
    return NULL;
}

static const char *fetched(struct fl_gpu_device *d, struct fl_gpu_fetch *f, void *to, struct fl_gpu_failure *failure) {
    BEGIN(d, "fetch", true);
    TRY(d, cudaEventSynchronize(f->arrived), "fetch");
    memcpy(failure, f->memory, sizeof *failure);
    memcpy(to, f->memory + sizeof *failure, f->bytes);
    return NULL;
}

static void give_up_fetch(struct fl_gpu_device *d, struct fl_gpu_fetch *f) {
    if (is_fork())
        return;
    const On on(d, "fetch", false);
    (void)cudaEventSynchronize(f->arrived); // a copy into the memory may not have ended
    (void)cudaEventDestroy(f->arrived);
    (void)cudaFreeHost(f->memory);
    (void)cudaGetLastError();
    free(f);
}

static const char *wait_for(struct fl_gpu_device *d, struct fl_gpu_failure *failure) {
    BEGIN(d, "wait", true);
    const char *const text = get(d, NULL, NULL, 0, failure);
    if (text || !failure->finding || failure->finding == FL_GPU_SKIPS)
        return text;
    return failed(d, cudaMemsetAsync(&d->control->failure, 0, sizeof d->control->failure, d->stream), "wait");
}

static bool has(const struct fl_format *format, enum fl_op op) {
    const struct gpu_kernels *kernels = gpu_kernels_for(format);
    return kernels && kernels->op[op];
}

static size_t need(const struct fl_args *args) {
    const struct gpu_kernels *kernels = gpu_kernels_for(args->format);
    return kernels && kernels->need[args->op] ? kernels->need[args->op](args) : 0;
}

static const char *submit(struct fl_gpu_device *d, const struct fl_call *call, const struct fl_gpu_floats *floats,
                          const struct fl_gpu_blocks *blocks, const char *what) {
    BEGIN(d, what, false);
    return failed(d, gpu_submit(call, floats, blocks, d->control, d->pool, d->stream), what);
}

// --- recordings: CUDA graphs -----------------------------------------------------------------------------------------

static const char *record(struct fl_gpu_device *d) {
    BEGIN(d, "recording", true);
    TRY(d, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "recording");
    d->recording = true;
    return NULL;
}

static const char *recorded(struct fl_gpu_device *d, void **recording) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t runnable = NULL;
    d->recording = false;
    const On on(d, "recording", false);
    if (!recording) { // discarded: the failure has been reported
        if (cudaStreamEndCapture(d->stream, &graph) == cudaSuccess && graph)
            (void)cudaGraphDestroy(graph);
        (void)cudaGetLastError();
        return NULL;
    }
    *recording = NULL;
    const char *text = failed(d, cudaStreamEndCapture(d->stream, &graph), "recording");
    if (!text)
        text = failed(d, cudaGraphInstantiate(&runnable, graph, 0), "recording");
    if (graph)
        (void)cudaGraphDestroy(graph);
    *recording = text ? NULL : (void *)runnable;
    return text;
}

static const char *replay(struct fl_gpu_device *d, void *recording) {
    BEGIN(d, "recorded calls", true);
    return failed(d, cudaGraphLaunch((cudaGraphExec_t)recording, d->stream), "recorded calls");
}

static void forget(struct fl_gpu_device *d, void *recording) {
    const On on(d, "recording", false);
    if (!on.text)
        (void)cudaGraphExecDestroy((cudaGraphExec_t)recording);
}

extern "C" __attribute__((visibility("default"))) const struct fl_gpu_plugin *flexlab_gpu_plugin(void);
const struct fl_gpu_plugin *flexlab_gpu_plugin(void) {
    for (int format = 1; format < 256; format++)
        (void)gpu_kernels_of((tensor_format)format); // the first call fills the table: here, in one thread
    (void)gpu_kernels_minifloat();
    static const struct fl_gpu_plugin plugin = {
        fl_gpu_sources(), {count_devices, open_device, close_device, device_facts, allocate, release,       put,
                           get,           copy,        fetch,        has_arrived,  fetched,  give_up_fetch, wait_for,
                           has,           need,        submit,       record,       recorded, replay,        forget}};
    return &plugin;
}
