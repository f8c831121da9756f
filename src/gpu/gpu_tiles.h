/* gpu_tiles.h - one kernel for all products by tiles: a block computes a tile of the result, tiles of the operands come
 * to shared memory some steps of k ahead. What a tile is made of and how it multiplies is a parameter.
 *
 * A tile has m, n, depth (of k in one step), threads, blocks (at least on a multiprocessor), stages, stage_bytes,
 * bytes_a (of a stage, before those of B), tile_bytes (of all stages), `cells` (how elements lie in shared memory), and
 * the class `sums`: the sums of a block, which go to shared memory, rows `pitch` apart, and from there to the results
 * by end_tile<Tile>, or as they are to the sums of a part of k. has_chains: floats are added one by one, so that filter
 * positions which strides leave out of input gradients count between the others; otherwise in groups of k. `group`: of
 * k, which has to lie within a filter position where an input gradient of floats is divided.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: product_tiles, product_parts, tile_holes, tile_shape,
 * tile_shapes, tile_plan, divide, launch_plan. */
#ifndef FL_GPU_TILES_H
#define FL_GPU_TILES_H

#include "gpu/gpu_products.h"
#include "gpu/gpu_views.h"
#include <type_traits>

namespace {

/* --- tiles in shared memory --------------------------------------------------------------------------------------- */

/* Rows of a tile have `pieces` pieces of 16 bytes. The position of a piece is its number xor this mask of its row, the
 * bits of the row reversed, so that pieces of one number in eight rows, of two in four and of four in two (of 18
 * pieces: of one and of two) are in different groups of banks. */
template <int pieces> __device__ static inline uint32_t tile_mask(int row) {
    static_assert(pieces % 2 == 0, "the mask stays within a row");
    const uint32_t mask = (uint32_t)((row & 1) << 2 | (row & 2) | (row >> 2 & 1));
    return mask & (pieces % 8 == 0 ? 7 : pieces % 4 == 0 ? 3 : 1);
}
/* The place of the piece `by` further than that at `place`, whose number has zeros for the bits of `by`. */
template <int pieces> __device__ static __forceinline__ uint32_t tile_along(uint32_t place, int by) {
    constexpr int masked = pieces % 8 == 0 ? 8 : pieces % 4 == 0 ? 4 : 2;
    return (place ^ (uint32_t)(by % masked * 16)) + (uint32_t)(by / masked * masked * 16);
}

/* Cells: how eight neighbours lie in shared memory, in one piece or two. Those that are aligned are copied from `begin`
 * to `finish`, between which there are the products of a step; others are put there by pairs. Elements of 16 bits as
 * they are: */
struct cells_of_16_bits {
    static constexpr int pieces = 1;
    static constexpr bool masked_across = true; /* otherwise rows along k alone have masks */
    struct held {};
    __device__ static void begin(held *, unsigned char *tile, uint32_t at, const fl_element *from, bool inside) {
        gpu_cp_async16(tile + at, from, inside ? 16 : 0);
    }
    __device__ static void finish(const held *, unsigned char *, uint32_t) {}
    __device__ static void pair(unsigned char *tile, uint32_t at, int j, fl_element x, fl_element y) {
        *reinterpret_cast<uint32_t *>(tile + at + 2 * j) = (uint16_t)x | (uint32_t)(uint16_t)y << 16;
    }
};

#ifdef FL_ELEMENT_IS_FLOAT
/* The bits of binary32 x rounded to tf32, as tensor cores read it. */
__device__ static inline uint32_t tf32_of(uint32_t x) {
    const uint32_t near = (x + 0xfffu + (x >> 13 & 1)) & ~0x1fffu;
    return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u : near;
}
#endif

/* The copies of one thread that bring the tiles of an operand to shared memory. */
template <class Cells, class View, bool along_k, int extent, int depth, int threads, bool aligned> struct tile_loader {
    static constexpr int rows = along_k ? extent : depth, width = (along_k ? depth : extent) / 8; /* in eights */
    static constexpr int all = rows * width, count = all < threads ? 1 : all / threads;           /* of a thread */
    static constexpr int columns = along_k ? width : width / count; /* threads along a row */
    static constexpr int row_step = threads / columns,
                         step = columns * 8; /* to the next eight of the thread: rows, or columns */
    static constexpr int pieces = width * Cells::pieces;
    static constexpr bool masked = along_k || Cells::masked_across;
    static constexpr bool shares =
        aligned && !along_k && columns == 1 && count > 8; /* columns too many for registers */
    static constexpr int shared_bytes = shares ? count * (int)sizeof(typename View::column) : 0;
    static_assert((all < threads || count * threads == all) && width % columns == 0 && threads % columns == 0, "all");
    static_assert(!along_k || count == 1 || row_step % 8 == 0, "one mask a thread");

    View view;
    typename View::row of_row[along_k ? count : 1];
    std::conditional_t<shares, const typename View::column *, typename View::column[along_k ? 1 : count]> of_column;
    int moving; /* along k */
    int first;  /* first column, if the tile moves along rows */
    uint32_t place;
    typename Cells::held held[count];

    __device__ tile_loader(const View &view_, int across, int k) : view(view_) {
        const int row = (int)threadIdx.x / columns, column = (int)threadIdx.x % columns;
        uint32_t piece = (uint32_t)(column * Cells::pieces);
        if constexpr (masked)
            piece ^= tile_mask<pieces>(row);
        place = (uint32_t)(row * pieces * 16) + piece * 16;
        moving = k + (along_k ? column * 8 : row);
        first = across + column * 8;
        if constexpr (along_k) {
#pragma unroll
            for (int i = 0; i < count; i++)
                of_row[i] = view.place_row(across + row + i * row_step);
        } else if constexpr (shares) {
            __shared__ typename View::column shared[count];
            if ((int)threadIdx.x < count)
                shared[threadIdx.x] = view.place_column(first + (int)threadIdx.x * step);
            __syncthreads();
            of_column = shared;
        } else if constexpr (aligned) {
#pragma unroll
            for (int i = 0; i < count; i++)
                of_column[i] = view.place_column(first + i * step);
        }
    }
    __device__ static bool idles() {
        return all < threads && (int)threadIdx.x >= all;
    }
    __device__ uint32_t target(int i) const {
        if constexpr (!along_k && masked)
            return tile_along<pieces>(place, i * columns * Cells::pieces);
        return place + i * (along_k ? row_step * pieces : columns * Cells::pieces) * 16;
    }
    __device__ void begin(unsigned char *tile) {
        if (idles())
            return;
        if constexpr (!along_k)
            of_row[0] = view.place_row(moving);
        else if constexpr (aligned)
            of_column[0] = view.place_column(moving);
        if constexpr (aligned) {
#pragma unroll
            for (int i = 0; i < count; i++) {
                const fl_element *from = view.at(of_row[along_k ? i : 0], of_column[along_k ? 0 : i]);
                Cells::begin(&held[i], tile, target(i), from ? from : view.data, from != NULL);
            }
        } else {
            load_elements(tile);
        }
        moving += depth;
    }
    __device__ void finish(unsigned char *tile) const {
        if constexpr (aligned)
            if (!idles())
#pragma unroll
                for (int i = 0; i < count; i++)
                    Cells::finish(&held[i], tile, target(i));
    }
    /* Loads element by element, if neighbours need not be contiguous: two at a time, for all eights of the thread. */
    __device__ void load_elements(unsigned char *tile) {
#pragma unroll 1
        for (int j = 0; j < 8; j += 2) {
            fl_element x[2][count];
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
                    x[second][i] = from ? *from : (fl_element)0;
                }
            }
#pragma unroll
            for (int i = 0; i < count; i++)
                Cells::pair(tile, target(i), j, x[0][i], x[1][i]);
        }
    }
};

