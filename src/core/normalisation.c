/* normalisation.c - batch normalisation: per-channel sums by kernels, one fixed sequence of double operations a
 * channel, per-channel affine maps by kernels.
 *
 * Integer formats: the sums are exact integers, and each coefficient re-enters as a mantissa of 31 bits with an
 * exponent of its own (coefficient.h). They multiply the distance from a centre, the integer mantissa next to the mean,
 * so that little is left to the offset and a mean far larger than the deviation costs no precision. */
#include "core/exact.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/tensor_object.h"
#include <math.h>
#include <string.h>

/* Everything a call needs for its channels, in one block of scratch. */
struct channel_work {
    int64_t n;
    double *sum[2];                      /* float formats, and the real values of both families */
    int64_t *isum[2];                    /* exact sums of mantissas */
    double *scale, *cross;               /* multipliers of x or dy, and of x in the gradient (real units) */
    double *centre, *centre_dy, *offset; /* means to subtract, value to add */
    double *gamma;
    float *a, *b, *d; /* what the kernels take: float formats, integer formats */
    struct fl_coefficient *first, *second, *constant;
    int32_t *first_centre, *second_centre;
};

static tensor_status channel_work(struct channel_work *w, int64_t n) {
    const size_t doubles = 8, words64 = 2 + 3, words32 = 3 + 2;
    char *block = fl_scratch(2, (size_t)n * (8 * (doubles + words64) + 4 * words32));
    if (!block)
        return fl_fail(TENSOR_E_MEMORY, "no memory for the coefficients of %lld channels", (long long)n);
    double *f = (double *)block;
    int64_t *l = (int64_t *)(f + doubles * (size_t)n);
    struct fl_coefficient *k = (struct fl_coefficient *)(l + 2 * n);
    int32_t *i = (int32_t *)(k + 3 * n);
    *w = (struct channel_work){.n = n,
                               .sum = {f, f + n},
                               .scale = f + 2 * n,
                               .cross = f + 3 * n,
                               .centre = f + 4 * n,
                               .centre_dy = f + 5 * n,
                               .offset = f + 6 * n,
                               .gamma = f + 7 * n,
                               .isum = {l, l + n},
                               .first = k,
                               .second = k + n,
                               .constant = k + 2 * n,
                               .first_centre = i,
                               .second_centre = i + n,
                               .a = (float *)(i + 2 * n),
                               .b = (float *)(i + 3 * n),
                               .d = (float *)(i + 4 * n)};
    return TENSOR_OK;
}

static bool is_shared(const tensor *t) {
    return t->format->arithmetic == FL_ARITHMETIC_SHARED;
}

static int64_t channels_of(const tensor *t) {
    return t->shape[t->ndim - 1];
}

static tensor_status run_sums(struct channel_work *w, enum fl_op op, const tensor *dy, const tensor *x,
                              const tensor *y) {
    struct fl_args args = {
        .op = op, .geo = {.m = x->count / w->n, .n = w->n}, .sums = {{w->isum[0], w->isum[1]}, {w->sum[0], w->sum[1]}}};
    if (dy)
        args.in[0] = fl_view_of(dy);
    args.in[dy ? 1 : 0] = fl_view_of(x);
    if (y)
        args.in[2] = fl_view_of(y);
    struct fl_stats stats = {0};
    return fl_read(x->format, &args, &stats);
}

tensor_status tensor_channel_moments(double *mean, double *variance, const tensor *x) {
    if (!mean || !variance || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "channel_moments: %s is NULL", !x ? "x" : !mean ? "mean" : "variance");
    struct channel_work w;
    tensor_status status = channel_work(&w, channels_of(x));
    if (!status)
        status = run_sums(&w, FL_OP_CHANNEL_SUMS, NULL, x, NULL);
    if (status)
        return status;
    const int64_t rows = x->count / w.n;
    const double n = (double)rows;
    for (int64_t c = 0; c < w.n; c++) {
        if (is_shared(x)) {
            const int e = x->storage->slot->e;
            fl_int128 s1 = w.isum[0][c], s2 = w.isum[1][c];
            mean[c] = ldexp((double)w.isum[0][c] / n, -e);
            variance[c] = ldexp((double)(rows * s2 - s1 * s1) / (n * n), -2 * e);
        } else {
            mean[c] = w.sum[0][c] / n;
            double v = w.sum[1][c] / n - mean[c] * mean[c];
            variance[c] = v < 0 ? 0 : v; /* NaN stays */
        }
    }
    return TENSOR_OK;
}

