/* flex_avx2.c - the kernels of the shared-exponent formats, compiled for AVX2. */
#define FLEX_ISA avx2
#include "flex/flex_kernels.inc"
