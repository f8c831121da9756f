/* gpu_chains.h - matmul and convolutions of floats by tiles, in the order of ref_matmul.c: each output keeps its own
 * chain of fused multiply-adds.
 *
 * A thread has per_m x per_n outputs. Tiles lie in shared memory as binary32: those whose rows run along k with rows of
 * 64 bytes, masked, of which a thread reads four steps of k at a time; others with a row for each step of k, of which
 * it reads four neighbours. Eight lanes read either eight pieces of 16 bytes in different banks or the same ones.
 * After FL_K_CHUNK steps of k a chain is added to its total, in shared memory. Outputs too few for the multiprocessors
 * are split into the chains, which product_parts adds in order.
 *
 * In an input gradient with a stride, filter positions that reach other pixels add products of zeros and filters, which
 * matter where a filter is no number, and where a sum has underflowed to -0. They count in chains. All of a position,
 * or of its part in a chain, are one addition of a hole: -0 if all filters there have that sign, 0, or NaN.
 *
 * Class fast has the same holes (find_holes, holes_of), of which tensor cores add NaN, and 0 behind k, at the end.
 *
 * Expects: the codec of a float format (gpu_element.h). Gives: plan_chains, chain_shapes, end_tile, find_holes,
 * holes_of. */
#ifndef FL_GPU_CHAINS_H
#define FL_GPU_CHAINS_H

#include "gpu/gpu_tiles.h"

#ifndef FL_SHARED_EXPONENT
namespace {

/* --- tiles in shared memory --------------------------------------------------------------------------------------- */

/* Eight neighbours are two pieces of binary32: copied as they are, or decoded after the products of a step. */
struct cells_of_floats {
    static constexpr int pieces = 2;
    static constexpr bool masked_across = false;
    static constexpr bool copies = sizeof(fl_element) == 4;
    struct held {
        uint4 eight; /* of 16 bits */
    };
    __device__ static void begin(held *h, unsigned char *tile, uint32_t at, const fl_element *from, bool inside) {
        if constexpr (copies) {
            gpu_cp_async16(tile + at, from, inside ? 16 : 0);
            gpu_cp_async16(tile + (at ^ 16), from + (inside ? 4 : 0), inside ? 16 : 0);
        } else {
            h->eight = inside ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
        }
    }
    __device__ static void finish(const held *h, unsigned char *tile, uint32_t at) {
        if constexpr (!copies) {
            *reinterpret_cast<float4 *>(tile + at) = decoded(h->eight.x, h->eight.y);
            *reinterpret_cast<float4 *>(tile + (at ^ 16)) = decoded(h->eight.z, h->eight.w);
        }
    }
    __device__ static float decoded(fl_element x) {
#ifdef FL_BINARY16
        return gpu_float_of_half(x);
#else
        return FL_DECODE(x);
#endif
    }
    __device__ static float4 decoded(uint32_t x, uint32_t y) {
        return make_float4(decoded((fl_element)x), decoded((fl_element)(x >> 16)), decoded((fl_element)y),
                           decoded((fl_element)(y >> 16)));
    }
    __device__ static void pair(unsigned char *tile, uint32_t at, int j, fl_element x, fl_element y) {
        *reinterpret_cast<float2 *>(tile + (at ^ (uint32_t)(j * 4))) = make_float2(decoded(x), decoded(y));
    }
};

/* --- products ----------------------------------------------------------------------------------------------------- */

/* `per` rows or columns of a thread's outputs, in an operand of which a tile has `extent`, `lanes` threads beside each
 * other. */
template <bool along_k, int extent, int depth, int per, int lanes> struct chain_operand {
    uint32_t at;
    int first; /* of the first output */

    __device__ chain_operand(int warp, int lane) {
        const int base = warp * lanes * per;
        first = base + (along_k ? lane : lane * 4);
        at = along_k ? (uint32_t)first * (depth * 4) + tile_mask<depth / 4>(first) * 16 : (uint32_t)first * 4;
    }
    /* The number of output i in the tile. */
    __device__ __forceinline__ int number(int i) const {
        return first + (along_k ? i * lanes : i % 4 + i / 4 * lanes * 4);
    }
    /* Reads steps k to k + 3 of outputs j to j + 3. */
    __device__ __forceinline__ void read(float (&x)[4][4], const unsigned char *tile, int k, int j) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (along_k) { /* output j + i */
                const uint32_t piece = (uint32_t)(k / 4) ^ tile_mask<depth / 4>((j + i) * lanes);
                const float4 v =
                    *reinterpret_cast<const float4 *>(tile + (at ^ (piece * 16)) + (j + i) * lanes * (depth * 4));
                x[0][i] = v.x, x[1][i] = v.y, x[2][i] = v.z, x[3][i] = v.w;
            } else { /* step k + i */
                const float4 v = *reinterpret_cast<const float4 *>(tile + at + (k + i) * extent * 4 + j * lanes * 4);
                x[i][0] = v.x, x[i][1] = v.y, x[i][2] = v.z, x[i][3] = v.w;
            }
        }
    }
};