template <class Tile, class Job, bool aligned>
using loader_a = tile_loader<typename Tile::cells, typename Job::view_a, Job::along_k_a, Tile::m, Tile::depth,
                             Tile::threads, aligned>;
template <class Tile, class Job, bool aligned>
using loader_b = tile_loader<typename Tile::cells, typename Job::view_b, Job::along_k_b, Tile::n, Tile::depth,
                             Tile::threads, aligned>;

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* sums: of each output for each part of k, under shared exponents of all parts together; NULL: there is one part, and
 * the kernel stores results. */
struct tile_work {
    int m, n, k, k_part;
    unsigned tiles, tiles_n; /* of a group, in a phase; side by side */
    int64_t row_step, group_step;
    product_total *sums;
    bool phases;        /* of an input gradient, each a product of its own */
    const float *holes; /* of floats: what the filter positions between those of a phase add (find_holes) */
    int group;          /* of k, that the device adds at once where floats are multiplied on tensor cores */
};

/* Holes of the columns of a tile from its first one on, `pitch` apart along k: those of a position, or of its part in
 * a chain of the whole product. */
struct tile_holes {
    const float *at;
    int64_t pitch;
    int columns;
    __device__ static int64_t place(int64_t position, int64_t chain, int64_t pitch) {
        return (position + chain) * pitch;
    }
    __device__ float of(int position, int chain, int column) const {
        return at[place(position, chain, pitch) + column];
    }
};

