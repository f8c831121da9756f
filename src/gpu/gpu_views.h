/* gpu_views.h - products as matmuls: the matrices that tiles are read from, and the sizes of the result.
 *
 * Convolutions are matmuls of matrices that are never stored: a view finds the address of their elements.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: matrix_view, product_sizes, matmul_job. */
#ifndef FL_GPU_VIEWS_H
#define FL_GPU_VIEWS_H

#include "gpu/gpu_element.h"

namespace {

enum { NOWHERE = 1 << 30 }; /* a coordinate beyond every image */
enum { MOST_PHASES = 64 };

/* Every view has rows and columns; in aligned geometry at least each eight columns are contiguous. place_row and
 * place_column compute the parts of an address, `at` joins them: NULL for a zero. Along k there are zeros behind the
 * view and before it. */

__device__ static inline bool is_within(int i, int count) {
    return (unsigned)i < (unsigned)count;
}

struct matrix_view {
    const fl_element *data;
    int64_t step; /* from row to row */
    int rows, columns;

    typedef const fl_element *row;
    typedef int column;
    __device__ row place_row(int r) const { return is_within(r, rows) ? data + r * step : NULL; }
    __device__ column place_column(int c) const { return is_within(c, columns) ? c : -1; }
    __device__ const fl_element *at(row r, column c) const { return r && c >= 0 ? r + c : NULL; }
};

/* Steps of windows, down and across. inverse: ceil(2^32 / stride), so that the quotient is the high word of a product
 * (can_index); unused if the stride is 1. */
struct window_steps {
    int stride[2], padding[2], dilation[2];
    unsigned inverse[2];
    bool skips; /* a stride is more than 1 */

    __device__ unsigned quotient(int way, unsigned of) const {
        return stride[way] > 1 ? __umulhi(of, inverse[way]) : of;
    }
};

__device__ static inline struct window_steps steps_of(const struct fl_windows &g) {
    struct window_steps of;
    for (int way = 0; way < 2; way++) {
        of.stride[way] = g.stride[way];
        of.padding[way] = g.padding[way];
        of.dilation[way] = g.dilation[way];
        of.inverse[way] = 0xffffffffu / (unsigned)g.stride[way] + 1;
    }
    of.skips = g.stride[0] > 1 || g.stride[1] > 1;
    return of;
}

/* The image as a matrix: a row for each output pixel, a column for each filter position and channel. */
struct window_view {
    const fl_element *data; /* of the group's first channel */
    int h, w, c, p, q, s, depth;
    struct window_steps step;
    int rows, columns;

    struct row {
        int64_t offset;
        int y, x;
    };
    struct column {
        int64_t offset;
        int y, x;
    };
    __device__ row place_row(int r) const {
        const int n = r / (p * q), pixel = r % (p * q);
        row to;
        to.y = pixel / q * step.stride[0] - step.padding[0];
        to.x = pixel % q * step.stride[1] - step.padding[1];
        to.offset = (((int64_t)n * h + to.y) * w + to.x) * c;
        if (!is_within(r, rows))
            to.y = -NOWHERE;
        return to;
    }
    __device__ column place_column(int j) const {
        const int position = j / depth;
        column to;
        to.y = position / s * step.dilation[0];
        to.x = position % s * step.dilation[1];
        to.offset = ((int64_t)to.y * w + to.x) * c + j % depth;
        if (!is_within(j, columns))
            to.y = -NOWHERE;
        return to;
    }
    __device__ const fl_element *at(const row &r, const column &j) const {
        const bool inside = (unsigned)(r.y + j.y) < (unsigned)h && (unsigned)(r.x + j.x) < (unsigned)w;
        return inside ? data + (r.offset + j.offset) : NULL;
    }
};

/* The outputs that read an input pixel: a row for each pixel, a column for each filter position and filter. */
struct receiver_view {
    const fl_element *data; /* of the group's first filter */
    int h, w, p, q, filters, s, per_group;
    struct window_steps step;
    int rows, columns;

