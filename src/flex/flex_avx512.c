/* flex_avx512.c - the kernels of the shared-exponent formats, compiled for AVX-512 with VNNI. */
#define FLEX_ROW fl_flex_avx512
#include "flex/flex_kernels.inc"
