/* block_kernels_avx512bw.c - blocks of floats to elements, in vectors of AVX-512. */
#define FL_ISA avx512bw
#include "blocks/block_kernels.inc"