/* out = scale (in[0] - centre) + cross (in[1] - cross_centre) + offset, by channel. */
struct affine_plan {
    struct channel_work *w;
    const double *centre;
    const double *cross, *cross_centre; /* NULL: there is no in[1]; its centre is zero */
    int e_first, e_cross;               /* exponents of in[0] and in[1] */
};

/* The integer mantissa next to `mean`, within +-32767; *rest is what remains of the mean, in real units. */
static int32_t centre_of(double mean, int e, double *rest) {
    const double mantissas = ldexp(mean, e), top = 32767;
    double nearest = rint(mantissas);
    nearest = nearest > top ? top : nearest < -top ? -top : nearest;
    *rest = ldexp(mantissas - nearest, -e);
    return (int32_t)nearest;
}

static struct fl_coefficient on_mantissas(double multiplier, int e) {
    struct fl_coefficient k = fl_coefficient_of(multiplier);
    k.e += e;
    return k;
}

static tensor_status integer_coefficients(const char *op, const struct affine_plan *p) {
    struct channel_work *w = p->w;
    for (int64_t c = 0; c < w->n; c++) {
        const double scale = w->scale[c], cross = p->cross ? p->cross[c] : 0;
        const double mean = p->centre[c], cross_mean = p->cross_centre ? p->cross_centre[c] : 0;
        double rest = 0, cross_rest = 0, constant = NAN;
        if (isfinite(mean) && isfinite(cross_mean)) {
            w->first_centre[c] = centre_of(mean, p->e_first, &rest);
            w->second_centre[c] = centre_of(cross_mean, p->e_cross, &cross_rest);
            constant = w->offset[c] - scale * rest - cross * cross_rest;
        }
        if (!isfinite(scale) || !isfinite(cross) || !isfinite(constant))
            return fl_fail(
                TENSOR_E_ARGUMENT,
                "%s: channel %lld has the multipliers %g and %g, means %g and %g: mean, variance and epsilon "
                "must lead to finite numbers",
                op, (long long)c, scale, cross, mean, cross_mean);
        w->first[c] = on_mantissas(scale, p->e_first);
        w->second[c] = on_mantissas(cross, p->e_cross);
        w->constant[c] = fl_coefficient_of(constant);
    }
    return TENSOR_OK;
}

static void float_coefficients(const struct affine_plan *p) {
    struct channel_work *w = p->w;
    for (int64_t c = 0; c < w->n; c++) {
        const double cross = p->cross_centre ? p->cross[c] * p->cross_centre[c] : 0;
        w->a[c] = (float)w->scale[c];
        w->d[c] = p->cross ? (float)p->cross[c] : 0;
        w->b[c] = (float)(w->offset[c] - (w->scale[c] * p->centre[c] + cross));
    }
}

static tensor_status run_affine(const char *op, tensor *out, struct fl_args *args, const struct affine_plan *plan) {
    struct channel_work *w = plan->w;
    args->geo = (struct fl_geometry){.m = out->count / w->n, .n = w->n};
    if (is_shared(out)) {
        tensor_status status = integer_coefficients(op, plan);
        if (status)
            return status;
        args->channels =
            (struct fl_channels){.first = w->first, .offset = w->constant, .first_centre = w->first_centre};
        if (plan->cross) {
            args->channels.cross = w->second;
            args->channels.cross_centre = w->second_centre;
        }
    } else {
        float_coefficients(plan);
        args->channels = (struct fl_channels){.a = w->a, .b = w->b, .d = w->d};
    }
    return fl_write(out, args);
}

