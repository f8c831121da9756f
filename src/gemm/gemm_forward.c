/* gemm_forward.c - convolution and its input gradient: sums over channels and filter positions. The pixels of the
 * output are the rows of the matrix product (docs/decisions/0006-convolution-in-place.md).
 *
 * Matmuls whose k is too long for limbs are computed here too, as convolutions with 1x1 filters. Some convolutions with
 * such filters are computed as matmuls (gemm.c). The filters are B,
 * packed once per call. A is never built: each part copies the piece of the image that a rectangle of output pixels
 * sees, with its padding, and the micro-kernel reads a patch in place, as segments of neighbouring channels. A dilation
 * only moves the segments; if a copy of all lines between those that are seen would be larger, the lines are copied
 * separately for each output line.
 *
 * Sums of int16 over filters three wide, on lines of an even number of pixels, may take two thirds of the products by
 * Winograd's algorithm (docs/decisions/0039-winograd.md): v is then a convolution with filters one wide on pairs of
 * pixels, computed for each of four linear forms, whose sums give those of both pixels.
 *
 * An input gradient with a stride is divided by the position of a pixel within the stride (its phase): only the filter
 * positions of the same phase meet a value, all others meet holes. Exact sums omit the holes. In ordered sums a hole is
 * one term (struct gemm_packing). Products with padding are omitted in the same way, for lines of output pixels that
 * meet the same filter rows, and where a row of a tile is an image, for pixels that meet the same filter columns. */
#include "core/base/parallel.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_segments.h"
#include <string.h>

enum {
    L2_A = 384 * 1024, /* bytes of a rectangle's copy if B is read again for each */
    L2_B = 256 * 1024, /* bytes of B that remain in the cache from rectangle to rectangle */
    L1_B = 48 * 1024,  /* bytes of B that are read again for each band */
    BAND_SUMS = 2048,
    GROUP_COLUMNS = 128,  /* columns summed before they are stored */
    WINOGRAD_LINE = 4,    /* pixels of a line with a padding of one from which it takes fewer products */
    WINOGRAD_DEPTH = 32,  /* channels from which Winograd's algorithm is faster (measured) */
    FILTER_CHANNELS = 128 /* whose forms are packed at a time */
};

/* A part of k: `steps` steps of one filter position from `first` on. */
struct piece {
    int64_t r, s, first, steps;
    int64_t b, hole;   /* rows of the packed panel */
    bool chain_begins; /* ordered sums: a chain ends before this piece */
};

struct forward {
    struct gemm_call *c;
    struct gemm_convolution v;  /* A is the image; a group's filters are the columns */
    const void *image, *filter; /* of the group */
    int64_t out_first;          /* first channel of the result */

    int forms;          /* 1, or those of Winograd's algorithm */
    int64_t each;       /* output pixels of a pixel of v */
    struct gemm_side x; /* across, by pixels */

    int64_t depth_steps, pixel;         /* packed elements with data, and from pixel to pixel */
    int64_t pieces, steps, panel_steps; /* panel_steps: with the holes */
    struct piece *piece;
    int vectors;
    int64_t width, panels, panels_per_group, groups; /* groups of panels whose sums are stored together */
    gemm_packed *packed;
    int64_t intervals;
    float *proof; /* of each panel, by intervals; then their maximum in the first */

    int64_t rect_h, rect_w, rects_y, rects_x;
    int64_t stack;    /* images of a rectangle; more than one if they are whole, and a tile has more rows than a line */
    int64_t copy;     /* packed elements from image to image */
    int64_t plane;    /* of a rectangle's copy, or of one form of it */
    int64_t band_h;   /* lines of a rectangle that are summed and stored at a time */
    bool lines_apart; /* a copy has r lines for each output line, otherwise all that lie between */
    bool group_per_part;
    int64_t parts;
    int beyond; /* forms of filters do not fit */
};

/* --- the filters -------------------------------------------------------------------------------------------------- */

/* In one direction. */
static int64_t phases_of(const struct forward *t, const struct gemm_side *side) {
    return t->v.gradient ? side->stride : 1;
}

static bool has_phases(const struct forward *t) {
    return phases_of(t, &t->v.y) * phases_of(t, &t->v.x) > 1;
}

static bool is_ordered(const struct forward *t) {
    return t->c->family->ordered;
}

/* Lists the pieces in their order of k (piece NULL: counts them). Unordered sums may read the filter positions of a row
 * in their order in memory, phase by phase, so that neighbours become one segment. */
static void list_pieces(struct forward *t, struct piece *piece) {
    const bool ordered = is_ordered(t);
    const int64_t phases = ordered ? 1 : gemm_min(phases_of(t, &t->v.x), t->v.x.positions);
    int64_t k = 0, b = 0;
    t->pieces = 0;
    for (int64_t r = 0; r < t->v.y.positions; r++)
        for (int64_t phase = 0; phase < phases; phase++) {
            const int64_t count = gemm_parts(t->v.x.positions - phase, phases);
            for (int64_t i = 0; i < count; i++) {
                const int64_t s = phase + phases * (!ordered && t->v.gradient ? count - 1 - i : i);
                for (int64_t first = 0, steps; first < t->depth_steps; first += steps, k += steps, b += steps) {
                    steps = t->depth_steps - first;
                    if (ordered)
                        steps = gemm_min(steps, FL_K_CHUNK - k % FL_K_CHUNK);
                    if (piece)
                        piece[t->pieces] =
                            (struct piece){r, s, first, steps, b, t->steps + t->pieces, k % FL_K_CHUNK == 0};
                    t->pieces++;
                }
            }
        }
    t->steps = b;
    t->panel_steps = b + (ordered && has_phases(t) ? t->pieces : 0);
}

