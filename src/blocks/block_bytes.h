/* block_bytes.h - products of blocks whose elements are small integers: dot products of bytes, a block at a time, which
 * join sums of doubles at the product of the two scales.
 *
 * Rows of A are read as the quantiser left them. Those of B are packed in panels of 16, as unsigned bytes element +
 * 128: a dot product starts from -128 times the sum of A's elements in the block. */
#ifndef FL_BLOCK_BYTES_H
#define FL_BLOCK_BYTES_H

#include "blocks/block_doubles.h"

enum {
    FL_BYTES_LANES = 16, /* columns of a panel */
    FL_BYTES_PANELS = 4, /* of a tile */
    FL_BYTES_PIECES = 16 /* pieces at a time */
};

/* Of a block of A: where its dot products start, and its scale with the unit of elements. */
struct fl_bytes_block {
    double scale;
    int32_t start;
    int32_t shift; /* its exponent above the least of A; 0 in a block of zeros */
};

/* A panel: of each block `width` by 16 bytes, four neighbours of k for each column together, and 16 scales. Rows that
 * are missing are 0. */
struct fl_bytes_panel {
    const uint8_t *elements;
    const double *scales;
    const int32_t *shifts; /* 16 of each block: exponents above the least of B */
};

/* Sums of eight rows by one panel, or of four by two: those of B that two panels give the same tile. Row i reads at
 * piece p elements + places[p][i] * length, and its blocks likewise; what lies before the first row is a row of zeros,
 * of place -1. */
struct fl_bytes_tile {
    int rows, panels;              /* of the tile: any */
    int width;                     /* a multiple of 4 */
    int64_t pieces, first, blocks; /* blocks first ... first + blocks - 1 of each row */
    int64_t row_blocks;
    const int8_t *elements;
    const struct fl_bytes_block *starts;
    int64_t (*places)[FL_DOUBLES_ROWS];
    struct fl_bytes_panel (*panel)[FL_BYTES_PANELS];
    double (*high)[FL_DOUBLES_COLUMNS], (*low)[FL_DOUBLES_COLUMNS];
    double sigma; /* as in struct fl_doubles_tile */
    double unit;  /* not 0: 31 bits hold all sums in units of it, the product of the least scales */
};

struct fl_block_bytes {
    /* Of rows first ... first + n - 1, at blocks + first * from->blocks. */
    void (*begin)(const struct fl_block_rows *from, int64_t first, int64_t n, struct fl_bytes_block *blocks);
    /* Packs up to 16 rows; a row below zero is 0. */
    void (*pack)(const struct fl_block_rows *from, const int64_t *rows, int count, uint8_t *elements, double *scales,
                 int32_t *shifts);
    void (*add)(const struct fl_bytes_tile *tile);
};
extern const struct fl_block_bytes fl_block_bytes_avx512;

#endif