template <class Tile, class Rows>
__device__ static void end_tile(const struct gpu_now &now, const struct fl_args &args, struct product_end *end,
                                const unsigned char *tiles, const Rows &numbers, int rows, int columns, int64_t first,
                                int64_t row_step) {
    const struct fl_epilogue &how = args.p.product.epilogue;
    const bool one_a_column = how.bias.data && how.bias.count == row_step;
    const int64_t bias = one_a_column ? first % row_step : 0;
#pragma unroll 1
    for (int place = (int)threadIdx.x; place < Tile::m * Tile::n; place += Tile::threads) {
        const int row = place / Tile::n, column = place % Tile::n;
        if (row >= rows || column >= columns)
            continue;
        const int64_t i = first + numbers.at(row) * row_step + column;
        product_finish(now, how, end, i, reinterpret_cast<const float *>(tiles)[row * Tile::pitch + column],
                       one_a_column    ? bias + column
                       : how.bias.data ? i % how.bias.count
                                       : 0);
    }
}

template <class Tile, bool along_k_a, bool along_k_b> struct chain_sums {
    static constexpr int per_m = Tile::per_m, per_n = Tile::per_n;
    static_assert(FL_K_CHUNK % Tile::depth == 0, "chains end with tiles");

    chain_operand<along_k_a, Tile::m, Tile::depth, per_m, Tile::lanes_m> a;
    chain_operand<along_k_b, Tile::n, Tile::depth, per_n, Tile::lanes_n> b;
    float4 *totals;      /* of the thread's outputs by fours, Tile::threads apart */
    bool has_work, more; /* more: there was a chain before this one */
    float chain[per_m][per_n];

    __device__ chain_sums(unsigned char *tiles, int rows, int columns)
        : a((int)threadIdx.x / 32 / Tile::warps_n, (int)threadIdx.x % 32 / Tile::lanes_n),
          b((int)threadIdx.x / 32 % Tile::warps_n, (int)threadIdx.x % Tile::lanes_n), more(false) {
        totals = reinterpret_cast<float4 *>(tiles + Tile::tile_bytes) + threadIdx.x;
        has_work = (int)threadIdx.x / 32 / Tile::warps_n * Tile::lanes_m * per_m < rows &&
                   (int)threadIdx.x / 32 % Tile::warps_n * Tile::lanes_n * per_n < columns;
        clear();
    }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < per_m; i++)
