/* flex_pairs.h - vectors of 32-bit integers, each made from a pair of mantissas by one multiply-add: for sums that fit
 * by a bound. A group is a vector of mantissas; two groups interleave to a low and a high vector of pairs, and packing
 * two vectors of results restores the order of the mantissas. Only if the instruction exists.
 *
 * Gives: FLEX_PAIRS, PAIRS, GROUP, pairs, mantissas, place_of, pairs_at, pairs_keep, pairs_all, mantissas_all,
 * pairs_low, pairs_high, pairs_product, pairs_add_product, pairs_largest, pairs_pack, pairs_to_odd,
 * pairs_to_odd_sticky, pairs_to_even, pairs_count_lost, mantissas_at, mantissas_keep, mantissas_gated,
 * mantissas_largest, mantissas_smallest, mantissas_negated, any_reaches. */
#ifndef FL_FLEX_PAIRS_H
#define FL_FLEX_PAIRS_H

#include "flex/flex_lanes.h"

#if defined(__AVX2__)
#define FLEX_PAIRS
enum { PAIRS = LANES * 2, GROUP = LANES * 4 };

typedef int32_t pairs __attribute__((vector_size(PAIRS * 4)));
typedef uint32_t upairs __attribute__((vector_size(PAIRS * 4)));

/* The place in a group of lane l of the low (half 0) or high (half 1) vector. */
static inline int place_of(int half, int l) {
    return l / 4 * 8 + half * 4 + l % 4;
}

