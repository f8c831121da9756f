/* real_lanes_avx512bw.c - real functions and slopes with bounds of their errors, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#include "core/real/real_lanes.inc"
