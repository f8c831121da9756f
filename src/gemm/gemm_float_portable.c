/* gemm_float_portable.c - micro-kernels of binary32 sums, in plain C. */
#define FL_ISA portable
#include "gemm/gemm_float_kernels.inc"
