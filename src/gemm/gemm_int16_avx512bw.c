/* gemm_int16_avx512bw.c - micro-kernels of exact sums of int16 products, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#include "gemm/gemm_int16_kernels.inc"
