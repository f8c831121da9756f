/* window_cases.h - windows drawn at random, each direction and side separately. */
#ifndef FL_WINDOW_CASES_H
#define FL_WINDOW_CASES_H

#include "check.h"
#include "core/table/kernel.h"

/* least ... most */
static inline int64_t window_between(uint64_t *state, int64_t least, int64_t most) {
    return least + (int64_t)(check_random(state) % (uint64_t)(most - least + 1));
}

/* The number of windows along `length` pixels with `before` and `after` of padding. */
static inline int64_t window_count(int64_t length, int64_t before, int64_t after, int64_t size, int stride,
                                   int dilation) {
    const int64_t room = length + before + after - (size - 1) * dilation - 1;
    return room < 0 ? 0 : room / stride + 1;
}

/* A step of 1 half of the time. */
static inline int window_step(uint64_t *state, int most) {
    return check_random(state) % 2 ? 1 : (int)window_between(state, 1, most);
}

/* Sizes, steps and padding of a convolution; after[]: padding below and to the right. Filters are of any shape, some
 * images long and thin, some paddings wider than what a filter sees. */
static inline struct fl_windows draw_windows(uint64_t *state, int64_t most_channels, int after[2]) {
    static const int64_t sides[][2] = {{9, 12}, {14, 7}, {1, 40}, {33, 2}, {5, 5}};
    for (;;) {
        const int64_t *side = sides[check_random(state) % (sizeof sides / sizeof sides[0])];
        const int64_t groups = check_random(state) % 3 ? 1 : window_between(state, 2, 4);
        struct fl_windows g = {.batch = window_between(state, 1, 3),
                               .h = window_between(state, 1, side[0]),
                               .w = window_between(state, 1, side[1]),
                               .c = window_between(state, 1, most_channels) * groups,
                               .filters = window_between(state, 1, most_channels) * groups,
                               .r = window_between(state, 1, 5),
                               .s = window_between(state, 1, 5),
                               .groups = (int)groups};
        if (check_random(state) % 8 == 0) /* depthwise */
            g.groups = (int)g.c, g.filters = g.c;
        for (int way = 0; way < 2; way++) {
            const int wide = check_random(state) % 10 ? 3 : 9;
            g.stride[way] = window_step(state, 4);
            g.dilation[way] = window_step(state, 4);
            g.padding[way] = (int)window_between(state, 0, wide);
            after[way] = (int)window_between(state, 0, wide);
        }
        g.p = window_count(g.h, g.padding[0], after[0], g.r, g.stride[0], g.dilation[0]);
        g.q = window_count(g.w, g.padding[1], after[1], g.s, g.stride[1], g.dilation[1]);
        if (g.p > 0 && g.q > 0)
            return g;
    }
}

/* Whether each window of a direction holds a pixel. */
static inline bool windows_see(int64_t length, int64_t before, int64_t size, int stride, int dilation, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t seen = 0;
        for (int64_t k = 0; k < size; k++) {
            const int64_t at = i * stride - before + k * dilation;
            seen += at >= 0 && at < length;
        }
        if (!seen)
            return false;
    }
    return true;
}

/* The same for a pooling. */
static inline struct fl_windows draw_pool(uint64_t *state, int64_t channels, int after[2]) {
    for (;;) {
        struct fl_windows g = draw_windows(state, 1, after);
        g.c = g.filters = channels;
        g.groups = 0;
        bool fits = true;
        for (int way = 0; way < 2; way++) {
            const int64_t size = way ? g.s : g.r, reach = (size - 1) * g.dilation[way] + 1;
            fits &= g.padding[way] < reach && after[way] < reach &&
                    windows_see(way ? g.w : g.h, g.padding[way], size, g.stride[way], g.dilation[way], way ? g.q : g.p);
        }
        if (fits)
            return g;
    }
}

/* Both as text for a failure. */
static inline const char *windows_text(const struct fl_windows *g) {
    static char text[200];
    snprintf(text, sizeof text,
             "%lldx%lldx%lldx%lld filters %lldx%lldx%lld to %lldx%lld stride %d %d padding %d %d dilation %d %d groups "
             "%d",
             (long long)g->batch, (long long)g->h, (long long)g->w, (long long)g->c, (long long)g->filters,
             (long long)g->r, (long long)g->s, (long long)g->p, (long long)g->q, g->stride[0], g->stride[1],
             g->padding[0], g->padding[1], g->dilation[0], g->dilation[1], g->groups);
    return text;
}

#endif
