/* products.h - code that matmuls and convolutions share as operations. */
#ifndef FL_PRODUCTS_H
#define FL_PRODUCTS_H

#include "core/ops/operation.h"
#include "flexlab/tensor_blocks.h"

/* The operands of a product: factor i, and bias and residual for an output of that shape, whose columns are `columns`.
 */
#define FL_FACTOR(i) .class = FL_CLASS_FACTOR, .at = FL_AT(in[i])
#define FL_JOINED(columns, output)                                                                                     \
    {"bias", columns, FL_OPTIONAL, FL_CLASS_ANY, FL_AT(p.product.epilogue.bias)}, {                                    \
        "residual", output, FL_OPTIONAL | FL_IN_PLACE, FL_CLASS_ANY, FL_AT(p.product.epilogue.residual)                \
    }
#define FL_RELU                                                                                                        \
    { "relu", FL_BOOL, .at = FL_AT(p.product.epilogue.relu) }

/* Submits a product, with the formats of its operands if they differ. */
tensor_status fl_run_product(const struct fl_invocation *call, struct fl_args *args);

/* batched.c: of the rows that have the matmul of one matrix. */
struct fl_any_kernels fl_batched_any(const struct fl_format *format, enum fl_op op, enum fl_backend backend);

#endif
