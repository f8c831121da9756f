/* gemm_matmul.c - matmul, matmul_nt and matmul_tn of packed panels (docs/decisions/0009-packed-panels.md).
 *
 * One operand is packed once for all threads (the common one); the other is cut into parts, each small enough to stay
 * in the cache of the thread that computes it. Either may be the common one: usually A, or B if it is small and A long.
 * A part takes its panels of A in bands. For each block of k it adds the products of the band's panels by all columns
 * of the part to sums that stay in the cache; the first band packs the part's own operand, block by block, right before
 * its first use. The sums of a band are then rounded and stored; exact sums of one block of k are stored pair by pair,
 * from the accumulators.
 *
 * Where the products of a sequence share B, and A is the common operand, the first one keeps the packed panels of B for
 * the others. */
#include "core/base/parallel.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_epilogue.h"
#include <string.h>

enum {
    BLOCK = FL_K_CHUNK,      /* steps of a block of k: its panel of A stays in L1; with one of twice as many,
                                2048^3 of mantissas on tiles takes 1.2 times as long */
    PART_BYTES = 256 * 1024, /* of a block of the columns of a part: they stay in L2 */
    PARTS = 8,               /* least number of parts, if the panels allow it */
    PART_COLUMNS = 16,       /* most panels of B in a part, and of A */
    PART_ROWS = 16,
    BAND = 24,                       /* panels of A whose sums remain in the cache while the blocks of k are added */
    MATRIX_PART_BYTES = 1024 * 1024, /* of the operand that is cut, in a part, for matrix tiles */
    MATRIX_PANELS_LEAST = 8,         /* least number of its panels */
    MATRIX_PANELS_MOST = 32,
    MATRIX_BYTES = 384 * 1024, /* of sums as matrix tiles store them */
    COMMON_PANELS = 8          /* panels of the common operand packed at a time */
};

struct matmul {
    struct gemm_call *c;
    int64_t m, n;
    struct gemm_operand a, b;
    bool common_a;
    int64_t blocks, steps;     /* of k */
    int64_t panels, parts;     /* of the operand that is cut: panels in a part; parts */
    gemm_packed *packed;       /* the common operand */
    struct gemm_bound *bounds; /* `blocks` for each panel */
    gemm_packed *bytes;        /* the same for the mod-255 check, for the blocks that will probably need it */
    bool *bytes_made;
    gemm_packed *kept; /* all of B, kept from product to product; NULL: it is not */
    struct gemm_bound *kept_bounds;
    bool is_kept; /* an earlier product packed it */
};

/* Whether panels have bounds or starts. */
static bool has_bounds(const struct matmul *t) {
    return t->c->packing->bound_panel || t->c->kernels->starts;
}

static const struct gemm_operand *common_operand(const struct matmul *t) {
    return t->common_a ? &t->a : &t->b;
}

static const struct gemm_operand *cut_operand(const struct matmul *t) {
    return t->common_a ? &t->b : &t->a;
}

static int64_t block_steps(const struct matmul *t) {
    return gemm_min(t->steps, BLOCK);
}

/* The size of a block of the common operand as bytes. */
static int64_t common_bytes_size(const struct matmul *t) {
    return gemm_bytes_size(t->c->kernels, common_operand(t)->width, block_steps(t));
}

/* Packs and bounds block `block` of k of some panels of an operand. */
static void matmul_pack_block(const struct matmul *t, const struct gemm_operand *s, int64_t first, int64_t panels,
                              int64_t block, gemm_packed *packed, struct gemm_bound *bounds) {
    const struct gemm_packing *packing = t->c->packing;
    const int64_t step = block * BLOCK, steps = gemm_min(BLOCK, t->steps - step);
    gemm_packed *at = packed + step * s->width;
    const int64_t together = s->k_stride == 1 ? 1 : panels; /* lines adjacent in memory are packed together */
    for (int64_t p = 0; p < panels; p++) {
        if (p % together == 0)
            packing->panels(s, first + p, together, step, steps, at + p * s->panel_size);
        if (packing->bound_panel)
            packing->bound_panel(at + p * s->panel_size, s->width, steps, &bounds[p * t->blocks + block]);
        if (t->c->kernels->starts && s->columns)
            t->c->kernels->starts(at + p * s->panel_size, &(const struct gemm_segment){.steps = steps}, 1, false,
                                  s->width, s->width, bounds[p * t->blocks + block].start);
    }
}

