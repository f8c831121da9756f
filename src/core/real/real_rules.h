/* real_rules.h - the functions of ops.def that are no sums and products, the same for a processor and a device:
 * fl_odd_<name>, the real function of doubles, exact or rounded to odd at 53 bits, and fl_near_<name>, the same rounded
 * to odd at 32 bits, which costs less and decides every rounding to nearest or towards zero in any format.
 *
 * The rounding of either is the rounding of the real number (Boldo and Melquiond 2008), if pairs of doubles, with an
 * error below 2^-95 of it, decide on which side of a double it lies. Tests show that against MPFR for all 16-bit
 * inputs; in binary32 an undecided case is improbable (about one in 2^40 arguments), not excluded.
 *
 * fl_near_ first computes in double, with an error below 2^-40 of the result, and in pairs if that does not decide. */
#ifndef FL_REAL_RULES_H
#define FL_REAL_RULES_H

#include "core/real/real_angle.h"
#include "core/real/real_pair.h"
#include "core/real/real_quick.h"
#include "core/real/real_tables.h"

#define REAL struct fl_pair
#define REAL_NAME(name) fl_pair_##name
#define REAL_PICK(pair, quick) (pair)
#include "core/real/real_functions.inc"
#define REAL double
#define REAL_NAME(name) fl_quick_##name
#define REAL_PICK(pair, quick) (quick)
#include "core/real/real_functions.inc"

/* --- numbers that are not rounded --------------------------------------------------------------------------------- */

FL_BOTH double fl_real_sign(double x, double size) { /* size with the sign of x */
    return copysign(size, x);
}

FL_BOTH bool fl_real_is_power_of_two(double x) { /* x > 0 */
    uint64_t fraction;
    fl_split(x, &fraction);
    return fraction == 0;
}

/* n if x is 10^n, -1 if it is no such power; 10^10 is the last that binary32 holds. */
FL_BOTH int fl_real_decimal(double x) {
    double power = 1;
    for (int n = 0; n <= 22; n++, power *= 10)
        if (x == power)
            return n;
    return -1;
}

/* --- functions of one number: `value` for special arguments, pairs or doubles for all others ---------------------- */

#define FL_REAL_FUNCTION(name, special, value)                                                                         \
    FL_BOTH_CALLED double fl_odd_##name(double x) {                                                                    \
        if (special)                                                                                                   \
            return value;                                                                                              \
        return fl_pair_odd(fl_pair_##name(fl_pair_of(x)));                                                             \
    }                                                                                                                  \
    FL_BOTH_CALLED double fl_near_##name(double x) {                                                                   \
        if (special)                                                                                                   \
            return fl_coarse(value);                                                                                   \
        const double quick = fl_quick_##name(x);                                                                       \
        return fl_coarse(fl_coarse_is_known(quick) ? quick : fl_odd_##name(x));                                        \
    }

#define FL_NO_NUMBER (x - x != 0) /* NaN or infinite */
#define FL_OR_NAN(infinite) (x != x ? x : (infinite))

FL_REAL_FUNCTION(sigmoid, FL_NO_NUMBER, FL_OR_NAN(x > 0 ? 1 : 0))
FL_REAL_FUNCTION(logsigmoid, FL_NO_NUMBER, FL_OR_NAN(x > 0 ? -0.0 : x))
FL_REAL_FUNCTION(silu, FL_NO_NUMBER || x == 0, x < 0 ? -0.0 : x)
FL_REAL_FUNCTION(softsign, FL_NO_NUMBER || x == 0, FL_OR_NAN(x == 0 ? x : fl_real_sign(x, 1)))
FL_REAL_FUNCTION(tanh, FL_NO_NUMBER || x == 0, FL_OR_NAN(x == 0 ? x : fl_real_sign(x, 1)))
FL_REAL_FUNCTION(tanhshrink, FL_NO_NUMBER || x == 0, x)
FL_REAL_FUNCTION(softplus, FL_NO_NUMBER, FL_OR_NAN(x > 0 ? x : 0))
FL_REAL_FUNCTION(gelu, FL_NO_NUMBER || x == 0, x < 0 ? -0.0 : x)
FL_REAL_FUNCTION(gelu_tanh, FL_NO_NUMBER || x == 0, x < 0 ? -0.0 : x)
FL_REAL_FUNCTION(exp, FL_NO_NUMBER || x == 0, FL_OR_NAN(x == 0 ? 1 : x > 0 ? x : 0))
FL_REAL_FUNCTION(expm1, FL_NO_NUMBER || x == 0, x < 0 ? -1 : x)
FL_REAL_FUNCTION(log, !(x > 0) || FL_NO_NUMBER || x == 1, x == 0 ? -HUGE_VAL : x < 0 ? NAN : x == 1 ? 0 : x)
FL_REAL_FUNCTION(log2, !(x > 0) || FL_NO_NUMBER || fl_real_is_power_of_two(x),
                 x == 0         ? -HUGE_VAL
                 : x < 0        ? NAN
                 : FL_NO_NUMBER ? x
                                : fl_floor_log2(x))
