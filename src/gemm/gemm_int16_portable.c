/* gemm_int16_portable.c - micro-kernels of exact sums of int16 products, in plain C. */
#define FL_ISA portable
#include "gemm/gemm_int16_kernels.inc"