/* A packed panel, or one form of it. */
static gemm_packed *packed_panel(const struct forward *t, int64_t panel, int form) {
    return t->packed + (panel * t->forms + form) * t->panel_steps * t->width;
}

static float *proof_of(const struct forward *t, int64_t panel, int form) {
    return t->proof + (form * t->panels + panel) * t->intervals;
}

/* Packs some channels from k on of a form of the filters of a panel in filter row r; false if it does not fit. */
static bool pack_form(const struct forward *t, int64_t panel, int form, int64_t r, int64_t k, gemm_packed *to) {
    const struct gemm_packing *packing = t->c->packing;
    const int64_t first = panel * t->width, columns = gemm_min(t->width, t->v.filters - first),
                  depth = gemm_min(FILTER_CHANNELS, t->v.depth - k);
    const int64_t channels = t->v.gradient ? t->v.filters : t->v.depth, row = t->v.y.positions * 3 * channels;
    int16_t forms[GEMM_COLUMNS_MAX * FILTER_CHANNELS];
    for (int64_t i = 0; t->v.gradient && i < depth; i++) /* the filters are read the other way */
        if (!packing->winograd_filter(gemm_element(t->c, t->filter, (k + i) * row + (r * 3 + 2) * channels + first),
                                      -channels, columns, form, forms + i * columns))
            return false;
    for (int64_t j = 0; !t->v.gradient && j < columns; j++)
        if (!packing->winograd_filter(gemm_element(t->c, t->filter, (first + j) * row + r * 3 * channels + k), channels,
                                      depth, form, forms + j * FILTER_CHANNELS))
            return false;
    packing->block(to, t->width, forms, t->v.gradient ? columns : 1, t->v.gradient ? 1 : FILTER_CHANNELS, depth,
                   columns);
    return true;
}

static void pack_forms(void *context, int panel, int worker) {
    (void)worker;
    struct forward *t = context;
    for (int form = 0; form < t->forms; form++) {
        gemm_packed *packed = packed_panel(t, panel, form);
        for (int64_t i = 0; i < t->pieces; i++)
            for (int64_t k = 0; k < t->v.depth; k += FILTER_CHANNELS)
                if (!pack_form(t, panel, form, t->piece[i].r, k,
                               packed + (t->piece[i].b + k / t->c->packing->per_step) * t->width)) {
                    __atomic_store_n(&t->beyond, 1, __ATOMIC_RELAXED);
                    return;
                }
        t->c->packing->bound_intervals(packed, t->width, t->steps, proof_of(t, panel, form));
    }
}

static void forward_pack_filters(void *context, int panel, int worker) {
    (void)worker;
    const struct forward *t = context;
    const struct gemm_packing *packing = t->c->packing;
    const int64_t first = panel * t->width, columns = gemm_min(t->width, t->v.filters - first);
    gemm_packed *packed = t->packed + panel * t->panel_steps * t->width;
    const int64_t row = t->v.y.positions * t->v.x.positions * (t->v.gradient ? t->v.filters : t->v.depth);
    for (int64_t i = 0; i < t->pieces; i++) {
        const struct piece *p = &t->piece[i];
        const int64_t k = p->first * packing->per_step, depth = gemm_min(p->steps * packing->per_step, t->v.depth - k),
                      position = p->r * t->v.x.positions + p->s;
        gemm_packed *to = packed + p->b * t->width;
        if (t->v.gradient)
            packing->block(to, t->width, gemm_element(t->c, t->filter, k * row + position * t->v.filters + first), row,
                           1, depth, columns);
        else
            packing->block(to, t->width, gemm_element(t->c, t->filter, first * row + position * t->v.depth + k), 1, row,
                           depth, columns);
        if (t->panel_steps > t->steps)
            packing->hole(packed + p->hole * t->width, to, t->width, p->steps);
    }
    if (packing->bound_intervals)
        packing->bound_intervals(packed, t->width, t->steps, t->proof + panel * t->intervals);
}

/* --- the image ---------------------------------------------------------------------------------------------------- */

/* Output pixels [y0, y1) x [x0, x1) of some images and the piece of the input that they see. */
struct rect {
    int64_t image, images, y0, y1, x0, x1;
    int64_t in_y0, in_y1, in_x0, in_x1;
    int64_t line;                                      /* packed elements of an input row */
    float runs[GEMM_WINOGRAD_FORMS][GEMM_RUN_LENGTHS]; /* the largest sums of squares of the copy, or of each form */
    int64_t band_y0, band_y1;
};

static int64_t units_of(const struct forward *t) {
    return gemm_parts(t->v.batch, t->stack) * t->rects_y * t->rects_x;
}

/* The input pixels that output pixels [first, end) of a direction see; some may lie outside of the image. */
static void seen_by(const struct forward *t, const struct gemm_side *side, int64_t first, int64_t end, int64_t *from,
                    int64_t *to) {
    const int64_t far = gemm_reach(side) - 1;
    if (t->v.gradient) {
        *from = (first + side->padding) / side->stride - far / side->stride;
        *to = (end - 1 + side->padding) / side->stride + 1;
    } else {
        *from = first * side->stride - side->padding;
        *to = (end - 1) * side->stride - side->padding + far + 1;
    }
}

static struct rect rect_of(const struct forward *t, int64_t unit) {
    struct rect q = {.x0 = unit % t->rects_x * t->rect_w, .y0 = unit / t->rects_x % t->rects_y * t->rect_h};
    q.image = unit / (t->rects_x * t->rects_y) * t->stack;
    q.images = gemm_min(t->stack, t->v.batch - q.image);
    q.y1 = gemm_min(q.y0 + t->rect_h, t->v.y.out);
    q.x1 = gemm_min(q.x0 + t->rect_w, t->v.x.out);
    seen_by(t, &t->v.y, q.y0, q.y1, &q.in_y0, &q.in_y1);
    seen_by(t, &t->v.x, q.x0, q.x1, &q.in_x0, &q.in_x1);
    q.line = (q.in_x1 - q.in_x0) * t->pixel;
    return q;
}

