/* tensorcore_gather.c - rows and columns of the products of a task. */
#include "tensorcore/tensorcore_gather.h"
#include <string.h>

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* --- geometry ----------------------------------------------------------------------------------------------------- */

struct fl_tc_matrices fl_tc_matrices_of(const struct fl_args *args) {
    const struct fl_matrices *g = &args->p.product.matrices;
    const struct fl_windows *w = &args->p.product.windows;
    struct fl_tc_matrices t = {
        .args = args, .problems = g->batch ? g->batch : 1, .m = g->m, .n = g->n, .k = g->k, .pitch = g->n};
    if (!w->groups)
        return t;
    const int64_t depth = w->c / w->groups, filters = w->filters / w->groups, pixels = w->batch * w->p * w->q;
    t.problems = w->groups;
    switch ((int)args->op) {
    case FL_OP_CONV2D:
        t.m = pixels, t.n = filters, t.k = w->r * w->s * depth, t.pitch = w->filters;
        break;
    case FL_OP_CONV2D_INPUT_GRAD:
        t.m = w->batch * w->h * w->w, t.n = depth, t.k = w->r * w->s * filters, t.pitch = w->c;
        break;
    default:
        t.m = filters, t.n = w->r * w->s * depth, t.k = pixels, t.pitch = t.n;
    }
    return t;
}

int64_t fl_tc_first_result(const struct fl_tc_matrices *t, int64_t problem) {
    const enum fl_op op = t->args->op;
    return op == FL_OP_CONV2D || op == FL_OP_CONV2D_INPUT_GRAD ? problem * t->n : problem * t->m * t->n;
}

/* --- pieces of images --------------------------------------------------------------------------------------------- */

/* Position (y, x) of an image, its channels from `channel` on; NULL outside. */
static const float *pixel_at(const float *image, int64_t h, int64_t w, int64_t channels, int64_t n, int64_t y,
                             int64_t x, int64_t channel) {
    return y < 0 || y >= h || x < 0 || x >= w ? NULL : image + ((n * h + y) * w + x) * channels + channel;
}

/* What pixel `pixel` of the result multiplies with filter position (r, s), from the group's first channel on. */
static const float *patch_at(const struct fl_tc_matrices *t, int64_t problem, int64_t pixel, int64_t r, int64_t s) {
    const struct fl_windows *g = &t->args->p.product.windows;
    const bool gradient = t->args->op == FL_OP_CONV2D_INPUT_GRAD;
    const int64_t height = gradient ? g->h : g->p, width = gradient ? g->w : g->q, x = pixel % width,
                  y = pixel / width % height, n = pixel / width / height;
    if (!gradient)
        return pixel_at(t->in[t->args->op == FL_OP_CONV2D ? 0 : 1], g->h, g->w, g->c, n,
                        y * g->stride[0] + r * g->dilation[0] - g->padding[0],
                        x * g->stride[1] + s * g->dilation[1] - g->padding[1], problem * (g->c / g->groups));
    const int64_t down = y + g->padding[0] - r * g->dilation[0], across = x + g->padding[1] - s * g->dilation[1];
    if (down < 0 || across < 0 || down % g->stride[0] || across % g->stride[1])
        return NULL;
    return pixel_at(t->in[0], g->p, g->q, g->filters, n, down / g->stride[0], across / g->stride[1],
                    problem * (g->filters / g->groups));
}

/* Elements first ... first + steps - 1 of a patch of `depth` channels a position. */
static void copy_patch(const struct fl_tc_matrices *t, int64_t problem, int64_t pixel, int64_t depth, int64_t first,
                       int64_t steps, float *to) {
    const int64_t across = t->args->p.product.windows.s;
    for (int64_t i = 0, some; i < steps; i += some) {
        const int64_t position = (first + i) / depth, channel = (first + i) % depth;
        some = smaller(steps - i, depth - channel);
        const float *from = patch_at(t, problem, pixel, position / across, position % across);
        if (from)
            memcpy(to + i, from + channel, (size_t)some * sizeof *to);
        else
            memset(to + i, 0, (size_t)some * sizeof *to);
    }
}

/* --- matrices in memory ------------------------------------------------------------------------------------------- */

/* to[i * to_line + j * to_step] = from[i * line + j * step]; one of the steps of each is 1. */
static void copy_lines(const float *from, int64_t line, int64_t step, int64_t lines, int64_t count, float *to,
                       int64_t to_line, int64_t to_step) {
    if (step == 1 && to_step == 1)
        for (int64_t i = 0; i < lines; i++)
            memcpy(to + i * to_line, from + i * line, (size_t)count * sizeof *to);
    else if (line == 1 && to_line == 1)
        copy_lines(from, step, 1, count, lines, to, to_step, 1);
    else
        for (int64_t i = 0; i < lines; i++)
            for (int64_t j = 0; j < count; j++)
                to[i * to_line + j * to_step] = from[i * line + j * step];
}

void fl_tc_gather_rows(const struct fl_tc_matrices *t, int64_t problem, int64_t row, int64_t count, int64_t first,
                       int64_t steps, float *to, int64_t stride) {
    const struct fl_windows *g = &t->args->p.product.windows;
    const float *a = t->in[0];
    switch ((int)t->args->op) {
    case FL_OP_CONV2D:
    case FL_OP_CONV2D_INPUT_GRAD:
        for (int64_t i = 0; i < count; i++)
            copy_patch(t, problem, row + i, t->k / (g->r * g->s), first, steps, to + i * stride);
        break;
    case FL_OP_CONV2D_WEIGHT_GRAD:
        copy_lines(a + first * g->filters + problem * t->m + row, 1, g->filters, count, steps, to, stride, 1);
        break;
    case FL_OP_MATMUL_TN:
    case FL_OP_MATMUL_BATCHED_TN:
        copy_lines(a + problem * t->m * t->k + first * t->m + row, 1, t->m, count, steps, to, stride, 1);
        break;
    default:
        copy_lines(a + problem * t->m * t->k + row * t->k + first, t->k, 1, count, steps, to, stride, 1);
    }
}

void fl_tc_gather_columns(const struct fl_tc_matrices *t, int64_t problem, int64_t column, int64_t count, int64_t first,
                          int64_t steps, float *to, int64_t stride) {
    const struct fl_windows *g = &t->args->p.product.windows;
    const float *b = t->in[1];
    switch ((int)t->args->op) {
    case FL_OP_CONV2D:
        copy_lines(b + (problem * t->n + column) * t->k + first, t->k, 1, count, steps, to, 1, stride);
        break;
    case FL_OP_CONV2D_INPUT_GRAD: { /* k is (r, s, filter) */
        const int64_t filters = g->filters / g->groups, positions = g->r * g->s;
        for (int64_t i = 0; i < steps; i++) {
            const int64_t position = (first + i) / filters, filter = problem * filters + (first + i) % filters;
            memcpy(to + i * stride, b + (filter * positions + position) * t->n + column, (size_t)count * sizeof *to);
        }
        break;
    }
    case FL_OP_CONV2D_WEIGHT_GRAD:
        for (int64_t i = 0; i < steps; i++)
            copy_patch(t, problem, first + i, g->c / g->groups, column, count, to + i * stride);
        break;
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_BATCHED_NT:
        copy_lines(b + problem * t->n * t->k + column * t->k + first, t->k, 1, count, steps, to, 1, stride);
        break;
    default:
        copy_lines(b + problem * t->n * t->k + first * t->n + column, t->n, 1, steps, count, to, stride, 1);
    }
}
