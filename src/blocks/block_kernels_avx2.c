/* block_kernels_avx2.c - blocks of floats to elements, in vectors of AVX2. */
#define FL_ISA avx2
#include "blocks/block_kernels.inc"
