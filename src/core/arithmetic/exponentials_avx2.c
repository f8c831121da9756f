/* exponentials_avx2.c - exp of many numbers, compiled for AVX2 and FMA. */
#define FL_ISA avx2
#include "core/arithmetic/exponentials.inc"