/* Input pixels between the first and the last that `count` neighbouring output pixels may see in one direction. */
static int64_t pixels_seen(const struct forward *t, const struct gemm_side *side, int64_t count) {
    const int64_t far = gemm_reach(side) - 1;
    return t->v.gradient ? (count - 1) / side->stride + 2 + far / side->stride : (count - 1) * side->stride + far + 1;
}

/* Packed elements that the copy of an image may need. */
static int64_t copy_size(const struct forward *t) {
    const int64_t down = t->lines_apart ? t->rect_h * t->v.y.positions : pixels_seen(t, &t->v.y, t->rect_h);
    return down * pixels_seen(t, &t->v.x, t->rect_w) * t->pixel;
}

/* Those of a rectangle, with what tiles read beyond their last row. */
static int64_t rect_size(const struct forward *t) {
    return gemm_round_up(t->stack, t->stack > 1 ? t->c->kernels->rows_unit : 1) * t->copy +
           GEMM_ROWS_MAX * (t->v.gradient ? 1 : t->v.x.stride) * t->pixel;
}

static void pack_zeros(const struct forward *t, gemm_packed *to, int64_t count) {
    memset(to, t->c->packing->zero_byte, (size_t)count * GEMM_PACKED);
}

/* Pixels [x0, x1) of an image row (NULL: padding) of in_w pixels. */
static void pack_line(const struct forward *t, gemm_packed *to, const void *row, int64_t x0, int64_t x1) {
    if (!row) {
        pack_zeros(t, to, (x1 - x0) * t->pixel);
        return;
    }
    const int64_t from = gemm_min(gemm_max(x0, 0), x1), end = gemm_max(gemm_min(x1, t->x.in), from);
    pack_zeros(t, to, (from - x0) * t->pixel);
    to += (from - x0) * t->pixel;
    t->c->packing->pixels(to, t->pixel, gemm_element(t->c, row, from * t->v.in_pixel), t->v.in_pixel, end - from,
                          t->v.depth);
    to += (end - from) * t->pixel;
    pack_zeros(t, to, (x1 - end) * t->pixel);
}

/* The forms that pairs of output pixels [x0, x1) see of an image row. */
static void pack_line_forms(const struct forward *t, gemm_packed *to, const void *row, int64_t x0, int64_t x1,
                            const void *zero) {
    const int64_t padding = t->v.gradient ? t->x.positions - 1 - t->x.padding : t->x.padding;
    const struct gemm_image_line line = {.row = row,
                                         .row_pixels = t->x.in,
                                         .pixel = t->v.in_pixel,
                                         .channels = t->v.depth,
                                         .x = t->each * x0 - padding,
                                         .count = t->each * (x1 - x0) + t->x.positions - 1};
    if (row) {
        t->c->packing->winograd_pixels(&line, zero, to, t->pixel, t->plane);
        return;
    }
    for (int form = 0; form < t->forms; form++)
        pack_zeros(t, to + form * t->plane, (x1 - x0) * t->pixel);
}

/* The input row that output row y sees through filter row r, or one of padding. */
static int64_t row_under(const struct forward *t, int64_t y, int64_t r) {
    const struct gemm_side *down = &t->v.y;
    if (!t->v.gradient)
        return y * down->stride - down->padding + r * down->dilation;
    const int64_t at = y + down->padding - r * down->dilation;
    return at >= 0 && at % down->stride == 0 ? at / down->stride : -1;
}

static void pack_image(const struct forward *t, struct rect *q, int64_t number, gemm_packed *to, const void *zero) {
    const void *image = gemm_element(t->c, t->image, number * t->v.y.in * t->x.in * t->v.in_pixel);
    const int64_t lines = t->lines_apart ? (q->y1 - q->y0) * t->v.y.positions : q->in_y1 - q->in_y0;
    for (int64_t i = 0; i < lines; i++) {
        const int64_t y =
            t->lines_apart ? row_under(t, q->y0 + i / t->v.y.positions, i % t->v.y.positions) : q->in_y0 + i;
        const void *row = y >= 0 && y < t->v.y.in ? gemm_element(t->c, image, y * t->x.in * t->v.in_pixel) : NULL;
        if (t->forms > 1)
            pack_line_forms(t, to + i * q->line, row, q->in_x0, q->in_x1, zero);
        else
            pack_line(t, to + i * q->line, row, q->in_x0, q->in_x1);
    }
    for (int form = 0; form < t->forms && t->c->packing->bound_runs; form++)
        t->c->packing->bound_runs(to + form * t->plane, lines * q->line, q->runs[form]);
}

static void pack_rect(const struct forward *t, struct rect *q, gemm_packed *to, const void *zero) {
    memset(q->runs, 0, sizeof q->runs);
    for (int64_t i = 0; i < q->images; i++)
        pack_image(t, q, q->image + i, to + i * t->copy, zero);
}

