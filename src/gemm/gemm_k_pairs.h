/* gemm_k_pairs.h - vectors of k-pairs of 16-bit elements: the loads of gemm_pack_panels.inc.
 *
 * Gives: element, LANES, PER_STEP, packed_vector, packed_along, packed_pair, packed_across, packed_across_two,
 * packed_sum, packed_difference. */
#ifndef FL_GEMM_K_PAIRS_H
#define FL_GEMM_K_PAIRS_H

#include "gemm/gemm.h"
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef int16_t element;
enum { PER_STEP = 2 };

#if defined(__AVX512F__)
enum { LANES = 16 };
typedef __m512i packed_vector;

/* Lanes 0, 1, ...: neighbouring k-pairs, of which only k elements exist. */
static inline packed_vector packed_along(const element *src, int64_t k) {
    return k >= 32 ? _mm512_loadu_si512(src) : _mm512_maskz_loadu_epi16((__mmask32)((1u << k) - 1), src);
}

/* Lanes 0, 1, ... count - 1: first[lane] with second[lane]; second NULL: zeros. */
static inline packed_vector packed_pair(const element *first, const element *second, int64_t count) {
    const __mmask16 mask = count >= 16 ? 0xffff : (__mmask16)((1u << count) - 1);
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first));
    if (!second)
        return low;
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Sums and differences of elements, modulo 2^16. */
static inline packed_vector packed_sum(packed_vector x, packed_vector y) {
    return _mm512_add_epi16(x, y);
}
static inline packed_vector packed_difference(packed_vector x, packed_vector y) {
    return _mm512_sub_epi16(x, y);
}

/* Two vectors of k-pairs, all of which exist. */
static inline void packed_across_two(const element *src, int64_t next, packed_vector *x) {
    static const uint16_t order[32]
        __attribute__((aligned(64))) = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i first = _mm512_loadu_si512(src), second = _mm512_loadu_si512(src + next);
    const __m512i low = _mm512_load_si512(order), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    x[0] = _mm512_permutex2var_epi16(first, low, second);
    x[1] = _mm512_permutex2var_epi16(first, high, second);
}
#elif defined(__AVX2__)
enum { LANES = 8 };
typedef __m256i packed_vector;

static inline packed_vector packed_along(const element *src, int64_t k) {
    if (k >= 16)
        return _mm256_loadu_si256((const __m256i *)src);
    element some[16] = {0};
    memcpy(some, src, (size_t)k * sizeof *some);
    return _mm256_loadu_si256((const __m256i *)some);
}

static inline __m256i widened_elements(const element *src, int64_t count) {
    if (count >= 8)
        return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)src));
    element some[8] = {0};
    memcpy(some, src, (size_t)count * sizeof *some);
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)some));
}

static inline packed_vector packed_pair(const element *first, const element *second, int64_t count) {
    const __m256i low = widened_elements(first, count);
    return second ? _mm256_or_si256(low, _mm256_slli_epi32(widened_elements(second, count), 16)) : low;
}

static inline packed_vector packed_sum(packed_vector x, packed_vector y) {
    return _mm256_add_epi16(x, y);
}
static inline packed_vector packed_difference(packed_vector x, packed_vector y) {
    return _mm256_sub_epi16(x, y);
}

static inline void packed_across_two(const element *src, int64_t next, packed_vector *x) {
    const __m256i first = _mm256_loadu_si256((const __m256i *)src),
                  second = _mm256_loadu_si256((const __m256i *)(src + next));
    const __m256i low = _mm256_unpacklo_epi16(first, second), high = _mm256_unpackhi_epi16(first, second);
    x[0] = _mm256_permute2x128_si256(low, high, 0x20);
    x[1] = _mm256_permute2x128_si256(low, high, 0x31);
}
#else
enum { LANES = 4 };
typedef struct {
    struct {
        element k[2];
    } of[LANES];
} packed_vector;

static inline packed_vector packed_along(const element *src, int64_t k) {
    packed_vector x = {{{{0}}}};
    memcpy(&x, src, (size_t)(k < 2 * LANES ? k : 2 * LANES) * sizeof *src);
    return x;
}
static inline packed_vector packed_pair(const element *first, const element *second, int64_t count) {
    packed_vector x = {{{{0}}}};
    for (int64_t i = 0; i < LANES && i < count; i++) {
        x.of[i].k[0] = first[i];
        x.of[i].k[1] = second ? second[i] : (element)0;
    }
    return x;
}
static inline packed_vector packed_sum(packed_vector x, packed_vector y) {
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 2; k++)
            x.of[i].k[k] = (element)((uint16_t)x.of[i].k[k] + (uint16_t)y.of[i].k[k]);
    return x;
}
static inline packed_vector packed_difference(packed_vector x, packed_vector y) {
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 2; k++)
            x.of[i].k[k] = (element)((uint16_t)x.of[i].k[k] - (uint16_t)y.of[i].k[k]);
    return x;
}
static inline void packed_across_two(const element *src, int64_t next, packed_vector *x) {
    x[0] = packed_pair(src, src + next, LANES);
    x[1] = packed_pair(src + LANES, src + LANES + next, LANES);
}
#endif

/* Lanes 0, 1, ...: src[lane] with its partner src[lane + next], or zero if fewer than two are there. */
static inline packed_vector packed_across(const element *src, int64_t next, int64_t count, int64_t there) {
    return packed_pair(src, there > 1 ? src + next : NULL, count);
}

#endif
