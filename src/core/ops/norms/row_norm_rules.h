/* row_norm_rules.h - layer normalisation and normalisation by the root mean square: the numbers of one row, and what
 * its elements are sums of. The text that a processor and a device run alike; no libm but the square root.
 *
 * Integer formats, with c the integer mantissa next to the mean of a row and k that next to the mean of g = gamma dy:
 *   y  = gamma (F (x - c) + G) + beta
 *   dx = F (g - k) + G (x - c) + H
 * F, G and H are mantissas of 31 bits with exponents of their own, each rounded once from its double. The sums are
 * exact and rounded once. The mean square has c = k = G = H = 0 where the mean would stand. */
#ifndef FL_ROW_NORM_RULES_H
#define FL_ROW_NORM_RULES_H

#include "autoflex/autoflex_rules.h"
#include "core/arithmetic/coefficient.h"
#include "core/arithmetic/exact_rules.h"

enum {
    FL_ROW_CHAINS = 32, /* of the sums of a row in float formats: element i joins chain i % 32; then chains in order */
    FL_ROW_BLOCK = 1 << 16 /* products of three mantissas whose sum surely fits 64 bits */
};

/* --- integer formats ---------------------------------------------------------------------------------------------- */

/* Exact sums of mantissas: x, x^2, g = gamma dy, g x. */
struct fl_row_sums {
    fl_int128 x, xx, g, gx;
};

/* The terms of an element. */
struct fl_row_terms {
    struct fl_coefficient f, g, h;
    int64_t centre, g_centre; /* c, k */
};

/* What the rows of a gradient by gamma are weighted with: its element is the sum of weight dy (n x - sum of x), or of
 * weight dy x; weight.m is 0 where every such factor is 0. */
struct fl_row_weight {
    struct fl_coefficient weight;
    int64_t sum;
};

/* Population variance, or the mean square, in real units. */
FL_BOTH double fl_row_spread(const struct fl_row_sums *s, int64_t n, bool mean_square, int e) {
    const double count = (double)n;
    if (mean_square)
        return fl_scale2(fl_double_of_128(s->xx) / count, -2 * e);
    return fl_scale2(fl_double_of_128(n * s->xx - s->x * s->x) / (count * count), -2 * e);
}

FL_BOTH double fl_row_inverse(const struct fl_row_sums *s, int64_t n, bool mean_square, int e, double epsilon) {
    return 1 / sqrt(fl_row_spread(s, n, mean_square, e) + epsilon);
}

/* A coefficient of mantissas at exponent e, from that of real numbers. */
FL_BOTH struct fl_coefficient fl_row_coefficient(double multiplier, int e) {
    struct fl_coefficient k = fl_coefficient_of(multiplier);
    k.e = k.m ? k.e + e : 0;
    return k;
}

FL_BOTH struct fl_row_terms fl_row_forward(const struct fl_row_sums *s, int64_t n, bool mean_square, int e,
                                           double epsilon) {
    const double inverse = fl_row_inverse(s, n, mean_square, e, epsilon);
    const double mean = mean_square ? 0 : fl_double_of_128(s->x) / (double)n, centre = fl_nearest_integer(mean);
    struct fl_row_terms t;
    t.f = fl_row_coefficient(inverse, e);
    t.g = fl_row_coefficient(-inverse * (mean - centre), e);
    t.h = fl_row_coefficient(0, 0);
    t.centre = (int64_t)centre;
    t.g_centre = 0;
    return t;
}

