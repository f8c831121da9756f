/* gemm_float_avx2.c - micro-kernels of binary32 sums, compiled for AVX2. */
#define FL_ISA avx2
#include "gemm/gemm_float_kernels.inc"
