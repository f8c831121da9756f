/* block_doubles_portable.c - sums of doubles. */
#define FL_ISA portable
#include "blocks/block_doubles.inc"
