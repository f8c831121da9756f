/* gemm.h - matmul and convolution of all formats: the interface between the drivers, which are ordinary C and compiled
 * once, and the kernels of a format family, which are compiled for each instruction set
 * (docs/decisions/0016-one-driver.md).
 *
 * Operands are packed: a packed element is what one SIMD lane multiplies at a time, 32 bits: a binary32, or a k-pair,
 * two 16-bit elements that are neighbours along k. A step of k is one packed element of each row and column. A sum of
 * products is an accumulator of 32 bits: a binary32, or two limbs of int32, of which a carry split moves all but 15
 * bits, in some kernels all but 16, of the low one to the high one.
 *
 * Mantissas of at most 8 bits are packed as k-quads, four bytes that are neighbours along k (gemm_int8_avx512.c). */
#ifndef FL_GEMM_H
#define FL_GEMM_H

#include "core/table/kernel.h"
#include <stddef.h>

typedef uint32_t gemm_packed; /* only the kernels know its contents */

enum {
    GEMM_LIMBS_K = 16384, /* longest k whose sums surely fit two limbs: |sum| <= 2^44 */
    GEMM_LIMB_BITS = 15,  /* of the low limb */
    GEMM_REST = -(1 << GEMM_LIMB_BITS),
    GEMM_REST_MOST = 1 << 16,               /* largest magnitude of what a split leaves in an accumulator */
    GEMM_INTERVAL = 4,                      /* steps of the shortest bound interval */
    GEMM_AHEAD_STEPS = 16,                  /* of a tile, between looks ahead: the caches take few requests at a time */
    GEMM_INTERVALS = 3,                     /* lengths of intervals: 1, 2 and 4 of the shortest */
    GEMM_RUN_LENGTHS = 4,                   /* of runs of neighbouring intervals: 1, 2, 4 and 8 */
    GEMM_RUN = 1 << (GEMM_RUN_LENGTHS - 1), /* intervals of the longest */
    GEMM_STAGGER = 16,       /* steps between two carry splits of an accumulator in the staggered micro-kernel */
    GEMM_CACHE_LINE = 64,    /* bytes */
    GEMM_PREFETCH_STEPS = 4, /* steps of a panel kernel from one prefetch to the next */
    GEMM_VECTORS_MAX = 3,    /* of columns in a tile of a convolution */
    GEMM_ROWS_MAX = 16,      /* of such a tile */
    GEMM_COLUMNS_MAX = 48,
    GEMM_WINOGRAD_FORMS = 4, /* products of linear forms in the place of two pixels times three filter positions */
    GEMM_PANEL_ROWS_MAX = 32,
    GEMM_PANEL_COLUMNS_MAX = 32,
    GEMM_DEPTHWISE_BLOCK = 64 /* results of a pixel that a depthwise kernel sums at a time */
};

/* Largest sum of |a b| since the last carry split at which an int32 accumulator cannot overflow, whatever the signs. */
#define GEMM_SPLIT_LIMIT (0x1p31 - GEMM_REST_MOST)

/* Sums in rows. Those of integers are high * 2^15 + low, 0 <= low < 2^15, in two arrays of limbs or, if those might not
 * suffice (k beyond GEMM_LIMBS_K), integers in wide. Sums of floats are binary32 in low; high and wide are NULL. */
struct gemm_sums {
    int32_t *low, *high;
    int64_t *wide;
    int64_t stride; /* from row to row */
};

static inline struct gemm_sums gemm_sums_at(const struct gemm_sums *sums, int64_t row, int64_t column) {
    const int64_t at = row * sums->stride + column;
    return (struct gemm_sums){.low = sums->low ? sums->low + at : NULL,
                              .high = sums->high ? sums->high + at : NULL,
                              .wide = sums->wide ? sums->wide + at : NULL,
                              .stride = sums->stride};
}

/* From sums to those `by` further on, in place: field by field, since a copy of the whole would wait for its stores. */
static inline void gemm_sums_move(struct gemm_sums *sums, int64_t by) {
    if (sums->low)
        sums->low += by;
    if (sums->high)
        sums->high += by;
    if (sums->wide)
        sums->wide += by;
}

