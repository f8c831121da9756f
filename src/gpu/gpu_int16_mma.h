/* gpu_int16_mma.h - matmul and convolutions of 16-bit mantissas, exactly, on tensor cores that multiply bytes.
 *
 * x = 256 high + low with a signed and an unsigned byte, so a sum of products is 2^16 (high high) + 2^8 (high low + low
 * high) + (low low): four byte products into three sums of 32 bits. They hold PART_MOST terms of any operands. If sums
 * are longer, or the output has few tiles, several blocks add parts to sums of 64 bits in the workspace.
 *
 * Tiles of int16 lie in shared memory. ldmatrix gives a lane pairs of neighbours along k (transposed if k runs over the
 * rows of a tile). From the pairs of k 0 to 7 and of k 8 to 15, one byte permutation makes a register of low bytes and
 * another one of high bytes. They are fragments of m16n8k32 except for the order of k, which is the same for both
 * operands.
 *
 * Convolutions are matmuls of matrices that are never stored: a view finds the address of their elements.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: add_tiles. */
#ifndef FL_GPU_INT16_MMA_H
#define FL_GPU_INT16_MMA_H

#include "gpu/gpu_element.h"
#include "gpu/gpu_products.h"

#ifdef FL_SHARED_EXPONENT
namespace {

enum {
    TILE_K = 64,
    PART_MOST = 32704, /* 2 * 128 * 255 * PART_MOST < 2^31; a multiple of TILE_K */
    NOWHERE = 1 << 30  /* a coordinate beyond every image */
};

/* --- operands as matrices ----------------------------------------------------------------------------------------- */

/* Every view has rows and columns; in aligned geometry at least each eight columns are contiguous. place_row and
 * place_column compute the parts of an address, `at` joins them: NULL for a zero. */

struct matrix_view {
    const fl_element *data;
    int64_t step; /* from row to row */
    int rows, columns;

    typedef const fl_element *row;
    typedef int column;
    __device__ row place_row(int r) const { return r < rows ? data + r * step : NULL; }
    __device__ column place_column(int c) const { return c < columns ? c : -1; }
    __device__ const fl_element *at(row r, column c) const { return r && c >= 0 ? r + c : NULL; }
};

/* Steps of windows, down and across. inverse: ceil(2^32 / stride), so that the quotient is the high word of a product
 * (tiles_can_index); unused if the stride is 1. */
struct tile_steps {
    int stride[2], padding[2], dilation[2];
    unsigned inverse[2];
    bool skips; /* a stride is more than 1 */

