/* maxpool.h - the positions of the windows of max pooling in one direction. */
#ifndef FL_MAXPOOL_H
#define FL_MAXPOOL_H

#include "core/table/kernel.h"

/* from ... to-1 */
struct fl_range {
    int64_t from, to;
};

/* The positions of a window that lie inside the image: every `step`-th from `from` on, below `to`. */
struct fl_window {
    int64_t from, to, step;
};

/* One direction of a pooling. */
struct fl_max_side {
    int64_t length, windows, reach; /* length of the image; number of windows; extent of a window */
    int64_t stride, padding, dilation;
};

static inline struct fl_max_side fl_max_down(const struct fl_windows *g) {
    return (struct fl_max_side){g->h,         g->p,          (g->r - 1) * g->dilation[0] + 1,
                                g->stride[0], g->padding[0], g->dilation[0]};
}

static inline struct fl_max_side fl_max_across(const struct fl_windows *g) {
    return (struct fl_max_side){g->w,         g->q,          (g->s - 1) * g->dilation[1] + 1,
                                g->stride[1], g->padding[1], g->dilation[1]};
}

/* The number of places that kernels number in a window, including those between its positions. */
static inline int64_t fl_window_places(const struct fl_windows *g) {
    return fl_max_down(g).reach * fl_max_across(g).reach;
}

/* The beginning of window i, which may be before the image. */
static inline int64_t fl_window_begin(const struct fl_max_side *s, int64_t i) {
    return i * s->stride - s->padding;
}

static inline struct fl_window fl_window_inside(const struct fl_max_side *s, int64_t i) {
    const int64_t begin = fl_window_begin(s, i), to = begin + s->reach, before = -begin;
    const int64_t skipped = s->dilation == 1 ? before : (before + s->dilation - 1) / s->dilation * s->dilation;
    return (struct fl_window){begin < 0 ? begin + skipped : begin, to < s->length ? to : s->length, s->dilation};
}

/* The windows whose extent includes a position; with a dilation some of them may not contain it. Those of the next
 * position follow without a division. */
static inline struct fl_range fl_windows_over(const struct fl_max_side *s, int64_t position) {
    const int64_t last = (position + s->padding) / s->stride + 1, before = position + s->padding - s->reach;
    return (struct fl_range){before < 0 ? 0 : before / s->stride + 1, last < s->windows ? last : s->windows};
}

static inline void fl_windows_over_next(struct fl_range *over, const struct fl_max_side *s, int64_t position) {
    over->to += over->to < s->windows && over->to * s->stride <= position + s->padding;
    over->from += over->from * s->stride + s->reach <= position + s->padding;
}

#endif
