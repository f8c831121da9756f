// gpu_numbers.cu - operations on tensors of plain numbers (f64, f32), and the table of kernels by format.
#include "core/ops/optimisers/optimiser_rules.h"
#include "gpu/gpu_calls.h"

template <class Number> __global__ void numbers_to_doubles(const struct fl_view view, double *values) {
    for (int64_t i = gpu_first(); i < view.count; i += gpu_stride())
        values[i] = ((const Number *)view.data)[i];
}

cudaError_t gpu_numbers_to_doubles(const struct fl_source *source, const struct fl_minifloat *made, int64_t count,
                                   double *values, cudaStream_t stream) {
    if (made)
        return gpu_decode_doubles(made, source->view.data, count, values, stream);
    const unsigned blocks = gpu_blocks(count);
    switch ((int)source->format->id) {
    case FMT_F64:
        return gpu_launch(numbers_to_doubles<double>, blocks, GPU_THREADS, 0, stream, source->view, values);
    case FMT_I32:
        return gpu_launch(numbers_to_doubles<int32_t>, blocks, GPU_THREADS, 0, stream, source->view, values);
    case FMT_U8:
        return gpu_launch(numbers_to_doubles<uint8_t>, blocks, GPU_THREADS, 0, stream, source->view, values);
    default:
        return gpu_kernels_for(source->format)->to_doubles(&source->view, values, stream);
    }
}

__global__ void running_statistics(const struct gpu_call call) {
    const struct fl_running &r = call.args.p.running;
    const double rows = (double)r.m, unbiased = rows > 1 ? rows / (rows - 1) : 1;
    gpu_each(call.control, r.n, [&](int64_t c) {
        r.mean[c] += r.momentum * (r.batch_mean[c] - r.mean[c]);
        r.variance[c] += r.momentum * (r.batch_variance[c] * unbiased - r.variance[c]);
    });
}

cudaError_t gpu_running_statistics(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(running_statistics, call->args.p.running.n, call, stream);
}

// One thread: a step needs few numbers, and each follows from the one before.
__global__ void step_numbers(const struct gpu_call call) {
    if (gpu_idles(call.control))
        return;
    const struct fl_trust_rate &trust = call.args.p.trust_rate;
    const struct fl_optimiser_step &step = call.args.p.optimiser_step;
    const struct fl_late &late = call.args.late;
    if (call.args.op == FL_OP_TRUST_RATE)
        *(float *)call.args.out.data = fl_trust_rate(gpu_late(late, trust.rate), trust.sums);
    else
        fl_optimiser_step(step.numbers, gpu_late(late, step.rate), step.sums, step.sums_count, step.scale);
}

cudaError_t gpu_step_numbers(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_once(step_numbers, call, stream);
}

#define GPU_FOLDER(folder) const struct gpu_kernels *gpu_kernels_##folder(void);
#define GPU_FORMAT(CONSTANT, folder)
#include "gpu_formats.h"
#undef GPU_FOLDER
#undef GPU_FORMAT

const struct gpu_kernels *gpu_kernels_of(tensor_format format) {
    switch ((int)format) {
#define GPU_FOLDER(folder)
#define GPU_FORMAT(CONSTANT, folder)                                                                                   \
    case CONSTANT:                                                                                                     \
        return gpu_kernels_##folder();
#include "gpu_formats.h"
    default:
        return NULL;
    }
}
