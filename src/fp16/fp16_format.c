/* fp16_format.c - the identity of fp16. */
#include "fp16/fp16_codec.h"
#include "float/float_format.inc"

extern const struct fl_kernels fl_fp16_portable, fl_fp16_avx2, fl_fp16_avx512bw;

const struct fl_format fl_format_fp16 = {
    .id = FMT_FP16,
    .name = "fp16",
    .summary = "IEEE binary16: 1 sign, 5 exponent, 10 fraction bits; 2^-24 to 65504",
    .arithmetic = FL_ARITHMETIC_FLOAT,
    .bytes = sizeof(fl_element),
    .bits = 16,
    .operand = FL_OPERAND_FP16,
    .wide_bytes = sizeof(float),
    .draws = true,
    .decode = decode,
    .encode = encode,
    .sets = {[FL_PORTABLE] = &fl_fp16_portable,
             [FL_AVX2] = FL_SET_AVX2(fl_fp16_avx2),
             [FL_AVX512BW] = FL_SET_AVX512(fl_fp16_avx512bw)},
};