/* --- micro-kernels ------------------------------------------------------------------------------------------------ */

/* A stretch of k that a tile multiplies, lying at constant steps in both operands. */
struct gemm_segment {
    int64_t a, b; /* where it begins: packed elements from the tile's origins */
    int64_t steps;
    bool split; /* the accumulators may have reached their limit: carry split after it */
    bool hole;  /* A is zero, whatever a says (ordered sums) */
};

/* What a worker will probably read next, from `at` on and then from `then` on: it comes to the cache while tiles are
 * computed, since packing it would wait for each line. */
struct gemm_ahead {
    const char *at, *end, *then, *then_end;
    int64_t each; /* lines of the cache at a time */
};

static inline void gemm_look_ahead(struct gemm_ahead *ahead) {
    for (int64_t i = 0; i < ahead->each; i++, ahead->at += GEMM_CACHE_LINE) {
        if (ahead->at >= ahead->end) {
            ahead->at = ahead->then;
            ahead->end = ahead->then_end;
            ahead->then = ahead->then_end;
        }
        if (ahead->at >= ahead->end)
            return;
        __builtin_prefetch(ahead->at, 0, 2);
    }
}

/* One tile of a convolution: out[i][j] (=, or += if add) sum over the segments of A[i][k] B[k][j]. Strides are in
 * packed elements. */
struct gemm_tile {
    const struct gemm_segment *segments;
    int64_t count;
    int64_t splits; /* segments that end in a carry split */
    const gemm_packed *a, *b;
    const int32_t
        *start; /* of the accumulators, if the kernels have `starts`: of each column, or row if A is transposed */
    int64_t a_row, a_step;    /* of A, from row to row and from step to step; one of them is 1 */
    bool turned;              /* that from row to row: the tile is one of a weight gradient, or A is transposed */
    int64_t b_step;           /* of B; columns are neighbours */
    struct gemm_ahead *ahead; /* of a turned tile, every GEMM_AHEAD_STEPS; NULL: nothing */
    struct gemm_sums out;
    int rows; /* whole units of rows are computed: memory beyond the last row must be readable */
    bool add;
};

/* The operands of the next tiles come from the last cache or from memory. They are prefetched gradually, `step` bytes
 * every GEMM_PREFETCH_STEPS: all at once would fill the miss buffers and delay the loads of the loop. */
struct gemm_prefetch {
    const char *from;
    int64_t step;
};

/* Lines and columns of a matrix tile; bytes of a line and of a tile. */
enum { GEMM_MATRIX = 16, GEMM_MATRIX_LINE = 64, GEMM_MATRIX_PLANE = GEMM_MATRIX * GEMM_MATRIX_LINE };

/* A row of starts of sums: numbers x as the 16 of x >> 16, and the lower 16 bits of each, to which more may be added.
 */
enum { GEMM_MATRIX_START = 2 * GEMM_MATRIX };

/* What a thread does while the products of a tile keep the tile unit busy: the rows of the tile before, [from, to),
 * both even, in order, all GEMM_MATRIX of them before the kernel returns. work NULL: nothing. */
struct gemm_meanwhile {
    void (*work)(void *context, int from, int to);
    void *context;
};

/* All rows. */
static inline void gemm_do_meanwhile(const struct gemm_meanwhile *meanwhile) {
    if (meanwhile->work)
        meanwhile->work(meanwhile->context, 0, GEMM_MATRIX);
}

/* Rows distributed over the steps of a short tile, because the overlap that the processor finds depends on the order of
 * the program: none during the first third of the steps (of 16 at most), while the sums of the tile before are on their
 * way to memory. */
struct gemm_rows {
    int from;     /* the next */
    int each;     /* rows at a time, even */
    int64_t lead; /* steps before the first */
};

static inline struct gemm_rows gemm_share_rows(const struct gemm_meanwhile *meanwhile, int64_t steps) {
    const int count = steps > GEMM_MATRIX ? GEMM_MATRIX : (int)steps, lead = (count + 1) / 3,
              parts = count > 0 ? count - lead : 1;
    return (struct gemm_rows){meanwhile->work ? 0 : GEMM_MATRIX, 2 * ((GEMM_MATRIX / 2 + parts - 1) / parts), lead};
}