#pragma unroll
            for (int j = 0; j < per_n; j++)
                chain[i][j] = 0;
    }
    /* The sums so far, in the place of the chain. */
    __device__ __forceinline__ void add_totals() {
#pragma unroll
        for (int i = 0; i < per_m; i++)
#pragma unroll
            for (int j = 0; j < per_n; j += 4) {
                const float4 t = totals[(i * per_n + j) / 4 * Tile::threads];
                chain[i][j] = __fadd_rn(t.x, chain[i][j]);
                chain[i][j + 1] = __fadd_rn(t.y, chain[i][j + 1]);
                chain[i][j + 2] = __fadd_rn(t.z, chain[i][j + 2]);
                chain[i][j + 3] = __fadd_rn(t.w, chain[i][j + 3]);
            }
    }
    __device__ __forceinline__ void end_chain() {
        if (more)
            add_totals();
        more = true;
#pragma unroll
        for (int i = 0; i < per_m; i++)
#pragma unroll
            for (int j = 0; j < per_n; j += 4)
                totals[(i * per_n + j) / 4 * Tile::threads] =
                    make_float4(chain[i][j], chain[i][j + 1], chain[i][j + 2], chain[i][j + 3]);
        clear();
    }
    /* left: steps of k from the first of this tile on. Those beyond the last are left out: to add a zero would make a
     * negative zero positive. */
    template <bool whole> __device__ __forceinline__ void multiply(const unsigned char *stage, int left) {
#pragma unroll(whole && !(along_k_a && along_k_b) ? 2 : 1)
        for (int k = 0; k < Tile::depth; k += 4) {
            if (!whole && k >= left)
                break;
            float x[per_m / 4][4][4], y[4][4];
#pragma unroll
            for (int i = 0; i < per_m; i += 4)
                a.read(x[i / 4], stage, k, i);
#pragma unroll
            for (int j = 0; j < per_n; j += 4) {
                b.read(y, stage + Tile::bytes_a, k, j);
#pragma unroll
                for (int l = 0; l < 4; l++)
                    if (whole || k + l < left)
#pragma unroll
                        for (int i = 0; i < per_m * 4; i++)
                            chain[i / 4][j + i % 4] =
                                __fmaf_rn(x[i / 16][l][i / 4 % 4], y[l][i % 4], chain[i / 4][j + i % 4]);
            }
        }
    }
    /* The holes of steps `from` to `to` of the whole product; their number is position + chain. */
    __device__ __forceinline__ void pass(const struct tile_holes &holes, int from, int to, int per_group) {
        if (!has_work || from == to)
            return;
        for (int k = from, position = from / per_group, end; k < to; k = end) {
            if (k && k % FL_K_CHUNK == 0)
                end_chain();
#pragma unroll
            for (int j = 0; j < per_n; j++) {
                const float hole = b.number(j) < holes.columns ? holes.of(position, k / FL_K_CHUNK, b.number(j)) : 0;
#pragma unroll
                for (int i = 0; i < per_m; i++)
                    chain[i][j] = __fadd_rn(chain[i][j], hole);
            }
            const int of_chain = (k / FL_K_CHUNK + 1) * FL_K_CHUNK, of_position = (position + 1) * per_group;
            end = of_chain < of_position ? of_chain : of_position;
            position += end == of_position;
        }
    }
    /* k: the step of the whole product that the tile begins with. */
    __device__ __forceinline__ void add(const unsigned char *stage, int k, int left) {
        if (!has_work)
            return;
        if (k && k % FL_K_CHUNK == 0)
            end_chain();
        if (left >= Tile::depth)
            multiply<true>(stage, left);
        else
            multiply<false>(stage, left);
    }
    /* Stores the chains of one part. */
    __device__ __forceinline__ void leave(float *to, int64_t row_step, int rows, int columns) const {
#pragma unroll
        for (int i = 0; i < per_m; i++)
#pragma unroll
            for (int j = 0; j < per_n; j++)
                if (a.number(i) < rows && b.number(j) < columns)
                    to[a.number(i) * row_step + b.number(j)] = chain[i][j];
    }
    /* Stores the sums in shared memory, rows Tile::pitch apart. */
    __device__ __forceinline__ void store(unsigned char *tiles) {
        if (more)
            add_totals();
#pragma unroll
        for (int i = 0; i < per_m; i++)
#pragma unroll
            for (int j = 0; j < per_n; j++)
                reinterpret_cast<float *>(tiles)[a.number(i) * Tile::pitch + b.number(j)] = chain[i][j];
    }
};

/* Warps beside each other, lanes of a warp, outputs of a thread. */
template <int warps_m_, int warps_n_, int lanes_n_, int per_m_, int per_n_, int blocks_> struct chain_shape {
    static constexpr bool has_chains = true;
    static constexpr int blocks = blocks_, depth = 16, group = depth, stages = 3;
    static constexpr int warps_n = warps_n_, lanes_m = 32 / lanes_n_, lanes_n = lanes_n_;
    static constexpr int per_m = per_m_, per_n = per_n_, threads = warps_m_ * warps_n * 32;
    static constexpr int m = warps_m_ * lanes_m * per_m, n = warps_n * lanes_n * per_n;
    static constexpr int bytes_a = m * depth * 4, stage_bytes = (m + n) * depth * 4, tile_bytes = stages * stage_bytes;
    static constexpr int pitch = n + 8; /* of the sums: rows begin in other banks */
    static constexpr int shared_bytes(int64_t k) { return tile_bytes + (k > FL_K_CHUNK ? m * n * 4 : 0); }
    static_assert(m * pitch * 4 <= tile_bytes, "sums take the place of tiles");
    using cells = cells_of_floats;
    template <bool along_k_a, bool along_k_b> using sums = chain_sums<chain_shape, along_k_a, along_k_b>;
};
using large_tile = chain_shape<4, 1, 8, 8, 8, 3>;  /* 128 x 64 */
using square_tile = chain_shape<2, 2, 8, 8, 4, 3>; /* 64 x 64 */
using tall_tile = chain_shape<4, 1, 2, 4, 8, 3>;   /* 256 x 16 */
using wide_tile = chain_shape<1, 4, 8, 4, 8, 3>;   /* 16 x 256 */