    __device__ unsigned quotient(int way, unsigned of) const {
        return stride[way] > 1 ? __umulhi(of, inverse[way]) : of;
    }
};

__device__ static inline struct tile_steps tiles_steps(const struct fl_windows &g) {
    struct tile_steps of;
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
    struct tile_steps step;
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
        if (r >= rows)
            to.y = -NOWHERE;
        return to;
    }
    __device__ column place_column(int j) const {
        const int position = j / depth;
        column to;
        to.y = position / s * step.dilation[0];
        to.x = position % s * step.dilation[1];
        to.offset = ((int64_t)to.y * w + to.x) * c + j % depth;
        if (j >= columns)
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
    struct tile_steps step;
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
        to.y = j < columns ? position / s * step.dilation[0] : NOWHERE;
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

/* Filters for the input gradient: a row for each position and filter, a column for each channel. */
struct filter_view {
    const fl_element *data; /* the group's first filter */
    int per_group, positions, depth, rows;

    typedef const fl_element *row;
    typedef int column;
    __device__ row place_row(int r) const {
        const int position = r / per_group, filter = r % per_group;
        return r < rows ? data + ((int64_t)filter * positions + position) * depth : NULL;
    }
    __device__ column place_column(int c) const { return c < depth ? c : -1; }
    __device__ const fl_element *at(row r, column c) const { return r && c >= 0 ? r + c : NULL; }
};

/* --- tiles of the output ------------------------------------------------------------------------------------------ */

/* Eight or four warps, two beside each other along n. A warp has 32 consecutive rows and `columns` groups of eight
 * columns, every second group of the block. */
template <int warps_m_, int columns_, int stages_, int blocks_> struct tile_shape {
    static constexpr int blocks = blocks_; /* minimum for a multiprocessor */
    static constexpr int warps_m = warps_m_, warps_n = 2, rows = 2, columns = columns_, stages = stages_;
    static constexpr int m = warps_m * rows * 16, n = warps_n * columns * 8, threads = warps_m * warps_n * 32;
    static constexpr int bytes_a = m * TILE_K * 2, stage_bytes = (m + n) * TILE_K * 2;
    static constexpr int pitch = n + 8; /* of the sums, in elements: rows begin half of the banks apart */
    static constexpr int tile_bytes = stages * stage_bytes, sum_bytes = m * pitch * 8;
    static constexpr int shared_bytes = tile_bytes > sum_bytes ? tile_bytes : sum_bytes;
};
using large_tile = tile_shape<4, 6, 4, 1>;  /* 128 x 96 */
using small_tile = tile_shape<2, 4, 3, 2>;  /* 64 x 64 */
using narrow_tile = tile_shape<2, 2, 3, 3>; /* 64 x 32 */

/* --- operations as matmuls ---------------------------------------------------------------------------------------- */

/* m x n sums of k products in each of `groups` groups; sum (row, column) of a group is output group * group_step + row
 * * row_step + column. aligned: columns of the views are contiguous by eight. */
struct tile_sizes {
    int64_t m, n, k, groups, row_step, group_step;
    bool aligned;
};

/* along_k_*: whether columns of the view run along k; otherwise rows do. fitting_tile: the shape for aligned operands
 * that fill it; otherwise tiles are small. */
template <bool transposed_a, bool transposed_b> struct tiles_matmul {
    __host__ __device__ static const struct fl_matrices &of(const struct fl_product &p) { return p.matrices; }
    static constexpr bool along_k_a = !transposed_a, along_k_b = transposed_b;
    using fitting_tile = large_tile;
    static struct tile_sizes sizes(const struct fl_matrices &g) {
        const int64_t inner_a = transposed_a ? g.m : g.k, inner_b = transposed_b ? g.k : g.n;
        return {g.m, g.n, g.k, 1, g.n, 0, inner_a % 8 == 0 && inner_b % 8 == 0};
    }
    typedef struct matrix_view view_a, view_b;
    __device__ static view_a a(const struct fl_matrices &g, const fl_element *data, int) {
        const int m = (int)g.m, k = (int)g.k;
        return transposed_a ? view_a{data, m, k, m} : view_a{data, k, m, k};
    }
    __device__ static view_b b(const struct fl_matrices &g, const fl_element *data, int) {
        const int n = (int)g.n, k = (int)g.k;
        return transposed_b ? view_b{data, k, n, k} : view_b{data, n, k, n};
    }
};

__device__ static inline struct window_view tiles_windows(const struct fl_windows &g, const fl_element *image,
                                                          int group) {
    const int depth = (int)g.c / g.groups;
    return {image + (int64_t)group * depth,
            (int)g.h,
            (int)g.w,
            (int)g.c,
            (int)g.p,
            (int)g.q,
            (int)g.s,
            depth,
            tiles_steps(g),
            (int)(g.batch * g.p * g.q),
            (int)(g.r * g.s) * depth};
}

struct tiles_forward {
    __host__ __device__ static const struct fl_windows &of(const struct fl_product &p) { return p.windows; }
    static constexpr bool along_k_a = true, along_k_b = true;
    using fitting_tile = narrow_tile;
    static struct tile_sizes sizes(const struct fl_windows &g) {
        const int64_t depth = g.c / g.groups, per_group = g.filters / g.groups;
        return {g.batch * g.p * g.q, per_group, g.r * g.s * depth, g.groups, g.filters, per_group, depth % 8 == 0};
    }
    typedef struct window_view view_a;
    typedef struct matrix_view view_b;
    __device__ static view_a a(const struct fl_windows &g, const fl_element *image, int group) {
        return tiles_windows(g, image, group);
    }
    __device__ static view_b b(const struct fl_windows &g, const fl_element *filter, int group) {
        const int size = (int)(g.r * g.s) * ((int)g.c / g.groups), per_group = (int)g.filters / g.groups;
        return {filter + (int64_t)group * per_group * size, size, per_group, size};
    }
};

struct tiles_input_gradient {
    __host__ __device__ static const struct fl_windows &of(const struct fl_product &p) { return p.windows; }
    static constexpr bool along_k_a = true, along_k_b = false;
    using fitting_tile = narrow_tile;
    static struct tile_sizes sizes(const struct fl_windows &g) {
        const int64_t depth = g.c / g.groups, per_group = g.filters / g.groups;
        return {g.batch * g.h * g.w,
                depth,
                g.r * g.s * per_group,
                g.groups,
                g.c,
                depth,
                depth % 8 == 0 && per_group % 8 == 0};
    }
    typedef struct receiver_view view_a;
    typedef struct filter_view view_b;
    __device__ static view_a a(const struct fl_windows &g, const fl_element *dy, int group) {
        const int per_group = (int)g.filters / g.groups;
        return {dy + (int64_t)group * per_group,
                (int)g.h,
                (int)g.w,
                (int)g.p,
                (int)g.q,
                (int)g.filters,
                (int)g.s,
                per_group,
                tiles_steps(g),
                (int)(g.batch * g.h * g.w),
                (int)(g.r * g.s) * per_group};
    }
    __device__ static view_b b(const struct fl_windows &g, const fl_element *filter, int group) {
        const int depth = (int)g.c / g.groups, per_group = (int)g.filters / g.groups, positions = (int)(g.r * g.s);
        return {filter + (int64_t)group * per_group * positions * depth, per_group, positions, depth,
                positions * per_group};
    }
};

struct tiles_weight_gradient {
    __host__ __device__ static const struct fl_windows &of(const struct fl_product &p) { return p.windows; }
    static constexpr bool along_k_a = false, along_k_b = false;
    using fitting_tile = small_tile;
    static struct tile_sizes sizes(const struct fl_windows &g) {
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
    __device__ static view_a a(const struct fl_windows &g, const fl_element *dy, int group) {
        const int per_group = (int)g.filters / g.groups;
        return {dy + (int64_t)group * per_group, g.filters, (int)(g.batch * g.p * g.q), per_group};
    }
    __device__ static view_b b(const struct fl_windows &g, const fl_element *image, int group) {
        return tiles_windows(g, image, group);
    }
};

/* --- tiles in shared memory --------------------------------------------------------------------------------------- */

/* Rows of a tile have `pieces` pieces of 16 bytes. The position of a piece is its number xor this mask of its row, the
 * bits of the row reversed, so that pieces of one number in eight rows, of two in four and of four in two are in
 * different groups of banks. */
template <int pieces> __device__ static inline uint32_t tile_mask(int row) {
    static_assert(pieces % 4 == 0, "the mask stays within a row");
    return (uint32_t)(pieces % 8 == 0 ? (row & 1) << 2 | (row & 2) | (row >> 2 & 1) : (row & 2) | (row >> 2 & 1));
}
/* The place of the piece `by` further than that at `place`, whose number has zeros for the bits of `by`. */
template <int pieces> __device__ static __forceinline__ uint32_t tile_along(uint32_t place, int by) {
    constexpr int masked = pieces % 8 == 0 ? 8 : 4;
    return (place ^ (uint32_t)(by % masked * 16)) + (uint32_t)(by / masked * masked * 16);
}

/* The copies of one thread that bring the tiles of an operand to shared memory. */
template <class View, bool along_k, int extent, int threads, bool aligned> struct tile_loader {
    static constexpr int rows = along_k ? extent : TILE_K, pieces = (along_k ? TILE_K : extent) / 8;
    static constexpr int count = rows * pieces / threads;             /* pieces of a thread */
    static constexpr int columns = along_k ? pieces : pieces / count; /* threads along a row */
    static constexpr int row_step = threads / columns,
                         step = columns * 8; /* to the next piece of the thread: rows, or columns */
    static_assert(count * threads == rows * pieces && pieces % columns == 0 && threads % columns == 0, "pieces");
    static_assert(!along_k || row_step % 8 == 0, "one mask a thread");

    View view;
    typename View::row of_row[along_k ? count : 1];
    typename View::column of_column[along_k ? 1 : count];
    int moving; /* along k */
    int first;  /* first column, if the tile moves along rows */
    uint32_t place;

    __device__ tile_loader(const View &view_, int across, int k) : view(view_) {
        const int row = (int)threadIdx.x / columns, piece = (int)threadIdx.x % columns;
        place = (uint32_t)(row * pieces * 16) + ((uint32_t)piece ^ tile_mask<pieces>(row)) * 16;
        moving = k + (along_k ? piece * 8 : row);
        first = across + piece * 8;
        if (along_k) {
#pragma unroll
            for (int i = 0; i < count; i++)
                of_row[i] = view.place_row(across + row + i * row_step);
        } else if (aligned) {
#pragma unroll
            for (int i = 0; i < count; i++)
                of_column[i] = view.place_column(first + i * step);
        }
    }
    __device__ unsigned char *target(unsigned char *tile, int i) const {
        return tile + (along_k ? place + i * row_step * pieces * 16 : tile_along<pieces>(place, i * columns));
    }
    __device__ void load(unsigned char *tile) {
        if (!along_k)
            of_row[0] = view.place_row(moving);
        else if (aligned)
            of_column[0] = view.place_column(moving);
        if (aligned) {
#pragma unroll
            for (int i = 0; i < count; i++) {
                const fl_element *from = view.at(of_row[along_k ? i : 0], of_column[along_k ? 0 : i]);
                gpu_cp_async16(target(tile, i), from ? from : view.data, from ? 16 : 0);
            }
        } else {
            load_elements(tile);
        }
        moving += TILE_K;
    }
    /* Loads element by element, if neighbours need not be contiguous: two at a time, for all pieces of the thread. */
    __device__ void load_elements(unsigned char *tile) {
#pragma unroll 1
        for (int j = 0; j < 8; j += 2) {
            uint32_t pair[count];
#pragma unroll
            for (int second = 0; second < 2; second++) {
                typename View::column column = {};
                if (along_k)
                    column = view.place_column(moving + j + second);
#pragma unroll
                for (int i = 0; i < count; i++) {
                    if (!along_k)
                        column = view.place_column(first + i * step + j + second);
                    const fl_element *from = view.at(of_row[along_k ? i : 0], column);
                    const uint32_t x = from ? (uint16_t)*from : 0;
                    pair[i] = second ? pair[i] | x << 16 : x;
                }
            }
#pragma unroll
            for (int i = 0; i < count; i++)
                *reinterpret_cast<uint32_t *>(target(tile, i) + 2 * j) = pair[i];
        }
    }
};

/* --- products ----------------------------------------------------------------------------------------------------- */

/* x: pairs of k 0 to 7; y: pairs of k 8 to 15. */
__device__ static __forceinline__ uint32_t low_bytes(uint32_t x, uint32_t y) {
    return gpu_byte_perm(x, y, 0x6420);
}
__device__ static __forceinline__ uint32_t high_bytes(uint32_t x, uint32_t y) {
    return gpu_byte_perm(x, y, 0x7531);
}

/* The fragments of one warp: their positions in a tile, and the sums. */
template <class Tile, bool along_k_a, bool along_k_b> struct tile_sums {
    static constexpr int rows = Tile::rows, columns = Tile::columns;
    static constexpr int pieces_a = along_k_a ? TILE_K / 8 : Tile::m / 8,
                         pieces_b = along_k_b ? TILE_K / 8 : Tile::n / 8;
    static constexpr uint32_t row_a = pieces_a * 16, row_b = pieces_b * 16; /* bytes */

    int warp_m, warp_n, lane;
    uint32_t at_a, at_b; /* of the warp's first fragments; others differ in bits of the address, or by a constant */
    int32_t high[rows][columns][4], middle[rows][columns][4], low[rows][columns][4];

    __device__ tile_sums() {
        lane = (int)threadIdx.x % 32;
        warp_m = (int)threadIdx.x / 32 / Tile::warps_n;
        warp_n = (int)threadIdx.x / 32 % Tile::warps_n;
        const int r = lane & 7;
        if (along_k_a)
            at_a =
                (uint32_t)(warp_m * 32 + (lane & 15)) * row_a + ((uint32_t)(lane >> 4) ^ tile_mask<pieces_a>(r)) * 16;
        else
            at_a = (uint32_t)(r + (lane >> 4) * 8) * row_a +
                   ((uint32_t)(warp_m * 4 + (lane >> 3 & 1)) ^ tile_mask<pieces_a>(r)) * 16;
        if (along_k_b)
            at_b = (uint32_t)(warp_n * 8 + r) * row_b + ((uint32_t)(lane >> 3) ^ tile_mask<pieces_b>(r)) * 16;
        else
            at_b = (uint32_t)lane * row_b + ((uint32_t)warp_n ^ tile_mask<pieces_b>(r)) * 16;
        at_b += Tile::bytes_a;
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    high[i][n][j] = middle[i][n][j] = low[i][n][j] = 0;
    }
    /* Loads 16 rows of A by 16 steps of k. */
    __device__ __forceinline__ void load_a(uint32_t (&r)[4], const unsigned char *stage, int i, int k) const {
        if (along_k_a)
            gpu_ldmatrix_x4(r, stage + tile_along<pieces_a>(at_a, k / 8) + i * 16 * row_a);
        else
            gpu_ldmatrix_x4_trans(r, stage + tile_along<pieces_a>(at_a, i * 2) + k * row_a);
    }
    /* Loads 32 steps of k by 8 columns of B. */
    __device__ __forceinline__ void load_b(uint32_t (&r)[4], const unsigned char *stage, int n, int k) const {
        if (along_k_b)
            gpu_ldmatrix_x4(r, stage + tile_along<pieces_b>(at_b, k / 8) + n * 16 * row_b);
        else
            gpu_ldmatrix_x4_trans(r, stage + tile_along<pieces_b>(at_b, n * 2) + k * row_b);
    }
    __device__ __forceinline__ void add(const unsigned char *stage) {
#pragma unroll
        for (int k = 0; k < TILE_K; k += 32) {
            uint32_t a_low[rows][4], a_high[rows][4];
#pragma unroll
            for (int i = 0; i < rows; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t r[4];
                    load_a(r, stage, i, k + half * 16);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        a_low[i][2 * half + j] = low_bytes(r[j], r[j + 2]);
                        a_high[i][2 * half + j] = high_bytes(r[j], r[j + 2]);
                    }
                }
#pragma unroll
            for (int n = 0; n < columns; n++) {
                uint32_t r[4];
                load_b(r, stage, n, k);
                const uint32_t b_low[2] = {low_bytes(r[0], r[1]), low_bytes(r[2], r[3])};
                const uint32_t b_high[2] = {high_bytes(r[0], r[1]), high_bytes(r[2], r[3])};
#pragma unroll
                for (int i = 0; i < rows; i++) {
                    gpu_mma_s8s8(high[i][n], a_high[i], b_high);
                    gpu_mma_s8u8(middle[i][n], a_high[i], b_low);
                    gpu_mma_u8u8(low[i][n], a_low[i], b_low);
                    gpu_mma_u8s8(middle[i][n], a_low[i], b_high);
                }
            }
        }
    }
    /* A lane has two neighbours of a row, and two eight rows further down, of fragment i, n. */
    __device__ __forceinline__ int row_of(int i, int lower) const {
        return warp_m * 32 + i * 16 + lower * 8 + lane / 4;
    }
    __device__ __forceinline__ int column_of(int n) const {
        return (n * 2 + warp_n) * 8 + lane % 4 * 2;
    }
    __device__ __forceinline__ int64_t sum(int i, int n, int j) const {
        return (int64_t)high[i][n][j] * 65536 + ((int64_t)middle[i][n][j] * 256 + low[i][n][j]);
    }
    /* Stores the sums in shared memory, rows Tile::pitch apart. */
    __device__ __forceinline__ void store(longlong2 *to) const {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++)
                    to[(row_of(i, lower) * Tile::pitch + column_of(n)) / 2] =
                        make_longlong2(sum(i, n, 2 * lower), sum(i, n, 2 * lower + 1));
    }
    /* Adds to the sums of all parts; the tile has rows_left rows and columns_left columns of them. */
    __device__ __forceinline__ void add_to(unsigned long long *to, int64_t row_step, int rows_left,
                                           int columns_left) const {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int row = row_of(i, j / 2), column = column_of(n) + j % 2;
                    if (row < rows_left && column < columns_left)
                        atomicAdd(to + row * row_step + column, (unsigned long long)sum(i, n, j));
                }
    }
};

