/* gemm_int16_bounds.h - bounds on sums of products of packed int16: largest magnitudes, and sums of squares for the
 * inequality of Cauchy and Schwarz.
 *
 * Gives: squares, packed_load, squares_of, squares_zero, squares_larger, squares_up, gemm_bound_panel,
 * gemm_bound_intervals, gemm_bound_runs. */
#ifndef FL_GEMM_INT16_BOUNDS_H
#define FL_GEMM_INT16_BOUNDS_H

#include "gemm/gemm_k_pairs.h"
#include <math.h>

#if defined(__AVX512F__)
typedef __m512 squares;

/* Lanes 0 ... count - 1 of a packed row, zeros beyond. */
static inline packed_vector packed_load(const gemm_packed *src, int64_t count) {
    return _mm512_maskz_loadu_epi32(count >= 16 ? 0xffff : (__mmask16)((1u << count) - 1), src);
}

#define magnitudes(largest, x) _mm512_max_epu16(largest, _mm512_abs_epi16(x))
/* Adds the squares of each k-pair to its lane. */
#define squares_of(sum, x) _mm512_add_ps(sum, _mm512_cvtepu32_ps(_mm512_madd_epi16(x, x)))
#define squares_zero() _mm512_setzero_ps()
#define squares_add(x, y) _mm512_add_ps(x, y)
#define squares_larger(x, y) _mm512_max_ps(x, y)
#define packed_zero() _mm512_setzero_si512()

static inline double squares_largest(squares x) {
    return _mm512_reduce_max_ps(x);
}

static inline int32_t magnitudes_largest(packed_vector x) {
    const __m512i even = _mm512_and_si512(x, _mm512_set1_epi32(0xffff));
    return _mm512_reduce_max_epi32(_mm512_max_epi32(even, _mm512_srli_epi32(x, 16)));
}
#elif defined(__AVX2__)
typedef __m256 squares;

static inline packed_vector packed_load(const gemm_packed *src, int64_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_epi32((const int *)(const void *)src,
                                 _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(count < 8 ? count : 8)), lane));
}

#define magnitudes(largest, x) _mm256_max_epu16(largest, _mm256_abs_epi16(x))
/* The sum of two squares may reach 2^31, so it is halved, rounded up and doubled. */
#define squares_of(sum, x)                                                                                             \
    _mm256_add_ps(sum, _mm256_mul_ps(_mm256_set1_ps(2.0f),                                                             \
                                     _mm256_cvtepi32_ps(_mm256_add_epi32(                                              \
                                         _mm256_srli_epi32(_mm256_madd_epi16(x, x), 1), _mm256_set1_epi32(1)))))
#define squares_zero() _mm256_setzero_ps()
#define squares_add(x, y) _mm256_add_ps(x, y)
#define squares_larger(x, y) _mm256_max_ps(x, y)
#define packed_zero() _mm256_setzero_si256()

static inline double squares_largest(squares x) {
    float of[8], largest = 0;
    _mm256_storeu_ps(of, x);
    for (int i = 0; i < 8; i++)
        largest = of[i] > largest ? of[i] : largest;
    return largest;
}

static inline int32_t magnitudes_largest(packed_vector x) {
    uint16_t of[16], largest = 0;
    _mm256_storeu_si256((__m256i *)of, x);
    for (int i = 0; i < 16; i++)
        largest = of[i] > largest ? of[i] : largest;
    return largest;
}
#else
typedef struct {
    float of[LANES];
} squares;

