/* bf16_avx512_amx_fast.c - the kernels of bf16 in class fast on matrix tiles (AMX): matmul and convolution (decision
 * 10). Operands stay bf16 as they are packed; sums are stored as those of the exact rows are. */
#include "core/format.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_float.h"

/* What else it takes: stores, and convolutions of groups of few channels, which tiles have no use for. */
#if defined(__AVX512BW__)
#define BASE(name) name##_avx512bw
#else /* tests of emulated tiles */
#define BASE(name) name##_portable
#endif
extern const struct fl_kernels BASE(fl_bf16);
extern const struct gemm_stores BASE(fl_bf16_stores);

static const struct gemm_family family = {.ordered = true,
                                          .kernels = &fl_gemm_bf16_avx512_amx_fast,
                                          .packing = &fl_gemm_bf16_packing_avx512_amx_fast,
                                          .stores = &BASE(fl_bf16_stores),
                                          .matrix = &fl_gemm_bf16_matrix_avx512_amx_fast};

static tensor_status bf16_gemm_avx512_amx_fast(const struct fl_args *args) {
    return gemm_is_depthwise(args) ? BASE(fl_bf16).op[args->op](args) : fl_gemm(&family, args);
}

static size_t bf16_gemm_need_avx512_amx_fast(const struct fl_args *args) {
    return gemm_is_depthwise(args) ? BASE(fl_bf16).need[args->op](args) : fl_gemm_need(&family, args);
}

extern const struct fl_kernels fl_bf16_avx512_amx_fast;
const struct fl_kernels fl_bf16_avx512_amx_fast = {
    .op =
        {
            [FL_OP_MATMUL] = bf16_gemm_avx512_amx_fast,
            [FL_OP_MATMUL_NT] = bf16_gemm_avx512_amx_fast,
            [FL_OP_MATMUL_TN] = bf16_gemm_avx512_amx_fast,
            [FL_OP_CONV2D] = bf16_gemm_avx512_amx_fast,
            [FL_OP_CONV2D_INPUT_GRAD] = bf16_gemm_avx512_amx_fast,
            [FL_OP_CONV2D_WEIGHT_GRAD] = bf16_gemm_avx512_amx_fast,
        },
    .need =
        {
            [FL_OP_MATMUL] = bf16_gemm_need_avx512_amx_fast,
            [FL_OP_MATMUL_NT] = bf16_gemm_need_avx512_amx_fast,
            [FL_OP_MATMUL_TN] = bf16_gemm_need_avx512_amx_fast,
            [FL_OP_CONV2D] = bf16_gemm_need_avx512_amx_fast,
            [FL_OP_CONV2D_INPUT_GRAD] = bf16_gemm_need_avx512_amx_fast,
            [FL_OP_CONV2D_WEIGHT_GRAD] = bf16_gemm_need_avx512_amx_fast,
        },
};
