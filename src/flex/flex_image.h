/* flex_image.h - pooling and shortcuts on images [N,H,W,C]. Results are written in order, a strip of a line of pixels
 * at a time; channels are the inner loop.
 *
 * Gives: maxpool2d, maxpool2d_grad, shortcut_a, avgpool_global, avgpool_global_grad. */
#ifndef FL_FLEX_IMAGE_H
#define FL_FLEX_IMAGE_H

#include "core/table/format.h"
#include "flex/flex_mean_plan.h"
#include "flex/flex_parts.h"
#include "flex/flex_store.h"

/* Pixels x ... x+pixels-1 of line y of image n, their channels c ... c+channels-1: contiguous elements, so all channels
 * if there are several pixels. */
struct strip {
    int64_t n, y, x, pixels, c, channels;
};

/* Exact sums of the elements of a strip, |sum| <= 2^30. */
typedef void (*strip_sums)(const struct fl_args *args, const void *context, const struct strip *at, int32_t *t);

struct image_plan {
    strip_sums sums;
    const void *context;
    int64_t h, w, c; /* of the images that are divided into strips */
    int exponent;    /* of the sums */
};

/* The strip that begins at element i, before element `end` and within a block. */
static struct strip strip_at(const struct image_plan *p, int64_t i, int64_t end) {
    const int64_t pixel = i / p->c, x = pixel % p->w;
    struct strip s = {pixel / (p->h * p->w), pixel / p->w % p->h, x, 1, i % p->c, 0};
    s.channels = minimum(p->c - s.c, FLEX_BLOCK);
    if (p->c <= FLEX_BLOCK)
        s.pixels = minimum(minimum(FLEX_BLOCK / p->c, p->w - x), (end - i) / p->c);
    return s;
}

static void image_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                      struct fl_stats *stats) {
    const struct image_plan *p = plan;
    struct flex_stats written = {0};
    int32_t t[FLEX_BLOCK];
    for (int64_t i = first, n; i < end; i += n) {
        const struct strip s = strip_at(p, i, end);
        n = s.pixels * s.channels;
        p->sums(args, p->context, &s, t);
        store_block32(element(&args->out, i), i, n, t, p->exponent - fl_exponent(&args->out), &args->rounding,
                      &written);
    }
    flex_stats_finish(&written, p->exponent, stats);
}

static tensor_status image(const struct fl_args *args, strip_sums sums, const void *context, int64_t h, int64_t w,
                           int64_t c) {
    const struct image_plan plan = {sums, context, h, w, c, fl_exponent(&args->in[0])};
    run_parts(args, &plan, image_run, args->out.count, c);
    return TENSOR_OK;
}

/* --- largest of a window ------------------------------------------------------------------------------------------ */

#define POOL_ELEMENT int16_t
#define POOL_VALUE int16_t
#define POOL_PLACE int16_t
#define POOL_SUM int32_t
#define POOL_WIDEN(v, type) __builtin_convertvector(v, type)
#define POOL_LOAD(p, n, x) memcpy(x, p, (n) * sizeof *(x))
#define POOL_TAKE(best, v) ((v) > (best))
#include "core/ops/windows/maxpool_vectors.inc"

/* The largest elements of the windows of a strip of the output, and their places unless NULL. */
static inline __attribute__((always_inline)) void
largest_of_strip(const struct fl_windows *g, const int16_t *x, const struct strip *s, int16_t *best, int16_t *place) {
    const int16_t *image_x = x + s->n * g->h * g->w * g->c + s->c;
    const struct fl_max_side down = fl_max_down(g), across = fl_max_across(g);
    const struct fl_window y = fl_window_inside(&down, s->y);
    const int64_t top = fl_window_begin(&down, s->y);
    for (int64_t k = 0; k < s->pixels; k++) {
        const struct fl_window z = fl_window_inside(&across, s->x + k);
        POOL_BY_CHANNELS(largest, s->channels, image_x, g->w * g->c, g->c, y, z, top,
                         fl_window_begin(&across, s->x + k), across.reach, s->channels, best + k * s->channels,
                         place ? place + k * s->channels : NULL);
    }
}