/* The number of a row of the tile among all rows. */
template <bool has_phases> struct tile_rows {
    int m0;
    const int *pixels;
    __device__ int64_t at(int row) const { return has_phases ? pixels[row] : m0 + row; }
};

/* Stores the results of one tile from its sums in shared memory. first: those of row 0. */
template <class Tile, class Rows>
__device__ static void end_tile(const struct gpu_now &now, const struct fl_args &args, struct product_end *end,
                                const unsigned char *tiles, const Rows &numbers, int rows, int columns, int64_t first,
                                int64_t row_step);

/* Blocks: tiles of all groups; parts; phases. */
template <class Tile, class Job, bool aligned>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    product_tiles(const struct gpu_call call, const struct tile_work work) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    GPU_DYNAMIC_SHARED(unsigned char, tiles);
    const struct fl_args &args = call.args;
    const int group = (int)(blockIdx.x / work.tiles);
    const unsigned tile = blockIdx.x % work.tiles;
    const int m0 = (int)(tile / work.tiles_n) * Tile::m, n0 = (int)(tile % work.tiles_n) * Tile::n;
    constexpr bool has_phases = Job::has_phases;
    const int phase = has_phases && work.phases ? (int)blockIdx.z : -1;
    int m = work.m, k = work.k;
    if constexpr (has_phases)
        if (phase >= 0)
            Job::limit(Job::of(args.p.product), phase, &m, &k);
    const int k0 = (int)blockIdx.y * work.k_part, rows = m - m0, columns = work.n - n0;
    if (has_phases && rows <= 0)
        return;
    const int length = k - k0 < work.k_part ? k - k0 : work.k_part;
    const int steps = (length + Tile::depth - 1) / Tile::depth;
    /* Whole groups of zeros that fill up the steps come before k: behind it they would make 0 of a sum of floats that
     * has underflowed to -0. The zeros of a group with a rest of k are behind that. Chains leave all out, and parts of
     * a split k have all behind. */
    const int before = GPU_SHARED || Tile::has_chains || k0 ? 0 : (steps * Tile::depth - length) & -work.group;
    loader_a<Tile, Job, aligned> a(Job::a(Job::of(args.p.product), (const fl_element *)args.in[0].data, group, phase),
                                   m0, k0 - before);
    loader_b<Tile, Job, aligned> b(Job::b(Job::of(args.p.product), (const fl_element *)args.in[1].data, group, phase),
                                   n0, k0 - before);
    typename Tile::template sums<Job::along_k_a, Job::along_k_b> sums(tiles, rows, columns);

#pragma unroll 1
    for (int s = 0; s < Tile::stages - 1; s++) {
        if (s < steps) {
            unsigned char *const to = tiles + s * Tile::stage_bytes;
            a.begin(to);
            b.begin(to + Tile::bytes_a);
            a.finish(to);
            b.finish(to + Tile::bytes_a);
        }
        gpu_cp_commit();
    }
    uint32_t now_at = 0, next_at = (Tile::stages - 1) * Tile::stage_bytes;
    const struct tile_holes holes = {work.holes + (group * work.group_step + n0), work.row_step, columns};
    int k_next = 0; /* in the order of the whole product */
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        gpu_cp_wait<Tile::stages - 2>();
        __syncthreads(); /* the tiles of this step have arrived, and those of the last step are no longer read */
        const bool loads = step + Tile::stages - 1 < steps;
        if (loads) {
            a.begin(tiles + next_at);
            b.begin(tiles + next_at + Tile::bytes_a);
        }
        gpu_cp_commit();
        int k_now = step * Tile::depth;
        if constexpr (has_phases && Tile::has_chains)
            if (work.holes) {
                k_now = b.view.position(k_now / b.view.per_group) * b.view.per_group + k_now % b.view.per_group;
                sums.pass(holes, k_next, k_now, b.view.per_group);
                k_next = k_now + Tile::depth;
            }
        sums.add(tiles + now_at, k_now, length - step * Tile::depth);
        if (loads) {
            a.finish(tiles + next_at);
            b.finish(tiles + next_at + Tile::bytes_a);
        }
        now_at = now_at + Tile::stage_bytes == Tile::tile_bytes ? 0 : now_at + Tile::stage_bytes;
        next_at = next_at + Tile::stage_bytes == Tile::tile_bytes ? 0 : next_at + Tile::stage_bytes;
    }
    if constexpr (has_phases && Tile::has_chains)
        if (work.holes)
            sums.pass(holes, k_next, work.k, b.view.per_group);
    __syncthreads(); /* sums overwrite the tiles; all copies have arrived */

    const int64_t first = group * work.group_step + n0;
    if (work.sums) {
        sums.leave(work.sums + (GPU_SHARED ? 0 : blockIdx.y * args.out.count) + first + m0 * work.row_step,
                   work.row_step, rows, columns);
        return;
    }
    __shared__ int pixels[has_phases ? Tile::m : 1];
    if constexpr (has_phases)
        for (int i = (int)threadIdx.x; i < Tile::m; i += Tile::threads)
            pixels[i] = phase >= 0 ? Job::pixel(Job::of(args.p.product), phase, m0 + i) : m0 + i;
    sums.store(tiles);
    __syncthreads();
    if constexpr (has_phases && !GPU_SHARED && !Tile::has_chains)
        if (work.holes) {
            sums.fill(tiles, holes, b.view);
            __syncthreads();
        }
    struct product_end end;
    end.begin(now, args);
    end_tile<Tile>(now, args, &end, tiles, tile_rows<has_phases>{m0, pixels}, rows, columns, first, work.row_step);
    end.report(call.control);
}

