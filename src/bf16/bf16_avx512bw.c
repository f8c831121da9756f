/* bf16_avx512bw.c - the kernels of bf16 compiled for AVX-512 F, BW, VL, DQ. */
#include "bf16/bf16_codec.h"
#define FL_KIND bf16
#define FL_ISA avx512bw
#include "float/float_kernels.inc"
