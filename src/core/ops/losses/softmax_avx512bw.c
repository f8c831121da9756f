/* softmax_avx512bw.c - rows of softmax with cross-entropy, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#include "core/ops/losses/softmax_rows.inc"