/* After step `step`. */
static inline void gemm_do_some_rows(const struct gemm_meanwhile *meanwhile, int64_t step, struct gemm_rows *rows) {
    if (rows->from >= GEMM_MATRIX || step < rows->lead)
        return;
    const int to = rows->from + rows->each < GEMM_MATRIX ? rows->from + rows->each : GEMM_MATRIX;
    meanwhile->work(meanwhile->context, rows->from, to);
    rows->from = to;
}

/* Does the remaining rows, after a tile without steps. */
static inline void gemm_do_other_rows(const struct gemm_meanwhile *meanwhile, const struct gemm_rows *rows) {
    if (rows->from < GEMM_MATRIX)
        meanwhile->work(meanwhile->context, rows->from, GEMM_MATRIX);
}

/* A panel of A by a panel of B over a block of k, and where the micro-kernel leaves its accumulators. */
struct gemm_panel_pair {
    const gemm_packed *a; /* `height` rows a step, of which the kernel multiplies the first `rows` */
    const gemm_packed *b; /* panel_columns columns a step */
    int64_t height, rows, steps;
    struct gemm_prefetch next;
    const int32_t *start;            /* of the accumulators of each column, if the kernels have `starts`; of sums on
                                        matrix tiles, unless `add`, GEMM_MATRIX_START words a row; NULL: zeros */
    int64_t start_step;              /* words from row to row of them, 0: all begin alike */
    int32_t *sum, *high;             /* rows of panel_columns accumulators (binary32 for floats) and their high limbs */
    int64_t stride;                  /* of sum and high, from row to row */
    bool add;                        /* matrix tiles: sum holds those of the blocks before, as they left the tiles */
    struct gemm_meanwhile meanwhile; /* likewise */
};

typedef void (*gemm_panel_kernel)(const struct gemm_panel_pair *p);

/* Converts rows by columns of accumulators of a micro-kernel to sums, stored in out or added to it. owed: what
 * carry splits left to be added to the high limb; high: NULL if that is 0. */
typedef void (*gemm_finish)(const int32_t *sum, const int32_t *high, int64_t stride, int64_t rows, int64_t columns,
                            int64_t owed, bool add, const struct gemm_sums *out);

/* The functions on packed elements. A table of panel kernels is indexed by rows, 1 ... panel_rows, or up to half of
 * that if its comment says so; entries that a family does not use are NULL. */
struct gemm_kernels {
    int lanes; /* accumulators in a vector */

    /* Convolution: tiles of `columns` columns in 1 ... vectors vectors by up to rows[vectors] rows, in units of
     * rows_unit. */
    int vectors, rows_unit, rows[GEMM_VECTORS_MAX + 1];
    void (*tile)(const struct gemm_tile *t, int vectors, int64_t columns);

    /* Matmul: pairs of panels. */
    int panel_rows, panel_columns;
    int panel_steps; /* panels hold a multiple of this many steps, zeros at the end, and always panel_rows rows; 0: any
                      */
    void (*begin)(void), (*end)(void);  /* around the calls that a thread makes for one part; NULL: nothing to do */
    const gemm_panel_kernel *whole;     /* no carry split */
    int owed_per_split;                 /* what a carry split leaves to be added to the high limb */
    const gemm_panel_kernel *staggered; /* each accumulator split every GEMM_STAGGER steps, in memory */
    const gemm_panel_kernel *every_8, *every_4, *every_1; /* split every 8, 4 steps, every step; half of panel_rows */
    const gemm_panel_kernel *products; /* each product's high half in `high`, by itself; half of panel_rows */
    gemm_finish finish, finish_products;

    /* The mod-255 check, if bytes can be multiplied: panels as bytes modulo 255, two steps in one; their sums; the
     * whole sums from those modulo 2^32 (sum) and modulo 255 (high). */
    void (*pack_bytes)(const gemm_packed *panel, int64_t width, int64_t steps, bool centred, gemm_packed *bytes);
    const gemm_panel_kernel *bytes;
    gemm_finish finish_bytes;

