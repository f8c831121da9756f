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
FL_BOTH int64_t fl_block_first_result(const struct fl_block_matrices *t, int64_t problem) {
    const enum fl_op op = t->args->op;
    return op == FL_OP_CONV2D || op == FL_OP_CONV2D_INPUT_GRAD ? problem * t->n : problem * t->m * t->n;
}

/* --- rows ----------------------------------------------------------------------------------------------------------
 */

FL_BOTH void fl_block_neighbours(int64_t first, int64_t step, int64_t count, int64_t *rows) {
    for (int64_t i = 0; i < count; i++)
        rows[i] = first + i * step;
}

/* The place that place `to` of one image has in the other, or -1. gradient: where the window position that lies
 * `position` from its first has its result. */
FL_BOTH int64_t fl_block_place_in_image(int64_t to, int64_t position, int stride, int padding, int dilation,
                                        int64_t size, bool gradient) {
    int64_t from = gradient ? to + padding - position * dilation : to * stride + position * dilation - padding;
    if (gradient) {
        if (from < 0 || (stride > 1 && from % stride))
            return -1;
        from /= stride;
    }
    return from < 0 || from >= size ? -1 : from;
}

/* The rows of pixels first, first + step, ... of a line, those outside of it -1. */
FL_BOTH void fl_block_across_line(int64_t *rows, int64_t count, int64_t first, int64_t step, int64_t width,
                                  int64_t line, int64_t pixel) {
    for (int64_t j = 0; j < count; j++) {
        const int64_t x = first + j * step, row = line + x * pixel;
        rows[j] = (uint64_t)x < (uint64_t)width ? row : -1;
    }
}

/* Pixels `first` ... of the result, at a filter position. */
FL_BOTH void fl_block_pixels_of(const struct fl_block_matrices *t, int64_t group, int64_t first, int64_t count,
                                int64_t piece, int64_t *rows) {
    const struct fl_windows *g = &t->args->p.product.windows;
    const bool gradient = t->args->op == FL_OP_CONV2D_INPUT_GRAD;
    const int64_t height = gradient ? g->h : g->p, width = gradient ? g->w : g->q, from_height = gradient ? g->p : g->h,
                  from_width = gradient ? g->q : g->w, r = piece / g->s, s = piece % g->s;
    int64_t x = first % width, y = first / width % height, n = first / width / height;
    for (int64_t i = 0; i < count;) {
        const int64_t down = fl_block_place_in_image(y, r, g->stride[0], g->padding[0], g->dilation[0], from_height,
                                                     gradient),
                      line = (n * from_height + down) * from_width;
        const int64_t some = count - i < width - x ? count - i : width - x;
        if (down < 0)
            for (int64_t j = 0; j < some; j++)
                rows[i + j] = -1;
        else if (gradient && g->stride[1] > 1)
            for (int64_t j = 0; j < some; j++) {
                const int64_t across =
                    fl_block_place_in_image(x + j, s, g->stride[1], g->padding[1], g->dilation[1], from_width, true);
                rows[i + j] = across < 0 ? -1 : (line + across) * g->groups + group;
            }
        else
            fl_block_across_line(&rows[i], some,
                                 gradient ? x + g->padding[1] - s * g->dilation[1]
                                          : x * g->stride[1] + s * g->dilation[1] - g->padding[1],
                                 g->stride[1], from_width, line * g->groups + group, g->groups);
        i += some;
        x = 0;
        if (++y == height) {
            y = 0;
            n++;
        }
    }
}

/* The rows that `count` rows of the product, or columns, from `first` on read at a piece; -1: zeros, outside of an
 * image or between the pixels of a stride. */
FL_BOTH void fl_block_rows_of_a(const struct fl_block_matrices *t, int64_t problem, int64_t first, int64_t count,
                                int64_t piece, int64_t *rows) {
    switch ((int)t->args->op) {
    case FL_OP_CONV2D:
    case FL_OP_CONV2D_INPUT_GRAD:
        fl_block_pixels_of(t, problem, first, count, piece, rows);
        break;
    case FL_OP_CONV2D_WEIGHT_GRAD:
        fl_block_neighbours(piece * t->args->p.product.windows.filters + problem * t->m + first, 1, count, rows);
        break;
    default:
        fl_block_neighbours(problem * t->m + first, 1, count, rows);
    }
}

FL_BOTH void fl_block_rows_of_b(const struct fl_block_matrices *t, int64_t problem, int64_t first, int64_t count,
                                int64_t piece, int64_t *rows) {
    const struct fl_windows *g = &t->args->p.product.windows;
    switch ((int)t->args->op) {
    case FL_OP_CONV2D:
        fl_block_neighbours((problem * t->n + first) * t->pieces + piece, t->pieces, count, rows);
        break;
    case FL_OP_CONV2D_INPUT_GRAD:
        fl_block_neighbours((problem * t->pieces + piece) * t->n + first, 1, count, rows);
        break;
    case FL_OP_CONV2D_WEIGHT_GRAD: {
        const int64_t depth = g->c / g->groups, p = piece / g->q, q = piece % g->q;
        for (int64_t i = 0; i < count;) {
            const int64_t position = (first + i) / depth, r = position / g->s, s = position % g->s,
                          y = fl_block_place_in_image(p, r, g->stride[0], g->padding[0], g->dilation[0], g->h, false),
                          x = fl_block_place_in_image(q, s, g->stride[1], g->padding[1], g->dilation[1], g->w, false),
                          row = (y * g->w + x) * g->c + problem * depth;
            for (int64_t channel = (first + i) % depth; channel < depth && i < count; channel++, i++)
                rows[i] = y < 0 || x < 0 ? -1 : row + channel;
        }
        break;
    }
    default:
        fl_block_neighbours(problem * t->n + first, 1, count, rows);
    }
}

#endif
