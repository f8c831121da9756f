/* row_vectors_avx512bw.c - kernels of rows, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#define ROW_BACKEND FL_AVX512BW
#include "core/rows/row_vectors.inc"
