/* gemm_packing_portable.c - packing of int16 and depthwise kernels, in plain C. */
#define FL_ISA portable
#include "gemm/gemm_int16_packing.inc"
