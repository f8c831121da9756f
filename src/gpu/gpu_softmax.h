/* gpu_softmax.h - softmax with cross-entropy in double, by the sequence of core/ops/losses/softmax.c, for the formats
 * of a folder. A thread computes a row.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_softmax. */
#ifndef FL_GPU_SOFTMAX_H
#define FL_GPU_SOFTMAX_H

#include "core/arithmetic/elementary.h"
#include "gpu/gpu_element.h"

namespace {

/* The workspace: logits, which become gradients (unused if gradients are requested); losses of the rows; largest
 * classes. */
static size_t softmax_need(const struct fl_args *args) {
    return (size_t)(args->in[0].count + 2 * args->p.loss.m) * sizeof(double);
}

__device__ static inline double *losses_of(const struct fl_args &args) {
    return (double *)args.workspace + args.in[0].count;
}

__device__ static inline int32_t *largest_of(const struct fl_args &args) {
    return (int32_t *)(losses_of(args) + args.p.loss.m);
}

__global__ void softmax_rows(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const int64_t classes = args.p.loss.n;
    const int e = fl_exponent(&args.in[0]);
    double *const z = args.p.loss.gradient ? args.p.loss.gradient : (double *)args.workspace;
    const double weight = gpu_late(args.late, args.p.loss.gradient_scale) / (double)args.p.loss.m;
    for (int64_t i = gpu_first(); i < args.p.loss.m; i += gpu_stride()) {
        double *row = z + i * classes, sum = 0;
        const int32_t label = args.p.loss.labels[i];
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
        if (args.p.loss.predicted)
            args.p.loss.predicted[i] = (int32_t)largest;
    }
}

/* Adds in the order of the rows. One thread. */
__global__ void end_softmax(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    double total = 0;
    int32_t right = 0;
    for (int64_t i = 0; i < args.p.loss.m; i++) {
        total += losses_of(args)[i];
        right += largest_of(args)[i] == args.p.loss.labels[i];
    }
    *args.p.loss.loss = total / (double)args.p.loss.m;
    if (args.p.loss.correct)
        *args.p.loss.correct = right;
}

static cudaError_t run_softmax(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_loss &loss = call->args.p.loss;
    TRY_CUDA(gpu_check_indices(call->control, {loss.labels, loss.m, loss.n, loss.name, FL_GPU_LABEL}, stream));
    TRY_CUDA(gpu_run(softmax_rows, loss.m, call, stream));
    return gpu_once(end_softmax, call, stream);
}

static void add_softmax(struct gpu_kernels *to) {
    to->op[FL_OP_SOFTMAX_CROSS_ENTROPY] = run_softmax;
    to->need[FL_OP_SOFTMAX_CROSS_ENTROPY] = softmax_need;
}

} // namespace

#endif
