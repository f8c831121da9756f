/* mixed.h - matmul and convolution whose operands and result are of different formats (docs/semantics.md). */
#ifndef FL_MIXED_H
#define FL_MIXED_H

#include "core/table/format.h"

static inline bool fl_is_mixed(const struct fl_args *args) {
    return fl_is_product(args->op) && args->p.product.formats.in[0];
}

/* Of operand 0 or 1. */
static inline const struct fl_format *fl_operand_format(const struct fl_args *args, int i) {
    return fl_is_mixed(args) && i < 2 ? args->p.product.formats.in[i] : args->format;
}

static inline const struct fl_format *fl_bias_format(const struct fl_args *args) {
    return fl_is_mixed(args) ? args->p.product.formats.bias : args->format;
}

static inline const struct fl_format *fl_residual_format(const struct fl_args *args) {
    return fl_is_mixed(args) ? args->p.product.formats.residual : args->format;
}

/* Whether sums of products are exact integers, otherwise chains of binary32: operands are of one kind. */
static inline bool fl_sums_exactly(const struct fl_args *args) {
    return fl_operand_format(args, 0)->arithmetic == FL_ARITHMETIC_SHARED;
}

/* The format whose rows compute the products: that of both operands, or of kernels that both have; binary32 for
 * different float formats. NULL: only the reference kernel does. */
const struct fl_format *fl_product_format(const struct fl_args *args);

/* Notes in args->p.product.formats what the call has beside the format of its result; nothing where the kernels of that
 * format serve it as it is. Factors are both of a shared exponent or both floats; NULL for an addend that is not there.
 */
void fl_note_formats(const tensor *y, const tensor *const factors[2], const tensor *bias, const tensor *residual,
                     struct fl_args *args);

/* Stores results first ... first + n - 1 of a mixed call as the reference does: value, exact or rounded to odd (of
 * float operands binary32), rounded once; near, the same to nearest, is where the maximum comes from. */
void fl_encode_mixed(const struct fl_args *args, int64_t first, int64_t n, const double *value, const double *near,
                     struct fl_stats *stats);

/* The kernel of a mixed call under the cap in force; where it `runs`, and not only its workspace is asked for,
 * FLEXLAB_VERBOSE=1 names it the first time. args->format must be set. */
tensor_status fl_dispatch_mixed(const struct fl_args *args, bool runs, struct fl_choice *choice);

#endif
