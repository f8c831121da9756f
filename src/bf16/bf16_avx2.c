/* bf16_avx2.c - the kernels of bf16 compiled for AVX2, FMA and F16C. */
#include "bf16/bf16_codec.h"
#define FL_ROW fl_bf16_avx2
#include "float/float_kernels.inc"
