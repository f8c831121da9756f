/* gemm_int8.h - the kernels for factors of at most 8 bits, stored as int16 and packed as bytes, by instruction set.
 * Those that have none compute such products as those of 16 bits: without an instruction that adds products of bytes
 * exactly, as VPDPBUSD, bytes take as many instructions. */
#ifndef FL_GEMM_INT8_H
#define FL_GEMM_INT8_H

#include "gemm/gemm.h"

extern const struct gemm_kernels fl_gemm_int8_avx512, fl_gemm_int8_avx512_amx;
extern const struct gemm_packing fl_gemm_int8_packing_avx512, fl_gemm_int8_packing_avx512_amx;
extern const struct gemm_matrix_kernels fl_gemm_int8_matrix_avx512_amx;

#endif