static void matmul_pack_common(void *context, int part, int worker) {
    (void)worker;
    const struct matmul *t = context;
    const struct gemm_operand *s = common_operand(t);
    const int64_t first = (int64_t)part * COMMON_PANELS, panels = gemm_min(COMMON_PANELS, s->panels - first);
    for (int64_t block = 0; block < t->blocks; block++)
        matmul_pack_block(t, s, first, panels, block, t->packed + first * s->panel_size, t->bounds + first * t->blocks);
    if (!t->c->kernels->bytes)
        return;
    for (int64_t i = first * t->blocks; i < (first + panels) * t->blocks; i++) {
        const int64_t step = i % t->blocks * BLOCK, steps = gemm_min(BLOCK, t->steps - step);
        t->bytes_made[i] = fl_gemm_will_want_bytes(t->c->family, &t->bounds[i]);
        if (t->bytes_made[i])
            t->c->kernels->pack_bytes(t->packed + i / t->blocks * s->panel_size + step * s->width, s->width, steps,
                                      t->common_a, t->bytes + i * common_bytes_size(t));
    }
}

/* The memory of one worker. */
struct matmul_worker {
    gemm_packed *packed;
    struct gemm_bound *bounds;
    struct gemm_sums sums;          /* of a band of A by the part's columns */
    gemm_packed *a_bytes, *b_bytes; /* for the mod-255 check: of one block of A; of every block of B in the part */
    bool *b_made;
    struct gemm_accumulators *accumulators;
    int32_t *matrix; /* sums of a band as matrix tiles store them: [panel of A][panel of B] */
    int32_t *starts; /* of the sums on matrix tiles: for each panel of B, or for two tiles */
};

static int64_t part_column_panels(const struct matmul *t) {
    return t->common_a ? t->panels : t->b.panels;
}

/* The kernels whose exact sums remain in the layout of matrix tiles until they are stored; NULL: none. */
static const struct gemm_matrix_kernels *matrix_of(const struct matmul *t) {
    return t->c->family->ordered ? NULL : t->c->family->matrix;
}

/* Whether each pair of panels is stored as soon as it is computed. */
static bool stores_pairs(const struct matmul *t) {
    return t->blocks == 1 && !t->c->family->ordered && !t->c->family->matrix && t->c->stores->accumulated;
}

/* The number of panels of A in a band; if k has one block, one panel is enough. */
static int64_t band_panels(const struct matmul *t) {
    const struct gemm_matrix_kernels *matrix = matrix_of(t);
    if (matrix && t->blocks > 1)
        return gemm_max(MATRIX_BYTES / (part_column_panels(t) * matrix->sum_words * (int64_t)sizeof(int32_t)), 1);
    return t->blocks == 1 ? 1 : gemm_min(BAND, t->common_a ? t->a.panels : t->panels);
}

/* The tiles of sums of a panel of A: all of its tiles, if they are to be continued by the next block of k, else two,
 * one of which is stored while the other is computed. */
static int64_t matrix_tiles(const struct matmul *t) {
    return t->blocks == 1 ? 2 : part_column_panels(t);
}

