/* functions.h - functions of doubles by fixed steps, whose errors are far below what one rounding to 24 bits leaves; of
 * the C library, only functions that are exact. */
#ifndef FL_PROGRAM_FUNCTIONS_H
#define FL_PROGRAM_FUNCTIONS_H

#include "core/arithmetic/elementary.h"
#include "core/real/real_rules.h"

/* The functions of real_rules.h are made for numbers of binary32; what lies beyond is taken as their limit. */
static inline double fl_in_range(double x) {
    return x > 0x1p150 ? 0x1p150 : x < -0x1p150 ? -0x1p150 : x;
}

static inline double fl_erf(double x) {
    const double size = fabs(x) * 0x1.6a09e667f3bcdp+0; /* times the square root of 2 */
    if (x != x)
        return x;
    if (size > 9)
        return x < 0 ? -1 : 1;
    const double y =
        size < 1.4 ? 2 * fl_quick_density(size) * fl_quick_normal_near(size) : 1 - 2 * fl_quick_normal_tail(size);
    return copysign(y, x);
}

/* e^x - 1 */
static inline double fl_expm1(double x) {
    return fabs(x) < 0.34 ? fl_quick_expm1_near(x) : fl_exp(x) - 1;
}

static inline double fl_tanh(double x) {
    return x == 0 ? x : x > 300 ? 1 : x < -300 ? -1 : x != x ? x : fl_quick_tanh(x);
}

static inline double fl_sigmoid(double x) {
    const double t = fl_exp(-fabs(x));
    return x < 0 ? t / (1 + t) : 1 / (1 + t);
}

static inline double fl_softplus(double x) {
    const double t = fl_exp(-fabs(x));
    return (x > 0 ? x : 0) + (x != x ? x : t < 0.3 ? fl_quick_log1p(t) : fl_log(1 + t));
}

/* x^y as IEEE 754 defines pow: exact products for small whole exponents. */
static inline double fl_pow(double x, double y) {
    const bool is_whole = y == rint(y), is_odd = is_whole && fabs(y) < 0x1p53 && fmod(y, 2) != 0;
    if (y == 0 || x == 1)
        return 1;
    if (x != x || y != y)
        return x + y;
    if (y == 0.5 && x >= 0 && x - x == 0)
        return sqrt(x);
    if (is_whole && fabs(y) <= 64) {
        double product = 1, power = x;
        for (int n = (int)fabs(y); n; n >>= 1, power *= power)
            if (n & 1)
                product *= power;
        return y < 0 ? 1 / product : product;
    }
    if (y - y != 0) /* infinite */
        return fabs(x) == 1 ? 1 : (fabs(x) > 1) == (y > 0) ? (double)INFINITY : 0;
    if (x < 0 && !is_whole && x - x == 0)
        return (double)NAN;
    const double size =
        x == 0 || x - x != 0 ? ((x == 0) == (y < 0) ? (double)INFINITY : 0) : fl_exp(y * fl_log(fabs(x)));
    return signbit(x) && is_odd ? -size : size;
}

#endif
