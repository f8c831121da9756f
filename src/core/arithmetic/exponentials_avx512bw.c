/* exponentials_avx512bw.c - exp of many numbers, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#include "core/arithmetic/exponentials.inc"
