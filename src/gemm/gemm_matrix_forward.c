/* gemm_matrix_forward.c - convolution and its input gradient on matrix tiles, and matmuls whose k is too long for
 * limbs, which are convolutions with filters of one pixel.
 *
 * Pixels of a grid are the rows of the matrix product: those of the output, or in a gradient with a stride those of
 * each phase, which all phases share. The pixels of one image line that a grid pixel reads, its window, are copied to
 * lines of 64 bytes of its own, so that tiles load them aligned; all filter lines r read the same copies. Sixteen
 * pixels in the order of memory are a tile, across the ends of grid lines. If neighbouring windows have the same bytes
 * at a distance of whole lines, they share them. A window is copied when the first tile reads it, from the image itself
 * if its pixels are 16, 32 or 64 bytes of a plane, otherwise from its bytes, which were split one image line ahead:
 * bytes just written in pieces of one size cannot be read in another without delay. If tiles lie in one grid line, only
 * as many image lines are stored as a filter reads, each in the place of one that no tile reads any more. */
#include "core/base/parallel.h"
#include "gemm/gemm_driver.h"
#include <string.h>

enum {
    LINES_BYTES = 512 * 1024,  /* of the windows of a band, at most: they stay in the second-level cache */
    FILTER_BYTES = 640 * 1024, /* of the filters applied to a band before the next ones, likewise */
    NEAR_BYTES = 24 * 1024,    /* of filters that stay in the first-level cache */
    BAND_PIXELS = 64           /* least number of grid pixels in a band that is cut for threads */
};

/* Outputs of one phase, computed from the windows. */
struct phase {
    int64_t y, x; /* the first output pixel of the grid; may lie before the image */
    int64_t steps;
    int64_t first; /* first of its offsets, and of its tiles in the filters of 16 columns */
};

/* The grid in one direction. */
struct direction {
    int64_t pixels;
    int64_t step;     /* image pixels from grid pixel to grid pixel */
    int64_t origin;   /* position in the image of the window of its first pixel */
    int64_t out_step; /* output pixels from grid pixel to grid pixel */
    int64_t reach;    /* pixels from the first of a window to its last, inclusive */
};

/* A step multiplies filter line r by line `line` of the windows, in phase `phase` of columns. */
struct tap {
    int64_t r, line, phase;
};

struct forward {
    struct gemm_call *c;
    const struct gemm_matrix_kernels *k;
    struct gemm_convolution v;
    const void *image, *filter; /* of the group */
    int64_t out_first;          /* first channel of the result */

    struct direction y, x;
    int64_t positions, position_step; /* of a window in a line: the pixels that a filter reads */
    int64_t lines;                    /* of 64 bytes, in each plane, of a window in a line */
    bool apart;                       /* each position has position_lines lines of its own */
    int64_t position_lines;
    int64_t shared;                     /* grid pixels that fill a whole line; 0: no pixels share lines */
    int64_t phases, steps, phase_steps; /* steps: of all phases; of the longest */
    int64_t all_steps;                  /* final value of `steps`, which is counted again while the steps are listed */
    struct phase *phase;                /* phases in both directions */
    struct tap *tap;                    /* of each step */
    int64_t *offset;  /* in the windows, of each step, for each of the turns(t) rotations of the rows */
    uint8_t *filters; /* [16 columns][steps] tiles */

    int64_t band_h, band_w, bands_y, bands_x, images; /* of a part */
    int64_t rows, pitch, plane; /* image lines of a band, by line phases; lines of 64 bytes from one to the next */
    bool in_turn;               /* only as many rows are stored as a filter reads, each in the place of the oldest */
    int64_t line_phases;
    int64_t split_plane;
    int64_t columns; /* tiles of 16 columns whose filters are applied together */
    int64_t parts;
    bool at_once; /* windows are copied from the image itself */
    bool far;     /* filters come from the second-level cache */
    bool direct;  /* sums are stored from tiles */
};

static int64_t pair_bytes(const struct forward *t) {
    return (int64_t)t->k->planes * GEMM_MATRIX_PLANE;
}

