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