/* The input of a unit, for the lines of rectangle q to look ahead to; nothing if it is no whole stretch of memory. */
static struct gemm_ahead ahead_of(const struct forward *t, const struct rect *q, int64_t unit) {
    struct gemm_ahead ahead = {.each = 0};
    if (unit >= units_of(t) || t->lines_apart || t->rects_x > 1 || t->v.groups > 1)
        return ahead;
    const struct rect next = rect_of(t, unit);
    const int64_t first = gemm_min(gemm_max(next.in_y0, 0), t->v.y.in),
                  end = gemm_max(gemm_min(next.in_y1, t->v.y.in), first), line = t->x.in * t->v.in_pixel;
    ahead.at = gemm_element(t->c, t->image, (next.image * t->v.y.in + first) * line);
    ahead.end = ahead.at + ((next.images - 1) * t->v.y.in + end - first) * line * t->c->packing->element_bytes;
    ahead.each = gemm_parts(gemm_parts(ahead.end - ahead.at, GEMM_CACHE_LINE), q->y1 - q->y0);
    return ahead;
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Filter positions [from, to) in one direction. */
struct met {
    int64_t from, to;
};

/* Those that meet a pixel of the image, not padding, at an output pixel. In ordered sums, whose terms all count, any.
 */
static struct met met_by(const struct forward *t, const struct gemm_side *side, int64_t at) {
    struct met met = {0, side->positions};
    const int64_t step = t->v.gradient ? -side->dilation : side->dilation,
                  first = t->v.gradient ? at + side->padding : at * side->stride - side->padding,
                  end = t->v.gradient ? side->in * side->stride : side->in;
    if (is_ordered(t))
        return met;
    while (met.from < met.to && (first + met.from * step < 0 || first + met.from * step >= end))
        met.from++;
    while (met.to > met.from && (first + (met.to - 1) * step < 0 || first + (met.to - 1) * step >= end))
        met.to--;
    return met;
}

/* The end of the output pixels from `at` on, `phases` apart and before `end`, that meet the same. From pixel to pixel
 * what is met moves in one direction, so pixels between two that meet the same positions meet these too; but between
 * two that meet nothing some may meet a narrow image. */
static int64_t end_of_met(const struct forward *t, const struct gemm_side *side, int64_t at, int64_t end,
                          int64_t phases) {
    const struct met met = met_by(t, side, at);
    int64_t same = 0, other = gemm_parts(end - at, phases); /* in steps of `phases` */
    while (other - same > 1) {
        const int64_t between = met.from == met.to ? same + 1 : same + (other - same) / 2;
        const struct met there = met_by(t, side, at + between * phases);
        if (there.from == met.from && there.to == met.to)
            same = between;
        else
            other = between;
    }
    return gemm_min(at + other * phases, end);
}

/* The segments of all pixels of a phase that meet the same filter positions. */
static void list_segments(const struct forward *t, const struct rect *q, int form, int64_t phase_y, int64_t phase_x,
                          struct met down_met, struct met across_met, struct gemm_segments *list) {
    const int64_t phases_y = phases_of(t, &t->v.y), phases_x = phases_of(t, &t->v.x);
    const bool ordered = is_ordered(t);
    const struct gemm_runs runs = gemm_find_runs(q->runs[form], t->pixel, t->depth_steps);
    const struct gemm_proof proof = {t->c->packing->bound_intervals ? proof_of(t, 0, form) : NULL, 0, &runs};
    gemm_segments_clear(list, ordered, 1, t->width);
    for (int64_t i = 0; i < t->pieces; i++) {
        const struct piece *p = &t->piece[i];
        if (ordered && p->chain_begins)
            gemm_segments_new_block(list);
        const int64_t y = p->r * t->v.y.dilation, x = p->s * t->v.x.dilation;
        const bool met = p->r >= down_met.from && p->r < down_met.to && p->s >= across_met.from && p->s < across_met.to;
        if (met && y % phases_y == phase_y && x % phases_x == phase_x) {
            const int64_t down = t->lines_apart  ? p->r
                                 : t->v.gradient ? -(y / phases_y)
                                                 : y,
                          across = t->v.gradient ? -(x / phases_x) : x;
            gemm_segments_add(list, down * q->line + across * t->pixel + p->first, p->b * t->width, p->b, p->steps,
                              proof);
        } else if (ordered) {
            gemm_segments_add_hole(list, p->hole * t->width);
        }
    }
    gemm_segments_end(list);
}

/* The image position that an output pixel reads at filter position 0, in one direction. */
static int64_t place_of(const struct forward *t, const struct gemm_side *side, int64_t at) {
    return t->v.gradient ? (at + side->padding) / side->stride : at * side->stride - side->padding;
}

/* The `count` pixels of one phase in one output row, or one pixel of as many images, times one panel, one block of k,
 * in tiles of `rows` pixels. */
static inline void row_tiles(const struct gemm_kernels *kernels, struct gemm_tile *tile, int64_t count, int rows,
                             int vectors, int64_t columns) {
    for (int64_t i = 0; i < count; i += rows) {
        tile->rows = (int)gemm_min(rows, count - i);
        kernels->tile(tile, vectors, columns);
        tile->a += rows * tile->a_row;
        gemm_sums_move(&tile->out, rows * tile->out.stride);
    }
}

/* The starts of a panel, of all blocks. */
static int64_t starts_size(const struct forward *t) {
    return (t->steps / GEMM_BLOCK_STEPS + 1) * t->width;
}

/* The starts of the panels of a group. */
static void find_starts(const struct forward *t, const struct gemm_segments *list, int64_t group, int32_t *starts) {
    const int64_t first = group * t->panels_per_group, end = gemm_min(first + t->panels_per_group, t->panels);
    for (int64_t panel = first; panel < end; panel++, starts += starts_size(t)) {
        struct gemm_tile tile;
        for (int64_t block = 0; block < list->blocks; block++) {
            gemm_tile_block(&tile, list, block);
            t->c->kernels->starts(packed_panel(t, panel, 0), tile.segments, tile.count, false, t->width, t->width,
                                  starts + block * t->width);
        }
    }
}

/* Output pixels of an image in a band. */
static int64_t image_pixels(const struct forward *t, const struct rect *q) {
    return (q->band_y1 - q->band_y0) * (q->x1 - q->x0) * t->each;
}

/* All tiles of a phase in pixels [y0, y1) x [x0, x1) of a band, the first of which is of that phase. out: the band's
 * sums. */
static void phase_tiles(const struct forward *t, const struct rect *q, const gemm_packed *a,
                        const struct gemm_segments *list, const int32_t *starts, int64_t y0, int64_t y1, int64_t x0,
                        int64_t x1, int64_t group, const struct gemm_sums *out, struct gemm_ahead *ahead) {
    const int64_t phases = phases_of(t, &t->v.y), across = phases_of(t, &t->v.x), first = group * t->panels_per_group,
                  end = gemm_min(first + t->panels_per_group, t->panels);
    const bool stacked = t->stack > 1;
    const int64_t pixels = q->x1 - q->x0, count = gemm_parts(x1 - x0, across),
                  step = (t->v.gradient ? 1 : t->v.x.stride) * t->pixel; /* from pixel to pixel of the phase */
    const int64_t line = t->lines_apart ? (y0 - q->y0) * t->v.y.positions : place_of(t, &t->v.y, y0) - q->in_y0;
    const int64_t lines = t->lines_apart  ? phases * t->v.y.positions
                          : t->v.gradient ? 1
                                          : t->v.y.stride; /* from row to row of the phase */
    const int64_t from = line * q->line + (place_of(t, &t->v.x, x0) - q->in_x0) * t->pixel;
    for (int64_t panel = first; panel < end; panel++) {
        const int64_t columns = gemm_min(t->width, t->v.filters - panel * t->width);
        const int vectors = (int)gemm_parts(columns, t->c->kernels->lanes),
                  rows = gemm_tile_rows(t->c->kernels, vectors, stacked ? q->images : count);
        struct gemm_tile tile = {
            .b = packed_panel(t, panel, 0), .a_row = stacked ? t->copy : step, .a_step = 1, .b_step = t->width};
        for (int64_t block = 0; block < list->blocks; block++) {
            gemm_tile_block(&tile, list, block);
            tile.add = block > 0;
            tile.start = starts + (panel - first) * starts_size(t) + block * t->width;
            const gemm_packed *row = a + from;
            struct gemm_sums to =
                gemm_sums_at(out, (y0 - q->band_y0) * pixels + x0 - q->x0, (panel - first) * t->width);
            to.stride = (stacked ? image_pixels(t, q) : across) * out->stride;
            for (int64_t y = y0; y < y1; y += phases) {
                struct gemm_sums pixel = to;
                for (int64_t x = 0; x < (stacked ? count : 1); x++) {
                    tile.a = row + x * step;
                    tile.out = pixel;
                    row_tiles(t->c->kernels, &tile, stacked ? q->images : count, rows, vectors, columns);
                    gemm_sums_move(&pixel, across * out->stride);
                }
                row += lines * q->line;
                gemm_sums_move(&to, phases * pixels * out->stride);
                gemm_look_ahead(ahead);
            }
        }
    }
}

/* The sums of `rows` pairs of pixels, or of as many images of a pair, `a_row` packed elements apart, for one panel. */
static void pair_tile(const struct forward *t, const gemm_packed *a, int64_t a_row, int rows, int64_t panel,
                      const struct gemm_segments *list, int32_t *room, const struct gemm_sums *out) {
    const struct gemm_kernels *kernels = t->c->kernels;
    const int64_t columns = gemm_min(t->width, t->v.filters - panel * t->width), plane = GEMM_ROWS_MAX * t->width;
    const int vectors = (int)gemm_parts(columns, kernels->lanes);
    struct gemm_sums sums = {.low = room, .high = room + t->forms * plane, .stride = t->width};
    for (int form = 0; form < t->forms; form++) {
        struct gemm_tile tile = {.a = a + form * t->plane,
                                 .b = packed_panel(t, panel, form),
                                 .a_row = a_row,
                                 .a_step = 1,
                                 .b_step = t->width,
                                 .out = gemm_sums_at(&sums, form * GEMM_ROWS_MAX, 0),
                                 .rows = rows};
        for (int64_t block = 0; block < list[form].blocks; block++) {
            gemm_tile_block(&tile, &list[form], block);
            tile.add = block > 0;
            kernels->tile(&tile, vectors, columns);
        }
    }
    kernels->winograd(&sums, plane, rows, columns, out);
}

/* All tiles of pairs of pixels in [y0, y1) x [x0, x1) of a band. */
static void pair_tiles(const struct forward *t, const struct rect *q, const gemm_packed *a,
                       const struct gemm_segments *list, int32_t *room, int64_t y0, int64_t y1, int64_t x0, int64_t x1,
                       int64_t group, const struct gemm_sums *all, struct gemm_ahead *ahead) {
    const int64_t first = group * t->panels_per_group, end = gemm_min(first + t->panels_per_group, t->panels);
    const bool stacked = t->stack > 1;
    const int64_t count = stacked ? q->images : x1 - x0, pairs = stacked ? x1 - x0 : 1, /* tiles of a line */
        a_row = stacked ? t->copy : t->pixel, apart = stacked ? image_pixels(t, q) : t->each;
    for (int64_t panel = first; panel < end; panel++) {
        const int64_t columns = gemm_min(t->width, t->v.filters - panel * t->width);
        const int rows = gemm_tile_rows(t->c->kernels, (int)gemm_parts(columns, t->c->kernels->lanes), count);
        for (int64_t y = y0; y < y1; y++) {
            const int64_t line = t->lines_apart ? (y - q->y0) * t->v.y.positions : place_of(t, &t->v.y, y) - q->in_y0;
            for (int64_t x = x0; x < x0 + pairs; x++) {
                const gemm_packed *from = a + line * q->line + (x - q->in_x0) * t->pixel;
                const int64_t pixel = ((y - q->band_y0) * (q->x1 - q->x0) + x - q->x0) * t->each;
                for (int64_t i = 0; i < count; i += rows) {
                    struct gemm_sums out = gemm_sums_at(all, pixel + i * apart, (panel - first) * t->width);
                    out.stride = apart * all->stride;
                    struct gemm_sums pair[2] = {out,
                                                gemm_sums_at(all, pixel + i * apart + 1, (panel - first) * t->width)};
                    pair[1].stride = out.stride;
                    pair_tile(t, from + i * a_row, a_row, (int)gemm_min(rows, count - i), panel, list, room, pair);
                }
            }
            gemm_look_ahead(ahead);
        }
    }
}

/* Zeroes the sums of such pixels, which no filter position meets, in one image. */
static void phase_zeros(const struct forward *t, const struct rect *q, int64_t image, int64_t y0, int64_t y1,
                        int64_t x0, int64_t x1, const struct gemm_sums *out) {
    for (int64_t y = y0; y < y1; y += phases_of(t, &t->v.y))
        for (int64_t x = x0; x < x1; x += phases_of(t, &t->v.x)) {
            const int64_t pixel =
                image * image_pixels(t, q) + ((y - q->band_y0) * (q->x1 - q->x0) + x - q->x0) * t->each;
            const struct gemm_sums to = gemm_sums_at(out, pixel, 0);
            const size_t sums = (size_t)(t->each * to.stride);
            if (to.wide)
                memset(to.wide, 0, sums * sizeof *to.wide);
            if (to.low)
                memset(to.low, 0, sums * sizeof *to.low);
            if (to.high)
                memset(to.high, 0, sums * sizeof *to.high);
        }
}

static void store_sums(const struct forward *t, int64_t first, int64_t n, const struct gemm_sums *sums, int64_t pixel,
                       void *stats) {
    const struct gemm_sums from = gemm_sums_at(sums, pixel, 0);
    t->c->stores->sums(t->c->args, first, n, &from, stats);
}

/* Stores a band of image number i of the rectangle. */
static void store_band(const struct forward *t, const struct rect *q, int64_t i, int64_t group,
                       const struct gemm_sums *all, void *stats) {
    const int64_t first = group * t->panels_per_group * t->width, wide = (q->x1 - q->x0) * t->each,
                  high = q->band_y1 - q->band_y0, line = (q->image + i) * t->v.y.out + q->band_y0,
                  origin = (line * t->x.out + q->x0 * t->each) * t->v.out_pixel + t->out_first, columns = all->stride;
    const struct gemm_sums of_image = gemm_sums_at(all, i * image_pixels(t, q), 0), *sums = &of_image;
    if (columns < t->v.out_pixel) {
        for (int64_t y = 0; y < high; y++)
            for (int64_t x = 0; x < wide; x++)
                store_sums(t, origin + (y * t->x.out + x) * t->v.out_pixel + first, columns, sums, y * wide + x, stats);
    } else if (wide < t->x.out) {
        for (int64_t y = 0; y < high; y++)
            store_sums(t, origin + y * t->x.out * t->v.filters, wide * t->v.filters, sums, y * wide, stats);
    } else {
        store_sums(t, origin, high * wide * t->v.filters, sums, 0, stats);
    }
}

/* The memory of one worker. */
struct forward_worker {
    gemm_packed *a;
    struct gemm_sums sums; /* of a band by the columns of a group */
    struct gemm_segments list[GEMM_WINOGRAD_FORMS];
    int32_t *starts; /* of the panels of a group: [panel][block][column] */
    int32_t *room;   /* limbs of the forms of a tile: [low, high][form][row][column] */
    void *zero;      /* channels of a pixel of padding */
    struct gemm_ahead ahead;
};

static struct forward_worker lay_out_worker(const struct forward *t, struct gemm_arena *arena) {
    struct forward_worker w = {.sums = {.low = NULL}};
    const int64_t columns = gemm_min(t->v.filters, t->panels_per_group * t->width);
    const int64_t segments = is_ordered(t) ? t->pieces : t->steps,
                  sums = t->stack * t->band_h * t->rect_w * t->each * columns, winograd = t->forms > 1;
    w.a = gemm_take(arena, t->forms * t->plane, GEMM_PACKED);
    if (!is_ordered(t) && t->steps * t->c->packing->per_step > GEMM_LIMBS_K) {
        w.sums.wide = gemm_take(arena, sums, sizeof *w.sums.wide);
    } else {
        w.sums.low = gemm_take(arena, sums, sizeof *w.sums.low);
        if (!is_ordered(t))
            w.sums.high = gemm_take(arena, sums, sizeof *w.sums.high);
    }
    for (int i = 0; i < t->forms; i++) {
        w.list[i].segment = gemm_take(arena, segments, sizeof *w.list[i].segment);
        w.list[i].block = gemm_take(arena, segments + 2, sizeof *w.list[i].block);
    }
    w.room = gemm_take(arena, winograd * 2 * t->forms * GEMM_ROWS_MAX * t->width, sizeof *w.room);
    w.zero = gemm_take(arena, winograd * t->v.depth, (size_t)t->c->packing->element_bytes);
    w.starts = gemm_take(arena, t->c->kernels->starts ? t->panels_per_group * starts_size(t) : 0, sizeof *w.starts);
    return w;
}

/* What the segments of a worker are listed for. */
struct listed {
    struct met down, across;
    int64_t phase_y, phase_x;
};

static bool is_listed(const struct listed *a, const struct listed *b) {
    return a->down.from == b->down.from && a->down.to == b->down.to && a->across.from == b->across.from &&
           a->across.to == b->across.to && a->phase_y == b->phase_y && a->phase_x == b->phase_x;
}

/* The sums of pixels [y, y1) x [x, x1) of a band; begins: starts of this group are still to be found. */
static void pixel_tiles(const struct forward *t, const struct rect *q, int64_t y, int64_t y1, int64_t x, int64_t x1,
                        int64_t group, bool *begins, struct listed *listed, struct forward_worker *w) {
    const struct listed now = {
        met_by(t, &t->v.y, y),
        t->stack > 1 ? met_by(t, &t->v.x, x) : (struct met){0, t->v.x.positions},
        (y + t->v.y.padding) % phases_of(t, &t->v.y),
        (x + t->v.x.padding) % phases_of(t, &t->v.x),
    };
    const bool lists = !is_listed(listed, &now);
    for (int form = 0; form < t->forms && lists; form++)
        list_segments(t, q, form, now.phase_y, now.phase_x, now.down, now.across, &w->list[form]);
    *listed = now;
    if (t->c->kernels->starts && (lists || *begins))
        find_starts(t, w->list, group, w->starts);
    *begins = false;
    if (w->list[0].blocks && t->forms > 1)
        pair_tiles(t, q, w->a, w->list, w->room, y, y1, x, x1, group, &w->sums, &w->ahead);
    else if (w->list[0].blocks)
        phase_tiles(t, q, w->a, w->list, w->starts, y, y1, x, x1, group, &w->sums, &w->ahead);
    else
        for (int64_t i = 0; i < q->images; i++)
            phase_zeros(t, q, i, y, y1, x, x1, &w->sums);
}

/* The sums of a band. */
static void band_tiles(const struct forward *t, const struct rect *q, int64_t group, bool begins, struct listed *listed,
                       struct forward_worker *w) {
    const int64_t phases_y = phases_of(t, &t->v.y), phases_x = phases_of(t, &t->v.x);
    for (int64_t y0 = q->band_y0; y0 < gemm_min(q->band_y0 + phases_y, q->band_y1); y0++)
        for (int64_t x0 = q->x0; x0 < gemm_min(q->x0 + phases_x, q->x1); x0++)
            for (int64_t y = y0, y1; y < q->band_y1; y += gemm_round_up(y1 - y, phases_y)) {
                y1 = end_of_met(t, &t->v.y, y, q->band_y1, phases_y);
                for (int64_t x = x0, x1; x < q->x1; x += gemm_round_up(x1 - x, phases_x)) {
                    x1 = t->stack > 1 ? end_of_met(t, &t->v.x, x, q->x1, phases_x) : q->x1;
                    pixel_tiles(t, q, y, y1, x, x1, group, &begins, listed, w);
                }
            }
}

static void forward_part(void *context, int part, int worker) {
    const struct forward *t = context;
    struct gemm_arena arena = gemm_worker_arena(t->c, worker);
    struct forward_worker w = lay_out_worker(t, &arena);
    void *stats = gemm_worker_stats(t->c, worker);
    const int64_t unit = t->group_per_part ? part / t->groups : part;
    struct rect q = rect_of(t, unit);
    const int64_t first = t->group_per_part ? part % t->groups : 0, end = t->group_per_part ? first + 1 : t->groups;
    struct listed listed = {.phase_y = -1};
    if (t->forms > 1)
        memset(w.zero, 0, (size_t)(t->v.depth * t->c->packing->element_bytes));
    pack_rect(t, &q, w.a, w.zero);
    w.ahead = ahead_of(t, &q, unit + (t->group_per_part ? 1 : t->c->workers));
    for (int64_t group = first; group < end; group++) {
        w.sums.stride = gemm_min(t->v.filters - group * t->panels_per_group * t->width, t->panels_per_group * t->width);
        for (q.band_y0 = q.y0; q.band_y0 < q.y1; q.band_y0 = q.band_y1) {
            q.band_y1 = gemm_min(q.band_y0 + t->band_h, q.y1);
            band_tiles(t, &q, group, q.band_y0 == q.y0, &listed, &w);
            for (int64_t i = 0; i < q.images; i++)
                store_band(t, &q, i, group, &w.sums, stats);
        }
    }
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Lines of few pixels leave rows of a tile empty, and meet all filters for few pixels: then a row of a tile is an
 * image. */
static void plan_stack(struct forward *t) {
    const struct gemm_kernels *k = t->c->kernels;
    const int64_t rows = k->rows[t->vectors];
    t->stack = 1;
    t->copy = copy_size(t);
    if (t->rects_x * t->rects_y > 1 || t->band_h < t->rect_h ||
        gemm_parts(t->v.x.out, phases_of(t, &t->v.x)) > rows / 2)
        return;
    const int64_t sums = t->rect_h * t->rect_w * t->each * gemm_min(t->v.filters, t->panels_per_group * t->width),
                  fitting =
                      gemm_min(L2_A / (t->forms * t->copy * GEMM_PACKED), L2_B / (sums * t->c->stores->sum_bytes));
    t->stack = gemm_min(gemm_min(rows, t->v.batch), fitting / k->rows_unit * k->rows_unit);
    t->stack = gemm_max(t->stack, 1);
}

static void forward_plan(struct forward *t) {
    const struct gemm_kernels *k = t->c->kernels;
    t->depth_steps = gemm_parts(t->v.depth, t->c->packing->per_step);
    t->pixel = t->depth_steps;
    if (t->pixel >= 256 && t->pixel % 128 == 0)
        t->pixel += FL_ALIGNMENT / GEMM_PACKED; /* tile rows in different sets of the cache */
    t->vectors = (int)gemm_parts(t->v.filters, k->lanes);
    if (t->vectors > k->vectors)
        t->vectors = 2;
    t->width = (int64_t)t->vectors * k->lanes;
    t->panels = gemm_parts(t->v.filters, t->width);
    t->panels_per_group = t->v.filters <= 2 * GROUP_COLUMNS ? t->panels : GROUP_COLUMNS / t->width;
    t->groups = gemm_parts(t->panels, t->panels_per_group);
    list_pieces(t, NULL);
    t->intervals = gemm_parts(t->steps, GEMM_INTERVAL);

    const int64_t columns = gemm_min(t->v.filters, t->panels_per_group * t->width);
    int64_t pixels = GEMM_SUM_BYTES / (columns * t->each * t->c->stores->sum_bytes);
    if (t->steps * t->panels * t->width * t->forms * GEMM_PACKED > L2_B)
        pixels = gemm_max(pixels, gemm_min(192, L2_A / (t->forms * t->pixel * GEMM_PACKED)));
    pixels = gemm_round_up(gemm_max(pixels, 1), k->rows[t->vectors]);
    t->rect_w = gemm_min(pixels, t->v.x.out);
    t->rect_h = gemm_min(gemm_max(pixels / t->rect_w, 1), t->v.y.out);
    t->rects_x = gemm_parts(t->v.x.out, t->rect_w);
    t->rects_y = gemm_parts(t->v.y.out, t->rect_h);
    t->band_h = t->rect_h;
    if (t->panels == 1 && !has_phases(t) && t->steps * t->width * t->forms * GEMM_PACKED <= L1_B)
        t->band_h = gemm_min(t->rect_h, gemm_max(1, BAND_SUMS / (t->rect_w * t->each * t->v.filters)));
    t->lines_apart = t->v.y.dilation > 1 && t->rect_h * t->v.y.positions < pixels_seen(t, &t->v.y, t->rect_h);
    plan_stack(t);
    t->plane = rect_size(t);
    const int64_t units = units_of(t);
    t->group_per_part = units < GEMM_PARTS_FEW;
    t->parts = t->group_per_part ? units * t->groups : units;
}

static struct gemm_workspace lay_out(struct forward *t, char *block) {
    struct gemm_arena arena = {block, 0}, worker = gemm_worker_arena(t->c, 0);
    t->packed = gemm_take(&arena, t->panels * t->forms * t->panel_steps * t->width, GEMM_PACKED);
    t->piece = gemm_take(&arena, t->pieces, sizeof *t->piece);
    t->proof =
        gemm_take(&arena, t->c->packing->bound_intervals ? t->forms * t->panels * t->intervals : 0, sizeof *t->proof);
    lay_out_worker(t, &worker);
    return fl_gemm_needs(t->c, &arena, &worker, t->parts);
}

/* The same by Winograd's algorithm; false where it does not apply. */
static bool plan_winograd(const struct forward *plain, struct forward *t) {
    const struct gemm_side *x = &plain->v.x;
    if (!gemm_suits_winograd(plain->c, x) || x->out % 2 || x->out < WINOGRAD_LINE || has_phases(plain) ||
        plain->v.depth < WINOGRAD_DEPTH || plain->v.y.positions * x->positions * plain->v.depth > GEMM_LIMBS_K)
        return false;
    *t = *plain;
    t->forms = GEMM_WINOGRAD_FORMS;
    t->each = 2;
    t->v.x = (struct gemm_side){.in = x->out / 2, .out = x->out / 2, .positions = 1, .stride = 1, .dilation = 1};
    forward_plan(t);
    return true;
}

/* One group, whose channels begin at the image, filter and out_first of t. false, and nothing is computed, if forms do
 * not fit. */
static bool compute(struct forward *t) {
    list_pieces(t, t->piece);
    fl_parallel((int)t->panels, t->forms > 1 ? pack_forms : forward_pack_filters, t);
    if (t->beyond)
        return false;
    for (int form = 0; form < t->forms && t->c->packing->bound_intervals; form++) {
        float *proof = proof_of(t, 0, form);
        for (int64_t i = t->intervals; i < t->panels * t->intervals; i++)
            proof[i % t->intervals] = gemm_larger(proof[i % t->intervals], proof[i]);
    }
    fl_parallel_large(t->c->workers, (int)t->parts, forward_part, t);
    return true;
}

static void begin_group(struct forward *t, int64_t group) {
    const struct fl_args *args = t->c->args;
    t->image = gemm_element(t->c, args->in[0].data, group * t->v.depth);
    t->filter =
        gemm_element(t->c, args->in[1].data, group * t->v.filters * t->v.y.positions * t->x.positions * t->v.depth);
    t->out_first = group * t->v.filters;
}

/* conv2d and matmul_nt; conv2d_input_grad and matmul. A is the image by patches: x, or in an input gradient dy, where
 * images in and out change places and the filters are read the other way. t describes one group. */
tensor_status fl_gemm_forward(struct gemm_call *c, struct gemm_workspace *needs_only) {
    struct forward t = {.c = c, .v = fl_gemm_convolution(c->args, true), .forms = 1, .each = 1}, pairs;
    t.x = t.v.x;
    forward_plan(&t);
    struct gemm_workspace needs = lay_out(&t, NULL);
    bool winograd = plan_winograd(&t, &pairs);
    if (winograd)
        needs = gemm_larger_needs(needs, lay_out(&pairs, NULL));
    char *block;
    const tensor_status status = fl_gemm_begin(c, needs, needs_only, &block);
    if (!block)
        return status;
    winograd = winograd && fl_gemm_all(&c->args->in[0], c->workers, c->packing->winograd_takes);
    for (int64_t i = 0; i < t.v.groups; i++) {
        if (winograd && !pairs.beyond) {
            lay_out(&pairs, block);
            begin_group(&pairs, i);
            if (compute(&pairs))
                continue;
        }
        lay_out(&t, block);
        begin_group(&t, i);
        compute(&t);
    }
    fl_gemm_end(c);
    return TENSOR_OK;
}
