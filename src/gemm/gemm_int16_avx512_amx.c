/* gemm_int16_avx512_amx.c - exact sums of int16 products on matrix tiles. */
#define PLANES 2
#define TILES_KERNELS fl_gemm_int16_avx512_amx
#define TILES_PACKING fl_gemm_int16_packing_avx512_amx
#define TILES_MATRIX fl_gemm_int16_matrix_avx512_amx
#include "gemm/gemm_int_amx.inc"
