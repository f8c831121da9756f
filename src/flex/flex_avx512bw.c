/* flex_avx512bw.c - the kernels of the shared-exponent formats, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#include "flex/flex_kernels.inc"
