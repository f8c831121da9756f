/* block_task.h - a product of blocks under way: what its parts share. */
#ifndef FL_BLOCK_TASK_H
#define FL_BLOCK_TASK_H

#include "blocks/block_bytes.h"
#include "blocks/block_geometry.h"
#include "gemm/gemm_mixed.h"

/* Of an instruction set. */
struct fl_block_set {
    const struct fl_block_doubles *values;
    const struct fl_block_bytes *bytes, *words; /* NULL: none */
    gemm_store_pairs store;
};

struct fl_block_operand {
    struct fl_block_rows rows;
    struct fl_block_bound *bounds; /* of each row */
    struct fl_block_bound all;     /* the largest squares, the least unit */
};

/* What dot products of bytes need beside the operands. */
struct fl_block_panels {
    const struct fl_block_bytes *dots; /* NULL: sums of doubles instead */
    const void *rows;                  /* of A, a row of zeros before them */
    struct fl_bytes_block *blocks;     /* of A, like its scales */
    char *elements;                    /* of B, a panel after the other */
    double *scales;
    int32_t *shifts;
    double unit;                      /* struct fl_bytes_tile */
    size_t panel_bytes, panel_scales; /* of the elements of one panel; as many shifts as scales */
    struct fl_bytes_panel zero_panel; /* what is read outside of an image */
};

/* The memory of a worker. */
struct fl_block_work {
    struct fl_doubles_tile tile;
    int64_t rows[FL_DOUBLES_ROWS], columns[FL_DOUBLES_COLUMNS];
    int64_t places[FL_BYTES_PIECES][FL_DOUBLES_ROWS];
    struct fl_bytes_panel panel[FL_BYTES_PIECES][FL_BYTES_PANELS];
    struct fl_stats stats;
};

struct fl_block_task {
    struct fl_block_matrices matrices;
    struct fl_block_set kernels;
    struct fl_block_operand in[2];
    struct fl_block_panels panels;
    double terms;  /* of a result, zeros included */
    double scale;  /* the product of the tensor scales */
    bool one_grid; /* 53 bits hold every sum */
    int64_t tile_rows;
    int64_t lines, columns; /* tiles of a problem, down and across */
    char *work;
};

struct fl_block_tile {
    int64_t problem, row, column;
    int rows, columns;
};

/* The dot products that serve two operands that are placed so; NULL: none. */
const struct fl_block_bytes *fl_block_bytes_for(const struct fl_block_set *set, const struct fl_block_matrices *m,
                                                const struct fl_block_rows *a, const struct fl_block_rows *b);
size_t fl_block_bytes_need(const struct fl_block_bytes *dots, const struct fl_block_matrices *m,
                           const struct fl_block_rows *a, const struct fl_block_rows *b);
/* Bytes before the rows of A, which are then a row of zeros. */
size_t fl_block_bytes_before(const struct fl_block_rows *a);
/* With t->panels.dots: packs B into memory, and begins the blocks of A. */
void fl_block_bytes_begin(struct fl_block_task *t, int workers, char *memory);
/* Adds all products of a tile to its sums. */
void fl_block_bytes_add(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at);

#endif