    /* Kernels of k-quads add 128 to the elements of the operand that packs by `pixels` or `image_line`, or is A of a
     * matmul; their accumulators start at what corrects this: for each of `width` lines of the other operand, which
     * lie `step` packed elements from step to step, -128 times the sum of its elements in these segments (of A or B).
     * Whole vectors are read and stored. NULL: nothing to correct, and accumulators need carry splits. */
    void (*starts)(const gemm_packed *from, const struct gemm_segment *segments, int64_t count, bool of_a, int64_t step,
                   int64_t width, int32_t *start);

    /* The sums of pairs of neighbouring pixels from those of the forms of Winograd's algorithm, whose limbs lie `plane`
     * apart: `rows` rows of `columns`, of the first pixels in out[0], of the second ones in out[1]. There is one where
     * the packing has forms. */
    void (*winograd)(const struct gemm_sums *forms, int64_t plane, int64_t rows, int64_t columns,
                     const struct gemm_sums out[2]);

    /* Adds n whole sums (int64, binary32). */
    void (*add)(void *total, const void *sums, int64_t n);
};

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* One operand of out[i][j] = sum over k of A[i][k] B[k][j]. Its lines are the rows of A, the columns of B: line l at k
 * is data[l * line_stride + k * k_stride]; one of the strides is 1. */
struct gemm_operand {
    const void *data;
    int64_t line_stride, k_stride;
    int64_t lines, k;
    bool columns;       /* it is B */
    int64_t width;      /* lines of a panel */
    int64_t panels;     /* in all */
    int64_t panel_size; /* packed elements from panel to panel; a little more than the panel itself, for overruns */
};

/* What is known of a panel over one block of k. Bounds: the largest magnitude, and the largest Euclidean norm of a line
 * over the bound intervals of 1, 2 and 4 times GEMM_INTERVAL steps, wherever they begin, and over the whole block. Or,
 * of B, the starts of accumulators. */
struct gemm_bound {
    union {
        struct {
            double largest, interval[GEMM_INTERVALS], whole;
        };
        int32_t start[GEMM_PANEL_COLUMNS_MAX];
    };
};

/* A stretch of an image line that is packed position by position for a weight gradient, or as linear forms, which have
 * neither positions nor partners. */
struct gemm_image_line {
    const void *row;       /* first channel wanted of pixel 0; NULL: a line of padding */
    int64_t row_pixels;    /* pixels of the line; others are padding */
    int64_t pixel;         /* elements from pixel to pixel */
    int64_t channels;      /* wanted */
    int64_t x, count;      /* pixels x ... x + count - 1 */
    int64_t position_step; /* pixels from one packed position to the next */
    int64_t partner;       /* k-pairs: pixels from an element to the second of its pair */
};

/* How the elements of a format are packed. */
struct gemm_packing {
    int element_bytes; /* of the operands */
    int per_step;      /* k in a packed element: 1, 2 or 4 */
    int zero_byte;     /* of packed zeros of an image */
    bool plain;        /* packed elements are the unchanged elements */

    /* Packs steps first_step ... first_step + steps - 1 of `panels` panels from the first on; packed is the place of
     * the first panel's first step. */
    void (*panels)(const struct gemm_operand *s, int64_t first, int64_t panels, int64_t first_step, int64_t steps,
                   gemm_packed *packed);
    /* `depth` k by `columns`, one of the strides being 1, to rows of `width`, zeros beyond the columns. */
    void (*block)(gemm_packed *to, int64_t width, const void *from, int64_t k_stride, int64_t column_stride,
                  int64_t depth, int64_t columns);
    /* `depth` channels of each of count pixels, from_pixel elements apart, to `pixel` packed elements each. */
    void (*pixels)(gemm_packed *to, int64_t pixel, const void *from, int64_t from_pixel, int64_t count, int64_t depth);
    /* zero: as many zeros as there are channels. Returns a bound on the sum of squares that a channel has in the packed
     * elements of the line that one tile multiplies (0 if no proof is needed). */
    float (*image_line)(const struct gemm_image_line *line, const void *zero, gemm_packed *to);

