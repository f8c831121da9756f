/* fp16_avx2.c - the kernels of fp16 compiled for AVX2, FMA and F16C. */
#include "fp16/fp16_codec.h"
#define FL_ROW fl_fp16_avx2
#include "float/float_kernels.inc"
