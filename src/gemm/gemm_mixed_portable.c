/* gemm_mixed_portable.c - sums to elements of any format, plain C. */
#define FL_ISA portable
#define MIXED_BACKEND FL_PORTABLE
#include "gemm/gemm_mixed.inc"