static void window_largest(const struct fl_args *args, const void *context, const struct strip *s, int32_t *t) {
    (void)context;
    int16_t best[FLEX_BLOCK];
    largest_of_strip(&args->p.pooling.windows, args->in[0].data, s, best, NULL);
    for (int64_t i = 0; i < s->pixels * s->channels; i++)
        t[i] = best[i];
}

static tensor_status maxpool2d(const struct fl_args *args) {
    return image(args, window_largest, NULL, args->p.pooling.windows.p, args->p.pooling.windows.q,
                 args->p.pooling.windows.c);
}

/* The first of two passes of the gradient finds the place of the largest element of each window; then each input pixel
 * sums the gradients of the windows that chose it. So no two parts write one element. */
static void place_run(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                      struct fl_stats *stats) {
    (void)stats;
    int16_t *const *places = context;
    const struct image_plan plan = {
        .h = args->p.pooling.windows.p, .w = args->p.pooling.windows.q, .c = args->p.pooling.windows.c};
    int16_t best[FLEX_BLOCK];
    for (int64_t i = first, n; i < end; i += n) {
        const struct strip s = strip_at(&plan, i, end);
        n = s.pixels * s.channels;
        largest_of_strip(&args->p.pooling.windows, args->in[1].data, &s, best, *places + i);
    }
}

static void window_gradient(const struct fl_args *args, const void *context, const struct strip *s, int32_t *t) {
    const int16_t *const *places = context;
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t first = s->n * g->p * g->q * g->c + s->c;
    const int16_t *place = *places + first, *dy = element(&args->in[0], first);
    const struct fl_max_side down = fl_max_down(g), across = fl_max_across(g);
    const struct fl_range p = fl_windows_over(&down, s->y);
    struct fl_range q = fl_windows_over(&across, s->x);
    for (int64_t k = 0; k < s->pixels; k++, fl_windows_over_next(&q, &across, s->x + k))
        POOL_BY_CHANNELS(gather, s->channels, place, dy, g->q * g->c, g->c, p, q, s->y + down.padding,
                         s->x + k + across.padding, down.stride, across.stride, across.reach, s->channels,
                         t + k * s->channels);
}

static size_t maxpool2d_grad_need(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    return fl_window_places(g) > FL_WINDOW_PLACES ? fl_ref_need(args->op)(args)
                                                  : (size_t)(g->batch * g->p * g->q * g->c) * sizeof(int16_t);
}

/* Places fit 16 bits, and the gradients fit the sums, for windows of up to FL_WINDOW_PLACES; the reference kernel
 * computes larger ones. */
static tensor_status maxpool2d_grad(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    if (fl_window_places(g) > FL_WINDOW_PLACES)
        return fl_ref_kernel(args->op)(args);
    const int64_t count = g->batch * g->p * g->q * g->c;
    int16_t *places = fl_workspace(args, maxpool2d_grad_need(args));
    if (!places)
        return TENSOR_E_MEMORY;
    run_parts(args, &places, place_run, count, g->c);
    return image(args, window_gradient, &places, g->h, g->w, g->c);
}

/* --- option-A shortcut -------------------------------------------------------------------------------------------- */

static void shortcut_sums(const struct fl_args *args, const void *context, const struct strip *s, int32_t *t) {
    (void)context;
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t stride = g->stride[0], pad = (g->filters - g->c) / 2;
    const int64_t from = s->c > pad ? s->c : pad, to = minimum(s->c + s->channels, pad + g->c);
    const int16_t *x = element(&args->in[0], ((s->n * g->h + s->y * stride) * g->w + s->x * stride) * g->c);
    memset(t, 0, (size_t)(s->pixels * s->channels) * sizeof *t);
    for (int64_t k = 0; k < s->pixels; k++, t += s->channels, x += stride * g->c)
        for (int64_t c = from; c < to; c++)
            t[c - s->c] = x[c - pad];
}

static void shortcut_gradient(const struct fl_args *args, const void *context, const struct strip *s, int32_t *t) {
    (void)context;
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t stride = g->stride[0], p = s->y / stride;
    memset(t, 0, (size_t)(s->pixels * s->channels) * sizeof *t);
    if (s->y % stride || p >= g->p)
        return;
    const int16_t *dy = element(&args->in[0], (s->n * g->p + p) * g->q * g->filters + (g->filters - g->c) / 2 + s->c);
    for (int64_t q = (s->x + stride - 1) / stride; q < g->q && q * stride < s->x + s->pixels; q++)
        for (int64_t c = 0; c < s->channels; c++)
            t[(q * stride - s->x) * s->channels + c] = dy[q * g->filters + c];
}

