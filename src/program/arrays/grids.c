/* grids.c - GridSample: images at places that another operand names, in units of half the image. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <math.h>
#include <string.h>

enum { SPATIAL = FL_ARRAY_DIMS - 2, TAPS = 4 };
enum mode { LINEAR, NEAREST, CUBIC };
enum padding { ZEROS, BORDER, REFLECTION };

struct grid {
    const struct fl_array *x, *grid;
    struct fl_array *y;
    enum mode mode;
    enum padding padding;
    bool corners; /* -1 and 1 are the centres of the outermost pixels, not their outer edges */
    int spatial;
    int64_t x_pixels, y_pixels;
};

static tensor_status read_grid(struct grid *g, const struct fl_arrays *a) {
    const char *const mode = fl_net_string(a->node, "mode", "linear");
    const char *const padding = fl_net_string(a->node, "padding_mode", "zeros");
    const struct fl_array *const x = a->in[0], *const grid = a->in[1];
    TRY(fl_want_float(a, 0));
    TRY(fl_want_float(a, 1));
    *g = (struct grid){.x = x, .grid = grid, .y = a->out[0], .spatial = x->ndim - 2, .x_pixels = 1, .y_pixels = 1};
    g->corners = fl_net_int(a->node, "align_corners", 0) != 0;
    g->mode = !strcmp(mode, "nearest") ? NEAREST : !strcmp(mode, "cubic") ? CUBIC : LINEAR;
    g->padding = !strcmp(padding, "border") ? BORDER : !strcmp(padding, "reflection") ? REFLECTION : ZEROS;
    if (g->mode == LINEAR && strcmp(mode, "linear") != 0)
        return fl_fail(TENSOR_E_DATA, "mode \"%s\", expected linear, nearest or cubic", mode);
    if (g->padding == ZEROS && strcmp(padding, "zeros") != 0)
        return fl_fail(TENSOR_E_DATA, "padding_mode \"%s\", expected zeros, border or reflection", padding);
    if (x->ndim < 3 || grid->ndim != x->ndim || grid->dim[0] != x->dim[0] || grid->dim[x->ndim - 1] != g->spatial)
        return fl_fail(TENSOR_E_SHAPE, "a grid of %d dimensions and %lld coordinates, expected %d and %d", grid->ndim,
                       grid->ndim ? (long long)grid->dim[grid->ndim - 1] : 0, x->ndim, g->spatial);
    for (int d = 0; d < g->spatial; d++) {
        g->x_pixels *= x->dim[2 + d];
        g->y_pixels *= grid->dim[1 + d];
    }
    return TENSOR_OK;
}

tensor_status fl_shape_grid_sample(const struct fl_arrays *a) {
    int64_t dim[FL_ARRAY_DIMS];
    struct grid g;
    TRY(read_grid(&g, a));
    for (int d = 0; d < a->in[0]->ndim; d++)
        dim[d] = d < 2 ? a->in[0]->dim[d] : a->in[1]->dim[d - 1];
    return fl_shape_set(a->out[0], a->in[0]->type, a->in[0]->ndim, dim);
}

/* Beyond its ends a line goes back, as often as it takes. */
static double reflected(const struct grid *g, double x, int64_t size) {
    const double low = g->corners ? 0 : -0.5, range = (double)size - 1 - 2 * low, high = low + range;
    if (!(x < low || x > high) || !(fabs(x) < 0x1p62))
        return x;
    if (range <= 0)
        return 0;
    const double beyond = x < low ? low - x : x - high, times = floor(beyond / range), rest = beyond - times * range;
    return (fmod(times, 2) == 0) == (x < low) ? low + rest : high - rest;
}

/* The coordinate of a pixel that padding puts in its place; -1: none, the pixel is 0. */
static int64_t pixel_of(const struct grid *g, double x, int64_t size) {
    const double at = g->padding == REFLECTION ? reflected(g, x, size) : x;
    if (at >= 0 && at <= (double)size - 1)
        return (int64_t)at;
    return g->padding == ZEROS || at != at ? -1 : at < 0 ? 0 : size - 1;
}

/* The pixels around a coordinate and their weights along one dimension. */
static int weigh(const struct grid *g, double given, int64_t size, int64_t *pixel, double *weight) {
    const double low = g->corners ? 0 : -0.5, high = (double)size - 1 - low, a = -0.75;
    double x = g->corners ? (given + 1) / 2 * (double)(size - 1) : ((given + 1) * (double)size - 1) / 2;
    if (g->mode == NEAREST)
        x = nearbyint(x);
    if (x < low || x > high)
        x = g->padding == BORDER       ? (x < 0 ? 0 : (double)size - 1)
            : g->padding == REFLECTION ? reflected(g, x, size)
                                       : x;
    if (g->mode == NEAREST) {
        pixel[0] = pixel_of(g, nearbyint(x), size);
        weight[0] = 1;
        return 1;
    }
    const int count = g->mode == CUBIC ? TAPS : 2, before = count / 2 - 1;
    const double below = floor(x), part = x - below;
    for (int i = 0; i < count; i++) {
        const double t = fabs(part - (i - before));
        pixel[i] = pixel_of(g, below + i - before, size);
        weight[i] = count == 2 ? 1 - t
                    : t <= 1   ? ((a + 2) * t - (a + 3)) * t * t + 1
                               : ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
    }
    return count;
}

/* One place of an image, in all channels. */
static void sample(const struct grid *g, int64_t image, int64_t place) {
    int64_t pixel[SPATIAL][TAPS];
    double weight[SPATIAL][TAPS];
    int count[SPATIAL], all = 1;
    const int64_t channels = g->x->dim[1];
    for (int d = 0; d < g->spatial; d++) { /* the grid has the last dimension first */
        const int64_t from = (image * g->y_pixels + place) * g->spatial + g->spatial - 1 - d;
        count[d] = weigh(g, fl_array_number(g->grid, from), g->x->dim[2 + d], pixel[d], weight[d]);
        all *= count[d];
    }
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int i = 0; i < all; i++) {
            int64_t at = 0;
            double w = 1;
            bool inside = true;
            for (int d = 0, rest = i; d < g->spatial; rest /= count[d++]) {
                const int tap = rest % count[d];
                inside &= pixel[d][tap] >= 0;
                w *= weight[d][tap];
                at = at * g->x->dim[2 + d] + pixel[d][tap];
            }
            if (inside)
                sum += w * fl_array_number(g->x, (image * channels + c) * g->x_pixels + at);
        }
        fl_array_put_number(g->y, (image * channels + c) * g->y_pixels + place, sum);
    }
}

static void sample_part(void *context, int part, int worker) {
    const struct grid *const g = context;
    const int64_t all = g->x->dim[0] * g->y_pixels;
    (void)worker;
    for (int64_t i = (int64_t)part * FL_BLOCK; i < (int64_t)(part + 1) * FL_BLOCK && i < all; i++)
        sample(g, i / g->y_pixels, i % g->y_pixels);
}

tensor_status fl_compute_grid_sample(const struct fl_arrays *a) {
    struct grid g;
    TRY(read_grid(&g, a));
    if (!g.y || !g.y->count)
        return TENSOR_OK;
    if (g.x_pixels == 0)
        return fl_fail(TENSOR_E_SHAPE, "an image without pixels");
    const int64_t parts = (g.x->dim[0] * g.y_pixels + FL_BLOCK - 1) / FL_BLOCK;
    if (parts > INT32_MAX)
        return fl_fail(TENSOR_E_UNSUPPORTED, "a grid of %lld places", (long long)g.y_pixels);
    fl_parallel((int)parts, sample_part, &g);
    return TENSOR_OK;
}
