/* normalisation.c - batch normalisation: per-channel sums by kernels, numbers of channels in double (channel_rules.h),
 * per-channel affine maps by kernels. What passes from one to the next stays on the device.
 *
 * Integer formats: the sums are exact integers, and each coefficient re-enters as a mantissa of 31 bits with an
 * exponent of its own (coefficient.h). They multiply the distance from a centre, the integer mantissa next to the mean,
 * so that little is left to the offset and a mean far larger than the deviation costs no precision. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include <math.h>
#include <string.h>

/* What passes between the calls of one operation, in temporary memory of the device. */
struct passing {
    struct fl_channel_sums sums;
    struct fl_channels channels;
    double *dgamma, *dbeta;
};

enum { PASSING_BYTES = 6 * 8 + 3 * sizeof(struct fl_coefficient) + 5 * 4 };

static tensor_status passing(struct passing *p, const tensor *x, int64_t n) {
    char *at = fl_temporary(fl_queue_of(x->storage), (size_t)n * PASSING_BYTES);
    if (!at)
        return TENSOR_E_MEMORY;
    double *f = (double *)at;
    struct fl_coefficient *k = (struct fl_coefficient *)(f + 6 * n);
    int32_t *i = (int32_t *)(k + 3 * n);
    *p = (struct passing){
        .sums = {{(int64_t *)f, (int64_t *)(f + n)}, {f + 2 * n, f + 3 * n}},
        .dgamma = f + 4 * n,
        .dbeta = f + 5 * n,
        .channels = {.first = k,
                     .cross = k + n,
                     .offset = k + 2 * n,
                     .first_centre = i,
                     .cross_centre = i + n,
                     .a = (float *)(i + 2 * n),
                     .b = (float *)(i + 3 * n),
                     .d = (float *)(i + 4 * n)},
    };
    return TENSOR_OK;
}

static int64_t channels_of(const tensor *t) {
    return t->shape[t->ndim - 1];
}

static int64_t rows_of(const tensor *x) {
    return x->count / channels_of(x);
}

/* --- moments ------------------------------------------------------------------------------------------------------ */

static tensor_status moments(double *mean, double *variance, const tensor *x) {
    struct passing p;
    tensor_status status = passing(&p, x, channels_of(x));
    struct fl_args args = {
        .op = FL_OP_CHANNEL_SUMS,
        .in = {fl_view_of(x)},
        .p.batch_norm = {.m = rows_of(x), .n = channels_of(x), .sums = p.sums, .mean = mean, .variance = variance}};
    if (!status)
        status = fl_run(x, &args);
    args.op = FL_OP_CHANNEL_MOMENTS;
    return status ? status : fl_run(x, &args);
}

