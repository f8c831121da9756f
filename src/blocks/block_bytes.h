/* block_bytes.h - products of blocks whose elements are small integers: dot products of bytes, a block at a time, which
 * join sums of doubles at the product of the two scales.
 *
 * Rows of A are read as the quantiser left them. Those of B are packed in panels of 16, as unsigned bytes element + 128:
 * a dot product starts from -128 times the sum of A's elements in the block. */
#ifndef FL_BLOCK_BYTES_H
#define FL_BLOCK_BYTES_H

#include "blocks/block_values.h"

enum {
    FL_BYTES_LANES = 16, /* columns of a panel */
    FL_BYTES_ROWS = 8,   /* rows of a micro-tile */
    FL_BYTES_PANELS = 2, /* panels of a micro-tile */
    FL_BYTES_PIECES = 16 /* pieces at a time */
};

/* Of a block of A: where its dot products start, and its scale with the unit of elements. */
struct fl_bytes_block {
    double scale;
    int32_t start, unused;
};

/* A panel: of each block `width` by 16 bytes, four neighbours of k for each column together, and 16 scales. Rows that
 * are missing are 0. */
struct fl_bytes_panel {
    const uint8_t *elements;
    const double *scales;
};

/* Sums of 8 (or 4) rows by one or two panels; row[piece][i] and block[piece][i] are the first elements and the first
 * block of row i at that piece. */
struct fl_bytes_tile {
    int rows, panels; /* 4 or 8; 1 or 2 */
    int width;        /* a multiple of 4 */
    int64_t pieces, blocks;
    const int8_t *(*row)[FL_BYTES_ROWS];
    const struct fl_bytes_block *(*block)[FL_BYTES_ROWS];
    struct fl_bytes_panel (*panel)[FL_BYTES_PANELS];
    double (*high)[FL_VALUES_COLUMNS], (*low)[FL_VALUES_COLUMNS];
    double sigma; /* as in struct fl_values_tile */
};

struct fl_block_bytes {
    void (*begin)(const struct fl_block_rows *from, int64_t row, struct fl_bytes_block *blocks,
                  struct fl_block_bound *bound);
    /* Packs up to 16 rows; a row below zero is 0. */
    void (*pack)(const struct fl_block_rows *from, const int64_t *rows, int count, uint8_t *elements, double *scales);
    void (*add)(const struct fl_bytes_tile *tile);
};
extern const struct fl_block_bytes fl_block_bytes_avx512;

#endif
