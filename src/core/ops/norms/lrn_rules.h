/* lrn_rules.h - local response normalisation across channels (Krizhevsky et al. 2012, section 3.3): the double that
 * each element is divided by. The text that a processor and a device run alike; no libm but the square root. */
#ifndef FL_LRN_RULES_H
#define FL_LRN_RULES_H

#include "autoflex/autoflex_rules.h"
#include "core/arithmetic/elementary.h"
#include "core/table/kernel.h"

/* y of channel c is x / d^beta, d = k + alpha / size times the sum of the squares of channels c - below ... c + above,
 * as far as there are any. */
struct fl_lrn_rule {
    double k, share, beta, slope; /* share: alpha / size; slope: 2 beta share */
    int64_t below, above;
};

/* channels: windows that reach further reach to the ends. */
FL_BOTH struct fl_lrn_rule fl_lrn_of(int64_t size, int64_t channels, float alpha, float beta, double k) {
    struct fl_lrn_rule how;
    how.k = k;
    how.share = (double)alpha / (double)size;
    how.beta = (double)beta;
    how.slope = 2 * how.beta * how.share;
    how.below = size / 2 < channels ? size / 2 : channels - 1;
    how.above = (size - 1) / 2 < channels ? (size - 1) / 2 : channels - 1;
    return how;
}

FL_BOTH double fl_lrn_base(const struct fl_lrn_rule *how, double squares) {
    return how->k + how->share * squares;
}

/* d^beta */
FL_BOTH double fl_lrn_power(const struct fl_lrn_rule *how, double d) {
    if (how->beta == 0.75) {
        const double root = sqrt(d);
        return root * sqrt(root);
    }
    if (how->beta == 0.5)
        return sqrt(d);
    return how->beta == 1 ? d : fl_exp(how->beta * fl_log(d));
}

/* The contribution of channel c to the gradients of its neighbours. */
FL_BOTH double fl_lrn_part(double dy, double x, double power, double d) {
    return dy * (x / (power * d));
}
/* dx; parts: the sum of those of the channels whose sums this one is in. */
FL_BOTH double fl_lrn_gradient(const struct fl_lrn_rule *how, double dy, double x, double power, double parts) {
    return dy / power - how->slope * x * parts;
}

#endif
