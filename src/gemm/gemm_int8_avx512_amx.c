/* gemm_int8_avx512_amx.c - exact sums of products of factors of at most 8 bits on matrix tiles. */
#define PLANES 1
#define TILES_KERNELS fl_gemm_int8_avx512_amx
#define TILES_PACKING fl_gemm_int8_packing_avx512_amx
#define TILES_MATRIX fl_gemm_int8_matrix_avx512_amx
#include "gemm/gemm_int_amx.inc"
