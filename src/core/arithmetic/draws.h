/* draws.h - the draws of stochastic rounding for a run of elements: Philox 4x32-10 (core/arithmetic/philox.h) on
 * vectors.
 *
 * One evaluation gives the draws of four elements. Elements of a write differ only in the low words of their counters,
 * so half of the first two rounds is the same for all: an evaluation costs 18 multiplications instead of 20, and as
 * many shifts and three-way exclusive ors, on every instruction set. A vector has one counter in each 64-bit lane: a
 * multiplication reads the low half of a lane, its result fills the lane, and the high halves are never read.
 *
 * Gives: DRAW_RUN, draws, draws_of. */
#ifndef FL_DRAWS_H
#define FL_DRAWS_H

#include "core/base/memory.h"
#include "core/table/kernel.h"
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
enum { DRAW_LANES = 8 };
#elif defined(__AVX2__)
#include <immintrin.h>
enum { DRAW_LANES = 4 };
#else
enum { DRAW_LANES = 2 };
#endif
typedef uint64_t draw_words __attribute__((vector_size(DRAW_LANES * 8)));

enum {
    DRAW_RUN = 4096,              /* elements of a run, at most, so that the draws stay in L1 */
    DRAW_VECTOR = 4 * DRAW_LANES, /* elements whose draws a vector of counters gives */
    DRAW_VECTORS = 4,             /* vectors computed in parallel */
    DRAW_ROUNDS = 10
};

struct draws {
    uint32_t of[DRAW_RUN + 2 * DRAW_VECTOR] __attribute__((aligned(FL_ALIGNMENT)));
};

/* Values that the counters of a group share: keys of the rounds, and constant words of the counter. They are vectors,
 * because compilers broadcast scalars anew in every round. */
struct draw_constants {
    draw_words key[2][DRAW_ROUNDS];
    draw_words third1;         /* round 1 combines the third word with this by exclusive or, */
    draw_words first2, third2; /* round 2 the first and third words with these, and */
    draw_words fourth2;        /* the fourth word with this */
};

enum { PHILOX_M0 = 0xD2511F53, PHILOX_M1 = 0xCD9E8D57, PHILOX_W0 = 0x9E3779B9, PHILOX_W1 = 0xBB67AE85 };

/* second: the second word of the counters, the high one of element / 4. */
static void draw_constants_of(const struct fl_rounding *how, uint32_t second, struct draw_constants *c) {
    const uint32_t key0 = (uint32_t)how->key, key1 = (uint32_t)(how->key >> 32);
    for (uint32_t i = 0; i < DRAW_ROUNDS; i++) {
        c->key[0][i] = (draw_words){0} + (key0 + i * (uint32_t)PHILOX_W0);
        c->key[1][i] = (draw_words){0} + (key1 + i * (uint32_t)PHILOX_W1);
    }
    const uint64_t p1 = (uint64_t)PHILOX_M1 * (uint32_t)how->write;
    const uint64_t p0 = (uint64_t)PHILOX_M0 * ((uint32_t)(p1 >> 32) ^ second ^ key0);
    c->third1 = (draw_words){0} + ((uint32_t)(how->write >> 32) ^ key1);
    c->first2 = (draw_words){0} + ((uint32_t)p1 ^ (key0 + (uint32_t)PHILOX_W0));
    c->third2 = (draw_words){0} + ((uint32_t)(p0 >> 32) ^ (key1 + (uint32_t)PHILOX_W1));
    c->fourth2 = (draw_words){0} + (uint32_t)p0;
}

#if defined(__AVX512F__)

static inline draw_words draw_product(draw_words x, uint32_t by) {
    return (draw_words)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(by));
}

static inline draw_words draw_xor(draw_words a, draw_words b, draw_words c) {
    return (draw_words)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
}

/* Counter i of a vector is in lane i / 4 + i % 4 * 2: interleaved within 128 bits, words come out in order. */
static inline draw_words draw_counters(uint32_t first) {
    return (draw_words)_mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Stores the words of all counters, which are in the low halves of four vectors. */
static inline void draw_keep(uint32_t *to, draw_words w0, draw_words w1, draw_words w2, draw_words w3) {
    const __m512i low = _mm512_mask_shuffle_epi32((__m512i)w0, 0xaaaa, (__m512i)w1, _MM_PERM_CCAA),
                  high = _mm512_mask_shuffle_epi32((__m512i)w2, 0xaaaa, (__m512i)w3, _MM_PERM_CCAA);
    _mm512_store_si512(to, _mm512_unpacklo_epi64(low, high));
    _mm512_store_si512(to + 16, _mm512_unpackhi_epi64(low, high));
}

#elif defined(__AVX2__)

static inline draw_words draw_product(draw_words x, uint32_t by) {
    return (draw_words)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(by));
}

