/* flex_portable.c - the kernels of the shared-exponent formats, plain C. */
#define FL_ISA portable
#include "flex/flex_kernels.inc"
