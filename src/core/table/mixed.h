/* mixed.h - matmul and convolution whose operands and result are of different formats (docs/semantics.md). */
#ifndef FL_MIXED_H
#define FL_MIXED_H

#include "core/table/format.h"

static inline bool fl_is_mixed(const struct fl_args *args) {
    return fl_is_product(args->op) && args->p.product.formats.in[0];
}

/* The format of operand 0 or 1. */
static inline const struct fl_format *fl_operand_format(const struct fl_args *args, int i) {
    return fl_is_mixed(args) && i < 2 ? args->p.product.formats.in[i] : args->format;
}

static inline const struct fl_format *fl_bias_format(const struct fl_args *args) {
    return fl_is_mixed(args) ? args->p.product.formats.bias : args->format;
}

static inline const struct fl_format *fl_residual_format(const struct fl_args *args) {
    return fl_is_mixed(args) ? args->p.product.formats.residual : args->format;
}

/* Whether sums of products are exact integers; otherwise they are chains of binary32. Both operands are of one kind. */
static inline bool fl_sums_exactly(const struct fl_args *args) {
    return fl_operand_format(args, 0)->arithmetic == FL_ARITHMETIC_SHARED;
}

/* Whether the kernels of one serve the other: flex16+5 and dfp16 differ only in how exponents are chosen. */
bool fl_same_kernels(const struct fl_format *f, const struct fl_format *g);

/* The format whose kernels compute the products: that of both operands, or one with the same kernels as both; binary32
 * for different float formats, and for floats made from their parameters. NULL: only the reference kernel computes
 * them. */
const struct fl_format *fl_product_format(const struct fl_args *args);

/* Stores results first ... first + n - 1 of a mixed task as the reference does. `value` is exact or rounded to odd
 * (binary32 if the operands are floats) and is rounded once; `near`, the same to nearest, gives the maximum. */
void fl_encode_mixed(const struct fl_args *args, int64_t first, int64_t n, const double *value, const double *near,
                     struct fl_stats *stats);
/* The same of results that are no binary32, whatever the operands are. */
void fl_encode_exact(const struct fl_args *args, int64_t first, int64_t n, const double *value, const double *near,
                     struct fl_stats *stats);

/* The kernel of a mixed task under the cap in force. runs: it is about to run, and FLEXLAB_VERBOSE=1 names it the first
 * time; otherwise only its workspace is wanted. args->format must be set. */
tensor_status fl_dispatch_mixed(const struct fl_args *args, bool runs, struct fl_choice *choice);
/* Whether a class accumulate=GPU computes the task: a product of floats. args->format must be set. */
bool fl_task_accumulates(const struct fl_args *args, tensor_class exactness);
/* The kernel of such a task, mixed or not. TENSOR_E_UNSUPPORTED names the class and operands that the GPU does not
 * multiply. */
tensor_status fl_dispatch_accumulating(const struct fl_args *args, tensor_class exactness, bool runs,
                                       struct fl_choice *choice);
/* FLEXLAB_VERBOSE=1: says on stderr which set runs a task in such a class or in one operands=A,B, once for an
 * operation, its first operand's format and a class; the classes of a process are few. operands: their kind, or NULL.
 */
void fl_tell_class(const struct fl_args *args, tensor_class exactness, enum fl_backend chosen, const char *operands);

#endif
