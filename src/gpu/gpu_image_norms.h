/* gpu_image_norms.h - average pooling by windows, local response normalisation, group normalisation and dropout, for
 * the formats of a folder. A thread computes one element at a time, a warp the sums of one group of channels of an
 * image.
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

/* --- group normalisation: the numbers of a group of an image -------------------------------------------------------
 */

/* A group, which finds the position and the channel of its element i. */
struct gpu_group {
    int64_t image, group, depth, size, pixels, channels;
};

__device__ static inline struct gpu_group group_of(const struct fl_norm &g, int64_t number) {
    struct gpu_group of;
    of.image = number / g.groups;
    of.group = number % g.groups;
    of.depth = g.n / g.groups;
    of.size = g.m * of.depth;
    of.pixels = g.m;
    of.channels = g.n;
    return of;
}
__device__ static inline int64_t channel_at(const struct gpu_group &of, int64_t i) {
    return of.group * of.depth + i % of.depth;
}
__device__ static inline int64_t element_at(const struct gpu_group &of, int64_t i) {
    return (of.image * of.pixels + i / of.depth) * of.channels + channel_at(of, i);
}

#ifdef FL_SHARED_EXPONENT
/* If dy has no data, only the sums of x. */
__device__ static struct fl_row_sums group_sums(const struct fl_view &x, const struct fl_view &dy,
                                                const struct fl_view &gamma, const struct gpu_group &of) {
    struct fl_row_sums s = {0, 0, 0, 0};
    for (int64_t first = 0; first < of.size; first += FL_ROW_BLOCK) {
        const int64_t end = first + FL_ROW_BLOCK < of.size ? first + FL_ROW_BLOCK : of.size;
        int64_t sum = 0, squares = 0, g_sum = 0, products = 0;
        for (int64_t i = first + row_lane(); i < end; i += ROW_LANES) {
            const int64_t at = element_at(of, i), m = mantissa_at(x, at);
            sum += m;
            squares += m * m;
            if (dy.data) {
                const int64_t g = mantissa_at(dy, at) * mantissa_at(gamma, channel_at(of, i));
                g_sum += g;
                products += g * m;
            }
        }
        s.x += sum;
        s.xx += squares;
        s.g += g_sum;
        s.gx += products;
    }
    s.x = wide_sum_of_lanes(s.x);
    s.xx = wide_sum_of_lanes(s.xx);
    s.g = wide_sum_of_lanes(s.g);
    s.gx = wide_sum_of_lanes(s.gx);
    return s;
}
#else
__device__ static struct fl_row_numbers group_numbers(const struct fl_view &x, const struct gpu_group &of,
                                                      double epsilon) {
    const double count = (double)of.size;
    struct fl_row_numbers r = {0, 0, 0, 0};
    double sum = 0, squares = 0;
    for (int64_t i = row_lane(); i < of.size; i += ROW_LANES)
        sum += gpu_value(x, 0, element_at(of, i));
    r.mean = sum_of_lanes(sum, 0, ROW_LANES) / count;
    for (int64_t i = row_lane(); i < of.size; i += ROW_LANES) {
        const double distance = gpu_value(x, 0, element_at(of, i)) - r.mean;
        squares += distance * distance;
    }
    r.inverse = 1 / sqrt(sum_of_lanes(squares, 0, ROW_LANES) / count + epsilon);
    return r;
}

__device__ static void add_group_gradient(const struct fl_args &args, const struct gpu_group &of,
                                          struct fl_row_numbers *r) {
    const double count = (double)of.size;
    double sum = 0, products = 0;
    for (int64_t i = row_lane(); i < of.size; i += ROW_LANES) {
        const int64_t at = element_at(of, i);
        const double g = gpu_value(args.in[0], 0, at) * gpu_value(args.in[2], 0, channel_at(of, i));
        sum += g;
        products += g * fl_row_normal(r, gpu_value(args.in[1], 0, at));
    }
    r->mean_g = sum_of_lanes(sum, 0, ROW_LANES) / count;
    r->slope = sum_of_lanes(products, 0, ROW_LANES) / count;
}
#endif

/* --- group normalisation: y <- x, gamma, beta; dx <- dy, x, gamma --------------------------------------------------
 */

