/* tensor_norms.h - normalisation by batch, row, neighbouring channels and group. A part of tensor.h, whose conventions
 * hold. */
#ifndef FLEXLAB_TENSOR_NORMS_H
#define FLEXLAB_TENSOR_NORMS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- batch normalisation (Ioffe and Szegedy 2015) over all but the last dimension --------------------------------- */

/* Mean and population variance of each channel: exact sums in shared-exponent formats, binary32 sums of 512 rows added
 * in double in float formats. mean and variance have C entries. */
FLEXLAB_API tensor_status tensor_channel_moments(double *mean, double *variance, const tensor *x)
    FLEXLAB_SYMBOL(tensor_channel_moments);
/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, then max(0, .) if relu. In place not allowed. */
FLEXLAB_API tensor_status tensor_batchnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           const double *mean, const double *variance, double epsilon, bool relu)
    FLEXLAB_SYMBOL(tensor_batchnorm);
/* The same with an image of x's shape added before relu: one pass, one rounding (a residual block ends this way). The
 * gradient of r is that of the sum: dy where y is above zero. */
FLEXLAB_API tensor_status tensor_batchnorm_add(tensor *y, const tensor *x, const tensor *r, const tensor *gamma,
                                               const tensor *beta, const double *mean, const double *variance,
                                               double epsilon, bool relu) FLEXLAB_SYMBOL(tensor_batchnorm_add);
/* Gradients of tensor_batchnorm with mean and variance those of x. y is the forward result if relu was set (its zeros
 * mask dy), NULL otherwise. x and dy may not be dx. */
FLEXLAB_API tensor_status tensor_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *y, const tensor *gamma,
                                                const double *mean, const double *variance, double epsilon)
    FLEXLAB_SYMBOL(tensor_batchnorm_grad);

/* --- batch normalisation with numbers as tensors ------------------------------------------------------------------ */

/* What the operations of batch normalisation take and give as host arrays, as tensors of FMT_F64 on the device of the
 * others: a training step then hands nothing to the host. Same definitions, same bits. mean, variance and running ones:
 * f64 [C]. */
FLEXLAB_API tensor_status tensor_moments(tensor *mean, tensor *variance, const tensor *x)
    FLEXLAB_SYMBOL(tensor_moments);
/* tensor_batchnorm, or with a residual (NULL: none) tensor_batchnorm_add. */
FLEXLAB_API tensor_status tensor_normalise(tensor *y, const tensor *x, const tensor *residual, const tensor *gamma,
                                           const tensor *beta, const tensor *mean, const tensor *variance,
                                           double epsilon, bool relu) FLEXLAB_SYMBOL(tensor_normalise);
FLEXLAB_API tensor_status tensor_normalise_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *y, const tensor *gamma,
                                                const tensor *mean, const tensor *variance, double epsilon)
    FLEXLAB_SYMBOL(tensor_normalise_grad);
/* running += momentum (of the batch - running), in double, for mean and variance; the variance of the batch counts as
 * unbiased, times n / (n - 1), n the rows of x (where there is more than one). */
FLEXLAB_API tensor_status tensor_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                                    const tensor *variance, const tensor *x, double momentum)
    FLEXLAB_SYMBOL(tensor_running_statistics);

/* --- normalisation of rows: over the last dimension --------------------------------------------------------------- */

/* Layer normalisation (Ba et al. 2016): y = gamma (x - mean) / sqrt(variance + epsilon) + beta, mean and population
 * variance those of the n elements of a row, the last dimension; gamma and beta are [n], beta NULL: none. epsilon is a
 * finite number above 0. y is another tensor than the others. Shared-exponent formats: exact sums of mantissas, one
 * square root a row in double, coefficients of 31 bits with exponents of their own, one exact sum and one rounding an
 * element. Float formats: in double, rounded to binary32 and then to the format. The same bits everywhere. */
FLEXLAB_API tensor_status tensor_layernorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           double epsilon) FLEXLAB_SYMBOL(tensor_layernorm);
/* Its gradients, from x as stored: nothing else is kept from forward to backward. dgamma and dbeta are sums over all
 * rows, exact in shared-exponent formats; dbeta NULL: not wanted. What is written is three tensors, none of them an
 * input. */
FLEXLAB_API tensor_status tensor_layernorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, double epsilon)
    FLEXLAB_SYMBOL(tensor_layernorm_grad);
/* Normalisation by the root mean square (Zhang and Sennrich 2019): y = gamma x / sqrt(mean of x^2 + epsilon), and its
 * gradients; otherwise as above. */
FLEXLAB_API tensor_status tensor_rmsnorm(tensor *y, const tensor *x, const tensor *gamma, double epsilon)
    FLEXLAB_SYMBOL(tensor_rmsnorm);
FLEXLAB_API tensor_status tensor_rmsnorm_grad(tensor *dx, tensor *dgamma, const tensor *dy, const tensor *x,
                                              const tensor *gamma, double epsilon) FLEXLAB_SYMBOL(tensor_rmsnorm_grad);

/* --- normalisation of images: across channels, and in groups of them ---------------------------------------------- */

/* Local response normalisation (Krizhevsky et al. 2012, section 3.3): y = x / (k + alpha / size * S)^beta, S the sum of
 * the squares of the channels (the last dimension) c - size / 2 ... c + (size - 1) / 2, as far as there are any. The
 * paper's alpha is the alpha / size of here, which PyTorch and Caffe have too. size 1 to 2^20, alpha finite and 0 or
 * more, beta above 0 and at most 4, k finite and above 0. y is not x. Shared-exponent formats: S exact; all formats:
 * the power and the quotient in double by a fixed sequence (beta 0.75 and 0.5 by square roots, others by own exp and
 * log), rounded once. */
FLEXLAB_API tensor_status tensor_lrn(tensor *y, const tensor *x, int size, float alpha, float beta, float k)
    FLEXLAB_SYMBOL(tensor_lrn);
/* Its gradient dx from dy and the forward input x, in double, rounded once. */
FLEXLAB_API tensor_status tensor_lrn_grad(tensor *dx, const tensor *dy, const tensor *x, int size, float alpha,
                                          float beta, float k) FLEXLAB_SYMBOL(tensor_lrn_grad);
/* Group normalisation (Wu and He 2018): as tensor_layernorm, over the channels of a group and all pixels of an image
 * together. x [N,...,C], gamma and beta (NULL: none) [C]; groups divides C: 1 normalises whole images, C is instance
 * normalisation. Fewer than 2^31 elements of a group and image. Exactness is that of tensor_layernorm; the elements of
 * a group count pixel by pixel. */
FLEXLAB_API tensor_status tensor_groupnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           int groups, double epsilon) FLEXLAB_SYMBOL(tensor_groupnorm);
FLEXLAB_API tensor_status tensor_groupnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, int groups, double epsilon)
    FLEXLAB_SYMBOL(tensor_groupnorm_grad);

#ifdef __cplusplus
}
#endif
#endif
