/* gpu_call.h - a task in the form that kernels on the device read.
 *
 * The host queues the kernels of a task without waiting. They share one struct gpu_control in the memory of the device:
 * the next attempt of the write, statistics, and the first failure. After a failure every later kernel of the queue
 * returns at once; the host reads the failure when it waits. */
#ifndef FL_GPU_CALL_H
#define FL_GPU_CALL_H

#include "autoflex/write_rules.h"
#include "core/tensor/fill.h"
#include "core/tensor/narrow.h"
#include "gpu/device.h"
#include "gpu/gpu_plugin.h"
#include <initializer_list>

struct gpu_control {
    struct fl_gpu_failure failure;
    struct fl_stats stats;
    int64_t found; /* the first position of an invalid number; -1: none so far */
    struct fl_write_state write;
    int32_t next; /* of the write, while a part of its task computes numbers that it stores */
};

struct gpu_call {
    struct fl_args args;
    struct gpu_control *control;
    struct fl_slot *slot;     /* of the output; NULL: the results are numbers */
    struct fl_minifloat made; /* the format of the output, if it was made from its parameters ... */
    int32_t code_bytes;       /* ... and bytes of its elements if kernels store these; 0: they store binary32 */
    uint64_t seed;
    int32_t mode;    /* of rounding */
    int32_t attempt; /* 0 or 1; the host chooses kernels by it */
};

/* The source of numbers, in the memory of the device: doubles, floats, bytes with their values in each channel, or a
 * rule that computes them (fill). */
struct gpu_numbers {
    const double *d;
    const float *f;
    const uint8_t *pixels;
    const float *values;
    int64_t channels;
    struct fl_fill fill;
};

/* Exact sums of products, high + low, where low is rounded to odd, and what is added to them. */
struct gpu_pairs {
    const double *high, *low, *bias, *residual; /* bias, residual: NULL where there is none */
};

/* Operations of the formats of a folder. */
typedef cudaError_t (*gpu_operation)(const struct gpu_call *call, cudaStream_t stream);
struct gpu_kernels {
    gpu_operation op[FL_OP_LIMIT];
    fl_need need[FL_OP_LIMIT]; /* NULL: no workspace */
    /* Converts n elements of a view to doubles, or to the nearest binary32 (NULL: they are); stores numbers as elements
     * (`result`: as results of an operation); stores both parts of a tensor with a wide part; stores sums of a product
     * with its epilogue; sets the wide part from the elements. */
    cudaError_t (*to_doubles)(const struct fl_view *view, double *values, cudaStream_t stream);
    cudaError_t (*to_floats)(const struct fl_view *view, float *values, cudaStream_t stream);
    cudaError_t (*from_numbers)(const struct gpu_call *call, const struct gpu_numbers *numbers, bool result,
                                cudaStream_t stream);
    cudaError_t (*load_wide)(const struct gpu_call *call, void *wide, const struct gpu_numbers *numbers,
                             cudaStream_t stream);
    cudaError_t (*store_pairs)(const struct gpu_call *call, const struct gpu_pairs *pairs, cudaStream_t stream);
    cudaError_t (*follow)(const struct gpu_control *control, const struct fl_view *view, void *wide,
                          cudaStream_t stream);
};
/* Enters operations that are run alike. */
static inline void gpu_add(struct gpu_kernels *to, std::initializer_list<enum fl_op> ops, gpu_operation run,
                           fl_need need = NULL) {
    for (const enum fl_op op : ops) {
        to->op[op] = run;
        to->need[op] = need;
    }
}
/* Indices or labels, which are below `limit` or `ignored`, and what a failure tells of them. */
struct gpu_indices {
    const int32_t *indices;
    int64_t count, limit;
    const char *what;
    int32_t finding;
    int64_t ignored = INT64_MIN; /* none */
};
/* Stops the queue at the first invalid one. */
cudaError_t gpu_check_indices(struct gpu_control *control, const struct gpu_indices &given, cudaStream_t stream);
cudaError_t gpu_running_statistics(const struct gpu_call *call, cudaStream_t stream);
/* optimiser_step, trust_rate */
cudaError_t gpu_step_numbers(const struct gpu_call *call, cudaStream_t stream);
/* The kernels of a format; NULL: none. */
const struct gpu_kernels *gpu_kernels_of(tensor_format format);
/* Those of floats made from their parameters: elements are binary32 numbers, in the workspace. */
const struct gpu_kernels *gpu_kernels_minifloat(void);
/* Those that write and read a format: narrow mantissas are those of 16 bits, clamped afterwards (narrow.h). */
static inline const struct gpu_kernels *gpu_kernels_for(const struct fl_format *format) {
    return format->element ? gpu_kernels_minifloat() : gpu_kernels_of(fl_is_narrow(format) ? FMT_FLEX16_5 : format->id);
}

/* --- in kernels --------------------------------------------------------------------------------------------------- */

/* Number i. */
__device__ static inline double gpu_number(const struct gpu_numbers &n, int64_t i) {
    return n.fill.kind ? fl_fill_value(&n.fill, i)
           : n.d       ? n.d[i]
           : n.f       ? n.f[i]
                       : n.values[i % n.channels * 256 + n.pixels[i]];
}

