/* row_norm_sums.h - sums of elements that are normalised together, rows (row_norm.c) or groups of channels
 * (group_norm.c), and in integer formats the elements made of them, by 128 bits at one exponent where that suffices. */
#ifndef FL_ROW_NORM_SUMS_H
#define FL_ROW_NORM_SUMS_H

#include "core/ops/norms/row_norm_rules.h"
#include "core/rows/rows.h"

/* Adds those of n mantissas; dy NULL: of x alone. */
static inline void fl_row_add_sums(struct fl_row_sums *s, int64_t n, const double *x, const double *dy,
                                   const double *gamma) {
    for (int64_t first = 0; first < n; first += FL_ROW_BLOCK) {
        const int64_t end = first + FL_ROW_BLOCK < n ? first + FL_ROW_BLOCK : n;
        int64_t sum = 0, squares = 0, g_sum = 0, products = 0;
        for (int64_t i = first; i < end; i++) {
            const int64_t m = (int64_t)x[i];
            sum += m;
            squares += m * m;
        }
        for (int64_t i = first; dy && i < end; i++) {
            const int64_t g = (int64_t)dy[i] * (int64_t)gamma[i];
            g_sum += g;
            products += g * (int64_t)x[i];
        }
        s->x += sum;
        s->xx += squares;
        s->g += g_sum;
        s->gx += products;
    }
}

static inline struct fl_row_sums fl_row_sums_of(int64_t n, const double *x, const double *dy, const double *gamma) {
    struct fl_row_sums s = {0};
    fl_row_add_sums(&s, n, x, dy, gamma);
    return s;
}

/* A sum of three terms of constant exponents in 128 bits: the shift of each term, and the exponent of the sum. */
struct fl_aligned {
    int up[3], e;
    bool fits;
};

/* bits: |term| < 2^that; exponents of terms that are always 0 do not count. */
static inline struct fl_aligned fl_align(const int *exponents, const int *bits) {
    struct fl_aligned a = {.fits = true, .e = INT32_MIN};
    for (int i = 0; i < 3; i++)
        if (bits[i] && exponents[i] > a.e)
            a.e = exponents[i];
    for (int i = 0; i < 3; i++) {
        const int64_t up = (int64_t)a.e - exponents[i];
        a.fits = a.fits && (!bits[i] || up + bits[i] <= 124);
        a.up[i] = bits[i] && a.fits ? (int)up : 0;
    }
    return a;
}

/* The alignment of y, and that of dx. */
static inline struct fl_aligned fl_align_forward(const struct fl_row_terms *t, int eg, bool has_beta, int eb) {
    return fl_align((int[]){t->f.e + eg, t->g.e + eg, eb}, (int[]){62, t->g.m ? 47 : 0, has_beta ? 16 : 0});
}
static inline struct fl_aligned fl_align_backward(const struct fl_row_terms *t) {
    return fl_align((int[]){t->f.e, t->g.e, t->h.e}, (int[]){62, t->g.m ? 48 : 0, t->h.m ? 31 : 0});
}

/* y of n mantissas that are normalised alike; eg, eb: exponents of gamma and beta (NULL: none). */
static inline void fl_row_map_forward(const struct fl_aligned *a, const struct fl_row_terms *t, int eg, int eb,
                                      int64_t n, const double *x, const double *gamma, const double *beta,
                                      struct fl_row_out *out) {
    if (a->fits && fl_rows_has_unit(a->e)) {
        const double unit = fl_power_of_two(-a->e);
        const fl_int128 f = (fl_int128)1 << a->up[0], of_g = (fl_int128)1 << a->up[1], b = (fl_int128)1 << a->up[2];
        const int64_t g = t->g.m;
        for (int64_t c = 0; c < n; c++) {
            const int64_t scale = (int64_t)gamma[c];
            fl_int128 sum = (scale * t->f.m * ((int64_t)x[c] - t->centre)) * f + (g * scale) * of_g;
            if (beta)
                sum += (int64_t)beta[c] * b;
            fl_rows_keep_aligned(out, c, sum, unit);
        }
        return;
    }
    for (int64_t c = 0; c < n; c++)
        fl_rows_keep_wide(out, c,
                          fl_row_value(t, (int64_t)x[c], (int64_t)gamma[c], eg, beta ? (int64_t)beta[c] : 0, eb));
}

