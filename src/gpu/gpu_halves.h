/* gpu_halves.h - matmul and convolutions of fp16 and bf16 in class fast, on tensor cores: sums of binary32 as the GPU
 * forms them, k ascending (docs/semantics.md, class accumulate). Outputs too few for the multiprocessors are split
 * along k into parts, which are added in order.
 *
 * Expects: the codec of a format of 16 bits (gpu_element.h), FL_MMA, its name in mma.sync. Gives: plan_halves,
 * launch_halves. */
#ifndef FL_GPU_HALVES_H
#define FL_GPU_HALVES_H

#include "gpu/gpu_chains.h"
#include "gpu/gpu_fragments.h"

#ifdef FL_MMA
namespace {

template <class Tile, bool along_k_a, bool along_k_b> struct half_sums {
    static constexpr int rows = Tile::rows, columns = Tile::columns;

    const mma_fragments<Tile, along_k_a, along_k_b> at;
    float sum[rows][columns][4];

    __device__ half_sums(const unsigned char *, int, int) {
#pragma unroll
        for (int i = 0; i < rows * columns * 4; i++)
            sum[i / 4 / columns][i / 4 % columns][i % 4] = 0;
    }
    __device__ __forceinline__ void add(const unsigned char *stage, int, int) {
#pragma unroll
        for (int k = 0; k < TILE_K; k += 32) {
            uint32_t a[2][rows][4];
#pragma unroll
            for (int i = 0; i < 2 * rows; i++)
                at.load_a(a[i % 2][i / 2], stage, i / 2, k + i % 2 * 16);
#pragma unroll
            for (int n = 0; n < columns; n++) {
                uint32_t b[4];
                at.load_b(b, stage, n, k);
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int i = 0; i < rows; i++)
                        FL_MMA(sum[i][n], a[half][i], {b[2 * half], b[2 * half + 1]});
            }
        }
    }
    __device__ __forceinline__ void leave(void *sums, int64_t first, int64_t, int64_t row_step, int rows_left,
                                          int columns_left) const {
        float *const to = (float *)sums + first;
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int row = at.row_of(i, j / 2), column = at.column_of(n) + j % 2;
                    if (row < rows_left && column < columns_left)
                        to[row * row_step + column] = sum[i][n][j];
                }
    }
    __device__ __forceinline__ void store(unsigned char *tiles) const {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int n = 0; n < columns; n++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++)
                    *reinterpret_cast<float2 *>(reinterpret_cast<float *>(tiles) + at.row_of(i, lower) * Tile::pitch +
                                                at.column_of(n)) =
                        make_float2(sum[i][n][2 * lower], sum[i][n][2 * lower + 1]);
    }
    __device__ static void end(const struct gpu_now &now, const struct fl_args &args, struct product_end *end,
                               const unsigned char *tiles, int rows, int columns, int64_t first, int64_t row_step) {
        end_floats<Tile>(now, args, end, tiles, rows, columns, first, row_step);
    }
};

template <int warps_m, int columns, int stages, int blocks>
struct half_shape : mma_shape<warps_m, columns, stages, blocks, float> {
    template <bool along_k_a, bool along_k_b> using sums = half_sums<half_shape, along_k_a, along_k_b>;
};
using large_half = half_shape<2, 8, 3, 2>;  /* 64 x 128 */
using small_half = half_shape<2, 4, 3, 3>;  /* 64 x 64 */
using narrow_half = half_shape<2, 2, 3, 3>; /* 64 x 32 */

template <class Job>
using fitting_half = std::conditional_t<Job::extent == EXTENT_EVEN, large_half,
                                        std::conditional_t<Job::extent == EXTENT_TALL, narrow_half, small_half>>;

template <class Job> static struct chain_plan plan_halves(const struct fl_product &product) {
    using tile = fitting_half<Job>;
    struct chain_plan plan = {};
    const struct product_sizes of = plan.sizes = Job::sizes(Job::of(product));
    if (!can_index(product.windows, of))
        return plan;
    const bool fits =
        of.aligned &&
        (Job::extent == EXTENT_EVEN ? of.n > small_half::n && tiles_of<tile>(of) >= PROCESSORS : of.n <= tile::n);
    const int64_t tiles = fits ? tiles_of<tile>(of) : tiles_of<small_half>(of);
    const int64_t outputs = tiles * (fits ? tile::m * tile::n : small_half::m * small_half::n);
    const int64_t steps = tiles_over(of.k, TILE_K), count = of.m * of.n * of.groups;
    if (tiles > PROCESSORS && outputs * steps * TILE_K > 32 * count * of.k)
        return plan;
    const int64_t most = steps / 8; /* enough work for each part */
    int64_t parts = tiles < PROCESSORS ? 2 * PROCESSORS / tiles : 1;
    parts = parts > most ? most : parts;
    plan.k_part = parts > 1 ? tiles_over(steps, parts) * TILE_K : of.k;
    plan.parts = (int)tiles_over(of.k, plan.k_part);
    plan.shape = fits ? chain_plan::FITTING : chain_plan::SQUARE;
    return plan;
}

template <class Job>
static cudaError_t launch_halves(const struct gpu_call *call, const struct chain_plan &plan, float *sums,
                                 cudaStream_t stream) {
    if (!is_aligned(call, plan.sizes))
        return launch_tiles<small_half, Job, false>(call, plan.sizes, plan.parts, plan.k_part, sums, stream);
    if (plan.shape == chain_plan::SQUARE)
        return launch_tiles<small_half, Job, true>(call, plan.sizes, plan.parts, plan.k_part, sums, stream);
    return launch_tiles<fitting_half<Job>, Job, true>(call, plan.sizes, plan.parts, plan.k_part, sums, stream);
}

} // namespace
#endif

#endif
