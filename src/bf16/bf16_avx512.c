/* bf16_avx512.c - the kernels of bf16 compiled for AVX-512. */
#include "bf16/bf16_codec.h"
#define FL_ROW fl_bf16_avx512
#include "float/float_kernels.inc"
