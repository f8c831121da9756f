/* gpu_fragments.h - products on tensor cores, from tiles in shared memory: fragments, the sums of a block, and how many
 * tiles there are of which shape.
 *
 * Rows of a tile that run along k have 128 bytes. Of elements of 16 bits ldmatrix gives a lane pairs of neighbours
 * along k (transposed if k runs over the rows of a tile), of 32 bits single ones, and there the lanes of a warp read
 * them from rows of k one by one, which the masks put into different banks.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: mma_shape, plan_mma. */
#ifndef FL_GPU_FRAGMENTS_H
#define FL_GPU_FRAGMENTS_H

#include "gpu/gpu_tiles.h"

namespace {

/* The fragments of one warp: their positions in a tile. */
template <class Tile, bool along_k_a, bool along_k_b> struct mma_fragments {
    static constexpr int bytes = (int)sizeof(fl_element), piece = 16 / bytes; /* of an element; elements of a piece */
    static constexpr int pieces_a = along_k_a ? 8 : Tile::m / piece, pieces_b = along_k_b ? 8 : Tile::n / piece;
    static constexpr uint32_t row_a = pieces_a * 16, row_b = pieces_b * 16; /* bytes */
    static constexpr int height = Tile::rows * 16;                          /* of a warp */

    int warp_m, warp_n, lane;
    uint32_t at_a, at_b; /* of the warp's first fragments; others differ in bits of the address, or by a constant */

    __device__ mma_fragments() {
        lane = (int)threadIdx.x % 32;
        warp_m = (int)threadIdx.x / 32 / Tile::warps_n;
        warp_n = (int)threadIdx.x / 32 % Tile::warps_n;
        const int r = lane & 7, column = lane / 4, row = lane % 4;
        if (along_k_a)
            at_a = (uint32_t)(warp_m * height + (lane & 15)) * row_a +
                   ((uint32_t)(lane >> 4) ^ tile_mask<pieces_a>(r)) * 16;
        else if (bytes == 2)
            at_a = (uint32_t)(r + (lane >> 4) * 8) * row_a +
                   ((uint32_t)(warp_m * height / 8 + (lane >> 3 & 1)) ^ tile_mask<pieces_a>(r)) * 16;
        else
            at_a = place_of<pieces_a>(row, warp_m * height + column);
        if (along_k_b)
            at_b = (uint32_t)(warp_n * 8 + r) * row_b + ((uint32_t)(lane >> 3) ^ tile_mask<pieces_b>(r)) * 16;
        else if (bytes == 2)
            at_b = (uint32_t)lane * row_b + ((uint32_t)warp_n ^ tile_mask<pieces_b>(r)) * 16;
        else
            at_b = place_of<pieces_b>(row, warp_n * 8 + column);
        at_b += Tile::bytes_a;
    }
    template <int pieces> __device__ static uint32_t place_of(int row, int column) {
        return (uint32_t)(row * pieces * 16) + ((uint32_t)(column / 4) ^ tile_mask<pieces>(row)) * 16 +
               (uint32_t)(column % 4 * 4);
    }
    /* Loads 16 rows of A by 32 bytes of k, of which the tile has four times as many. */
    __device__ __forceinline__ void load_a(uint32_t (&r)[4], const unsigned char *stage, int i, int part) const {
        if constexpr (along_k_a)
            gpu_ldmatrix_x4(r, stage + tile_along<pieces_a>(at_a, part * 2) + i * 16 * row_a);
        else if constexpr (bytes == 2)
            gpu_ldmatrix_x4_trans(r, stage + tile_along<pieces_a>(at_a, i * 2) + part * 16 * row_a);
        else
#pragma unroll
            for (int j = 0; j < 4; j++)
                r[j] = one<pieces_a>(stage, tile_along<pieces_a>(at_a, i * 4 + j % 2 * 2), part * 8 + j / 2 * 4);
    }
    /* Loads 64 bytes of k by 8 columns of B. */
    __device__ __forceinline__ void load_b(uint32_t (&r)[4], const unsigned char *stage, int n, int half) const {
        if constexpr (along_k_b)
            gpu_ldmatrix_x4(r, stage + tile_along<pieces_b>(at_b, half * 4) + n * 16 * row_b);
        else if constexpr (bytes == 2)
            gpu_ldmatrix_x4_trans(r, stage + tile_along<pieces_b>(at_b, n * 2) + half * 32 * row_b);
        else
#pragma unroll
            for (int j = 0; j < 4; j++)
                r[j] = one<pieces_b>(stage, tile_along<pieces_b>(at_b, n * 4), half * 16 + j * 4);
    }
    /* The element `rows` further down, of a multiple of four: one mask for each four rows. */
    template <int pieces>
    __device__ static __forceinline__ uint32_t one(const unsigned char *stage, uint32_t at, int rows) {
        return *reinterpret_cast<const uint32_t *>(stage + (at ^ (uint32_t)(rows % 8 * 4)) + rows * pieces * 16);
    }
    /* A lane has two neighbours of a row, and two eight rows further down, of fragment i, n. */
    __device__ __forceinline__ int row_of(int i, int lower) const {
        return warp_m * height + i * 16 + lower * 8 + lane / 4;
    }
    __device__ __forceinline__ int column_of(int n) const {
        return (n * 2 + warp_n) * 8 + lane % 4 * 2;
    }
};

/* The sums of a block. Terms: those of a warp, which it multiplies, gives one by one as a product_total, and adds to
 * memory. */
template <class Tile, class Terms, bool along_k_a, bool along_k_b> struct mma_sums {
    const mma_fragments<Tile, along_k_a, along_k_b> at;
    Terms terms;

    __device__ mma_sums(const unsigned char *, int, int) : at(), terms() {}
    __device__ __forceinline__ void add(const unsigned char *stage, int, int) { terms.multiply(at, stage); }
    /* Adds to the sums of floats in shared memory what the filter positions that a phase leaves out would have made of
     * them: NaN, if a filter there is no number, and 0 to turn -0 into 0, if some of them come after the last of the
     * phase. */
    template <class Filters>
    __device__ void fill(unsigned char *tiles, const struct tile_holes &holes, const Filters &filters) const {
        static_assert(Tile::n <= Tile::threads, "a thread for each column");
        const int count = filters.rows / filters.per_group, column = (int)threadIdx.x;
        if (column >= Tile::n || column >= holes.columns)
            return;
        float fill = -0.0f;
        for (int position = 0, passed = 0; position < filters.positions; position++) {
            if (passed < count && position == filters.position(passed)) {
                passed++;
                continue;
            }
            const int first = position * filters.per_group, last = first + filters.per_group - 1;
            for (int chain = first / FL_K_CHUNK; chain <= last / FL_K_CHUNK; chain++) {
                const float hole = holes.of(position, chain, column);
                if (passed == count || hole != hole)
                    fill = __fadd_rn(fill, fabsf(hole));
            }
        }
        float *const sums = reinterpret_cast<float *>(tiles) + column;
#pragma unroll 4
        for (int i = 0; i < Tile::m; i++)
            sums[i * Tile::pitch] = __fadd_rn(sums[i * Tile::pitch], fill);
    }
    __device__ __forceinline__ void leave(product_total *to, int64_t row_step, int rows_left, int columns_left) const {
#pragma unroll
        for (int i = 0; i < Tile::rows; i++)
#pragma unroll
            for (int n = 0; n < Tile::columns; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int row = at.row_of(i, j / 2), column = at.column_of(n) + j % 2;
                    if (row < rows_left && column < columns_left)
                        Terms::leave(to + row * row_step + column, terms.total(i, n, j));
                }
    }
    __device__ __forceinline__ void store(unsigned char *tiles) const {
#pragma unroll
        for (int i = 0; i < Tile::rows; i++)
#pragma unroll
            for (int n = 0; n < Tile::columns; n++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++)
                    reinterpret_cast<product_totals *>(
                        tiles)[(at.row_of(i, lower) * Tile::pitch + at.column_of(n)) / 2] = {
                        terms.total(i, n, 2 * lower), terms.total(i, n, 2 * lower + 1)};
    }
};

/* Eight, four or two warps, two beside each other along n. A warp has `rows` times 16 consecutive rows and `columns`
 * groups of eight columns, every second group of the block. */
template <int warps_m_, int columns_, int stages_, int blocks_, class Cells, template <class> class Terms,
          int rows_ = 2>
struct mma_shape {
    static constexpr bool has_chains = false;
    static constexpr int blocks = blocks_, depth = 128 / (int)sizeof(fl_element);
    static constexpr int group = sizeof(fl_element) == 2 ? 16 : 4; /* the largest that a GPU adds at once */
    static constexpr int warps_m = warps_m_, warps_n = 2, rows = rows_, columns = columns_, stages = stages_;
    static constexpr int m = warps_m * rows * 16, n = warps_n * columns * 8, threads = warps_m * warps_n * 32;
    static constexpr int bytes_a = m * 128, stage_bytes = (m + n) * 128;
    static constexpr int pitch = n + 8; /* of the sums, in elements: rows begin half of the banks apart */
    static constexpr int tile_bytes = stages * stage_bytes, sum_bytes = m * pitch * (int)sizeof(product_total);
    static constexpr int shared_bytes(int64_t) { return tile_bytes > sum_bytes ? tile_bytes : sum_bytes; }
    using cells = Cells;
    template <bool along_k_a, bool along_k_b> using sums = mma_sums<mma_shape, Terms<mma_shape>, along_k_a, along_k_b>;
};

/* Tiles of all groups, and their outputs, some of them empty. */
struct tiling {
    int64_t tiles, outputs;
};
template <class Tile> static struct tiling tiling_of(const struct product_sizes &of) {
    return {tiles_of<Tile>(of), tiles_of<Tile>(of) * Tile::m * Tile::n};
}

/* Tiles where they take less than 32 times the products, or there is one wave of them; as many parts of at most
 * part_most steps of k as give every multiprocessor of an H100 one or two blocks, if each has enough work. */
template <class Job, class Shapes>
static struct tile_plan plan_mma(const struct fl_product &product, int64_t part_most) {
    using tile = typename Shapes::template fitting<Job>;
    using square = typename Shapes::square;
    struct tile_plan plan = {};
    const struct product_sizes of = plan.sizes = Job::sizes(Job::of(product));
    if (!can_index(product.windows, of))
        return plan;
    const bool fits = of.aligned && (Job::extent == EXTENT_EVEN ? of.n > square::n && tiles_of<tile>(of) >= PROCESSORS
                                                                : of.n <= tile::n);
    const int64_t steps = tiles_over(of.k, tile::depth);
    plan.shape = Shapes::template few_of<Job>(of);
    if (plan.shape == SQUARE && fits)
        plan.shape = FITTING;
    const struct tiling with = plan.shape == LONG      ? tiling_of<typename Shapes::longest>(of)
                               : plan.shape == THIN    ? tiling_of<typename Shapes::template thin<Job>>(of)
                               : plan.shape == FEW     ? tiling_of<typename Shapes::template few<Job>>(of)
                               : plan.shape == FITTING ? tiling_of<tile>(of)
                                                       : tiling_of<square>(of);
    const int64_t tiles = with.tiles;
    if (of.k < 2048 && tiles > PROCESSORS && with.outputs * steps * tile::depth > 32 * of.m * of.n * of.k * of.groups) {
        plan.shape = DIRECT;
        return plan;
    }
    const int64_t most = of.k / (8 * tile::depth), least = tiles_over(of.k, part_most);
    int64_t parts = tiles < PROCESSORS ? 2 * PROCESSORS / tiles : 1;
    parts = parts > most ? most : parts;
    parts = parts < least ? least : parts;
    plan.k_part = tiles_over(steps, parts) * tile::depth;
    plan.parts = (int)tiles_over(of.k, plan.k_part);
    const struct fl_windows &g = product.windows;
    if (Job::has_phases && plan.parts == 1 && (GPU_SHARED || g.filters / g.groups % tile::group == 0))
        divide<Job>(&plan, product);
    return plan;
}

} // namespace

#endif
