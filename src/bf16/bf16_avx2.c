/* bf16_avx2.c - the kernels of bf16 compiled for AVX2, FMA and F16C. */
#include "bf16/bf16_codec.h"
#define FL_KIND bf16
#define FL_ISA avx2
#include "float/float_kernels.inc"
