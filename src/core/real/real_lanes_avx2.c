/* real_lanes_avx2.c - real functions and slopes with bounds of their errors, compiled for AVX2 and FMA. */
#define FL_ISA avx2
#include "core/real/real_lanes.inc"
