/* gemm_int16_avx512.c - micro-kernels of exact sums of int16 products, compiled for AVX-512 with VNNI. */
#define FL_ISA avx512
#include "gemm/gemm_int16_kernels.inc"