/* --- kernels ------------------------------------------------------------------------------------------------------ */

struct tile_work {
    int m, n, k, k_part;
    unsigned tiles_n;
    int64_t row_step, group_step;
    unsigned long long *sums; /* of several parts, one for each output; NULL: there is one part */
};

/* Stores the results of one tile from its sums in shared memory, two neighbours in each thread. */
template <class Tile>
__device__ static inline void end_tile(const struct gpu_now &now, const struct fl_args &args, struct product_end *end,
                                       const longlong2 *sums, int rows, int columns, int64_t first, int64_t row_step) {
    const struct fl_epilogue &how = args.p.product.epilogue;
    const fl_element *bias = (const fl_element *)how.bias.data, *residual = (const fl_element *)how.residual.data;
    const bool pairs = (row_step | first) % 2 == 0; /* of outputs, as 32 bits */
    const bool one_a_column = bias && how.bias.count == row_step;
    if (one_a_column)
        bias += first % row_step;
#pragma unroll 1
    for (int piece = (int)threadIdx.x; piece < Tile::m * Tile::n / 2; piece += Tile::threads) {
        const int row = piece / (Tile::n / 2), column = piece % (Tile::n / 2) * 2;
        if (row >= rows || column >= columns)
            continue;
        const longlong2 sum = sums[(row * Tile::pitch + column) / 2];
        const int64_t i = first + row * row_step + column;
        const bool both = column + 1 < columns;
        fl_element result[2];
#pragma unroll
        for (int j = 0; j < 2; j++)
            if (j == 0 || both)
                result[j] = product_element(now, end, how.relu, i + j, j ? sum.y : sum.x,
                                            bias ? bias[one_a_column ? column + j : (i + j) % how.bias.count] : 0,
                                            residual ? residual[i + j] : 0);
        if (!now.out)
            continue;
        fl_element *to = (fl_element *)now.out + i;
        if (pairs && both) {
            *reinterpret_cast<uint32_t *>(to) = (uint16_t)result[0] | (uint32_t)(uint16_t)result[1] << 16;
        } else {
            to[0] = result[0];
            if (both)
                to[1] = result[1];
        }
    }
}

