/* gpu_losses.h - losses, by the sequences of core/ops/losses/loss_entropy.c and core/ops/losses/loss_errors.c, for the
 * formats of a folder. Cross-entropy without options is one of shares 1 and 0, whose bits are the same. A thread
 * computes a row of cross-entropy or a chunk of errors; one thread adds the results.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_losses. */
#ifndef FL_GPU_LOSSES_H
#define FL_GPU_LOSSES_H

#include "core/arithmetic/elementary.h"
#include "core/ops/losses/loss_rules.h"
#include "core/ops/optimisers/optimiser_rules.h"
#include "gpu/gpu_element.h"

namespace {

/* The target of element i, in doubles, floats or the format. */
__device__ static inline double target_at(const struct fl_args &args, int64_t i) {
    if (args.p.loss.targets_f64)
        return args.p.loss.targets_f64[i];
    return args.p.loss.targets_f32.data ? (double)((const float *)args.p.loss.targets_f32.data)[i]
                                        : gpu_value(args.in[1], fl_exponent(&args.in[1]), i);
}

static cudaError_t check_labels(const struct gpu_call *call, int64_t limit, cudaStream_t stream) {
    const struct fl_loss &loss = call->args.p.loss;
    const struct gpu_indices labels = {loss.labels, loss.m, limit, loss.name, FL_GPU_LABEL, loss.ignored};
    return gpu_check_indices(call->control, labels, stream);
}

/* --- cross-entropy ------------------------------------------------------------------------------------------------ */

/* The workspace: logits, which become gradients (unused if gradients are requested); losses of the rows; largest
 * classes; with options the sum of the weights of the rows. */
static size_t entropy_need(const struct fl_args *args) {
    const bool options = args->op != FL_OP_SOFTMAX_CROSS_ENTROPY;
    return (size_t)(args->in[0].count + 2 * args->p.loss.m + options) * sizeof(double);
}

__device__ static inline double *entropy_losses_of(const struct fl_args &args) {
    return (double *)args.workspace + args.in[0].count;
}
__device__ static inline int32_t *entropy_largest_of(const struct fl_args &args) {
    return (int32_t *)(entropy_losses_of(args) + args.p.loss.m);
}
__device__ static inline double *entropy_weight_of(const struct fl_args &args) {
    return entropy_losses_of(args) + 2 * args.p.loss.m;
}
__device__ static inline double entropy_together(const struct fl_args &args) {
    return args.op == FL_OP_SOFTMAX_CROSS_ENTROPY ? (double)args.p.loss.m : *entropy_weight_of(args);
}

/* One thread. */
__global__ void begin_entropy(const struct gpu_call call) {
    if (!gpu_idles(call.control))
        *entropy_weight_of(call.args) = fl_weight_of_rows(&call.args);
}

__device__ static inline double entropy_target(const struct fl_args &args, int64_t row, int64_t c) {
    return args.p.loss.labels ? (double)(c == args.p.loss.labels[row]) : target_at(args, row * args.p.loss.n + c);
}

/* Replaces the logits of row i by gradients and returns its loss. */
__device__ static inline double entropy_row(const struct fl_args &args, int64_t i, double *row, double weight,
                                            int64_t largest) {
    const struct fl_shares shares = fl_shares_of(&args);
    const int64_t classes = args.p.loss.n;
    const double top = row[largest];
    double sum = 0, together = 0, chosen = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double share = fl_share(&shares, entropy_target(args, i, c), c);
        row[c] -= top;
        together += share;
        if (share != 0)
            chosen += share * row[c];
    }
    for (int64_t c = 0; c < classes; c++)
        sum += row[c] = fl_exp(row[c]);
    for (int64_t c = 0; c < classes; c++)
        row[c] = (together * (row[c] / sum) - fl_share(&shares, entropy_target(args, i, c), c)) * weight;
    return together * fl_log(sum) - chosen;
}

__global__ void entropy_rows(const struct gpu_call call) {
    if (gpu_idles(call.control))
        return;
    const struct fl_args &args = call.args;
    const int64_t classes = args.p.loss.n;
    const int e = fl_exponent(&args.in[0]);
    const double together = entropy_together(args),
                 weight = fl_mean_of(gpu_late(args.late, args.p.loss.gradient_scale), together);
    double *const z = args.p.loss.gradient ? args.p.loss.gradient : (double *)args.workspace;
    for (int64_t i = gpu_first(); i < args.p.loss.m; i += gpu_stride()) {
        double *row = z + i * classes;
        int64_t largest = 0;
        for (int64_t c = 0; c < classes; c++) {
            row[c] = gpu_value(args.in[0], e, i * classes + c);
            if (row[c] > row[largest])
                largest = c;
        }
        const bool counts = !args.p.loss.labels || fl_label_counts(&args, i);
        const double loss = counts ? entropy_row(args, i, row, weight, largest) : 0;
        for (int64_t c = 0; c < classes && (!counts || together == 0); c++)
            row[c] = 0;
        entropy_losses_of(args)[i] = loss;
        entropy_largest_of(args)[i] = (int32_t)largest;
        if (args.p.loss.predicted)
            args.p.loss.predicted[i] = (int32_t)largest;
    }
}

/* Adds in the order of the rows. One thread. */
__global__ void end_entropy(const struct gpu_call call) {
    if (gpu_idles(call.control))
        return;
    const struct fl_args &args = call.args;
    double total = 0;
    int32_t right = 0;
    for (int64_t i = 0; i < args.p.loss.m; i++) {
        total += entropy_losses_of(args)[i];
        right +=
            args.p.loss.labels && fl_label_counts(&args, i) && entropy_largest_of(args)[i] == args.p.loss.labels[i];
    }
    *args.p.loss.loss = fl_mean_of(total, entropy_together(args));
    if (args.p.loss.correct)
        *args.p.loss.correct = right;
}

