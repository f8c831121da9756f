/* fp16_avx2.c - the kernels of fp16 compiled for AVX2, FMA and F16C. */
#include "fp16/fp16_codec.h"
#define FL_KIND fp16
#define FL_ISA avx2
#include "float/float_kernels.inc"
