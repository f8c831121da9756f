/* gpu_channels.h - the coefficients of channels and the maps by these coefficients, for the formats of a folder.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_channels. */
#ifndef FL_GPU_CHANNELS_H
#define FL_GPU_CHANNELS_H

#include "core/ops/norms/channel_rules.h"
#include "gpu/gpu_affine.h"

namespace {

/* --- numbers: a thread for a channel------------------------------------------------------------------------------- */

__global__ void channel_moments(const struct gpu_call call) {
    const struct fl_batch_norm &n = call.args.p.batch_norm;
    gpu_each(call.control, n.n, [&](int64_t c) {
        if (GPU_SHARED)
            fl_exact_moments(n.m, n.sums.i[0][c], n.sums.i[1][c], fl_exponent(&call.args.in[0]), &n.mean[c],
                             &n.variance[c]);
        else
            fl_float_moments(n.m, n.sums.f[0][c], n.sums.f[1][c], &n.mean[c], &n.variance[c]);
    });
}

/* Of a part of a batch: the sums themselves (core/ops/norms/part_norm.h). */
__global__ void channel_parts(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const struct fl_batch_norm &n = args.p.batch_norm;
    double *sum = n.parts, *high = sum + n.n, *low = high + n.n;
    gpu_each(call.control, n.n, [&](int64_t c) {
        if (GPU_SHARED) {
            fl_exact_part(n.sums.i[0][c], n.sums.i[1][c], fl_exponent(&args.in[0]),
                          fl_exponent(args.in[1].data ? &args.in[1] : &args.in[0]), &sum[c], &high[c], &low[c]);
            return;
        }
        sum[c] = n.sums.f[0][c];
        high[c] = n.sums.f[1][c];
        low[c] = 0;
    });
}

__device__ static inline double vector_at(const struct fl_view &vector, int64_t c) {
    return gpu_value(vector, fl_exponent(&vector), c);
}

/* Stores the coefficients of channel c. False if they are not finite. */
__device__ static bool keep_channel(const struct fl_args &args, int64_t c, const struct fl_affine_channel &channel) {
    const struct fl_channels &to = args.p.batch_norm.channels;
#ifdef FL_SHARED_EXPONENT
    struct fl_integer_channel k;
    if (!fl_integer_channel_of(&channel, fl_exponent(&args.in[0]), fl_exponent(&args.in[1]), &k))
        return false;
    to.first[c] = k.first;
    to.cross[c] = k.cross;
    to.offset[c] = k.offset;
    to.first_centre[c] = k.first_centre;
    to.cross_centre[c] = k.cross_centre;
    const struct affine_channel p = affine_channel_of(&to, c, args.in[1].data != NULL);
    affine_keep(to.whole + FL_WHOLE * c, affine_plan_of(p));
#else
    to.a[c] = (float)channel.scale;
    to.d[c] = (float)channel.cross;
    to.b[c] = (float)(channel.offset - (channel.scale * channel.mean + channel.cross * channel.cross_mean));
#endif
    return true;
}

__device__ static struct fl_affine_channel coefficients(const struct fl_args &args, int64_t c) {
    const struct fl_batch_norm &n = args.p.batch_norm;
    return fl_normalising(vector_at(n.gamma, c), vector_at(n.beta, c), n.mean[c], n.variance[c], n.epsilon,
                          args.in[1].data != NULL);
}

__device__ static struct fl_affine_channel grad_coefficients(const struct fl_args &args, int64_t c) {
    const struct fl_batch_norm &n = args.p.batch_norm;
    const double mean = n.mean[c];
#ifdef FL_SHARED_EXPONENT
    const int e_dy = fl_exponent(&args.in[0]), e_x = fl_exponent(&args.in[1]);
    const double sum = fl_scale2((double)n.sums.i[0][c], -e_dy),
                 about_mean = fl_exact_about_mean(n.m, n.sums.i[0][c], n.sums.i[1][c], mean, e_dy, e_x);
#else
    const double sum = n.sums.f[0][c], about_mean = n.sums.f[1][c] - mean * sum;
#endif
    n.dbeta[c] = sum;
    const double gamma = vector_at(n.gamma, c);
    double of_all;
    const struct fl_affine_channel of_part =
        fl_normalising_gradient(gamma, mean, n.variance[c], n.epsilon, sum, about_mean, n.m, &n.dgamma[c]);
    return n.all_dy ? fl_normalising_gradient(gamma, mean, n.variance[c], n.epsilon, n.all_dy[c], n.all_about[c],
                                              n.all_rows, &of_all)
                    : of_part;
}

__global__ void affine_coefficients(const struct gpu_call call, bool gradient) {
    gpu_each(call.control, call.args.p.batch_norm.n, [&](int64_t c) {
        if (!keep_channel(call.args, c, gradient ? grad_coefficients(call.args, c) : coefficients(call.args, c)))
            gpu_found(call.control, c);
    });
}

/* Stops the queue at the first channel without finite coefficients. One thread. */
__global__ void end_coefficients(const struct gpu_call call, bool gradient) {
    const int64_t c = call.control->found;
    if (gpu_idles(call.control) || c < 0)
        return;
    const struct fl_affine_channel channel = gradient ? grad_coefficients(call.args, c) : coefficients(call.args, c);
    struct fl_gpu_failure *failure = &call.control->failure;
    failure->at = c;
    failure->value[0] = channel.scale;
    failure->value[1] = channel.cross;
    failure->value[2] = channel.mean;
    failure->value[3] = channel.cross_mean;
    failure->what = call.args.p.batch_norm.name;
    failure->finding = FL_GPU_CHANNEL;
}

/* --- maps --------------------------------------------------------------------------------------------------------- */

#ifndef FL_SHARED_EXPONENT
__global__ void channel_affine(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const struct fl_channels &k = args.p.batch_norm.channels;
    const struct fl_view &a = args.in[0], &b = args.in[1], &mask = args.in[2];
    const bool second = b.data != NULL;
    gpu_elements(call, args.out.count, [&](int64_t i) {
        const int64_t c = i % args.p.batch_norm.n;
        const bool counts = !mask.data || gpu_value(mask, 0, i) > 0;
        const float x = counts ? (float)gpu_value(a, 0, i) : 0;
        const float rest = second ? __fmaf_rn(k.d[c], (float)gpu_value(b, 0, i), k.b[c]) : k.b[c];
        const float t = __fmaf_rn(k.a[c], x, rest);
        return args.p.batch_norm.relu && t <= 0 ? 0 : t;
    });
}
#endif

/* --- on the host -------------------------------------------------------------------------------------------------- */

#ifndef FL_SHARED_EXPONENT
static const gpu_operation run_channel_affine = gpu_run_all<channel_affine>;
#endif

static cudaError_t run_channel_moments(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_batch_norm &g = call->args.p.batch_norm;
    return gpu_run(g.parts ? channel_parts : channel_moments, g.n, call, stream);
}

static cudaError_t run_coefficients(const struct gpu_call *call, cudaStream_t stream) {
    const bool gradient = call->args.op == FL_OP_AFFINE_GRAD_COEFFICIENTS;
    TRY_CUDA(gpu_run(affine_coefficients, call->args.p.batch_norm.n, call, stream, gradient));
    return gpu_once(end_coefficients, call, stream, gradient);
}

static void add_channels(struct gpu_kernels *to) {
    to->op[FL_OP_CHANNEL_MOMENTS] = run_channel_moments;
    to->op[FL_OP_AFFINE_COEFFICIENTS] = to->op[FL_OP_AFFINE_GRAD_COEFFICIENTS] = run_coefficients;
    to->op[FL_OP_CHANNEL_AFFINE] = to->op[FL_OP_CHANNEL_AFFINE_GRAD] = run_channel_affine;
    to->op[FL_OP_RUNNING_STATISTICS] = gpu_running_statistics;
}

} // namespace

#endif