__global__ void group_norm(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const struct fl_view &x = args.in[0], &gamma = args.in[1], &beta = args.in[2];
    const int e = fl_exponent(&args.out);
    struct fl_stats stats = {};
    for (int64_t k = gpu_first() / ROW_LANES; k < args.p.norm.batch * args.p.norm.groups;
         k += gpu_stride() / ROW_LANES) {
        const struct gpu_group of = group_of(args.p.norm, k);
#ifdef FL_SHARED_EXPONENT
        const struct fl_view none = {};
        const struct fl_row_sums s = group_sums(x, none, none, of);
        const struct fl_row_terms t = fl_row_forward(&s, of.size, false, fl_exponent(&x), args.p.norm.epsilon);
#else
        const struct fl_row_numbers r = group_numbers(x, of, args.p.norm.epsilon);
#endif
        for (int64_t i = row_lane(); i < of.size; i += ROW_LANES) {
            const int64_t at = element_at(of, i), c = channel_at(of, i);
#ifdef FL_SHARED_EXPONENT
            const struct fl_wide_sum y =
                fl_row_value(&t, mantissa_at(x, at), mantissa_at(gamma, c), fl_exponent(&gamma),
                             beta.data ? mantissa_at(beta, c) : 0, fl_exponent(&beta));
            gpu_store(now, e, at, fl_terms_odd(y), fl_terms_abs(y), &stats);
#else
            const double y = fl_row_float_value(&r, gpu_value(x, 0, at), gpu_value(gamma, 0, c),
                                                beta.data ? gpu_value(beta, 0, c) : 0);
            gpu_store(now, e, at, y, y, &stats);
#endif
        }
    }
    gpu_report(call.control, stats);
}

__global__ void group_norm_grad(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const struct fl_view &dy = args.in[0], &x = args.in[1], &gamma = args.in[2];
    const int e = fl_exponent(&args.out);
    struct fl_stats stats = {};
    for (int64_t k = gpu_first() / ROW_LANES; k < args.p.norm.batch * args.p.norm.groups;
         k += gpu_stride() / ROW_LANES) {
        const struct gpu_group of = group_of(args.p.norm, k);
#ifdef FL_SHARED_EXPONENT
        const struct fl_row_sums s = group_sums(x, dy, gamma, of);
        const struct fl_row_terms t = fl_row_backward(&s, of.size, false, fl_exponent(&x),
                                                      fl_exponent(&dy) + fl_exponent(&gamma), args.p.norm.epsilon);
#else
        struct fl_row_numbers r = group_numbers(x, of, args.p.norm.epsilon);
        add_group_gradient(args, of, &r);
#endif
        for (int64_t i = row_lane(); i < of.size; i += ROW_LANES) {
            const int64_t at = element_at(of, i), c = channel_at(of, i);
#ifdef FL_SHARED_EXPONENT
            const struct fl_wide_sum dx =
                fl_row_gradient(&t, mantissa_at(dy, at) * mantissa_at(gamma, c), mantissa_at(x, at));
            gpu_store(now, e, at, fl_terms_odd(dx), fl_terms_abs(dx), &stats);
#else
            const double dx =
                fl_row_float_gradient(&r, gpu_value(dy, 0, at) * gpu_value(gamma, 0, c), gpu_value(x, 0, at));
            gpu_store(now, e, at, dx, dx, &stats);
#endif
        }
    }
    gpu_report(call.control, stats);
}

/* --- group normalisation: dgamma <- dy, x. Numbers of groups, chunk sums, their sums ------ */

