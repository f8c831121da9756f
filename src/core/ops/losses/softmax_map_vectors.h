/* softmax_map_vectors.h - rows of softmax as an operation of its own, and its gradient, in vectors: every number passes
 * through the operations of the definition (softmax_map.c).
 *
 * Gives: row_from_largest, row_divide_all, row_powers, row_estimates_of, row_narrow_estimates, row_dot_of, row_slopes,
 * row_float_slopes. */
#ifndef FL_SOFTMAX_MAP_VECTORS_H
#define FL_SOFTMAX_MAP_VECTORS_H

#include "core/arithmetic/elementary.h"
#include "core/ops/norms/row_norm_vectors.h"
#include "core/rows/row_lanes.h"
#include "core/rows/row_vectors.h"

/* The largest of n numbers, or the first of zeros of both signs; NaN only if the first number is NaN. */
static double row_largest_of(const double *z, int64_t n) {
    double top = z[0];
    int64_t i = 0;
    if (n >= 2 * LANES) {
        const lanes head = lanes_at(z);
        lanes best = lanes_select(head == head, head, lanes_all(top)); /* NaN is larger than no number */
        for (i = LANES; i + LANES <= n; i += LANES)
            best = lanes_larger(lanes_at(z + i), best);
        top = lanes_largest(best, top);
    }
    for (; i < n; i++)
        top = z[i] > top ? z[i] : top;
    if (top == 0)
        for (i = 0; i < n; i++)
            if (z[i] == 0)
                return z[i];
    return top;
}

static void row_from_largest(double *z, int64_t n, double scale) {
    for (int64_t i = 0; i < n; i++)
        z[i] *= scale;
    const double top = row_largest_of(z, n);
    for (int64_t i = 0; i < n; i++)
        z[i] -= top;
}

/* Products and sums, rounded once where multiply-add is one instruction. */
static inline lanes less_product(lanes a, lanes b, lanes from) { /* from - a b */
#if defined(__AVX512F__)
    return (lanes)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)from);
#elif defined(__AVX2__)
    return (lanes)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)from);
#else
    return from - a * b;
#endif
}

static inline lanes plus_product(lanes a, lanes b, lanes to) {
#if defined(__AVX512F__)
    return (lanes)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)to);
#elif defined(__AVX2__)
    return (lanes)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)to);
#else
    return a * b + to;
#endif
}

#if defined(__AVX512F__) || defined(__AVX2__)

/* Divides by products, with the rounding of a division: x times the correctly rounded reciprocal is off by at most two
 * units in the last place, one correction by the exact remainder reduces that to less than one, and a second one gives
 * the rounded quotient (Markstein 1990). Remainders must not underflow; for the largest double below 2 it divides. */
static void row_divide_all(double *x, int64_t n, double by) {
    uint64_t fraction;
    memcpy(&fraction, &by, sizeof fraction);
    fraction &= ((uint64_t)1 << 52) - 1;
    const bool usual = by >= 1 && by < 0x1p60 && fraction + 1 != (uint64_t)1 << 52;
    const lanes inverse = lanes_all(1 / by), divisor = lanes_all(by), least = lanes_all(0x1p-800);
    int64_t i = 0;
    for (; usual && i + LANES <= n; i += LANES) {
        const lanes v = lanes_at(x + i), size = lanes_size(v);
        if (lanes_any((size < least) & (v != 0))) {
            lanes_to(x + i, v / divisor);
            continue;
        }
        const lanes estimate = v * inverse;
        const lanes close = plus_product(less_product(estimate, divisor, v), inverse, estimate);
        lanes_to(x + i, plus_product(less_product(close, divisor, v), inverse, close));
    }
    for (; i < n; i++)
        x[i] /= by;
}

#else

static void row_divide_all(double *x, int64_t n, double by) {
    for (int64_t i = 0; i < n; i++)
        x[i] /= by;
}

#endif

/* Products of two mantissas have 30 bits, and sums of 2^22 of them are exact. */
static int64_t row_dot_of(int64_t n, const double *a, const double *b) {
    int64_t dot = 0;
    for (int64_t first = 0; first < n; first += 1 << 22) {
        const int64_t end = first + (1 << 22) < n ? first + (1 << 22) : n;
        lanes sum = {0};
        for (int64_t i = first; i < end; i += LANES)
            sum += lanes_of(a + i, end - i) * lanes_of(b + i, end - i);
        dot += integer_sum(sum);
    }
    return dot;
}

