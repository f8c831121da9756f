/* gemm_int16_avx2_vnni.c - micro-kernels of exact sums of int16 products, compiled for AVX2 with AVX-VNNI. */
#define FL_ISA avx2_vnni
#include "gemm/gemm_int16_kernels.inc"
