/* fp32_avx512bw.c - the kernels of fp32 compiled for AVX-512 F, BW, VL, DQ. */
#include "fp32/fp32_codec.h"
#define FL_ROW fl_fp32_avx512bw
#include "float/float_kernels.inc"
