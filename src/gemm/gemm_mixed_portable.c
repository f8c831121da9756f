/* gemm_mixed_portable.c - stores sums in any format, in plain C. */
#define FL_ISA portable
#define MIXED_BACKEND FL_PORTABLE
#include "gemm/gemm_mixed.inc"
