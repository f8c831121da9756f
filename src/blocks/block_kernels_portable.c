/* block_kernels_portable.c - blocks of floats to elements, on any processor. */
#define FL_ISA portable
#include "blocks/block_kernels.inc"