FL_REAL_FUNCTION(log10, !(x > 0) || FL_NO_NUMBER || fl_real_decimal(x) >= 0,
                 x == 0         ? -HUGE_VAL
                 : x < 0        ? NAN
                 : FL_NO_NUMBER ? x
                                : fl_real_decimal(x))
FL_REAL_FUNCTION(log1p, !(x > -1) || FL_NO_NUMBER || x == 0, x == -1 ? -HUGE_VAL : x < -1 ? NAN : x)
FL_REAL_FUNCTION(sqrt, !(x > 0) || FL_NO_NUMBER, x < 0 ? NAN : x)
FL_REAL_FUNCTION(rsqrt, !(x > 0) || FL_NO_NUMBER, FL_OR_NAN(x == 0 ? fl_real_sign(x, HUGE_VAL) : x < 0 ? NAN : 0))
FL_REAL_FUNCTION(reciprocal, x == 0 || FL_NO_NUMBER, FL_OR_NAN(fl_real_sign(x, x == 0 ? HUGE_VAL : 0)))
FL_REAL_FUNCTION(sin, x == 0 || FL_NO_NUMBER, x == 0 ? x : NAN)
FL_REAL_FUNCTION(cos, x == 0 || FL_NO_NUMBER, x == 0 ? 1 : NAN)
FL_REAL_FUNCTION(tan, x == 0 || FL_NO_NUMBER, x == 0 ? x : NAN)
FL_REAL_FUNCTION(asin, x == 0 || !(x >= -1 && x <= 1), x == 0 ? x : NAN)
FL_REAL_FUNCTION(acos, x == 1 || !(x >= -1 && x <= 1), x == 1 ? 0 : NAN)
FL_REAL_FUNCTION(atan, x == 0 || FL_NO_NUMBER,
                 FL_OR_NAN(x == 0 ? x : fl_real_sign(x, fl_pair_odd(fl_pair_new(FL_REAL_HALF_PI)))))
FL_REAL_FUNCTION(sinh, x == 0 || FL_NO_NUMBER, x)
FL_REAL_FUNCTION(cosh, x == 0 || FL_NO_NUMBER, FL_OR_NAN(x == 0 ? 1 : HUGE_VAL))
FL_REAL_FUNCTION(asinh, x == 0 || FL_NO_NUMBER, x)
FL_REAL_FUNCTION(acosh, !(x > 1) || FL_NO_NUMBER, x == 1 ? 0 : x < 1 ? NAN : x)
FL_REAL_FUNCTION(atanh, x == 0 || !(x > -1 && x < 1), x == 0 ? x : x == 1 || x == -1 ? fl_real_sign(x, HUGE_VAL) : NAN)

/* Functions that are exact with either accuracy, because inputs have 24 bits. */
#define FL_REAL_EXACT(name, parameters, expr)                                                                          \
    FL_BOTH double fl_odd_##name parameters {                                                                          \
        return expr;                                                                                                   \
    }                                                                                                                  \
    FL_BOTH double fl_near_##name parameters {                                                                         \
        return fl_coarse(expr);                                                                                        \
    }
