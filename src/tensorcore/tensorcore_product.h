/* tensorcore_product.h - matmuls and convolutions of class accumulate (core/table/accumulator.h). */
#ifndef FL_TENSORCORE_PRODUCT_H
#define FL_TENSORCORE_PRODUCT_H

#include "gemm/gemm.h"
#include "tensorcore/tensorcore.h"

/* All products of float operands, of one format or of several, in the class of args->p.product.exactness; the sums are
 * stored by `any`, with the epilogue. TENSOR_E_MEMORY without workspace; no other failure. */
tensor_status fl_tensorcore_product(const struct fl_tc_kernels *kernels, const struct gemm_stores *any,
                                    const struct fl_args *args);
size_t fl_tensorcore_need(const struct fl_args *args);

#endif
