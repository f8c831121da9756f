/* gemm_mixed_avx2.c - stores sums in any format, compiled for AVX2. */
#define FL_ISA avx2
#define MIXED_BACKEND FL_AVX2
#include "gemm/gemm_mixed.inc"
