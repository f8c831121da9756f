/* softmax_map_rules.h - softmax over the last dimension as an operation of its own: which elements of a row take part,
 * and the gradient. The same code for a processor and a device. */
#ifndef FL_SOFTMAX_MAP_RULES_H
#define FL_SOFTMAX_MAP_RULES_H

#include "core/arithmetic/exact_rules.h"

/* How many elements of a row of n take part. q: rows of a causal matrix, of which row i sees elements 0 ... i + n - q;
 * 0: all. */
FL_BOTH int64_t fl_softmax_visible(int64_t row, int64_t n, int64_t q) {
    if (!q)
        return n;
    const int64_t visible = row % q + 1 + n - q;
    return visible < 0 ? 0 : visible < n ? visible : n;
}

/* scale p (dp - sum of p dp), exactly; dot: that sum of products of mantissas, |dot| < 2^62; ep, edp: the exponents. */
FL_BOTH struct fl_wide_sum fl_softmax_slope(struct fl_term scale, int64_t p, int64_t dp, int64_t dot, int ep, int edp) {
    const int64_t weight = p * scale.m, low = dot & 0x3fffff, middle = dot >> 22 & 0x3fffff, high = dot >> 44;
    const int e = scale.e + 2 * ep + edp; /* of p times the sum, in three parts so that each product fits a term */
    const struct fl_term terms[4] = {
        {weight * dp, scale.e + ep + edp}, {-weight * low, e}, {-weight * middle, e - 22}, {-weight * high, e - 44}};
    return fl_terms_sum(terms, 4);
}

#endif
