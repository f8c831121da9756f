/* fp16_avx512.c - the kernels of fp16 compiled for AVX-512. */
#include "fp16/fp16_codec.h"
#define FL_ROW fl_fp16_avx512
#include "float/float_kernels.inc"
