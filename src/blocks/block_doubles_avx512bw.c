/* block_doubles_avx512bw.c - sums of doubles. */
#define FL_ISA avx512bw
#include "blocks/block_doubles.inc"