FL_REAL_EXACT(floor, (double x), floor(x))
FL_REAL_EXACT(ceil, (double x), ceil(x))
FL_REAL_EXACT(round, (double x), rint(x))
FL_REAL_EXACT(leaky_relu, (double x, double alpha), x > 0 ? x : alpha * x)
FL_REAL_EXACT(leaky_relu_grad, (double dy, double x, double alpha), x > 0 ? dy : alpha * dy)
FL_REAL_EXACT(hardtanh, (double x, double low, double high), x<low ? low : x> high ? high : x)
FL_REAL_EXACT(hardtanh_grad, (double dy, double x, double low, double high), x > low && x < high ? dy : 0)
FL_REAL_EXACT(clamp_grad, (double dy, double x, double low, double high), x >= low && x <= high ? dy : 0)

/* --- elu ---------------------------------------------------------------------------------------------------------- */

FL_BOTH bool fl_elu_is_special(double x, double alpha) {
    return !(x < 0) || FL_NO_NUMBER || alpha == 0;
}
FL_BOTH double fl_elu_special(double x, double alpha) {
    return x > 0 || x != x ? x : x == 0 ? alpha * x : -alpha;
}
FL_BOTH_CALLED double fl_odd_elu(double x, double alpha) {
    if (fl_elu_is_special(x, alpha))
        return fl_elu_special(x, alpha);
    return fl_pair_odd(fl_pair_mul(fl_pair_expm1(fl_pair_of(x)), fl_pair_of(alpha)));
}
FL_BOTH_CALLED double fl_near_elu(double x, double alpha) {
    if (fl_elu_is_special(x, alpha))
        return fl_coarse(fl_elu_special(x, alpha));
    const double quick = fl_quick_expm1(x) * alpha;
    return fl_coarse(fl_coarse_is_known(quick) ? quick : fl_odd_elu(x, alpha));
}

/* --- gradients: dy f'(x), exact and then rounded once ------------------------------------------------------------- */

/* If dy or x is not finite, or is zero, the result is IEEE arithmetic on f'(x), or on its limit at an infinite x. f'(0)
 * is a double for every function, and computed exactly; otherwise only the sign of f'(x) counts. */
FL_BOTH bool fl_slope_is_special(double dy, double x) {
    return dy - dy != 0 || FL_NO_NUMBER || dy == 0 || x == 0;
}

