/* cells_avx2.c - a row of the cells of recurrent networks, compiled for AVX2 and FMA. */
#define FL_ISA avx2
#define CELL_READ cell_read
#define CELL_EXPONENTIALS fl_exponentials_avx2
#include "core/arithmetic/exponentials.h"
#include "core/ops/recurrent/cell_read.h"
#include "core/ops/recurrent/cells.inc"