static void decode(const tensor *t, double *values) {
    struct fl_view view = fl_view_of(t);
    t->format->decode(&view, 0, t->count, values);
}

static tensor_status check_batchnorm(const char *op, const tensor *out, const tensor *x, const tensor *const *vectors,
                                     int n, const double *mean, const double *variance, double epsilon) {
    if (!out || !x || !mean || !variance)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", op,
                       !out    ? "the output"
                       : !x    ? "x"
                       : !mean ? "mean"
                               : "variance");
    char to[TENSOR_TEXT], tx[TENSOR_TEXT];
    if (out->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "%s: the output is %s, x is %s", op, out->format->name, x->format->name);
    if (out->ndim != x->ndim || memcmp(out->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: the output is %s, x is %s", op, fl_shape_text(out, to),
                       fl_shape_text(x, tx));
    if (out->storage == x->storage)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the output and x are the same tensor, the output must be another", op);
    if (!(epsilon > 0) || !isfinite(epsilon))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: epsilon is %g, expected above 0", op, epsilon);
    for (int i = 0; i < n; i++) {
        if (!vectors[i])
            return fl_fail(TENSOR_E_ARGUMENT, "%s: a vector of the channels is NULL", op);
        if (vectors[i]->format != x->format)
            return fl_fail(TENSOR_E_FORMAT, "%s: x is %s, a vector of the channels is %s", op, x->format->name,
                           vectors[i]->format->name);
        if (vectors[i]->ndim != 1 || vectors[i]->shape[0] != channels_of(x))
            return fl_fail(TENSOR_E_SHAPE, "%s: x is %s, a vector of the channels is %s, expected %lld", op,
                           fl_shape_text(x, tx), fl_shape_text(vectors[i], to), (long long)channels_of(x));
        if (vectors[i]->storage == out->storage || vectors[i]->storage == x->storage)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: a vector of the channels is also the output or x", op);
    }
    return TENSOR_OK;
}

