/* block_product.c - products of blocks: the memory of a task, its operands, and the tiles that workers compute.
 *
 * A tile is a few dozen rows by as many columns of one problem. Its sums are those of the first kernel that holds them
 * by proof: doubles on one grid, two doubles on two grids, and exact sums in digits for each result. */
#include "blocks/block_product.h"
#include "blocks/block_sum.h"
#include "blocks/block_task.h"
#include "core/arithmetic/exact.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/table/operand_floats.h"
#include "core/table/operands.h"
#include <math.h>
#include <string.h>

enum { BOUND_PART = 1024 /* rows */, PARTS_FOR_THREAD = 4 };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t parts_of(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

static struct fl_block_set kernels_of(void) {
    enum fl_backend cap = FL_PORTABLE;
    if (fl_backend_cap(&cap))
        cap = FL_PORTABLE;
#ifdef FL_HAVE_AVX512
    if (cap >= FL_AVX512BW && fl_backend_runs(FL_AVX512BW))
        return cap >= FL_AVX512 && fl_backend_runs(FL_AVX512)
                   ? (struct fl_block_set){&fl_block_doubles_avx512bw, &fl_block_bytes_avx512, &fl_block_words_avx512,
                                           fl_gemm_store_pairs_avx512bw}
                   : (struct fl_block_set){&fl_block_doubles_avx512bw, NULL, &fl_block_words_avx512bw,
                                           fl_gemm_store_pairs_avx512bw};
#endif
#ifdef FL_HAVE_AVX2
    if (cap >= FL_AVX2 && fl_backend_runs(FL_AVX2))
        return (struct fl_block_set){&fl_block_doubles_avx2, NULL, &fl_block_words_avx2, fl_gemm_store_pairs_avx2};
#endif
    return (struct fl_block_set){&fl_block_doubles_portable, NULL, NULL, fl_gemm_store_pairs_portable};
}

/* --- operands ---------------------------------------------------------------------------------------------------- */

static size_t place_rows(const struct fl_args *args, const struct fl_block_source *s, int i,
                         struct fl_block_rows *rows) {
    return fl_block_place(rows, fl_class_operands(args->p.product.exactness, i), s->outer, s->k, s->inner, NULL);
}

static size_t bounds_bytes(const struct fl_block_source *s) {
    return fl_line_bytes((size_t)(s->outer * s->inner) * sizeof(struct fl_block_bound));
}

struct bounding {
    const struct fl_block_doubles *kernels;
    struct fl_block_operand *of;
};

static void bound_part(void *context, int part, int worker) {
    (void)worker;
    const struct bounding *b = context;
    const int64_t first = (int64_t)part * BOUND_PART, end = smaller(b->of->rows.rows, first + BOUND_PART);
    for (int64_t i = first; i < end; i++)
        b->kernels->bound(&b->of->rows, i, &b->of->bounds[i]);
}

/* Decodes and quantises operand i into memory, of which it returns the rest. */
static char *take_operand(struct fl_block_task *t, int i, int workers, char *memory) {
    const struct fl_args *args = t->matrices.args;
    const struct fl_block_source *s = &t->matrices.source[i];
    const struct fl_block_format *format = fl_class_operands(args->p.product.exactness, i);
    const float *const x = fl_operand_floats(args, i, true, workers, memory);
    memory += fl_operand_floats_bytes(args, i);
    const struct fl_block_how how = {.key = fl_operand_key(args, i),
                                     .write = args->rounding.write,
                                     .signs = fl_signs_key(args),
                                     .square_length = s->square_length,
                                     .square_step = s->square_step,
                                     .channel_length = s->channel_length,
                                     .channel_step = s->channel_step};
    (void)fl_block_place(&t->in[i].rows, format, s->outer, s->k, s->inner, NULL);
    memory += i == 0 ? fl_block_bytes_before(&t->in[i].rows) : 0;
    memory += fl_block_place(&t->in[i].rows, format, s->outer, s->k, s->inner, memory);
    fl_block_quantise(format, x, s->outer, s->k, s->inner, &how, &t->in[i].rows);
    t->in[i].bounds = (struct fl_block_bound *)(void *)memory;
    return memory + bounds_bytes(s);
}

static void find_bounds(struct fl_block_task *t, int i, int workers) {
    struct bounding b = {t->kernels.values, &t->in[i]};
    fl_parallel_within(workers, (int)parts_of(t->in[i].rows.rows, BOUND_PART), bound_part, &b);
}

/* --- a tile --------------------------------------------------------------------------------------------------------
 */

static struct fl_block_tile place_of(const struct fl_block_task *t, int64_t part) {
    const struct fl_block_matrices *m = &t->matrices;
    const int64_t panel = part % t->columns, line = part / t->columns % t->lines;
    struct fl_block_tile at = {part / t->columns / t->lines, line * t->tile_rows, panel * FL_DOUBLES_COLUMNS, 0, 0};
    at.rows = (int)smaller(t->tile_rows, m->m - at.row);
    at.columns = (int)smaller(FL_DOUBLES_COLUMNS, m->n - at.column);
    return at;
}

static void find_rows(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at,
                      int64_t piece) {
    fl_block_rows_of_a(&t->matrices, at->problem, at->row, at->rows, piece, w->rows);
    fl_block_rows_of_b(&t->matrices, at->problem, at->column, at->columns, piece, w->columns);
}

/* Adds the bounds of rows at a piece. */
static void add_bounds(const struct fl_block_operand *from, const int64_t *rows, int count, double *squares,
                       int *unit) {
    for (int i = 0; i < count; i++)
        if (rows[i] >= 0) {
            const struct fl_block_bound *b = &from->bounds[rows[i]];
            squares[i] += b->squares;
            *unit = b->unit < *unit ? b->unit : *unit;
        }
}

static double largest(const double *x, int n) {
    double most = 0;
    for (int i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

/* Chooses sigma: 0 where 53 bits hold sums of such rows; else that of two grids. False: neither holds them. */
static bool grids_for(const struct fl_block_task *t, struct fl_block_bound a, struct fl_block_bound b, double *sigma) {
    *sigma = 0;
    if (a.unit == FL_NO_UNIT || b.unit == FL_NO_UNIT)
        return true; /* all products are 0 or NaN */
    /* |sum| <= the product of two Euclidean norms (Cauchy and Schwarz), with room for its rounding */
    const double bound = sqrt(a.squares) * sqrt(b.squares) * (1 + 0x1p-20);
    const int unit = a.unit + b.unit;
    int bits, count;
    (void)frexp(bound, &bits); /* bound < 2^bits */
    if (bits - unit <= 53)
        return true;
    /* Each product leaves at most 2^(grid - 1) to the low sum, which 53 bits hold above the unit; the high sums, those
     * that sigma itself takes part in too, stay below 2^(grid + 51). */
    (void)frexp(t->terms, &count);
    const int grid = unit + 54 - count;
    *sigma = ldexp(1.5, grid + 52);
    return bits - grid <= 50;
}

static bool choose_grids(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at,
                         double *sigma) {
    double a[FL_DOUBLES_ROWS] = {0}, b[FL_DOUBLES_COLUMNS] = {0};
    int unit_a = FL_NO_UNIT, unit_b = FL_NO_UNIT;
    *sigma = 0;
    if (t->one_grid)
        return true;
    for (int64_t piece = 0; piece < t->matrices.pieces; piece++) {
        find_rows(t, w, at, piece);
        add_bounds(&t->in[0], w->rows, at->rows, a, &unit_a);
        add_bounds(&t->in[1], w->columns, at->columns, b, &unit_b);
    }
    return grids_for(t, (struct fl_block_bound){largest(a, at->rows), unit_a},
                     (struct fl_block_bound){largest(b, at->columns), unit_b}, sigma);
}

/* What the exponents of all blocks and the format say of every row: much more than the elements do, and at no cost. */
static struct fl_block_bound surely(const struct fl_block_task *t, const struct fl_block_rows *rows) {
    const struct fl_element *e = &rows->format->element;
    if (rows->least_exponent > rows->most_exponent)
        return (struct fl_block_bound){0, FL_NO_UNIT};
    const double most = ldexp(e->largest, rows->most_exponent) * (rows->significands ? 15 : 1);
    return (struct fl_block_bound){most * most * t->terms, e->unit + rows->least_exponent};
}

/* A sum of channels is one of elements, times two scales. */
static bool elements_fit(const struct fl_block_task *t) {
    struct fl_block_bound of[2];
    double sigma;
    for (int i = 0; i < 2; i++) {
        const struct fl_element *e = &t->in[i].rows.format->element;
        if (t->in[i].rows.format->block)
            return false;
        of[i] = (struct fl_block_bound){e->largest * e->largest * t->terms, e->unit};
    }
    return grids_for(t, of[0], of[1], &sigma) && sigma == 0;
}

static bool fits_surely(const struct fl_block_task *t) {
    double sigma;
    if (elements_fit(t))
        return true;
    return grids_for(t, surely(t, &t->in[0].rows), surely(t, &t->in[1].rows), &sigma) && sigma == 0;
}

/* The unit of sums that fit integers of 32 bits; 0: they may not, or some are NaN. */
static double unit_of_integers(const struct fl_block_task *t) {
    const struct fl_block_bound a = surely(t, &t->in[0].rows), b = surely(t, &t->in[1].rows);
    if (t->in[0].rows.significands || t->in[1].rows.significands || t->in[0].rows.has_nan || t->in[1].rows.has_nan ||
        a.unit == FL_NO_UNIT || b.unit == FL_NO_UNIT)
        return 0;
    const double unit = ldexp(1, a.unit + b.unit);
    return sqrt(a.squares) * sqrt(b.squares) * (1 + 0x1p-20) < 0x1p31 * unit ? unit : 0;
}

/* Whether one grid holds every sum, as the largest row of each operand at every piece would have it. */
static bool holds_all(struct fl_block_task *t) {
    double sigma;
    for (int i = 0; i < 2; i++) {
        struct fl_block_operand *o = &t->in[i];
        o->all = (struct fl_block_bound){0, FL_NO_UNIT};
        for (int64_t r = 0; r < o->rows.rows; r++) {
            o->all.squares = o->bounds[r].squares > o->all.squares ? o->bounds[r].squares : o->all.squares;
            o->all.unit = o->bounds[r].unit < o->all.unit ? o->bounds[r].unit : o->all.unit;
        }
        o->all.squares *= (double)t->matrices.pieces;
    }
    return grids_for(t, t->in[0].all, t->in[1].all, &sigma) && sigma == 0;
}

/* Elements of a row of both operands, zeros included: their blocks may differ. */
static int64_t length_of(const struct fl_block_task *t) {
    const struct fl_block_rows *a = &t->in[0].rows, *b = &t->in[1].rows;
    return a->blocks * a->width > b->blocks * b->width ? a->blocks * a->width : b->blocks * b->width;
}

static void add_values(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at) {
    struct fl_doubles_tile *tile = &w->tile;
    const int64_t length = length_of(t);
    tile->rows = at->rows;
    tile->columns = at->columns;
    tile->steps = 0;
    for (int64_t piece = 0; piece < t->matrices.pieces; piece++) {
        find_rows(t, w, at, piece);
        for (int64_t first = 0, some; first < length; first += some) {
            some = smaller(length - first, FL_DOUBLES_STEPS - tile->steps);
            t->kernels.values->rows(&t->in[0].rows, w->rows, at->rows, first, some, &tile->a[0][tile->steps],
                                    FL_DOUBLES_STEPS);
            t->kernels.values->columns(&t->in[1].rows, w->columns, at->columns, first, some, &tile->b[tile->steps]);
            tile->steps += (int)some;
            if (tile->steps == FL_DOUBLES_STEPS) {
                t->kernels.values->add(tile);
                tile->steps = 0;
            }
        }
    }
    if (tile->steps)
        t->kernels.values->add(tile);
}

/* --- sums in digits ------------------------------------------------------------------------------------------------
 */

/* Element i of a row as an integer, and the exponent of its unit. False: it is NaN. */
static bool element_of(const struct fl_block_rows *rows, int64_t row, int64_t i, struct fl_term *x) {
    *x = (struct fl_term){0, 0};
    if (row < 0 || i >= rows->blocks * rows->width)
        return true;
    const int64_t at = row * rows->blocks + i / rows->width;
    const int significand = rows->significands ? rows->significands[at] : 1, exponent = rows->exponents[at];
    if (exponent == FL_BLOCK_ZERO || exponent == FL_BLOCK_NAN)
        return exponent == FL_BLOCK_ZERO;
    if (rows->bytes)
        *x = (struct fl_term){rows->bytes[row * rows->blocks * rows->width + i], -rows->format->element.unit};
    else
        *x = fl_term_of(rows->floats[row * rows->blocks * rows->width + i]);
    x->m *= significand;
    x->e -= exponent;
    return true;
}

/* Adds the products of two rows. False: one of them is NaN. */
static bool add_products(const struct fl_block_task *t, struct fl_block_sum *sum, int64_t row, int64_t column) {
    const int64_t length = length_of(t);
    for (int64_t i = 0; i < length; i++) {
        struct fl_term x, y;
        if (!element_of(&t->in[0].rows, row, i, &x) || !element_of(&t->in[1].rows, column, i, &y))
            return false;
        if (x.m && y.m)
            fl_block_sum_add(sum, x.m * y.m, -x.e - y.e);
    }
    return true;
}

static void sum_digits(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at) {
    struct fl_doubles_tile *tile = &w->tile;
    for (int i = 0; i < at->rows; i++)
        for (int j = 0; j < at->columns; j++) {
            struct fl_block_sum sum;
            bool finite = true;
            fl_block_sum_begin(&sum);
            for (int64_t piece = 0; finite && piece < t->matrices.pieces; piece++) {
                fl_block_rows_of_a(&t->matrices, at->problem, at->row + i, 1, piece, w->rows);
                fl_block_rows_of_b(&t->matrices, at->problem, at->column + j, 1, piece, w->columns);
                finite = add_products(t, &sum, w->rows[0], w->columns[0]);
            }
            fl_block_sum_end(&sum, &tile->high[i][j], &tile->low[i][j]);
            if (!finite)
                tile->high[i][j] = (double)NAN;
        }
}

/* --- results -------------------------------------------------------------------------------------------------------
 */

/* Multiplies a sum by the tensor scales, exactly. */
static void scale_pair(const struct fl_block_task *t, double *high, double *low) {
    const double product = *high * t->scale;
    if (*low == 0 || product - product != 0) {
        *low = product - product == 0 ? fma(*high, t->scale, -product) : 0;
        *high = product;
        return;
    }
    struct fl_block_sum sum;
    fl_block_sum_begin(&sum);
    for (int i = 0; i < 2; i++) {
        int exponent;
        const double x = i ? *low : *high, m = frexp(x, &exponent);
        fl_block_sum_add(&sum, (int64_t)ldexp(m, 53), exponent - 53);
    }
    fl_block_sum_scale(&sum, t->in[0].rows.tensor_scale);
    fl_block_sum_scale(&sum, t->in[1].rows.tensor_scale);
    fl_block_sum_end(&sum, high, low);
}

/* Brings rows of sums together, so that results that are neighbours are stored at once. */
static void close_up(double (*sums)[FL_DOUBLES_COLUMNS], int rows, int columns) {
    for (int i = 1; i < rows && columns < FL_DOUBLES_COLUMNS; i++)
        memmove(sums[0] + i * columns, sums[i], (size_t)columns * sizeof(double));
}

static void store(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at, bool wide) {
    struct fl_doubles_tile *tile = &w->tile;
    const bool scaled = t->scale != 1, low = scaled || wide;
    const int64_t pitch = t->matrices.pitch,
                  first = fl_block_first_result(&t->matrices, at->problem) + at->row * pitch + at->column;
    for (int i = 0; scaled && i < at->rows; i++)
        for (int j = 0; j < at->columns; j++) {
            if (!wide)
                tile->low[i][j] = 0;
            scale_pair(t, &tile->high[i][j], &tile->low[i][j]);
        }
    if (at->columns == pitch) {
        close_up(tile->high, at->rows, at->columns);
        if (low)
            close_up(tile->low, at->rows, at->columns);
        t->kernels.store(t->matrices.args, first, at->rows * pitch, tile->high[0], low ? tile->low[0] : NULL,
                         &w->stats);
        return;
    }
    for (int i = 0; i < at->rows; i++)
        t->kernels.store(t->matrices.args, first + i * pitch, at->columns, tile->high[i], low ? tile->low[i] : NULL,
                         &w->stats);
}

static struct fl_block_work *work_of(const struct fl_block_task *t, int worker) {
    return (struct fl_block_work *)(void *)(t->work + (size_t)worker * fl_line_bytes(sizeof(struct fl_block_work)));
}

/* Whole vectors of columns, and eight rows. */
static void clear(double (*sums)[FL_DOUBLES_COLUMNS], int rows, int columns) {
    const int whole = (columns + FL_BYTES_LANES - 1) / FL_BYTES_LANES * FL_BYTES_LANES;
    for (int i = 0; i < (rows + 7) / 8 * 8; i++)
        memset(sums[i], 0, (size_t)whole * sizeof sums[i][0]);
}

static void run_part(void *context, int part, int worker) {
    const struct fl_block_task *t = context;
    struct fl_block_work *w = work_of(t, worker);
    const struct fl_block_tile at = place_of(t, part);
    const bool holds = choose_grids(t, w, &at, &w->tile.sigma), wide = !holds || w->tile.sigma != 0;
    if (holds) {
        clear(w->tile.high, at.rows, at.columns);
        if (wide)
            clear(w->tile.low, at.rows, at.columns);
        if (t->panels.dots)
            fl_block_bytes_add(t, w, &at);
        else
            add_values(t, w, &at);
    } else {
        sum_digits(t, w, &at);
    }
    store(t, w, &at, wide);
}

/* --- a task --------------------------------------------------------------------------------------------------------
 */

static int workers_of(const struct fl_args *args) {
    return args->workers ? args->workers : fl_threads();
}

size_t fl_block_product_need(const struct fl_args *args) {
    const struct fl_block_matrices m = fl_block_matrices_of(args);
    struct fl_block_rows rows[2];
    size_t bytes = (size_t)workers_of(args) * fl_line_bytes(sizeof(struct fl_block_work));
    for (int i = 0; i < 2; i++)
        bytes +=
            fl_operand_floats_bytes(args, i) + place_rows(args, &m.source[i], i, &rows[i]) + bounds_bytes(&m.source[i]);
    const struct fl_block_set set = kernels_of();
    const struct fl_block_bytes *dots = fl_block_bytes_for(&set, &m, &rows[0], &rows[1]);
    return bytes + fl_block_bytes_before(&rows[0]) + (dots ? fl_block_bytes_need(dots, &m, &rows[0], &rows[1]) : 0);
}

/* Tiles small enough that all threads have work: results do not depend on them. */
static void divide(struct fl_block_task *t, int workers) {
    const struct fl_block_matrices *m = &t->matrices;
    t->columns = parts_of(m->n, FL_DOUBLES_COLUMNS);
    t->tile_rows = FL_DOUBLES_ROWS;
    while (t->tile_rows > 8 && workers > 1 &&
           parts_of(m->m, t->tile_rows) * t->columns * m->problems < PARTS_FOR_THREAD * workers)
        t->tile_rows /= 2;
    t->lines = parts_of(m->m, t->tile_rows);
}

tensor_status fl_block_product(const struct fl_args *args) {
    const int workers = workers_of(args);
    char *memory = fl_workspace(args, fl_block_product_need(args));
    if (!memory)
        return TENSOR_E_MEMORY;
    struct fl_block_task t = {.matrices = fl_block_matrices_of(args), .kernels = kernels_of(), .work = memory};
    memory += (size_t)workers * fl_line_bytes(sizeof(struct fl_block_work));
    for (int i = 0; i < 2; i++)
        memory = take_operand(&t, i, workers, memory);
    t.scale = (double)t.in[0].rows.tensor_scale * (double)t.in[1].rows.tensor_scale;
    t.terms = (double)(t.matrices.pieces * length_of(&t));
    t.panels.dots = fl_block_bytes_for(&t.kernels, &t.matrices, &t.in[0].rows, &t.in[1].rows);
    if (t.panels.dots)
        fl_block_bytes_begin(&t, workers, memory);
    t.panels.unit = unit_of_integers(&t);
    t.one_grid = fits_surely(&t);
    if (!t.one_grid) {
        find_bounds(&t, 0, workers);
        find_bounds(&t, 1, workers);
        t.one_grid = holds_all(&t);
    }
    divide(&t, workers);
    for (int i = 0; i < workers; i++)
        work_of(&t, i)->stats = (struct fl_stats){0};
    fl_parallel_within(workers, (int)(t.matrices.problems * t.lines * t.columns), run_part, &t);
    for (int i = 0; i < workers; i++)
        fl_stats_merge(args->stats, &work_of(&t, i)->stats);
    return TENSOR_OK;
}
