/* bf16_portable.c - the kernels of bf16 in plain C. */
#include "bf16/bf16_codec.h"
#define FL_ROW fl_bf16_portable
#include "float/float_kernels.inc"
