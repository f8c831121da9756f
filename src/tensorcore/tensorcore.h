/* tensorcore.h - sums of products as the tensor cores of a GPU form them, on plain numbers: the model itself, in
 * integers (docs/semantics.md, class accumulate), and the vectors that compute many sums at once with its bits.
 *
 * A group of k products and the sum so far are aligned to the largest exponent among them, each is truncated towards
 * zero some bits below it, they are added as integers, and the sum is truncated to binary32, or rounded to fp16. */
#ifndef FL_TENSORCORE_H
#define FL_TENSORCORE_H

#include "core/table/accumulator.h"

/* c + the sum of n <= k products a[i] b[i], which are one group. Operands have values of `kinds`. A zero product takes
 * no part; a subnormal operand has the exponent of the smallest normal one. A sum of zero is +0. Results beyond the
 * largest number of the sum's format are Inf; a NaN, Inf times 0 and Inf - Inf give a NaN, another Inf gives that Inf
 * (of the hardware this is not known). */
float fl_tensorcore_group(const struct fl_accumulation *how, struct fl_operand_kinds kinds, const float *a,
                          const float *b, int n, float c);
/* c + the sum of any number of products, in groups of ascending i; the elements of b are b_step apart. */
float fl_tensorcore_sum(const struct fl_accumulation *how, struct fl_operand_kinds kinds, const float *a,
                        const float *b, int64_t b_step, int64_t n, float c);

/* --- vectors ------------------------------------------------------------------------------------------------------ */

enum {
    FL_TC_CHUNK = 64,   /* k that is packed and multiplied at a time: whole groups */
    FL_TC_COLUMNS = 64, /* of a panel */
    FL_TC_ROWS = 128    /* of a block */
};

/* A packed chunk: in each group of a line (a row of A, a column of B) elements are divided by the power of two that
 * makes the largest at most 2, so that products of binary32 are exact where they count. reach: how many binary orders
 * an element is below the largest, at most 100; 255: it is zero. top: the exponent field of the largest. */
struct fl_tc_rows {
    float value[FL_TC_ROWS][FL_TC_CHUNK];
    uint32_t reach[FL_TC_ROWS][FL_TC_CHUNK]; /* four times the same byte */
    int32_t top[FL_TC_ROWS][FL_TC_CHUNK / 4];
    bool special[FL_TC_ROWS]; /* has elements that the vectors do not take: NaN, Inf, huge ones */
};
struct fl_tc_panel {
    float value[FL_TC_CHUNK][FL_TC_COLUMNS];
    uint8_t reach[FL_TC_CHUNK][FL_TC_COLUMNS];
    int32_t top[FL_TC_CHUNK / 4][FL_TC_COLUMNS];
    uint64_t special; /* a bit for each column */
};

/* rows x columns sums, to which the products of a chunk are added. Whole vectors of columns are computed. */
struct fl_tc_tile {
    const struct fl_accumulation *how;
    const struct fl_tc_rows *a;
    const struct fl_tc_panel *b;
    int rows, columns, groups;
    float *sums;     /* rows FL_TC_COLUMNS apart: 0, those of earlier chunks, or of 2^-90 and more */
    uint64_t *doubt; /* of each row: bits are set for columns whose sums the vectors cannot tell, for good */
};

struct fl_tc_kernels {
    /* Packs `count` lines of `groups` groups: rows[line][k], columns[k][line]. NULL: there are no vectors. */
    void (*pack_rows)(const struct fl_accumulation *how, int least, const float *rows, int count, int groups,
                      struct fl_tc_rows *to);
    void (*pack_columns)(const struct fl_accumulation *how, int least, const float *columns, int groups,
                         struct fl_tc_panel *to);
    void (*add)(const struct fl_tc_tile *tile);
};
extern const struct fl_tc_kernels fl_tensorcore_portable, fl_tensorcore_avx2, fl_tensorcore_avx512bw;

#endif
