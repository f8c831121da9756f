/* bf16_avx512_fast.c - the kernels of bf16 in class fast: matmul by the dot instruction (decision 10). Operands stay
 * bf16 as they are packed; sums are stored as those of the exact rows are. */
#include "core/table/format.h"
#include "gemm/gemm_float.h"
#include "gemm/gemm_int16.h"

extern const struct gemm_stores fl_bf16_stores_avx512bw;

static const struct gemm_family family = {.ordered = true,
                                          .kernels = &fl_gemm_dot_avx512_fast,
                                          .packing = &fl_gemm_pairs_packing_avx512bw,
                                          .stores = &fl_bf16_stores_avx512bw};

static tensor_status bf16_gemm_avx512_fast(const struct fl_args *args) {
    return fl_gemm(&family, args);
}

static size_t bf16_gemm_need_avx512_fast(const struct fl_args *args) {
    return fl_gemm_need(&family, args);
}

extern const struct fl_kernels fl_bf16_avx512_fast;
const struct fl_kernels fl_bf16_avx512_fast = {
    .op =
        {
            [FL_OP_MATMUL] = bf16_gemm_avx512_fast,
            [FL_OP_MATMUL_NT] = bf16_gemm_avx512_fast,
            [FL_OP_MATMUL_TN] = bf16_gemm_avx512_fast,
        },
    .need =
        {
            [FL_OP_MATMUL] = bf16_gemm_need_avx512_fast,
            [FL_OP_MATMUL_NT] = bf16_gemm_need_avx512_fast,
            [FL_OP_MATMUL_TN] = bf16_gemm_need_avx512_fast,
        },
};
