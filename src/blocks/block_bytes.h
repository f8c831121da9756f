/* block_bytes.h - products of blocks whose elements are small integers: dot products of bytes or of words of 16 bits, a
 * block at a time, which join sums of doubles at the product of the two scales.
 *
 * As bytes, rows of A are read as the quantiser left them. Those of B are packed in panels of 16, as unsigned bytes
 * element + 128: a dot product starts from -128 times the sum of A's elements in the block. As words, rows of A are
 * converted, and panels of B have two neighbours of k for each of 16 columns together. */
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

/* A panel: of each block `width` by 16 elements, neighbours of k for each column together, four bytes or two words, and
 * 16 scales. Rows that are missing are 0. */
struct fl_bytes_panel {
    const char *elements;
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
    const void *elements;
    const struct fl_bytes_block *starts;
    int64_t (*places)[FL_DOUBLES_ROWS];
    struct fl_bytes_panel (*panel)[FL_BYTES_PANELS];
    double (*high)[FL_DOUBLES_COLUMNS], (*low)[FL_DOUBLES_COLUMNS];
    double sigma; /* as in struct fl_doubles_tile */
    double unit;  /* not 0: 31 bits hold all sums in units of it, the product of the least scales */
};

struct fl_block_bytes {
    size_t element_bytes;
    /* Of rows first ... first + n - 1, at blocks + first * from->blocks; words: their elements too, of row 0 at
     * `elements`. */
    void (*begin)(const struct fl_block_rows *from, int64_t first, int64_t n, struct fl_bytes_block *blocks,
                  void *elements);
    /* Packs up to 16 rows; a row below zero is 0. */
    void (*pack)(const struct fl_block_rows *from, const int64_t *rows, int count, void *elements, double *scales,
                 int32_t *shifts);
    void (*add)(const struct fl_bytes_tile *tile);
};
extern const struct fl_block_bytes fl_block_bytes_avx512, fl_block_words_avx2, fl_block_words_avx512bw,
    fl_block_words_avx512;

/* The scale of a block with the unit of its elements, which are integers here whatever the rows have, and its exponent
 * above the least of the operand. */
static inline double fl_bytes_scale(const struct fl_block_rows *from, int64_t at) {
    return fl_block_scale_by(from, at, from->format->element.unit);
}

static inline int32_t fl_bytes_shift(const struct fl_block_rows *from, int64_t at) {
    const int exponent = from->exponents[at];
    return exponent == FL_BLOCK_ZERO || exponent == FL_BLOCK_NAN ? 0 : exponent - from->least_exponent;
}

/* Those of the 16 columns of a panel. */
static inline void fl_bytes_scales(const struct fl_block_rows *from, const int64_t *rows, int count, double *scales,
                                   int32_t *shifts) {
    for (int64_t b = 0; b < from->blocks; b++)
        for (int j = 0; j < FL_BYTES_LANES; j++) {
            const bool given = j < count && rows[j] >= 0;
            scales[b * FL_BYTES_LANES + j] = given ? fl_bytes_scale(from, rows[j] * from->blocks + b) : 0;
            shifts[b * FL_BYTES_LANES + j] = given ? fl_bytes_shift(from, rows[j] * from->blocks + b) : 0;
        }
}

#endif
