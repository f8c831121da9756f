/* channel_numbers.c - operations on the numbers of channels: moments, coefficients, running statistics. The rules of
 * one channel are in channel_rules.h; here they go over all of them. */
#include "core/norms/channel_rules.h"
#include "core/base/fail.h"
#include "core/reference/ref.h"

static double vector_at(const struct fl_args *args, int i, int64_t c) {
    double value;
    args->format->decode(&args->vectors[i], c, 1, &value);
    return value;
}

tensor_status fl_channel_moments(const struct fl_args *args) {
    const struct fl_numbers *n = &args->numbers;
    for (int64_t c = 0; c < args->geo.n; c++) {
        if (fl_ref_shared(args))
            fl_exact_moments(args->geo.m, args->sums.i[0][c], args->sums.i[1][c], fl_exponent(&args->in[0]),
                             &n->f[0][c], &n->f[1][c]);
        else
            fl_float_moments(args->geo.m, args->sums.f[0][c], args->sums.f[1][c], &n->f[0][c], &n->f[1][c]);
    }
    return TENSOR_OK;
}

tensor_status fl_running_statistics(const struct fl_args *args) {
    const struct fl_numbers *n = &args->numbers;
    const double rows = (double)args->geo.m, unbiased = rows > 1 ? rows / (rows - 1) : 1;
    for (int64_t c = 0; c < args->geo.n; c++) {
        n->f[0][c] += n->real * (n->f[2][c] - n->f[0][c]);
        n->f[1][c] += n->real * (n->f[3][c] * unbiased - n->f[1][c]);
    }
    return TENSOR_OK;
}

/* Channel c of args->channels. */
static tensor_status keep(const struct fl_args *args, int64_t c, const struct fl_affine_channel *channel) {
    const struct fl_channels *to = &args->channels;
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
                       args->numbers.what, (long long)c, channel->scale, channel->cross, channel->mean,
                       channel->cross_mean);
    to->first[c] = k.first;
    to->cross[c] = k.cross;
    to->offset[c] = k.offset;
    to->first_centre[c] = k.first_centre;
    to->cross_centre[c] = k.cross_centre;
    return TENSOR_OK;
}

tensor_status fl_affine_coefficients(const struct fl_args *args) {
    const struct fl_numbers *n = &args->numbers;
    tensor_status status = TENSOR_OK;
    for (int64_t c = 0; c < args->geo.n && !status; c++) {
        const struct fl_affine_channel channel = fl_normalising(
            vector_at(args, 0, c), vector_at(args, 1, c), n->f[0][c], n->f[1][c], n->real, args->in[1].data != NULL);
        status = keep(args, c, &channel);
    }
    return status;
}

tensor_status fl_affine_grad_coefficients(const struct fl_args *args) {
    const struct fl_numbers *n = &args->numbers;
    const int e_dy = fl_exponent(&args->in[0]), e_x = fl_exponent(&args->in[1]);
    tensor_status status = TENSOR_OK;
    for (int64_t c = 0; c < args->geo.n && !status; c++) {
        const double mean = n->f[0][c];
        double sum, about_mean;
        if (fl_ref_shared(args)) {
            sum = fl_scale2((double)args->sums.i[0][c], -e_dy);
            about_mean = fl_exact_about_mean(args->geo.m, args->sums.i[0][c], args->sums.i[1][c], mean, e_dy, e_x);
        } else {
            sum = args->sums.f[0][c];
            about_mean = args->sums.f[1][c] - mean * sum;
        }
        const struct fl_affine_channel channel = fl_normalising_gradient(
            vector_at(args, 0, c), mean, n->f[1][c], n->real, sum, about_mean, args->geo.m, &n->f[2][c]);
        n->f[3][c] = sum;
        status = keep(args, c, &channel);
    }
    return status;
}