/* dx likewise. */
static inline void fl_row_map_backward(const struct fl_aligned *a, const struct fl_row_terms *t, int64_t n,
                                       const double *dy, const double *x, const double *gamma, struct fl_row_out *out) {
    if (a->fits && fl_rows_has_unit(a->e)) {
        const double unit = fl_power_of_two(-a->e);
        const fl_int128 f = (fl_int128)1 << a->up[0], g = (fl_int128)1 << a->up[1],
                        h = (fl_int128)t->h.m * ((fl_int128)1 << a->up[2]);
        for (int64_t c = 0; c < n; c++) {
            const int64_t of_g = (int64_t)(dy[c] * gamma[c]) - t->g_centre, of_x = (int64_t)x[c] - t->centre;
            fl_rows_keep_aligned(out, c, (t->f.m * of_g) * f + (t->g.m * of_x) * g + h, unit);
        }
        return;
    }
    for (int64_t c = 0; c < n; c++)
        fl_rows_keep_wide(out, c, fl_row_gradient(t, (int64_t)(dy[c] * gamma[c]), (int64_t)x[c]));
}

/* --- float formats ------------------------------------------------------------------------------------------------ */

/* The sum of n numbers of a float format, in FL_ROW_CHAINS chains. */
#define FL_ROW_SUM(n, term)                                                                                            \
    double chain[FL_ROW_CHAINS] = {0}, total = 0;                                                                      \
    int64_t i = 0;                                                                                                     \
    for (; i + FL_ROW_CHAINS <= (n); i += FL_ROW_CHAINS)                                                               \
        for (int j = 0; j < FL_ROW_CHAINS; j++)                                                                        \
            chain[j] += (term);                                                                                        \
    for (int j = 0; i + j < (n); j++)                                                                                  \
        chain[j] += (term);                                                                                            \
    for (int j = 0; j < FL_ROW_CHAINS; j++)                                                                            \
        total += chain[j];                                                                                             \
    return total;

static inline double fl_row_sum_of(int64_t n, const double *x) {
    FL_ROW_SUM(n, x[i + j])
}
static inline double fl_row_sum_of_squares(int64_t n, const double *x, double mean) {
    FL_ROW_SUM(n, (x[i + j] - mean) * (x[i + j] - mean))
}
static inline double fl_row_sum_of_products(int64_t n, const double *a, const double *b) {
    FL_ROW_SUM(n, a[i + j] * b[i + j])
}
static inline double fl_row_sum_of_normals(int64_t n, const double *a, const double *b, const double *x,
                                           const struct fl_row_numbers *r) {
    FL_ROW_SUM(n, a[i + j] * b[i + j] * fl_row_normal(r, x[i + j]))
}

static inline struct fl_row_numbers fl_row_numbers_of(int64_t n, const double *x, bool mean_square, double epsilon) {
    const double count = (double)n;
    struct fl_row_numbers r = {0};
    r.mean = mean_square ? 0 : fl_row_sum_of(n, x) / count;
    r.inverse = 1 / sqrt(fl_row_sum_of_squares(n, x, r.mean) / count + epsilon);
    return r;
}

static inline void fl_row_add_gradient(struct fl_row_numbers *r, int64_t n, const double *x, const double *dy,
                                       const double *gamma, bool mean_square) {
    const double count = (double)n;
    r->mean_g = mean_square ? 0 : fl_row_sum_of_products(n, dy, gamma) / count;
    r->slope = fl_row_sum_of_normals(n, dy, gamma, x, r) / count;
}

#undef FL_ROW_SUM

#endif
