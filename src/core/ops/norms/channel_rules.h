/* channel_rules.h - the numbers of one channel of batch normalisation: a fixed sequence of double operations, the same
 * code for a processor and a device. Plain C without libm except the square root. */
#ifndef FL_CHANNEL_RULES_H
#define FL_CHANNEL_RULES_H

#include "autoflex/autoflex_rules.h"
#include "core/arithmetic/coefficient.h"
#include "core/arithmetic/exact_rules.h"

/* Mean and population variance of `rows` elements from their exact sums of mantissas, at exponent e. */
FL_BOTH void fl_exact_moments(int64_t rows, int64_t sum, int64_t squares, int e, double *mean, double *variance) {
    const double n = (double)rows;
    const fl_int128 s1 = sum, s2 = squares;
    *mean = fl_scale2((double)sum / n, -e);
    *variance = fl_scale2(fl_double_of_128(rows * s2 - s1 * s1) / (n * n), -2 * e);
}

/* The same from sums in double. */
FL_BOTH void fl_float_moments(int64_t rows, double sum, double squares, double *mean, double *variance) {
    const double n = (double)rows;
    *mean = sum / n;
    const double v = squares / n - *mean * *mean;
    *variance = v < 0 ? 0 : v; /* NaN stays */
}

/* Sums of mantissas of a part of a batch in real units, exact: those below 2^48 in a double, those of products below
 * 2^63 in two. */
FL_BOTH void fl_exact_part(int64_t sum, int64_t products, int e_first, int e_second, double *first, double *high,
                           double *low) {
    const int64_t finer = products & 0xffffffff;
    *first = fl_scale2((double)sum, -e_first);
    *high = fl_scale2((double)(products - finer), -e_first - e_second);
    *low = fl_scale2((double)finer, -e_first - e_second);
}

/* One channel of out = scale (a - mean) + cross (b - cross_mean) + offset, in real units. */
struct fl_affine_channel {
    double scale, mean, cross, cross_mean, offset;
};

/* gamma (x - mean) / sqrt(variance + epsilon) + beta (+ a residual). */
FL_BOTH struct fl_affine_channel fl_normalising(double gamma, double beta, double mean, double variance, double epsilon,
                                                bool residual) {
    const struct fl_affine_channel c = {gamma * (1 / sqrt(variance + epsilon)), mean, residual ? 1.0 : 0.0, 0, beta};
    return c;
}

/* Sum of dy (x - mean) in real units, from the exact sums of dy and of dy x over `rows` < 2^33 elements, mantissas at
 * e_dy and e_x. If x hardly varies, rows * sum dy x - sum dy * sum x cancels, so it is computed in 128 bits: each
 * product is below 2^30 rows^2 < 2^96. The sum of x is the integer closest to rows * mean, exactly if the mean is that
 * of x (fl_exact_moments), because rounding quotient and product changes 2^48 by at most 2^-4. The remainder of another
 * mean is added in double. */
FL_BOTH double fl_exact_about_mean(int64_t rows, int64_t sum_dy, int64_t sum_dy_x, double mean, int e_dy, int e_x) {
    const double n = (double)rows, top = 32768 * n, sum = fl_scale2(mean, e_x) * n;
    const int64_t sum_x = (int64_t)(sum >= -top && sum <= top ? fl_nearest_integer(sum) : sum > top ? top : -top);
    const fl_int128 products = sum_dy_x, dy = sum_dy;
    const double rest = mean - fl_scale2((double)sum_x / n, -e_x);
    return fl_scale2(fl_double_of_128(rows * products - dy * sum_x) / n, -e_dy - e_x) -
           fl_scale2((double)sum_dy, -e_dy) * rest;
}

/* Its gradient by x over `rows` elements, from dy_sum = sum dy and about_mean = sum dy (x - mean); *dot is the gradient
 * by gamma, dy_sum that by beta. */
FL_BOTH struct fl_affine_channel fl_normalising_gradient(double gamma, double mean, double variance, double epsilon,
                                                         double dy_sum, double about_mean, int64_t rows, double *dot) {
    const double inverse = 1 / sqrt(variance + epsilon), n = (double)rows, scale = gamma * inverse;
    *dot = about_mean * inverse; /* sum of dy times the normalised x */
    const struct fl_affine_channel c = {scale, dy_sum / n, -scale * inverse * *dot / n, mean, 0};
    return c;
}

/* --- coefficients for kernels of integer formats ------------------------------------------------------------------ */

/* The integer mantissa closest to `mean`, within +-32767; *rest is the rest of the mean, in real units. */
FL_BOTH int32_t fl_centre_of(double mean, int e, double *rest) {
    const double mantissas = fl_scale2(mean, e), top = 32767;
    double nearest = fl_nearest_integer(mantissas);
    nearest = nearest > top ? top : nearest < -top ? -top : nearest;
    *rest = fl_scale2(mantissas - nearest, -e);
    return (int32_t)nearest;
}

FL_BOTH struct fl_coefficient fl_on_mantissas(double multiplier, int e) {
    struct fl_coefficient k = fl_coefficient_of(multiplier);
    k.e += e;
    return k;
}

struct fl_integer_channel {
    struct fl_coefficient first, cross, offset;
    int32_t first_centre, cross_centre;
};

/* False if a number is not finite. */
FL_BOTH bool fl_integer_channel_of(const struct fl_affine_channel *c, int e_first, int e_cross,
                                   struct fl_integer_channel *k) {
    double rest, cross_rest;
    if (!fl_is_finite(c->mean) || !fl_is_finite(c->cross_mean) || !fl_is_finite(c->scale) || !fl_is_finite(c->cross))
        return false;
    k->first_centre = fl_centre_of(c->mean, e_first, &rest);
    k->cross_centre = fl_centre_of(c->cross_mean, e_cross, &cross_rest);
    const double constant = c->offset - c->scale * rest - c->cross * cross_rest;
    if (!fl_is_finite(constant))
        return false;
    k->first = fl_on_mantissas(c->scale, e_first);
    k->cross = fl_on_mantissas(c->cross, e_cross);
    k->offset = fl_coefficient_of(constant);
    return true;
}

#endif
