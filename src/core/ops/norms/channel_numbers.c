/* channel_numbers.c - operations on the numbers of channels: moments, coefficients, running statistics. channel_rules.h
 * has the rules of one channel; this file applies them to all. */
#include "core/ops/norms/channel_rules.h"
#include "core/base/fail.h"
#include "core/reference/ref.h"

static double vector_at(const struct fl_args *args, const struct fl_view *vector, int64_t c) {
    double value;
    args->format->decode(args->format, vector, c, 1, &value);
    return value;
}

static tensor_status give_parts(const struct fl_args *args) {
    const struct fl_batch_norm *n = &args->p.batch_norm;
    double *sum = n->parts, *high = sum + n->n, *low = high + n->n;
    const struct fl_view *first = &args->in[0], *second = args->in[1].data ? &args->in[1] : first;
    for (int64_t c = 0; c < n->n; c++) {
        if (fl_ref_shared(args)) {
            fl_exact_part(n->sums.i[0][c], n->sums.i[1][c], fl_exponent(first), fl_exponent(second), &sum[c], &high[c],
                          &low[c]);
        } else {
            sum[c] = n->sums.f[0][c];
            high[c] = n->sums.f[1][c];
            low[c] = 0;
        }
    }
    return TENSOR_OK;
}

tensor_status fl_channel_moments(const struct fl_args *args) {
    const struct fl_batch_norm *n = &args->p.batch_norm;
    if (n->parts)
        return give_parts(args);
    for (int64_t c = 0; c < args->p.batch_norm.n; c++) {
        if (fl_ref_shared(args))
            fl_exact_moments(args->p.batch_norm.m, args->p.batch_norm.sums.i[0][c], args->p.batch_norm.sums.i[1][c],
                             fl_exponent(&args->in[0]), &n->mean[c], &n->variance[c]);
        else
            fl_float_moments(args->p.batch_norm.m, args->p.batch_norm.sums.f[0][c], args->p.batch_norm.sums.f[1][c],
                             &n->mean[c], &n->variance[c]);
    }
    return TENSOR_OK;
}

tensor_status fl_running_statistics(const struct fl_args *args) {
    const struct fl_running *r = &args->p.running;
    const double rows = (double)r->m, unbiased = rows > 1 ? rows / (rows - 1) : 1;
    for (int64_t c = 0; c < r->n; c++) {
        r->mean[c] += r->momentum * (r->batch_mean[c] - r->mean[c]);
        r->variance[c] += r->momentum * (r->batch_variance[c] * unbiased - r->variance[c]);
    }
    return TENSOR_OK;
}

/* Computes channel c of the results of the task. */
static tensor_status keep(const struct fl_args *args, int64_t c, const struct fl_affine_channel *channel) {
    const struct fl_channels *to = &args->p.batch_norm.channels;
    if (!fl_ref_shared(args)) {
        to->a[c] = (float)channel->scale;
        to->d[c] = (float)channel->cross;
        to->b[c] = (float)(channel->offset - (channel->scale * channel->mean + channel->cross * channel->cross_mean));
        return TENSOR_OK;
    }
    struct fl_integer_channel k;
    if (!fl_integer_channel_of(channel, fl_exponent(&args->in[0]), fl_exponent(&args->in[1]), &k))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: channel %lld has the multipliers %g and %g, means %g and %g: mean, variance and epsilon "
                       "must lead to finite numbers",
                       args->p.batch_norm.name, (long long)c, fl_unsigned_nan(channel->scale),
                       fl_unsigned_nan(channel->cross), fl_unsigned_nan(channel->mean),
                       fl_unsigned_nan(channel->cross_mean));
    to->first[c] = k.first;
    to->cross[c] = k.cross;
    to->offset[c] = k.offset;
    to->first_centre[c] = k.first_centre;
    to->cross_centre[c] = k.cross_centre;
    return TENSOR_OK;
}

tensor_status fl_affine_coefficients(const struct fl_args *args) {
    const struct fl_batch_norm *n = &args->p.batch_norm;
    tensor_status status = TENSOR_OK;
    for (int64_t c = 0; c < args->p.batch_norm.n && !status; c++) {
        const struct fl_affine_channel channel =
            fl_normalising(vector_at(args, &n->gamma, c), vector_at(args, &n->beta, c), n->mean[c], n->variance[c],
                           n->epsilon, args->in[1].data != NULL);
        status = keep(args, c, &channel);
    }
    return status;
}

tensor_status fl_affine_grad_coefficients(const struct fl_args *args) {
    const struct fl_batch_norm *n = &args->p.batch_norm;
    const int e_dy = fl_exponent(&args->in[0]), e_x = fl_exponent(&args->in[1]);
    tensor_status status = TENSOR_OK;
    for (int64_t c = 0; c < args->p.batch_norm.n && !status; c++) {
        const double mean = n->mean[c];
        double sum, about_mean;
        if (fl_ref_shared(args)) {
            sum = fl_scale2((double)args->p.batch_norm.sums.i[0][c], -e_dy);
            about_mean = fl_exact_about_mean(args->p.batch_norm.m, args->p.batch_norm.sums.i[0][c],
                                             args->p.batch_norm.sums.i[1][c], mean, e_dy, e_x);
        } else {
            sum = args->p.batch_norm.sums.f[0][c];
            about_mean = args->p.batch_norm.sums.f[1][c] - mean * sum;
        }
        const double gamma = vector_at(args, &n->gamma, c);
        struct fl_affine_channel channel =
            fl_normalising_gradient(gamma, mean, n->variance[c], n->epsilon, sum, about_mean, n->m, &n->dgamma[c]);
        n->dbeta[c] = sum;
        double of_all;
        if (n->all_dy) /* dx follows the whole batch, dgamma and dbeta are parts of sums */
            channel = fl_normalising_gradient(gamma, mean, n->variance[c], n->epsilon, n->all_dy[c], n->all_about[c],
                                              n->all_rows, &of_all);
        status = keep(args, c, &channel);
    }
    return status;
}
