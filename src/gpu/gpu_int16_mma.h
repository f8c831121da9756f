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
 * Expects: the codec of a folder (gpu_element.h). Gives: int16_shapes, PART_MOST, end_tile. */
#ifndef FL_GPU_INT16_MMA_H
#define FL_GPU_INT16_MMA_H

#include "gpu/gpu_fragments.h"

#ifdef FL_SHARED_EXPONENT
namespace {

enum { PART_MOST = 32704 }; /* 2 * 128 * 255 * PART_MOST < 2^31; a multiple of every depth */

/* --- products ----------------------------------------------------------------------------------------------------- */

/* x: pairs of k 0 to 7; y: pairs of k 8 to 15. */
__device__ static __forceinline__ uint32_t low_bytes(uint32_t x, uint32_t y) {
    return __byte_perm(x, y, 0x6420);
}
__device__ static __forceinline__ uint32_t high_bytes(uint32_t x, uint32_t y) {
    return __byte_perm(x, y, 0x7531);
}

template <class Tile> struct int16_terms {
    static constexpr int rows = Tile::rows, columns = Tile::columns;

    int32_t high[rows][columns][4] = {}, middle[rows][columns][4] = {}, low[rows][columns][4] = {};

    template <class Fragments>
    __device__ __forceinline__ void multiply(const Fragments &at, const unsigned char *stage) {
#pragma unroll
        for (int part = 0; part < 2; part++) {
            uint32_t a_low[rows][4], a_high[rows][4];
#pragma unroll
            for (int i = 0; i < rows; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t r[4];
                    at.load_a(r, stage, i, 2 * part + half);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        a_low[i][2 * half + j] = low_bytes(r[j], r[j + 2]);
                        a_high[i][2 * half + j] = high_bytes(r[j], r[j + 2]);
                    }
                }
#pragma unroll
            for (int n = 0; n < columns; n++) {
                uint32_t r[4];
                at.load_b(r, stage, n, part);
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
    __device__ __forceinline__ int64_t total(int i, int n, int j) const {
        return (int64_t)high[i][n][j] * 65536 + ((int64_t)middle[i][n][j] * 256 + low[i][n][j]);
    }
    __device__ static __forceinline__ void leave(int64_t *to, int64_t x) {
        atomicAdd((unsigned long long *)to, (unsigned long long)x);
    }
};

/* Two neighbours in each thread. */
template <class Tile, class Rows>
__device__ static void end_tile(const struct gpu_now &now, const struct fl_args &args, struct product_end *end,
                                const unsigned char *tiles, const Rows &numbers, int rows, int columns, int64_t first,
                                int64_t row_step) {
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
        const int64_t i = first + numbers.at(row) * row_step + column;
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

template <int warps_m, int columns, int stages, int blocks, int rows = 2>
using int16_shape = mma_shape<warps_m, columns, stages, blocks, cells_of_16_bits, int16_terms, rows>;
/* The large tile has one block a multiprocessor: sums fill 144 registers of a thread, and two blocks leave it 128. */
using int16_shapes = tile_shapes<int16_shape<4, 6, 4, 1>,                          /* 128 x 96 */
                                 int16_shape<2, 2, 3, 3>,                          /* 64 x 32 */
                                 int16_shape<2, 4, 3, 2>,                          /* 64 x 64 */
                                 int16_shape<2, 4, 3, 2>, int16_shape<2, 1, 3, 3>, /* 64 x 16 */
                                 int16_shape<1, 4, 3, 4>,                          /* 32 x 64 */
                                 int16_shape<1, 2, 3, 6, 1>,                       /* 16 x 32 */
                                 int16_shape<1, 9, 3, 3, 1>>;                      /* 16 x 144 */

} // namespace
#endif

#endif
