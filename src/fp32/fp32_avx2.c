/* fp32_avx2.c - the kernels of fp32 compiled for AVX2, FMA and F16C. */
#include "fp32/fp32_codec.h"
#define FL_ROW fl_fp32_avx2
#include "float/float_kernels.inc"