static inline pairs pairs_at(const int32_t *p) {
    pairs x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline void pairs_keep(int32_t *p, pairs x) {
    memcpy(p, &x, sizeof x);
}

static inline pairs pairs_all(int32_t x) {
    return (pairs){0} + x;
}

/* The operations that differ between the instruction sets, with vector type and prefix of intrinsics. */
#if defined(__AVX512F__)
#define PAIRS_OP(name) _mm512_##name
typedef __m512i mantissas;
#else
#define PAIRS_OP(name) _mm256_##name
typedef __m256i mantissas;
#endif

static inline mantissas mantissas_all(int16_t x) {
    return PAIRS_OP(set1_epi16)(x);
}

static inline mantissas pairs_low(mantissas a, mantissas b) {
    return PAIRS_OP(unpacklo_epi16)(a, b);
}

static inline mantissas pairs_high(mantissas a, mantissas b) {
    return PAIRS_OP(unpackhi_epi16)(a, b);
}

/* a0 b0 + a1 b1 of each pair */
static inline pairs pairs_product(mantissas a, mantissas b) {
    return (pairs)PAIRS_OP(madd_epi16)(a, b);
}

static inline pairs pairs_largest(pairs a, pairs b) {
    return (pairs)PAIRS_OP(max_epi32)((mantissas)a, (mantissas)b);
}

static inline mantissas pairs_pack(pairs low, pairs high) {
    return PAIRS_OP(packs_epi32)((mantissas)low, (mantissas)high);
}

/* sum + a0 b0 + a1 b1 of each pair */
static inline pairs pairs_add_product(pairs sum, mantissas a, mantissas b) {
#if defined(__AVX512VNNI__)
    return (pairs)_mm512_dpwssd_epi32((mantissas)sum, a, b);
#else
    return sum + pairs_product(a, b);
#endif
}

/* Sets the last bit of x if the low half of rest is not zero. */
static inline pairs pairs_to_odd(pairs x, pairs rest) {
    return x | (pairs)PAIRS_OP(min_epu16)((mantissas)rest, (mantissas)pairs_all(1));
}

/* The same, also if sticky, 1 or 0, is 1. */
static inline pairs pairs_to_odd_sticky(pairs x, pairs rest, pairs sticky) {
#if defined(__AVX512F__)
    const mantissas one = PAIRS_OP(min_epu16)((mantissas)rest, (mantissas)pairs_all(1));
    return (pairs)_mm512_ternarylogic_epi32((mantissas)x, one, (mantissas)sticky, 0xfe);
#else
    return pairs_to_odd(x, rest) | sticky;
#endif
}

static inline mantissas mantissas_largest(mantissas a, mantissas b) {
    return PAIRS_OP(max_epi16)(a, b);
}

static inline mantissas mantissas_smallest(mantissas a, mantissas b) {
    return PAIRS_OP(min_epi16)(a, b);
}

/* saturated: of -32768, 32767 */
static inline mantissas mantissas_negated(mantissas x) {
    return PAIRS_OP(subs_epi16)(mantissas_all(0), x);
}

#if defined(__AVX512F__)

static inline mantissas mantissas_at(const int16_t *p) {
    return _mm512_loadu_si512(p);
}

static inline void mantissas_keep(int16_t *p, mantissas x) {
    _mm512_storeu_si512(p, x);
}

/* 0 if the gate is not above zero. A masked load would wait for the gate to come from memory. */
static inline mantissas mantissas_gated(const int16_t *p, const int16_t *gate) {
    mantissas x = mantissas_at(p);
    __asm__("" : "+v"(x)); /* else the compiler makes it one */
    return _mm512_maskz_mov_epi16(_mm512_cmpgt_epi16_mask(mantissas_at(gate), _mm512_setzero_si512()), x);
}

/* Clears the last bit of m if x & mask is zero. */
static inline pairs pairs_to_even(pairs m, pairs x, pairs mask) {
    const __mmask16 tie = _mm512_testn_epi32_mask((mantissas)x, (mantissas)mask);
    return (pairs)_mm512_mask_and_epi32((mantissas)m, tie, (mantissas)m, _mm512_set1_epi32(-2));
}

/* count + 1 if m is zero and x differs from origin */
static inline pairs pairs_count_lost(pairs count, pairs m, pairs x, pairs origin) {
    const __mmask16 zero = _mm512_testn_epi32_mask((mantissas)m, (mantissas)m);
    const __mmask16 lost = _mm512_mask_cmpneq_epi32_mask(zero, (mantissas)x, (mantissas)origin);
    return (pairs)_mm512_mask_sub_epi32((mantissas)count, lost, (mantissas)count, _mm512_set1_epi32(-1));
}

/* whether any x >= least */
static inline bool any_reaches(mantissas x, int16_t least) {
    return _mm512_cmpge_epi16_mask(x, mantissas_all(least)) != 0;
}

#else

static inline mantissas mantissas_at(const int16_t *p) {
    return _mm256_loadu_si256((const mantissas *)p);
}

static inline void mantissas_keep(int16_t *p, mantissas x) {
    _mm256_storeu_si256((mantissas *)p, x);
}

static inline mantissas mantissas_gated(const int16_t *p, const int16_t *gate) {
    return _mm256_and_si256(mantissas_at(p), _mm256_cmpgt_epi16(mantissas_at(gate), _mm256_setzero_si256()));
}

static inline pairs pairs_to_even(pairs m, pairs x, pairs mask) {
    const mantissas tie = _mm256_cmpeq_epi32(_mm256_and_si256((mantissas)x, (mantissas)mask), mantissas_all(0));
    return (pairs)_mm256_andnot_si256(_mm256_srli_epi32(tie, 31), (mantissas)m);
}

static inline pairs pairs_count_lost(pairs count, pairs m, pairs x, pairs origin) {
    const mantissas zero = _mm256_cmpeq_epi32((mantissas)m, mantissas_all(0));
    const mantissas same = _mm256_cmpeq_epi32((mantissas)x, (mantissas)origin);
    return count - (pairs)_mm256_andnot_si256(same, zero);
}

static inline bool any_reaches(mantissas x, int16_t least) {
    const mantissas below = _mm256_cmpgt_epi16(mantissas_all(least), x);
    return _mm256_movemask_epi8(below) != -1;
}

#endif
#undef PAIRS_OP
#endif

#endif
