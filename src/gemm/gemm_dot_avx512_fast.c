/* gemm_dot_avx512_fast.c - micro-kernels of bf16 by the dot instruction of AVX512_BF16, class fast (decision 10).
 *
 * Operands stay bf16, packed as k-pairs; two products are added to each accumulator at a time. The instruction takes
 * subnormal operands and results as zeros, and how it rounds between the two products is the processor's
 * (docs/semantics.md). A block of k is one chain of instructions and blocks are added in order, so blocking and threads
 * change nothing. */
#include "gemm/gemm_float.h"
#include <immintrin.h>
#include <string.h>

#include "gemm/gemm_float_vector.h"
#define multiply_add(sum, a, b) (vector) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)(a), (__m512bh)(b))

#include "gemm/gemm_float_add.h"
#include "gemm/gemm_panel_kernels.inc"
#include "gemm/gemm_tile_kernels.inc"

const struct gemm_kernels fl_gemm_dot_avx512_fast = {
    .lanes = LANES,
    .vectors = TILE_VECTORS,
    .rows_unit = TILE_UNIT,
    .rows = TILE_ROWS,
    .tile = gemm_compute_tile,
    .panel_rows = PANEL_ROWS,
    .panel_columns = PANEL_COLUMNS,
    .whole = panel_whole,
    .finish = gemm_finish_sums,
    .add = gemm_add,
};