/* shortcut_a and its gradient */
static tensor_status shortcut_a(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    if (args->op == FL_OP_SHORTCUT_A)
        return image(args, shortcut_sums, NULL, g->p, g->q, g->filters);
    return image(args, shortcut_gradient, NULL, g->h, g->w, g->c);
}

/* --- mean over an image ------------------------------------------------------------------------------------------- */

/* Means to be rounded stochastically: the integer below, which grows by 1 if the draw exceeds `above`. */
struct mean_floors {
    int32_t floor[FLEX_BLOCK];
    uint32_t above[FLEX_BLOCK];
    int64_t zeros; /* how many means are zero */
};

static void mean_floors_of(struct mean_floors *f, int64_t n, const int64_t *sums, int64_t divisor, int shift) {
    f->zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct flex_mean x = flex_mean_of(sums[i], divisor, shift);
        f->above[i] = flex_mean_threshold(&x);
        f->floor[i] = (int32_t)x.quotient;
        f->zeros += sums[i] == 0;
    }
}

/* Stores n means, n <= FLEX_BLOCK, from element `first` on. */
static void store_floors(const struct fl_args *args, const struct mean_floors *f, int64_t first, int64_t n,
                         struct flex_stats *stats) {
    struct draws memory;
    int32_t r[FLEX_BLOCK];
    const uint32_t *draws = draws_of(&args->rounding, first, n, &memory);
    for (int64_t i = 0; i < n; i++)
        r[i] = f->floor[i] + (draws[i] > f->above[i]);
    keep_results(element(&args->out, first), n, r, false, f->zeros, stats);
}

static struct flex_mean_plan mean_plan(const struct fl_args *args) {
    return flex_mean_plan_of(args->p.pooling.windows.h * args->p.pooling.windows.w, fl_exponent(&args->in[0]));
}

/* Stores n results sums[i] / divisor from element `first` on. */
static void store_means(const struct fl_args *args, const struct flex_mean_plan *p, int64_t first, int64_t n,
                        const int64_t *sums, struct flex_stats *stats) {
    int16_t *dst = element(&args->out, first);
    const int shift = p->exponent - fl_exponent(&args->out);
    if (p->divisor == 1) {
        store_block(dst, first, n, sums, shift, &args->rounding, stats);
        return;
    }
    note_maximum(stats, largest_64(n, sums));
    if (dst && args->rounding.mode == TENSOR_ROUND_STOCHASTIC) {
        struct mean_floors floors;
        mean_floors_of(&floors, n, sums, p->divisor, shift);
        store_floors(args, &floors, first, n, stats);
        return;
    }
    for (int64_t i = 0; dst && i < n; i++) {
        const struct flex_mean x = flex_mean_of(sums[i], p->divisor, shift);
        dst[i] = saturate(flex_mean_nearest(&x), sums[i] == 0, stats);
    }
}

static void mean_finish(const struct flex_mean_plan *p, const struct flex_stats *sums, struct fl_stats *stats) {
    struct fl_stats part = {.maximum = ldexp((double)sums->maximum / (double)p->divisor, -p->exponent),
                            .gamma = sums->gamma,
                            .saturated = sums->saturated,
                            .flushed = sums->flushed};
    fl_stats_merge(stats, &part);
}

/* first and end are elements of the input, in whole images. */
static void mean_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end, struct fl_stats *stats) {
    const int64_t channels = args->p.pooling.windows.c,
                  image_size = args->p.pooling.windows.h * args->p.pooling.windows.w * channels;
    struct flex_stats sums = {0};
    int64_t t[FLEX_BLOCK];
    for (int64_t n = first / image_size; n < end / image_size; n++)
        for (int64_t c = 0; c < channels; c += FLEX_BLOCK) {
            const int64_t width = minimum(channels - c, FLEX_BLOCK);
            memset(t, 0, (size_t)width * sizeof *t);
            for (int64_t i = c; i < image_size; i += channels) {
                const int16_t *x = element(&args->in[0], n * image_size + i);
                for (int64_t j = 0; j < width; j++)
                    t[j] += x[j];
            }
            store_means(args, plan, n * channels + c, width, t, &sums);
        }
    mean_finish(plan, &sums, stats);
}