tensor_status tensor_channel_moments(double *mean, double *variance, const tensor *x) {
    static const char name[] = "channel_moments";
    if (!mean || !variance || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, !x ? "x" : !mean ? "mean" : "variance");
    tensor_status status = fl_need_arithmetic(name, "x", x);
    if (!status)
        status = fl_need_host(name, x);
    if (!status)
        status = fl_need_elements(name, x);
    return status ? status : moments(mean, variance, x);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static tensor_status check_batchnorm(const char *op, const tensor *out, const tensor *x, const tensor *const *vectors,
                                     int n, const double *mean, const double *variance, double epsilon) {
    if (!out || !x || !mean || !variance)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", op,
                       !out    ? "the output"
                       : !x    ? "x"
                       : !mean ? "mean"
                               : "variance");
    char to[TENSOR_TEXT], tx[TENSOR_TEXT];
    tensor_status status = fl_need_arithmetic(op, "x", x);
    if (!status)
        status = fl_need_elements(op, x);
    if (!status)
        status = fl_need_elements(op, out);
    if (status)
        return status;
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
        status = fl_need_elements(op, vectors[i]);
        if (status)
            return status;
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
    return fl_need_elements(op, image);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* The maps that the coefficients of the channels make. */
static tensor_status apply(tensor *out, struct fl_args *args, enum fl_op op) {
    args->op = op;
    return fl_write(out, args);
}

/* r NULL: nothing is added. The numbers of mean and variance are on x's device. */
static tensor_status batchnorm(const char *op, tensor *y, const tensor *x, const tensor *r, const tensor *gamma,
                               const tensor *beta, const double *mean, const double *variance, double epsilon,
                               bool relu) {
    struct passing p;
    tensor_status status = check_batchnorm(op, y, x, (const tensor *[]){gamma, beta}, 2, mean, variance, epsilon);
    if (!status)
        status = fl_check_all_apart(op, (const char *[]){"y", "x", "r", "gamma", "beta"},
                                    (const tensor *[]){y, x, r, gamma, beta}, 1, 5);
    if (!status)
        status = passing(&p, x, channels_of(x));
    if (status)
        return status;
    struct fl_args args = {.op = FL_OP_AFFINE_COEFFICIENTS,
                           .in = {fl_view_of(x)},
                           .p.batch_norm = {.m = rows_of(x),
                                            .n = channels_of(x),
                                            .channels = p.channels,
                                            .gamma = fl_view_of(gamma),
                                            .beta = fl_view_of(beta),
                                            .mean = (double *)(uintptr_t)mean,
                                            .variance = (double *)(uintptr_t)variance,
                                            .epsilon = epsilon,
                                            .name = op,
                                            .relu = relu}};
    if (r)
        args.in[1] = fl_view_of(r);
    status = fl_run(x, &args);
    return status ? status : apply(y, &args, FL_OP_CHANNEL_AFFINE);
}

tensor_status tensor_batchnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta, const double *mean,
                               const double *variance, double epsilon, bool relu) {
    tensor_status status = x ? fl_need_host("batchnorm", x) : TENSOR_OK;
    return status ? status : batchnorm("batchnorm", y, x, NULL, gamma, beta, mean, variance, epsilon, relu);
}

static tensor_status batchnorm_add(const char *name, tensor *y, const tensor *x, const tensor *r, const tensor *gamma,
                                   const tensor *beta, const double *mean, const double *variance, double epsilon,
                                   bool relu) {
    if (!r || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, r ? "x" : "r");
    tensor_status status = check_image(name, "r", r, y, x);
    return status ? status : batchnorm(name, y, x, r, gamma, beta, mean, variance, epsilon, relu);
}

tensor_status tensor_batchnorm_add(tensor *y, const tensor *x, const tensor *r, const tensor *gamma, const tensor *beta,
                                   const double *mean, const double *variance, double epsilon, bool relu) {
    tensor_status status = x ? fl_need_host("batchnorm_add", x) : TENSOR_OK;
    return status ? status : batchnorm_add("batchnorm_add", y, x, r, gamma, beta, mean, variance, epsilon, relu);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

static tensor_status check_gradient(const char *name, const tensor *dx, const tensor *dgamma, const tensor *dbeta,
                                    const tensor *dy, const tensor *x, const tensor *y, const tensor *gamma,
                                    const double *mean, const double *variance, double epsilon) {
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
    return fl_check_all_apart(name, (const char *[]){"dx", "dgamma", "dbeta", "dy", "x", "y", "gamma"},
                              (const tensor *[]){dx, dgamma, dbeta, dy, x, y, gamma}, 3, 7);
}

static tensor_status batchnorm_grad(const char *name, tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                    const tensor *x, const tensor *y, const tensor *gamma, const double *mean,
                                    const double *variance, double epsilon) {
    struct passing p;
    tensor_status status = check_gradient(name, dx, dgamma, dbeta, dy, x, y, gamma, mean, variance, epsilon);
    if (!status)
        status = passing(&p, x, channels_of(x));
    if (status)
        return status;
    struct fl_args args = {.op = FL_OP_CHANNEL_GRAD_SUMS,
                           .in = {fl_view_of(dy), fl_view_of(x)},
                           .p.batch_norm = {.m = rows_of(x),
                                            .n = channels_of(x),
                                            .sums = p.sums,
                                            .channels = p.channels,
                                            .gamma = fl_view_of(gamma),
                                            .mean = (double *)(uintptr_t)mean,
                                            .variance = (double *)(uintptr_t)variance,
                                            .dgamma = p.dgamma,
                                            .dbeta = p.dbeta,
                                            .epsilon = epsilon,
                                            .name = name}};
    if (y)
        args.in[2] = fl_view_of(y);
    status = fl_run(x, &args);
    args.op = FL_OP_AFFINE_GRAD_COEFFICIENTS;
    if (!status)
        status = fl_run(x, &args);
    if (!status)
        status = apply(dx, &args, FL_OP_CHANNEL_AFFINE_GRAD);
    if (!status)
        status = fl_write_values(dgamma, p.dgamma);
    return status ? status : fl_write_values(dbeta, p.dbeta);
}

tensor_status tensor_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                                    const tensor *y, const tensor *gamma, const double *mean, const double *variance,
                                    double epsilon) {
    tensor_status status = x ? fl_need_host("batchnorm_grad", x) : TENSOR_OK;
    return status ? status
                  : batchnorm_grad("batchnorm_grad", dx, dgamma, dbeta, dy, x, y, gamma, mean, variance, epsilon);
}

