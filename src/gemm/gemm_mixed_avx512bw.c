/* gemm_mixed_avx512bw.c - stores sums in any format, compiled for AVX-512. */
#define FL_ISA avx512bw
#define MIXED_BACKEND FL_AVX512BW
#include "gemm/gemm_mixed.inc"
