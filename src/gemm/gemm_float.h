/* gemm_float.h - micro-kernels of binary32 sums, for every format that becomes binary32 as it is packed, and those of
 * bf16 by the dot instruction; by instruction set. */
#ifndef FL_GEMM_FLOAT_H
#define FL_GEMM_FLOAT_H

#include "gemm/gemm.h"

extern const struct gemm_kernels fl_gemm_float_portable, fl_gemm_float_avx2, fl_gemm_float_avx512bw;
/* bf16 on matrix tiles: class fast. */
extern const struct gemm_kernels fl_gemm_bf16_avx512_amx_fast;
extern const struct gemm_packing fl_gemm_bf16_packing_avx512_amx_fast;
extern const struct gemm_matrix_kernels fl_gemm_bf16_matrix_avx512_amx_fast;
extern const struct gemm_kernels fl_gemm_dot_avx512_fast; /* k-pairs of bf16: class fast */

/* Packs a hole (struct gemm_packing), of binary32, and of pairs of bf16 whose sums have no zeros of sign. */
void fl_gemm_float_hole(gemm_packed *hole, const gemm_packed *rows, int64_t width, int64_t steps);
void fl_gemm_pairs_hole(gemm_packed *hole, const gemm_packed *rows, int64_t width, int64_t steps);

#endif