/* e: of x, e_g: of g. */
FL_BOTH struct fl_row_terms fl_row_backward(const struct fl_row_sums *s, int64_t n, bool mean_square, int e, int e_g,
                                            double epsilon) {
    const double count = (double)n, inverse = fl_row_inverse(s, n, mean_square, e, epsilon);
    /* the mean of g times the distance of x from its mean */
    const double dot =
        mean_square ? fl_double_of_128(s->gx) / count : fl_double_of_128(n * s->gx - s->x * s->g) / (count * count);
    const double slope = -(fl_scale2(dot, -e - e_g) * inverse * inverse * inverse);
    const double mean = mean_square ? 0 : fl_double_of_128(s->x) / count, centre = fl_nearest_integer(mean);
    const double g_mean = mean_square ? 0 : fl_double_of_128(s->g) / count, g_centre = fl_nearest_integer(g_mean);
    struct fl_row_terms t;
    t.f = fl_row_coefficient(inverse, e_g);
    t.g = fl_row_coefficient(slope, e);
    t.h = fl_row_coefficient(-(inverse * fl_scale2(g_mean - g_centre, -e_g)) - slope * fl_scale2(mean - centre, -e), 0);
    t.centre = (int64_t)centre;
    t.g_centre = (int64_t)g_centre;
    return t;
}

FL_BOTH struct fl_row_weight fl_row_weight_of(const struct fl_row_sums *s, int64_t n, bool mean_square, int e,
                                              double epsilon) {
    const double inverse = fl_row_inverse(s, n, mean_square, e, epsilon);
    const bool nothing = mean_square ? s->xx == 0 : n * s->xx == s->x * s->x;
    struct fl_row_weight w;
    w.sum = mean_square ? 0 : (int64_t)s->x;
    w.weight = fl_row_coefficient(nothing ? 0 : mean_square ? inverse : inverse / (double)n, e);
    return w;
}

/* y from the mantissas of x, gamma and beta. */
FL_BOTH struct fl_wide_sum fl_row_value(const struct fl_row_terms *t, int64_t x, int64_t gamma, int e_gamma,
                                        int64_t beta, int e_beta) {
    const struct fl_term terms[3] = {
        {t->f.m * gamma * (x - t->centre), t->f.e + e_gamma}, {t->g.m * gamma, t->g.e + e_gamma}, {beta, e_beta}};
    return fl_terms_sum(terms, 3);
}

/* dx from the mantissas of g and x. */
FL_BOTH struct fl_wide_sum fl_row_gradient(const struct fl_row_terms *t, int64_t g, int64_t x) {
    const struct fl_term terms[3] = {
        {t->f.m * (g - t->g_centre), t->f.e}, {t->g.m * (x - t->centre), t->g.e}, {t->h.m, t->h.e}};
    return fl_terms_sum(terms, 3);
}

/* What a row adds to the gradient by gamma, in units of 2^-finest. The sum over all rows stays below 2^126: rows whose
 * elements differ deviate by 1 / sqrt(2 n) mantissas at least and by 2^16 at most, which bounds how far the exponents
 * of their weights lie apart. */
FL_BOTH fl_int128 fl_row_share(const struct fl_row_weight *w, int64_t n, bool mean_square, int finest, int64_t dy,
                               int64_t x) {
    if (!w->weight.m)
        return 0;
    const fl_int128 distance = mean_square ? (fl_int128)x : (fl_int128)n * x - w->sum;
    return dy * distance * ((fl_int128)w->weight.m * ((fl_int128)1 << (finest - w->weight.e)));
}

/* --- float formats: in double ------------------------------------------------------------------------------------- */

/* mean: 0 for the mean square; mean_g, slope: of a gradient. */
struct fl_row_numbers {
    double mean, inverse, mean_g, slope;
};

FL_BOTH double fl_row_normal(const struct fl_row_numbers *r, double x) {
    return (x - r->mean) * r->inverse;
}
FL_BOTH double fl_row_float_value(const struct fl_row_numbers *r, double x, double gamma, double beta) {
    return gamma * fl_row_normal(r, x) + beta;
}
FL_BOTH double fl_row_float_gradient(const struct fl_row_numbers *r, double g, double x) {
    return (g - r->mean_g - fl_row_normal(r, x) * r->slope) * r->inverse;
}

#endif
