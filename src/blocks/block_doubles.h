/* block_doubles.h - products of blocks as sums of doubles: elements with their scales are doubles, products of two are
 * exact, and so are their sums where bounds computed from the operands prove it. */
#ifndef FL_BLOCK_DOUBLES_H
#define FL_BLOCK_DOUBLES_H

#include "blocks/block_quantise.h"

enum { FL_DOUBLES_ROWS = 128, FL_DOUBLES_COLUMNS = 64, FL_DOUBLES_STEPS = 128 };

/* What the sums of a row are bounded by: |sum of products of two rows| <= sqrt(squares of one * squares of the other),
 * in whole multiples of 2^(unit of one + unit of the other). */
struct fl_block_bound {
    double squares; /* the sum of the squares of the values, rounded */
    int32_t unit;   /* the exponent of the lowest bit of any of them; FL_NO_UNIT: all are 0 */
};
enum { FL_NO_UNIT = 1 << 20 };

/* sums[i][j] += the sum of a[i][step] * b[step][j]. sigma 0: in high alone. Else what lies on the grid of sigma's last
 * place is added to high, the rest to low. */
struct fl_doubles_tile {
    double a[FL_DOUBLES_ROWS][FL_DOUBLES_STEPS], b[FL_DOUBLES_STEPS][FL_DOUBLES_COLUMNS];
    double high[FL_DOUBLES_ROWS][FL_DOUBLES_COLUMNS], low[FL_DOUBLES_ROWS][FL_DOUBLES_COLUMNS];
    int rows, columns, steps; /* whole vectors of columns are computed; rows of a beyond `rows` are not read */
    double sigma;
};

struct fl_block_doubles {
    void (*bound)(const struct fl_block_rows *from, int64_t row, struct fl_block_bound *bound);
    /* Elements first ... first + n - 1 of `count` rows as doubles, with their scales but for that of the tensor; 0 for
     * a row below zero and behind the end of one. To rows `pitch` apart, or to columns, of which whole vectors are
     * written. */
    void (*rows)(const struct fl_block_rows *from, const int64_t *rows, int count, int64_t first, int64_t n, double *to,
                 int64_t pitch);
    void (*columns)(const struct fl_block_rows *from, const int64_t *rows, int count, int64_t first, int64_t n,
                    double (*to)[FL_DOUBLES_COLUMNS]);
    void (*add)(struct fl_doubles_tile *tile);
};
extern const struct fl_block_doubles fl_block_doubles_portable, fl_block_doubles_avx2, fl_block_doubles_avx512bw;

#endif