/* Blocks: tiles; parts; groups. */
template <class Tile, class Job, bool aligned>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    product_tiles(const struct gpu_call call, const struct tile_work work) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    GPU_DYNAMIC_SHARED(unsigned char, tiles);
    const struct fl_args &args = call.args;
    const int m0 = (int)(blockIdx.x / work.tiles_n) * Tile::m, n0 = (int)(blockIdx.x % work.tiles_n) * Tile::n;
    const int k0 = (int)blockIdx.y * work.k_part, group = (int)blockIdx.z;
    const int steps = ((work.k - k0 < work.k_part ? work.k - k0 : work.k_part) + TILE_K - 1) / TILE_K;
    tile_loader<typename Job::view_a, Job::along_k_a, Tile::m, Tile::threads, aligned> a(
        Job::a(Job::of(args.p.product), (const fl_element *)args.in[0].data, group), m0, k0);
    tile_loader<typename Job::view_b, Job::along_k_b, Tile::n, Tile::threads, aligned> b(
        Job::b(Job::of(args.p.product), (const fl_element *)args.in[1].data, group), n0, k0);
    tile_sums<Tile, Job::along_k_a, Job::along_k_b> sums;

    for (int s = 0; s < Tile::stages - 1; s++) {
        if (s < steps) {
            a.load(tiles + s * Tile::stage_bytes);
            b.load(tiles + s * Tile::stage_bytes + Tile::bytes_a);
        }
        gpu_cp_commit();
    }
    uint32_t now_at = 0, next_at = (Tile::stages - 1) * Tile::stage_bytes;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        gpu_cp_wait<Tile::stages - 2>();
        __syncthreads(); /* the tiles of this step have arrived, and those of the last step are no longer read */
        if (step + Tile::stages - 1 < steps) {
            a.load(tiles + next_at);
            b.load(tiles + next_at + Tile::bytes_a);
        }
        gpu_cp_commit();
        sums.add(tiles + now_at);
        now_at = now_at + Tile::stage_bytes == Tile::tile_bytes ? 0 : now_at + Tile::stage_bytes;
        next_at = next_at + Tile::stage_bytes == Tile::tile_bytes ? 0 : next_at + Tile::stage_bytes;
    }
    __syncthreads(); /* sums overwrite the tiles; all copies have arrived */

    const int rows = work.m - m0, columns = work.n - n0;
    const int64_t first = group * work.group_step + m0 * work.row_step + n0;
    if (work.sums) {
        sums.add_to(work.sums + first, work.row_step, rows, columns);
        return;
    }
    sums.store(reinterpret_cast<longlong2 *>(tiles));
    __syncthreads();
    struct product_end end;
    end.begin(now, args);
    end_tile<Tile>(now, args, &end, reinterpret_cast<const longlong2 *>(tiles), rows, columns, first, work.row_step);
    end.report(call.control);
}

