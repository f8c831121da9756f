/* gemm_int16_vector.h - vectors of int32 accumulators of int16 products, for the micro-kernels.
 *
 * An accumulator wraps, so it is right whenever the true sum fits int32. A carry split moves all but the low 15 bits:
 *
 *     high += accumulator >> 15 (floor)
 *     accumulator = its low 15 bits - 2^15, in -2^15 ... -1, so that 1 is to be added to high for each split
 *
 * Where the units that multiply also shift and add (GEMM_TWO_PORTS), a split by multiplication has two instructions,
 * not three, with a rest of 16 bits:
 *
 *     high += 2 (accumulator >> 16), a multiply-add of its 16-bit halves by 0 and 2
 *     accumulator = its low 16 bits - 2^16, so that 2 is to be added to high for each split
 *
 * Accumulators start at -2^15. Since the rest is negative, the one sum of two products that is larger than the others,
 * (-2^15)^2 twice, fits: -1 + 2^31 = 2^31 - 1, and -2^16 - 2 * 2^15 (2^15 - 1) = -2^31. So a split after every step is
 * always right, and splits can be as rare as the operands allow: accumulators are right while the sum of |a b| since
 * the last split is at most GEMM_SPLIT_LIMIT.
 *
 * Gives: LANES, GEMM_VNNI, GEMM_EXACT, GEMM_SPLITS, OWED_PER_SPLIT, vector, vector_start, vector_load, vector_put,
 * vector_broadcast, multiply_add, product_add, split_register, split_memory, limbs_put. GEMM_TWO_PORTS may be defined
 * if there is VNNI in 512 bits. */
#ifndef FL_GEMM_INT16_VECTOR_H
#define FL_GEMM_INT16_VECTOR_H

#include "gemm/gemm.h"
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define GEMM_VNNI 1 /* VPDPWSSD and VPDPBUSD */
#else
#define GEMM_VNNI 0
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
#define GEMM_EXACT 1
#ifndef GEMM_SPLITS /* accumulators have carry splits */
#define GEMM_SPLITS 1
#endif
#ifndef GEMM_TWO_PORTS
#define GEMM_TWO_PORTS 0
#endif
/* Bits that a split leaves in an accumulator, and what it leaves to be added to high, in units of 2^15. */
enum { SPLIT_BITS = GEMM_TWO_PORTS ? 16 : GEMM_LIMB_BITS, OWED_PER_SPLIT = 1 << (SPLIT_BITS - GEMM_LIMB_BITS) };
_Static_assert(1 << SPLIT_BITS <= GEMM_REST_MOST, "what remains leaves room for sums up to the limit");

typedef int32_t vector __attribute__((vector_size(LANES * 4)));
typedef uint32_t uvector __attribute__((vector_size(LANES * 4)));

static inline __attribute__((always_inline)) vector vector_load(const void *from) {
    vector x;
    memcpy(&x, from, sizeof x);
    return x;
}
static inline __attribute__((always_inline)) void vector_put(void *to, vector x) {
    memcpy(to, &x, sizeof x);
}
static inline __attribute__((always_inline)) vector vector_start(void) {
    return (vector){0} + GEMM_REST;
}
static inline __attribute__((always_inline)) vector vector_broadcast(const gemm_packed *a) {
    return (vector){0} + (int32_t)*a;
}
static inline __attribute__((always_inline)) vector wrapping_add(vector x, vector y) {
    return (vector)((uvector)x + (uvector)y);
}

/* The sum of both products of each k-pair. */
static inline __attribute__((always_inline)) vector products(vector a, vector b) {
#if defined(__AVX512F__)
    return (vector)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vector)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vector)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const vector a0 = (vector)((uvector)a << 16) >> 16, b0 = (vector)((uvector)b << 16) >> 16;
    return wrapping_add(a0 * b0, (a >> 16) * (b >> 16));
#endif
}