static int64_t column_tiles(const struct forward *t) {
    return gemm_parts(t->v.filters, GEMM_MATRIX);
}

/* The number of grid lines after which the places of their windows repeat. */
static int64_t turns(const struct forward *t) {
    return t->in_turn ? gemm_min(t->rows, t->band_h) : 1;
}

/* --- geometry ----------------------------------------------------------------------------------------------------- */

/* The phase of filter line or column i: i * dilation modulo the stride of a gradient, otherwise 0. */
static int64_t phase_of(const struct forward *t, const struct gemm_side *side, int64_t i) {
    return t->v.gradient ? i * side->dilation % side->stride : 0;
}

/* The image line of a window that filter line r reads. Windows begin at their first line; a gradient reads them from
 * the last to the first, those of one phase. */
static int64_t line_of(const struct forward *t, int64_t r) {
    const struct gemm_side *down = &t->v.y;
    return t->v.gradient ? t->y.reach - 1 - r * down->dilation / down->stride : r * down->dilation;
}

/* The filter column that reads a position of the window, in a phase; -1: none. */
static int64_t column_at(const struct forward *t, int64_t position, int64_t phase) {
    if (!t->v.gradient)
        return position;
    const struct gemm_side *across = &t->v.x;
    const int64_t back = t->x.reach - 1 - position * t->position_step; /* whole strides back from the last pixel */
    const int64_t at = back * across->stride + phase;
    return at % across->dilation == 0 && at / across->dilation < t->v.x.positions ? at / across->dilation : -1;
}

/* Whether some filter column of a phase reads line g of a window. */
static bool is_met(const struct forward *t, int64_t g, int64_t phase) {
    const int64_t first = t->apart ? g / t->position_lines : 0, end = t->apart ? first + 1 : t->positions;
    for (int64_t position = first; position < end; position++)
        if (column_at(t, position, phase) >= 0)
            return true;
    return false;
}

/* The output in one direction of a phase for the first pixel of the grid; it may be before the image. */
static int64_t first_output(const struct forward *t, const struct gemm_side *side, int64_t phase) {
    return t->v.gradient ? phase - side->padding % side->stride : 0;
}

/* Whether a phase has outputs in a direction. */
static bool has_outputs(const struct forward *t, const struct gemm_side *side, const struct direction *grid,
                        int64_t phase) {
    const int64_t first = first_output(t, side, phase);
    return first >= 0 ? first < side->out : grid->pixels > 1 && first + grid->out_step < side->out;
}

static void list_phase(struct forward *t, int64_t py, int64_t px) {
    const int64_t first = t->steps;
    for (int64_t r = 0; r < t->v.y.positions; r++) {
        const int64_t place = line_of(t, r), line_phase = place % t->line_phases, row = place / t->line_phases;
        for (int64_t g = 0; phase_of(t, &t->v.y, r) == py && g < t->lines; g++) {
            if (!is_met(t, g, px))
                continue;
            for (int64_t turn = 0; t->offset && turn < turns(t); turn++) {
                const int64_t line =
                    ((t->shared ? 0 : g * t->line_phases) + line_phase) * t->rows + (row + turn) % t->rows;
                t->offset[turn * t->all_steps + t->steps] = (line * t->pitch + g * t->shared) * GEMM_MATRIX_LINE;
            }
            if (t->tap)
                t->tap[t->steps] = (struct tap){r, g, px};
            t->steps++;
        }
    }
    if (t->phase)
        t->phase[t->phases] =
            (struct phase){first_output(t, &t->v.y, py), first_output(t, &t->v.x, px), t->steps - first, first};
    t->phases++;
    t->phase_steps = gemm_max(t->phase_steps, t->steps - first);
}

/* Lists the phases that have outputs, and their steps; without memory, only counts them. */
static void list_steps(struct forward *t) {
    t->phases = t->steps = t->phase_steps = 0;
    for (int64_t py = 0; py < t->y.out_step; py++)
        for (int64_t px = 0; px < t->x.out_step && has_outputs(t, &t->v.y, &t->y, py); px++)
            if (has_outputs(t, &t->v.x, &t->x, px))
                list_phase(t, py, px);
}

