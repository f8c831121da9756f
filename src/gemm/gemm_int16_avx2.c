/* gemm_int16_avx2.c - micro-kernels of exact sums of int16 products, compiled for AVX2. */
#define FL_ISA avx2
#include "gemm/gemm_int16_kernels.inc"
