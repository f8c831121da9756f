/* gemm_matrix_weight_gradient.c - the weight gradient of a convolution on matrix tiles, and matmul_tn with a k too long
 * for limbs, as a 1x1 convolution: sums over the pixels of the output.
 *
 * Filters are the rows of the matrix product, channels its columns, and pixels its k. dy is packed pixel by pixel and
 * transposed, as A; the image is packed as B once for each filter column, every line at the pixels of the output, so
 * that filter lines are whole lines apart and all tiles are aligned. Lines are padded to whole lines of a tile, where
 * dy is zero. Few channels are joined: what a filter line sees lies together in memory, and its filter columns and
 * channels are packed as channels of one column. Each packed chunk of pixels is multiplied at all filter positions;
 * sums remain in the layout of tiles from chunk to chunk until they must be finished.
 *
 * The pixels are cut into slices for the threads: as many as occupy these for exact sums, a fixed number for ordered
 * ones. The sums of slices are added in order. */
#include "core/base/parallel.h"
#include "gemm/gemm_driver.h"
#include <string.h>

enum {
    BLOCK_TILES = 4,          /* most tiles of 16 filters, and of 16 channels, in a block */
    SUM_BYTES = 640 * 1024,   /* of the sums of a block, which stay in the second-level cache */
    CHUNK_BYTES = 640 * 1024, /* of the packed pixels of a chunk, likewise */
    CHUNK_PIXELS = 1024,      /* of a chunk of small images: a panel of dy stays in the first-level cache */
    PARTS_PER_WORKER = 4,
    ORDERED_PARTS = 16,            /* slices of ordered sums for any number of threads */
    SLICE_BYTES = 32 * 1024 * 1024 /* of the sums of all slices */
};

struct gradient {
    struct gemm_call *c;
    const struct gemm_matrix_kernels *k;
    struct gemm_convolution v;
    const void *dy, *image; /* of the group */
    int64_t n;              /* columns of the result */
    int64_t out_first;      /* first element of the result */

    int64_t joined; /* filter columns that are packed as channels of one; 1: none, each is packed for itself */
    int64_t band_h, band_w, bands_y, bands_x; /* output pixels that are packed together */
    int64_t positions;                        /* packed pixels of a line */
    int64_t line;                             /* bytes of such a line, in a plane */
    int64_t blocks;                           /* tiles along the pixels of a band */
    int64_t phases, rows;                     /* image lines, by their phase in the stride */
    int64_t copy, plane; /* bytes from one filter column or 16 channels to the next; bytes of a plane */
    int64_t images;      /* in a chunk */
    int64_t chunks;
    int64_t m_block, c_block, m_blocks, c_blocks; /* tiles of 16 in a block; number of blocks */
    int64_t slices, chunks_per_slice;
    char *sums; /* whole: [slice][m][n] */
    int64_t store_parts;
};

static int64_t pair_bytes(const struct gradient *t) {
    return (int64_t)t->k->planes * GEMM_MATRIX_PLANE;
}

/* Sum i of those at `sums`. */
static char *sum_at(const struct gradient *t, char *sums, int64_t i) {
    return sums + i * t->c->stores->sum_bytes;
}

/* Whole sums in the form of kernels and stores. */
static struct gemm_sums whole_sums(const struct gradient *t, void *sums, int64_t stride) {
    return t->c->family->ordered ? (struct gemm_sums){.low = sums, .stride = stride}
                                 : (struct gemm_sums){.wide = sums, .stride = stride};
}

static int64_t image_bytes(const struct gradient *t) {
    return t->v.x.positions * t->c_block * t->copy;
}

/* The memory of one worker. */
struct gradient_worker {
    uint8_t *dy;     /* [16 filters][image][block] packed tiles */
    uint8_t *x;      /* [plane][image][filter column][16 channels][phase][row] lines */
    uint8_t *pixels; /* of dy, not yet transposed */
    uint8_t *seen;   /* the pixels of an image line that joined filter columns see, padding included */
    int64_t *offset; /* of the tiles of x, from the first */
    int32_t *sums;   /* [16 filters][16 channels][filter position] in the layout of tiles */
};

/* Pixels of an image line that the pixels of a line of the output see. */
static int64_t pixels_seen(const struct gradient *t, int64_t width) {
    return (width - 1) * t->v.x.stride + t->joined;
}

