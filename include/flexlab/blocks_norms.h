/* blocks_norms.h - moments, running statistics and gradients of normalisations. A part of tensor_blocks.h: building
 * blocks of training, which may change between versions. The conventions of tensor.h hold. */
#ifndef FLEXLAB_BLOCKS_NORMS_H
#define FLEXLAB_BLOCKS_NORMS_H

#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- batch normalisation: tensor_batchnorm ------------------------------------------------------------------------ */

/* Mean and population variance of each channel of x [N,...,C], f64 [C] each: exact sums in shared-exponent formats;
 * binary32 sums of 512 rows, added in double, in float formats. */
FLEXLAB_API tensor_status tensor_moments(tensor *mean, tensor *variance, const tensor *x)
    FLEXLAB_SYMBOL(tensor_moments);
/* Gradients of tensor_batchnorm where mean and variance are those of x. y is the forward result if relu was set (its
 * zeros mask dy), NULL otherwise. The gradient of a residual is that of the sum: dy where y is above zero. dx, dgamma
 * and dbeta are three tensors, none of them an input. */
FLEXLAB_API tensor_status tensor_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *y, const tensor *gamma,
                                                const tensor *mean, const tensor *variance, double epsilon)
    FLEXLAB_SYMBOL(tensor_batchnorm_grad);
/* running += momentum (of the batch - running), in double, for mean and variance; momentum is 0 to 1. The variance of
 * the batch counts as unbiased, times n / (n - 1), n the rows of x (where there is more than one). */
FLEXLAB_API tensor_status tensor_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                                    const tensor *variance, const tensor *x, double momentum)
    FLEXLAB_SYMBOL(tensor_running_statistics);

/* --- other normalisations ----------------------------------------------------------------------------------------- */

/* Gradients of tensor_layernorm, from x as stored: nothing else is kept from forward to backward. dgamma and dbeta are
 * sums over all rows, exact in shared-exponent formats; dbeta NULL: not wanted. What is written is three tensors, none
 * of them an input. */
FLEXLAB_API tensor_status tensor_layernorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, double epsilon)
    FLEXLAB_SYMBOL(tensor_layernorm_grad);
/* Likewise of tensor_rmsnorm and tensor_groupnorm. */
FLEXLAB_API tensor_status tensor_rmsnorm_grad(tensor *dx, tensor *dgamma, const tensor *dy, const tensor *x,
                                              const tensor *gamma, double epsilon) FLEXLAB_SYMBOL(tensor_rmsnorm_grad);
FLEXLAB_API tensor_status tensor_groupnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, int groups, double epsilon)
    FLEXLAB_SYMBOL(tensor_groupnorm_grad);
/* The gradient of tensor_lrn, dx from dy and the forward input x, in double, rounded once. */
FLEXLAB_API tensor_status tensor_lrn_grad(tensor *dx, const tensor *dy, const tensor *x, int size, float alpha,
                                          float beta, float k) FLEXLAB_SYMBOL(tensor_lrn_grad);

#ifdef __cplusplus
}
#endif
#endif