    /* Winograd's algorithm for filters three wide; NULL: there is no such packing. Whether all linear forms of n
     * mantissas of an image, or of its gradient, fit. */
    bool (*winograd_takes)(const void *mantissas, int64_t n);
    /* The forms of a weight gradient, form i `plane` packed elements after form i - 1: a step of k for each four of
     * `pixels` output pixels, of `rows` filters; and the same of what these see of a line, with a bound on the sum of
     * squares of a channel in each. */
    void (*winograd_dy)(const void *from, int64_t pixel, int64_t pixels, int64_t rows, gemm_packed *to, int64_t plane);
    void (*winograd_line)(const struct gemm_image_line *line, const void *zero, gemm_packed *to, int64_t plane,
                          float bounds[GEMM_WINOGRAD_FORMS]);
    /* The forms of a convolution: one of n channels, or filters, of a filter row, whose positions are `position`
     * elements apart, as elements, false if it does not fit; and those of a line (row not NULL) for each two output
     * pixels, to_pixel packed elements apart, zeros beyond the channels. */
    bool (*winograd_filter)(const void *from, int64_t position, int64_t n, int form, void *to);
    void (*winograd_pixels)(const struct gemm_image_line *line, const void *zero, gemm_packed *to, int64_t to_pixel,
                            int64_t plane);

    /* Proofs; NULL if sums cannot overflow. */
    void (*bound_panel)(const gemm_packed *panel, int64_t width, int64_t steps, struct gemm_bound *bound);
    /* Bounds packed rows: for each interval of GEMM_INTERVAL steps the largest sum of squares of a column. */
    void (*bound_intervals)(const gemm_packed *rows, int64_t width, int64_t steps, float *intervals);
    /* Raises the bounds of runs to those of n packed elements, whose intervals begin at every GEMM_INTERVAL-th of them:
     * the largest sums of squares of 1, 2, 4 and 8 intervals that follow each other. */
    void (*bound_runs)(const gemm_packed *packed, int64_t n, float largest[GEMM_RUN_LENGTHS]);

    /* Ordered sums: `steps` rows of zeros in A times these rows of B, as one row of B; else NULL. */
    void (*hole)(gemm_packed *hole, const gemm_packed *rows, int64_t width, int64_t steps);
};

/* --- convolution -------------------------------------------------------------------------------------------------- */

/* One direction of a convolution, down (y) or across (x). */
struct gemm_side {
    int64_t in, out;         /* pixels of the image that is read, and of the other */
    int64_t positions;       /* of the filter */
    int64_t stride, padding; /* padding: before the first pixel of x; what follows the last is out of all images too */
    int64_t dilation;
};

/* Pixels from the first to the last that a filter sees. */
static inline int64_t gemm_reach(const struct gemm_side *side) {
    return (side->positions - 1) * side->dilation + 1;
}

/* A computation on patches of an image, the same for each of `groups` groups: a convolution; its input gradient, which
 * reads dy and has the size of x; or its weight gradient, from x and dy, which has the size of the result.
 */
struct gemm_convolution {
    int64_t batch, groups;
    struct gemm_side y, x;
    int64_t depth;               /* channels of a group in the image that is read */
    int64_t filters;             /* those of the other image; in an input gradient the channels of x */
    int64_t in_pixel, out_pixel; /* elements from pixel to pixel of both: channels of all groups */
    bool gradient;               /* of the input */
};

/* --- depthwise ---------------------------------------------------------------------------------------------------- */

/* A convolution of groups of few channels. Its columns are the results of a pixel, or the filters of a weight gradient,
 * of all groups. */
struct gemm_depthwise {
    const struct fl_args *args;
    const void *image;         /* what is gathered */
    struct gemm_convolution v; /* of a group: v.filters columns, each of v.depth terms */
    int64_t columns;

    void *weights;   /* [r][s][term][column] */
    int64_t *source; /* of each column: the first channel of its group in the image */
};