/* Stores the results from the sums of all parts. */
__global__ void __launch_bounds__(GPU_THREADS, 2)
    product_parts(const struct gpu_call call, const unsigned long long *sums) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    struct product_end end;
    end.begin(now, call.args);
    for (int64_t i = gpu_first(); i < call.args.out.count; i += gpu_stride()) {
        struct product_sum sum;
        sum.sum = (int64_t)sums[i];
        product_store(now, call.args, &end, i, sum);
    }
    end.report(call.control);
}

/* --- the host's side ---------------------------------------------------------------------------------------------- */

struct tile_plan {
    struct tile_sizes sizes;
    bool pays; /* otherwise one thread for each output */
    bool fits; /* the fitting_tile of the operation is used */
    int parts, k_part;
};

static int64_t tiles_over(int64_t size, int64_t tile) {
    return (size + tile - 1) / tile;
}

/* The number of tiles of one group. */
template <class Tile> static int64_t tiles_of(const struct tile_sizes &of) {
    return tiles_over(of.m, Tile::m) * tiles_over(of.n, Tile::n);
}

/* Whether kernels can hold all sizes and positions in an int. */
static bool tiles_can_index(const struct fl_windows &g, const struct tile_sizes &of) {
    const int64_t most = NOWHERE / 2, positions = g.r * g.s;
    for (int way = 0; way < 2; way++) {
        const int64_t pixels = way ? g.w : g.h, out = way ? g.q : g.p, filter = way ? g.s : g.r;
        if ((pixels + g.padding[way]) * g.stride[way] >= most || out * g.stride[way] >= most ||
            filter * g.dilation[way] >= most)
            return false;
    }
    return of.m < most && of.n < most && of.k < most && of.groups <= 65535 && g.batch * g.h * g.w < most &&
           g.batch * g.p * g.q < most && positions * g.c < most && positions * g.filters < most;
}

