/* fp32_format.c - the identity of fp32. */
#include "fp32/fp32_codec.h"
#include "float/float_format.inc"

extern const struct fl_kernels fl_fp32_portable, fl_fp32_avx2, fl_fp32_avx512bw;

const struct fl_format fl_format_fp32 = {
    .id = FMT_FP32,
    .name = "fp32",
    .summary = "IEEE binary32: the baseline",
    .arithmetic = FL_ARITHMETIC_FLOAT,
    .bytes = sizeof(fl_element),
    .bits = 32,
    .operand = FL_OPERAND_TF32,
    .decode = decode,
    .encode = encode,
    .sets = {[FL_PORTABLE] = &fl_fp32_portable,
             [FL_AVX2] = FL_SET_AVX2(fl_fp32_avx2),
             [FL_AVX512BW] = FL_SET_AVX512(fl_fp32_avx512bw)},
};
