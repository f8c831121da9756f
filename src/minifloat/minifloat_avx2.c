/* minifloat_avx2.c - conversions and kernels of floats made from their parameters, in AVX2. */
#define FL_ISA avx2
#define MINIFLOAT_BACKEND FL_AVX2
#include "minifloat/minifloat_convert.inc"