static struct matmul_worker lay_out_worker(const struct matmul *t, struct gemm_arena *arena) {
    const struct gemm_family *family = t->c->family;
    const struct gemm_kernels *k = t->c->kernels;
    const int64_t columns = part_column_panels(t), steps = block_steps(t), bounds = has_bounds(t);
    struct matmul_worker w = {.sums = {.stride = columns * t->b.width}};
    w.packed = gemm_take(arena, t->panels * cut_operand(t)->panel_size, GEMM_PACKED);
    w.bounds = gemm_take(arena, bounds * t->panels * t->blocks, sizeof *w.bounds);
    const struct gemm_matrix_kernels *matrix = matrix_of(t);
    if (stores_pairs(t))
        w.sums.stride = t->b.width;
    const int64_t sums = (matrix ? 1 : band_panels(t)) * t->a.width * w.sums.stride;
    w.matrix = gemm_take(arena, matrix ? band_panels(t) * matrix_tiles(t) * matrix->sum_words : 0, sizeof *w.matrix);
    w.starts = gemm_take(arena, matrix ? gemm_max(columns, 2 * GEMM_MATRIX) * GEMM_MATRIX_START : 0, sizeof *w.starts);
    w.sums.low = gemm_take(arena, sums, sizeof *w.sums.low);
    if (!family->ordered)
        w.sums.high = gemm_take(arena, sums, sizeof *w.sums.high);
    w.a_bytes = gemm_take(arena, gemm_bytes_size(k, t->a.width, steps), GEMM_PACKED);
    w.b_bytes = gemm_take(arena, columns * t->blocks * gemm_bytes_size(k, t->b.width, steps), GEMM_PACKED);
    w.b_made = gemm_take(arena, k->bytes ? columns * t->blocks : 0, sizeof *w.b_made);
    w.accumulators = gemm_take(arena, 1, sizeof *w.accumulators);
    return w;
}

/* Packed panels of an operand and their bounds, from panel `first` on. */
struct packed_panels {
    const gemm_packed *panels;
    const struct gemm_bound *bounds;
    int64_t first, count;
};

/* Spreads the prefetch of `size` packed elements over `count` tiles of `steps` steps. */
struct spread {
    struct gemm_prefetch next; /* for the current tile */
    int64_t bytes;             /* for each tile */
};

static struct spread spread_over(const gemm_packed *block, int64_t size, int64_t count, int64_t steps) {
    const int64_t bytes = gemm_parts(size * GEMM_PACKED, count);
    return (struct spread){{(const char *)block, gemm_parts(bytes, gemm_max(steps / GEMM_PREFETCH_STEPS, 1))}, bytes};
}

/* Prefetches part j of count of `rows` rows of the output from `row` on: sums of them are about to be stored. Inline,
 * since gcc drops calls of functions that do nothing but this. */
static inline __attribute__((always_inline)) void prefetch_output(const struct matmul *t, int64_t row, int64_t rows,
                                                                  const struct packed_panels *b, int64_t j) {
    const char *out = t->c->args->out.data;
    const int64_t bytes = t->c->stores->element_bytes, column = b->first * t->b.width,
                  columns = gemm_min(b->count * t->b.width, t->n - column);
    for (int64_t i = rows * j / b->count; out && i < rows * (j + 1) / b->count; i++)
        for (int64_t at = 0; at < columns * bytes; at += FL_ALIGNMENT)
            __builtin_prefetch(out + ((row + i) * t->n + column) * bytes + at, 1, 3);
}

/* Multiplies panel `i` of A by the panels of B for one block of k, and adds to the sums from `row` on, or stores them.
 */
