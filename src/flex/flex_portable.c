/* flex_portable.c - the kernels of the shared-exponent formats, plain C. */
#define FLEX_ROW fl_flex_portable
#include "flex/flex_kernels.inc"
