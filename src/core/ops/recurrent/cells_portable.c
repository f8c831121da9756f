/* cells_portable.c - a row of the cells of recurrent networks, in plain C. */
#define FL_ISA portable
#define CELL_READ cell_read
#define CELL_EXPONENTIALS fl_exponentials_portable
#include "core/arithmetic/exponentials.h"
#include "core/ops/recurrent/cell_read.h"
#include "core/ops/recurrent/cells.inc"
