/* tensorcore_avx2.c - the sums of tensor cores in vectors of AVX2. */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 8, BYTES = 32 };
typedef __m256i ints, bytes;
typedef __m256 floats;

#define INLINE static inline __attribute__((always_inline))
INLINE bytes bytes_set(int x) {
    return _mm256_set1_epi8((char)x);
}
INLINE bytes bytes_of_word(uint32_t x) {
    return _mm256_set1_epi32((int)x);
}
INLINE bytes bytes_load(const uint8_t *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}
INLINE void bytes_store(uint8_t *to, bytes x) {
    _mm256_storeu_si256((__m256i *)(void *)to, x);
}
INLINE bytes bytes_min(bytes a, bytes b) {
    return _mm256_min_epu8(a, b);
}
INLINE bytes bytes_max(bytes a, bytes b) {
    return _mm256_max_epu8(a, b);
}
INLINE bytes bytes_add(bytes a, bytes b) {
    return _mm256_add_epi8(a, b);
}
INLINE bytes bytes_add_saturated(bytes a, bytes b) {
    return _mm256_adds_epu8(a, b);
}
INLINE uint64_t bytes_above(bytes x, int limit) {
    const bytes above = _mm256_cmpeq_epi8(_mm256_max_epu8(x, bytes_set(limit + 1)), x);
    return (uint32_t)_mm256_movemask_epi8(above);
}

INLINE ints ints_set(int x) {
    return _mm256_set1_epi32(x);
}
INLINE ints ints_load(const int32_t *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}
INLINE ints ints_of_bytes(const uint8_t *x) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
}
INLINE ints ints_add(ints a, ints b) {
    return _mm256_add_epi32(a, b);
}
INLINE ints ints_sub(ints a, ints b) {
    return _mm256_sub_epi32(a, b);
}
INLINE ints ints_or(ints a, ints b) {
    return _mm256_or_si256(a, b);
}
INLINE ints ints_max(ints a, ints b) {
    return _mm256_max_epi32(a, b);
}
/* y where x is 0, else otherwise. */
INLINE ints ints_where_zero(ints x, ints otherwise, ints y) {
    return _mm256_blendv_epi8(otherwise, y, _mm256_cmpeq_epi32(x, _mm256_setzero_si256()));
}
/* The sign is set where the sum of a and b overflowed. */
INLINE ints ints_overflow(ints a, ints b, ints sum) {
    return _mm256_and_si256(_mm256_xor_si256(a, sum), _mm256_xor_si256(b, sum));
}
INLINE ints ints_field(floats x) {
    return _mm256_srli_epi32(_mm256_slli_epi32(_mm256_castps_si256(x), 1), 24);
}
INLINE ints ints_truncated(floats x) {
    return _mm256_cvttps_epi32(x);
}
INLINE uint32_t ints_signs(ints x) {
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(x));
}

INLINE floats floats_set(float x) {
    return _mm256_set1_ps(x);
}
INLINE floats floats_load(const float *x) {
    return _mm256_loadu_ps(x);
}
INLINE void floats_store(float *to, floats x) {
    _mm256_storeu_ps(to, x);
}
INLINE floats floats_multiply(floats a, floats b) {
    return _mm256_mul_ps(a, b);
}
INLINE floats floats_add(floats a, floats b) {
    return _mm256_add_ps(a, b);
}
INLINE floats floats_and(floats x, ints y) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(x), y));
}
INLINE floats floats_of_field(ints x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 23));
}
/* Integers as floats, truncated to 24 bits: the nearest float, and the one below if that exceeds the integer. An
 * integer that rounds to 2^31 converts back to -2^31, and the difference is negative as well. */
INLINE floats floats_truncated(ints x) {
    const ints size = _mm256_abs_epi32(x);
    const floats near = _mm256_cvtepi32_ps(size);
    const ints above = _mm256_srai_epi32(_mm256_sub_epi32(size, _mm256_cvttps_epi32(near)), 31),
               bits = _mm256_add_epi32(_mm256_castps_si256(near), above);
    return _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_and_si256(x, _mm256_set1_epi32(INT32_MIN))));
}

#define FL_ISA avx2
#include "tensorcore/tensorcore_kernels.inc"
