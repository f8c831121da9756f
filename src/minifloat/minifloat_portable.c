/* minifloat_portable.c - conversions and kernels of floats made from their parameters, in plain C. */
#define FL_ISA portable
#define MINIFLOAT_BACKEND FL_PORTABLE
#include "minifloat/minifloat_convert.inc"
