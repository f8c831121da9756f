/* gpu_fragments.h - fragments of tensor-core products, from tiles of 16-bit elements in shared memory.
 *
 * ldmatrix gives a lane pairs of neighbours along k (transposed if k runs over the rows of a tile): four registers are
 * 16 rows of A by 16 steps of k, or 32 steps of k by 8 columns of B.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: mma_fragments, mma_shape. */
#ifndef FL_GPU_FRAGMENTS_H
#define FL_GPU_FRAGMENTS_H

#include "gpu/gpu_tiles.h"

namespace {

enum { TILE_K = 64 };

/* The fragments of one warp: their positions in a tile. */
template <class Tile, bool along_k_a, bool along_k_b> struct mma_fragments {
    static constexpr int pieces_a = along_k_a ? TILE_K / 8 : Tile::m / 8,
                         pieces_b = along_k_b ? TILE_K / 8 : Tile::n / 8;
    static constexpr uint32_t row_a = pieces_a * 16, row_b = pieces_b * 16; /* bytes */

    int warp_m, warp_n, lane;
    uint32_t at_a, at_b; /* of the warp's first fragments; others differ in bits of the address, or by a constant */

    __device__ mma_fragments() {
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
    /* A lane has two neighbours of a row, and two eight rows further down, of fragment i, n. */
    __device__ __forceinline__ int row_of(int i, int lower) const {
        return warp_m * 32 + i * 16 + lower * 8 + lane / 4;
    }
    __device__ __forceinline__ int column_of(int n) const { return (n * 2 + warp_n) * 8 + lane % 4 * 2; }
};

/* Eight or four warps, two beside each other along n. A warp has 32 consecutive rows and `columns` groups of eight
 * columns, every second group of the block. */
template <int warps_m_, int columns_, int stages_, int blocks_, class Sum> struct mma_shape {
    static constexpr int blocks = blocks_, depth = TILE_K;
    static constexpr int warps_m = warps_m_, warps_n = 2, rows = 2, columns = columns_, stages = stages_;
    static constexpr int m = warps_m * rows * 16, n = warps_n * columns * 8, threads = warps_m * warps_n * 32;
    static constexpr int bytes_a = m * TILE_K * 2, stage_bytes = (m + n) * TILE_K * 2;
    static constexpr int pitch = n + 8; /* of the sums, in elements: rows begin half of the banks apart */
    static constexpr int tile_bytes = stages * stage_bytes, sum_bytes = m * pitch * (int)sizeof(Sum);
    static constexpr int shared_bytes(int64_t) { return tile_bytes > sum_bytes ? tile_bytes : sum_bytes; }
    using cells = cells_of_16_bits;
};

} // namespace

#endif
