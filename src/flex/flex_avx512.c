/* flex_avx512.c - the kernels of the shared-exponent formats that AVX-512 VNNI makes faster: matmul and convolution. */
#include "core/base/cpu.h"
#include "flex/flex_rows.h"
#include "gemm/gemm_int16.h"
#include "gemm/gemm_int8.h"
#include "gemm/gemm_mixed.h"

static const struct gemm_family family = {.kernels = &fl_gemm_int16_avx512,
                                          .packing = &fl_gemm_int16_packing_avx512bw,
                                          .depthwise = &fl_gemm_int16_depthwise_avx512bw,
                                          .stores = &fl_flex_stores_avx512bw};

/* The same where additions and shifts need the ports of multiplications. */
static const struct gemm_family family_of_two_ports = {.kernels = &fl_gemm_int16_two_ports_avx512,
                                                       .packing = &fl_gemm_int16_packing_avx512bw,
                                                       .depthwise = &fl_gemm_int16_depthwise_avx512bw,
                                                       .stores = &fl_flex_stores_avx512bw};

/* Of factors of at most 8 bits. */
static const struct gemm_family family_of_bytes = {.kernels = &fl_gemm_int8_avx512,
                                                   .packing = &fl_gemm_int8_packing_avx512,
                                                   .depthwise = &fl_gemm_int16_depthwise_avx512bw,
                                                   .stores = &fl_flex_stores_avx512bw};

static const struct gemm_family *family_for(const struct fl_args *args) {
    return fl_gemm_takes_bytes(args) ? &family_of_bytes : fl_cpu_has_two_ports() ? &family_of_two_ports : &family;
}

static tensor_status flex_gemm_avx512(const struct fl_args *args) {
    return fl_gemm(family_for(args), args);
}

static size_t flex_gemm_need_avx512(const struct fl_args *args) {
    return fl_gemm_need_of_either(args, fl_gemm_need(&family_of_bytes, args), fl_gemm_need(&family, args));
}

static tensor_status flex_mixed_avx512(const struct fl_args *args) {
    return fl_gemm_mixed(family_for(args), &fl_gemm_mixed_exact_avx512bw, args);
}

static size_t flex_mixed_need_avx512(const struct fl_args *args) {
    return fl_gemm_need_of_either(args, fl_gemm_mixed_need(&family_of_bytes, &fl_gemm_mixed_exact_avx512bw, args),
                                  fl_gemm_mixed_need(&family, &fl_gemm_mixed_exact_avx512bw, args));
}

const struct fl_kernels fl_flex_avx512 = {.mixed = flex_mixed_avx512,
                                          .mixed_need = flex_mixed_need_avx512,
                                          .op =
                                              {
                                                  FL_EACH_PRODUCT(flex_gemm_avx512),
                                              },
                                          .need = {
                                              FL_EACH_PRODUCT(flex_gemm_need_avx512),
                                          }};
