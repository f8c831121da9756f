/* flex_avx2_vnni.c - the kernels of the shared-exponent formats that AVX-VNNI makes faster: matmul and convolution. */
#include "flex/flex_rows.h"
#include "gemm/gemm_int16.h"
#include "gemm/gemm_mixed.h"

static const struct gemm_family family = {.kernels = &fl_gemm_int16_avx2_vnni,
                                          .packing = &fl_gemm_int16_packing_avx2,
                                          .depthwise = &fl_gemm_int16_depthwise_avx2,
                                          .stores = &fl_flex_stores_avx2};

static tensor_status flex_gemm_avx2_vnni(const struct fl_args *args) {
    return fl_gemm(&family, args);
}

static size_t flex_gemm_need_avx2_vnni(const struct fl_args *args) {
    return fl_gemm_need(&family, args);
}

static tensor_status flex_mixed_avx2_vnni(const struct fl_args *args) {
    return fl_gemm_mixed(&family, &fl_gemm_mixed_exact_avx2, args);
}

static size_t flex_mixed_need_avx2_vnni(const struct fl_args *args) {
    return fl_gemm_mixed_need(&family, &fl_gemm_mixed_exact_avx2, args);
}

const struct fl_kernels fl_flex_avx2_vnni = {.mixed = flex_mixed_avx2_vnni,
                                             .mixed_need = flex_mixed_need_avx2_vnni,
                                             .op =
                                                 {
                                                     FL_EACH_PRODUCT(flex_gemm_avx2_vnni),
                                                 },
                                             .need = {
                                                 FL_EACH_PRODUCT(flex_gemm_need_avx2_vnni),
                                             }};
