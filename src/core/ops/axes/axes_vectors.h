/* axes_vectors.h - sums, products, quotients and choices in vectors.
 *
 * Gives: row_add, row_multiply, row_divide_odd, row_choose, row_add_products. */
#ifndef FL_AXES_VECTORS_H
#define FL_AXES_VECTORS_H

#include "core/arithmetic/exact.h"
#include "core/rows/row_lanes.h"

/* a + b rounded to odd, as by fl_sum_odd. */
static double row_add(double *a, const double *b, int64_t n) {
    lanes largest = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes p = lanes_of(a + i, n - i), q = lanes_of(b + i, n - i), s = p + q, t = s - p;
        const lanes error = (p - (s - t)) + (q - t); /* Knuth's two-sum: exact */
        const words even = ~(words)s & 1, step = even & (error != 0) & (s - s == 0);
        const words away = (error > 0) == (s > 0); /* -1 or 0 */
        const lanes odd = (lanes)((words)s + ((step & away) - (step & ~away)));
        largest = lanes_larger(lanes_size(s), largest);
        lanes_to_some(a + i, n - i, odd);
    }
    return lanes_largest(largest, 0);
}

static double row_multiply(double *a, const double *b, int64_t n) {
    lanes largest = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes product = lanes_of(a + i, n - i) * lanes_of(b + i, n - i);
        largest = lanes_larger(lanes_size(product), largest);
        lanes_to_some(a + i, n - i, product);
    }
    return lanes_largest(largest, 0);
}

/* What remains of `from` by a quotient that was rounded to nearest is a double. */
static inline lanes remainders(lanes quotient, lanes by, lanes from) {
#if defined(__AVX512F__)
    return (lanes)_mm512_fnmadd_pd((__m512d)quotient, (__m512d)by, (__m512d)from);
#elif defined(__AVX2__)
    return (lanes)_mm256_fnmadd_pd((__m256d)quotient, (__m256d)by, (__m256d)from);
#else
    for (int l = 0; l < LANES; l++)
        from[l] = fma(-quotient[l], by[l], from[l]);
    return from;
#endif
}

static double row_divide_odd(double *x, int64_t n, double by, double unit) {
    lanes largest = {0};
    const lanes divisor = lanes_all(by);
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes v = lanes_of(x + i, n - i), q = v / divisor, rest = remainders(q, divisor, v);
        const words step = ~(words)q & 1 & (rest != 0), away = (rest > 0) == (q > 0);
        largest = lanes_larger(lanes_size(q), largest);
        lanes_to_some(x + i, n - i, (lanes)((words)q + ((step & away) - (step & ~away))) * unit);
    }
    return lanes_largest(largest, 0);
}

/* Without branches: the processor cannot predict random marks. */
static void row_choose(double *a, const double *b, int64_t n, const uint8_t *marks, int64_t stride, bool marked) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t x, y = 0;
        memcpy(&x, &a[i], sizeof x);
        if (b)
            memcpy(&y, &b[i], sizeof y);
        const uint64_t keep = -(uint64_t)((marks[i * stride] != 0) == marked);
        x = (x & keep) | (y & ~keep);
        memcpy(&a[i], &x, sizeof x);
    }
}

/* A multiply-add is one instruction where vectors have one; the C library's function takes ten times as long. */
static void row_add_products(double *chain, const double *x, const double *z, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        chain[i] = (double)fmaf((float)x[i], (float)z[i], (float)chain[i]);
}

#endif
