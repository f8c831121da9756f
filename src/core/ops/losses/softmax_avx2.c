/* softmax_avx2.c - rows of softmax with cross-entropy, compiled for AVX2 and FMA. */
#define FL_ISA avx2
#include "core/ops/losses/softmax_rows.inc"
