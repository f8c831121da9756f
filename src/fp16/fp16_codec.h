/* fp16_codec.h - IEEE binary16 to and from binary32.
 *
 *        15 14        10 9                  0
 *       +--+------------+--------------------+
 *       | s|  exponent  |      fraction      |      value (-1)^s * 2^(exponent - 15) * 1.fraction
 *       +--+------------+--------------------+
 *     exponent 0: (-1)^s * fraction * 2^-24 (zero and subnormals);  31: Inf (fraction 0), NaN
 *
 * binary32 has 8 exponent bits (bias 127) and 23 fraction bits: shifting a word by 13 aligns the fractions, and the
 * biases differ by 112. Both directions are free of branches, so that a loop over them is vectorised; kernels with F16C
 * use the instructions, which give the same bits. */
#ifndef FL_FP16_CODEC_H
#define FL_FP16_CODEC_H

#include "autoflex/both.h"
#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

FL_BOTH float fp16_to_float(uint16_t h) {
    const uint32_t magnitude = h & 0x7fffu, shifted = magnitude << 13;
    const uint32_t normal = shifted + (112u << 23);
    const uint32_t special = shifted | 0x7f800000u | (magnitude > 0x7c00u ? 0x00400000u : 0u); /* NaN is quieted */
    const float subnormal = (float)(int32_t)magnitude * 0x1p-24f;                              /* exact */
    uint32_t bits;
    memcpy(&bits, &subnormal, sizeof bits);
    bits = magnitude < 0x0400u ? bits : magnitude >= 0x7c00u ? special : normal;
    bits |= (uint32_t)(h & 0x8000u) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Nearest, ties to even. The payload of a NaN is truncated and the NaN quieted. */
FL_BOTH uint16_t fp16_from_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t magnitude = bits & 0x7fffffffu;
    /* From 2^-14 up: round 13 bits away in the integer; a carry out of the fraction is the next exponent, and the one
     * out of 65504 is Inf. Larger ones are cut to Inf. */
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    normal = normal < 0x7c00u ? normal : 0x7c00u;
    /* Below: the last place of a binary32 in [0.5, 1) is 2^-24, that of binary16 subnormals, so adding 0.5 rounds. */
    float aligned;
    memcpy(&aligned, &magnitude, sizeof aligned);
    aligned += 0.5f;
    uint32_t subnormal;
    memcpy(&subnormal, &aligned, sizeof subnormal);
    subnormal -= 0x3f000000u;
    const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    const uint32_t h = magnitude > 0x7f800000u ? nan : magnitude < 0x38800000u ? subnormal : normal;
    return (uint16_t)(h | (bits >> 16 & 0x8000u));
}

#ifdef __F16C__
static inline void fp16_to_float_block(const uint16_t *src, int64_t n, float *dst) {
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(src + i))));
#endif
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    for (; i < n; i++)
        dst[i] = _cvtsh_ss(src[i]);
}

static inline void fp16_from_float_block(uint16_t *dst, int64_t n, const float *src) {
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(dst + i), _mm512_cvtps_ph(_mm512_loadu_ps(src + i), NEAREST));
#endif
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), NEAREST));
    for (; i < n; i++)
        dst[i] = _cvtss_sh(src[i], NEAREST);
}
#define FL_DECODE_BLOCK fp16_to_float_block
#define FL_ENCODE_BLOCK fp16_from_float_block
#endif

/* What src/float/float_block.h asks of a codec. */
typedef uint16_t fl_element;
#define FL_DECODE fp16_to_float
#define FL_ENCODE fp16_from_float
#define FL_DIGITS 11
#define FL_BINARY16        /* a GPU has an instruction that decodes it ... */
#define FL_MMA gpu_mma_f16 /* ... and one of tensor cores */
#define FL_LEAST_NORMAL 0x1p-14
enum {
    FL_BEYOND = 0x47800000,   /* 2^16 */
    FL_OVERFLOW = 0x477ff000, /* 65520, half way from 65504 to 2^16 */
    FL_FLUSH = 0x33000000     /* 2^-25, half of the smallest subnormal */
};

#endif