#define FL_REAL_SLOPE(CONSTANT, name, slope, below, above)                                                             \
    FL_BOTH double fl_special_##name(double dy, double x) {                                                            \
        const double quick = FL_NO_NUMBER ? FL_OR_NAN(x < 0 ? (below) : (above)) : fl_quick_##slope(x);                \
        return dy * (quick == quick || FL_NO_NUMBER ? quick : fl_pair_##slope(fl_pair_of(x)).h);                       \
    }                                                                                                                  \
    FL_BOTH_CALLED double fl_odd_##name(double dy, double x) {                                                         \
        if (fl_slope_is_special(dy, x))                                                                                \
            return fl_special_##name(dy, x);                                                                           \
        return fl_pair_odd(fl_pair_mul(fl_pair_##slope(fl_pair_of(x)), fl_pair_of(dy)));                               \
    }                                                                                                                  \
    FL_BOTH_CALLED double fl_near_##name(double dy, double x) {                                                        \
        if (fl_slope_is_special(dy, x))                                                                                \
            return fl_coarse(fl_special_##name(dy, x));                                                                \
        const double quick = fl_quick_##slope(x) * dy;                                                                 \
        return fl_coarse(fl_coarse_is_known(quick) ? quick : fl_odd_##name(dy, x));                                    \
    }

FL_BOTH struct fl_pair fl_pair_sigmoid_mirrored(struct fl_pair x) {
    return fl_pair_sigmoid(fl_pair_negative(x));
}
FL_BOTH double fl_quick_sigmoid_mirrored(double x) {
    return fl_quick_sigmoid(-x);
}

/* Constant and name of the operation, the slope, its limits. */
#define FL_REAL_SLOPES(SLOPE)                                                                                          \
    SLOPE(SIGMOID_GRAD, sigmoid_grad, sigmoid_slope, 0, 0)                                                             \
    SLOPE(LOGSIGMOID_GRAD, logsigmoid_grad, sigmoid_mirrored, 1, 0)                                                    \
    SLOPE(SILU_GRAD, silu_grad, silu_slope, -0.0, 1)                                                                   \
    SLOPE(TANH_GRAD, tanh_grad, tanh_slope, 0, 0)                                                                      \
    SLOPE(SOFTPLUS_GRAD, softplus_grad, sigmoid, 0, 1)                                                                 \
    SLOPE(GELU_GRAD, gelu_grad, gelu_slope, -0.0, 1)                                                                   \
    SLOPE(GELU_TANH_GRAD, gelu_tanh_grad, gelu_tanh_slope, -0.0, 1)                                                    \
    SLOPE(EXP_GRAD, exp_grad, exp, 0, HUGE_VAL)                                                                        \
    SLOPE(SIN_GRAD, sin_grad, cos, NAN, NAN)                                                                           \
    SLOPE(COS_GRAD, cos_grad, cos_slope, NAN, NAN)
FL_REAL_SLOPES(FL_REAL_SLOPE)

FL_BOTH_CALLED double fl_odd_elu_grad(double dy, double x, double alpha) {
    if (!(x <= 0))
        return x > 0 ? dy : dy * x;
    if (fl_slope_is_special(dy, x) || alpha == 0)
        return dy * (alpha * (FL_NO_NUMBER ? 0 : 1)); /* the sign and size of alpha e^x, as dy is 0, infinite or NaN */
    return fl_pair_odd(fl_pair_mul(fl_pair_exp(fl_pair_of(x)), fl_pair_of(dy * alpha)));
}
FL_BOTH_CALLED double fl_near_elu_grad(double dy, double x, double alpha) {
    if (x > -600 && x < 0) {
        const double quick = fl_quick_exp(x) * (dy * alpha);
        if (fl_coarse_is_known(quick))
            return fl_coarse(quick);
    }
    return fl_coarse(fl_odd_elu_grad(dy, x, alpha));
}

/* dy / x, dy / (2 sqrt x), -dy / x^2, dy / (1 + |x|)^2 may be exact, so each is one division: a product with a rounded
 * quotient would not be exact. Poles and arguments outside the domain give the results of IEEE 754. */
#define FL_REAL_QUOTIENT(name, special, value, exact)                                                                  \
    FL_BOTH_CALLED double fl_odd_##name(double dy, double x) {                                                         \
        if (fl_slope_is_special(dy, x) || (special))                                                                   \
            return value;                                                                                              \
        return fl_pair_odd(exact);                                                                                     \
    }                                                                                                                  \
    FL_BOTH double fl_near_##name(double dy, double x) {                                                               \
        return fl_coarse(fl_odd_##name(dy, x));                                                                        \
    }
FL_REAL_QUOTIENT(log_grad, x == 0, dy / x, fl_pair_div(fl_pair_of(dy), fl_pair_of(x)))
FL_REAL_QUOTIENT(sqrt_grad, !(x > 0), dy / (2 * sqrt(x)),
                 fl_pair_div(fl_pair_of(dy * 0.5), fl_pair_sqrt(fl_pair_of(x))))
FL_REAL_QUOTIENT(reciprocal_grad, x == 0, -dy / (x * x), fl_pair_div(fl_pair_of(-dy), fl_pair_product(x, x)))

FL_BOTH double fl_softsign_special(double dy, double x) { /* the slope is 1 at 0, above 0 at all other numbers */
    return dy * (FL_NO_NUMBER ? FL_OR_NAN(0) : 1);
}
FL_BOTH_CALLED double fl_odd_softsign_grad(double dy, double x) {
    if (fl_slope_is_special(dy, x))
        return fl_softsign_special(dy, x);
    const struct fl_pair d = fl_pair_sum(1, fabs(x));
    return fl_pair_odd(fl_pair_div(fl_pair_of(dy), fl_pair_mul(d, d)));
}
FL_BOTH_CALLED double fl_near_softsign_grad(double dy, double x) {
    if (fl_slope_is_special(dy, x))
        return fl_coarse(fl_softsign_special(dy, x));
    const double d = 1 + fabs(x), quick = dy / (d * d);
    return fl_coarse(fl_coarse_is_known(quick) ? quick : fl_odd_softsign_grad(dy, x));
}

#undef FL_NO_NUMBER
#undef FL_OR_NAN
#endif