/* --- filters ------------------------------------------------------------------------------------------------------ */

/* Element i of line g of a window: its position, and its place among the depth; false beyond them. */
static bool element_of(const struct forward *t, int64_t g, int64_t i, int64_t *position, int64_t *k) {
    const int64_t at = (t->apart ? g % t->position_lines : g) * t->k->elements + i;
    *position = t->apart ? g / t->position_lines : at / t->v.depth;
    *k = t->apart ? at : at % t->v.depth;
    return *position < t->positions && *k < t->v.depth;
}

static void pack_gradient_tile(const struct forward *t, const struct tap *tap, int64_t column, uint8_t *to) {
    const void *row[GEMM_MATRIX_LINE];
    const int64_t filter = t->v.y.positions * t->v.x.positions * t->v.filters;
    for (int64_t i = 0; i < t->k->elements; i++) {
        int64_t position, k;
        const bool there = element_of(t, tap->line, i, &position, &k);
        const int64_t s = there ? column_at(t, position, tap->phase) : -1;
        row[i] =
            s < 0 ? NULL
                  : gemm_element(t->c, t->filter, k * filter + (tap->r * t->v.x.positions + s) * t->v.filters + column);
    }
    t->k->ranks(row, gemm_min(GEMM_MATRIX, t->v.filters - column), true, to);
}

