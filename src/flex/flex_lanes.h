/* flex_lanes.h - a vector of 64-bit integers, for loops that compilers do not vectorise well by themselves: 32 x 32 ->
 * 64 bit products, maxima, arithmetic shifts, and shorter integers at both ends.
 *
 * lanes_floor_shift shifts arithmetically. Instruction sets without that instruction do it on x + LANES_BIAS, which is
 * never negative: callers carry the bias in their sums, |x| < 2^62.
 *
 * Gives: LANES, LANES_WIDE_PRODUCT, LANES_BIAS, lanes, lanes_at, lanes_all, lanes_mantissas, lanes_wide,
 * lanes_unsigned, lanes_gated, lanes_product, lanes_largest, lanes_smallest, lanes_floor_shift, lanes_to_even,
 * lanes_count_lost, lanes_store, lanes_store_top, lanes_store_high. */
#ifndef FL_FLEX_LANES_H
#define FL_FLEX_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 8, LANES_WIDE_PRODUCT = 0 };
#define LANES_BIAS 0
#elif defined(__AVX2__)
#include <immintrin.h>
enum { LANES = 4, LANES_WIDE_PRODUCT = 0 };
#define LANES_BIAS ((int64_t)1 << 62)
#else
enum { LANES = 2, LANES_WIDE_PRODUCT = 1 }; /* lanes_product takes all 64 bits of the first factor */
#define LANES_BIAS ((int64_t)1 << 62)
#endif

typedef int64_t lanes __attribute__((vector_size(LANES * 8)));
typedef uint64_t ulanes __attribute__((vector_size(LANES * 8)));

static inline lanes lanes_at(const int64_t *p) {
    lanes x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline lanes lanes_all(int64_t x) {
    return (lanes){0} + x;
}

#if defined(__AVX512F__)

static inline lanes lanes_mantissas(const int16_t *p) {
    return (lanes)_mm512_cvtepi16_epi64(_mm_loadu_si128((const __m128i *)p));
}

static inline lanes lanes_wide(const int32_t *p) {
    return (lanes)_mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)p));
}

static inline lanes lanes_unsigned(const uint32_t *p) {
    return (lanes)_mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)p));
}

/* 0 if the gate is not above zero */
static inline lanes lanes_gated(const int16_t *p, const int16_t *gate) {
    const __m128i open = _mm_cmpgt_epi16(_mm_loadu_si128((const __m128i *)gate), _mm_setzero_si128());
    return (lanes)_mm512_cvtepi16_epi64(_mm_and_si128(_mm_loadu_si128((const __m128i *)p), open));
}

/* product of the low 32 bits (LANES_WIDE_PRODUCT: of all bits of a) */
static inline lanes lanes_product(lanes a, lanes b) {
    return (lanes)_mm512_mul_epi32((__m512i)a, (__m512i)b);
}

static inline lanes lanes_largest(lanes a, lanes b) {
    return (lanes)_mm512_max_epi64((__m512i)a, (__m512i)b);
}

static inline lanes lanes_smallest(lanes a, lanes b) {
    return (lanes)_mm512_min_epi64((__m512i)a, (__m512i)b);
}

static inline lanes lanes_floor_shift(lanes x, lanes shift) {
    return (lanes)_mm512_srav_epi64((__m512i)x, (__m512i)shift);
}

/* Clears the last bit of m if x & mask is zero. */
static inline lanes lanes_to_even(lanes m, lanes x, lanes mask) {
    const __mmask8 tie = _mm512_testn_epi64_mask((__m512i)x, (__m512i)mask);
    return (lanes)_mm512_mask_and_epi64((__m512i)m, tie, (__m512i)m, _mm512_set1_epi64(-2));
}

/* count + 1 if m is zero and x differs from origin */
static inline lanes lanes_count_lost(lanes count, lanes m, lanes x, lanes origin) {
    const __mmask8 zero = _mm512_testn_epi64_mask((__m512i)m, (__m512i)m);
    const __mmask8 lost = _mm512_mask_cmpneq_epi64_mask(zero, (__m512i)x, (__m512i)origin);
    return (lanes)_mm512_mask_sub_epi64((__m512i)count, lost, (__m512i)count, _mm512_set1_epi64(-1));
}

/* stores the low 16 bits of each lane */
static inline void lanes_store(int16_t *p, lanes m) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi64_epi16((__m512i)m));
}

/* stores the high 32 bits of each lane, saturated to 16 */
static inline void lanes_store_top(int16_t *p, lanes x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi64_epi16(_mm512_srai_epi64((__m512i)x, 32)));
}