static inline packed_vector packed_load(const gemm_packed *src, int64_t count) {
    packed_vector x = {{{{0}}}};
    memcpy(&x, src, (size_t)(count < LANES ? count : LANES) * sizeof *src);
    return x;
}
static inline packed_vector packed_zero(void) {
    return (packed_vector){{{{0}}}};
}
static inline int16_t magnitude_of(int16_t x) { /* that of -2^15 is -2^15 again, which is read as unsigned */
    return (int16_t)(x < 0 ? -x : x);
}
static inline packed_vector magnitudes(packed_vector largest, packed_vector x) {
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 2; k++) {
            const uint16_t size = (uint16_t)magnitude_of(x.of[i].k[k]), old = (uint16_t)largest.of[i].k[k];
            largest.of[i].k[k] = (int16_t)(size > old ? size : old);
        }
    return largest;
}
static inline squares squares_zero(void) {
    return (squares){{0}};
}
static inline squares squares_add(squares x, squares y) {
    for (int i = 0; i < LANES; i++)
        x.of[i] += y.of[i];
    return x;
}
static inline squares squares_larger(squares x, squares y) {
    for (int i = 0; i < LANES; i++)
        x.of[i] = x.of[i] > y.of[i] ? x.of[i] : y.of[i];
    return x;
}
static inline squares squares_of(squares sum, packed_vector x) {
    for (int i = 0; i < LANES; i++) {
        const int64_t first = x.of[i].k[0], second = x.of[i].k[1];
        sum.of[i] += (float)(first * first + second * second);
    }
    return sum;
}
static inline double squares_largest(squares x) {
    float largest = 0;
    for (int i = 0; i < LANES; i++)
        largest = x.of[i] > largest ? x.of[i] : largest;
    return largest;
}
static inline int32_t magnitudes_largest(packed_vector x) {
    uint16_t largest = 0;
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 2; k++)
            largest = (uint16_t)x.of[i].k[k] > largest ? (uint16_t)x.of[i].k[k] : largest;
    return largest;
}
#endif

/* The largest of some sums of squares, each of at most `terms` terms in binary32, rounded up: sums of n terms are too
 * small by at most a factor 1 - n 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2). */
static inline float squares_up(squares x, int64_t terms) {
    return (float)(squares_largest(x) * (1 + (double)(terms + 16) * 0x1p-23));
}

/* Bounds `steps` rows of `width` packed elements. */
static void gemm_bound_panel(const gemm_packed *panel, int64_t width, int64_t steps, struct gemm_bound *bound) {
    squares most[GEMM_INTERVALS], whole = squares_zero();
    packed_vector largest = packed_zero();
    for (int i = 0; i < GEMM_INTERVALS; i++)
        most[i] = squares_zero();
    for (int64_t line = 0; line < width; line += LANES) {
        const int64_t count = width - line;
        squares last[3], total = squares_zero();
        for (int i = 0; i < 3; i++)
            last[i] = squares_zero();
        for (int64_t step = 0; step < steps; step += GEMM_INTERVAL) {
            squares here = squares_zero();
            const int64_t some = steps - step < GEMM_INTERVAL ? steps - step : GEMM_INTERVAL;
            for (int64_t i = 0; i < some; i++) {
                const packed_vector x = packed_load(panel + (step + i) * width + line, count);
                largest = magnitudes(largest, x);
                here = squares_of(here, x);
            }
            const squares two = squares_add(here, last[0]);
            const squares four = squares_add(two, squares_add(last[1], last[2]));
            most[0] = squares_larger(most[0], here);
            most[1] = squares_larger(most[1], two);
            most[2] = squares_larger(most[2], four);
            total = squares_add(total, here);
            last[2] = last[1];
            last[1] = last[0];
            last[0] = here;
        }
        whole = squares_larger(whole, total);
    }
    bound->largest = magnitudes_largest(largest);
    for (int i = 0; i < GEMM_INTERVALS; i++)
        bound->interval[i] = sqrt(squares_up(most[i], steps));
    bound->whole = sqrt(squares_up(whole, steps));
}

static void gemm_bound_intervals(const gemm_packed *rows, int64_t width, int64_t steps, float *intervals) {
    for (int64_t step = 0; step < steps; step += GEMM_INTERVAL) {
        const int64_t some = steps - step < GEMM_INTERVAL ? steps - step : GEMM_INTERVAL;
        squares largest = squares_zero();
        for (int64_t j = 0; j < width; j += LANES) {
            squares sum = squares_zero();
            for (int64_t i = 0; i < some; i++)
                sum = squares_of(sum, packed_load(rows + (step + i) * width + j, width - j));
            largest = squares_larger(largest, sum);
        }
        intervals[step / GEMM_INTERVAL] = squares_up(largest, GEMM_INTERVAL);
    }
}

