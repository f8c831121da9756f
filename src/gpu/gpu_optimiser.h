/* gpu_optimiser.h - roots, ratios and limits of optimisers by the rules of core/ops/optimisers/optimiser_rules.h, and
 * sums of squares, for the formats of a folder.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_optimisers. */
#ifndef FL_GPU_OPTIMISER_H
#define FL_GPU_OPTIMISER_H

#include "core/ops/optimisers/optimiser_rules.h"
#include "gpu/gpu_element.h"
#include "gpu/gpu_sgd.h"

namespace {

/* Element i of an operand, or of its wide part if it has one. */
__device__ static inline double number_at(const struct fl_view &view, int64_t i) {
#ifdef FL_SHARED_EXPONENT
    const int e = fl_exponent(&view);
    return view.wide ? ((const int32_t *)view.wide)[i] * fl_power_of_two(-e - 16) : gpu_value(view, e, i);
#else
    return real_at(view, i);
#endif
}

__device__ static inline double result_at(const struct fl_args &args, int64_t i) {
    const double a = number_at(args.in[0], i), most = args.p.clip_weight.limit;
    if (args.op == FL_OP_CLIP_WEIGHT)
        return a > most ? most : a < -most ? -most : a;
    const double *f = args.p.factored.factors;
    const double b = number_at(args.in[1], i);
    if (args.op == FL_OP_ROOT_MEAN)
        return fl_root_mean(a, b, f);
    double r = number_at(args.in[2], i);
#ifdef FL_SHARED_EXPONENT
    const double least = fl_power_of_two(-fl_exponent(&args.in[2]) - (args.in[2].wide ? 16 : 0));
    r = r < least ? least : r;
#endif
    return fl_add_ratio(a, b, r, f);
}

#ifdef FL_SHARED_EXPONENT
__device__ static inline void store_result(const struct gpu_now &now, const struct fl_args &args, int64_t i, double x,
                                           struct fl_stats *stats) {
    const double size = x < 0 ? -x : x;
    if (!args.out.wide) {
        gpu_store(now, i, x, stats);
        return;
    }
    const double m = fl_nearest_units(x * fl_power_of_two(now.e + 16), FL_WIDE_LIMIT);
    if (!fl_is_finite(x)) {
        int64_t ignored = 0;
        if (now.out)
            ((int32_t *)args.out.wide)[i] = (int32_t)fl_saturate((int64_t)m, FL_WIDE_LIMIT, &ignored);
        gpu_put_nonfinite(now, i, x, stats);
        return;
    }
    stats->maximum = size > stats->maximum ? size : stats->maximum;
    gpu_store_wide(now, args.out.wide, i, (int64_t)m, size != 0, stats);
}
#else
__device__ static inline void store_result(const struct gpu_now &now, const struct fl_args &args, int64_t i, double x,
                                           struct fl_stats *stats) {
    store_sgd_float(now, args, i, x, args.out.wide != NULL, stats);
}
#endif

__global__ void optimise(const struct gpu_call call) {
    gpu_store_each(call, call.args.out.count, [&](const auto &now, int64_t i, auto *stats) {
        store_result(now, call.args, i, result_at(call.args, i), stats);
    });
}

/* --- sums of squares: a thread for a chunk, one thread for the total ----------------------------------------- */

#ifdef FL_SHARED_EXPONENT
typedef int64_t squares_part;
#else
typedef double squares_part;
#endif

__global__ void square_chunks(const struct gpu_call call, int64_t chunks) {
    const struct fl_view &x = call.args.in[0];
    gpu_each(call.control, chunks, [&](int64_t chunk) {
        const int64_t first = chunk * FL_SQUARES_CHUNK,
                      end = first + FL_SQUARES_CHUNK < x.count ? first + FL_SQUARES_CHUNK : x.count;
#ifdef FL_SHARED_EXPONENT
        int64_t sum = 0;
        for (int64_t i = first; i < end; i++) {
            const int64_t m = gpu_mantissa(x, i);
            sum += m * m;
        }
#else
        double chains[FL_SQUARES_CHAINS] = {};
        for (int64_t i = first; i < end; i += FL_SQUARES_CHAINS)
            for (int j = 0; j < FL_SQUARES_CHAINS; j++)
                if (i + j < end) {
                    const double value = gpu_value(x, 0, i + j);
                    chains[j] += value * value;
                }
        const double sum = fl_sum_chains(chains);
#endif
        ((squares_part *)call.args.workspace)[chunk] = sum;
    });
}

__global__ void end_squares(const struct gpu_call call, int64_t chunks) {
    if (gpu_idles(call.control))
        return;
    const squares_part *parts = (const squares_part *)call.args.workspace;
#ifdef FL_SHARED_EXPONENT
    *call.args.p.sum_squares.sum = fl_exact_squares(parts, chunks, fl_exponent(&call.args.in[0]));
#else
    *call.args.p.sum_squares.sum = fl_float_squares(parts, chunks);
#endif
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static size_t squares_need(const struct fl_args *args) {
    return (size_t)fl_squares_chunks(args->in[0].count) * sizeof(squares_part);
}

static cudaError_t run_squares(const struct gpu_call *call, cudaStream_t stream) {
    const int64_t chunks = fl_squares_chunks(call->args.in[0].count);
    TRY_CUDA(gpu_run(square_chunks, chunks, call, stream, chunks));
    return gpu_once(end_squares, call, stream, chunks);
}

static void add_optimisers(struct gpu_kernels *to) {
    gpu_add(to, {FL_OP_ROOT_MEAN, FL_OP_ADD_RATIO, FL_OP_CLIP_WEIGHT}, gpu_run_all<optimise>);
    gpu_add(to, {FL_OP_SUM_SQUARES}, run_squares, squares_need);
    gpu_add(to, {FL_OP_OPTIMISER_STEP, FL_OP_TRUST_RATE}, gpu_step_numbers);
}

} // namespace

#endif
