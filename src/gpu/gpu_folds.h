/* gpu_folds.h - sums over the rows of [m, n], for the formats of a folder. A thread sums FL_ROWS_CHUNK rows of one
 * channel into the workspace; then one thread for each channel adds these sums in order.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_folds. */
#ifndef FL_GPU_FOLDS_H
#define FL_GPU_FOLDS_H

#include "gpu/gpu_element.h"

namespace {

/* Two kinds of sums, of x and of x z: exact ones of mantissas, or binary32 chains, which are added in double. */
#ifdef FL_SHARED_EXPONENT
typedef int64_t fold_part;
typedef int64_t fold_sum;
#else
typedef float fold_part;
typedef double fold_sum;
#endif

__device__ static inline fold_part *part_at(const struct fl_args &args, int kind, int64_t chunk, int64_t channel,
                                            int64_t chunks) {
    return (fold_part *)args.workspace + (kind * chunks + chunk) * args.p.rows.n + channel;
}

/* x is in[0], z is in[z]. An element counts if that of mask (in[2]) is above zero; without a mask all count. */
__global__ void sum_chunks(const struct gpu_call call, int z, int64_t chunks) {
    const struct fl_args &args = call.args;
    const struct fl_view &a = args.in[0], &b = args.in[z], &mask = args.in[2];
    const int64_t m = args.p.rows.m, n = args.p.rows.n;
    gpu_each(call.control, chunks * n, [&](int64_t i) {
        const int64_t chunk = i / n, c = i % n, first = chunk * FL_ROWS_CHUNK,
                      end = first + FL_ROWS_CHUNK < m ? first + FL_ROWS_CHUNK : m;
        fold_part sum = 0, products = 0;
        for (int64_t row = first; row < end; row++) {
            const int64_t at = row * n + c;
            const bool counts = !z || !mask.data || gpu_value(mask, 0, at) > 0;
#ifdef FL_SHARED_EXPONENT
            const int64_t x = counts ? ((const fl_element *)a.data)[at] : 0;
            sum += x;
            products += x * ((const fl_element *)b.data)[at];
#else
            const float x = counts ? (float)gpu_value(a, 0, at) : 0;
            sum = __fadd_rn(sum, x);
            products = __fmaf_rn(x, (float)gpu_value(b, 0, at), products);
#endif
        }
        *part_at(args, 0, chunk, c, chunks) = sum;
        *part_at(args, 1, chunk, c, chunks) = products;
    });
}

__device__ static inline fold_sum sum_of_parts(const struct fl_args &args, int kind, int64_t channel, int64_t chunks) {
    fold_sum sum = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        sum += *part_at(args, kind, chunk, channel, chunks);
    return sum;
}

__global__ void end_channel_sums(const struct gpu_call call, int64_t chunks) {
    const struct fl_args &args = call.args;
    gpu_each(call.control, args.p.rows.n, [&](int64_t c) {
        for (int kind = 0; kind < 2; kind++)
#ifdef FL_SHARED_EXPONENT
            args.p.batch_norm.sums.i[kind][c] = sum_of_parts(args, kind, c, chunks);
#else
            args.p.batch_norm.sums.f[kind][c] = sum_of_parts(args, kind, c, chunks);
#endif
    });
}

__global__ void end_sum_rows(const struct gpu_call call, int64_t chunks) {
    const int ex = fl_exponent(&call.args.in[0]);
    gpu_elements(call, call.args.p.rows.n,
                 [&](int64_t c) { return fl_scale2((double)sum_of_parts(call.args, 0, c, chunks), -ex); });
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static int64_t chunks_of(const struct fl_args *args) {
    return (args->p.rows.m + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
}

static size_t fold_need(const struct fl_args *args) {
    return (size_t)(2 * chunks_of(args) * args->p.rows.n) * sizeof(fold_part);
}

static cudaError_t run_fold(const struct gpu_call *call, cudaStream_t stream) {
    const int64_t chunks = chunks_of(&call->args), n = call->args.p.rows.n;
    const int z = call->args.op == FL_OP_CHANNEL_GRAD_SUMS ? 1 : 0;
    TRY_CUDA(gpu_run(sum_chunks, chunks * n, call, stream, z, chunks));
    return gpu_run(call->args.op == FL_OP_SUM_ROWS ? end_sum_rows : end_channel_sums, n, call, stream, chunks);
}

static void add_folds(struct gpu_kernels *to) {
    gpu_add(to, {FL_OP_SUM_ROWS, FL_OP_CHANNEL_SUMS, FL_OP_CHANNEL_GRAD_SUMS}, run_fold, fold_need);
}

} // namespace

#endif
