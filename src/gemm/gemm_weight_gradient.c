/* gemm_weight_gradient.c - the weight gradient of a convolution: sums over the pixels of the output. Filters are the
 * rows of the matrix product, filter positions and channels its columns.
 *
 * matmul_tn with a k too long for limbs is computed here too, as a 1x1 convolution. Both operands are copied a chunk of
 * pixels at a time: dy in its order, and the image lines that these pixels read, with their padding. The image is not
 * unfolded: for one filter line r the columns (s, c) of a pixel are neighbours in its line (with a dilation, the
 * channels of a position), and from pixel to pixel the micro-kernel advances by a stride.
 *
 * Exact sums, and those of bf16 by the dot instruction, multiply two pixels at a time, so the copies hold k-pairs: dy
 * of two neighbours, and each image element with the one that the neighbour reads instead. Products of bytes multiply
 * four, as k-quads. The last pair of an odd number of pixels is zero times an element.
 *
 * Sums of int16 over filters three wide, on lines of whole quads of pixels, may take two thirds of the products by
 * Winograd's algorithm (docs/decisions/0039-winograd.md): four sums of linear forms for each three filter positions.
 *
 * Long sums with few results are divided along k among the threads, into slices (for ordered sums a slice is a chunk).
 * Each slice has a set of sums, and these are added in order. A set takes memory for all results, so for exact sums,
 * which have no order, each worker has one instead if workers are fewer. */
#include "core/base/parallel.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_segments.h"
#include <string.h>

enum {
    AHEAD_MOST = 8, /* lines of the cache at a look; tiles would wait for more, which packing reads faster (measured) */
    ROWS_BLOCK = 96,                /* filters packed at a time */
    CHANNELS_BLOCK = 128,           /* channels packed at a time: whole tiles of two vectors */
    CHUNK_STEPS = FL_K_CHUNK,       /* of the longest chunk of exact sums; ordered ones have FL_K_CHUNK pixels */
    CHUNK_BYTES = 640 * 1024,       /* of the copies of a chunk longer than FL_K_CHUNK */
    CHUNKS_PER_WORKER = 4,          /* at least, for such chunks */
    SLICE_BYTES = 32 * 1024 * 1024, /* of the slices stored at a time */
    SLICES_LEAST = 8,
    SLICES_MOST = 64,
    PARTS_PER_WORKER = 8, /* if each worker has a set of sums */
    BLOCKS_PER_WORKER = 3 /* of rows, from which one set is enough: adding another takes longer than waiting */
};

struct gradient {
    struct gemm_call *c;
    struct gemm_convolution v;
    const void *dy, *image; /* of the group */
    int64_t out_first;      /* first element of the result */

    int forms; /* 1, or those of Winograd's algorithm */

    int64_t k, n;          /* n columns */
    int64_t sums_n;        /* columns of the sums: n, or four for each three of them */
    int64_t step_pixels;   /* output pixels of a step of k */
    int64_t chunk, chunks; /* pixels of a chunk, FL_K_CHUNK for ordered sums; chunks */
    int64_t rows_block, row_blocks, channels_block;
    int64_t span_most;     /* output pixels of a span */
    int64_t filter_step;   /* packed lines from filter line to filter line */
    int64_t line_step;     /* from output line to output line */
    int64_t lines;         /* of an output line */
    int64_t lines_most;    /* of a chunk */
    int64_t position_step; /* image pixels from one packed position to the next */
    int64_t positions;     /* of a packed line */

    int64_t slices, chunks_per_slice; /* slices of a wave */
    int64_t wave, waves;
    int64_t sets;    /* of sums */
    bool of_workers; /* one for each worker, otherwise for each slice of a wave */
    void *sums;      /* whole: [set][m][sums_n]; the total, which is set 0, or follows the sets of several waves */
    bool *begun;     /* [set][block of rows]: whether it has sums of this wave */
    int64_t store_block, store_parts;
};

