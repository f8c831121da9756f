/* minifloat_avx512bw.c - conversions and kernels of floats made from their parameters, in AVX-512. */
#define FL_ISA avx512bw
#define MINIFLOAT_BACKEND FL_AVX512BW
#include "minifloat/minifloat_convert.inc"
