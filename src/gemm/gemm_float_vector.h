/* gemm_float_vector.h - vectors of binary32 accumulators for the micro-kernels. An accumulator is one chain of fused
 * multiply-adds from +0.
 *
 * Gives: LANES, GEMM_EXACT, GEMM_SPLITS, vector, vector_start, vector_load, vector_put, vector_broadcast, multiply_add.
 */
#ifndef FL_GEMM_FLOAT_VECTOR_H
#define FL_GEMM_FLOAT_VECTOR_H

#include "gemm/gemm.h"
#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
#define GEMM_EXACT 0
#define GEMM_SPLITS 0

typedef float vector __attribute__((vector_size(LANES * 4)));

static inline __attribute__((always_inline)) vector vector_load(const void *from) {
    vector x;
    memcpy(&x, from, sizeof x);
    return x;
}
static inline __attribute__((always_inline)) void vector_put(void *to, vector x) {
    memcpy(to, &x, sizeof x);
}
static inline __attribute__((always_inline)) vector vector_start(void) {
    return (vector){0};
}
static inline __attribute__((always_inline)) vector vector_broadcast(const gemm_packed *a) {
    float x;
    memcpy(&x, a, sizeof x);
#if defined(__AVX512F__)
    return _mm512_set1_ps(x);
#elif defined(__AVX2__)
    return _mm256_set1_ps(x);
#else
    return (vector){x, x, x, x};
#endif
}
static inline __attribute__((always_inline)) vector multiply_add(vector sum, vector a, vector b) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, sum);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, sum);
#else
    for (int i = 0; i < LANES; i++)
        sum[i] = fmaf(a[i], b[i], sum[i]);
    return sum;
#endif
}

#endif
