/* group_norm_vectors.h - group normalisation in vectors: over some pixels of n channels each, pixel after pixel, with
 * the numbers of its group in the column of each channel (row_vectors.h).
 *
 * Gives: row_column_sums, row_columns_forward, row_columns_backward, row_columns_values, row_columns_gradients,
 * row_columns_squares, row_columns_products, row_columns_shares, row_add_chains. */
#ifndef FL_GROUP_NORM_VECTORS_H
#define FL_GROUP_NORM_VECTORS_H

#include "core/ops/norms/row_norm_rules.h"
#include "core/rows/row_lanes.h"
#include "core/rows/row_vectors.h"

/* --- integer formats ---------------------------------------------------------------------------------------------- */

static void row_column_sums(int64_t pixels, int64_t n, const double *x, const double *dy, struct fl_column_sums *sums) {
    for (int64_t c = 0; c < n; c += LANES) {
        lanes sum = {0}, squares = {0}, of_dy = {0}, products = {0};
        for (int64_t p = 0; p < pixels; p++) {
            const lanes v = lanes_of(x + p * n + c, n - c);
            sum += v;
            squares += v * v;
            if (dy) {
                const lanes g = lanes_of(dy + p * n + c, n - c);
                of_dy += g;
                products += g * v;
            }
        }
        for (int l = 0; l < LANES && c + l < n; l++) {
            struct fl_column_sums *s = &sums[c + l];
            s->x += (int64_t)sum[l];
            s->xx += (int64_t)squares[l];
            s->dy += (int64_t)of_dy[l];
            s->dy_x += (int64_t)products[l];
        }
    }
}

/* As row_forward: the same operations, so the same distance from the exact result. */
static void row_columns_forward(int64_t pixels, int64_t n, const double *x, const struct fl_row_columns *k,
                                const struct fl_row_estimates *row) {
    for (int64_t c = 0; c < n; c += LANES) {
        const lanes f = lanes_of(k->f + c, n - c), g = lanes_of(k->g + c, n - c),
                    centre = lanes_of(k->centre + c, n - c), gamma = lanes_of(k->gamma + c, n - c),
                    beta = lanes_of(k->beta + c, n - c) * lanes_all(k->unit);
        for (int64_t p = 0; p < pixels; p++) {
            const int64_t i = p * n + c;
            const lanes product = ((lanes_of(x + i, n - c) - centre) * f + g) * gamma, y = product + beta;
            lanes_to_some(row->value + i, n - c, y);
            lanes_to_some(row->size + i, n - c, lanes_size(product) + lanes_size(y));
        }
    }
}

/* As row_backward. */
static void row_columns_backward(int64_t pixels, int64_t n, const double *dy, const double *x,
                                 const struct fl_row_columns *k, const struct fl_row_estimates *row) {
    for (int64_t c = 0; c < n; c += LANES) {
        const lanes f = lanes_of(k->f + c, n - c), g = lanes_of(k->g + c, n - c), h = lanes_of(k->h + c, n - c),
                    centre = lanes_of(k->centre + c, n - c), g_centre = lanes_of(k->g_centre + c, n - c),
                    gamma = lanes_of(k->gamma + c, n - c);
        for (int64_t p = 0; p < pixels; p++) {
            const int64_t i = p * n + c;
            const lanes of_g = (lanes_of(dy + i, n - c) * gamma - g_centre) * f;
            const lanes of_x = (lanes_of(x + i, n - c) - centre) * g, y = of_g + of_x + h;
            lanes_to_some(row->value + i, n - c, y);
            lanes_to_some(row->size + i, n - c, lanes_size(of_g) + lanes_size(of_x) + lanes_size(y));
        }
    }
}

/* --- float formats: the operations of row_norm_rules.h, element by element ---------------------------------------- */

static inline lanes normal_of(const struct fl_row_columns *k, int64_t c, int64_t n, const double *x) {
    return (lanes_of(x, n - c) - lanes_of(k->centre + c, n - c)) * lanes_of(k->f + c, n - c);
}

static void row_columns_values(int64_t pixels, int64_t n, const double *x, const struct fl_row_columns *k, double *y) {
    for (int64_t p = 0; p < pixels; p++, x += n, y += n)
        for (int64_t c = 0; c < n; c += LANES)
            lanes_to_some(y + c, n - c,
                          lanes_of(k->gamma + c, n - c) * normal_of(k, c, n, x + c) + lanes_of(k->beta + c, n - c));
}

static void row_columns_gradients(int64_t pixels, int64_t n, const double *dy, const double *x,
                                  const struct fl_row_columns *k, double *dx) {
    for (int64_t p = 0; p < pixels; p++, dy += n, x += n, dx += n)
        for (int64_t c = 0; c < n; c += LANES) {
            const lanes g = lanes_of(dy + c, n - c) * lanes_of(k->gamma + c, n - c),
                        mean = lanes_of(k->g_centre + c, n - c), slope = lanes_of(k->g + c, n - c);
            lanes_to_some(dx + c, n - c, (g - mean - normal_of(k, c, n, x + c) * slope) * lanes_of(k->f + c, n - c));
        }
}

static void row_columns_squares(int64_t pixels, int64_t n, const double *x, const struct fl_row_columns *k,
                                double *square) {
    for (int64_t p = 0; p < pixels; p++, x += n, square += n)
        for (int64_t c = 0; c < n; c += LANES) {
            const lanes distance = lanes_of(x + c, n - c) - lanes_of(k->centre + c, n - c);
            lanes_to_some(square + c, n - c, distance * distance);
        }
}

static void row_columns_products(int64_t pixels, int64_t n, const double *dy, const double *x,
                                 const struct fl_row_columns *k, double *g, double *product) {
    for (int64_t p = 0; p < pixels; p++, dy += n, x += n, g += n, product += n)
        for (int64_t c = 0; c < n; c += LANES) {
            const lanes of = lanes_of(dy + c, n - c) * lanes_of(k->gamma + c, n - c);
            const lanes normal = normal_of(k, c, n, x + c); /* before g, which may be dy, is written */
            lanes_to_some(product + c, n - c, of * normal);
            lanes_to_some(g + c, n - c, of);
        }
}

static void row_columns_shares(int64_t pixels, int64_t n, const double *dy, const double *x,
                               const struct fl_row_columns *k, double *total) {
    for (int64_t p = 0; p < pixels; p++, dy += n, x += n)
        for (int64_t c = 0; c < n; c += LANES)
            lanes_to_some(total + c, n - c,
                          lanes_of(total + c, n - c) + lanes_of(dy + c, n - c) * normal_of(k, c, n, x + c));
}

/* Adds n numbers to chains from `at` on, which do not end before. */
static inline void add_to_chains(double *chain, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        lanes_to_some(chain + i, n - i, lanes_of(chain + i, n - i) + lanes_of(x + i, n - i));
}

static void row_add_chains(int64_t pixels, int64_t n, int64_t depth, int64_t first, const double *x, double *chain) {
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t k = 0; k * depth < n; k++) {
            double *own = chain + k * FL_ROW_CHAINS;
            int64_t at = (first + p) * depth % FL_ROW_CHAINS;
            for (int64_t c = 0, some; c < depth; c += some, at = 0) {
                const int64_t room = FL_ROW_CHAINS - at;
                some = depth - c < room ? depth - c : room;
                add_to_chains(own + at, x + p * n + k * depth + c, some);
            }
        }
}

#endif
