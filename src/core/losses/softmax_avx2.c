/* softmax_avx2.c - rows of softmax with cross-entropy, compiled for AVX2 and FMA. */
#define SOFTMAX_ROWS fl_softmax_avx2
#define EXPONENTIALS fl_exponentials_avx2
#include "core/losses/softmax_rows.inc"
