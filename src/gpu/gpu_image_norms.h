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

__global__ void avgpool_windows(const struct gpu_call call) {
    const struct fl_windows &g = call.args.p.pooling.windows;
    const struct fl_view &x = call.args.in[0];
    const struct fl_pool_side down = fl_pool_down(&call.args.p.pooling), across = fl_pool_across(&call.args.p.pooling);
    gpu_elements(call, call.args.out.count, [&](int64_t i) {
        const struct gpu_place at = place_of(i, g.p, g.q, g.c);
        const struct fl_span y = fl_pool_inside(&down, at.y), z = fl_pool_inside(&across, at.x);
        const int64_t count = fl_pool_count(&down, at.y) * fl_pool_count(&across, at.x);
        int64_t exact = 0;
        struct gpu_chains sum;
        for (int64_t a = y.from; a < y.to; a++)
            for (int64_t b = z.from; b < z.to; b++) {
                const int64_t pixel = ((at.n * g.h + a) * g.w + b) * g.c + at.c;
                if (GPU_SHARED)
                    exact += gpu_mantissa(x, pixel);
                else
                    sum.add(gpu_value(x, 0, pixel));
            }
        return GPU_SHARED ? gpu_result(fl_pool_mean(exact, count, fl_exponent(&x)))
                          : gpu_result(sum.value() / (double)count);
    });
}

__global__ void avgpool_windows_grad(const struct gpu_call call) {
    const struct fl_windows &g = call.args.p.pooling.windows;
    const struct fl_view &dy = call.args.in[0];
    const struct fl_pool_side down = fl_pool_down(&call.args.p.pooling), across = fl_pool_across(&call.args.p.pooling);
    gpu_elements(call, call.args.out.count, [&](int64_t i) {
        const struct gpu_place at = place_of(i, g.h, g.w, g.c);
        const struct fl_span p = fl_pool_windows(&down, at.y), q = fl_pool_windows(&across, at.x);
        fl_int128 exact = 0;
        double sum = 0;
        for (int64_t j = p.from; j < p.to; j++)
            for (int64_t k = q.from; k < q.to; k++) {
                const int64_t window = ((at.n * g.p + j) * g.q + k) * g.c + at.c, high = fl_pool_count(&down, j),
                              wide = fl_pool_count(&across, k);
                if (GPU_SHARED)
                    exact += (fl_int128)gpu_mantissa(dy, window) * (down.common / high * (across.common / wide));
                else
                    sum += gpu_value(dy, 0, window) / (double)(high * wide);
            }
        return GPU_SHARED ? gpu_result(fl_pool_mean(exact, down.common * across.common, fl_exponent(&dy)))
                          : gpu_result(sum);
    });
}

/* --- local response normalisation --------------------------------------------------------------------------------- */

/* The base of the power by which x of channel c is divided; first: channel 0 of its pixel. */
__device__ static double lrn_base(const struct fl_view &x, const struct fl_lrn_rule &how, int64_t first, int64_t c,
                                  int64_t n) {
    const int64_t from = c < how.below ? 0 : c - how.below, to = c + how.above < n ? c + how.above + 1 : n;
    int64_t exact = 0;
    double sum = 0;
    for (int64_t i = first + from; i < first + to; i++)
        if (GPU_SHARED)
            exact += gpu_mantissa(x, i) * gpu_mantissa(x, i);
        else
            sum += gpu_value(x, 0, i) * gpu_value(x, 0, i);
    return fl_lrn_base(&how, GPU_SHARED ? fl_scale2((double)exact, -2 * fl_exponent(&x)) : sum);
}

__global__ void lrn(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const bool gradient = args.op == FL_OP_LRN_GRAD;
    const struct fl_view &dy = args.in[0], &x = args.in[gradient ? 1 : 0];
    const int64_t n = args.p.lrn.n;
    const struct fl_lrn_rule how = fl_lrn_of(args.p.lrn.size, n, args.p.lrn.alpha, args.p.lrn.beta, args.p.lrn.k);
    const int ex = fl_exponent(&x), ey = fl_exponent(&dy);
    gpu_elements(call, args.out.count, [&](int64_t i) {
        const int64_t c = i % n, first = i - c;
        const double value = gpu_value(x, ex, i), power = fl_lrn_power(&how, lrn_base(x, how, first, c, n));
        if (!gradient)
            return value / power;
        const int64_t from = c < how.above ? 0 : c - how.above, to = c + how.below < n ? c + how.below + 1 : n;
        double parts = 0;
        for (int64_t j = from; j < to; j++) {
            const double d = lrn_base(x, how, first, j, n);
            parts += fl_lrn_part(gpu_value(dy, ey, first + j), gpu_value(x, ex, first + j), fl_lrn_power(&how, d), d);
        }
        return fl_lrn_gradient(&how, gpu_value(dy, ey, i), value, power, parts);
    });
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

__global__ void dropout(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const uint64_t key = args.p.dropout.key, counter = fl_dropout_counter(gpu_late(args.late, args.p.dropout.step));
    const uint32_t threshold = fl_dropout_threshold(args.p.dropout.p);
    const int ex = fl_exponent(&args.in[0]);
    gpu_elements(call, args.out.count, [&](int64_t i) {
        const bool kept = fl_dropout_keeps(fl_philox_draw(key, counter, i), threshold);
        return kept ? args.p.dropout.scale * gpu_value(args.in[0], ex, i) : 0;
    });
}

static void add_image_norms(struct gpu_kernels *to) {
    to->op[FL_OP_AVGPOOL2D] = to->op[FL_OP_AVGPOOL_ADAPTIVE] = gpu_run_all<avgpool_windows>;
    to->op[FL_OP_AVGPOOL2D_GRAD] = to->op[FL_OP_AVGPOOL_ADAPTIVE_GRAD] = gpu_run_all<avgpool_windows_grad>;
    to->op[FL_OP_LRN] = to->op[FL_OP_LRN_GRAD] = gpu_run_all<lrn>;
    to->op[FL_OP_DROPOUT] = gpu_run_all<dropout>;
}

} // namespace

#endif
