/* real_pair.h - numbers of about 104 bits as unevaluated sums of two doubles (Dekker 1971; Hida, Li and Bailey 2001),
 * and how one becomes a double rounded to odd.
 *
 * h is the sum rounded to nearest. Operations lose a few units of 2^-106 of their result, and keep what is far below
 * that where it stands alone: 1 + 2^-900 is (1, 2^-900). IEEE operations in a fixed order, fma where it is written. */
#ifndef FL_REAL_PAIR_H
#define FL_REAL_PAIR_H

#include "autoflex/autoflex_rules.h"

struct fl_pair {
    double h, l;
};

/* A function large enough to be called rather than repeated. */
#ifdef __CUDACC__
#define FL_BOTH_CALLED [[maybe_unused]] static __host__ __device__ __noinline__
#else
#define FL_BOTH_CALLED static __attribute__((noinline, unused))
#endif

FL_BOTH struct fl_pair fl_pair_new(double h, double l) {
    struct fl_pair p;
    p.h = h;
    p.l = l;
    return p;
}

FL_BOTH struct fl_pair fl_pair_of(double x) {
    return fl_pair_new(x, 0);
}

/* a + b exactly, |a| >= |b| or a = 0. */
FL_BOTH struct fl_pair fl_pair_ordered_sum(double a, double b) {
    const double h = a + b;
    return fl_pair_new(h, b - (h - a));
}

/* a + b exactly. */
FL_BOTH struct fl_pair fl_pair_sum(double a, double b) {
    const double h = a + b, part = h - a;
    return fl_pair_new(h, (a - (h - part)) + (b - part));
}

/* a b exactly. */
FL_BOTH struct fl_pair fl_pair_product(double a, double b) {
    const double h = a * b;
    return fl_pair_new(h, fma(a, b, -h));
}

FL_BOTH struct fl_pair fl_pair_negative(struct fl_pair a) {
    return fl_pair_new(-a.h, -a.l);
}

FL_BOTH struct fl_pair fl_pair_add(struct fl_pair a, struct fl_pair b) {
    struct fl_pair high = fl_pair_sum(a.h, b.h);
    const struct fl_pair low = fl_pair_sum(a.l, b.l);
    high = fl_pair_ordered_sum(high.h, high.l + low.h);
    return fl_pair_ordered_sum(high.h, high.l + low.l);
}

FL_BOTH struct fl_pair fl_pair_sub(struct fl_pair a, struct fl_pair b) {
    return fl_pair_add(a, fl_pair_negative(b));
}

FL_BOTH struct fl_pair fl_pair_mul(struct fl_pair a, struct fl_pair b) {
    const struct fl_pair p = fl_pair_product(a.h, b.h);
    return fl_pair_ordered_sum(p.h, p.l + fma(a.h, b.l, a.l * b.h));
}

/* By a power of two. */
FL_BOTH struct fl_pair fl_pair_scale(struct fl_pair a, double power) {
    return fl_pair_new(a.h * power, a.l * power);
}

FL_BOTH struct fl_pair fl_pair_div(struct fl_pair a, struct fl_pair b) {
    const double first = a.h / b.h;
    struct fl_pair rest = fl_pair_sub(a, fl_pair_mul(b, fl_pair_of(first)));
    const double second = rest.h / b.h;
    rest = fl_pair_sub(rest, fl_pair_mul(b, fl_pair_of(second)));
    const struct fl_pair q = fl_pair_ordered_sum(first, second);
    return fl_pair_ordered_sum(q.h, q.l + rest.h / b.h);
}

/* The square root of a number above zero. */
FL_BOTH struct fl_pair fl_pair_sqrt(struct fl_pair a) {
    const double first = sqrt(a.h);
    struct fl_pair rest = fl_pair_sub(a, fl_pair_product(first, first));
    const double second = rest.h / (2 * first);
    const struct fl_pair root = fl_pair_ordered_sum(first, second);
    rest = fl_pair_sub(a, fl_pair_mul(root, root));
    return fl_pair_ordered_sum(root.h, root.l + rest.h / (2 * first));
}

FL_BOTH double fl_pair_top(struct fl_pair a) {
    return a.h;
}

/* Rounded to odd: a itself where it is a double, else of the two doubles around it the one whose last bit is set. What
 * is rounded again to fewer bits is then rounded as a would be (Boldo and Melquiond 2008). */
FL_BOTH double fl_pair_odd(struct fl_pair a) {
    uint64_t bits;
    memcpy(&bits, &a.h, sizeof bits);
    if (a.l == 0 || a.l != a.l || (bits & 1u) || a.h == 0)
        return a.h;
    bits += (a.l > 0) == (a.h > 0) ? 1u : (uint64_t)-1;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}

enum { FL_COARSE_BITS = 21 }; /* of a double that fl_coarse takes away: 32 significant bits stay */

/* Rounded to odd at 32 significant bits; of x rounded to odd at 53 as well. 0, Inf and NaN stay. */
FL_BOTH double fl_coarse(double x) {
    const uint64_t below = ((uint64_t)1 << FL_COARSE_BITS) - 1;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x - x != 0 || !(bits & below))
        return x;
    bits = (bits & ~below) | (below + 1);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Whether every number within 2^-40 of x, relatively, has fl_coarse(x) and is no number of 32 bits. */
FL_BOTH bool fl_coarse_is_known(double x) {
    const uint64_t below = ((uint64_t)1 << FL_COARSE_BITS) - 1, error = (uint64_t)1 << 13;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x - x == 0 && (bits & below) > error && (bits & below) < below - error;
}

#endif
