/* fp32_avx2.c - the kernels of fp32 compiled for AVX2, FMA and F16C. */
#include "fp32/fp32_codec.h"
#define FL_KIND fp32
#define FL_ISA avx2
#include "float/float_kernels.inc"
