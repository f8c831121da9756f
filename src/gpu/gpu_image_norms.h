/* gpu_image_norms.h - average pooling by windows, local response normalisation and dropout, for the formats of a
 * folder. A thread computes one element at a time.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_image_norms. */
#ifndef FL_GPU_IMAGE_NORMS_H
#define FL_GPU_IMAGE_NORMS_H

#include "core/ops/dropout/dropout_rules.h"
#include "core/ops/norms/lrn_rules.h"
#include "core/ops/windows/pool_rules.h"
#include "gpu/gpu_element.h"
#include "gpu/gpu_images.h"
#include "gpu/gpu_rows.h"

namespace {

/* --- average pooling ---------------------------------------------------------------------------------------------- */

/* Stores sum / count, of mantissas at exponent e, as element i. */
#ifdef FL_SHARED_EXPONENT
__device__ static inline void store_mean(const struct gpu_now &now, int e_out, int64_t i, fl_int128 sum, int64_t count,
                                         int e, struct fl_stats *stats) {
    const struct fl_wide_sum mean = fl_pool_mean(sum, count, e);
    gpu_store(now, e_out, i, fl_terms_odd(mean), fl_terms_abs(mean), stats);
}
#endif

__global__ void avgpool_windows(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_windows &g = call.args.p.pooling.windows;
    const struct fl_view &x = call.args.in[0];
    const struct fl_pool_side down = fl_pool_down(&call.args.p.pooling), across = fl_pool_across(&call.args.p.pooling);
    const int e = fl_exponent(&call.args.out);
    struct fl_stats stats = {};
    for (int64_t i = gpu_first(); i < call.args.out.count; i += gpu_stride()) {
        const struct gpu_place at = place_of(i, g.p, g.q, g.c);
        const struct fl_span y = fl_pool_inside(&down, at.y), z = fl_pool_inside(&across, at.x);
        const int64_t count = fl_pool_count(&down, at.y) * fl_pool_count(&across, at.x);
#ifdef FL_SHARED_EXPONENT
        int64_t sum = 0;
#else
        double total = 0;
        float chain = 0;
        int64_t taken = 0;
#endif
        for (int64_t a = y.from; a < y.to; a++)
            for (int64_t b = z.from; b < z.to; b++) {
                const int64_t pixel = ((at.n * g.h + a) * g.w + b) * g.c + at.c;
#ifdef FL_SHARED_EXPONENT
                sum += mantissa_at(x, pixel);
#else
                if (taken && taken % FL_ROWS_CHUNK == 0) {
                    total += chain;
                    chain = 0;
                }
                chain = __fadd_rn(chain, (float)gpu_value(x, 0, pixel));
                taken++;
#endif
            }
#ifdef FL_SHARED_EXPONENT
        store_mean(now, e, i, sum, count, fl_exponent(&x), &stats);
#else
        const double mean = (total + chain) / (double)count;
        gpu_store(now, e, i, mean, mean, &stats);
#endif
    }
    gpu_report(call.control, stats);
}

__global__ void avgpool_windows_grad(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_windows &g = call.args.p.pooling.windows;
    const struct fl_view &dy = call.args.in[0];
    const struct fl_pool_side down = fl_pool_down(&call.args.p.pooling), across = fl_pool_across(&call.args.p.pooling);
    const int e = fl_exponent(&call.args.out);
    struct fl_stats stats = {};
    for (int64_t i = gpu_first(); i < call.args.out.count; i += gpu_stride()) {
        const struct gpu_place at = place_of(i, g.h, g.w, g.c);
        const struct fl_span p = fl_pool_windows(&down, at.y), q = fl_pool_windows(&across, at.x);
#ifdef FL_SHARED_EXPONENT
        fl_int128 sum = 0;
#else
        double sum = 0;
#endif
        for (int64_t j = p.from; j < p.to; j++)
            for (int64_t k = q.from; k < q.to; k++) {
                const int64_t window = ((at.n * g.p + j) * g.q + k) * g.c + at.c, high = fl_pool_count(&down, j),
                              wide = fl_pool_count(&across, k);
#ifdef FL_SHARED_EXPONENT
                sum += (fl_int128)mantissa_at(dy, window) * (down.common / high * (across.common / wide));
#else
                sum += gpu_value(dy, 0, window) / (double)(high * wide);
#endif
            }
#ifdef FL_SHARED_EXPONENT
        store_mean(now, e, i, sum, down.common * across.common, fl_exponent(&dy), &stats);
#else
        gpu_store(now, e, i, sum, sum, &stats);
#endif
    }
    gpu_report(call.control, stats);
}

/* --- local response normalisation --------------------------------------------------------------------------------- */

/* The base of the power by which x of channel c is divided; first: channel 0 of its pixel. */
__device__ static double lrn_base(const struct fl_view &x, const struct fl_lrn_rule &how, int64_t first, int64_t c,
                                  int64_t n) {
    const int64_t from = c < how.below ? 0 : c - how.below, to = c + how.above < n ? c + how.above + 1 : n;
#ifdef FL_SHARED_EXPONENT
    int64_t sum = 0;
    for (int64_t i = from; i < to; i++)
        sum += mantissa_at(x, first + i) * mantissa_at(x, first + i);
    return fl_lrn_base(&how, fl_scale2((double)sum, -2 * fl_exponent(&x)));
#else
    double sum = 0;
    for (int64_t i = from; i < to; i++) {
        const double v = gpu_value(x, 0, first + i);
        sum += v * v;
    }
    return fl_lrn_base(&how, sum);
#endif
}

__global__ void lrn(const struct gpu_call call, bool gradient) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const struct fl_view &dy = args.in[0], &x = args.in[gradient ? 1 : 0];
    const int64_t n = args.p.lrn.n;
    const struct fl_lrn_rule how = fl_lrn_of(args.p.lrn.size, n, args.p.lrn.alpha, args.p.lrn.beta, args.p.lrn.k);
    const int e = fl_exponent(&args.out), ex = fl_exponent(&x), ey = fl_exponent(&dy);
    struct fl_stats stats = {};
    for (int64_t i = gpu_first(); i < args.out.count; i += gpu_stride()) {
        const int64_t c = i % n, first = i - c;
        const double value = gpu_value(x, ex, i), power = fl_lrn_power(&how, lrn_base(x, how, first, c, n));
        double result = value / power;
        if (gradient) {
            const int64_t from = c < how.above ? 0 : c - how.above, to = c + how.below < n ? c + how.below + 1 : n;
            double parts = 0;
            for (int64_t j = from; j < to; j++) {
                const double d = lrn_base(x, how, first, j, n);
                parts +=
                    fl_lrn_part(gpu_value(dy, ey, first + j), gpu_value(x, ex, first + j), fl_lrn_power(&how, d), d);
            }
            result = fl_lrn_gradient(&how, gpu_value(dy, ey, i), value, power, parts);
        }
        gpu_store(now, e, i, result, result, &stats);
    }
    gpu_report(call.control, stats);
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

__global__ void dropout(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const uint64_t key = args.p.dropout.key, counter = fl_dropout_counter(gpu_late(args.late, args.p.dropout.step));
    const uint32_t threshold = fl_dropout_threshold(args.p.dropout.p);
    const double scale = args.p.dropout.scale;
    const int e = fl_exponent(&args.out), ex = fl_exponent(&args.in[0]);
    struct fl_stats stats = {};
    for (int64_t i = gpu_first(); i < args.out.count; i += gpu_stride()) {
        const bool kept = fl_dropout_keeps(fl_philox_draw(key, counter, i), threshold);
        const double y = kept ? scale * gpu_value(args.in[0], ex, i) : 0;
        gpu_store(now, e, i, y, y, &stats);
    }
    gpu_report(call.control, stats);
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static cudaError_t run_lrn(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(lrn, call->args.out.count, call, stream, call->args.op == FL_OP_LRN_GRAD);
}

static void add_image_norms(struct gpu_kernels *to) {
    to->op[FL_OP_AVGPOOL2D] = gpu_run_all<avgpool_windows>;
    to->op[FL_OP_AVGPOOL_ADAPTIVE] = gpu_run_all<avgpool_windows>;
    to->op[FL_OP_AVGPOOL2D_GRAD] = gpu_run_all<avgpool_windows_grad>;
    to->op[FL_OP_AVGPOOL_ADAPTIVE_GRAD] = gpu_run_all<avgpool_windows_grad>;
    to->op[FL_OP_LRN] = run_lrn;
    to->op[FL_OP_LRN_GRAD] = run_lrn;
    to->op[FL_OP_DROPOUT] = gpu_run_all<dropout>;
}

} // namespace

#endif
