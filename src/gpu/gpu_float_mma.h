/* gpu_float_mma.h - matmul and convolutions of fp16, bf16, and fp32 as tf32, in class fast, on tensor cores: sums as
 * the GPU forms them, k ascending (docs/semantics.md, class accumulate). Outputs too few for the multiprocessors are
 * split along k into parts, which are added in order.
 *
 * In an input gradient with a stride, filter positions that reach other pixels add zeros. Where groups of k lie within
 * a position, those groups change no sum but -0, which becomes 0, and add NaN where a filter is no number: both are
 * done at the end (find_holes, mma_sums::fill).
 *
 * Expects: the codec of a format (gpu_element.h), FL_MMA, its name in mma.sync. Gives: float_shapes, multiplies_fast.
 */
#ifndef FL_GPU_FLOAT_MMA_H
#define FL_GPU_FLOAT_MMA_H

#include "core/table/fast_class.h"
#include "gpu/gpu_fragments.h"

#ifdef FL_MMA
namespace {

/* Registers: of a fragment, four sums of binary32 or two pairs of fp16. */
template <class Tile, class Register, int count> struct float_terms {
    Register sum[Tile::rows][Tile::columns][count] = {};

    template <class Fragments>
    __device__ __forceinline__ void multiply(const Fragments &at, const unsigned char *stage) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[2][Tile::rows][4];
#pragma unroll
            for (int i = 0; i < 2 * Tile::rows; i++)
                at.load_a(a[i % 2][i / 2], stage, i / 2, 2 * half + i % 2);
#pragma unroll
            for (int n = 0; n < Tile::columns; n++) {
                uint32_t b[4];
                at.load_b(b, stage, n, half);
#pragma unroll
                for (int part = 0; part < 2; part++)
#pragma unroll
                    for (int i = 0; i < Tile::rows; i++)
                        FL_MMA(sum[i][n], a[part][i], {b[2 * part], b[2 * part + 1]});
            }
        }
    }
    __device__ __forceinline__ float total(int i, int n, int j) const {
        if constexpr (count == 4)
            return sum[i][n][j];
        else
            return gpu_float_of_half((uint16_t)(sum[i][n][j / 2] >> j % 2 * 16));
    }
    __device__ static __forceinline__ void leave(float *to, float x) {
        *to = x;
    }
};

#ifdef FL_ELEMENT_IS_FLOAT
/* Binary32 rounded to tf32, to nearest even, after the products of a step. Every second four lanes begin with the
 * second piece, so that eight of them store into different banks. */
struct cells_of_tf32 {
    static constexpr int pieces = 2;
    static constexpr bool masked_across = true;
    struct held {
        uint4 eight[2];
    };
    __device__ static void begin(held *h, unsigned char *, uint32_t, const float *from, bool inside) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            h->eight[i] = inside ? reinterpret_cast<const uint4 *>(from)[place(i)] : make_uint4(0, 0, 0, 0);
    }
    __device__ static void finish(const held *h, unsigned char *tile, uint32_t at) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            *reinterpret_cast<uint4 *>(tile + (at ^ place(i) * 16)) = make_uint4(
                tf32_of(h->eight[i].x), tf32_of(h->eight[i].y), tf32_of(h->eight[i].z), tf32_of(h->eight[i].w));
    }
    __device__ static void pair(unsigned char *tile, uint32_t at, int j, float x, float y) {
        *reinterpret_cast<uint2 *>(tile + (at ^ (uint32_t)(j * 4))) =
            make_uint2(tf32_of(__float_as_uint(x)), tf32_of(__float_as_uint(y)));
    }
    __device__ static uint32_t place(int i) {
        return (threadIdx.x >> 2 & 1) ^ (uint32_t)i;
    }
};
using mma_cells = cells_of_tf32;
#else
using mma_cells = cells_of_16_bits;
#endif

template <class Tile> using sums_of_32_bits = float_terms<Tile, float, 4>;
template <class Tile> using sums_of_16_bits = float_terms<Tile, uint32_t, 2>;

/* Whether class c multiplies this format on tensor cores. */
static bool multiplies_fast(tensor_class c) {
#ifdef FL_ELEMENT_IS_FLOAT
    return fl_is_fast(c) && c & FL_FAST_TF32;
#else
    return fl_is_fast(c);
#endif
}

template <template <class> class Terms>
using float_shapes = tile_shapes<mma_shape<2, 8, 3, 2, mma_cells, Terms>,  /* 64 x 128 */
                                 mma_shape<2, 2, 3, 3, mma_cells, Terms>,  /* 64 x 32 */
                                 mma_shape<2, 4, 3, 3, mma_cells, Terms>>; /* 64 x 64 */

} // namespace
#endif

#endif
