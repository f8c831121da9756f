/* fp32_portable.c - the kernels of fp32 in plain C. */
#include "fp32/fp32_codec.h"
#define FL_KIND fp32
#define FL_ISA portable
#include "float/float_kernels.inc"
