/* float_pool.h - max pooling and global average pooling on images [N,H,W,C].
 *
 * Expects: a codec (float_block.h).
 * Gives: maxpool, maxpool_grad, avgpool, avgpool_grad. */
#ifndef FL_FLOAT_POOL_H
#define FL_FLOAT_POOL_H

#include "core/table/format.h"
#include "float/float_fold.h"
#include "float/float_parts.h"
#include "float/float_store.h"
#include "float/float_strip.h"

#define POOL_ELEMENT fl_element
#define POOL_VALUE float
#define POOL_PLACE int32_t
#define POOL_SUM float
#define POOL_WIDEN(v, type) (v)
#define POOL_LOAD(p, n, x) load_block(p, n, x)
#define POOL_TAKE(best, v) (((best) == (best)) & ~((v) <= (best))) /* a NaN, once seen, remains */
#include "core/ops/windows/maxpool_vectors.inc"

/* The windows of the outputs of strip t in row `unit` = (n, p): their largest elements, and (unless NULL) the places of
 * those, pixel by pixel. */
static inline __attribute__((always_inline)) void largest_of_strip(const struct fl_windows *g, const fl_element *x,
                                                                   int64_t unit, const struct strip *t, float *best,
                                                                   int32_t *place) {
    const int64_t p = unit % g->p;
    const struct fl_max_side down = fl_max_down(g), across = fl_max_across(g);
    const struct fl_window y = fl_window_inside(&down, p);
    const fl_element *image = x + unit / g->p * g->h * g->w * g->c + t->c0;
    for (int64_t k = 0; k < t->pixels; k++) {
        const int64_t q = t->pixel + k;
        const struct fl_window z = fl_window_inside(&across, q);
        float *b = place ? best : best + k * t->channels;
        POOL_BY_CHANNELS(largest, t->channels, image, g->w * g->c, g->c, y, z, fl_window_begin(&down, p),
                         fl_window_begin(&across, q), across.reach, t->channels, b, place ? place + k * g->c : NULL);
    }
}

/* Units of the forward pass: rows (n, p) of output pixels. */
static void maxpool_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                          struct fl_stats *stats) {
    (void)context;
    const struct fl_windows *g = &args->p.pooling.windows;
    float best[FLOAT_BLOCK];
    for (int64_t unit = first; unit < end; unit++)
        for (struct strip t = first_strip(g->c, g->q); next_strip(&t);) {
            largest_of_strip(g, args->in[0].data, unit, &t, best, NULL);
            store_elements(args, (unit * g->q + t.pixel) * g->c + t.c0, t.pixels * t.channels, best, stats);
        }
}

static tensor_status maxpool(const struct fl_args *args) {
    return run_parts(args, args->p.pooling.windows.batch * args->p.pooling.windows.p,
                     args->p.pooling.windows.q * args->p.pooling.windows.c, maxpool_range, NULL);
}

/* The gradient in two passes: the place of the largest element of each window; then each input pixel sums the gradients
 * of the windows that chose it, in their order. So no two parts write one element. */
static void place_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                        struct fl_stats *stats) {
    (void)stats;
    int32_t *const *places = context;
    const struct fl_windows *g = &args->p.pooling.windows;
    float best[FLOAT_BLOCK];
    for (int64_t unit = first; unit < end; unit++)
        for (struct strip t = first_strip(g->c, g->q); next_strip(&t);)
            largest_of_strip(g, args->in[1].data, unit, &t, best, *places + (unit * g->q + t.pixel) * g->c + t.c0);
}

/* Units of the second pass: rows (n, y) of input pixels. */
static void maxpool_grad_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                               struct fl_stats *stats) {
    const int32_t *const *places = context;
    const struct fl_windows *g = &args->p.pooling.windows;
    const struct fl_max_side down = fl_max_down(g), across = fl_max_across(g);
    float sum[FLOAT_BLOCK];
    for (int64_t unit = first; unit < end; unit++) {
        const int64_t y = unit % g->h, image = unit / g->h * g->p * g->q * g->c;
        const struct fl_range p = fl_windows_over(&down, y);
        for (struct strip t = first_strip(g->c, g->w); next_strip(&t);) {
            const fl_element *dy = (const fl_element *)args->in[0].data + image + t.c0;
            struct fl_range q = fl_windows_over(&across, t.pixel);
            for (int64_t k = 0; k < t.pixels; k++, fl_windows_over_next(&q, &across, t.pixel + k))
                POOL_BY_CHANNELS(gather, t.channels, *places + image + t.c0, dy, g->q * g->c, g->c, p, q,
                                 y + down.padding, t.pixel + k + across.padding, down.stride, across.stride,
                                 across.reach, t.channels, sum + k * t.channels);
            store_block(args, (unit * g->w + t.pixel) * g->c + t.c0, t.pixels * t.channels, sum, stats);
        }
    }
}