/* Neighbouring output pixels of one line, and the positions of their packed operands. */
struct span {
    int64_t image, y, x0, x1;
    int64_t packed_x0, packed_x1; /* the output pixels whose image pixels are packed */
    int64_t step;                 /* first step of k */
    int64_t line;                 /* packed line of filter line 0 */
};

/* The packed operands of a chunk, or one of their linear forms. */
struct packed_chunk {
    gemm_packed *a, *b;
    float *intervals; /* bounds of dy */
    float *squares;   /* of packed lines: the largest sum of a channel in a segment */
};

/* The memory of one worker: the packed chunk and the list of its segments. */
struct gradient_worker {
    struct span *span;
    int64_t spans, steps;
    struct packed_chunk form[GEMM_WINOGRAD_FORMS];
    void *zero; /* channels of a pixel of padding */
    struct gemm_segments list;
    int32_t *starts; /* of the rows: [block][row] */
    struct gemm_ahead ahead;
};

static bool is_ordered(const struct gradient *t) {
    return t->c->family->ordered;
}

/* Sum i of those at `sums`. */
static void *sum_at(const struct gradient *t, void *sums, int64_t i) {
    return (char *)sums + i * t->c->stores->sum_bytes;
}

/* Whole sums in the form of tiles and stores. */
static struct gemm_sums whole_sums(const struct gradient *t, void *sums, int64_t stride) {
    return is_ordered(t) ? (struct gemm_sums){.low = sums, .stride = stride}
                         : (struct gemm_sums){.wide = sums, .stride = stride};
}

static int64_t spans_most(const struct gradient *t) {
    return gemm_min(t->chunk, t->chunk / t->v.x.out + 2);
}

/* The number of image pixels that `count` output pixels of a line read. */
static int64_t pixels_under(const struct gradient *t, int64_t count) {
    return (count - 1) * t->v.x.stride + gemm_reach(&t->v.x);
}

/* The starts of a block: whole vectors, and those of whole tiles. */
static int64_t starts_row(const struct gradient *t) {
    return t->rows_block + 2 * GEMM_ROWS_MAX;
}

static struct gradient_worker lay_out_worker(const struct gradient *t, struct gemm_arena *arena) {
    struct gradient_worker w = {0};
    const int64_t spans = spans_most(t), steps = t->chunk / t->step_pixels + spans, exact = !is_ordered(t),
                  together = t->c->packing->per_step > 1;
    w.span = gemm_take(arena, spans, sizeof *w.span);
    for (int i = 0; i < t->forms; i++)
        w.form[i].a = gemm_take(arena, steps * t->rows_block + GEMM_ROWS_MAX, GEMM_PACKED);
    for (int i = 0; i < t->forms; i++)
        w.form[i].b =
            gemm_take(arena, t->lines_most * t->positions * t->channels_block + GEMM_COLUMNS_MAX, GEMM_PACKED);
    w.zero = gemm_take(arena, together * t->channels_block, (size_t)t->c->packing->element_bytes);
    for (int i = 0; i < t->forms; i++) {
        w.form[i].intervals = gemm_take(arena, exact * (steps / GEMM_INTERVAL + 1), sizeof *w.form[i].intervals);
        w.form[i].squares = gemm_take(arena, t->lines_most, sizeof *w.form[i].squares);
    }
    w.list.segment = gemm_take(arena, steps, sizeof *w.list.segment);
    w.list.block = gemm_take(arena, steps + 2, sizeof *w.list.block);
    w.starts =
        gemm_take(arena, t->c->kernels->starts ? (steps / GEMM_BLOCK_STEPS + 1) * starts_row(t) : 0, sizeof *w.starts);
    return w;
}

/* --- packing a chunk ---------------------------------------------------------------------------------------------- */

/* Cuts pixels [first, end) into spans and places them. Lines that fit into a chunk are packed whole, so that the spans
 * of an image share pixels; of longer ones only the pixels that the span reads are packed. */
