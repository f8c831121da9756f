/* block_geometry.c - which rows of quantised operands the results of a product read. */
#include "blocks/block_geometry.h"

static struct fl_block_source lines(int64_t outer, int64_t k, int64_t inner) {
    return (struct fl_block_source){.outer = outer, .k = k, .inner = inner};
}

static struct fl_block_source squares(int64_t outer, int64_t k, int64_t inner, int64_t length, int64_t step) {
    return (struct fl_block_source){
        .outer = outer, .k = k, .inner = inner, .square_length = length, .square_step = step};
}

static struct fl_block_source in_channels(struct fl_block_source s, int64_t length, int64_t step) {
    s.channel_length = length, s.channel_step = step;
    return s;
}

static struct fl_block_matrices matmul_of(const struct fl_args *args) {
    const struct fl_matrices *g = &args->p.product.matrices;
    const int64_t batch = g->batch ? g->batch : 1;
    const bool tn = args->op == FL_OP_MATMUL_TN || args->op == FL_OP_MATMUL_BATCHED_TN,
               nt = args->op == FL_OP_MATMUL_NT || args->op == FL_OP_MATMUL_BATCHED_NT;
    return (struct fl_block_matrices){
        .args = args,
        .source = {tn ? squares(batch, g->k, g->m, g->m, 1) : squares(batch * g->m, g->k, 1, g->m, 1),
                   nt ? squares(batch * g->n, g->k, 1, g->n, 1) : squares(batch, g->k, g->n, g->n, 1)},
        .problems = batch,
        .m = g->m,
        .n = g->n,
        .pieces = 1,
        .pitch = g->n};
}

struct fl_block_matrices fl_block_matrices_of(const struct fl_args *args) {
    const struct fl_windows *w = &args->p.product.windows;
    if (!w->groups)
        return matmul_of(args);
    const int64_t depth = w->c / w->groups, filters = w->filters / w->groups, positions = w->r * w->s,
                  x_pixels = w->h * w->w, y_pixels = w->p * w->q;
    struct fl_block_matrices t = {.args = args, .problems = w->groups, .pieces = positions};
    switch ((int)args->op) {
    case FL_OP_CONV2D:
        t.m = w->batch * y_pixels, t.n = filters, t.pitch = w->filters;
        t.source[0] = in_channels(lines(w->batch * x_pixels * w->groups, depth, 1), x_pixels, w->groups);
        t.source[1] = in_channels(squares(w->filters * positions, depth, 1, w->filters, positions), positions, 1);
        break;
    case FL_OP_CONV2D_INPUT_GRAD:
        t.m = w->batch * x_pixels, t.n = depth, t.pitch = w->c;
        t.source[0] = in_channels(lines(w->batch * y_pixels * w->groups, filters, 1), y_pixels, w->groups);
        t.source[1] = in_channels(squares(w->groups, filters, positions * depth, depth, 1), positions, depth);
        break;
    default:
        t.m = filters, t.n = positions * depth, t.pieces = y_pixels, t.pitch = t.n;
        t.source[0] = in_channels(squares(1, w->batch, y_pixels * w->filters, w->filters, 1), y_pixels, w->filters);
        t.source[1] = in_channels(squares(1, w->batch, x_pixels * w->c, w->c, 1), x_pixels, w->c);
    }
    return t;
}

int64_t fl_block_first_result(const struct fl_block_matrices *t, int64_t problem) {
    const enum fl_op op = t->args->op;
    return op == FL_OP_CONV2D || op == FL_OP_CONV2D_INPUT_GRAD ? problem * t->n : problem * t->m * t->n;
}

/* --- rows ----------------------------------------------------------------------------------------------------------
 */

static void neighbours(int64_t first, int64_t step, int64_t count, int64_t *rows) {
    for (int64_t i = 0; i < count; i++)
        rows[i] = first + i * step;
}

/* The place that place `to` of one image has in the other, or -1. gradient: where the window position that lies
 * `position` from its first has its result. */
static inline int64_t place_of(int64_t to, int64_t position, int stride, int padding, int dilation, int64_t size,
                               bool gradient) {
    int64_t from = gradient ? to + padding - position * dilation : to * stride + position * dilation - padding;
    if (gradient) {
        if (from < 0 || (stride > 1 && from % stride))
            return -1;
        from /= stride;
    }
    return from < 0 || from >= size ? -1 : from;
}