    struct row {
        int64_t offset;
        int y, x; /* on the padded image */
    };
    struct column {
        int y, x, filter;
    };
    __device__ row place_row(int r) const {
        const int n = r / (h * w), pixel = r % (h * w);
        row to;
        to.offset = (int64_t)n * p * q * filters;
        to.y = r < rows ? pixel / w + step.padding[0] : -NOWHERE;
        to.x = pixel % w + step.padding[1];
        return to;
    }
    __device__ column place_column(int j) const {
        const int position = j / per_group;
        column to;
        to.y = is_within(j, columns) ? position / s * step.dilation[0] : NOWHERE;
        to.x = position % s * step.dilation[1];
        to.filter = j % per_group;
        return to;
    }
    __device__ const fl_element *at(const row &r, const column &j) const {
        int y = r.y - j.y, x = r.x - j.x;
        bool reached = y >= 0 && x >= 0;
        if (step.skips) {
            const unsigned down = step.quotient(0, (unsigned)y), right = step.quotient(1, (unsigned)x);
            reached = reached && down * step.stride[0] == (unsigned)y && right * step.stride[1] == (unsigned)x;
            y = (int)down;
            x = (int)right;
        }
        reached = reached && y < p && x < q;
        return reached ? data + (r.offset + ((int64_t)y * q + x) * filters + j.filter) : NULL;
    }
};

/* The pixels of an input gradient at one place within the stride: every stride[way]th from `at` on. Of the filter
 * positions, those from `first` on reach them, the first of them from output `from`. */
struct window_phase {
    int at[2], size[2], first[2], count[2], from[2];
};

__device__ static inline struct window_phase phase_of(const struct fl_windows &g, int phase) {
    struct window_phase of;
    for (int way = 0; way < 2; way++) {
        const int stride = g.stride[way], at = of.at[way] = way ? phase % g.stride[1] : phase / g.stride[1];
        of.size[way] = ((int)(way ? g.w : g.h) - at + stride - 1) / stride;
        of.first[way] = (at + g.padding[way]) % stride;
        of.count[way] = ((int)(way ? g.s : g.r) - of.first[way] + stride - 1) / stride;
        of.from[way] = (at + g.padding[way]) / stride;
    }
    return of;
}

/* Filters for the input gradient: a row for each position and filter, a column for each channel. */
struct filter_view {
    const fl_element *data; /* the group's first filter */
    int per_group, positions, depth, rows;
    int across, first, down, right; /* of a phase: positions side by side, the first, steps; across 0: all positions */