/* Stores the results from the sums of all parts. */
__global__ void __launch_bounds__(GPU_THREADS, 2)
    product_parts(const struct gpu_call call, const product_total *sums, int parts) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    struct product_end end;
    end.begin(now, call.args);
    const int64_t count = call.args.out.count;
    for (int64_t i = gpu_first(); i < count; i += gpu_stride()) {
        product_total sum = sums[i];
        if (!GPU_SHARED)
#pragma unroll 8
            for (int p = 1; p < parts; p++)
                sum += sums[p * count + i];
        product_store(now, call.args, &end, i, sum);
    }
    end.report(call.control);
}

/* --- the host's side ---------------------------------------------------------------------------------------------- */

enum { PROCESSORS = 132 }; /* of an H100; plans follow from the geometry alone */

static int64_t tiles_over(int64_t size, int64_t tile) {
    return (size + tile - 1) / tile;
}

/* The number of tiles of all groups. */
template <class Tile> static int64_t tiles_of(const struct product_sizes &of) {
    return tiles_over(of.m, Tile::m) * tiles_over(of.n, Tile::n) * of.groups;
}

/* DIRECT: one thread for each output; others: a tile of tile_shapes. */
enum tile_shape { DIRECT, SQUARE, FITTING, FEW, THIN, LONG };

struct tile_plan {
    struct product_sizes sizes; /* phases: m is that of the largest one */
    enum tile_shape shape;
    int parts; /* of k_part steps of k each */
    int64_t k_part;
    int phases; /* in each of which filter positions are left out; 0: it is not divided so */
};

/* Divides an input gradient with a stride. */
template <class Job> static void divide(struct tile_plan *plan, const struct fl_product &product) {
    const int64_t phases = Job::phases(Job::of(product));
    const struct fl_windows &g = product.windows;
    if (phases == 1)
        return;
    plan->phases = (int)phases;
    plan->parts = 1;
    plan->k_part = plan->sizes.k;
    plan->sizes.m = g.batch * tiles_over(g.h, g.stride[0]) * tiles_over(g.w, g.stride[1]);
}

/* The tiles of a way to multiply: one for every operand, those for aligned operands that fill them, those of few
 * columns or rows, which leave less of a tile empty, and those of fewest rows: thin ones for every operand, long ones
 * where they leave no more empty than thin ones, for aligned operands. */
template <class Large, class Tall, class Square, class Wide = Square, class Slim = Square, class Flat = Square,
          class Thin = Square, class Long = Square>
struct tile_shapes {
    using square = Square;
    template <class Job>
    using fitting = std::conditional_t<Job::extent == EXTENT_EVEN, Large,
                                       std::conditional_t<Job::extent == EXTENT_TALL, Tall, Wide>>;
    template <class Job>
    using few = std::conditional_t<Job::extent == EXTENT_EVEN, Square,
                                   std::conditional_t<Job::extent == EXTENT_TALL, Slim, Flat>>;
    template <class Job> using thin = std::conditional_t<Job::extent == EXTENT_WIDE, Thin, Square>;
    using longest = Long;

    /* The tile of few columns or rows for a result; SQUARE: there is none. */
    template <class Job> static enum tile_shape few_of(const struct product_sizes &of) {
        using least = few<Job>;
        if (!std::is_same_v<thin<Job>, Square> && of.m <= Thin::m)
            return of.aligned && tiles_over(of.n, Long::n) * Long::n <= tiles_over(of.n, Thin::n) * Thin::n ? LONG
                                                                                                            : THIN;
        const bool has_few = Job::extent == EXTENT_TALL ? of.n <= least::n : of.m <= least::m;
        return !std::is_same_v<least, Square> && has_few ? FEW : SQUARE;
    }
};

