/* bf16_portable.c - the kernels of bf16 in plain C. */
#include "bf16/bf16_codec.h"
#define FL_KIND bf16
#define FL_ISA portable
#include "float/float_kernels.inc"