/* unit dp, dot and scale p are exact; their difference and the product are rounded: by less than 2^-51 of the result.
 */
static void row_slopes(int64_t n, const double *p, const double *dp, double unit, double dot, double scale,
                       const struct fl_row_estimates *row) {
    const lanes units = lanes_all(unit), dots = lanes_all(dot), scales = lanes_all(scale);
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes y = lanes_of(p + i, n - i) * scales * (lanes_of(dp + i, n - i) * units - dots);
        lanes_to(row->value + i, y);
        lanes_to(row->size + i, lanes_size(y));
    }
}

static void row_float_slopes(int64_t n, double *restrict p, const double *dp, double dot, double scale) {
    for (int64_t i = 0; i < n; i++)
        p[i] = scale * (p[i] * (dp[i] - dot));
}

/* --- softmax by estimates ----------------------------------------------------------------------------------------- */

enum { POWERS = 4 }; /* vectors side by side */

/* e^x = 2^n e^r, |r| <= 0.347, by the Taylor sum of 13 terms: the remainder is below 2^-52 of e^r, and the roundings
 * add up to less than 2^-51. */
static inline __attribute__((always_inline)) void powers_of(lanes *x) {
    static const double terms[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                   1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0,        1.0};
    lanes n[POWERS], r[POWERS], sum[POWERS];
    for (int j = 0; j < POWERS; j++) {
        const lanes inside = lanes_larger(lanes_all(-708), x[j]); /* NaN stays */
        n[j] = lanes_nearest(inside * FL_LOG2_E);
        r[j] = less_product(n[j], lanes_all(FL_LN2_LOW), less_product(n[j], lanes_all(FL_LN2_HIGH), inside));
        sum[j] = lanes_all(1.0 / 479001600);
    }
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++)
        for (int j = 0; j < POWERS; j++)
            sum[j] = plus_product(sum[j], r[j], lanes_all(terms[k]));
    for (int j = 0; j < POWERS; j++)
        x[j] = sum[j] * (lanes)(((words)(n[j] + 0x1.8p52) + 1023) << 52);
}

static double row_powers(double *to, const double *z, int64_t n) {
    lanes sum[POWERS] = {{0}};
    int64_t i = 0;
    for (; i + POWERS * LANES <= n; i += POWERS * LANES) {
        lanes v[POWERS];
        memcpy(v, z + i, sizeof v);
        powers_of(v);
        memcpy(to + i, v, sizeof v);
        for (int j = 0; j < POWERS; j++)
            sum[j] += v[j];
    }
    if (i < n) {
        lanes v[POWERS];
        for (int j = 0; j < POWERS; j++)
            v[j] = n - i > j * LANES ? lanes_of(z + i + j * LANES, n - i - j * LANES) : lanes_all(0);
        powers_of(v);
#pragma GCC unroll 4 /* a sum with a variable index would lie in memory, in the loop above too */
        for (int j = 0; j < POWERS; j++) {
            if (n - i <= j * LANES)
                continue;
            const lanes kept = lanes_first(v[j], n - i - j * LANES);
            lanes_to(to + i + j * LANES, kept);
            sum[j] += kept;
        }
    }
    double total = 0;
    const lanes all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (int l = 0; l < LANES; l++)
        total += all[l];
    return total;
}

static void row_estimates_of(int64_t n, const double *x, double by, double share, const struct fl_row_estimates *row) {
    const lanes factor = lanes_all(by), shares = lanes_all(share * 0x1p50);
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes power = lanes_of(x + i, n - i), v = power * factor;
        lanes_to(row->value + i, v);
        lanes_to(row->size + i, lanes_select(power < 0x1p-1000, lanes_all(0x1p60), lanes_size(v) * shares));
    }
}

/* Rounding is monotone: if both ends of the interval of a result round to one number, so does the result. */
static bool row_narrow_estimates(float *restrict to, int64_t n, const double *restrict x, double by, double share) {
    const double least = by * (1 - share), most = by * (1 + share);
    int32_t doubt = 0;
    for (int64_t i = 0; i < n; i++) {
        const float low = (float)(x[i] * least), high = (float)(x[i] * most);
        doubt |= !(low == high);
        to[i] = low;
    }
    return !doubt;
}

#endif
