/* gpu_int16_mma.h - matmul and convolutions of 16-bit mantissas, exactly, on tensor cores that multiply bytes.
 *
 * x = 256 high + low with a signed and an unsigned byte, so a sum of products is 2^16 (high high) + 2^8 (high low + low
 * high) + (low low): four byte products into three sums of 32 bits. They hold PART_MOST terms of any operands. If sums
 * are longer, or the output has few tiles, several blocks add parts to sums of 64 bits in the workspace.
 *
 * Tiles of int16 lie in shared memory (gpu_fragments.h). From the pairs of k 0 to 7 and of k 8 to 15, one byte
 * permutation makes a register of low bytes and another one of high bytes. They are fragments of m16n8k32 except for
 * the order of k, which is the same for both operands.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: add_product. */
#ifndef FL_GPU_INT16_MMA_H
#define FL_GPU_INT16_MMA_H

#include "gpu/gpu_fragments.h"

#ifdef FL_SHARED_EXPONENT
namespace {

enum { PART_MOST = 32704 }; /* 2 * 128 * 255 * PART_MOST < 2^31; a multiple of TILE_K */

/* --- products ----------------------------------------------------------------------------------------------------- */

/* x: pairs of k 0 to 7; y: pairs of k 8 to 15. */
__device__ static __forceinline__ uint32_t low_bytes(uint32_t x, uint32_t y) {
    return gpu_byte_perm(x, y, 0x6420);
}
__device__ static __forceinline__ uint32_t high_bytes(uint32_t x, uint32_t y) {
    return gpu_byte_perm(x, y, 0x7531);
}

template <class Tile, bool along_k_a, bool along_k_b> struct tile_sums {
    static constexpr int rows = Tile::rows, columns = Tile::columns;

    const mma_fragments<Tile, along_k_a, along_k_b> at;
    int32_t high[rows][columns][4], middle[rows][columns][4], low[rows][columns][4];

    __device__ tile_sums(const unsigned char *, int, int) {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    high[i][n][j] = middle[i][n][j] = low[i][n][j] = 0;
    }
    __device__ __forceinline__ void add(const unsigned char *stage, int, int) {
#pragma unroll
        for (int k = 0; k < TILE_K; k += 32) {
            uint32_t a_low[rows][4], a_high[rows][4];
#pragma unroll
            for (int i = 0; i < rows; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t r[4];
                    at.load_a(r, stage, i, k + half * 16);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        a_low[i][2 * half + j] = low_bytes(r[j], r[j + 2]);
                        a_high[i][2 * half + j] = high_bytes(r[j], r[j + 2]);
                    }
                }
#pragma unroll
            for (int n = 0; n < columns; n++) {
                uint32_t r[4];
                at.load_b(r, stage, n, k);
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
    __device__ __forceinline__ int64_t sum(int i, int n, int j) const {
        return (int64_t)high[i][n][j] * 65536 + ((int64_t)middle[i][n][j] * 256 + low[i][n][j]);
    }
    /* Stores the sums in shared memory, rows Tile::pitch apart. */
    __device__ __forceinline__ void store(unsigned char *tiles) const {
        longlong2 *const to = reinterpret_cast<longlong2 *>(tiles);
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++)
                    to[(at.row_of(i, lower) * Tile::pitch + at.column_of(n)) / 2] =
                        make_longlong2(sum(i, n, 2 * lower), sum(i, n, 2 * lower + 1));
    }
    /* Adds to the sums of all parts; the tile has rows_left rows and columns_left columns of them. */
    __device__ __forceinline__ void leave(void *sums, int64_t, int64_t first, int64_t row_step, int rows_left,
                                          int columns_left) const {
        unsigned long long *const to = (unsigned long long *)sums + first;
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int row = at.row_of(i, j / 2), column = at.column_of(n) + j % 2;
                    if (row < rows_left && column < columns_left)
                        atomicAdd(to + row * row_step + column, (unsigned long long)sum(i, n, j));
                }
    }
    /* Stores the results of one tile from its sums in shared memory, two neighbours in each thread. */
    __device__ static void end(const struct gpu_now &now, const struct fl_args &args, struct product_end *end,
                               const unsigned char *tiles, int rows, int columns, int64_t first, int64_t row_step) {
        const longlong2 *const sums = reinterpret_cast<const longlong2 *>(tiles);
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
};

template <int warps_m, int columns, int stages, int blocks>
struct tile_shape : mma_shape<warps_m, columns, stages, blocks, int64_t> {
    template <bool along_k_a, bool along_k_b> using sums = tile_sums<tile_shape, along_k_a, along_k_b>;
};
using large_tile = tile_shape<4, 6, 4, 1>;  /* 128 x 96 */
using small_tile = tile_shape<2, 4, 3, 2>;  /* 64 x 64 */
using narrow_tile = tile_shape<2, 2, 3, 3>; /* 64 x 32 */
using slim_tile = tile_shape<2, 1, 3, 3>;   /* 64 x 16 */
using flat_tile = tile_shape<1, 4, 3, 4>;   /* 32 x 64 */

/* Stores the results from the sums of all parts. */
__global__ void __launch_bounds__(GPU_THREADS, 2)
    product_parts(const struct gpu_call call, const unsigned long long *sums) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    struct product_end end;
    end.begin(now, call.args);
    for (int64_t i = gpu_first(); i < call.args.out.count; i += gpu_stride()) {
        product_store(now, call.args, &end, i, (int64_t)sums[i]);
    }
    end.report(call.control);
}
/* --- the host's side ---------------------------------------------------------------------------------------------- */

struct tile_plan {
    struct product_sizes sizes;
    bool pays; /* otherwise one thread for each output */
    bool fits; /* the fitting_tile of the operation is used */
    int parts, k_part;
};

/* The shape for aligned operands that fill it; otherwise tiles are small. */
template <class Job>
using fitting = std::conditional_t<Job::extent == EXTENT_EVEN, large_tile,
                                   std::conditional_t<Job::extent == EXTENT_TALL, narrow_tile, small_tile>>;

/* As many parts as give every multiprocessor of an H100 one or two blocks, if each has enough work. */
template <class Job> static struct tile_plan plan_tiles(const struct fl_product &product) {
    using tile = fitting<Job>;
    const int64_t steps_least = 8;
    struct tile_plan plan = {};
    const struct product_sizes of = plan.sizes = Job::sizes(Job::of(product));
    if (!can_index(product.windows, of))
        return plan;
    const int64_t padded = tiles_of<small_tile>(of) * small_tile::m * small_tile::n * tiles_over(of.k, TILE_K) * TILE_K;
    plan.pays = of.k >= 2048 || of.m * of.n * of.k * of.groups >= padded / 32;
    const int64_t own = tiles_of<tile>(of);
    plan.fits = of.aligned && (tile::n > small_tile::n ? of.n > small_tile::n && own >= PROCESSORS : of.n <= tile::n);
    const int64_t tiles = plan.fits ? own : tiles_of<small_tile>(of);
    const int64_t least = tiles_over(of.k, PART_MOST), most = of.k / (steps_least * TILE_K);
    int64_t parts = tiles < PROCESSORS ? 2 * PROCESSORS / tiles : 1;
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

/* Whether a block of the device has enough shared memory for a tile: 99 KiB on most GPUs, 163 or 227 on those of data
 * centres. */
template <class Tile> static bool has_room() {
    int device = 0, most = 0;
    return Tile::shared_bytes(0) <= 99 << 10 ||
           (cudaGetDevice(&device) == cudaSuccess &&
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
            most >= Tile::shared_bytes(0));
}

/* sums: of several parts; NULL if there is one part. */
template <class Job>
static cudaError_t multiply_tiles(const struct gpu_call *call, const struct tile_plan &plan, unsigned long long *sums,
                                  size_t bytes, cudaStream_t stream) {
    using tile = fitting<Job>;
    const struct product_sizes &of = plan.sizes;
    const bool aligned = is_aligned(call, of);
    if (sums) {
        const cudaError_t error = cudaMemsetAsync(sums, 0, bytes, stream);
        if (error != cudaSuccess)
            return error;
    }
    if constexpr (Job::extent != EXTENT_EVEN) { /* as many tiles as small ones would be, with less that is empty */
        using few = std::conditional_t<Job::extent == EXTENT_TALL, slim_tile, flat_tile>;
        if (Job::extent == EXTENT_TALL ? of.n <= few::n : of.m <= few::m)
            return aligned ? launch_tiles<few, Job, true>(call, of, plan.parts, plan.k_part, sums, stream)
                           : launch_tiles<few, Job, false>(call, of, plan.parts, plan.k_part, sums, stream);
    }
    if (aligned && plan.fits && has_room<tile>())
        return launch_tiles<tile, Job, true>(call, of, plan.parts, plan.k_part, sums, stream);
    return aligned ? launch_tiles<small_tile, Job, true>(call, of, plan.parts, plan.k_part, sums, stream)
                   : launch_tiles<small_tile, Job, false>(call, of, plan.parts, plan.k_part, sums, stream);
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

template <class Job, class Product> static void add_product(struct gpu_kernels *to, enum fl_op op) {
    to->op[op] = run_tiles<Job, Product>;
    to->need[op] = need_tiles<Job>;
}

} // namespace
#endif

#endif