static inline draw_words draw_xor(draw_words a, draw_words b, draw_words c) {
    return a ^ b ^ c;
}

static inline draw_words draw_counters(uint32_t first) {
    return (draw_words)_mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 2, 1, 3));
}

static inline void draw_keep(uint32_t *to, draw_words w0, draw_words w1, draw_words w2, draw_words w3) {
    const __m256i low = _mm256_blend_epi32((__m256i)w0, _mm256_slli_epi64((__m256i)w1, 32), 0xaa),
                  high = _mm256_blend_epi32((__m256i)w2, _mm256_slli_epi64((__m256i)w3, 32), 0xaa);
    _mm256_store_si256((__m256i *)to, _mm256_unpacklo_epi64(low, high));
    _mm256_store_si256((__m256i *)(to + 8), _mm256_unpackhi_epi64(low, high));
}

#else

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline draw_words draw_product(draw_words x, uint32_t by) {
#if defined(__SSE2__)
    return (draw_words)_mm_mul_epu32((__m128i)x, _mm_set1_epi64x(by)); /* compilers do not choose this instruction */
#else
    return (x & UINT32_MAX) * by;
#endif
}

static inline draw_words draw_xor(draw_words a, draw_words b, draw_words c) {
    return a ^ b ^ c;
}

static inline draw_words draw_counters(uint32_t first) {
    return (draw_words){first, first + 1};
}

static inline void draw_keep(uint32_t *to, draw_words w0, draw_words w1, draw_words w2, draw_words w3) {
    const draw_words low = (w0 & UINT32_MAX) | w1 << 32, high = (w2 & UINT32_MAX) | w3 << 32;
    const draw_words first = {low[0], high[0]}, second = {low[1], high[1]};
    memcpy(to, &first, sizeof first);
    memcpy(to + 4, &second, sizeof second);
}

#endif

/* The draws of `vectors` vectors of counters from `first` on, computed in parallel: a product waits for the one before
 * it, and out-of-order execution does not reach the next vector. vectors, a constant of the caller: 1 ... DRAW_VECTORS.
 */
static inline __attribute__((always_inline)) void draw_vectors(const struct draw_constants *c, uint32_t first,
                                                               uint32_t *to, int vectors) {
    draw_words w0[DRAW_VECTORS], w1[DRAW_VECTORS], w2[DRAW_VECTORS], w3[DRAW_VECTORS];
    for (int v = 0; v < vectors; v++) {
        const draw_words p0 = draw_product(draw_counters(first + (uint32_t)(v * DRAW_LANES)), PHILOX_M0);
        const draw_words p1 = draw_product((p0 >> 32) ^ c->third1, PHILOX_M1);
        w0[v] = (p1 >> 32) ^ c->first2;
        w1[v] = p1;
        w2[v] = p0 ^ c->third2;
        w3[v] = c->fourth2;
    }
    for (int i = 2; i < DRAW_ROUNDS; i++)
        for (int v = 0; v < vectors; v++) {
            const draw_words p0 = draw_product(w0[v], PHILOX_M0), p1 = draw_product(w2[v], PHILOX_M1);
            w0[v] = draw_xor(p1 >> 32, w1[v], c->key[0][i]);
            w2[v] = draw_xor(p0 >> 32, w3[v], c->key[1][i]);
            w1[v] = p1;
            w3[v] = p0;
        }
    for (int v = 0; v < vectors; v++)
        draw_keep(to + DRAW_VECTOR * v, w0[v], w1[v], w2[v], w3[v]);
}

/* The draws of elements first ... first + n - 1 of a write, n <= DRAW_RUN, as fl_philox_draw returns them. The result
 * points into `draws`. */
static const uint32_t *draws_of(const struct fl_rounding *how, int64_t first, int64_t n, struct draws *draws) {
    first += how->first;
    const int64_t before = first % DRAW_VECTOR, end = before + n;
    const uint64_t counter = (uint64_t)(first - before) / 4;
    uint32_t low = (uint32_t)counter, high = (uint32_t)(counter >> 32);
    struct draw_constants c;
    draw_constants_of(how, high, &c);
    for (int64_t i = 0; i < end;) {
        if (end - i > (DRAW_VECTORS - 1) * DRAW_VECTOR && low <= UINT32_MAX - DRAW_VECTORS * DRAW_LANES) {
            draw_vectors(&c, low, draws->of + i, DRAW_VECTORS);
            i += DRAW_VECTORS * DRAW_VECTOR;
            low += DRAW_VECTORS * DRAW_LANES;
            continue;
        }
        draw_vectors(&c, low, draws->of + i, 1);
        i += DRAW_VECTOR;
        low += DRAW_LANES;
        if (!low) /* the second word of the counter has changed */
            draw_constants_of(how, ++high, &c);
    }
    return draws->of + before;
}

#endif
