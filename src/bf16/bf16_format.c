/* bf16_format.c - the identity of bf16. */
#include "bf16/bf16_codec.h"
#include "float/float_format.inc"

extern const struct fl_kernels fl_bf16_portable, fl_bf16_avx2, fl_bf16_avx512bw, fl_bf16_avx512_fast,
    fl_bf16_avx512_amx_fast;

const struct fl_format fl_format_bf16 = {
    .id = FMT_BF16,
    .name = "bf16",
    .summary = "bfloat16: 1 sign, 8 exponent, 7 fraction bits; the upper half of binary32",
    .arithmetic = FL_ARITHMETIC_FLOAT,
    .bytes = sizeof(fl_element),
    .bits = 16,
    .operand = FL_OPERAND_BF16,
    .wide_bytes = sizeof(float),
    .truncates = true,
    .draws = true,
    .decode = decode,
    .encode = encode,
    .sets = {[FL_PORTABLE] = &fl_bf16_portable,
             [FL_AVX2] = FL_SET_AVX2(fl_bf16_avx2),
             [FL_AVX512BW] = FL_SET_AVX512(fl_bf16_avx512bw),
             [FL_AVX512_FAST] = FL_SET_AVX512_FAST(fl_bf16_avx512_fast),
             [FL_AVX512_AMX_FAST] = FL_SET_AVX512_AMX_FAST(fl_bf16_avx512_amx_fast)},
};
