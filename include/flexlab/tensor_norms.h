/* tensor_norms.h - batch, layer, RMS, local response and group normalisation. Part of tensor.h, whose conventions
 * hold. */
#ifndef FLEXLAB_TENSOR_NORMS_H
#define FLEXLAB_TENSOR_NORMS_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- batch normalisation ------------------------------------------------------------------------------------------ */

/* Batch normalisation (Ioffe and Szegedy 2015) over all but the last dimension: y = gamma (x - mean) / sqrt(variance +
 * epsilon) + beta (+ residual), then max(0, .) if relu. x is [N,...,C]; gamma and beta are [C] in its format; mean and
 * variance are f64 [C], either those of the batch (tensor_moments in blocks_norms.h) or others, such as running ones.
 * residual (NULL: none) has x's shape and is added before relu, in one pass with one rounding, as at the end of a
 * residual block. epsilon is a finite number above 0. y is another tensor than the others. Shared-exponent formats:
 * coefficients of 31 bits with exponents of their own, one exact sum and one rounding for each element; a mean or
 * variance of a channel that is not finite is TENSOR_E_ARGUMENT, nothing written, at once on the host and from the next
 * wait on another device. Float formats: coefficients in binary32, fused multiply-adds. */
FLEXLAB_API tensor_status tensor_batchnorm(tensor *y, const tensor *x, const tensor *residual, const tensor *gamma,
                                           const tensor *beta, const tensor *mean, const tensor *variance,
                                           double epsilon, bool relu);

/* --- normalisation of rows: over the last dimension --------------------------------------------------------------- */

/* Layer normalisation (Ba et al. 2016): y = gamma (x - mean) / sqrt(variance + epsilon) + beta, where mean and
 * population variance are those of the n elements of a row, the last dimension; gamma and beta are [n] (beta NULL:
 * none). epsilon is a finite number above 0. y is another tensor than the others. Shared-exponent formats: exact sums
 * of mantissas, one square root for each row in double, coefficients of 31 bits with exponents of their own, one exact
 * sum and one rounding for each element. Float formats: in double, rounded to binary32 and then to the format. The same
 * bits on every backend. */
FLEXLAB_API tensor_status tensor_layernorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           double epsilon);
/* RMS normalisation (Zhang and Sennrich 2019): y = gamma x / sqrt(mean of x^2 + epsilon); otherwise as
 * tensor_layernorm. */
FLEXLAB_API tensor_status tensor_rmsnorm(tensor *y, const tensor *x, const tensor *gamma, double epsilon);

/* --- normalisation of images: across channels, and in groups of them ---------------------------------------------- */

/* Local response normalisation (Krizhevsky et al. 2012, section 3.3): y = x / (k + alpha / size * S)^beta, where S is
 * the sum of the squares of the existing channels (last dimension) c - size / 2 ... c + (size - 1) / 2. The paper's
 * alpha is alpha / size here, as in PyTorch and Caffe. size is 1 to 2^20, alpha finite and 0 or more, beta above 0 and
 * at most 4, k finite and above 0. y is another tensor than x. Shared-exponent formats: S is exact. All formats: the
 * power and the quotient in double by a fixed sequence (beta 0.75 and 0.5 by square roots, others by the library's exp
 * and log), rounded once. */
FLEXLAB_API tensor_status tensor_lrn(tensor *y, const tensor *x, int size, float alpha, float beta, float k);
/* Group normalisation (Wu and He 2018): as tensor_layernorm, over the channels of a group and all pixels of an image
 * together. x [N,...,C], gamma and beta (NULL: none) [C]; groups divides C: 1 normalises whole images, C is instance
 * normalisation. A group of an image has fewer than 2^31 elements. Exactness is that of tensor_layernorm; the elements
 * of a group are taken pixel by pixel. */
FLEXLAB_API tensor_status tensor_groupnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           int groups, double epsilon);

#ifdef __cplusplus
}
#endif
#endif