static void list_spans(const struct gradient *t, int64_t first, int64_t end, struct gradient_worker *w) {
    const bool whole = t->v.x.out == t->span_most;
    w->spans = w->steps = 0;
    for (int64_t pixel = first, line = 0; pixel < end;) {
        struct span *span = &w->span[w->spans++];
        span->image = pixel / t->v.x.out / t->v.y.out;
        span->y = pixel / t->v.x.out % t->v.y.out;
        span->x0 = pixel % t->v.x.out;
        span->x1 = gemm_min(t->v.x.out, span->x0 + end - pixel);
        span->packed_x0 = whole ? 0 : span->x0;
        span->packed_x1 = whole ? t->v.x.out : span->x1;
        span->step = w->steps;
        span->line = line;
        w->steps += gemm_parts(span->x1 - span->x0, t->step_pixels);
        pixel += span->x1 - span->x0;
        line += span->y + 1 < t->v.y.out ? t->line_step : t->lines; /* images share no lines */
    }
}

static void pack_dy(const struct gradient *t, int64_t row, int64_t rows, struct gradient_worker *w) {
    const struct gemm_packing *packing = t->c->packing;
    const int64_t plane = t->forms > 1 ? w->form[1].a - w->form[0].a : 0;
    for (int64_t i = 0; i < w->spans; i++) {
        const struct span *span = &w->span[i];
        const int64_t pixel = (span->image * t->v.y.out + span->y) * t->v.x.out + span->x0,
                      pixels = span->x1 - span->x0;
        const void *from = gemm_element(t->c, t->dy, pixel * t->v.out_pixel + row);
        gemm_packed *to = w->form[0].a + span->step * rows;
        if (t->forms > 1)
            packing->winograd_dy(from, t->v.out_pixel, pixels, rows, to, plane);
        else
            packing->block(to, rows, from, t->v.out_pixel, 1, pixels, rows);
    }
    for (int i = 0; i < t->forms && packing->bound_intervals; i++)
        packing->bound_intervals(w->form[i].a, rows, w->steps, w->form[i].intervals);
}

/* Packs image line `line` under a span. */
static void pack_image_line(const struct gradient *t, const struct span *span, int64_t line, int64_t channel,
                            int64_t channels, struct gradient_worker *w) {
    const int64_t in_y = span->y * t->v.y.stride - t->v.y.padding + line * (t->v.y.dilation / t->filter_step);
    const int64_t pixel = (span->image * t->v.y.in + in_y) * t->v.x.in * t->v.in_pixel + channel;
    const struct gemm_image_line from = {.row =
                                             in_y >= 0 && in_y < t->v.y.in ? gemm_element(t->c, t->image, pixel) : NULL,
                                         .row_pixels = t->v.x.in,
                                         .pixel = t->v.in_pixel,
                                         .channels = channels,
                                         .x = span->packed_x0 * t->v.x.stride - t->v.x.padding,
                                         .count = pixels_under(t, span->packed_x1 - span->packed_x0),
                                         .position_step = t->position_step,
                                         .partner = t->v.x.stride};
    gemm_packed *to = w->form[0].b + (span->line + line) * t->positions * channels;
    if (t->forms == 1) {
        w->form[0].squares[span->line + line] = t->c->packing->image_line(&from, w->zero, to);
        return;
    }
    float bounds[GEMM_WINOGRAD_FORMS];
    t->c->packing->winograd_line(&from, w->zero, to, w->form[1].b - w->form[0].b, bounds);
    for (int i = 0; i < GEMM_WINOGRAD_FORMS; i++)
        w->form[i].squares[span->line + line] = bounds[i];
}

