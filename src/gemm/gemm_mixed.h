/* gemm_mixed.h - matmul and convolution whose result, or an operand, is of another format than the row that multiplies
 * (core/table/mixed.h): the products are those of the row, sums are stored by stores that know any format. */
#ifndef FL_GEMM_MIXED_H
#define FL_GEMM_MIXED_H

#include "core/table/mixed.h"
#include "gemm/gemm.h"

/* From exact sums and from binary32 sums to any format; element_bytes is set for each call. */
extern const struct gemm_stores fl_gemm_mixed_exact_portable, fl_gemm_mixed_exact_avx2, fl_gemm_mixed_exact_avx512bw;
extern const struct gemm_stores fl_gemm_mixed_float_portable, fl_gemm_mixed_float_avx2, fl_gemm_mixed_float_avx512bw;

/* From matrix tiles too. */
struct gemm_stores fl_gemm_mixed_exact_avx512_amx(void);

/* Like fl_gemm. Operands of different float formats become binary32 before they are multiplied. */
tensor_status fl_gemm_mixed(const struct gemm_family *family, const struct gemm_stores *stores,
                            const struct fl_args *args);
size_t fl_gemm_mixed_need(const struct gemm_family *family, const struct gemm_stores *stores,
                          const struct fl_args *args);

#endif
