/* gemm_packing_avx2.c - packing of int16 and depthwise kernels, compiled for AVX2. */
#define FL_ISA avx2
#include "gemm/gemm_int16_packing.inc"