/* Plans from the geometry only: as many parts as give every multiprocessor of an H100 one or two blocks, if each has
 * enough work. */
template <class Job> static struct tile_plan plan_tiles(const struct fl_product &product) {
    using tile = typename Job::fitting_tile;
    const int64_t processors = 132, steps_least = 8;
    struct tile_plan plan = {};
    const struct tile_sizes of = plan.sizes = Job::sizes(Job::of(product));
    if (!of.m || !of.n || !of.k || !tiles_can_index(product.windows, of))
        return plan;
    const int64_t padded = tiles_of<small_tile>(of) * small_tile::m * small_tile::n * tiles_over(of.k, TILE_K) * TILE_K;
    plan.pays = of.k >= 2048 || of.m * of.n * of.k >= padded / 32;
    const int64_t own = tiles_of<tile>(of) * of.groups;
    plan.fits = of.aligned && (tile::n > small_tile::n ? of.n > small_tile::n && own >= processors : of.n <= tile::n);
    const int64_t tiles = plan.fits ? own : tiles_of<small_tile>(of) * of.groups;
    const int64_t least = tiles_over(of.k, PART_MOST), most = of.k / (steps_least * TILE_K);
    int64_t parts = tiles < processors ? 2 * processors / tiles : 1;
    parts = parts > most ? most : parts;
    parts = parts < least ? least : parts;
    plan.k_part = (int)(tiles_over(tiles_over(of.k, parts), TILE_K) * TILE_K);
    plan.parts = (int)tiles_over(of.k, plan.k_part);
    return plan;
}