/* The state of this run of a kernel. */
struct gpu_now {
    void *out; /* NULL: measure */
    int e;     /* exponent of the output */
    struct fl_rounding rounding;
    struct fl_minifloat made;
    int32_t code_bytes;
};

/* Whether the kernels of an attempt have nothing to do. */
__device__ static inline bool gpu_idles(const struct gpu_control *control) {
    const int next = control->write.next; /* both are read at once */
    return control->failure.finding || next == FL_WRITE_DONE;
}

/* Sets *now at the start of a kernel. False: the kernel has nothing to do. */
__device__ static inline bool gpu_begin(const struct gpu_call &call, struct gpu_now *now) {
    if (gpu_idles(call.control))
        return false;
    now->out = call.control->write.next == FL_WRITE_MEASURE ? NULL : call.args.out.data;
    now->e = fl_exponent(&call.args.out);
    now->rounding.mode = (tensor_rounding)call.mode;
    now->rounding.key = call.seed;
    now->rounding.write = call.slot ? call.slot->writes : 0;
    now->made = call.made;
    now->code_bytes = call.code_bytes;
    return true;
}

/* A parameter that may be in a tensor, which is read now (core/table/kernel.h); a task has one at most. */
__device__ static inline float gpu_late(const struct fl_late &late, float given) {
    return late.kind == FL_LATE_FLOAT ? *(const float *)late.at : given;
}
__device__ static inline double gpu_late(const struct fl_late &late, double given) {
    return late.kind == FL_LATE_DOUBLE ? *(const double *)late.at : given;
}

/* The first item of this thread in a grid-stride loop, and the stride. */
__device__ static inline int64_t gpu_first() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ static inline int64_t gpu_stride() {
    return (int64_t)gridDim.x * blockDim.x;
}

/* Records the position of an invalid number. The first position remains; -1 is the largest unsigned number. */
__device__ static inline void gpu_found(struct gpu_control *control, int64_t at) {
    atomicMin((unsigned long long *)&control->found, (unsigned long long)at);
}

/* Adds the statistics of the threads of a block, all of which call it. Maxima are positive doubles, which compare as
 * their bits do. */
__device__ static inline void gpu_report(struct gpu_control *control, const struct fl_stats &mine) {
    const uint64_t bits = (uint64_t)__double_as_longlong(mine.maximum);
    const uint32_t all = 0xffffffffu, high = __reduce_max_sync(all, (uint32_t)(bits >> 32)),
                   low = __reduce_max_sync(all, bits >> 32 == high ? (uint32_t)bits : 0);
    const int gamma = (int)__reduce_max_sync(all, (uint32_t)mine.gamma);
    const unsigned long long maximum = (uint64_t)high << 32 | low;
    struct fl_stats *to = &control->stats;
    if (threadIdx.x % 32 == 0) {
        if (maximum)
            atomicMax((unsigned long long *)&to->maximum, maximum);
        if (gamma)
            atomicMax(&to->gamma, gamma);
    }
    if (mine.saturated)
        atomicAdd((unsigned long long *)&to->saturated, (unsigned long long)mine.saturated);
    if (mine.flushed)
        atomicAdd((unsigned long long *)&to->flushed, (unsigned long long)mine.flushed);
    if (mine.nonfinite)
        atomicAdd((unsigned long long *)&to->nonfinite, (unsigned long long)mine.nonfinite);
}

/* The frames of most kernels. Calls item(i) for each i below count, shared among the threads. */
template <class Item>
__device__ static __forceinline__ void gpu_each(const struct gpu_control *control, int64_t count, Item item) {
    if (gpu_idles(control))
        return;
    for (int64_t i = gpu_first(); i < count; i += gpu_stride())
        item(i);
}
/* Calls store(now, i, &stats) for each i, by so many threads together, and reports the statistics. */
template <int threads = 1, class Store>
__device__ static __forceinline__ void gpu_store_each(const struct gpu_call &call, int64_t count, Store store) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    struct fl_stats stats = {};
    for (int64_t i = gpu_first() / threads; i < count; i += gpu_stride() / threads)
        store(now, i, &stats);
    gpu_report(call.control, stats);
}

/* Grids of kernels with grid-stride loops. */
enum { GPU_THREADS = 256 };
static inline unsigned gpu_blocks(int64_t work) {
    const int64_t blocks = (work + GPU_THREADS - 1) / GPU_THREADS;
    const int64_t most = 1056; /* eight on each multiprocessor of an H100 */
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}
/* A thread for each of `work` items, and one thread. */
template <class... P, class... A>
static inline cudaError_t gpu_run(void (*kernel)(P...), int64_t work, const struct gpu_call *call, cudaStream_t stream,
                                  A... more) {
    return gpu_launch(kernel, gpu_blocks(work), GPU_THREADS, 0, stream, *call, more...);
}
template <class... P, class... A>
static inline cudaError_t gpu_once(void (*kernel)(P...), const struct gpu_call *call, cudaStream_t stream, A... more) {
    return gpu_launch(kernel, 1, 1, 0, stream, *call, more...);
}
/* An operation that is one kernel, with a thread for each element of the output, or for so many of them where what a
 * thread does once costs as much as a few elements. */
template <void (*kernel)(const struct gpu_call), int elements = 1>
static cudaError_t gpu_run_all(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(kernel, (call->args.out.count + elements - 1) / elements, call, stream);
}

#endif
