/* fp16_avx512bw.c - the kernels of fp16 compiled for AVX-512 F, BW, VL, DQ. */
#include "fp16/fp16_codec.h"
#define FL_KIND fp16
#define FL_ISA avx512bw
#include "float/float_kernels.inc"