static cudaError_t run_entropy(const struct gpu_call *call, cudaStream_t stream) {
    if (call->args.p.loss.labels)
        TRY_CUDA(check_labels(call, call->args.p.loss.n, stream));
    if (call->args.op != FL_OP_SOFTMAX_CROSS_ENTROPY)
        TRY_CUDA(gpu_once(begin_entropy, call, stream));
    TRY_CUDA(gpu_run(entropy_rows, call->args.p.loss.m, call, stream));
    return gpu_once(end_entropy, call, stream);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static size_t error_need(const struct fl_args *args) {
    return (size_t)fl_squares_chunks(args->in[0].count) * sizeof(double);
}

__global__ void error_chunks(const struct gpu_call call, int64_t chunks) {
    const struct fl_args &args = call.args;
    const int e = fl_exponent(&args.in[0]);
    const double weight = gpu_late(args.late, args.p.loss.gradient_scale) / (double)args.in[0].count,
                 delta = args.p.loss.delta;
    gpu_each(call.control, chunks, [&](int64_t chunk) {
        const int64_t first = chunk * FL_SQUARES_CHUNK, count = args.in[0].count,
                      end = first + FL_SQUARES_CHUNK < count ? first + FL_SQUARES_CHUNK : count;
        double chains[FL_SQUARES_CHAINS] = {};
        for (int64_t i = first; i < end; i += FL_SQUARES_CHAINS)
            for (int j = 0; j < FL_SQUARES_CHAINS; j++)
                if (i + j < end) {
                    const double d = gpu_value(args.in[0], e, i + j) - target_at(args, i + j);
                    chains[j] += fl_error_loss(args.op, d, delta);
                    if (args.p.loss.gradient)
                        args.p.loss.gradient[i + j] = fl_error_slope(args.op, d, delta) * weight;
                }
        ((double *)args.workspace)[chunk] = fl_sum_chains(chains);
    });
}

__global__ void end_errors(const struct gpu_call call, int64_t chunks) {
    if (!gpu_idles(call.control))
        *call.args.p.loss.loss =
            fl_float_squares((const double *)call.args.workspace, chunks) / (double)call.args.in[0].count;
}

static cudaError_t run_errors(const struct gpu_call *call, cudaStream_t stream) {
    const int64_t chunks = fl_squares_chunks(call->args.in[0].count);
    TRY_CUDA(gpu_run(error_chunks, chunks, call, stream, chunks));
    return gpu_once(end_errors, call, stream, chunks);
}

/* --- a critic: its rows are short --------------------------------------------------------------------------- */

/* One thread. */
__global__ void critic_sums(const struct gpu_call call) {
    if (gpu_idles(call.control))
        return;
    const struct fl_args &args = call.args;
    struct fl_critic *critic = (struct fl_critic *)args.workspace;
    int64_t exact[2] = {0, 0};
    double real[2] = {0, 0};
    critic->count[0] = critic->count[1] = 0;
    for (int64_t i = 0; i < args.p.loss.m; i++)
        if (fl_label_counts(&args, i)) {
            const int label = args.p.loss.labels[i];
            critic->count[label] += (double)args.p.loss.n;
            for (int64_t k = i * args.p.loss.n; k < (i + 1) * args.p.loss.n; k++)
                if (GPU_SHARED)
                    exact[label] += gpu_mantissa(args.in[0], k);
                else
                    real[label] += gpu_value(args.in[0], 0, k);
        }
    for (int label = 0; label < 2; label++) {
        if (GPU_SHARED)
            real[label] = fl_scale2((double)exact[label], -fl_exponent(&args.in[0]));
        critic->mean[label] = fl_mean_of(real[label], critic->count[label]);
    }
    *args.p.loss.loss = fl_critic_loss(critic);
}

__global__ void critic_slopes(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const struct fl_critic *critic = (const struct fl_critic *)args.workspace;
    gpu_each(call.control, args.in[0].count, [&](int64_t i) {
        const int64_t row = i / args.p.loss.n;
        args.p.loss.gradient[i] =
            fl_label_counts(&args, row)
                ? fl_critic_slope(critic, args.p.loss.labels[row], gpu_late(args.late, args.p.loss.gradient_scale))
                : 0;
    });
}

static size_t critic_need(const struct fl_args *args) {
    (void)args;
    return sizeof(struct fl_critic);
}

static cudaError_t run_critic(const struct gpu_call *call, cudaStream_t stream) {
    TRY_CUDA(check_labels(call, 2, stream));
    TRY_CUDA(gpu_once(critic_sums, call, stream));
    return call->args.p.loss.gradient ? gpu_run(critic_slopes, call->args.in[0].count, call, stream) : cudaSuccess;
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static void add_losses(struct gpu_kernels *to) {
    gpu_add(to, {FL_OP_SOFTMAX_CROSS_ENTROPY, FL_OP_CROSS_ENTROPY_WITH, FL_OP_CROSS_ENTROPY_TARGETS}, run_entropy,
            entropy_need);
    gpu_add(to, {FL_OP_SQUARED_ERROR, FL_OP_HUBER}, run_errors, error_need);
    gpu_add(to, {FL_OP_WASSERSTEIN}, run_critic, critic_need);
}

} // namespace

#endif
