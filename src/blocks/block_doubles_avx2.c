/* block_doubles_avx2.c - sums of doubles. */
#define FL_ISA avx2
#include "blocks/block_doubles.inc"
