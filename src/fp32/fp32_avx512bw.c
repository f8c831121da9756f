/* fp32_avx512bw.c - the kernels of fp32 compiled for AVX-512 F, BW, VL, DQ. */
#include "fp32/fp32_codec.h"
#define FL_KIND fp32
#define FL_ISA avx512bw
#include "float/float_kernels.inc"
