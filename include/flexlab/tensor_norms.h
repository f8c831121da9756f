/* tensor_norms.h - normalisation by batch, row, neighbouring channels and group. A part of tensor.h, whose conventions
 * hold. */
#ifndef FLEXLAB_TENSOR_NORMS_H
#define FLEXLAB_TENSOR_NORMS_H

#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- batch normalisation ------------------------------------------------------------------------------------------ */

/* Batch normalisation (Ioffe and Szegedy 2015) over all but the last dimension: y = gamma (x - mean) / sqrt(variance +
 * epsilon) + beta (+ residual), then max(0, .) if relu. x is [N,...,C]; gamma and beta are [C] of its format; mean and
 * variance are f64 [C]: those of the batch (tensor_moments in blocks_norms.h) or others, such as running ones. residual
 * (NULL: none) has x's shape and is added before relu: one pass, one rounding, as a residual block ends. epsilon is a
 * finite number above 0. y is another tensor than the others. Shared-exponent formats: coefficients of 31 bits with
 * exponents of their own, one exact sum and one rounding an element; numbers of a channel that are not finite are
 * TENSOR_E_ARGUMENT, nothing written, at once on the host and from the next wait elsewhere. Float formats: coefficients
 * in binary32, fused multiply-adds. */
FLEXLAB_API tensor_status tensor_batchnorm(tensor *y, const tensor *x, const tensor *residual, const tensor *gamma,
                                           const tensor *beta, const tensor *mean, const tensor *variance,
                                           double epsilon, bool relu) FLEXLAB_SYMBOL(tensor_batchnorm);

/* --- normalisation of rows: over the last dimension --------------------------------------------------------------- */

/* Layer normalisation (Ba et al. 2016): y = gamma (x - mean) / sqrt(variance + epsilon) + beta, mean and population
 * variance those of the n elements of a row, the last dimension; gamma and beta are [n], beta NULL: none. epsilon is a
 * finite number above 0. y is another tensor than the others. Shared-exponent formats: exact sums of mantissas, one
 * square root a row in double, coefficients of 31 bits with exponents of their own, one exact sum and one rounding an
 * element. Float formats: in double, rounded to binary32 and then to the format. The same bits everywhere. */
FLEXLAB_API tensor_status tensor_layernorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           double epsilon) FLEXLAB_SYMBOL(tensor_layernorm);
/* Normalisation by the root mean square (Zhang and Sennrich 2019): y = gamma x / sqrt(mean of x^2 + epsilon);
 * otherwise as above. */
FLEXLAB_API tensor_status tensor_rmsnorm(tensor *y, const tensor *x, const tensor *gamma, double epsilon)
    FLEXLAB_SYMBOL(tensor_rmsnorm);

/* --- normalisation of images: across channels, and in groups of them ---------------------------------------------- */

/* Local response normalisation (Krizhevsky et al. 2012, section 3.3): y = x / (k + alpha / size * S)^beta, S the sum of
 * the squares of the channels (the last dimension) c - size / 2 ... c + (size - 1) / 2, as far as there are any. The
 * paper's alpha is the alpha / size of here, which PyTorch and Caffe have too. size 1 to 2^20, alpha finite and 0 or
 * more, beta above 0 and at most 4, k finite and above 0. y is not x. Shared-exponent formats: S exact; all formats:
 * the power and the quotient in double by a fixed sequence (beta 0.75 and 0.5 by square roots, others by own exp and
 * log), rounded once. */
FLEXLAB_API tensor_status tensor_lrn(tensor *y, const tensor *x, int size, float alpha, float beta, float k)
    FLEXLAB_SYMBOL(tensor_lrn);
/* Group normalisation (Wu and He 2018): as tensor_layernorm, over the channels of a group and all pixels of an image
 * together. x [N,...,C], gamma and beta (NULL: none) [C]; groups divides C: 1 normalises whole images, C is instance
 * normalisation. Fewer than 2^31 elements of a group and image. Exactness is that of tensor_layernorm; the elements of
 * a group count pixel by pixel. */
FLEXLAB_API tensor_status tensor_groupnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           int groups, double epsilon) FLEXLAB_SYMBOL(tensor_groupnorm);

#ifdef __cplusplus
}
#endif
#endif