template <class Job> static size_t need_tiles(const struct fl_args *args) {
    const struct tile_plan plan = plan_tiles<Job>(args->p.product);
    return plan.pays && plan.parts > 1 ? (size_t)(plan.sizes.m * plan.sizes.n * plan.sizes.groups) * 8 : 0;
}

template <class Tile, class Job, bool aligned>
static cudaError_t launch_tiles(const struct gpu_call *call, const struct tile_plan &plan, unsigned long long *sums,
                                cudaStream_t stream) {
    const struct tile_sizes &of = plan.sizes;
    const int64_t tiles_n = tiles_over(of.n, Tile::n), tiles = tiles_of<Tile>(of);
    const struct tile_work work = {(int)of.m,         (int)of.n,   (int)of.k,     plan.k_part,
                                   (unsigned)tiles_n, of.row_step, of.group_step, sums};
    if (Tile::shared_bytes > 48 << 10) {
        const cudaError_t error = cudaFuncSetAttribute(product_tiles<Tile, Job, aligned>,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::shared_bytes);
        if (error != cudaSuccess)
            return error;
    }
    return gpu_launch(product_tiles<Tile, Job, aligned>,
                      dim3((unsigned)tiles, (unsigned)plan.parts, (unsigned)of.groups), Tile::threads,
                      Tile::shared_bytes, stream, *call, work);
}

