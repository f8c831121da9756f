/* fp32_portable.c - the kernels of fp32 in plain C. */
#include "fp32/fp32_codec.h"
#define FL_ROW fl_fp32_portable
#include "float/float_kernels.inc"