/* In assembly, to keep this order: for several steps, compilers add the products first and run out of registers. */
static inline __attribute__((always_inline)) vector multiply_add(vector sum, vector a, vector b) {
#if defined(__AVX512VNNI__)
    return (vector)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__)
    return (vector)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(__AVX512F__)
    __m512i product;
    __asm__("vpmaddwd %3, %2, %0\n\tvpaddd %0, %1, %1" : "=&v"(product), "+v"(sum) : "v"(a), "v"(b));
    return sum;
#elif defined(__AVX2__)
    __m256i product;
    __asm__("vpmaddwd %3, %2, %0\n\tvpaddd %0, %1, %1" : "=&x"(product), "+x"(sum) : "x"(a), "x"(b));
    return sum;
#else
    return wrapping_add(sum, products(a, b));
#endif
}

/* Updates two sums: that of the products, which may wrap, and that of all but the low 16 bits of each k-pair's product.
 */
static inline __attribute__((always_inline)) void product_add(vector *sum, vector *high, vector a, vector b) {
    const vector p = products(a, b);
    *sum = wrapping_add(*sum, p);
    *high = wrapping_add(*high, p >> 16);
}

#if GEMM_TWO_PORTS
#define SPLIT_HALVES _mm512_set1_epi32(OWED_PER_SPLIT << 16)
#define SPLIT_REST _mm512_set1_epi32(-(1 << SPLIT_BITS))
#endif

static inline __attribute__((always_inline)) void split_register(vector *sum, vector *high) {
#if GEMM_TWO_PORTS
    *high = multiply_add(*high, *sum, (vector)SPLIT_HALVES);
    *sum |= (vector)SPLIT_REST;
#else
    *high = wrapping_add(*high, *sum >> GEMM_LIMB_BITS);
    *sum |= GEMM_REST;
#endif
}

/* The same with the high limbs in memory, in assembly: compilers would hold too much in registers and spill the sums.
 */
static inline __attribute__((always_inline)) void split_memory(vector *sum, int32_t *high) {
#if GEMM_TWO_PORTS
    __m512i up;
    __asm__("vmovdqa64 %2, %0\n\tvpdpwssd %3, %1, %0\n\tvpord %4, %1, %1\n\tvmovdqa64 %0, %2"
            : "=&v"(up), "+v"(*sum), "+m"(*(__m512i *)(void *)high)
            : "v"(SPLIT_HALVES), "v"(SPLIT_REST));
#elif defined(__AVX512F__)
    __m512i up;
    __asm__("vpsrad %3, %1, %0\n\tvpord %4, %1, %1\n\tvpaddd %2, %0, %0\n\tvmovdqa64 %0, %2"
            : "=&v"(up), "+v"(*sum), "+m"(*(__m512i *)(void *)high)
            : "i"(GEMM_LIMB_BITS), "v"(_mm512_set1_epi32(GEMM_REST)));
#elif defined(__AVX2__)
    static const int32_t rest[8] __attribute__((aligned(32))) = {GEMM_REST, GEMM_REST, GEMM_REST, GEMM_REST,
                                                                 GEMM_REST, GEMM_REST, GEMM_REST, GEMM_REST};
    __m256i up;
    __asm__("vpsrad %3, %1, %0\n\tvpor %4, %1, %1\n\tvpaddd %2, %0, %0\n\tvmovdqa %0, %2"
            : "=&x"(up), "+x"(*sum), "+m"(*(__m256i *)(void *)high)
            : "i"(GEMM_LIMB_BITS), "m"(*(const __m256i *)(const void *)rest));
#else
    vector up = vector_load(high);
    split_register(sum, &up);
    vector_put(high, up);
#endif
}

/* Stores a sum as limbs, or adds it to those there. */
static inline void limbs_put(int32_t *low, int32_t *high, int64_t j, int32_t rest, int32_t up, bool add) {
    if (add) {
        rest += low[j];
        up += high[j] + (rest >> GEMM_LIMB_BITS);
        rest &= -GEMM_REST - 1;
    }
    low[j] = rest;
    high[j] = up;
}

#endif
