/* row_norm_vectors.h - rows of normalisation in vectors.
 *
 * Gives: row_sums, row_forward, row_backward, row_shares, row_numbers, row_values, row_gradients, row_float_shares. */
#ifndef FL_ROW_NORM_VECTORS_H
#define FL_ROW_NORM_VECTORS_H

#include "core/ops/norms/row_norm_sums.h"
#include "core/rows/row_lanes.h"

/* Products of three mantissas are integers of 45 bits: so many of them, and one less, are summed exactly in a double.
 */
enum { EXACT_TERMS = 128 };

static inline int64_t integer_sum(lanes x) {
    int64_t sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += (int64_t)x[l];
    return sum;
}

static void row_sums(int64_t n, const double *x, const double *dy, const double *gamma, struct fl_row_sums *s) {
    const struct fl_row_sums none = {0, 0, 0, 0};
    *s = none;
    for (int64_t first = 0; first < n; first += EXACT_TERMS * LANES) {
        const int64_t end = first + EXACT_TERMS * LANES < n ? first + EXACT_TERMS * LANES : n;
        lanes sum = {0}, squares = {0}, of_g = {0}, products = {0};
        for (int64_t i = first; i < end; i += LANES) {
            const lanes v = lanes_at(x + i);
            sum += v;
            squares += v * v;
            if (dy) {
                const lanes g = lanes_at(dy + i) * lanes_at(gamma + i);
                of_g += g;
                products += g * v;
            }
        }
        s->x += integer_sum(sum);
        s->xx += integer_sum(squares);
        s->g += integer_sum(of_g);
        s->gx += integer_sum(products);
    }
}

/* gamma (f (x - centre) + g) + h beta. f has 31 bits and x - centre 17: their product is exact; the sum with g, the
 * product with gamma and the sum with beta are rounded, by 2^-53 of what they give each: together by less than 2^-51 of
 * |product with gamma| + |result|. Nothing is added to a product that is zero, and that is exact. Behind the row gamma
 * and beta are zero, and so are results. */
static void row_forward(int64_t n, const double *x, const double *gamma, const double *beta,
                        const struct fl_row_line *line, const struct fl_row_estimates *row) {
    const lanes f = lanes_all(line->f), g = lanes_all(line->g), h = lanes_all(line->h),
                centre = lanes_all(line->centre);
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes product = ((lanes_at(x + i) - centre) * f + g) * lanes_at(gamma + i);
        const lanes y = beta ? product + lanes_at(beta + i) * h : product;
        lanes_to(row->value + i, y);
        lanes_to(row->size + i, lanes_size(product) + lanes_size(y));
    }
}

/* f (gamma dy - g_centre) + g (x - centre) + h. The first product is rounded, the second exact, two sums are rounded:
 * by less than 2^-51 of |first| + |second| + |result| together. */
static void row_backward(int64_t n, const double *dy, const double *x, const double *gamma,
                         const struct fl_row_line *line, const struct fl_row_estimates *row) {
    const lanes f = lanes_all(line->f), g = lanes_all(line->g), h = lanes_all(line->h),
                centre = lanes_all(line->centre), g_centre = lanes_all(line->g_centre);
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes of_g = (lanes_at(dy + i) * lanes_at(gamma + i) - g_centre) * f;
        const lanes of_x = (lanes_at(x + i) - centre) * g, y = of_g + of_x + h;
        lanes_to(row->value + i, y);
        lanes_to(row->size + i, lanes_size(of_g) + lanes_size(of_x) + lanes_size(y));
    }
    for (int64_t i = n; i % LANES; i++)
        row->value[i] = row->size[i] = 0;
}

static void row_shares(int64_t n, const double *dy, const double *x, const struct fl_row_share *share, double *total,
                       double *size) {
    const lanes times = lanes_all(share->times), sum = lanes_all(share->sum), weight = lanes_all(share->weight);
    for (int64_t i = 0; i < n; i += LANES) {
        const lanes by = lanes_at(dy + i) * (times * lanes_at(x + i) - sum) * weight;
        lanes_to(total + i, lanes_at(total + i) + by);
        lanes_to(size + i, lanes_at(size + i) + lanes_size(by));
    }
}

/* --- float formats ------------------------------------------------------------------------------------------------ */

static struct fl_row_numbers row_numbers(int64_t n, const double *x, const double *dy, const double *gamma,
                                         bool mean_square, double epsilon) {
    struct fl_row_numbers r = fl_row_numbers_of(n, x, mean_square, epsilon);
    if (dy)
        fl_row_add_gradient(&r, n, x, dy, gamma, mean_square);
    return r;
}

static void row_values(int64_t n, const double *x, const double *gamma, const double *beta,
                       const struct fl_row_numbers *r, double *restrict y) {
    const struct fl_row_numbers mine = *r;
    if (beta)
        for (int64_t i = 0; i < n; i++)
            y[i] = fl_row_float_value(&mine, x[i], gamma[i], beta[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = fl_row_float_value(&mine, x[i], gamma[i], 0);
}

static void row_gradients(int64_t n, const double *dy, const double *x, const double *gamma,
                          const struct fl_row_numbers *r, double *restrict dx) {
    const struct fl_row_numbers mine = *r;
    for (int64_t i = 0; i < n; i++)
        dx[i] = fl_row_float_gradient(&mine, dy[i] * gamma[i], x[i]);
}

static void row_float_shares(int64_t n, const double *dy, const double *x, const struct fl_row_numbers *r,
                             double *restrict total) {
    const struct fl_row_numbers mine = *r;
    for (int64_t i = 0; i < n; i++)
        total[i] += dy[i] * fl_row_normal(&mine, x[i]);
}

#endif