static struct gradient_worker lay_out_worker(const struct gradient *t, struct gemm_arena *arena) {
    struct gradient_worker w;
    w.dy = gemm_take(arena, t->m_block * t->images * t->blocks * pair_bytes(t), 1);
    w.x = gemm_take(arena, t->k->planes * t->plane, 1);
    w.pixels = gemm_take(arena, t->blocks * pair_bytes(t), 1);
    w.seen = gemm_take(arena, t->joined > 1 ? pixels_seen(t, t->band_w) * t->v.in_pixel : 0,
                       (size_t)t->c->family->packing->element_bytes);
    w.offset = gemm_take(arena, t->images * t->blocks, sizeof *w.offset);
    w.sums = gemm_take(arena, t->m_block * t->c_block * t->v.y.positions * t->v.x.positions * t->k->sum_words,
                       sizeof *w.sums);
    return w;
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* Output pixels [y0, y1) x [x0, x1) of `images` images from `image` on. */
struct chunk {
    int64_t image, images, y0, y1, x0, x1;
    int64_t blocks;
};

static struct chunk chunk_of(const struct gradient *t, int64_t i) {
    struct chunk q = {.x0 = i % t->bands_x * t->band_w, .y0 = i / t->bands_x % t->bands_y * t->band_h};
    q.image = i / (t->bands_x * t->bands_y) * t->images;
    q.images = gemm_min(t->images, t->v.batch - q.image);
    q.y1 = gemm_min(q.y0 + t->band_h, t->v.y.out);
    q.x1 = gemm_min(q.x0 + t->band_w, t->v.x.out);
    q.blocks = gemm_parts((q.y1 - q.y0) * t->positions, t->k->elements);
    return q;
}

/* Packs dy of one image at 16 filters. */
static void pack_dy(const struct gradient *t, const struct chunk *q, int64_t image, int64_t filter, uint8_t *pixels,
                    uint8_t *to) {
    const int64_t plane = t->blocks * GEMM_MATRIX_PLANE, used = (q->y1 - q->y0) * t->line;
    for (int64_t y = q->y0; y < q->y1; y++) {
        const int64_t at = ((image * t->v.y.out + y) * t->v.x.out + q->x0) * t->v.out_pixel + filter;
        const struct gemm_matrix_pixels line = {.row = gemm_element(t->c, t->dy, at),
                                                .width = q->x1 - q->x0,
                                                .pixel = t->v.out_pixel,
                                                .step = 1,
                                                .channels = gemm_min(GEMM_MATRIX, t->v.filters - filter),
                                                .positions = t->positions,
                                                .valid = q->x1 - q->x0};
        t->k->pixels(&line, pixels + (y - q->y0) * t->line, plane);
    }
    for (int p = 0; p < t->k->planes; p++)
        memset(pixels + p * plane + used, 0, (size_t)(plane - used));
    for (int64_t i = 0; i < q->blocks; i++)
        t->k->turn(pixels + i * GEMM_MATRIX_PLANE, plane, to + i * pair_bytes(t));
}

/* Whether some filter line reads image lines of that phase. */
static bool is_seen(const struct gradient *t, int64_t phase) {
    for (int64_t r = 0; r < t->v.y.positions; r++)
        if (r * t->v.y.dilation % t->v.y.stride == phase)
            return true;
    return false;
}

/* Replaces `line` by a copy of the pixels that this band of the output sees, with zeros for the padding, so that joined
 * filter columns can read across pixels. */
static void see_line(const struct gradient *t, struct gemm_matrix_pixels *line, uint8_t *seen) {
    const int64_t bytes = t->v.in_pixel * t->c->family->packing->element_bytes, count = pixels_seen(t, line->valid),
                  from = gemm_min(gemm_max(-line->first, 0), count),
                  end = gemm_max(gemm_min(line->width - line->first, count), from);
    memset(seen, 0, (size_t)(from * bytes));
    if (end > from)
        memcpy(seen + from * bytes, (const uint8_t *)line->row + (line->first + from) * bytes,
               (size_t)((end - from) * bytes));
    memset(seen + end * bytes, 0, (size_t)((count - end) * bytes));
    line->row = seen;
    line->first = 0;
    line->width = count;
}

/* Packs 16 channels of one image at filter column s. */
static void pack_x(const struct gradient *t, const struct chunk *q, int64_t image, int64_t channel, int64_t s,
                   uint8_t *seen, uint8_t *to) {
    const struct gemm_matrix_pixels line = {.width = t->v.x.in,
                                            .pixel = t->v.in_pixel,
                                            .first = q->x0 * t->v.x.stride + s * t->v.x.dilation - t->v.x.padding,
                                            .step = t->v.x.stride,
                                            .channels = gemm_min(GEMM_MATRIX, t->v.depth - channel),
                                            .positions = t->positions,
                                            .valid = q->x1 - q->x0};
    for (int64_t phase = 0; phase < t->phases; phase++) {
        if (!is_seen(t, phase))
            continue;
        for (int64_t row = 0; row < t->rows; row++) {
            const int64_t y = (q->y0 + row) * t->v.y.stride + phase - t->v.y.padding;
            struct gemm_matrix_pixels in_row = line;
            if (y >= 0 && y < t->v.y.in) {
                in_row.row = gemm_element(t->c, t->image, (image * t->v.y.in + y) * t->v.x.in * t->v.in_pixel);
                if (t->joined > 1)
                    see_line(t, &in_row, seen);
                in_row.row = gemm_element(t->c, in_row.row, channel);
            }
            t->k->pixels(&in_row, to + (phase * t->rows + row) * t->line, t->plane);
        }
    }
}

static void pack_chunk(const struct gradient *t, const struct chunk *q, int64_t m_tile, int64_t m_tiles, int64_t c_tile,
                       int64_t c_tiles, const struct gradient_worker *w) {
    const int64_t steps = q->images * q->blocks;
    for (int64_t i = 0; i < q->images; i++) {
        for (int64_t m = 0; m < m_tiles; m++)
            pack_dy(t, q, q->image + i, (m_tile + m) * GEMM_MATRIX, w->pixels,
                    w->dy + (m * steps + i * q->blocks) * pair_bytes(t));
        for (int64_t s = 0; s < t->v.x.positions; s++)
            for (int64_t c = 0; c < c_tiles; c++)
                pack_x(t, q, q->image + i, (c_tile + c) * GEMM_MATRIX, s, w->seen,
                       w->x + i * image_bytes(t) + (s * t->c_block + c) * t->copy);
        for (int64_t b = 0; b < q->blocks; b++)
            w->offset[i * q->blocks + b] = i * image_bytes(t) + b * GEMM_MATRIX_PLANE;
    }
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

struct block {
    int64_t m_tile, m_tiles, c_tile, c_tiles;
};

static int32_t *tile_sums(const struct gradient *t, const struct gradient_worker *w, int64_t m, int64_t c, int64_t r,
                          int64_t s) {
    return w->sums + (((m * t->c_block + c) * t->v.y.positions + r) * t->v.x.positions + s) * t->k->sum_words;
}

static void multiply_chunk(const struct gradient *t, const struct chunk *q, const struct block *b, bool add,
                           const struct gradient_worker *w) {
    const int64_t steps = q->images * q->blocks;
    for (int64_t m = 0; m < b->m_tiles; m++)
        for (int64_t c = 0; c < b->c_tiles; c++)
            for (int64_t s = 0; s < t->v.x.positions; s++)
                for (int64_t r = 0; r < t->v.y.positions; r++) {
                    const int64_t down = r * t->v.y.dilation, row = down % t->phases * t->rows + down / t->phases;
                    t->k->pixel_sums(w->dy + m * steps * pair_bytes(t),
                                     w->x + (s * t->c_block + c) * t->copy + row * t->line, t->plane, w->offset, steps,
                                     add, tile_sums(t, w, m, c, r, s));
                }
}

/* Stores the sums of a block as those of its slice, or adds them to these. */
static void finish_block(const struct gradient *t, const struct block *b, char *slice, bool add,
                         const struct gradient_worker *w) {
    for (int64_t m = 0; m < b->m_tiles; m++)
        for (int64_t c = 0; c < b->c_tiles; c++)
            for (int64_t r = 0; r < t->v.y.positions; r++)
                for (int64_t s = 0; s < t->v.x.positions; s++) {
                    const int64_t row = (b->m_tile + m) * GEMM_MATRIX, channel = (b->c_tile + c) * GEMM_MATRIX;
                    const struct gemm_sums to = whole_sums(
                        t, sum_at(t, slice, row * t->n + (r * t->v.x.positions + s) * t->v.depth + channel), t->n);
                    t->k->finish(tile_sums(t, w, m, c, r, s), NULL, GEMM_MATRIX,
                                 gemm_min(GEMM_MATRIX, t->v.filters - row), gemm_min(GEMM_MATRIX, t->v.depth - channel),
                                 0, add, &to);
                }
}

static void gradient_part(void *context, int part, int worker) {
    const struct gradient *t = context;
    struct gemm_arena arena = gemm_worker_arena(t->c, worker);
    const struct gradient_worker w = lay_out_worker(t, &arena);
    const int64_t blocks = t->m_blocks * t->c_blocks, number = part % blocks, slice = part / blocks;
    struct block b = {.m_tile = number / t->c_blocks * t->m_block, .c_tile = number % t->c_blocks * t->c_block};
    b.m_tiles = gemm_min(t->m_block, gemm_parts(t->v.filters, GEMM_MATRIX) - b.m_tile);
    b.c_tiles = gemm_min(t->c_block, gemm_parts(t->v.depth, GEMM_MATRIX) - b.c_tile);
    const int64_t first = slice * t->chunks_per_slice, end = gemm_min(first + t->chunks_per_slice, t->chunks),
                  chunk_k = t->images * t->blocks * t->k->elements;
    int64_t kept = 0; /* products in the sums of tiles so far */
    bool finished = false;
    gemm_begin_part(t->c);
    for (int64_t i = first; i < end; i++) {
        const struct chunk q = chunk_of(t, i);
        pack_chunk(t, &q, b.m_tile, b.m_tiles, b.c_tile, b.c_tiles, &w);
        multiply_chunk(t, &q, &b, kept > 0, &w);
        kept += chunk_k;
        if (i + 1 == end || (t->k->k_most && kept + chunk_k > t->k->k_most)) {
            finish_block(t, &b, sum_at(t, t->sums, slice * t->v.filters * t->n), finished, &w);
            finished = true;
            kept = 0;
        }
    }
    gemm_end_part(t->c);
}

/* Adds the slices and stores the results. */
static void store_part(void *context, int part, int worker) {
    const struct gradient *t = context;
    const int64_t results = t->v.filters * t->n, first = (int64_t)part * GEMM_STORE_BLOCK,
                  n = gemm_min(GEMM_STORE_BLOCK, results - first);
    for (int64_t slice = 1; slice < t->slices; slice++)
        t->c->kernels->add(sum_at(t, t->sums, first), sum_at(t, t->sums, slice * results + first), n);
    const struct gemm_sums sums = whole_sums(t, sum_at(t, t->sums, first), n);
    t->c->stores->sums(t->c->args, t->out_first + first, n, &sums, gemm_worker_stats(t->c, worker));
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* The bytes of the packed pixels of a band of one image. */
static int64_t plan_band(struct gradient *t, int64_t band_h, int64_t band_w) {
    t->band_h = band_h;
    t->band_w = band_w;
    t->positions = gemm_round_up(band_w, t->k->quad);
    while (t->c->family->ordered &&
           (band_h * t->positions % t->k->elements ||
            t->v.y.out % band_h * t->positions % t->k->elements)) /* tiles end with the band: */
        t->positions += t->k->quad;                               /* zero times the next elements may be NaN */
    t->line = t->positions / t->k->quad * GEMM_MATRIX_LINE;
    t->blocks = gemm_parts(band_h * t->positions, t->k->elements);
    t->phases = t->v.y.stride;
    t->rows = band_h + (gemm_reach(&t->v.y) - 1) / t->phases;
    t->copy = t->phases * t->rows * t->line;
    return t->k->planes * image_bytes(t) + t->m_block * t->blocks * pair_bytes(t);
}

static void plan_blocks(struct gradient *t) {
    const int64_t m_tiles = gemm_parts(t->v.filters, GEMM_MATRIX), c_tiles = gemm_parts(t->v.depth, GEMM_MATRIX),
                  tile = t->v.y.positions * t->v.x.positions * t->k->sum_words * (int64_t)sizeof(int32_t);
    t->m_block = gemm_min(m_tiles, BLOCK_TILES);
    t->c_block = gemm_min(c_tiles, BLOCK_TILES);
    while (t->m_block * t->c_block > 1 && t->m_block * t->c_block * tile > SUM_BYTES)
        if (t->c_block > t->m_block)
            t->c_block = gemm_parts(t->c_block, 2);
        else
            t->m_block = gemm_parts(t->m_block, 2);
    t->m_blocks = gemm_parts(m_tiles, t->m_block);
    t->c_blocks = gemm_parts(c_tiles, t->c_block);
}

/* Joins the filter columns if they fit in fewer tiles of channels so. Ordered sums stay in the chunks that they have.
 */
static void join_columns(struct gradient *t) {
    const int64_t together = gemm_parts(t->v.x.positions * t->v.depth, GEMM_MATRIX);
    t->joined = 1;
    if (t->c->family->ordered || t->v.x.dilation > 1 || t->v.in_pixel > t->v.depth || together > BLOCK_TILES ||
        together >= t->v.x.positions * gemm_parts(t->v.depth, GEMM_MATRIX))
        return;
    t->joined = t->v.x.positions;
    t->v.depth *= t->joined;
    t->v.x.positions = 1;
}

static void gradient_plan(struct gradient *t) {
    const int64_t busy = t->c->family->ordered ? ORDERED_PARTS : (int64_t)PARTS_PER_WORKER * t->c->workers;
    t->n = t->v.y.positions * t->v.x.positions * t->v.depth;
    join_columns(t);
    plan_blocks(t);
    int64_t h = t->v.y.out, w = t->v.x.out;
    const int64_t most = t->k->k_most ? t->k->k_most : INT64_MAX;
    while (h > 1 && (plan_band(t, h, w) > CHUNK_BYTES || t->blocks * t->k->elements > most))
        h = gemm_parts(h, 2);
    while (w > t->k->elements && (plan_band(t, h, w) > CHUNK_BYTES || t->blocks * t->k->elements > most))
        w = gemm_round_up(gemm_parts(w, 2), t->k->elements);
    const int64_t bytes = plan_band(t, h, w);
    t->bands_y = gemm_parts(t->v.y.out, h);
    t->bands_x = gemm_parts(t->v.x.out, w);
    t->images = 1;
    if (t->bands_y * t->bands_x == 1)
        t->images = gemm_max(gemm_min(gemm_min(CHUNK_BYTES / bytes, CHUNK_PIXELS / (t->blocks * t->k->elements)),
                                      t->v.batch / gemm_min(t->v.batch, busy)),
                             1);
    t->plane = t->images * image_bytes(t) + GEMM_MATRIX_PLANE; /* tiles at the end read beyond the last line */
    t->chunks = gemm_parts(t->v.batch, t->images) * t->bands_y * t->bands_x;

    const int64_t blocks = t->m_blocks * t->c_blocks,
                  affordable = gemm_max(SLICE_BYTES / (t->v.filters * t->n * t->c->stores->sum_bytes), 1);
    t->slices = gemm_min(gemm_min(t->chunks, affordable), gemm_parts(busy, blocks));
    t->chunks_per_slice = gemm_parts(t->chunks, t->slices);
    t->slices = gemm_parts(t->chunks, t->chunks_per_slice);
    t->store_parts = gemm_parts(t->v.filters * t->n, GEMM_STORE_BLOCK);
}

static struct gemm_workspace lay_out(struct gradient *t, char *block) {
    struct gemm_arena arena = {block, 0}, worker = gemm_worker_arena(t->c, 0);
    t->sums = gemm_take(&arena, t->slices * t->v.filters * t->n, (size_t)t->c->stores->sum_bytes);
    lay_out_worker(t, &worker);
    return fl_gemm_needs(t->c, &arena, &worker, gemm_max(t->slices * t->m_blocks * t->c_blocks, t->store_parts));
}

/* conv2d_weight_grad; matmul_tn, whose out[m][n] sums over k pixels. t describes one group. */
tensor_status fl_gemm_matrix_weight_gradient(struct gemm_call *c, struct gemm_workspace *needs_only) {
    struct gradient t = {.c = c, .k = c->family->matrix, .v = fl_gemm_convolution(c->args, true)};
    gradient_plan(&t);
    char *block;
    const tensor_status status = fl_gemm_begin(c, lay_out(&t, NULL), needs_only, &block);
    if (!block)
        return status;
    lay_out(&t, block);
    for (int64_t i = 0; i < t.v.groups; i++) {
        t.dy = gemm_element(c, c->args->in[0].data, i * t.v.filters);
        t.image = gemm_element(c, c->args->in[1].data, i * t.v.depth);
        t.out_first = i * t.v.filters * t.n;
        fl_parallel_large(c->workers, (int)(t.slices * t.m_blocks * t.c_blocks), gradient_part, &t);
        fl_parallel_within(c->workers, (int)t.store_parts, store_part, &t);
    }
    fl_gemm_end(c);
    return TENSOR_OK;
}
