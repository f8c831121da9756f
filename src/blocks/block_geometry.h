/* block_geometry.h - matmuls and convolutions as sums over pieces: every result is the sum, over the pieces of its
 * product, of a row of A times a row of B, both of which have their k elements together (block_quantise.h).
 *
 *                      pieces            rows of A                     rows of B                    k
 *     matmul*          one               rows of a matrix              columns of the other         k
 *     conv2d           filter positions  pixels of x, in groups        positions of filters         channels
 *     its input grad.  filter positions  pixels of dy, in groups       positions and channels       filters
 *     its weight grad. pixels of y       pixels and filters of dy      pixels and channels of x     images
 *
 * One scale of the format channel serves a row of a matrix; all filter positions of the weights; all pixels of an image
 * in the others, and in weight gradients all pixels of all images at a channel or filter.
 *
 * Channels, filters: of a group. So blocks do not cross filter positions, and those of a weight gradient lie along the
 * batch at one pixel. A tensor is quantised once for a product, however many windows read a pixel. */
#ifndef FL_BLOCK_GEOMETRY_H
#define FL_BLOCK_GEOMETRY_H

#include "blocks/block_quantise.h"
#include "core/table/kernel.h"

/* An operand as fl_block_quantise takes it: [outer, k, inner]. */
struct fl_block_source {
    int64_t outer, k, inner;
    int64_t square_length, square_step; /* struct fl_block_how */
    int64_t channel_length, channel_step;
};

/* A task as `problems` products of m rows by n columns: the matrices of a batch, the groups of a convolution. */
struct fl_block_matrices {
    const struct fl_args *args;
    struct fl_block_source source[2];
    int64_t problems, m, n, pieces;
    int64_t pitch; /* results from row to row; columns are neighbours */
};

struct fl_block_matrices fl_block_matrices_of(const struct fl_args *args);
/* The first result of a problem. */
int64_t fl_block_first_result(const struct fl_block_matrices *t, int64_t problem);
/* The rows that `count` rows of the product, or columns, from `first` on read at a piece; -1: zeros, outside of an
 * image or between the pixels of a stride. */
void fl_block_rows_of_a(const struct fl_block_matrices *t, int64_t problem, int64_t first, int64_t count, int64_t piece,
                        int64_t *rows);
void fl_block_rows_of_b(const struct fl_block_matrices *t, int64_t problem, int64_t first, int64_t count, int64_t piece,
                        int64_t *rows);

#endif