using chain_shapes = tile_shapes<large_tile, tall_tile, square_tile, wide_tile>;

/* A thread for each filter position and channel. in_tf32: filters of binary32 are rounded to tf32, of which they may
 * become infinite. */
__global__ void find_holes(const struct gpu_call call, float *holes, bool in_tf32) {
    struct gpu_now now;
    const struct fl_windows &g = call.args.p.product.windows;
    if (!gpu_begin(call, &now))
        return;
    const int64_t positions = g.r * g.s, depth = g.c / g.groups, per_group = g.filters / g.groups;
    for (int64_t i = gpu_first(); i < positions * g.c; i += gpu_stride()) {
        const int64_t position = i / g.c, c = i % g.c, first = position * per_group;
        const fl_element *filter = (const fl_element *)call.args.in[1].data +
                                   (c / depth * per_group * positions + position) * depth + c % depth;
        float hole = -0.0f;
        for (int64_t k = first; k < first + per_group; k++, filter += positions * depth) {
            float x = FL_DECODE(*filter);
#ifdef FL_ELEMENT_IS_FLOAT
            x = in_tf32 ? __uint_as_float(tf32_of(__float_as_uint(x))) : x;
#endif
            hole = __fmaf_rn(0, x, hole);
            if (k + 1 == first + per_group || (k + 1) % FL_K_CHUNK == 0) {
                holes[tile_holes::place(position, k / FL_K_CHUNK, g.c) + c] = hole;
                hole = -0.0f;
            }
        }
    }
}

/* --- the host's side ---------------------------------------------------------------------------------------------- */

/* Numbers of all holes of a channel. */
static int64_t holes_of(const struct fl_windows &g, const struct product_sizes &of) {
    return g.r * g.s + of.k / FL_K_CHUNK + 1;
}

/* Tiles take 1.1 to 2 instructions for a product, a thread for each output 19 to 59. Outputs for which one wave of
 * tiles is enough have as few threads for each multiprocessor either way. */
template <class Job> static struct tile_plan plan_chains(const struct fl_product &product) {
    using tile = typename chain_shapes::fitting<Job>;
    struct tile_plan plan = {};
    const struct product_sizes of = plan.sizes = Job::sizes(Job::of(product));
    if (!can_index(product.windows, of))
        return plan;
    int64_t tiles = tiles_of<square_tile>(of), outputs = tiles * square_tile::m * square_tile::n;
    plan.shape = SQUARE;
    if (of.aligned && (Job::extent == EXTENT_EVEN   ? of.m > square_tile::m && tiles_of<tile>(of) >= PROCESSORS
                       : Job::extent == EXTENT_TALL ? of.n <= tile::n
                                                    : of.m <= tile::m)) {
        tiles = tiles_of<tile>(of);
        outputs = tiles * tile::m * tile::n;
        plan.shape = FITTING;
    }
    const int64_t depth = square_tile::depth, most_bytes = 64 << 20, chains = tiles_over(of.k, FL_K_CHUNK);
    if (tiles > PROCESSORS && outputs * tiles_over(of.k, depth) * depth > 12 * of.m * of.n * of.k * of.groups) {
        plan.shape = DIRECT;
        return plan;
    }
    const bool splits = tiles < 2 * PROCESSORS && chains * of.m * of.n * of.groups <= most_bytes / 4;
    plan.parts = splits && chains > 1 ? (int)chains : 1;
    plan.k_part = plan.parts > 1 ? (int64_t)FL_K_CHUNK : of.k;
    const struct fl_windows &g = product.windows;
    if (Job::has_phases && g.filters / g.groups % square_tile::group == 0 &&
        (plan.parts == 1 || of.k <= FL_K_CHUNK * Job::phases(Job::of(product))))
        divide<Job>(&plan, product);
    return plan;
}

} // namespace
#endif

#endif