struct gemm_depthwise_kernels {
    int weight_bytes; /* at most, for each weight */
    void (*pack)(const struct gemm_depthwise *t, int64_t position);
    void (*finish)(const struct gemm_depthwise *t); /* after all positions are packed; NULL: nothing */
    /* All results of `pixels` pixels of an output line, as whole sums or, in the memory of these, as limbs. */
    void (*line)(const struct gemm_depthwise *t, int64_t image, int64_t y, int64_t x, int64_t pixels,
                 struct gemm_sums *out);
    /* Filters first ... first + n - 1, n <= GEMM_DEPTHWISE_BLOCK, at all positions of rows r ... end - 1 and one term,
     * summed over all pixels; position s of row r of filter i is at i * stride + (r * S + s) * v.depth of out. */
    void (*weights)(const struct gemm_depthwise *t, int64_t r, int64_t end, int64_t term, int64_t first, int64_t n,
                    void *out, int64_t stride);
};

/* --- matrix tiles ------------------------------------------------------------------------------------------------- */

/* An instruction multiplies two tiles of 16 lines of 64 bytes and adds to 16 x 16 sums. Elements are kept in planes of
 * bytes (int16: all upper bytes, all lower ones), so a line holds `elements` of k, and a packed tile is one tile for
 * each plane, one after the other. Tiles of A: line i is row i. Tiles of B: its 4 bytes of column j in line g are those
 * of k bytes 4 g ... 4 g + 3. */

/* A line of an image as pixels of a weight gradient: packed position i is pixel first + i * step of it. */
struct gemm_matrix_pixels {
    const void *row; /* first channel wanted of pixel 0; NULL: all positions are zero */
    int64_t width;   /* pixels of the line; others are zero */
    int64_t pixel;   /* elements from pixel to pixel */
    int64_t first, step;
    int64_t channels;  /* wanted, 1 ... GEMM_MATRIX */
    int64_t positions; /* of them `valid` are not zero */
    int64_t valid;
};

struct gemm_matrix_kernels {
    int elements; /* of a line */
    int planes;
    int quad;       /* elements in 4 bytes of a plane: pixels in a line of a tile of B */
    int sum_words;  /* 32-bit words of the sums of a tile when they leave the registers */
    int64_t k_most; /* products after which sums have to be finished; 0: any number */

    /* Packs up to 16 lines of up to `elements` neighbours along k, `stride` elements apart, as a tile of A or of B. */
    void (*lines)(const void *from, int64_t stride, int64_t lines, int64_t k, bool columns, uint8_t *to);
    /* Packs `elements` rows of up to 16 neighbouring columns (of rows, if it is to be a tile of A); NULL: zeros. */
    void (*ranks)(const void *const *row, int64_t count, bool columns, uint8_t *to);
    /* The positions of a line, `quad` of them a line of a tile of B; planes lie `plane` bytes apart. */
    void (*pixels)(const struct gemm_matrix_pixels *line, uint8_t *to, int64_t plane);
    /* A tile of B, whose planes lie `plane` bytes apart, as a packed tile of A. */
    void (*turn)(const uint8_t *from, int64_t plane, uint8_t *to);
    /* n elements to bytes in planes. */
    void (*split)(const void *from, int64_t n, uint8_t *to, int64_t plane);
    /* Copies `count` lines, whose bytes begin `step` bytes apart. Bytes beyond the first `bytes` of them are multiplied
     * by zeros of B: they become zero if a product with zero may not be zero (floats), else any value. */
    void (*copy)(const uint8_t *from, int64_t from_plane, int64_t step, int64_t count, int64_t bytes, uint8_t *to,
                 int64_t to_plane);
    /* Both at once, where it is faster: `count` lines of the bytes from pixel first, first + 1, ... on, of an image
     * line of `width` pixels of `depth` elements, zeros outside. false, and nothing is done, where split and copy are
     * to do it. NULL: always. */
    bool (*windows)(const void *row, int64_t depth, int64_t first, int64_t width, int64_t count, uint8_t *to,
                    int64_t plane);

    /* sums = sum over steps of the tiles of A whose planes begin at a + offset[t] by those of B, which lie one after
     * the other. far: B is larger than the first-level cache. */
    void (*window_sums)(const uint8_t *a, int64_t plane, const int64_t *offset, int64_t steps, const uint8_t *b,
                        bool far, const struct gemm_meanwhile *meanwhile, int32_t *sums);
    /* sums (+)= sum over steps of the tiles of A, one after the other, by those of B at b + offset[t]. */
    void (*pixel_sums)(const uint8_t *a, const uint8_t *b, int64_t plane, const int64_t *offset, int64_t steps,
                       bool add, int32_t *sums);
    gemm_finish finish; /* from sums as these functions leave them */
};