static void matmul_panel_sums(const struct matmul *t, const struct packed_panels *a, int64_t i,
                              const struct packed_panels *b, int64_t block, int64_t row, const struct matmul_worker *w,
                              void *stats) {
    const bool store = stores_pairs(t);
    const bool check = t->c->kernels->bytes != NULL;
    const int64_t common_size = common_bytes_size(t),
                  b_size = gemm_bytes_size(t->c->kernels, t->b.width, block_steps(t));
    const int64_t step = block * BLOCK, steps = gemm_min(BLOCK, t->steps - step);
    const int64_t out_row = (a->first + i) * t->a.width, of_a = i * t->blocks + block;
    const int64_t rows = gemm_min(t->a.width, t->m - out_row);
    const gemm_packed *panel = a->panels + i * t->a.panel_size + step * t->a.width, *next = panel;
    gemm_packed *bytes = w->a_bytes, *next_bytes = bytes;
    bool a_made = check && t->common_a && t->bytes_made[of_a];
    if (a_made)
        next_bytes = bytes = t->bytes + of_a * common_size;
    if (i + 1 < a->count) {
        next += t->a.panel_size;
        next_bytes += a_made ? t->blocks * common_size : 0;
    }
    const int64_t halves = gemm_parts(steps, 2);
    struct spread of_panel = spread_over(next, steps * t->a.width, b->count, steps), of_bytes = {.bytes = 0};
    if (check)
        of_bytes = spread_over(next_bytes, halves * t->a.width, b->count, halves);
    for (int64_t j = 0; j < b->count; j++) {
        const int64_t of_b = j * t->blocks + block;
        struct gemm_panel_pair pair = {.a = panel,
                                       .b = b->panels + j * t->b.panel_size + step * t->b.width,
                                       .height = t->a.width,
                                       .rows = rows,
                                       .steps = steps,
                                       .next = of_panel.next};
        struct gemm_bytes for_check = {.a = bytes, .a_made = &a_made};
        if (check) {
            const bool b_there = !t->common_a && t->bytes_made[of_b];
            for_check.b = (b_there ? t->bytes : w->b_bytes) + of_b * b_size;
            for_check.b_made = &w->b_made[of_b];
            for_check.next = of_bytes.next;
        }
        if (block == t->blocks - 1)
            prefetch_output(t, out_row, rows, b, j);
        if (store) {
            const int64_t column = (b->first + j) * t->b.width;
            fl_gemm_pair_store(t->c, &pair, &a->bounds[of_a], &b->bounds[of_b], out_row * t->n + column, t->n,
                               gemm_min(t->b.width, t->n - column), &w->sums, &for_check, w->accumulators, stats);
        } else {
            const struct gemm_sums out = gemm_sums_at(&w->sums, row, j * t->b.width);
            fl_gemm_pair_sums(t->c->family, &pair, &a->bounds[of_a], &b->bounds[of_b], block > 0, &out, &for_check,
                              w->accumulators);
        }
        of_panel.next.from += of_panel.bytes;
        if (check)
            of_bytes.next.from += of_bytes.bytes;
    }
}

/* --- matrix tiles --- */

struct matrix_part;

/* The sums of panel `row` / 16 of A by panel j of B as the tiles stored them. */
struct matrix_sums {
    const struct matrix_part *part;
    int64_t j;
    struct gemm_matrix_tile tile;
};

/* The tiles of a part. Each is stored while the next is computed. */
struct matrix_part {
    const struct matmul *t;
    const struct packed_panels *a, *b;
    const struct matmul_worker *w;
    void *stats;
    const struct fl_args *args; /* of the stores: sums that begin with bias and residual need them no more */
    bool starts, direct;        /* sums begin so; they are stored from where the tiles left them */
    struct matrix_sums sums[2];
    int turn;                   /* which of them the next tile gets */
    struct matrix_sums *before; /* the last tile, if it is not stored */
};

/* Stores these sums, or combines them with those of their row. */
static void matrix_store(void *context, int from, int to) {
    const struct matrix_sums *s = context;
    const struct matrix_part *p = s->part;
    const struct matmul *t = p->t;
    if (p->direct) {
        t->c->stores->matrix(p->args, &s->tile, from, to, p->stats);
        return;
    }
    const struct gemm_sums joined = gemm_sums_at(&p->w->sums, from, s->j * t->b.width);
    t->c->family->matrix->finish(s->tile.sums + from * t->b.width, NULL, t->b.width, to - from, t->b.width, 0, false,
                                 &joined);
}

/* Stores the last tile. */
static void matrix_flush(struct matrix_part *p) {
    if (p->before)
        matrix_store(p->before, 0, GEMM_MATRIX);
    p->before = NULL;
}

/* The next tile, panel j of B by the rows of A from `row` on. Its places are noted now, because the stores read them by
 * vectors, which would wait for what was just written. */
static struct matrix_sums *matrix_next(struct matrix_part *p, int64_t row, int64_t j, const int32_t *sums) {
    const struct matmul *t = p->t;
    struct matrix_sums *s = &p->sums[p->turn];
    const int64_t column = (p->b->first + j) * t->b.width, first = row * t->n + column;
    p->turn ^= 1;
    s->part = p;
    s->j = j;
    s->tile.sums = sums;
    s->tile.columns = gemm_min(t->b.width, t->n - column);
    for (int64_t i = 0; i < GEMM_MATRIX; i++)
        s->tile.element[i] = row + i < t->m ? first + i * t->n : -1;
    return s;
}

/* Where the sums of a tile of panel j of B begin: with the bias, which `starts` has for every panel of B, or with that
 * and the residual of each row, for two tiles in turn. */
