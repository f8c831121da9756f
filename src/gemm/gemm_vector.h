/* gemm_vector.h - the few vector operations that the micro-kernels are made of, per instruction set. */
#ifndef FL_GEMM_VECTOR_H
#define FL_GEMM_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* float: FW lanes; FMR rows by FNV vectors of accumulators, FMR1 rows when one vector is enough for the columns.
 * int16 pairs to int32: IW lanes; IMR, INV, IMR1 likewise. dp(acc, a, b): acc + a.lo*b.lo + a.hi*b.hi, wrapping. */
#if defined(__AVX512F__)
enum { FW = 16, FMR = 12, FMR1 = 24, IW = 16, IMR = 6, IMR1 = 12 };
typedef __m512 vfloat;
typedef __m512i vpair;
#define VF_ZERO _mm512_setzero_ps()
#define VF_LOAD(p) _mm512_loadu_ps(p)
#define VF_STORE(p, x) _mm512_storeu_ps(p, x)
#define VF_SET(x) _mm512_set1_ps(x)
#define VF_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define VI_ZERO _mm512_setzero_si512()
#define VI_LOAD(p) _mm512_loadu_si512(p)
#define VI_STORE(p, x) _mm512_storeu_si512(p, x)
#define VI_SET(x) _mm512_set1_epi32(x)
#define VI_DP(c, a, b) _mm512_dpwssd_epi32(c, a, b)
#define VI_ADD(a, b) _mm512_add_epi32(a, b)
#define VI_MADD(a, b) _mm512_madd_epi16(a, b)
#define VI_UPPER(x) _mm512_srai_epi32(x, 16)
#define VI_HIGH(x) _mm512_srai_epi32(x, 15)
#define VI_LOW(x) _mm512_and_si512(x, _mm512_set1_epi32(0x7fff))
#elif defined(__AVX2__)
enum { FW = 8, FMR = 6, FMR1 = 12, IW = 8, IMR = 3, IMR1 = 6 };
typedef __m256 vfloat;
typedef __m256i vpair;
#define VF_ZERO _mm256_setzero_ps()
#define VF_LOAD(p) _mm256_loadu_ps(p)
#define VF_STORE(p, x) _mm256_storeu_ps(p, x)
#define VF_SET(x) _mm256_set1_ps(x)
#define VF_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define VI_ZERO _mm256_setzero_si256()
#define VI_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define VI_STORE(p, x) _mm256_storeu_si256((__m256i *)(p), x)
#define VI_SET(x) _mm256_set1_epi32(x)
#define VI_DP(c, a, b) _mm256_add_epi32(c, _mm256_madd_epi16(a, b))
#define VI_ADD(a, b) _mm256_add_epi32(a, b)
#define VI_MADD(a, b) _mm256_madd_epi16(a, b)
#define VI_UPPER(x) _mm256_srai_epi32(x, 16)
#define VI_HIGH(x) _mm256_srai_epi32(x, 15)
#define VI_LOW(x) _mm256_and_si256(x, _mm256_set1_epi32(0x7fff))
#else
enum { FW = 4, FMR = 4, FMR1 = 4, IW = 4, IMR = 3, IMR1 = 6 };
typedef struct {
    float x[4];
} vfloat;
static inline vfloat vf_set(float x) {
    return (vfloat){{x, x, x, x}};
}
static inline vfloat vf_load(const float *p) {
    return (vfloat){{p[0], p[1], p[2], p[3]}};
}
static inline void vf_store(float *p, vfloat v) {
    memcpy(p, v.x, sizeof v.x);
}
static inline vfloat vf_fma(vfloat a, vfloat b, vfloat c) {
    for (int i = 0; i < 4; i++)
        c.x[i] = fmaf(a.x[i], b.x[i], c.x[i]);
    return c;
}
#define VF_ZERO vf_set(0)
#define VF_LOAD(p) vf_load(p)
#define VF_STORE(p, x) vf_store(p, x)
#define VF_SET(x) vf_set(x)
#define VF_FMA(a, b, c) vf_fma(a, b, c)
#if defined(__SSE2__)
typedef __m128i vpair;
#define VI_ZERO _mm_setzero_si128()
#define VI_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define VI_STORE(p, x) _mm_storeu_si128((__m128i *)(p), x)
#define VI_SET(x) _mm_set1_epi32(x)
#define VI_DP(c, a, b) _mm_add_epi32(c, _mm_madd_epi16(a, b))
#define VI_ADD(a, b) _mm_add_epi32(a, b)
#define VI_MADD(a, b) _mm_madd_epi16(a, b)
#define VI_UPPER(x) _mm_srai_epi32(x, 16)
#define VI_HIGH(x) _mm_srai_epi32(x, 15)
#define VI_LOW(x) _mm_and_si128(x, _mm_set1_epi32(0x7fff))
#else
typedef struct {
    int32_t x[4];
} vpair;
static inline vpair vi_set(int32_t x) {
    return (vpair){{x, x, x, x}};
}
static inline vpair vi_load(const void *p) {
    vpair v;
    memcpy(v.x, p, sizeof v.x);
    return v;
}
static inline vpair vi_dp(vpair c, vpair a, vpair b) {
    for (int i = 0; i < 4; i++) {
        int32_t low = (int32_t)(int16_t)a.x[i] * (int16_t)b.x[i], high = (a.x[i] >> 16) * (b.x[i] >> 16);
        c.x[i] = (int32_t)((uint32_t)c.x[i] + (uint32_t)low + (uint32_t)high);
    }
    return c;
}
static inline vpair vi_add(vpair a, vpair b) {
    for (int i = 0; i < 4; i++)
        a.x[i] = (int32_t)((uint32_t)a.x[i] + (uint32_t)b.x[i]);
    return a;
}
static inline vpair vi_shift(vpair a, int by) {
    for (int i = 0; i < 4; i++)
        a.x[i] >>= by;
    return a;
}
static inline vpair vi_low(vpair a) {
    for (int i = 0; i < 4; i++)
        a.x[i] &= 0x7fff;
    return a;
}
#define VI_ZERO vi_set(0)
#define VI_LOAD(p) vi_load(p)
#define VI_STORE(p, v) memcpy(p, (v).x, sizeof(v).x)
#define VI_SET(x) vi_set(x)
#define VI_DP(c, a, b) vi_dp(c, a, b)
#define VI_ADD(a, b) vi_add(a, b)
#define VI_MADD(a, b) vi_dp(vi_set(0), a, b)
#define VI_UPPER(x) vi_shift(x, 16)
#define VI_HIGH(x) vi_shift(x, 15)
#define VI_LOW(x) vi_low(x)
#endif
#endif

#endif
