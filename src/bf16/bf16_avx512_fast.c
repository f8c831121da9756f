/* bf16_avx512_fast.c - the kernels of bf16 in class fast, compiled for AVX-512 with VNNI and BF16. */
#include "bf16/bf16_codec.h"
#include "float/float_block.inc"
#include "gemm/gemm_dot.inc"

extern const struct fl_kernels fl_bf16_avx512_fast;
const struct fl_kernels fl_bf16_avx512_fast = {
    .op =
        {
            [FL_OP_MATMUL] = gemm_multiply_matrices,
            [FL_OP_MATMUL_NT] = gemm_multiply_matrices,
            [FL_OP_MATMUL_TN] = gemm_multiply_matrices,
        },
};