static void matrix_start(const struct matrix_part *p, int64_t j, struct gemm_panel_pair *pair) {
    const bool of_rows = p->t->c->args->p.product.epilogue.residual.data;
    pair->start_step = of_rows ? GEMM_MATRIX_START : 0;
    pair->start = p->w->starts + (of_rows ? j % 2 * GEMM_MATRIX : j) * GEMM_MATRIX_START;
}

/* Computes these for `rows` rows from `row` on; rows that do not exist begin with zeros. */
static void matrix_make_start(const struct matrix_part *p, int64_t row, int64_t rows, int64_t j, int32_t *start) {
    const struct matmul *t = p->t;
    const int64_t column = (p->b->first + j) * t->b.width, there = gemm_min(rows, t->m - row);
    t->c->stores->matrix_start(t->c->args, row * t->n + column, t->n, there, gemm_min(t->b.width, t->n - column),
                               start);
    memset(start + there * GEMM_MATRIX_START, 0, (size_t)((rows - there) * GEMM_MATRIX_START) * sizeof *start);
}

/* Chooses how sums are stored; plain: memory for the arguments without bias and residual. */
static void matrix_begin(struct matrix_part *p, struct fl_args *plain) {
    const struct matmul *t = p->t;
    const struct gemm_stores *stores = t->c->stores;
    const struct fl_epilogue *e = &t->c->args->p.product.epilogue;
    const struct gemm_alignment by = fl_gemm_alignment(t->c->args);
    p->args = t->c->args;
    if (stores->matrix_start && (e->bias.data || e->residual.data) && gemm_limbs_have_room(&by)) {
        *plain = *p->args;
        plain->p.product.epilogue.bias.data = plain->p.product.epilogue.residual.data = NULL;
        p->args = plain;
    }
    p->direct = stores->takes_matrix && stores->takes_matrix(p->args);
    p->starts = p->direct && p->args == plain;
    for (int64_t j = 0; p->starts && !e->residual.data && j < p->b->count; j++)
        matrix_make_start(p, 0, 1, j, p->w->starts + j * GEMM_MATRIX_START);
}

/* Multiplies panel `i` of A by the panels of B for one block of k, into sums from `sums` on. */
static void matrix_panel(struct matrix_part *p, int64_t i, int64_t block, int32_t *sums) {
    const struct matmul *t = p->t;
    const struct packed_panels *a = p->a, *b = p->b;
    const int64_t words = t->c->family->matrix->sum_words, step = block * BLOCK,
                  steps = gemm_min(BLOCK, t->steps - step), row = (a->first + i) * t->a.width;
    const bool last = block == t->blocks - 1, starts = p->starts && block == 0,
               residual = starts && t->c->args->p.product.epilogue.residual.data;
    const gemm_packed *panel = a->panels + i * t->a.panel_size + step * t->a.width;
    int32_t *room = p->w->starts;
    struct spread next =
        spread_over(panel + (i + 1 < a->count ? t->a.panel_size : 0), steps * t->a.width, b->count, steps);
    if (residual)
        matrix_make_start(p, row, GEMM_MATRIX, 0, room);
    struct gemm_panel_pair pair = {
        .a = panel, .height = t->a.width, .rows = t->a.width, .steps = steps, .add = block > 0};
    struct matrix_sums *before = p->before;
    for (int64_t j = 0; j < b->count; j++) {
        pair.b = b->panels + j * t->b.panel_size + step * t->b.width;
        pair.sum = sums + (t->blocks > 1 ? j : p->turn) * words;
        pair.next = next.next;
        pair.meanwhile.work = before ? matrix_store : NULL;
        pair.meanwhile.context = before;
        if (starts)
            matrix_start(p, j, &pair);
        if (residual && j + 1 < b->count) /* early: a load of a tile would wait for what was just written */
            matrix_make_start(p, row, GEMM_MATRIX, j + 1, room + (j + 1) % 2 * GEMM_MATRIX * GEMM_MATRIX_START);
        before = last ? matrix_next(p, row, j, pair.sum) : NULL;
        t->c->kernels->whole[t->a.width](&pair);
        next.next.from += next.bytes;
    }
    p->before = before;
    if (t->blocks > 1 || !p->direct)
        matrix_flush(p);
    if (!last || p->direct)
        return;
    const int64_t column = b->first * t->b.width;
    t->c->stores->rows(t->c->args, row * t->n + column, t->n, gemm_min(t->a.width, t->m - row),
                       gemm_min(b->count * t->b.width, t->n - column), &p->w->sums, p->stats);
}