/* --- with numbers as tensors -------------------------------------------------------------------------------------- */

/* f64 tensors of a number for each channel, of which the first `outputs` are written, on x's device. */
static tensor_status check_numbers(const char *op, const tensor *x, const char *const *names,
                                   const tensor *const *numbers, int outputs, int n) {
    const char *all_names[5] = {0};
    const tensor *all[5] = {0};
    if (!x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: x is NULL", op);
    tensor_status status = fl_need_arithmetic(op, "x", x);
    if (!status)
        status = fl_need_contiguous(op, x);
    for (int i = 0; i < n && !status; i++) {
        status = fl_check_numbers(op, names[i], numbers[i], FMT_F64, channels_of(x), x);
        all_names[i] = names[i];
        all[i] = numbers[i];
    }
    all_names[n] = "x";
    all[n] = x;
    return status ? status : fl_check_all_apart(op, all_names, all, outputs, n + 1);
}

tensor_status tensor_moments(tensor *mean, tensor *variance, const tensor *x) {
    tensor_status status =
        check_numbers("moments", x, (const char *[]){"mean", "variance"}, (const tensor *[]){mean, variance}, 2, 2);
    if (!status)
        status = fl_need_elements("moments", x);
    return status ? status : moments(mean->storage->data, variance->storage->data, x);
}

tensor_status tensor_normalise(tensor *y, const tensor *x, const tensor *residual, const tensor *gamma,
                               const tensor *beta, const tensor *mean, const tensor *variance, double epsilon,
                               bool relu) {
    static const char name[] = "normalise";
    tensor_status status =
        check_numbers(name, x, (const char *[]){"mean", "variance"}, (const tensor *[]){mean, variance}, 0, 2);
    if (status)
        return status;
    const double *m = mean->storage->data, *v = variance->storage->data;
    return residual ? batchnorm_add(name, y, x, residual, gamma, beta, m, v, epsilon, relu)
                    : batchnorm(name, y, x, NULL, gamma, beta, m, v, epsilon, relu);
}

tensor_status tensor_normalise_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                                    const tensor *y, const tensor *gamma, const tensor *mean, const tensor *variance,
                                    double epsilon) {
    static const char name[] = "normalise_grad";
    tensor_status status =
        check_numbers(name, x, (const char *[]){"mean", "variance"}, (const tensor *[]){mean, variance}, 0, 2);
    return status ? status
                  : batchnorm_grad(name, dx, dgamma, dbeta, dy, x, y, gamma, mean->storage->data,
                                   variance->storage->data, epsilon);
}

tensor_status tensor_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                        const tensor *variance, const tensor *x, double momentum) {
    static const char name[] = "running_statistics";
    const tensor *numbers[] = {running_mean, running_variance, mean, variance};
    tensor_status status =
        check_numbers(name, x, (const char *[]){"running_mean", "running_variance", "mean", "variance"}, numbers, 2, 4);
    if (!status && !(momentum >= 0 && momentum <= 1))
        status = fl_fail(TENSOR_E_ARGUMENT, "%s: momentum is %g, expected 0 to 1", name, momentum);
    if (status)
        return status;
    struct fl_args args = {.op = FL_OP_RUNNING_STATISTICS,
                           .p.running = {.m = rows_of(x),
                                         .n = channels_of(x),
                                         .mean = running_mean->storage->data,
                                         .variance = running_variance->storage->data,
                                         .batch_mean = mean->storage->data,
                                         .batch_variance = variance->storage->data,
                                         .momentum = momentum}};
    return fl_run(x, &args);
}
