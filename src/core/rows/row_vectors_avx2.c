/* row_vectors_avx2.c - kernels of rows, compiled for AVX2 and FMA. */
#define FL_ISA avx2
#define ROW_BACKEND FL_AVX2
#include "core/rows/row_vectors.inc"
