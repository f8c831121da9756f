/* block_bytes.c - dot products of bytes and words: panels of B, and the micro-tiles of a tile. */
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "blocks/block_task.h"
#include <math.h>
#include <string.h>

enum {
    STEPS = 512, /* of k that micro-tiles multiply before the next ones: their panels stay in the first-level cache */
    BEGIN_PART = 1024,
    PANELS_PART = 64
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t parts_of(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

static bool is_weight_gradient(const struct fl_block_matrices *m) {
    return m->args->op == FL_OP_CONV2D_WEIGHT_GRAD;
}

/* The largest element in units. */
static double largest_of(const struct fl_block_format *f) {
    return ldexp(f->element.largest, -f->element.unit);
}

const struct fl_block_bytes *fl_block_bytes_for(const struct fl_block_set *set, const struct fl_block_matrices *m,
                                                const struct fl_block_rows *a, const struct fl_block_rows *b) {
    const struct fl_windows *w = &m->args->p.product.windows;
    const double x = largest_of(a->format), y = largest_of(b->format);
    if (is_weight_gradient(m) && w->c / w->groups % FL_BYTES_LANES) /* panels are 16 channels of a pixel of x */
        return NULL;
    if (a->width != b->width || a->blocks != b->blocks || a->width % 4)
        return NULL;
    if (set->bytes && a->format->bytes && b->format->bytes)
        return set->bytes;
    return x <= INT16_MAX && y <= INT16_MAX && x * y * a->width <= INT32_MAX ? set->words : NULL;
}

/* --- panels ---------------------------------------------------------------------------------------------------------
 */

static int64_t panels_of(const struct fl_block_matrices *m, const struct fl_block_rows *b) {
    return is_weight_gradient(m) ? b->rows / FL_BYTES_LANES : m->problems * parts_of(m->n, FL_BYTES_LANES) * m->pieces;
}

/* The panel of the 16 columns from `column` on; -1: zeros. */
static int64_t panel_at(const struct fl_block_matrices *m, int64_t problem, int64_t column, int64_t piece) {
    if (!is_weight_gradient(m))
        return (problem * parts_of(m->n, FL_BYTES_LANES) + column / FL_BYTES_LANES) * m->pieces + piece;
    int64_t row;
    fl_block_rows_of_b(m, problem, column, 1, piece, &row);
    return row < 0 ? -1 : row / FL_BYTES_LANES;
}

static size_t panel_bytes(const struct fl_block_bytes *dots, const struct fl_block_rows *b) {
    return fl_line_bytes((size_t)(b->blocks * b->width) * FL_BYTES_LANES * dots->element_bytes);
}

/* Bytes of a row of A that is converted, and of all of them with a row of zeros; 0: it is not. */
static size_t row_bytes(const struct fl_block_bytes *dots, const struct fl_block_rows *a) {
    return dots->element_bytes > 1 ? (size_t)(a->blocks * a->width) * dots->element_bytes : 0;
}

static size_t rows_bytes(const struct fl_block_bytes *dots, const struct fl_block_rows *a) {
    return fl_line_bytes((size_t)(a->rows + 1) * row_bytes(dots, a));
}

static size_t panel_scales(const struct fl_block_rows *b) {
    return (size_t)b->blocks * FL_BYTES_LANES;
}

size_t fl_block_bytes_need(const struct fl_block_bytes *dots, const struct fl_block_matrices *m,
                           const struct fl_block_rows *a, const struct fl_block_rows *b) {
    const size_t panels = (size_t)panels_of(m, b) + 1, blocks = (size_t)((a->rows + 1) * a->blocks);
    return panels * (panel_bytes(dots, b) + panel_scales(b) * (sizeof(double) + sizeof(int32_t))) +
           fl_line_bytes(blocks * sizeof(struct fl_bytes_block)) + rows_bytes(dots, a);
}

size_t fl_block_bytes_before(const struct fl_block_rows *a) {
    return fl_line_bytes((size_t)(a->blocks * a->width));
}

static void pack_part(void *context, int part, int worker) {
    (void)worker;
    const struct fl_block_task *t = context;
    const struct fl_block_matrices *m = &t->matrices;
    const struct fl_block_rows *b = &t->in[1].rows;
    const int64_t first = (int64_t)part * PANELS_PART, end = smaller(panels_of(m, b), first + PANELS_PART),
                  across = parts_of(m->n, FL_BYTES_LANES);
    for (int64_t i = first; i < end; i++) {
        int64_t rows[FL_BYTES_LANES];
        int count = FL_BYTES_LANES;
        if (is_weight_gradient(m)) {
            for (int j = 0; j < FL_BYTES_LANES; j++)
                rows[j] = i * FL_BYTES_LANES + j;
        } else {
            const int64_t column = i / m->pieces % across * FL_BYTES_LANES;
            count = (int)smaller(count, m->n - column);
            fl_block_rows_of_b(m, i / m->pieces / across, column, count, i % m->pieces, rows);
        }
        t->panels.dots->pack(b, rows, count, t->panels.elements + (size_t)i * t->panels.panel_bytes,
                             t->panels.scales + (size_t)i * t->panels.panel_scales,
                             t->panels.shifts + (size_t)i * t->panels.panel_scales);
    }
}

static void begin_part(void *context, int part, int worker) {
    (void)worker;
    const struct fl_block_task *t = context;
    const int64_t first = (int64_t)part * BEGIN_PART, rows = t->in[0].rows.rows;
    t->panels.dots->begin(&t->in[0].rows, first, smaller(BEGIN_PART, rows - first), t->panels.blocks,
                          (void *)(uintptr_t)t->panels.rows);
}

void fl_block_bytes_begin(struct fl_block_task *t, int workers, char *memory) {
    const struct fl_block_rows *a = &t->in[0].rows, *b = &t->in[1].rows;
    struct fl_block_panels *p = &t->panels;
    const bool converts = p->dots->element_bytes > 1;
    const size_t panels = (size_t)panels_of(&t->matrices, b), length = (size_t)(a->blocks * a->width);
    p->panel_bytes = panel_bytes(p->dots, b);
    p->panel_scales = panel_scales(b);
    p->elements = memory;
    memory += (panels + 1) * p->panel_bytes;
    p->scales = (double *)(void *)memory;
    memory += (panels + 1) * p->panel_scales * sizeof(double);
    p->shifts = (int32_t *)(void *)memory;
    memory += (panels + 1) * p->panel_scales * sizeof(int32_t);
    p->blocks = (struct fl_bytes_block *)(void *)memory + a->blocks; /* a row of zeros lies before them */
    memory += fl_line_bytes((size_t)((a->rows + 1) * a->blocks) * sizeof *p->blocks);
    memset(p->elements + panels * p->panel_bytes, converts ? 0 : 128, p->panel_bytes);
    memset(p->scales + panels * p->panel_scales, 0, p->panel_scales * sizeof(double));
    memset(p->shifts + panels * p->panel_scales, 0, p->panel_scales * sizeof(int32_t));
    memset(p->blocks - a->blocks, 0, (size_t)a->blocks * sizeof *p->blocks);
    memset(converts ? memory : (char *)a->bytes - length, 0, converts ? row_bytes(p->dots, a) : length);
    p->rows = converts ? memory + row_bytes(p->dots, a) : (void *)a->bytes;
    p->zero_panel = (struct fl_bytes_panel){p->elements + panels * p->panel_bytes, p->scales + panels * p->panel_scales,
                                            p->shifts + panels * p->panel_scales};
    fl_parallel_within(workers, (int)parts_of(a->rows, BEGIN_PART), begin_part, t);
    fl_parallel_within(workers, (int)parts_of((int64_t)panels, PANELS_PART), pack_part, t);
}

/* --- tiles ----------------------------------------------------------------------------------------------------------
 */

static void find_places(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at,
                        int64_t first, int64_t pieces) {
    for (int64_t i = 0; i < pieces; i++) {
        fl_block_rows_of_a(&t->matrices, at->problem, at->row, at->rows, first + i, w->places[i]);
        for (int j = at->rows; j < FL_DOUBLES_ROWS && j % 8; j++)
            w->places[i][j] = -1;
        for (int v = 0; v * FL_BYTES_LANES < at->columns; v++) {
            const int64_t panel = panel_at(&t->matrices, at->problem, at->column + v * FL_BYTES_LANES, first + i);
            w->panel[i][v] = panel < 0
                                 ? t->panels.zero_panel
                                 : (struct fl_bytes_panel){t->panels.elements + (size_t)panel * t->panels.panel_bytes,
                                                           t->panels.scales + (size_t)panel * t->panels.panel_scales,
                                                           t->panels.shifts + (size_t)panel * t->panels.panel_scales};
        }
    }
}

void fl_block_bytes_add(const struct fl_block_task *t, struct fl_block_work *w, const struct fl_block_tile *at) {
    const struct fl_block_rows *a = &t->in[0].rows;
    struct fl_bytes_tile tile = {.rows = at->rows,
                                 .panels = (int)parts_of(at->columns, FL_BYTES_LANES),
                                 .width = a->width,
                                 .row_blocks = a->blocks,
                                 .elements = t->panels.rows,
                                 .starts = t->panels.blocks,
                                 .places = w->places,
                                 .panel = w->panel,
                                 .high = w->tile.high,
                                 .low = w->tile.low,
                                 .sigma = w->tile.sigma,
                                 .unit = t->panels.unit};
    for (int64_t first = 0; first < t->matrices.pieces; first += tile.pieces) {
        tile.pieces = smaller(FL_BYTES_PIECES, t->matrices.pieces - first);
        const int64_t fitting = STEPS / (tile.pieces * a->width), most = fitting > 0 ? fitting : 1;
        find_places(t, w, at, first, tile.pieces);
        for (tile.first = 0; tile.first < a->blocks; tile.first += tile.blocks) {
            tile.blocks = smaller(most, a->blocks - tile.first);
            t->panels.dots->add(&tile);
        }
    }
}