/* Whether a block of the device has enough shared memory for a tile: 99 KiB on most GPUs, 163 or 227 on those of data
 * centres. */
template <class Tile> static bool has_room() {
    int device = 0, most = 0;
    return Tile::shared_bytes <= 99 << 10 ||
           (cudaGetDevice(&device) == cudaSuccess &&
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
            most >= Tile::shared_bytes);
}

/* sums: of several parts; NULL if there is one part. */
template <class Job>
static cudaError_t multiply_tiles(const struct gpu_call *call, const struct tile_plan &plan, unsigned long long *sums,
                                  size_t bytes, cudaStream_t stream) {
    const uintptr_t places = (uintptr_t)call->args.in[0].data | (uintptr_t)call->args.in[1].data;
    const bool aligned = plan.sizes.aligned && places % 16 == 0;
    if (sums) {
        const cudaError_t error = cudaMemsetAsync(sums, 0, bytes, stream);
        if (error != cudaSuccess)
            return error;
    }
    if (aligned && plan.fits && has_room<typename Job::fitting_tile>())
        return launch_tiles<typename Job::fitting_tile, Job, true>(call, plan, sums, stream);
    return aligned ? launch_tiles<small_tile, Job, true>(call, plan, sums, stream)
                   : launch_tiles<small_tile, Job, false>(call, plan, sums, stream);
}

template <class Job, class Product> static cudaError_t run_tiles(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_args &args = call->args;
    const struct tile_plan plan = plan_tiles<Job>(args.p.product);
    const size_t bytes = need_tiles<Job>(&args);
    if (!plan.pays || (bytes && (!args.workspace || args.workspace_bytes < bytes)))
        return run_product<Product>(call, stream);
    unsigned long long *sums = bytes ? (unsigned long long *)args.workspace : NULL;
    if (!sums || !call->attempt) { /* the second attempt uses the sums of the first */
        const cudaError_t error = multiply_tiles<Job>(call, plan, sums, bytes, stream);
        if (error != cudaSuccess || !sums)
            return error;
    }
    return gpu_launch(product_parts, gpu_blocks(args.out.count), GPU_THREADS, 0, stream, *call, sums);
}

static void add_tiles(struct gpu_kernels *to) {
#define ADD_TILES(OP, JOB, PRODUCT)                                                                                    \
    to->op[OP] = run_tiles<JOB, PRODUCT>;                                                                              \
    to->need[OP] = need_tiles<JOB>
    using nn = tiles_matmul<false, false>;
    using nt = tiles_matmul<false, true>;
    using tn = tiles_matmul<true, false>;
    using product_nn = product_matmul<false, false>;
    using product_nt = product_matmul<false, true>;
    using product_tn = product_matmul<true, false>;
    ADD_TILES(FL_OP_MATMUL, nn, product_nn);
    ADD_TILES(FL_OP_MATMUL_NT, nt, product_nt);
    ADD_TILES(FL_OP_MATMUL_TN, tn, product_tn);
    ADD_TILES(FL_OP_CONV2D, tiles_forward, product_forward);
    ADD_TILES(FL_OP_CONV2D_INPUT_GRAD, tiles_input_gradient, product_input_gradient);
    ADD_TILES(FL_OP_CONV2D_WEIGHT_GRAD, tiles_weight_gradient, product_weight_gradient);
#undef ADD_TILES
}

} // namespace
#endif

#endif