static tensor_status avgpool_global(const struct fl_args *args) {
    const struct flex_mean_plan plan = mean_plan(args);
    run_parts(args, &plan, mean_run, args->in[0].count,
              args->p.pooling.windows.h * args->p.pooling.windows.w * args->p.pooling.windows.c);
    return TENSOR_OK;
}

/* The gradient is the same at all positions of a channel, before it is rounded. With rounding to nearest, the first
 * pixel is computed and copied to the others. dy: channels c ... c + width - 1 of an image, `at` the first element of
 * its output. */
static void copy_means(const struct fl_args *args, const struct flex_mean_plan *p, int64_t at, int64_t width,
                       const int64_t *dy, struct flex_stats *stats) {
    const int64_t channels = args->p.pooling.windows.c,
                  positions = args->p.pooling.windows.h * args->p.pooling.windows.w;
    const int16_t *pixel = element(&args->out, at);
    const struct flex_stats before = *stats;
    store_means(args, p, at, width, dy, stats);
    for (int64_t i = 1; pixel && i < positions; i++)
        memcpy(element(&args->out, at + i * channels), pixel, (size_t)width * sizeof *pixel);
    stats->saturated += (positions - 1) * (stats->saturated - before.saturated);
    stats->flushed += (positions - 1) * (stats->flushed - before.flushed);
}

/* With stochastic rounding every element has a draw. The pixels of one run are stored at a time. */
static void draw_means(const struct fl_args *args, const struct flex_mean_plan *p, int64_t at, int64_t width,
                       const int64_t *dy, struct flex_stats *stats) {
    const int64_t channels = args->p.pooling.windows.c,
                  positions = args->p.pooling.windows.h * args->p.pooling.windows.w;
    const int64_t pixels = width == channels ? minimum(FLEX_BLOCK / channels, positions) : 1;
    note_maximum(stats, largest_64(width, dy));
    if (!args->out.data)
        return;
    struct mean_floors floors;
    mean_floors_of(&floors, width, dy, p->divisor, p->exponent - fl_exponent(&args->out));
    for (int64_t i = width; i < pixels * width; i++) {
        floors.floor[i] = floors.floor[i - width];
        floors.above[i] = floors.above[i - width];
    }
    const int64_t zeros = floors.zeros;
    for (int64_t i = 0, some; i < positions; i += some) {
        some = minimum(pixels, positions - i);
        floors.zeros = zeros * some;
        store_floors(args, &floors, at + i * channels, some * width, stats);
    }
}

/* first and end are elements of the output, in whole images. */
static void mean_gradient_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                              struct fl_stats *stats) {
    const int64_t channels = args->p.pooling.windows.c,
                  positions = args->p.pooling.windows.h * args->p.pooling.windows.w;
    const bool stochastic = args->rounding.mode == TENSOR_ROUND_STOCHASTIC;
    struct flex_stats sums = {0};
    int64_t dy[FLEX_BLOCK];
    for (int64_t n = first / (positions * channels); n < end / (positions * channels); n++)
        for (int64_t c = 0; c < channels; c += FLEX_BLOCK) {
            const int64_t width = minimum(channels - c, FLEX_BLOCK), at = n * positions * channels + c;
            const int16_t *from = element(&args->in[0], n * channels + c);
            for (int64_t j = 0; j < width; j++)
                dy[j] = from[j];
            (stochastic ? draw_means : copy_means)(args, plan, at, width, dy, &sums);
        }
    mean_finish(plan, &sums, stats);
}

static tensor_status avgpool_global_grad(const struct fl_args *args) {
    const struct flex_mean_plan plan = mean_plan(args);
    run_parts(args, &plan, mean_gradient_run, args->out.count,
              args->p.pooling.windows.h * args->p.pooling.windows.w * args->p.pooling.windows.c);
    return TENSOR_OK;
}

#endif
