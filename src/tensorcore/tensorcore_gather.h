/* tensorcore_gather.h - the matrices that matmuls and convolutions multiply, gathered a piece at a time: rows of A and
 * columns of B along k, in the order of docs/semantics.md, with zeros where a window reads padding. */
#ifndef FL_TENSORCORE_GATHER_H
#define FL_TENSORCORE_GATHER_H

#include "core/table/kernel.h"

/* A task as `problems` products of an m x k matrix by a k x n one: the matrices of a batch, the groups of a
 * convolution. */
struct fl_tc_matrices {
    const struct fl_args *args;
    const float *in[2];
    int64_t problems, m, n, k;
    int64_t pitch; /* results from row to row; columns are neighbours */
};

struct fl_tc_matrices fl_tc_matrices_of(const struct fl_args *args);
/* The first result of a problem. */
int64_t fl_tc_first_result(const struct fl_tc_matrices *t, int64_t problem);
/* `steps` of k from `first` on: of rows row ... row + count - 1, `stride` floats apart; of columns column ... column +
 * count - 1, at to[step * stride + column]. */
void fl_tc_gather_rows(const struct fl_tc_matrices *t, int64_t problem, int64_t row, int64_t count, int64_t first,
                       int64_t steps, float *to, int64_t stride);
void fl_tc_gather_columns(const struct fl_tc_matrices *t, int64_t problem, int64_t column, int64_t count, int64_t first,
                          int64_t steps, float *to, int64_t stride);

#endif