/* --- parts --- */

static void matmul_part(void *context, int part, int worker) {
    const struct matmul *t = context;
    struct gemm_arena arena = gemm_worker_arena(t->c, worker);
    struct matmul_worker w = lay_out_worker(t, &arena);
    void *stats = gemm_worker_stats(t->c, worker);
    const struct gemm_operand *cut = cut_operand(t);
    const int64_t first = part * t->panels, count = gemm_min(t->panels, cut->panels - first);

    gemm_packed *packed = t->kept ? t->kept + first * cut->panel_size : w.packed;
    struct gemm_bound *bounds = t->kept ? t->kept_bounds + first * t->blocks : w.bounds;
    const struct packed_panels own = {packed, bounds, first, count},
                               common = {t->packed, t->bounds, 0, common_operand(t)->panels};
    const struct packed_panels *a = t->common_a ? &common : &own, *b = t->common_a ? &own : &common;
    if (!stores_pairs(t))
        w.sums.stride = b->count * t->b.width; /* rows are written without gaps: the last part may be narrower */
    for (int64_t j = 0; t->c->kernels->bytes && j < b->count * t->blocks; j++)
        w.b_made[j] = !t->common_a && t->bytes_made[j];
    const int64_t column = b->first * t->b.width, columns = gemm_min(b->count * t->b.width, t->n - column);
    const int64_t band = band_panels(t);
    const struct gemm_matrix_kernels *matrix = matrix_of(t);
    struct fl_args plain;
    struct matrix_part tiles = {.t = t, .a = a, .b = b, .w = &w, .stats = stats};
    if (matrix)
        matrix_begin(&tiles, &plain);
    gemm_begin_part(t->c);
    for (int64_t i = 0; i < a->count; i += band) {
        const int64_t end = gemm_min(i + band, a->count);
        for (int64_t block = 0; block < t->blocks; block++) {
            if (i == 0 && !t->is_kept)
                matmul_pack_block(t, cut, first, count, block, packed, bounds);
            for (int64_t panel = i; panel < end; panel++)
                if (matrix)
                    matrix_panel(&tiles, panel, block, w.matrix + (panel - i) * matrix_tiles(t) * matrix->sum_words);
                else
                    matmul_panel_sums(t, a, panel, b, block, (panel - i) * t->a.width, &w, stats);
        }
        for (int64_t panel = i; panel < end && !matrix && !stores_pairs(t); panel++) {
            const int64_t row = (a->first + panel) * t->a.width;
            const struct gemm_sums sums = gemm_sums_at(&w.sums, (panel - i) * t->a.width, 0);
            t->c->stores->rows(t->c->args, row * t->n + column, t->n, gemm_min(t->a.width, t->m - row), columns, &sums,
                               stats);
        }
    }
    matrix_flush(&tiles);
    gemm_end_part(t->c);
}

