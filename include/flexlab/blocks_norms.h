/* blocks_norms.h - moments, running statistics and gradients of normalisations. Part of tensor_blocks.h: building
 * blocks of training, which may change between versions. The conventions of tensor.h hold. */
#ifndef FLEXLAB_BLOCKS_NORMS_H
#define FLEXLAB_BLOCKS_NORMS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- batch normalisation: tensor_batchnorm ------------------------------------------------------------------------ */

/* Mean and population variance of each channel of x [N,...,C], f64 [C] each. Shared-exponent formats: exact sums. Float
 * formats: binary32 sums of 512 rows, added in double. */
FLEXLAB_API tensor_status tensor_moments(tensor *mean, tensor *variance, const tensor *x);
/* Gradients of tensor_batchnorm, for mean and variance of x itself. y is the forward result if relu was set (its zeros
 * mask dy), NULL otherwise. The gradient of a residual is that of the sum: dy where y is above zero. dx, dgamma and
 * dbeta are three tensors, none of them an input. */
FLEXLAB_API tensor_status tensor_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *y, const tensor *gamma,
                                                const tensor *mean, const tensor *variance, double epsilon);
/* Running statistics: running += momentum (batch - running), in double, for mean and variance; momentum is 0 to 1. The
 * variance of the batch counts as unbiased, times n / (n - 1), where n is the number of rows of x; unchanged if n is
 * 1. */
FLEXLAB_API tensor_status tensor_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                                    const tensor *variance, const tensor *x, double momentum);

/* --- other normalisations ----------------------------------------------------------------------------------------- */

/* Gradients of tensor_layernorm, computed from x as stored; the forward pass leaves nothing else. dgamma and dbeta are
 * sums over all rows, exact in shared-exponent formats; dbeta NULL: not wanted. The outputs are different tensors, none
 * of them an input. */
FLEXLAB_API tensor_status tensor_layernorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, double epsilon);
/* The gradients of tensor_rmsnorm and tensor_groupnorm, likewise. */
FLEXLAB_API tensor_status tensor_rmsnorm_grad(tensor *dx, tensor *dgamma, const tensor *dy, const tensor *x,
                                              const tensor *gamma, double epsilon);
FLEXLAB_API tensor_status tensor_groupnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, int groups, double epsilon);
/* The gradient of tensor_lrn, dx from dy and the forward input x, in double, rounded once. */
FLEXLAB_API tensor_status tensor_lrn_grad(tensor *dx, const tensor *dy, const tensor *x, int size, float alpha,
                                          float beta, float k);

#ifdef __cplusplus
}
#endif
#endif
