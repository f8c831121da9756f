/* gemm_float_avx512bw.c - micro-kernels of binary32 sums, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#include "gemm/gemm_float_kernels.inc"
