/* flex_avx2.c - the kernels of the shared-exponent formats, compiled for AVX2. */
#define FL_ISA avx2
#include "flex/flex_kernels.inc"
