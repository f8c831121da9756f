/* cells.h - a row of the cells of recurrent networks: the units of one sequence. */
#ifndef FL_CELLS_H
#define FL_CELLS_H

#include "core/rows/rows.h"

enum { FL_CELL_ARRAYS = 24 /* of as many numbers as there are units, in the memory of a thread */ };

/* The definition, and cells.inc compiled for an instruction set: the same bits. */
void fl_cell_row_definition(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats);
void fl_cell_row_portable(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats);
void fl_cell_row_avx2(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats);
void fl_cell_row_avx512bw(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats);

#endif