/* stores the high 32 bits of each lane, those of a first */
static inline void lanes_store_high(int32_t *p, lanes a, lanes b) {
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi32((__m512i)a, odd, (__m512i)b));
}

#else

static inline lanes lanes_largest(lanes a, lanes b) {
    const lanes above = a > b;
    return (a & above) | (b & ~above);
}

static inline lanes lanes_smallest(lanes a, lanes b) {
    const lanes above = a > b;
    return (b & above) | (a & ~above);
}

static inline lanes lanes_floor_shift(lanes x, lanes shift) {
    return (lanes)((ulanes)x >> (ulanes)shift) - (lanes)((ulanes)lanes_all(LANES_BIAS) >> (ulanes)shift);
}

static inline lanes lanes_to_even(lanes m, lanes x, lanes mask) {
    return m & ~(((x & mask) == 0) & 1);
}

static inline lanes lanes_count_lost(lanes count, lanes m, lanes x, lanes origin) {
    return count - ((m == 0) & (x != origin));
}

#if defined(__AVX2__)

static inline lanes lanes_mantissas(const int16_t *p) {
    return (lanes)_mm256_cvtepi16_epi64(_mm_loadl_epi64((const __m128i *)p));
}

static inline lanes lanes_wide(const int32_t *p) {
    return (lanes)_mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)p));
}

static inline lanes lanes_unsigned(const uint32_t *p) {
    return (lanes)_mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)p));
}

static inline lanes lanes_gated(const int16_t *p, const int16_t *gate) {
    const __m128i open = _mm_cmpgt_epi16(_mm_loadl_epi64((const __m128i *)gate), _mm_setzero_si128());
    return (lanes)_mm256_cvtepi16_epi64(_mm_and_si128(_mm_loadl_epi64((const __m128i *)p), open));
}

static inline lanes lanes_product(lanes a, lanes b) {
    return (lanes)_mm256_mul_epi32((__m256i)a, (__m256i)b);
}

static inline void lanes_store(int16_t *p, lanes m) {
    const __m256i low = _mm256_setr_epi8(0, 1, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 1, 8, 9, -1, -1,
                                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i pairs = _mm256_shuffle_epi8((__m256i)m, low);
    _mm_storel_epi64((__m128i *)p,
                     _mm_unpacklo_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)));
}

static inline void lanes_store_top(int16_t *p, lanes x) {
    const __m256i high = _mm256_permutevar8x32_epi32((__m256i)x, _mm256_setr_epi32(1, 3, 5, 7, 1, 3, 5, 7));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi32(_mm256_castsi256_si128(high), _mm_setzero_si128()));
}

static inline void lanes_store_high(int32_t *p, lanes a, lanes b) {
    const __m256i both = (__m256i)_mm256_shuffle_ps((__m256)a, (__m256)b, _MM_SHUFFLE(3, 1, 3, 1));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(both, _MM_SHUFFLE(3, 1, 2, 0)));
}

#else

static inline lanes lanes_mantissas(const int16_t *p) {
    return (lanes){p[0], p[1]};
}

static inline lanes lanes_wide(const int32_t *p) {
    return (lanes){p[0], p[1]};
}

static inline lanes lanes_unsigned(const uint32_t *p) {
    return (lanes){p[0], p[1]};
}

static inline lanes lanes_gated(const int16_t *p, const int16_t *gate) {
    return (lanes){gate[0] > 0 ? p[0] : 0, gate[1] > 0 ? p[1] : 0};
}

static inline lanes lanes_product(lanes a, lanes b) {
    return (lanes){a[0] * b[0], a[1] * b[1]};
}

static inline void lanes_store(int16_t *p, lanes m) {
    p[0] = (int16_t)m[0];
    p[1] = (int16_t)m[1];
}

static inline void lanes_store_top(int16_t *p, lanes x) {
    for (int l = 0; l < LANES; l++) {
        const int32_t high = (int32_t)((uint64_t)x[l] >> 32);
        p[l] = (int16_t)(high > INT16_MAX ? INT16_MAX : high < INT16_MIN ? INT16_MIN : high);
    }
}

static inline void lanes_store_high(int32_t *p, lanes a, lanes b) {
    p[0] = (int32_t)((uint64_t)a[0] >> 32);
    p[1] = (int32_t)((uint64_t)a[1] >> 32);
    p[2] = (int32_t)((uint64_t)b[0] >> 32);
    p[3] = (int32_t)((uint64_t)b[1] >> 32);
}

#endif
#endif

#endif
