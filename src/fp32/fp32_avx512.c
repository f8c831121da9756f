/* fp32_avx512.c - the kernels of fp32 compiled for AVX-512. */
#include "fp32/fp32_codec.h"
#define FL_ROW fl_fp32_avx512
#include "float/float_kernels.inc"
