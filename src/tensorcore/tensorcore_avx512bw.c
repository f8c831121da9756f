/* tensorcore_avx512bw.c - the sums of tensor cores in vectors of AVX-512. */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16, BYTES = 64 };
typedef __m512i ints, bytes;
typedef __m512 floats;

#define INLINE static inline __attribute__((always_inline))
INLINE bytes bytes_set(int x) {
    return _mm512_set1_epi8((char)x);
}
INLINE bytes bytes_of_word(uint32_t x) {
    return _mm512_set1_epi32((int)x);
}
INLINE bytes bytes_load(const uint8_t *x) {
    return _mm512_loadu_si512(x);
}
INLINE void bytes_store(uint8_t *to, bytes x) {
    _mm512_storeu_si512(to, x);
}
INLINE bytes bytes_min(bytes a, bytes b) {
    return _mm512_min_epu8(a, b);
}
INLINE bytes bytes_max(bytes a, bytes b) {
    return _mm512_max_epu8(a, b);
}
INLINE bytes bytes_add(bytes a, bytes b) {
    return _mm512_add_epi8(a, b);
}
INLINE bytes bytes_add_saturated(bytes a, bytes b) {
    return _mm512_adds_epu8(a, b);
}
INLINE uint64_t bytes_above(bytes x, int limit) {
    return _mm512_cmpgt_epu8_mask(x, bytes_set(limit));
}

INLINE ints ints_set(int x) {
    return _mm512_set1_epi32(x);
}
INLINE ints ints_load(const int32_t *x) {
    return _mm512_loadu_si512(x);
}
INLINE ints ints_of_bytes(const uint8_t *x) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}
INLINE ints ints_add(ints a, ints b) {
    return _mm512_add_epi32(a, b);
}
INLINE ints ints_sub(ints a, ints b) {
    return _mm512_sub_epi32(a, b);
}
INLINE ints ints_or(ints a, ints b) {
    return _mm512_or_si512(a, b);
}
INLINE ints ints_max(ints a, ints b) {
    return _mm512_max_epi32(a, b);
}
/* y where x is 0, else otherwise. */
INLINE ints ints_where_zero(ints x, ints otherwise, ints y) {
    return _mm512_mask_mov_epi32(otherwise, _mm512_testn_epi32_mask(x, x), y);
}
/* The sign is set where the sum of a and b overflowed. */
INLINE ints ints_overflow(ints a, ints b, ints sum) {
    return _mm512_ternarylogic_epi32(a, b, sum, 0x42);
}
INLINE ints ints_field(floats x) {
    return _mm512_srli_epi32(_mm512_slli_epi32(_mm512_castps_si512(x), 1), 24);
}
INLINE ints ints_truncated(floats x) {
    return _mm512_cvttps_epi32(x);
}
INLINE uint32_t ints_signs(ints x) {
    return _mm512_movepi32_mask(x);
}

INLINE floats floats_set(float x) {
    return _mm512_set1_ps(x);
}
INLINE floats floats_load(const float *x) {
    return _mm512_loadu_ps(x);
}
INLINE void floats_store(float *to, floats x) {
    _mm512_storeu_ps(to, x);
}
INLINE floats floats_multiply(floats a, floats b) {
    return _mm512_mul_ps(a, b);
}
INLINE floats floats_add(floats a, floats b) {
    return _mm512_add_ps(a, b);
}
INLINE floats floats_and(floats x, ints y) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), y));
}
INLINE floats floats_of_field(ints x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 23));
}
/* Integers as floats, truncated to 24 bits. */
INLINE floats floats_truncated(ints x) {
    return _mm512_cvt_roundepi32_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

#define FL_ISA avx512bw
#include "tensorcore/tensorcore_kernels.inc"
