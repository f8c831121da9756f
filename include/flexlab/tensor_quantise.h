/* tensor_quantise.h - what values become in narrow formats: floats in, floats out, without a tensor. Part of tensor.h,
 * whose conventions hold. */
#ifndef FLEXLAB_TENSOR_QUANTISE_H
#define FLEXLAB_TENSOR_QUANTISE_H

#include "flexlab/api.h"
#include "flexlab/status.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What quantising did to the values. */
typedef struct tensor_quantised {
    int64_t saturated; /* values that their rounding left beyond the largest of the format, which they became, or Inf
                          or NaN in an element without saturation; Inf that became the largest */
    int64_t flushed;   /* values that were not 0 and became 0; with the option hadamard, transformed ones */
    int64_t nonfinite; /* NaN and Inf among the results */
    int64_t blocks;    /* blocks, each with its scale; 0 for formats without blocks */
    double bits;       /* bits of an element as stored, with its share of the scale of its block: 8.25 of mx:int8 */
} tensor_quantised;

/* y = the values that the floats x represent in a format; y == x is allowed. x has `ndim` (1 to TENSOR_MAX_DIMS)
 * dimensions of the sizes `shape`; blocks lie along dimension `dim`, 0 ... ndim - 1, the one that a product would sum
 * over, and the last block of a row has what is left. format:
 *  - a block format: mx:ELEMENT[/BLOCK][:OPTION...], nvfp4[:OPTION...], hbfp:intN[/BLOCK][:OPTION...],
 *    channel:ELEMENT[:OPTION...], whose block is a whole line along `dim`
 *    (docs/block-formats.md). A block with a NaN or an Inf becomes NaN as a whole, as the scale NaN of the OCP MX
 *    specification has it. With the option hadamard values are transformed, quantised and transformed back, which
 *    rounds each result once to binary32; without it results are exact, but those beyond binary32 become Inf and those
 *    of nvfp4, products of three factors, are rounded once. With the option square a block has the same extent in the
 *    rows that come from the other dimensions, in their order.
 *  - a format of tensors (tensor_format_find), eXmY, eXmYfn and eXmYsat among them: the values that tensor_load_f32
 *    gives a tensor. One with a shared exponent takes that of the exact maximum, and NaN and Inf are refused. An eXmY
 *    that has no code for NaN has 0 in its place (docs/semantics.md).
 *  - intN of at most 16 bits: each value by itself, rounded to nearest even, without a scale (steps of 2^(2-N),
 *    +-(2 - 2^(2-N)) at most). NaN is refused.
 * key: of stochastic rounding (option stochastic) and of the random signs of hadamard: equal keys, equal results.
 * counts may be NULL. TENSOR_E_ARGUMENT names the position of what is wrong in `format`, or the size, dimension or
 * value that is refused; y is as it was then. */
FLEXLAB_API tensor_status tensor_quantise_f32(float *y, const float *x, int ndim, const int64_t *shape, int dim,
                                              const char *format, uint64_t key, tensor_quantised *counts);

#ifdef __cplusplus
}
#endif
#endif
