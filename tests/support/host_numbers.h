/* host_numbers.h - operations that take and give numbers beside the formats as tensors, with arrays of the test. */
#ifndef HOST_NUMBERS_H
#define HOST_NUMBERS_H

#include "flexlab/tensor_blocks.h"
#include "flexlab/tensor_losses.h"
#include "flexlab/tensor_norms.h"
#include "flexlab/tensor_values.h"

/* values NULL: no tensor, and no failure. */
static inline tensor_status host_doubles_in(tensor **t, const double *values, int64_t n) {
    *t = values ? tensor_new(FMT_F64, TENSOR_SHAPE(n)) : NULL;
    return !values ? TENSOR_OK : *t ? tensor_load_f64(*t, values, n) : tensor_error_status();
}
static inline tensor_status host_labels_in(tensor **t, const int32_t *values, int64_t n) {
    *t = values ? tensor_new(FMT_I32, TENSOR_SHAPE(n)) : NULL;
    return !values ? TENSOR_OK : *t ? tensor_load_i32(*t, values, n) : tensor_error_status();
}

static inline int64_t host_channels(const tensor *x) {
    return x ? tensor_dim(x, tensor_ndim(x) - 1) : 1;
}

static inline tensor_status host_moments(double *mean, double *variance, const tensor *x) {
    const int64_t n = host_channels(x);
    tensor *m = mean ? tensor_new(FMT_F64, TENSOR_SHAPE(n)) : NULL,
           *v = variance ? tensor_new(FMT_F64, TENSOR_SHAPE(n)) : NULL;
    tensor_status status = (mean && !m) || (variance && !v) ? tensor_error_status() : tensor_moments(m, v, x);
    status = status ? status : tensor_store_f64(m, mean, n);
    status = status ? status : tensor_store_f64(v, variance, n);
    tensor_free(m);
    tensor_free(v);
    return status;
}

static inline tensor_status host_batchnorm(tensor *y, const tensor *x, const tensor *residual, const tensor *gamma,
                                           const tensor *beta, const double *mean, const double *variance,
                                           double epsilon, bool relu) {
    tensor *m = NULL, *v = NULL;
    tensor_status status = host_doubles_in(&m, mean, host_channels(x));
    status = status ? status : host_doubles_in(&v, variance, host_channels(x));
    status = status ? status : tensor_batchnorm(y, x, residual, gamma, beta, m, v, epsilon, relu);
    tensor_free(m);
    tensor_free(v);
    return status;
}

static inline tensor_status host_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *y, const tensor *gamma,
                                                const double *mean, const double *variance, double epsilon) {
    tensor *m = NULL, *v = NULL;
    tensor_status status = host_doubles_in(&m, mean, host_channels(x));
    status = status ? status : host_doubles_in(&v, variance, host_channels(x));
    status = status ? status : tensor_batchnorm_grad(dx, dgamma, dbeta, dy, x, y, gamma, m, v, epsilon);
    tensor_free(m);
    tensor_free(v);
    return status;
}

/* The plain loss. */
static inline tensor_status host_cross_entropy(double *loss, tensor *dx, int32_t *predicted, const tensor *x,
                                               const int32_t *labels, double scale) {
    const int64_t rows = x ? tensor_dim(x, 0) : 1;
    const tensor_loss_options how = {.gradient_scale = scale};
    tensor *mean = loss ? tensor_new(FMT_F64, TENSOR_SHAPE(1)) : NULL,
           *classes = predicted ? tensor_new(FMT_I32, TENSOR_SHAPE(rows)) : NULL, *of = NULL;
    tensor_status status =
        (loss && !mean) || (predicted && !classes) ? tensor_error_status() : host_labels_in(&of, labels, rows);
    status = status ? status : tensor_cross_entropy(mean, dx, classes, NULL, x, of, &how);
    status = status ? status : tensor_store_f64(mean, loss, 1);
    if (!status && predicted)
        status = tensor_store_i32(classes, predicted, rows);
    tensor_free(mean);
    tensor_free(classes);
    tensor_free(of);
    return status;
}

#endif