static void pack_image(const struct gradient *t, int64_t channel, int64_t channels, struct gradient_worker *w) {
    if (t->c->packing->per_step > 1)
        memset(w->zero, 0, (size_t)(channels * t->c->packing->element_bytes));
    for (int64_t i = 0; i < w->spans; i++) {
        const struct span *span = &w->span[i];
        const bool last = i + 1 == w->spans || w->span[i + 1].image != span->image;
        for (int64_t line = 0; line < (last ? t->lines : t->line_step); line++)
            pack_image_line(t, span, line, channel, channels, w);
    }
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Packed positions under `pixels` output pixels. */
static int64_t positions_under(const struct gradient *t, int64_t pixels) {
    return t->forms > 1 ? pixels / t->step_pixels : pixels * t->v.x.stride / t->position_step;
}

static void list_segments(const struct gradient *t, const struct packed_chunk *form, int64_t rows, int64_t channels,
                          struct gradient_worker *w) {
    const bool ordered = is_ordered(t);
    gemm_segments_clear(&w->list, ordered, rows, positions_under(t, t->step_pixels) * channels);
    for (int64_t i = 0; i < w->spans; i++) {
        const struct span *span = &w->span[i];
        const int64_t position = positions_under(t, span->x0 - span->packed_x0);
        float squares = 0; /* of all lines under the span, since a tile reads any one of them */
        for (int64_t r = 0; r < t->v.y.positions && !ordered; r++)
            squares = gemm_larger(squares, form->squares[span->line + r * t->filter_step]);
        const struct gemm_proof proof = {t->c->packing->bound_intervals ? form->intervals : NULL, squares, NULL};
        gemm_segments_add(&w->list, span->step * rows, (span->line * t->positions + position) * channels, span->step,
                          gemm_parts(span->x1 - span->x0, t->step_pixels), proof);
    }
    gemm_segments_end(&w->list);
    struct gemm_tile tile;
    for (int64_t block = 0; t->c->kernels->starts && block < w->list.blocks; block++) {
        gemm_tile_block(&tile, &w->list, block);
        t->c->kernels->starts(form->a, tile.segments, tile.count, true, rows, rows, w->starts + block * starts_row(t));
    }
}

/* The operands of a chunk; nothing if they are no whole stretches of memory. */
static struct gemm_ahead ahead_of(const struct gradient *t, int64_t chunk) {
    struct gemm_ahead ahead = {.each = 0};
    if (chunk >= t->chunks || t->row_blocks > 1 || t->v.groups > 1)
        return ahead;
    const int64_t first = chunk * t->chunk, last = gemm_min(first + t->chunk, t->k) - 1,
                  bytes = t->c->packing->element_bytes;
    const int64_t image = first / t->v.x.out / t->v.y.out, y = first / t->v.x.out % t->v.y.out,
                  last_image = last / t->v.x.out / t->v.y.out, last_y = last / t->v.x.out % t->v.y.out;
    const int64_t line = t->v.x.in * t->v.in_pixel,
                  top = image * t->v.y.in + gemm_min(gemm_max(y * t->v.y.stride - t->v.y.padding, 0), t->v.y.in),
                  bottom = last_image * t->v.y.in +
                           gemm_min(last_y * t->v.y.stride - t->v.y.padding + gemm_reach(&t->v.y), t->v.y.in);
    ahead.at = gemm_element(t->c, t->dy, first * t->v.out_pixel);
    ahead.end = ahead.at + (last + 1 - first) * t->v.out_pixel * bytes;
    ahead.then = gemm_element(t->c, t->image, top * line);
    ahead.then_end = ahead.then + gemm_max(bottom - top, 0) * line * bytes;
    return ahead;
}

/* Shares what is ahead among the looks of all tiles of some columns, of one form. */
static void share_ahead(const struct gradient *t, int64_t rows, int64_t channels, struct gradient_worker *w) {
    const struct gemm_kernels *k = t->c->kernels;
    const int64_t lines = (w->ahead.end - w->ahead.at + w->ahead.then_end - w->ahead.then) / GEMM_CACHE_LINE,
                  columns = t->sums_n / t->v.depth / t->forms * channels,
                  tiles = gemm_parts(columns, k->vectors * k->lanes) * gemm_parts(rows, k->rows[k->vectors]);
    int64_t looks = 0;
    for (int64_t i = 0; i < w->list.count; i++)
        looks += tiles * gemm_parts(w->list.segment[i].steps, GEMM_AHEAD_STEPS);
    const int64_t each = gemm_parts(lines, gemm_max(looks, 1));
    w->ahead.each = each <= AHEAD_MOST ? each : 0;
}

/* Computes `columns` neighbouring columns from packed element b of the lines on, for all rows. */
static void column_tiles(const struct gradient *t, struct gradient_worker *w, int64_t rows, const gemm_packed *a,
                         const gemm_packed *b, int64_t columns, void *out, bool add) {
    const struct gemm_kernels *k = t->c->kernels;
    const int64_t vectors = gemm_parts(columns, k->lanes);
    const int64_t most = vectors <= k->vectors || vectors % k->vectors == 0 ? k->vectors : 2;
    struct gemm_tile tile = {
        .a_row = 1, .turned = true, .a_step = w->list.a_step, .b_step = w->list.b_step, .ahead = &w->ahead};
    for (int64_t j = 0; j < columns; j += most * k->lanes) {
        const int64_t width = gemm_min(columns - j, most * k->lanes);
        const int tile_vectors = (int)gemm_parts(width, k->lanes), tile_rows = gemm_tile_rows(k, tile_vectors, rows);
        tile.b = b + j;
        tile.out = whole_sums(t, sum_at(t, out, j), t->sums_n);
        for (int64_t i = 0; i < rows; i += tile_rows, gemm_sums_move(&tile.out, tile_rows * t->sums_n)) {
            tile.a = a + i;
            tile.rows = (int)gemm_min(tile_rows, rows - i);
            for (int64_t block = 0; block < w->list.blocks; block++) {
                gemm_tile_block(&tile, &w->list, block);
                tile.add = add || block > 0;
                tile.start = w->starts + block * starts_row(t) + i;
                k->tile(&tile, tile_vectors, width);
            }
        }
    }
}

/* A block of rows of a chunk. */
struct chunk_rows {
    int64_t chunk, row, rows;
    int64_t next; /* the chunk that this worker will probably take then */
};

/* Multiplies it, for all filter positions or for the linear forms of each three, into sums [rows][sums_n]. */
static void add_chunk(const struct gradient *t, const struct chunk_rows *of, struct gradient_worker *w, void *sums,
                      bool add) {
    const int64_t first = of->chunk * t->chunk, rows = of->rows;
    list_spans(t, first, gemm_min(first + t->chunk, t->k), w);
    pack_dy(t, of->row, rows, w);
    w->ahead = ahead_of(t, of->next);
    for (int64_t channel = 0; channel < t->v.depth; channel += t->channels_block) {
        const int64_t channels = gemm_min(t->channels_block, t->v.depth - channel);
        /* with all channels packed, the positions s are neighbours in the result too */
        const int64_t parts = t->forms > 1 ? GEMM_WINOGRAD_FORMS : t->v.x.positions,
                      together = channels == t->v.depth && t->v.x.dilation == 1 && t->forms == 1 ? parts : 1;
        pack_image(t, channel, channels, w);
        for (int64_t s = 0; s < parts; s += together) {
            const struct packed_chunk *form = &w->form[t->forms > 1 ? s : 0];
            const gemm_packed *b = form->b + (t->forms > 1 ? 0 : s * t->v.x.dilation * channels);
            if (t->forms > 1 || s == 0) {
                list_segments(t, form, rows, channels, w);
                share_ahead(t, rows, channels, w);
            }
            for (int64_t r = 0; r < t->v.y.positions; r++)
                column_tiles(t, w, rows, form->a, b + r * t->filter_step * t->positions * channels, together * channels,
                             sum_at(t, sums, (r * parts + s) * t->v.depth + channel), add);
        }
    }
}

static void gradient_part(void *context, int part, int worker) {
    const struct gradient *t = context;
    struct gemm_arena arena = gemm_worker_arena(t->c, worker);
    struct gradient_worker w = lay_out_worker(t, &arena);
    const int64_t slice = part / t->row_blocks, row = part % t->row_blocks * t->rows_block;
    const int64_t first = (t->wave * t->slices + slice) * t->chunks_per_slice,
                  end = gemm_min(first + t->chunks_per_slice, t->chunks);
    const int64_t set = t->of_workers ? worker : slice;
    void *sums = sum_at(t, t->sums, (set * t->v.filters + row) * t->sums_n);
    bool *begun = &t->begun[set * t->row_blocks + part % t->row_blocks];
    struct chunk_rows of = {.row = row, .rows = gemm_min(t->rows_block, t->v.filters - row)};
    for (of.chunk = first; of.chunk < end; of.chunk++) {
        of.next = of.chunk + 1 < end ? of.chunk + 1 : of.chunk + 1 + (t->c->workers - 1) * t->chunks_per_slice;
        add_chunk(t, &of, &w, sums, *begun);
        *begun = true;
    }
}

/* The sums of `count` filter rows from those of linear forms, in place. */
static void form_results(int64_t count, int64_t depth, int64_t *sums) {
    const int64_t *form = sums;
    for (int64_t i = 0; i < count; i++, form += GEMM_WINOGRAD_FORMS * depth, sums += 3 * depth)
        for (int64_t c = 0; c < depth; c++) {
            const int64_t m0 = form[c], m1 = form[depth + c], m2 = form[2 * depth + c], m3 = form[3 * depth + c];
            sums[c] = m0 + (m1 + m2) / 2; /* the sum and the difference are even */
            sums[depth + c] = (m1 - m2) / 2;
            sums[2 * depth + c] = (m1 + m2) / 2 - m3;
        }
}

/* Adds the sets of a wave to the total in order; after the last wave the total is stored. */
static void gradient_add_part(void *context, int part, int worker) {
    const struct gradient *t = context;
    const int64_t in_block = t->store_parts / t->row_blocks, block = part / in_block, row = block * t->rows_block,
                  rows = gemm_min(t->rows_block, t->v.filters - row), results = t->v.filters * t->sums_n,
                  at = part % in_block * t->store_block, n = gemm_min(t->store_block, rows * t->sums_n - at),
                  first = row * t->sums_n + at;
    if (n <= 0) /* the last block has fewer rows */
        return;
    void *total = sum_at(t, t->sums, (t->waves > 1 ? t->sets * results : 0) + first);
    bool there = t->wave > 0;
    for (int64_t set = 0; set < t->sets; set++) {
        const void *sums = sum_at(t, t->sums, set * results + first);
        if (!t->begun[set * t->row_blocks + block])
            continue;
        if (there)
            t->c->kernels->add(total, sums, n);
        else if (total != sums)
            memcpy(total, sums, (size_t)(n * t->c->stores->sum_bytes));
        there = true;
    }
    if (t->wave + 1 < t->waves)
        return;
    if (t->forms > 1)
        form_results(n / (GEMM_WINOGRAD_FORMS * t->v.depth), t->v.depth, total);
    const int64_t elements = n * t->n / t->sums_n;
    const struct gemm_sums stored = whole_sums(t, total, elements);
    t->c->stores->sums(t->c->args, t->out_first + first * t->n / t->sums_n, elements, &stored,
                       gemm_worker_stats(t->c, worker));
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Output lines share all image lines between those that they read; each has its own if these are fewer (wide dilations)
 * or if lines are longer than a chunk. */
static void plan_lines(struct gradient *t) {
    const int64_t spans = spans_most(t), reach = gemm_reach(&t->v.y), step = gemm_min(t->v.y.stride, reach),
                  images = gemm_min(spans, gemm_parts(t->chunk, t->v.y.out * t->v.x.out) + 1);
    t->filter_step = t->v.y.dilation;
    t->line_step = step;
    t->lines = reach;
    t->lines_most = spans * step + images * (reach - step);
    if (t->span_most < t->v.x.out || t->lines_most > spans * t->v.y.positions) {
        t->filter_step = 1;
        t->line_step = t->lines = t->v.y.positions;
        t->lines_most = spans * t->v.y.positions;
    }
}

/* Plans for chunks of length t->chunk; false if shorter ones are better. Only for exact sums, which have no order, the
 * length depends on the number of workers. */
static bool plan_chunk(struct gradient *t) {
    t->chunks = gemm_parts(t->k, t->chunk);
    t->span_most = gemm_min(t->v.x.out, t->chunk);
    plan_lines(t);
    t->positions = gemm_parts(pixels_under(t, t->span_most), t->position_step);
    const int64_t packed =
        t->chunk / t->c->packing->per_step * t->rows_block + t->lines_most * t->positions * t->channels_block;
    return t->chunk <= FL_K_CHUNK ||
           (t->chunks >= (int64_t)CHUNKS_PER_WORKER * t->c->workers && packed * GEMM_PACKED <= CHUNK_BYTES);
}

/* The sets of exact sums, if these are fewer than the slices that ordered sums would have: one alone if the blocks of
 * rows occupy the workers, otherwise one for each worker, which takes several slices. */
static void plan_sets(struct gradient *t) {
    const int64_t workers = t->c->workers, wanted = gemm_parts(PARTS_PER_WORKER * workers, t->row_blocks);
    const bool alone = workers == 1 || t->row_blocks >= BLOCKS_PER_WORKER * workers;
    const int64_t chunks = alone ? t->chunks : gemm_max(t->chunks / wanted, 1), slices = gemm_parts(t->chunks, chunks);
    if (gemm_min(workers, slices) >= t->slices)
        return;
    t->of_workers = workers < slices;
    t->sets = gemm_min(workers, slices);
    t->slices = slices;
    t->chunks_per_slice = chunks;
}

/* The slices of sums. */
static void plan_slices(struct gradient *t) {
    const int64_t sums = t->v.filters * t->sums_n, unit = t->forms > 1 ? GEMM_WINOGRAD_FORMS * t->v.depth : 1;
    t->store_block = gemm_max(GEMM_STORE_BLOCK / unit, 1) * unit;
    t->store_parts = t->row_blocks * gemm_parts(t->rows_block * t->sums_n, t->store_block);
    const int64_t affordable = gemm_max(SLICES_LEAST, SLICE_BYTES / (sums * t->c->stores->sum_bytes));
    if (t->row_blocks >= GEMM_PARTS_FEW)
        t->slices = 1;
    else
        t->slices = gemm_min(t->chunks, is_ordered(t) ? affordable : gemm_min(affordable, SLICES_MOST));
    t->chunks_per_slice = is_ordered(t) && t->slices > 1 ? 1 : gemm_parts(t->chunks, t->slices);
    t->slices = gemm_min(t->slices, gemm_parts(t->chunks, t->chunks_per_slice));
    t->sets = t->slices;
    t->of_workers = false;
    if (!is_ordered(t))
        plan_sets(t);
    t->waves = gemm_parts(t->chunks, t->slices * t->chunks_per_slice);
}

static void gradient_plan(struct gradient *t) {
    t->k = t->v.batch * t->v.y.out * t->v.x.out;
    t->n = t->sums_n = t->v.y.positions * t->v.x.positions * t->v.depth;
    t->step_pixels = t->c->packing->per_step;
    t->row_blocks = gemm_parts(t->v.filters, ROWS_BLOCK);
    t->rows_block = gemm_parts(t->v.filters, t->row_blocks);
    if (t->row_blocks > 1) /* whole tiles of two vectors */
        t->rows_block = gemm_min(gemm_round_up(t->rows_block, t->c->kernels->rows[2]), ROWS_BLOCK);
    t->channels_block = t->v.depth <= CHANNELS_BLOCK * 3 / 2 ? t->v.depth : CHANNELS_BLOCK;
    t->position_step =
        t->v.x.positions == 1 && t->v.batch * t->v.y.out == 1 ? t->c->packing->per_step * t->v.x.stride : 1;
    for (t->chunk = is_ordered(t) ? FL_K_CHUNK : CHUNK_STEPS * t->c->packing->per_step; !plan_chunk(t); t->chunk /= 2)
        ;
    plan_slices(t);
}

/* The same by Winograd's algorithm, for filters three wide whose lines are whole quads of pixels, if its tiles, which
 * are half as long, are less than twice as many; false elsewhere. */
static bool plan_winograd(const struct gradient *plain, struct gradient *t) {
    const struct gemm_side *x = &plain->v.x;
    const int64_t lanes = plain->c->kernels->lanes, depth = plain->v.depth;
    if (!gemm_suits_winograd(plain->c, x) || x->out % 4 || x->out != plain->span_most ||
        GEMM_WINOGRAD_FORMS * gemm_parts(depth, lanes) >= 2 * gemm_parts(3 * depth, lanes))
        return false;
    *t = *plain;
    t->forms = GEMM_WINOGRAD_FORMS;
    t->step_pixels = 4;
    t->positions = x->out / 4;
    t->sums_n = t->n / 3 * GEMM_WINOGRAD_FORMS;
    plan_slices(t);
    return true;
}

static struct gemm_workspace lay_out(struct gradient *t, char *block) {
    struct gemm_arena arena = {block, 0}, worker = gemm_worker_arena(t->c, 0);
    t->sums = gemm_take(&arena, (t->sets + (t->waves > 1)) * t->v.filters * t->sums_n, (size_t)t->c->stores->sum_bytes);
    t->begun = gemm_take(&arena, t->sets * t->row_blocks, sizeof *t->begun);
    lay_out_worker(t, &worker);
    return fl_gemm_needs(t->c, &arena, &worker, gemm_max(t->slices * t->row_blocks, t->store_parts));
}

/* Computes one group, whose channels begin at dy, image and out_first of t. */
static void compute(struct gradient *t) {
    const int workers = t->c->workers;
    for (t->wave = 0; t->wave < t->waves; t->wave++) {
        const int64_t left = gemm_parts(t->chunks, t->chunks_per_slice) - t->wave * t->slices,
                      parts = gemm_min(t->slices, left) * t->row_blocks;
        memset(t->begun, 0, (size_t)(t->sets * t->row_blocks) * sizeof *t->begun);
        fl_parallel_large((int)gemm_min(workers, parts), (int)parts, gradient_part, t);
        fl_parallel_within(workers, (int)t->store_parts, gradient_add_part, t);
    }
}

/* conv2d_weight_grad; matmul_tn, whose out[m][n] sums over k pixels. t describes one group. */
tensor_status fl_gemm_weight_gradient(struct gemm_call *c, struct gemm_workspace *needs_only) {
    struct gradient t = {.c = c, .v = fl_gemm_convolution(c->args, true), .forms = 1}, forms;
    gradient_plan(&t);
    struct gemm_workspace needs = lay_out(&t, NULL);
    const bool winograd = plan_winograd(&t, &forms);
    if (winograd)
        needs = gemm_larger_needs(needs, lay_out(&forms, NULL));
    char *block;
    const tensor_status status = fl_gemm_begin(c, needs, needs_only, &block);
    if (!block)
        return status;
    if (winograd && fl_gemm_all(&c->args->in[0], c->workers, c->packing->winograd_takes) &&
        fl_gemm_all(&c->args->in[1], c->workers, c->packing->winograd_takes))
        t = forms;
    lay_out(&t, block);
    for (int64_t i = 0; i < t.v.groups; i++) {
        t.dy = gemm_element(c, c->args->in[0].data, i * t.v.filters);
        t.image = gemm_element(c, c->args->in[1].data, i * t.v.depth);
        t.out_first = i * t.v.filters * t.n;
        compute(&t);
    }
    fl_gemm_end(c);
    return TENSOR_OK;
}
