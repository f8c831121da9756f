/* exact.c - sums of a few terms of any exponents, rounded once. */
#include "core/arithmetic/exact_rules.h"

struct fl_wide_sum fl_sum_terms(const struct fl_term *terms, int n) {
    return fl_terms_sum(terms, n);
}

int64_t fl_wide_round(struct fl_wide_sum sum, int e_out, int64_t limit, const uint32_t *draw, int64_t *saturated) {
    return fl_terms_round(sum, e_out, limit, draw, saturated);
}

double fl_wide_abs(struct fl_wide_sum sum) {
    return fl_terms_abs(sum);
}

double fl_wide_odd(struct fl_wide_sum sum) {
    return fl_terms_odd(sum);
}