/* Of another image of the operation, which has x's shape and format and is not the output. */
static tensor_status check_image(const char *op, const char *name, const tensor *image, const tensor *out,
                                 const tensor *x) {
    if (image->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "%s: x is %s, %s is %s", op, x->format->name, name, image->format->name);
    if (image->ndim != x->ndim || memcmp(image->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: x and %s differ in shape", op, name);
    if (out && image->storage == out->storage)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is also the output", op, name);
    return TENSOR_OK;
}

/* Each of the first `outputs` tensors lies apart from all others; NULL: not there. */
static tensor_status check_apart(const char *op, const char *const *names, const tensor *const *tensors, int outputs,
                                 int n) {
    for (int i = 0; i < outputs; i++)
        for (int j = i + 1; j < n; j++) {
            const tensor_status status = fl_check_apart(op, names[i], tensors[i], names[j], tensors[j]);
            if (status)
                return status;
        }
    return TENSOR_OK;
}

/* r NULL: nothing is added. */
static tensor_status batchnorm(const char *op, tensor *y, const tensor *x, const tensor *r, const tensor *gamma,
                               const tensor *beta, const double *mean, const double *variance, double epsilon,
                               bool relu) {
    struct channel_work w;
    tensor_status status = check_batchnorm(op, y, x, (const tensor *[]){gamma, beta}, 2, mean, variance, epsilon);
    if (!status)
        status = check_apart(op, (const char *[]){"y", "x", "r", "gamma", "beta"},
                             (const tensor *[]){y, x, r, gamma, beta}, 1, 5);
    if (!status)
        status = channel_work(&w, channels_of(x));
    if (status)
        return status;
    decode(gamma, w.gamma);
    decode(beta, w.offset);
    for (int64_t c = 0; c < w.n; c++) {
        w.scale[c] = w.gamma[c] * (1 / sqrt(variance[c] + epsilon));
        w.centre[c] = mean[c];
        w.cross[c] = 1;
    }
    struct fl_args args = {.op = FL_OP_CHANNEL_AFFINE, .in = {fl_view_of(x)}, .relu = relu};
    struct affine_plan plan = {.w = &w, .centre = w.centre, .e_first = x->storage->slot->e};
    if (r) {
        args.in[1] = fl_view_of(r);
        plan.cross = w.cross;
        plan.e_cross = r->storage->slot->e;
    }
    return run_affine(op, y, &args, &plan);
}

tensor_status tensor_batchnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta, const double *mean,
                               const double *variance, double epsilon, bool relu) {
    return batchnorm("batchnorm", y, x, NULL, gamma, beta, mean, variance, epsilon, relu);
}

tensor_status tensor_batchnorm_add(tensor *y, const tensor *x, const tensor *r, const tensor *gamma, const tensor *beta,
                                   const double *mean, const double *variance, double epsilon, bool relu) {
    static const char name[] = "batchnorm_add";
    if (!r || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, r ? "x" : "r");
    tensor_status status = check_image(name, "r", r, y, x);
    return status ? status : batchnorm(name, y, x, r, gamma, beta, mean, variance, epsilon, relu);
}

tensor_status tensor_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                                    const tensor *y, const tensor *gamma, const double *mean, const double *variance,
                                    double epsilon) {
    static const char name[] = "batchnorm_grad";
    struct channel_work w;
    tensor_status status =
        check_batchnorm(name, dx, x, (const tensor *[]){dgamma, dbeta, gamma}, 3, mean, variance, epsilon);
    if (status)
        return status;
    const tensor *images[2] = {dy, y};
    for (int i = 0; i < (y ? 2 : 1); i++) {
        if (!images[i])
            return fl_fail(TENSOR_E_ARGUMENT, "%s: dy is NULL", name);
        status = check_image(name, i ? "y" : "dy", images[i], dx, x);
        if (status)
            return status;
    }
    if (dgamma->storage == dbeta->storage || dgamma->storage == gamma->storage || dbeta->storage == gamma->storage)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: dgamma, dbeta and gamma must be three tensors", name);
    status = check_apart(name, (const char *[]){"dx", "dgamma", "dbeta", "dy", "x", "y", "gamma"},
                         (const tensor *[]){dx, dgamma, dbeta, dy, x, y, gamma}, 3, 7);
    if (!status)
        status = channel_work(&w, channels_of(x));
    if (!status)
        status = run_sums(&w, FL_OP_CHANNEL_GRAD_SUMS, dy, x, y);
    if (status)
        return status;
    decode(gamma, w.gamma);
    const double n = (double)(x->count / w.n);
    for (int64_t c = 0; c < w.n; c++) {
        const double inverse = 1 / sqrt(variance[c] + epsilon);
        double s1 = w.sum[0][c], s2 = w.sum[1][c];
        if (is_shared(x)) {
            s1 = ldexp((double)w.isum[0][c], -dy->storage->slot->e);
            s2 = ldexp((double)w.isum[1][c], -dy->storage->slot->e - x->storage->slot->e);
        }
        const double dot = (s2 - mean[c] * s1) * inverse; /* sum of dy times the normalised x */
        w.scale[c] = w.gamma[c] * inverse;
        w.cross[c] = -w.scale[c] * inverse * dot / n;
        w.centre[c] = mean[c];
        w.centre_dy[c] = s1 / n;
        w.offset[c] = 0;
        w.sum[0][c] = dot;
        w.sum[1][c] = s1;
    }
    struct fl_args args = {.op = FL_OP_CHANNEL_AFFINE_GRAD, .in = {fl_view_of(dy), fl_view_of(x)}};
    if (y)
        args.in[2] = fl_view_of(y);
    struct affine_plan plan = {.w = &w,
                               .centre = w.centre_dy,
                               .cross = w.cross,
                               .cross_centre = w.centre,
                               .e_first = dy->storage->slot->e,
                               .e_cross = x->storage->slot->e};
    status = run_affine(name, dx, &args, &plan);
    if (status)
        return status;
    fl_write_values(dgamma, w.sum[0]);
    fl_write_values(dbeta, w.sum[1]);
    return TENSOR_OK;
}
