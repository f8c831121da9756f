/* maxpool.h - where the windows of max pooling lie, along one direction. */
#ifndef FL_MAXPOOL_H
#define FL_MAXPOOL_H

#include "core/kernel.h"

/* from ... to-1 */
struct fl_range {
    int64_t from, to;
};

/* The positions of window i that lie inside an image of `length` positions. */
static inline struct fl_range fl_window_inside(const struct fl_geometry *g, int64_t i, int64_t window, int64_t length) {
    const int64_t from = i * g->stride - g->padding, to = from + window;
    return (struct fl_range){from < 0 ? 0 : from, to < length ? to : length};
}

/* The windows, of `windows`, that hold a position; those of the next position follow without a division. */
static inline struct fl_range fl_windows_over(const struct fl_geometry *g, int64_t position, int64_t window,
                                              int64_t windows) {
    const int64_t last = (position + g->padding) / g->stride + 1, before = position + g->padding - window;
    return (struct fl_range){before < 0 ? 0 : before / g->stride + 1, last < windows ? last : windows};
}

static inline void fl_windows_over_next(struct fl_range *over, const struct fl_geometry *g, int64_t position,
                                        int64_t window, int64_t windows) {
    over->to += over->to < windows && over->to * g->stride <= position + g->padding;
    over->from += over->from * g->stride + window <= position + g->padding;
}

#endif