/* The rows of pixels first, first + step, ... of a line, those outside of it -1. */
static void across_line(int64_t *rows, int64_t count, int64_t first, int64_t step, int64_t width, int64_t line,
                        int64_t pixel) {
    for (int64_t j = 0; j < count; j++) {
        const int64_t x = first + j * step, row = line + x * pixel;
        rows[j] = (uint64_t)x < (uint64_t)width ? row : -1;
    }
}

/* Pixels `first` ... of the result, at a filter position. */
static void pixels_of(const struct fl_block_matrices *t, int64_t group, int64_t first, int64_t count, int64_t piece,
                      int64_t *rows) {
    const struct fl_windows *g = &t->args->p.product.windows;
    const bool gradient = t->args->op == FL_OP_CONV2D_INPUT_GRAD;
    const int64_t height = gradient ? g->h : g->p, width = gradient ? g->w : g->q, from_height = gradient ? g->p : g->h,
                  from_width = gradient ? g->q : g->w, r = piece / g->s, s = piece % g->s;
    int64_t x = first % width, y = first / width % height, n = first / width / height;
    for (int64_t i = 0; i < count;) {
        const int64_t down = place_of(y, r, g->stride[0], g->padding[0], g->dilation[0], from_height, gradient),
                      line = (n * from_height + down) * from_width;
        const int64_t some = count - i < width - x ? count - i : width - x;
        if (down < 0)
            for (int64_t j = 0; j < some; j++)
                rows[i + j] = -1;
        else if (gradient && g->stride[1] > 1)
            for (int64_t j = 0; j < some; j++) {
                const int64_t across =
                    place_of(x + j, s, g->stride[1], g->padding[1], g->dilation[1], from_width, true);
                rows[i + j] = across < 0 ? -1 : (line + across) * g->groups + group;
            }
        else
            across_line(&rows[i], some,
                        gradient ? x + g->padding[1] - s * g->dilation[1]
                                 : x * g->stride[1] + s * g->dilation[1] - g->padding[1],
                        g->stride[1], from_width, line * g->groups + group, g->groups);
        i += some;
        x = 0;
        if (++y == height) {
            y = 0;
            n++;
        }
    }
}

void fl_block_rows_of_a(const struct fl_block_matrices *t, int64_t problem, int64_t first, int64_t count, int64_t piece,
                        int64_t *rows) {
    switch ((int)t->args->op) {
    case FL_OP_CONV2D:
    case FL_OP_CONV2D_INPUT_GRAD:
        pixels_of(t, problem, first, count, piece, rows);
        break;
    case FL_OP_CONV2D_WEIGHT_GRAD:
        neighbours(piece * t->args->p.product.windows.filters + problem * t->m + first, 1, count, rows);
        break;
    default:
        neighbours(problem * t->m + first, 1, count, rows);
    }
}

void fl_block_rows_of_b(const struct fl_block_matrices *t, int64_t problem, int64_t first, int64_t count, int64_t piece,
                        int64_t *rows) {
    const struct fl_windows *g = &t->args->p.product.windows;
    switch ((int)t->args->op) {
    case FL_OP_CONV2D:
        neighbours((problem * t->n + first) * t->pieces + piece, t->pieces, count, rows);
        break;
    case FL_OP_CONV2D_INPUT_GRAD:
        neighbours((problem * t->pieces + piece) * t->n + first, 1, count, rows);
        break;
    case FL_OP_CONV2D_WEIGHT_GRAD: {
        const int64_t depth = g->c / g->groups, p = piece / g->q, q = piece % g->q;
        for (int64_t i = 0; i < count;) {
            const int64_t position = (first + i) / depth, r = position / g->s, s = position % g->s,
                          y = place_of(p, r, g->stride[0], g->padding[0], g->dilation[0], g->h, false),
                          x = place_of(q, s, g->stride[1], g->padding[1], g->dilation[1], g->w, false),
                          row = (y * g->w + x) * g->c + problem * depth;
            for (int64_t channel = (first + i) % depth; channel < depth && i < count; channel++, i++)
                rows[i] = y < 0 || x < 0 ? -1 : row + channel;
        }
        break;
    }
    default:
        neighbours(problem * t->n + first, 1, count, rows);
    }
}
