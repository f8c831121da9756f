/* gemm_packing_avx512bw.c - packing of int16 and depthwise kernels, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#include "gemm/gemm_int16_packing.inc"
