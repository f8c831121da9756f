/* gemm_int16.h - the kernels for 16-bit elements, by instruction set. */
#ifndef FL_GEMM_INT16_H
#define FL_GEMM_INT16_H

#include "gemm/gemm.h"

/* Exact sums of int16 products. */
extern const struct gemm_kernels fl_gemm_int16_portable, fl_gemm_int16_avx2, fl_gemm_int16_avx2_vnni,
    fl_gemm_int16_avx512bw, fl_gemm_int16_avx512, fl_gemm_int16_two_ports_avx512, fl_gemm_int16_avx512_amx;
extern const struct gemm_matrix_kernels fl_gemm_int16_matrix_avx512_amx;

/* int16 as k-pairs, with the bounds of exact sums; of any 16-bit elements, without those (bf16). AVX-512 has no other
 * instructions for it in its later rows. */
extern const struct gemm_packing fl_gemm_int16_packing_portable, fl_gemm_int16_packing_avx2,
    fl_gemm_int16_packing_avx512bw, fl_gemm_int16_packing_avx512_amx;
extern const struct gemm_packing fl_gemm_pairs_packing_avx512bw;

extern const struct gemm_depthwise_kernels fl_gemm_int16_depthwise_portable, fl_gemm_int16_depthwise_avx2,
    fl_gemm_int16_depthwise_avx512bw;

#endif
