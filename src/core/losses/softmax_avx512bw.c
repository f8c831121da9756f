/* softmax_avx512bw.c - rows of softmax with cross-entropy, compiled for AVX-512 F, BW, VL, DQ. */
#define SOFTMAX_ROWS fl_softmax_avx512bw
#define EXPONENTIALS fl_exponentials_avx512bw
#include "core/losses/softmax_rows.inc"