/* --- stores ------------------------------------------------------------------------------------------------------- */

/* The sums of a tile as they left the registers: the `columns` sums of row i belong to the elements from element[i] on;
 * the row is unused if that is below zero. */
struct gemm_matrix_tile {
    const int32_t *sums;
    int64_t element[GEMM_MATRIX];
    int64_t columns;
};

/* Accumulators of a micro-kernel in rows `stride` apart: each is a sum less (owed + 1) 2^15, of which `high` has the
 * high limb (NULL if owed is 0). */
struct gemm_accumulated {
    const int32_t *sum, *high;
    int64_t stride, owed;
};

/* Stores sums as elements of the output, with the epilogue, rounded once; `stats` collects the statistics of a worker.
 */
struct gemm_stores {
    int element_bytes; /* of the output */
    int sum_bytes;     /* of a whole sum: int64, or binary32 */
    int stats_bytes;   /* zeros are the start */
    bool plain;        /* without an epilogue a sum is the element: rows and sums may lie in the output already */
    /* Elements first ... first + n - 1. */
    void (*sums)(const struct fl_args *args, int64_t first, int64_t n, const struct gemm_sums *sums, void *stats);
    /* `rows` rows of columns to elements first, first + pitch, ...; what lies in a row beyond its columns is 0. */
    void (*rows)(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows, int64_t columns,
                 const struct gemm_sums *sums, void *stats);
    /* The same from accumulators, which need no memory as sums; at most a pair of panels. false, and nothing is stored,
     * where that does not suffice. NULL: never. */
    bool (*accumulated)(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows, int64_t columns,
                        const struct gemm_accumulated *x, void *stats);
    void (*finish)(const struct fl_args *args, const void *stats); /* merges them into args->stats */
    /* Whether the call's sums can be stored from matrix tiles. NULL: never. */
    bool (*takes_matrix)(const struct fl_args *args);
    /* Bias and residual of `rows` rows of at most GEMM_MATRIX elements from `first` on, as starts of sums, where limbs
     * have room for them. NULL: sums begin with zero. */
    void (*matrix_start)(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows, int64_t columns,
                         int32_t *start);
    /* Rows from ... to - 1 of a tile, in the parts that gemm_meanwhile makes of it. */
    void (*matrix)(const struct fl_args *args, const struct gemm_matrix_tile *tile, int from, int to, void *stats);
};

/* A format on an instruction set. */
struct gemm_family {
    /* Sums have an order: k ascending, in chains of FL_K_CHUNK. Otherwise they are exact, accumulators have two limbs
     * and overflow must be excluded. */
    bool ordered;
    const struct gemm_kernels *kernels;
    const struct gemm_packing *packing;
    const struct gemm_depthwise_kernels *depthwise;
    const struct gemm_stores *stores;
    /* Convolutions, and exact sums of matmul, are computed on matrix tiles; NULL: on vectors. */
    const struct gemm_matrix_kernels *matrix;
};

/* --- the driver --------------------------------------------------------------------------------------------------- */

/* Bytes that a task needs besides its operands: common to all threads, and for each worker; there are no more workers
 * than parts of the work. */
struct gemm_workspace {
    size_t common, worker;
    int workers;
};

/* matmul, matmul_nt, matmul_tn, conv2d, conv2d_input_grad, conv2d_weight_grad. TENSOR_E_MEMORY without workspace; no
 * other failure, and nothing is written then. */
tensor_status fl_gemm(const struct gemm_family *family, const struct fl_args *args);

/* Whether the factors' mantissas are bytes: by their formats, and where the caller may have written others, by a look
 * at all of them. */
bool fl_gemm_takes_bytes(const struct fl_args *args);
/* The workspace of a task that `bytes` or `others` compute, which only fl_gemm_takes_bytes decides. */
size_t fl_gemm_need_of_either(const struct fl_args *args, size_t bytes, size_t others);

/* The workspace that fl_gemm takes for a task. */
size_t fl_gemm_need(const struct gemm_family *family, const struct fl_args *args);

#endif
