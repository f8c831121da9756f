/* bf16_avx512_fast.c - the kernels of bf16 in class fast: matmul and convolution by the dot instruction (decision 10).
 * Operands stay bf16 as they are packed; sums are stored as those of the exact rows are. */
#include "core/table/format.h"
#include "gemm/gemm_driver.h"
#include "gemm/gemm_float.h"
#include "gemm/gemm_int16.h"

extern const struct gemm_stores fl_bf16_stores_avx512bw;
extern const struct fl_kernels fl_bf16_avx512bw;

static const struct gemm_family family = {.ordered = true,
                                          .kernels = &fl_gemm_dot_avx512_fast,
                                          .packing = &fl_gemm_pairs_packing_avx512bw,
                                          .stores = &fl_bf16_stores_avx512bw};

/* Class exact: depthwise convolutions, and weight gradients of lines of odd length, which multiply zero by elements of
 * the image that the definition does not read, NaN and Inf among them. */
static bool is_for_exact(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.product.windows;
    return gemm_is_depthwise(args) || (args->op == FL_OP_CONV2D_WEIGHT_GRAD && g->q % 2 && !fl_gemm_is_one_line(g));
}

static tensor_status bf16_gemm_avx512_fast(const struct fl_args *args) {
    return is_for_exact(args) ? fl_bf16_avx512bw.op[args->op](args) : fl_gemm(&family, args);
}

static size_t bf16_gemm_need_avx512_fast(const struct fl_args *args) {
    return is_for_exact(args) ? fl_bf16_avx512bw.need[args->op](args) : fl_gemm_need(&family, args);
}

extern const struct fl_kernels fl_bf16_avx512_fast;
const struct fl_kernels fl_bf16_avx512_fast = {
    .op =
        {
            FL_EACH_PRODUCT(bf16_gemm_avx512_fast),
        },
    .need =
        {
            FL_EACH_PRODUCT(bf16_gemm_need_avx512_fast),
        },
};