static void pack_filters(void *context, int part, int worker) {
    (void)worker;
    const struct forward *t = context;
    const int64_t column = (int64_t)part * GEMM_MATRIX, columns = gemm_min(GEMM_MATRIX, t->v.filters - column),
                  window = t->v.x.positions * t->v.depth;
    uint8_t *to = t->filters + part * t->steps * pair_bytes(t);
    for (int64_t i = 0; i < t->steps; i++, to += pair_bytes(t)) {
        const struct tap *tap = &t->tap[i];
        if (t->v.gradient) {
            pack_gradient_tile(t, tap, column, to);
            continue;
        }
        int64_t position, k;
        element_of(t, tap->line, 0, &position, &k);
        const int64_t count = t->apart ? t->v.depth - k : window - position * t->v.depth - k;
        t->k->lines(
            gemm_element(t->c, t->filter, (column * t->v.y.positions + tap->r) * window + position * t->v.depth + k),
            t->v.y.positions * window, columns, gemm_min(t->k->elements, count), true, to);
    }
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* Grid pixels [y0, y1) x [x0, x1) of an image. */
struct band {
    int64_t image, y0, y1, x0, x1;
};

struct forward_worker {
    uint8_t *windows; /* [image of the part] */
    uint8_t *bytes;   /* two image lines, split */
    int32_t *sums;    /* of two tiles */
    struct gemm_sums kept;
};

/* The number of pixels of an image line that the windows of a band read. */
static int64_t pixels_seen(const struct forward *t, int64_t grid_pixels) {
    return (grid_pixels - 1) * t->x.step + t->x.reach;
}

/* Splits image line `line` of a band, counted from the first that it reads, into bytes, unless it is padding. */
static void split_line(const struct forward *t, const struct band *q, int64_t line, struct forward_worker *w) {
    const int64_t y = q->y0 * t->y.step + t->y.origin + line;
    if (y < 0 || y >= t->v.y.in)
        return;
    const int64_t x0 = q->x0 * t->x.step + t->x.origin, count = pixels_seen(t, q->x1 - q->x0);
    const int64_t from = gemm_min(gemm_max(-x0, 0), count), end = gemm_max(gemm_min(t->v.x.in - x0, count), from);
    const int64_t bytes = GEMM_MATRIX_LINE / t->k->elements * t->v.depth; /* of a pixel, in each plane */
    uint8_t *to = w->bytes + (line & 1) * t->k->planes * t->split_plane;
    for (int p = 0; p < t->k->planes; p++) {
        memset(to + p * t->split_plane, 0, (size_t)(from * bytes));
        memset(to + p * t->split_plane + end * bytes, 0, (size_t)((count - end) * bytes));
    }
    const void *row =
        gemm_element(t->c, t->image, ((q->image * t->v.y.in + y) * t->v.x.in + x0 + from) * t->v.in_pixel);
    if (t->v.in_pixel == t->v.depth)
        t->k->split(row, (end - from) * t->v.depth, to + from * bytes, t->split_plane);
    else
        for (int64_t x = from; x < end; x++)
            t->k->split(gemm_element(t->c, row, (x - from) * t->v.in_pixel), t->v.depth, to + x * bytes,
                        t->split_plane);
}

/* Copies the windows of a band in image line `line`. */
static void copy_windows(const struct forward *t, const struct band *q, int64_t line, struct forward_worker *w,
                         uint8_t *windows) {
    const int64_t y = q->y0 * t->y.step + t->y.origin + line, count = q->x1 - q->x0;
    const int64_t bytes = GEMM_MATRIX_LINE / t->k->elements * t->v.depth;
    const uint8_t *from = w->bytes + (line & 1) * t->k->planes * t->split_plane;
    const int64_t place = line / t->line_phases, row_at = t->in_turn ? place % t->rows : place;
    uint8_t *to = windows + (line % t->line_phases * t->rows + row_at) * t->pitch * GEMM_MATRIX_LINE;
    const int64_t groups = t->shared ? 1 : t->lines, group = t->line_phases * t->rows * t->pitch * GEMM_MATRIX_LINE,
                  pitch = t->shared ? count + (t->lines - 1) * t->shared : count;
    if (y < 0 || y >= t->v.y.in) {
        for (int p = 0; p < t->k->planes; p++)
            for (int64_t g = 0; g < groups; g++)
                memset(to + p * t->plane + g * group, 0, (size_t)(t->pitch * GEMM_MATRIX_LINE));
        return;
    }
    if (t->at_once) {
        const void *row = gemm_element(t->c, t->image, (q->image * t->v.y.in + y) * t->v.x.in * t->v.in_pixel);
        for (int64_t g = 0; g < groups; g++) {
            const int64_t first = g * (t->apart ? t->position_step : t->k->elements / t->v.depth);
            t->k->windows(row, t->v.depth, q->x0 + t->x.origin + first, t->v.x.in, pitch, to + g * group, t->plane);
        }
        return;
    }
    for (int64_t g = 0; g < groups; g++) {
        const int64_t position = t->apart ? g / t->position_lines : 0,
                      first = (t->apart ? g % t->position_lines : g) * GEMM_MATRIX_LINE,
                      all = t->apart ? bytes : t->positions * bytes;
        t->k->copy(from + position * t->position_step * bytes + first, t->split_plane, t->x.step * bytes, pitch,
                   gemm_min(GEMM_MATRIX_LINE, all - first), to + g * group, t->plane);
    }
}

/* Whether some filter line reads it: a stride larger than the filter skips lines. */
static bool is_seen(const struct forward *t, int64_t line) {
    for (int64_t r = 0; r < t->v.y.positions; r++)
        if (line_of(t, r) % t->line_phases == line % t->line_phases)
            return true;
    return false;
}

/* Makes windows up to image line `end`, exclusive. */
static void make_windows(const struct forward *t, const struct band *q, int64_t *made, int64_t end,
                         struct forward_worker *w, uint8_t *windows) {
    for (; *made < end; ++*made) {
        if (!t->at_once) {
            if (*made == 0)
                split_line(t, q, 0, w);
            if (is_seen(t, *made + 1))
                split_line(t, q, *made + 1, w);
        }
        if (is_seen(t, *made))
            copy_windows(t, q, *made, w, windows);
    }
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Finds the output elements of 16 pixels of the grid, from channel `first` on; -1: none. */
static void elements_of(const struct forward *t, const struct band *q, const struct phase *phase, int64_t y, int64_t x,
                        int64_t first, int64_t *element) {
    int64_t out_y = y * t->y.out_step + phase->y, out_x = x * t->x.out_step + phase->x;
    const int64_t pixel = (q->image * t->v.y.out + out_y) * t->v.x.out + out_x, step = t->x.out_step * t->v.out_pixel;
    if (x + GEMM_MATRIX <= q->x1 && out_y >= 0 && out_y < t->v.y.out && out_x >= 0 &&
        out_x + (GEMM_MATRIX - 1) * t->x.out_step < t->v.x.out) { /* neighbours */
        for (int i = 0; i < GEMM_MATRIX; i++)
            element[i] = pixel * t->v.out_pixel + first + i * step;
        return;
    }
    for (int i = 0; i < GEMM_MATRIX; i++) {
        const bool there = y < q->y1 && out_y >= 0 && out_y < t->v.y.out && out_x >= 0 && out_x < t->v.x.out;
        element[i] = there ? ((q->image * t->v.y.out + out_y) * t->v.x.out + out_x) * t->v.out_pixel + first : -1;
        out_x += t->x.out_step;
        if (++x == q->x1) {
            x = q->x0;
            out_x = x * t->x.out_step + phase->x;
            y++;
            out_y += t->y.out_step;
        }
    }
}

/* A tile whose sums are stored while the next are computed. */
struct waiting {
    const struct forward *t;
    void *stats;
    bool there;
    struct gemm_matrix_tile tile;
};

static void store_waiting(void *context, int from, int to) {
    const struct waiting *wait = context;
    const struct gemm_call *c = wait->t->c;
    if (wait->there)
        c->stores->matrix(c->args, &wait->tile, from, to, wait->stats);
}

/* Stores the sums of a tile over all its steps, added up in parts if the tile cannot hold them. */
static void keep_sums(const struct forward *t, const uint8_t *windows, const int64_t *offset, int64_t steps,
                      const uint8_t *filters, int32_t *sums, const struct gemm_sums *to, int64_t columns) {
    const struct gemm_meanwhile nothing = {NULL, NULL};
    const int64_t most = t->k->k_most ? t->k->k_most / t->k->elements : steps;
    int64_t done = 0;
    do {
        const int64_t count = gemm_min(most, steps - done);
        t->k->window_sums(windows, t->plane, offset + done, count, filters + done * pair_bytes(t), true, &nothing,
                          sums);
        t->k->finish(sums, NULL, GEMM_MATRIX, GEMM_MATRIX, columns, 0, done > 0, to);
        done += count;
    } while (done < steps);
}

/* Writes the stored sums of 16 pixels to the output, neighbours in memory together. */
static void store_kept(const struct forward *t, const struct gemm_sums *kept, const int64_t *element, int64_t columns,
                       void *stats) {
    for (int i = 0, next; i < GEMM_MATRIX; i = next) {
        next = i + 1;
        if (element[i] < 0)
            continue;
        while (columns == t->v.out_pixel && next < GEMM_MATRIX && element[next] == element[next - 1] + columns)
            next++;
        const struct gemm_sums row = gemm_sums_at(kept, i, 0);
        t->c->stores->sums(t->c->args, element[i], (next - i) * columns, &row, stats);
    }
}

/* Multiplies the tile of pixels that begins at (y, x) of the grid by the filters from column tile `first` to `end`.
 * windows: at its first pixel; offset: those of its rotation of the rows. */
static void tile_by_columns(const struct forward *t, const struct band *q, const uint8_t *windows,
                            const int64_t *offset, int64_t y, int64_t x, int64_t first, int64_t end,
                            struct forward_worker *w, struct waiting *wait, void *stats) {
    const struct gemm_meanwhile store = {store_waiting, wait};
    for (int64_t i = 0; i < t->phases; i++) {
        const struct phase *phase = &t->phase[i];
        int64_t element[GEMM_MATRIX];
        elements_of(t, q, phase, y, x, t->out_first + first * GEMM_MATRIX, element);
        struct gemm_sums kept = w->kept;
        kept.stride = gemm_min(t->v.filters, end * GEMM_MATRIX) - first * GEMM_MATRIX;
        for (int64_t j = first; j < end; j++) {
            const int64_t columns = gemm_min(GEMM_MATRIX, t->v.filters - j * GEMM_MATRIX);
            const uint8_t *filters = t->filters + (j * t->steps + phase->first) * pair_bytes(t);
            int32_t *sums = w->sums + (wait->tile.sums == w->sums ? t->k->sum_words : 0);
            if (!t->direct) {
                const struct gemm_sums to = gemm_sums_at(&kept, 0, (j - first) * GEMM_MATRIX);
                keep_sums(t, windows, offset + phase->first, phase->steps, filters, sums, &to, columns);
                continue;
            }
            t->k->window_sums(windows, t->plane, offset + phase->first, phase->steps, filters, t->far, &store, sums);
            wait->there = true;
            wait->tile.sums = sums;
            wait->tile.columns = columns;
            for (int row = 0; row < GEMM_MATRIX; row++)
                wait->tile.element[row] = element[row] < 0 ? -1 : element[row] + (j - first) * GEMM_MATRIX;
        }
        if (!t->direct)
            store_kept(t, &kept, element, kept.stride, stats);
    }
}

static struct forward_worker lay_out_worker(const struct forward *t, struct gemm_arena *arena) {
    struct forward_worker w = {.kept = {.low = NULL}};
    const int64_t kept = GEMM_MATRIX * gemm_min(t->v.filters, t->columns * GEMM_MATRIX);
    w.windows = gemm_take(arena, t->images * t->k->planes * t->plane, 1);
    w.bytes = gemm_take(arena, 2 * t->k->planes * t->split_plane, 1);
    w.sums = gemm_take(arena, 2 * t->k->sum_words, sizeof *w.sums);
    if (!t->c->family->ordered && t->phase_steps * t->k->elements > GEMM_LIMBS_K) {
        w.kept.wide = gemm_take(arena, kept, sizeof *w.kept.wide);
    } else {
        w.kept.low = gemm_take(arena, kept, sizeof *w.kept.low);
        if (!t->c->family->ordered)
            w.kept.high = gemm_take(arena, kept, sizeof *w.kept.high);
    }
    return w;
}

static struct band band_of(const struct forward *t, int64_t part, int64_t image) {
    struct band q = {.x0 = part % t->bands_x * t->band_w, .y0 = part / t->bands_x % t->bands_y * t->band_h};
    q.image = part / (t->bands_x * t->bands_y) * t->images + image;
    q.y1 = gemm_min(q.y0 + t->band_h, t->y.pixels);
    q.x1 = q.x0 + t->band_w; /* pixels beyond the grid have no output */
    return q;
}

/* Multiplies one band by some columns of filters. */
static void band_tiles(const struct forward *t, const struct band *q, uint8_t *windows, int64_t first, int64_t end,
                       struct forward_worker *w, struct waiting *wait, void *stats) {
    const int64_t width = q->x1 - q->x0, pixels = width * (q->y1 - q->y0);
    int64_t made = first ? t->rows * t->line_phases : 0; /* they were made with the first filters */
    for (int64_t pixel = 0; pixel < pixels; pixel += GEMM_MATRIX) {
        const int64_t y = pixel / width, x = pixel % width, last = gemm_min(pixel + GEMM_MATRIX, pixels) - 1;
        make_windows(t, q, &made, last / width * t->y.step + t->y.reach, w, windows);
        tile_by_columns(t, q, windows + ((t->in_turn ? 0 : y * t->pitch) + x) * GEMM_MATRIX_LINE,
                        t->offset + (t->in_turn ? y % t->rows * t->all_steps : 0), q->y0 + y, q->x0 + x, first, end, w,
                        wait, stats);
    }
}

static void forward_part(void *context, int part, int worker) {
    const struct forward *t = context;
    struct gemm_arena arena = gemm_worker_arena(t->c, worker);
    struct forward_worker w = lay_out_worker(t, &arena);
    void *stats = gemm_worker_stats(t->c, worker);
    struct waiting wait = {.t = t, .stats = stats};
    gemm_begin_part(t->c);
    for (int64_t first = 0; first < column_tiles(t); first += t->columns)
        for (int64_t image = 0; image < t->images; image++) {
            const struct band q = band_of(t, part, image);
            if (q.image < t->v.batch)
                band_tiles(t, &q, w.windows + image * t->k->planes * t->plane, first,
                           gemm_min(first + t->columns, column_tiles(t)), &w, &wait, stats);
        }
    store_waiting(&wait, 0, GEMM_MATRIX);
    gemm_end_part(t->c);
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Plans the grid in one direction from the extent of a filter. */
static struct direction plan_direction(const struct forward *t, const struct gemm_side *side) {
    const int64_t far = gemm_reach(side) - 1, stride = side->stride, padding = side->padding;
    if (!t->v.gradient)
        return (struct direction){
            .pixels = side->out, .step = stride, .origin = -padding, .out_step = 1, .reach = far + 1};
    return (struct direction){.pixels = (padding + side->out - 1) / stride - padding / stride + 1,
                              .step = 1,
                              .origin = padding / stride - far / stride,
                              .out_step = stride,
                              .reach = far / stride + 1};
}

/* The bytes of the windows of a band, in all planes. */
static int64_t plan_windows(struct forward *t, int64_t band_h, int64_t band_w) {
    t->band_h = band_h;
    t->band_w = band_w;
    const bool whole =
        !t->c->family->ordered || t->positions * t->v.depth % t->k->elements == 0; /* lines of one window */
    t->shared = t->lines > 1 && t->x.step == 1 && !t->apart && whole && t->k->elements % t->v.depth == 0 &&
                        band_w % GEMM_MATRIX == 0
                    ? t->k->elements / t->v.depth
                    : 0;
    t->pitch = band_w + (t->shared ? (t->lines - 1) * t->shared : 0);
    /* Then a tile lies in one grid line, and all filters are applied in one pass: a second would find windows
     * overwritten. */
    t->in_turn = band_w % GEMM_MATRIX == 0 && column_tiles(t) * t->steps * pair_bytes(t) <= FILTER_BYTES;
    t->rows = gemm_parts(t->in_turn ? t->y.reach : (band_h - 1) * t->y.step + t->y.reach, t->line_phases);
    t->plane = ((t->shared ? 1 : t->lines) * t->line_phases * t->rows * t->pitch + GEMM_MATRIX) * GEMM_MATRIX_LINE;
    return t->plane * t->k->planes;
}

static void plan_bands(struct forward *t) {
    int64_t w = t->x.pixels, h = t->y.pixels;
    while (w > GEMM_MATRIX && plan_windows(t, 1, w) > LINES_BYTES)
        w = gemm_round_up(gemm_parts(w, 2), GEMM_MATRIX);
    while (h > 1 && plan_windows(t, h, w) > LINES_BYTES)
        h = gemm_parts(h, 2);
    while (t->v.batch * gemm_parts(t->y.pixels, h) * gemm_parts(t->x.pixels, w) < GEMM_PARTS_FEW &&
           h * w > 2 * BAND_PIXELS) {
        if (h > 1)
            h = gemm_parts(h, 2);
        else
            w = gemm_round_up(gemm_parts(w, 2), GEMM_MATRIX);
    }
    const int64_t bytes = plan_windows(t, h, w);
    t->bands_y = gemm_parts(t->y.pixels, h);
    t->bands_x = gemm_parts(t->x.pixels, w);
    t->images = 1;
    t->columns = column_tiles(t);
    if (t->columns * t->steps * pair_bytes(t) > FILTER_BYTES) {
        t->columns = gemm_max(FILTER_BYTES / gemm_max(t->steps * pair_bytes(t), 1), 1);
        if (t->bands_y * t->bands_x == 1) /* small images: filters are applied to several before the next are fetched */
            t->images = gemm_max(gemm_min(LINES_BYTES / bytes, t->v.batch / GEMM_PARTS_FEW), 1);
    }
    t->far = t->columns * t->steps * pair_bytes(t) > NEAR_BYTES;
    t->parts = gemm_parts(t->v.batch, t->images) * t->bands_y * t->bands_x;
}

static void forward_plan(struct forward *t) {
    t->y = plan_direction(t, &t->v.y);
    t->x = plan_direction(t, &t->v.x);
    t->line_phases = t->y.step;
    t->position_step = t->x.out_step > 1 ? 1 : t->v.x.dilation;
    t->positions = (t->x.reach - 1) / t->position_step + 1;
    /* Each phase of a gradient reads some positions only. In lines with several positions the others are multiplied by
     * zero, which saves time but is wrong for floats, since an element may be Inf or NaN. */
    const bool phases = t->x.out_step > 1 && (t->c->family->ordered || t->v.depth % t->k->elements == 0);
    t->apart = t->positions > 1 && (t->position_step > 1 || phases);
    t->position_lines = gemm_parts(t->v.depth, t->k->elements);
    t->lines = t->apart ? t->positions * t->position_lines : gemm_parts(t->positions * t->v.depth, t->k->elements);
    list_steps(t);
    t->all_steps = t->steps;
    plan_bands(t);
    t->at_once = t->k->windows && t->x.step == 1 && t->v.in_pixel == t->v.depth &&
                 t->k->windows(NULL, t->v.depth, 0, 0, 0, NULL, 0);
    t->split_plane = t->at_once
                         ? 0
                         : gemm_round_up((pixels_seen(t, t->pitch) * t->v.depth) * (GEMM_MATRIX_LINE / t->k->elements) +
                                             (t->lines + 1) * GEMM_MATRIX_LINE,
                                         GEMM_MATRIX_LINE);
}

/* Exponents have values when a task runs, not when its workspace is sized. */
static bool stores_directly(const struct forward *t) {
    const bool folded = t->k->k_most && t->phase_steps * t->k->elements > t->k->k_most;
    return !folded && t->c->stores->takes_matrix && t->c->stores->takes_matrix(t->c->args);
}

static struct gemm_workspace lay_out(struct forward *t, char *block) {
    struct gemm_arena arena = {block, 0}, worker = gemm_worker_arena(t->c, 0);
    t->phase = gemm_take(&arena, t->phases, sizeof *t->phase);
    t->offset = gemm_take(&arena, turns(t) * t->all_steps, sizeof *t->offset);
    t->tap = gemm_take(&arena, t->steps, sizeof *t->tap);
    t->filters = gemm_take(&arena, column_tiles(t) * t->steps * pair_bytes(t), 1);
    lay_out_worker(t, &worker);
    return fl_gemm_needs(t->c, &arena, &worker, t->parts);
}

/* conv2d and matmul_nt; conv2d_input_grad and matmul, which exchange input and output images and read the filters in
 * reverse. t describes one group. */
tensor_status fl_gemm_matrix_forward(struct gemm_call *c, struct gemm_workspace *needs_only) {
    struct forward t = {.c = c, .k = c->family->matrix, .v = fl_gemm_convolution(c->args, true)};
    forward_plan(&t);
    char *block;
    const tensor_status status = fl_gemm_begin(c, lay_out(&t, NULL), needs_only, &block);
    if (!block)
        return status;
    lay_out(&t, block);
    list_steps(&t);
    t.direct = stores_directly(&t);
    for (int64_t i = 0; i < t.v.groups; i++) {
        t.image = gemm_element(c, c->args->in[0].data, i * t.v.depth);
        t.filter =
            gemm_element(c, c->args->in[1].data, i * t.v.filters * t.v.y.positions * t.v.x.positions * t.v.depth);
        t.out_first = i * t.v.filters;
        fl_parallel((int)column_tiles(&t), pack_filters, &t);
        fl_parallel_large(c->workers, (int)t.parts, forward_part, &t);
    }
    fl_gemm_end(c);
    return TENSOR_OK;
}