/* The LANES intervals from `packed` on, in order; zeros beyond `count` packed elements. */
static inline squares intervals_of(const gemm_packed *packed, int64_t count) {
#if defined(__AVX512F__) || defined(__AVX2__)
    squares q[4];
    for (int i = 0; i < 4; i++, packed += LANES, count -= LANES)
        q[i] = squares_of(squares_zero(), packed_load(packed, count > 0 ? count : 0));
#endif
#if defined(__AVX512F__)
    const __m512 x = _mm512_add_ps(_mm512_unpacklo_ps(q[0], q[1]), _mm512_unpackhi_ps(q[0], q[1])),
                 y = _mm512_add_ps(_mm512_unpacklo_ps(q[2], q[3]), _mm512_unpackhi_ps(q[2], q[3])),
                 sums = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
#elif defined(__AVX2__)
    const __m256 x = _mm256_add_ps(_mm256_unpacklo_ps(q[0], q[1]), _mm256_unpackhi_ps(q[0], q[1])),
                 y = _mm256_add_ps(_mm256_unpacklo_ps(q[2], q[3]), _mm256_unpackhi_ps(q[2], q[3])),
                 sums = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
    return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#else
    squares intervals = squares_zero();
    for (int i = 0; i < LANES && count > 0; i++, packed += GEMM_INTERVAL, count -= GEMM_INTERVAL) {
        const squares four = squares_of(squares_zero(), packed_load(packed, count));
        intervals.of[i] = four.of[0] + four.of[1] + four.of[2] + four.of[3];
    }
    return intervals;
#endif
}

/* The lanes of x moved up by n, 1, 2 or 4, after the last n of those before. */
#if defined(__AVX512F__)
#define squares_after(x, before, n)                                                                                    \
    _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(x), _mm512_castps_si512(before), 16 - (n)))
#elif defined(__AVX2__)
#define squares_across(x, before) _mm256_permute2f128_ps(before, x, 0x21)
#define squares_after(x, before, n)                                                                                    \
    ((n) == 4 ? squares_across(x, before)                                                                              \
              : _mm256_castsi256_ps(_mm256_alignr_epi8(_mm256_castps_si256(x),                                         \
                                                       _mm256_castps_si256(squares_across(x, before)), 16 - 4 * (n))))
#else
static inline squares squares_after(squares x, squares before, int n) {
    squares y;
    for (int i = 0; i < LANES; i++)
        y.of[i] = i < n ? before.of[i + LANES - n] : x.of[i - n];
    return y;
}
#endif

static void gemm_bound_runs(const gemm_packed *packed, int64_t n, float largest[GEMM_RUN_LENGTHS]) {
    squares most[GEMM_RUN_LENGTHS], last[GEMM_RUN_LENGTHS - 1];
    for (int i = 0; i < GEMM_RUN_LENGTHS; i++)
        most[i] = squares_zero();
    for (int i = 0; i < GEMM_RUN_LENGTHS - 1; i++)
        last[i] = squares_zero();
    for (int64_t i = 0; i < n; i += LANES * GEMM_INTERVAL) {
        const squares one = intervals_of(packed + i, n - i), two = squares_add(one, squares_after(one, last[0], 1)),
                      four = squares_add(two, squares_after(two, last[1], 2)),
                      eight = squares_add(four, squares_after(four, last[2], 4));
        most[0] = squares_larger(most[0], one);
        most[1] = squares_larger(most[1], two);
        most[2] = squares_larger(most[2], four);
        most[3] = squares_larger(most[3], eight);
        last[0] = one;
        last[1] = two;
        last[2] = four;
    }
    for (int i = 0; i < GEMM_RUN_LENGTHS; i++) {
        const float bound = squares_up(most[i], GEMM_INTERVAL << i);
        largest[i] = bound > largest[i] ? bound : largest[i];
    }
}

#endif