    typedef const fl_element *row;
    typedef int column;
    /* The number among all positions of the i-th one. */
    __device__ int position(int i) const { return across ? first + i / across * down + i % across * right : i; }
    __device__ row place_row(int r) const {
        const int filter = r % per_group;
        return is_within(r, rows) ? data + ((int64_t)filter * positions + position(r / per_group)) * depth : NULL;
    }
    __device__ column place_column(int c) const { return c < depth ? c : -1; }
    __device__ const fl_element *at(row r, column c) const { return r && c >= 0 ? r + c : NULL; }
};

/* --- operations as matmuls ---------------------------------------------------------------------------------------- */

/* m x n sums of k products in each of `groups` groups; sum (row, column) of a group is output group * group_step + row
 * * row_step + column. aligned: columns of the views are contiguous by eight. */
struct product_sizes {
    int64_t m, n, k, groups, row_step, group_step;
    bool aligned;
};

/* What results are like: many rows of few columns, few rows of many columns, or neither. */
enum product_extent { EXTENT_EVEN, EXTENT_TALL, EXTENT_WIDE };

/* One phase: the whole product (-1). */
struct job_of_one_phase {
    static constexpr bool has_phases = false;
    template <class Sizes> static int64_t phases(const Sizes &) { return 1; }
};

/* along_k_*: whether columns of the view run along k; otherwise rows do. A group of a matmul is one of its batch. */
template <bool transposed_a, bool transposed_b> struct matmul_job : job_of_one_phase {
    __host__ __device__ static const struct fl_matrices &of(const struct fl_product &p) { return p.matrices; }
    static constexpr bool along_k_a = !transposed_a, along_k_b = transposed_b;
    static constexpr enum product_extent extent = EXTENT_EVEN;
    static struct product_sizes sizes(const struct fl_matrices &g) {
        const int64_t inner_a = transposed_a ? g.m : g.k, inner_b = transposed_b ? g.k : g.n;
        return {g.m, g.n, g.k, g.batch ? g.batch : 1, g.n, g.m * g.n, inner_a % 8 == 0 && inner_b % 8 == 0};
    }
    typedef struct matrix_view view_a, view_b;
    __device__ static view_a a(const struct fl_matrices &g, const fl_element *data, int group, int) {
        const int m = (int)g.m, k = (int)g.k;
        data += group * g.m * g.k;
        return transposed_a ? view_a{data, m, k, m} : view_a{data, k, m, k};
    }
    __device__ static view_b b(const struct fl_matrices &g, const fl_element *data, int group, int) {
        const int n = (int)g.n, k = (int)g.k;
        data += group * g.n * g.k;
        return transposed_b ? view_b{data, k, n, k} : view_b{data, n, k, n};
    }
};

__device__ static inline struct window_view windows_of(const struct fl_windows &g, const fl_element *image, int group) {
    const int depth = (int)g.c / g.groups;
    return {image + (int64_t)group * depth,
            (int)g.h,
            (int)g.w,
            (int)g.c,
            (int)g.p,
            (int)g.q,
            (int)g.s,
            depth,
            steps_of(g),
            (int)(g.batch * g.p * g.q),
            (int)(g.r * g.s) * depth};
}

struct forward_job : job_of_one_phase {
    __host__ __device__ static const struct fl_windows &of(const struct fl_product &p) { return p.windows; }
    static constexpr bool along_k_a = true, along_k_b = true;
    static constexpr enum product_extent extent = EXTENT_TALL;
    static struct product_sizes sizes(const struct fl_windows &g) {
        const int64_t depth = g.c / g.groups, per_group = g.filters / g.groups;
        return {g.batch * g.p * g.q, per_group, g.r * g.s * depth, g.groups, g.filters, per_group, depth % 8 == 0};
    }
    typedef struct window_view view_a;
    typedef struct matrix_view view_b;
    __device__ static view_a a(const struct fl_windows &g, const fl_element *image, int group, int) {
        return windows_of(g, image, group);
    }
    __device__ static view_b b(const struct fl_windows &g, const fl_element *filter, int group, int) {
        const int size = (int)(g.r * g.s) * ((int)g.c / g.groups), per_group = (int)g.filters / g.groups;
        return {filter + (int64_t)group * per_group * size, size, per_group, size};
    }
};

/* With a stride, filter positions reach the pixels of one phase alone: each is a product with fewer steps of k. */
struct input_gradient_job {
    static constexpr bool has_phases = true;
    static int64_t phases(const struct fl_windows &g) {
        const bool every = (g.stride[0] == 1 || g.dilation[0] == 1) && (g.stride[1] == 1 || g.dilation[1] == 1);
        const int64_t phases = every ? (int64_t)g.stride[0] * g.stride[1] : 1;
        return phases <= MOST_PHASES ? phases : 1;
    }
    __host__ __device__ static const struct fl_windows &of(const struct fl_product &p) { return p.windows; }
    static constexpr bool along_k_a = true, along_k_b = false;
    static constexpr enum product_extent extent = EXTENT_TALL;
    static struct product_sizes sizes(const struct fl_windows &g) {
        const int64_t depth = g.c / g.groups, per_group = g.filters / g.groups;
        return {g.batch * g.h * g.w,
                depth,
                g.r * g.s * per_group,
                g.groups,
                g.c,
                depth,
                depth % 8 == 0 && per_group % 8 == 0};
    }
    /* Rows and steps of a phase; the pixel of a row. */
    __device__ static void limit(const struct fl_windows &g, int phase, int *m, int *k) {
        const struct window_phase of = phase_of(g, phase);
        *m = (int)g.batch * of.size[0] * of.size[1];
        *k = of.count[0] * of.count[1] * ((int)g.filters / g.groups);
    }
    __device__ static int pixel(const struct fl_windows &g, int phase, int row) {
        const struct window_phase of = phase_of(g, phase);
        const int line = row / of.size[1], n = line / of.size[0];
        return (n * (int)g.h + line % of.size[0] * g.stride[0] + of.at[0]) * (int)g.w + row % of.size[1] * g.stride[1] +
               of.at[1];
    }
    typedef struct receiver_view view_a;
    typedef struct filter_view view_b;
    __device__ static view_a a(const struct fl_windows &g, const fl_element *dy, int group, int phase) {
        const int per_group = (int)g.filters / g.groups;
        view_a view = {dy + (int64_t)group * per_group,
                       (int)g.h,
                       (int)g.w,
                       (int)g.p,
                       (int)g.q,
                       (int)g.filters,
                       (int)g.s,
                       per_group,
                       steps_of(g),
                       (int)(g.batch * g.h * g.w),
                       (int)(g.r * g.s) * per_group};
        if (phase >= 0) { /* it has no stride */
            const struct window_phase of = phase_of(g, phase);
            view.h = of.size[0], view.w = of.size[1], view.s = of.count[1];
            view.step.padding[0] = of.from[0], view.step.padding[1] = of.from[1];
            view.step.skips = false;
            limit(g, phase, &view.rows, &view.columns);
        }
        return view;
    }
    __device__ static view_b b(const struct fl_windows &g, const fl_element *filter, int group, int phase) {
        const int depth = (int)g.c / g.groups, per_group = (int)g.filters / g.groups, positions = (int)(g.r * g.s);
        view_b view = {filter + (int64_t)group * per_group * positions * depth, per_group, positions, depth,
                       positions * per_group};
        if (phase >= 0) {
            const struct window_phase of = phase_of(g, phase);
            view.across = of.count[1];
            view.first = of.first[0] * (int)g.s + of.first[1];
            view.down = g.stride[0] * (int)g.s;
            view.right = g.stride[1];
            view.rows = of.count[0] * of.count[1] * per_group;
        }
        return view;
    }
};

struct weight_gradient_job : job_of_one_phase {
    __host__ __device__ static const struct fl_windows &of(const struct fl_product &p) { return p.windows; }
    static constexpr bool along_k_a = false, along_k_b = false;
    static constexpr enum product_extent extent = EXTENT_WIDE;
    static struct product_sizes sizes(const struct fl_windows &g) {
        const int64_t depth = g.c / g.groups, per_group = g.filters / g.groups, size = g.r * g.s * depth;
        return {per_group,
                size,
                g.batch * g.p * g.q,
                g.groups,
                size,
                per_group * size,
                depth % 8 == 0 && per_group % 8 == 0};
    }
    typedef struct matrix_view view_a;
    typedef struct window_view view_b;
    __device__ static view_a a(const struct fl_windows &g, const fl_element *dy, int group, int) {
        const int per_group = (int)g.filters / g.groups;
        return {dy + (int64_t)group * per_group, g.filters, (int)(g.batch * g.p * g.q), per_group};
    }
    __device__ static view_b b(const struct fl_windows &g, const fl_element *image, int group, int) {
        return windows_of(g, image, group);
    }
};

/* Whether kernels can hold all sizes and positions in an int. */
static bool can_index(const struct fl_windows &g, const struct product_sizes &of) {
    const int64_t most = NOWHERE / 2, positions = g.r * g.s;
    for (int way = 0; way < 2; way++) {
        const int64_t pixels = way ? g.w : g.h, out = way ? g.q : g.p, filter = way ? g.s : g.r;
        if ((pixels + g.padding[way]) * g.stride[way] >= most || out * g.stride[way] >= most ||
            filter * g.dilation[way] >= most)
            return false;
    }
    return of.m < most && of.n < most && of.k < most && of.groups < most && g.batch * g.h * g.w < most &&
           g.batch * g.p * g.q < most && positions * g.c < most && positions * g.filters < most;
}

} // namespace

#endif
