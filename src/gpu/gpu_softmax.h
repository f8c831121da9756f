/* gpu_softmax.h - softmax with cross-entropy in double, by the sequence of core/losses/softmax.c, for the formats of
 * a folder. A thread takes a row.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_softmax. */
#ifndef FL_GPU_SOFTMAX_H
#define FL_GPU_SOFTMAX_H

#include "core/arithmetic/elementary.h"
#include "gpu/gpu_element.h"

namespace {

/* Logits that become gradients (where they are not wanted), losses of the rows, largest classes. */
static size_t softmax_need(const struct fl_args *args) {
    return (size_t)(args->in[0].count + 2 * args->geo.m) * sizeof(double);
}

__device__ static inline double *losses_of(const struct fl_args &args) {
    return (double *)args.workspace + args.in[0].count;
}

__device__ static inline int32_t *largest_of(const struct fl_args &args) {
    return (int32_t *)(losses_of(args) + args.geo.m);
}

__global__ void check_labels(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    for (int64_t i = gpu_first(); i < call.args.geo.m; i += gpu_stride()) {
        const int32_t label = call.args.numbers.i[2][i];
        if (label < 0 || label >= call.args.geo.n)
            gpu_found(call.control, i);
    }
}

/* The first label that is none ends the queue here. One thread. */
__global__ void end_check_labels(const struct gpu_call call) {
    struct gpu_now now;
    const int64_t i = call.control->found;
    if (!gpu_begin(call, &now) || i < 0)
        return;
    struct fl_gpu_failure *failure = &call.control->failure;
    failure->at = i;
    failure->value[0] = call.args.numbers.i[2][i];
    failure->limit = call.args.geo.n;
    failure->what = call.args.numbers.what;
    failure->finding = FL_GPU_LABEL;
}

__global__ void softmax_rows(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const int64_t classes = args.geo.n;
    const int e = fl_exponent(&args.in[0]);
    double *const z = args.numbers.f[0] ? args.numbers.f[0] : (double *)args.workspace;
    const double weight = now.real / (double)args.geo.m;
    for (int64_t i = gpu_first(); i < args.geo.m; i += gpu_stride()) {
        double *row = z + i * classes, sum = 0;
        const int32_t label = args.numbers.i[2][i];
        int64_t largest = 0;
        for (int64_t c = 0; c < classes; c++) {
            row[c] = gpu_value(args.in[0], e, i * classes + c);
            if (row[c] > row[largest])
                largest = c;
        }
        const double top = row[largest], chosen = row[label] - top;
        for (int64_t c = 0; c < classes; c++)
            sum += row[c] = fl_exp(row[c] - top);
        losses_of(args)[i] = fl_log(sum) - chosen;
        for (int64_t c = 0; c < classes; c++)
            row[c] = (row[c] / sum - (c == label)) * weight;
        largest_of(args)[i] = (int32_t)largest;
        if (args.numbers.i[0])
            args.numbers.i[0][i] = (int32_t)largest;
    }
}

/* Sums in the order of the rows. One thread. */
__global__ void end_softmax(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    double total = 0;
    int32_t right = 0;
    for (int64_t i = 0; i < args.geo.m; i++) {
        total += losses_of(args)[i];
        right += largest_of(args)[i] == args.numbers.i[2][i];
    }
    *args.numbers.f[1] = total / (double)args.geo.m;
    if (args.numbers.i[1])
        *args.numbers.i[1] = right;
}

static cudaError_t run_softmax(const struct gpu_call *call, cudaStream_t stream) {
    const unsigned blocks = gpu_blocks(call->args.geo.m);
    cudaError_t error = gpu_launch(check_labels, blocks, GPU_THREADS, 0, stream, *call);
    if (error == cudaSuccess)
        error = gpu_launch(end_check_labels, 1, 1, 0, stream, *call);
    if (error == cudaSuccess)
        error = gpu_launch(softmax_rows, blocks, GPU_THREADS, 0, stream, *call);
    return error != cudaSuccess ? error : gpu_launch(end_softmax, 1, 1, 0, stream, *call);
}

static void add_softmax(struct gpu_kernels *to) {
    to->op[FL_OP_SOFTMAX_CROSS_ENTROPY] = run_softmax;
    to->need[FL_OP_SOFTMAX_CROSS_ENTROPY] = softmax_need;
}

} // namespace

#endif
