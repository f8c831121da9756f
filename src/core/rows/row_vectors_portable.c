/* row_vectors_portable.c - kernels of rows, in plain C. */
#define FL_ISA portable
#define ROW_BACKEND FL_PORTABLE
#include "core/rows/row_vectors.inc"