static size_t maxpool_grad_need(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    return fl_window_places(g) > INT32_MAX ? fl_ref_need(args->op)(args)
                                           : (size_t)(g->batch * g->p * g->q * g->c) * sizeof(int32_t);
}

static tensor_status maxpool_grad(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    if (fl_window_places(g) > INT32_MAX) /* their numbers do not fit */
        return fl_ref_kernel(args->op)(args);
    int32_t *places = fl_workspace(args, maxpool_grad_need(args));
    if (!places)
        return TENSOR_E_MEMORY;
    tensor_status status = run_parts(args, g->batch * g->p, g->q * g->c, place_range, &places);
    return status ? status : run_parts(args, g->batch * g->h, g->w * g->c, maxpool_grad_range, &places);
}

/* Units of average pooling: images. A mean is the sum over positions in chunks as in float_fold.h, divided in double.
 */
static void avgpool_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                          struct fl_stats *stats) {
    (void)context;
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t positions = g->h * g->w;
    float chain[FLOAT_BLOCK];
    double total[FLOAT_BLOCK];
    for (int64_t n = first; n < end; n++) {
        const struct fold fold = {.x = (const fl_element *)args->in[0].data + n * positions * g->c, .n = g->c};
        for (int64_t c0 = 0; c0 < g->c; c0 += FLOAT_BLOCK) {
            const int64_t count = float_min(FLOAT_BLOCK, g->c - c0);
            for (int64_t i = 0; i < count; i++)
                total[i] = 0;
            for (int64_t at = 0; at < positions; at += FL_ROWS_CHUNK) {
                memset(chain, 0, (size_t)count * sizeof *chain);
                fold_rows(&fold, at, float_min(FL_ROWS_CHUNK, positions - at), c0, count, chain, NULL);
                for (int64_t i = 0; i < count; i++)
                    total[i] += (double)chain[i];
            }
            for (int64_t i = 0; i < count; i++)
                total[i] /= (double)positions;
            store_doubles(args, n * g->c + c0, count, total, stats);
        }
    }
}

static tensor_status avgpool(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    return run_parts(args, g->batch, g->h * g->w * g->c, avgpool_range, NULL);
}

#ifdef FL_DIGITS
/* With stochastic rounding each copy of a mean has a draw of its own, and the mean is a double. */
static void drawn_avgpool_grad_range(const struct fl_args *args, int64_t first, int64_t end, struct fl_stats *stats) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t positions = g->h * g->w;
    float dy[FLOAT_BLOCK];
    double dx[FLOAT_BLOCK];
    for (int64_t n = first; n < end; n++)
        for (struct strip t = first_strip(g->c, positions); next_strip(&t);) {
            if (t.pixel == 0) {
                load_block((const fl_element *)args->in[0].data + n * g->c + t.c0, t.channels, dy);
                for (int64_t i = 0; i < t.channels; i++)
                    dx[i] = (double)dy[i] / (double)positions;
                for (int64_t k = 1; k < t.pixels; k++)
                    memcpy(dx + k * t.channels, dx, (size_t)t.channels * sizeof *dx);
            }
            store_doubles(args, (n * positions + t.pixel) * g->c + t.c0, t.pixels * t.channels, dx, stats);
        }
}
#endif

static void avgpool_grad_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                               struct fl_stats *stats) {
    (void)context;
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t positions = g->h * g->w;
    float dx[FLOAT_BLOCK];
#ifdef FL_DIGITS
    if (is_drawn(args)) {
        drawn_avgpool_grad_range(args, first, end, stats);
        return;
    }
#endif
    for (int64_t n = first; n < end; n++)
        for (struct strip t = first_strip(g->c, positions); next_strip(&t);) {
            if (t.pixel == 0) { /* the first of its channels: one pixel, repeated for all that follow */
                load_block((const fl_element *)args->in[0].data + n * g->c + t.c0, t.channels, dx);
                for (int64_t i = 0; i < t.channels; i++)
                    dx[i] = (float)((double)dx[i] / (double)positions);
                for (int64_t k = 1; k < t.pixels; k++)
                    memcpy(dx + k * t.channels, dx, (size_t)t.channels * sizeof *dx);
            }
            store_block(args, (n * positions + t.pixel) * g->c + t.c0, t.pixels * t.channels, dx, stats);
        }
}

static tensor_status avgpool_grad(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    return run_parts(args, g->batch, g->h * g->w * g->c, avgpool_grad_range, NULL);
}

#endif
