/* fp16_portable.c - the kernels of fp16 in plain C. */
#include "fp16/fp16_codec.h"
#define FL_KIND fp16
#define FL_ISA portable
#include "float/float_kernels.inc"
