/* cells_avx512bw.c - a row of the cells of recurrent networks, compiled for AVX-512 F, BW, VL, DQ. */
#define FL_ISA avx512bw
#define CELL_READ cell_read
#define CELL_EXPONENTIALS fl_exponentials_avx512bw
#include "core/arithmetic/exponentials.h"
#include "core/ops/recurrent/cell_read.h"
#include "core/ops/recurrent/cells.inc"
