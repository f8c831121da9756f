/* pools.c - the largest number, the mean and the norm of each window, and of whole images. */
#include "program/arrays/functions.h"
#include "program/arrays/windows.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <string.h>

enum kind { LARGEST, AVERAGE, NORM };

struct pool {
    const struct fl_windows *g;
    enum kind kind;
    bool counts, by_columns; /* padding is part of a mean; indices are counted down the columns first */
    double power;
    const double *x;
    struct fl_array *y, *indices;
    int64_t x_pixels, y_pixels, window, step, y_step; /* step: from pixel to pixel */
};

/* What a window takes in. */
struct window {
    double total;
    int64_t at, pixels; /* the place of the largest; how many a mean divides by */
};

static void take(const struct pool *p, struct window *w, double x, int64_t at) {
    if (p->kind == LARGEST && (w->at < 0 || x > w->total || (x != x && w->total == w->total))) {
        w->total = x;
        w->at = at;
    } else if (p->kind == AVERAGE) {
        w->total += x;
    } else if (p->kind == NORM) {
        w->total += p->power == 1 ? fabs(x) : p->power == 2 ? x * x : fl_pow(fabs(x), p->power);
    }
}

static double finished(const struct pool *p, const struct window *w) {
    if (p->kind == AVERAGE)
        return w->total / (double)w->pixels;
    if (p->kind == NORM && p->power != 1)
        return p->power == 2 ? sqrt(w->total) : fl_pow(w->total, 1 / p->power);
    return w->total;
}

static void pool_window(const struct pool *p, const double *x, const int64_t *index, struct window *w) {
    const struct fl_windows *const g = p->g;
    int64_t place[FL_SPATIAL] = {0};
    *w = (struct window){.total = p->kind == LARGEST ? -HUGE_VAL : 0, .at = -1};
    for (int64_t i = 0; i < p->window; i++) {
        int64_t pixel = 0;
        bool inside = true, stated = true;
        for (int d = 0; d < g->spatial; d++) {
            const int64_t at = index[d] * g->stride[d] - g->begin[d] + place[d] * g->dilation[d];
            inside &= at >= 0 && at < g->size[d];
            stated &= at < g->size[d] + g->end[d] - g->beyond[d];
            pixel = pixel * g->size[d] + at;
        }
        if (inside)
            take(p, w, x[pixel * p->step], pixel);
        w->pixels += p->counts ? stated : inside;
        for (int d = g->spatial - 1; d >= 0 && ++place[d] == g->window[d]; d--)
            place[d] = 0;
    }
}

/* The place of a pixel where the first dimension of images changes fastest. */
static int64_t by_columns(const struct fl_windows *g, int64_t pixel) {
    int64_t place = 0, rest = pixel, index[FL_SPATIAL];
    for (int d = g->spatial - 1; d >= 0; d--) {
        index[d] = rest % g->size[d];
        rest /= g->size[d];
    }
    for (int d = g->spatial - 1; d >= 0; d--)
        place = place * g->size[d] + index[d];
    return place;
}

/* One channel of one image. */
static void pool_part(void *context, int part, int worker) {
    const struct pool *const p = context;
    const struct fl_windows *const g = p->g;
    const int64_t image = part / g->channels, channel = part % g->channels, plane = p->step == 1 ? p->x_pixels : 1;
    const int64_t first = image * g->channels * p->x_pixels + channel * plane;
    const int64_t to = image * g->channels * p->y_pixels + channel * (p->step == 1 ? p->y_pixels : 1);
    int64_t index[FL_SPATIAL] = {0};
    struct window w;
    (void)worker;
    for (int64_t i = 0; i < p->y_pixels; i++) {
        pool_window(p, p->x + first, index, &w);
        if (p->y)
            fl_array_put_number(p->y, to + i * p->step, finished(p, &w));
        if (p->indices)
            fl_array_put_integer(p->indices, to + i * p->step,
                                 w.at < 0 ? -1 : first + (p->by_columns ? by_columns(g, w.at) : w.at) * p->step);
        for (int d = g->spatial - 1; d >= 0 && ++index[d] == g->result[d]; d--)
            index[d] = 0;
    }
}

static tensor_status compute(const struct fl_arrays *a, const struct fl_windows *g, struct pool p) {
    void *memory;
    p.g = g;
    p.y = a->out[0];
    p.indices = fl_result(a, 1);
    p.step = a->node->channels_last ? g->channels : 1;
    p.x_pixels = p.y_pixels = p.window = 1;
    for (int d = 0; d < g->spatial; d++) {
        p.x_pixels *= g->size[d];
        p.y_pixels *= g->result[d];
        p.window *= g->window[d];
    }
    TRY(fl_as_doubles(a->in[0], &p.x, &memory));
    fl_parallel((int)(g->batch * g->channels), pool_part, &p);
    fl_free(memory);
    return fl_activate(a);
}

tensor_status fl_compute_max_pool(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_windows_pool(&g, a->node, a->in[0]));
    return compute(a, &g, (struct pool){.kind = LARGEST, .by_columns = fl_net_int(a->node, "storage_order", 0) != 0});
}

tensor_status fl_compute_average_pool(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_want_float(a, 0));
    TRY(fl_windows_pool(&g, a->node, a->in[0]));
    return compute(a, &g, (struct pool){.kind = AVERAGE, .counts = fl_net_int(a->node, "count_include_pad", 0) != 0});
}

static tensor_status read_power(const struct fl_net_node *node, double *power) {
    *power = (double)fl_net_int(node, "p", 2);
    return *power >= 1 ? TENSOR_OK : fl_fail(TENSOR_E_DATA, "p is %g, expected at least 1", *power);
}

tensor_status fl_compute_lp_pool(const struct fl_arrays *a) {
    struct fl_windows g;
    struct pool p = {.kind = NORM};
    TRY(fl_want_float(a, 0));
    TRY(read_power(a->node, &p.power));
    TRY(fl_windows_pool(&g, a->node, a->in[0]));
    return compute(a, &g, p);
}

/* GlobalAveragePool, GlobalLpPool, GlobalMaxPool: a window as large as the image. */
tensor_status fl_compute_global_pool(const struct fl_arrays *a) {
    struct fl_windows g;
    struct pool p = {.kind = !strcmp(a->node->op, "GlobalMaxPool")  ? LARGEST
                             : !strcmp(a->node->op, "GlobalLpPool") ? NORM
                                                                    : AVERAGE};
    TRY(fl_want_float(a, 0));
    if (p.kind == NORM)
        TRY(read_power(a->node, &p.power));
    TRY(fl_windows_image(&g, a->node, a->in[0]));
    for (int d = 0; d < g.spatial; d++) {
        g.window[d] = g.size[d];
        g.stride[d] = g.dilation[d] = g.result[d] = 1;
    }
    return compute(a, &g, p);
}