__host__ __device__ static inline int64_t pixel_chunks(const struct fl_args &args) {
    return (args.p.norm.batch * args.p.norm.m + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
}
/* The workspace: sums of chunks, numbers of groups, the finest exponent of their weights. */
__device__ static inline row_sum *pixel_sums_of(const struct fl_args &args) {
    return (row_sum *)args.workspace;
}
__device__ static inline row_number *group_numbers_of(const struct fl_args &args) {
    return (row_number *)(pixel_sums_of(args) + pixel_chunks(args) * args.p.norm.n);
}
__device__ static inline int *group_finest_of(const struct fl_args &args) {
    return (int *)(group_numbers_of(args) + args.p.norm.batch * args.p.norm.groups);
}
static size_t group_gamma_need(const struct fl_args *args) {
    return (size_t)(pixel_chunks(*args) * args->p.norm.n) * sizeof(row_sum) +
           (size_t)(args->p.norm.batch * args->p.norm.groups) * sizeof(row_number) + 16;
}

__global__ void begin_group_gamma(const struct gpu_call call) {
    struct gpu_now now;
    if (gpu_begin(call, &now))
        *group_finest_of(call.args) = INT32_MIN;
}

__global__ void group_gamma_numbers(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const struct fl_view &x = args.in[1];
    for (int64_t k = gpu_first() / ROW_LANES; k < args.p.norm.batch * args.p.norm.groups;
         k += gpu_stride() / ROW_LANES) {
        const struct gpu_group of = group_of(args.p.norm, k);
#ifdef FL_SHARED_EXPONENT
        const struct fl_view none = {};
        const struct fl_row_sums s = group_sums(x, none, none, of);
        const struct fl_row_weight w = fl_row_weight_of(&s, of.size, false, fl_exponent(&x), args.p.norm.epsilon);
        if (row_lane() == 0 && w.weight.m)
            atomicMax(group_finest_of(args), (int)w.weight.e);
        if (row_lane() == 0)
            group_numbers_of(args)[k] = w;
#else
        const struct fl_row_numbers r = group_numbers(x, of, args.p.norm.epsilon);
        if (row_lane() == 0)
            group_numbers_of(args)[k] = r;
#endif
    }
}

__global__ void group_gamma_chunks(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const struct fl_view &dy = args.in[0], &x = args.in[1];
    const int64_t n = args.p.norm.n, all = args.p.norm.batch * args.p.norm.m, depth = n / args.p.norm.groups;
    for (int64_t i = gpu_first(); i < pixel_chunks(args) * n; i += gpu_stride()) {
        const int64_t c = i % n, first = i / n * FL_ROWS_CHUNK,
                      end = first + FL_ROWS_CHUNK < all ? first + FL_ROWS_CHUNK : all;
        row_sum sum = 0;
        for (int64_t pixel = first; pixel < end; pixel++) {
            const row_number &r = group_numbers_of(args)[pixel / args.p.norm.m * args.p.norm.groups + c / depth];
            const int64_t at = pixel * n + c;
#ifdef FL_SHARED_EXPONENT
            sum += fl_row_share(&r, args.p.norm.m * depth, false, *group_finest_of(args), mantissa_at(dy, at),
                                mantissa_at(x, at));
#else
            sum += gpu_value(dy, 0, at) * fl_row_normal(&r, gpu_value(x, 0, at));
#endif
        }
        pixel_sums_of(args)[i] = sum;
    }
}

__global__ void end_group_gamma(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const int e = fl_exponent(&args.out);
    struct fl_stats stats = {};
    for (int64_t c = gpu_first(); c < args.p.norm.n; c += gpu_stride()) {
        row_sum sum = 0;
        for (int64_t chunk = 0; chunk < pixel_chunks(args); chunk++)
            sum += pixel_sums_of(args)[chunk * args.p.norm.n + c];
#ifdef FL_SHARED_EXPONENT
        const int finest = *group_finest_of(args);
        const struct fl_wide_sum total = {sum, (finest == INT32_MIN ? 0 : finest) + fl_exponent(&args.in[0])};
        gpu_store(now, e, c, fl_terms_odd(total), fl_terms_abs(total), &stats);
#else
        gpu_store(now, e, c, sum, sum, &stats);
#endif
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

GPU_IMAGE(avgpool_windows)
GPU_IMAGE(avgpool_windows_grad)
GPU_IMAGE(dropout)

static cudaError_t run_lrn(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_launch(lrn, gpu_blocks(call->args.out.count), GPU_THREADS, 0, stream, *call,
                      call->args.op == FL_OP_LRN_GRAD);
}

static cudaError_t run_group_norm(const struct gpu_call *call, cudaStream_t stream) {
    const unsigned blocks = gpu_blocks(call->args.p.norm.batch * call->args.p.norm.groups * ROW_LANES);
    if (call->args.op == FL_OP_GROUPNORM_GRAD)
        return gpu_launch(group_norm_grad, blocks, GPU_THREADS, 0, stream, *call);
    return gpu_launch(group_norm, blocks, GPU_THREADS, 0, stream, *call);
}

static cudaError_t run_group_gamma(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_args &args = call->args;
    cudaError_t error = gpu_launch(begin_group_gamma, 1, 1, 0, stream, *call);
    if (error == cudaSuccess)
        error = gpu_launch(group_gamma_numbers, gpu_blocks(args.p.norm.batch * args.p.norm.groups * ROW_LANES),
                           GPU_THREADS, 0, stream, *call);
    if (error == cudaSuccess)
        error = gpu_launch(group_gamma_chunks, gpu_blocks(pixel_chunks(args) * args.p.norm.n), GPU_THREADS, 0, stream,
                           *call);
    return error == cudaSuccess ? gpu_launch(end_group_gamma, gpu_blocks(args.p.norm.n), GPU_THREADS, 0, stream, *call)
                                : error;
}

static void add_image_norms(struct gpu_kernels *to) {
    to->op[FL_OP_AVGPOOL2D] = run_avgpool_windows;
    to->op[FL_OP_AVGPOOL_ADAPTIVE] = run_avgpool_windows;
    to->op[FL_OP_AVGPOOL2D_GRAD] = run_avgpool_windows_grad;
    to->op[FL_OP_AVGPOOL_ADAPTIVE_GRAD] = run_avgpool_windows_grad;
    to->op[FL_OP_LRN] = run_lrn;
    to->op[FL_OP_LRN_GRAD] = run_lrn;
    to->op[FL_OP_GROUPNORM] = run_group_norm;
    to->op[FL_OP_GROUPNORM_GRAD] = run_group_norm;
    to->op[FL_OP_GROUPNORM_GAMMA_GRAD] = run_group_gamma;
    to->need[FL_OP_GROUPNORM_GAMMA_GRAD] = group_gamma_need;
    to->op[FL_OP_DROPOUT] = run_dropout;
}

} // namespace

#endif