static void matmul_plan(struct matmul *t) {
    const struct gemm_kernels *k = t->c->kernels;
    t->a.width = k->panel_steps
                     ? k->panel_rows
                     : gemm_parts(t->m, gemm_parts(t->m, k->panel_rows)); /* equal heights: 16 rows become 8 and 8 */
    t->b.width = k->panel_columns;
    t->steps = gemm_round_up(gemm_parts(t->a.k, t->c->packing->per_step), gemm_max(k->panel_steps, 1));
    t->blocks = gemm_parts(t->steps, BLOCK);
    struct gemm_operand *operands[] = {&t->a, &t->b};
    for (int i = 0; i < 2; i++) {
        operands[i]->panels = gemm_parts(operands[i]->lines, operands[i]->width);
        operands[i]->panel_size = gemm_round_up(t->steps * operands[i]->width + k->lanes, FL_ALIGNMENT / GEMM_PACKED);
    }
    /* If A is long and B stays in the cache, A is cut. */
    t->common_a = t->b.panels > PART_COLUMNS || t->m <= t->n;
    const struct gemm_operand *cut = cut_operand(t);
    if (t->c->family->matrix) { /* a part has as much of one operand, with all of k, as fits in the second-level cache;
                                   the other is streamed */
        const int64_t fit = MATRIX_PART_BYTES / (cut->panel_size * GEMM_PACKED),
                      parts = t->c->workers > 1 ? 2 * t->c->workers : 1;
        t->panels =
            gemm_min(gemm_max(MATRIX_PANELS_LEAST, gemm_min(fit, MATRIX_PANELS_MOST)), gemm_parts(cut->panels, parts));
    } else {
        const int64_t panel_bytes = block_steps(t) * cut->width * GEMM_PACKED,
                      most = t->common_a ? PART_COLUMNS : PART_ROWS;
        t->panels = gemm_min(gemm_max(PART_BYTES / panel_bytes, 1), gemm_parts(cut->panels, PARTS));
        if (!t->common_a && cut->k_stride != 1 && t->c->workers == 1) /* longer stretches of the rows of A transposed */
            t->panels = cut->panels;
        t->panels = gemm_min(t->panels, most);
    }
    t->parts = gemm_parts(cut->panels, t->panels);
}

static struct gemm_workspace lay_out(struct matmul *t, char *block) {
    const struct gemm_operand *common = common_operand(t);
    const int64_t blocks = common->panels * t->blocks, bounds = has_bounds(t), check = t->c->kernels->bytes != NULL;
    struct gemm_arena arena = {block, 0}, worker = gemm_worker_arena(t->c, 0);
    t->packed = gemm_take(&arena, common->panels * common->panel_size, GEMM_PACKED);
    t->bounds = gemm_take(&arena, bounds * blocks, sizeof *t->bounds);
    t->bytes = gemm_take(&arena, blocks * common_bytes_size(t), GEMM_PACKED);
    t->bytes_made = gemm_take(&arena, check * blocks, sizeof *t->bytes_made);
    lay_out_worker(t, &worker);
    return fl_gemm_needs(t->c, &arena, &worker, t->parts);
}

static size_t lay_out_kept(struct matmul *t, char *block) {
    struct gemm_arena arena = {block, 0};
    t->kept = gemm_take(&arena, t->b.panels * t->b.panel_size, GEMM_PACKED);
    t->kept_bounds = gemm_take(&arena, has_bounds(t) * t->b.panels * t->blocks, sizeof *t->kept_bounds);
    return arena.used;
}

/* Uses the memory of the sequence, if there is enough. */
static void look_for_kept(struct matmul *t) {
    const struct fl_kept *kept = t->c->args->kept;
    if (!kept || !t->common_a || lay_out_kept(t, NULL) > kept->bytes)
        return;
    lay_out_kept(t, kept->memory);
    t->is_kept = kept->by == t->c->packing;
}

/* out[m][n] = sum over k of A[i][k] B[k][j], either operand transposed by its strides. */
tensor_status fl_gemm_matmul(struct gemm_call *c, struct gemm_workspace *needs_only) {
    const struct gemm_product g = fl_gemm_product(c->args);
    struct matmul t = {.c = c,
                       .m = g.m,
                       .n = g.n,
                       .a = {.data = c->args->in[0].data,
                             .line_stride = g.tn ? 1 : g.k,
                             .k_stride = g.tn ? g.m : 1,
                             .lines = g.m,
                             .k = g.k},
                       .b = {.data = c->args->in[1].data,
                             .line_stride = g.nt ? g.k : 1,
                             .k_stride = g.nt ? 1 : g.n,
                             .lines = g.n,
                             .k = g.k,
                             .columns = true}};
    matmul_plan(&t);
    char *block;
    const tensor_status status = fl_gemm_begin(c, lay_out(&t, NULL), needs_only, &block);
    if (!block)
        return status;
    lay_out(&t, block);
    look_for_kept(&t);
    fl_parallel((int)gemm_parts(common_operand(&t)->panels, COMMON_PANELS), matmul_pack_common, &t);
    fl_parallel_large(c->workers, (int)t.parts, matmul_part, &t);
    if (t.kept)
        c->args->kept->by = c->packing;
    fl_gemm_end(c);
    return TENSOR_OK;
}