/* Of 16 elements GPUs before compute capability 9.0 add two groups of 8. */
static cudaError_t find_group(int most, int *group) {
    int device, major;
    *group = most;
    if (most < 16)
        return cudaSuccess;
    TRY_CUDA(cudaGetDevice(&device));
    TRY_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    *group = major < 9 ? 8 : 16;
    return cudaSuccess;
}

template <class Tile, class Job, bool aligned>
static cudaError_t launch_tiles(const struct gpu_call *call, const struct tile_plan &plan, product_total *memory,
                                cudaStream_t stream) {
    const struct product_sizes &of = plan.sizes;
    int group = 0;
    if (!GPU_SHARED && !Tile::has_chains)
        TRY_CUDA(find_group(Tile::group, &group));
    const int64_t tiles_n = tiles_over(of.n, Tile::n), tiles = tiles_over(of.m, Tile::m) * tiles_n;
    const struct tile_work work = {(int)of.m,
                                   (int)of.n,
                                   (int)of.k,
                                   (int)plan.k_part,
                                   (unsigned)tiles,
                                   (unsigned)tiles_n,
                                   of.row_step,
                                   of.group_step,
                                   plan.phases ? NULL : memory,
                                   plan.phases > 0,
                                   plan.phases && !GPU_SHARED ? (const float *)memory : NULL,
                                   group};
    const int bytes = Tile::shared_bytes(plan.k_part);
    const int all = bytes + loader_b<Tile, Job, aligned>::shared_bytes +
                    (Job::has_phases ? (int)sizeof(int) * Tile::m : 0); /* the pixels of rows */
    if (all > 48 << 10) {
        const cudaError_t error =
            cudaFuncSetAttribute(product_tiles<Tile, Job, aligned>, cudaFuncAttributeMaxDynamicSharedMemorySize, all);
        if (error != cudaSuccess)
            return error;
    }
    const dim3 blocks((unsigned)(tiles * of.groups), (unsigned)plan.parts, (unsigned)(plan.phases ? plan.phases : 1));
    return gpu_launch(product_tiles<Tile, Job, aligned>, blocks, Tile::threads, (size_t)bytes, stream, *call, work);
}

/* Whether a block of the device has enough shared memory for a tile: 99 KiB on most GPUs, 163 or 227 on those of data
 * centres. */
template <class Tile> static bool has_room(int64_t k) {
    int device = 0, most = 0;
    return Tile::shared_bytes(k) <= 99 << 10 ||
           (cudaGetDevice(&device) == cudaSuccess &&
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
            most >= Tile::shared_bytes(k));
}

template <class Shapes, class Job>
static cudaError_t launch_plan(const struct gpu_call *call, const struct tile_plan &plan, product_total *memory,
                               cudaStream_t stream) {
    using fitting = typename Shapes::template fitting<Job>;
    using few = typename Shapes::template few<Job>;
    using thin = typename Shapes::template thin<Job>;
    using square = typename Shapes::square;
    static_assert(square::shared_bytes(FL_K_CHUNK + 1) <= 99 << 10 && Shapes::longest::shared_bytes(0) <= 99 << 10,
                  "every device has room for them");
    const bool aligned =
        ((uintptr_t)call->args.in[0].data | (uintptr_t)call->args.in[1].data) % 16 == 0 && plan.sizes.aligned;
    if constexpr (!std::is_same_v<thin, square>)
        if (plan.shape == THIN || plan.shape == LONG)
            return !aligned             ? launch_tiles<thin, Job, false>(call, plan, memory, stream)
                   : plan.shape == LONG ? launch_tiles<typename Shapes::longest, Job, true>(call, plan, memory, stream)
                                        : launch_tiles<thin, Job, true>(call, plan, memory, stream);
    if constexpr (!std::is_same_v<few, square>)
        if (plan.shape == FEW)
            return aligned ? launch_tiles<few, Job, true>(call, plan, memory, stream)
                           : launch_tiles<few, Job, false>(call, plan, memory, stream);
    if (!aligned)
        return launch_tiles<square, Job, false>(call, plan, memory, stream);
    return plan.shape == FITTING && has_room<fitting>(plan.k_part)
               ? launch_tiles<fitting, Job, true>(call, plan, memory, stream)
               : launch_tiles<square, Job, true>(call, plan, memory, stream);
}

} // namespace

#endif
