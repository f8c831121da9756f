/* element_rules.h - how a number becomes one element, and how it is counted: rounding, saturation, NaN and Inf, the
 * wide part and the element that is its rounding. Codecs, devices, and all code that stores elements one at a time
 * compile this text; vectorised kernels compute the same with the constants of this file. */
#ifndef FL_ELEMENT_RULES_H
#define FL_ELEMENT_RULES_H

#include "core/arithmetic/exact_rules.h"
#include "core/table/kernel.h"

/* --- mantissas under a shared exponent ---------------------------------------------------------------------------- */

/* The mantissa of a result x that is NaN or infinite, 0 or +-top, and its counts. NaN and Inf are nonfinite, Inf is
 * saturated besides; neither enters maximum or gamma, so that no predictor chooses an exponent for what no exponent can
 * represent. */
FL_BOTH int32_t fl_put_nonfinite(double x, int32_t top, struct fl_stats *stats) {
    stats->nonfinite++;
    stats->saturated += x == x;
    return x > 0 ? top : x < 0 ? -top : 0;
}

/* v units rounded to the nearest integer, ties to even; any number beyond +-top if v is beyond it. */
FL_BOTH double fl_nearest_units(double v, int32_t top) {
    const double limit = (double)top + 1;
    return fl_nearest_integer(v > limit ? limit : v < -limit ? -limit : v);
}

/* floor(x 2^e + draw / 2^32) of a finite x; any number beyond +-top if that is beyond it. */
FL_BOTH int64_t fl_drawn_units(double x, int e, int32_t top, uint32_t draw) {
    if (x == 0)
        return 0;
    const struct fl_term term = fl_term_of_double(x);
    const struct fl_wide_sum sum = {term.m, term.e};
    return fl_terms_round(sum, e, (int64_t)top + 1, &draw, NULL);
}

FL_BOTH int64_t fl_saturate(int64_t m, int32_t top, int64_t *saturated) {
    *saturated += m > top || m < -top;
    return m > top ? top : m < -top ? -top : m;
}

/* A rounded mantissa, saturated and counted. something: the exact result was not zero. */
FL_BOTH int32_t fl_put_mantissa(int64_t m, int32_t top, bool something, struct fl_stats *stats) {
    stats->flushed += something && m == 0;
    m = fl_saturate(m, top, &stats->saturated);
    const int32_t size = (int32_t)(m < 0 ? -m : m);
    stats->gamma = size > stats->gamma ? size : stats->gamma;
    return (int32_t)m;
}

/* x, exact or rounded to odd, as a mantissa at exponent e; near: the same to nearest, for the maximum. draw NULL: to
 * nearest. */
FL_BOTH int32_t fl_put_number(double x, double near, int e, int32_t top, const uint32_t *draw, struct fl_stats *stats) {
    if (!fl_is_finite(x))
        return fl_put_nonfinite(x, top, stats);
    const int64_t m = draw ? fl_drawn_units(x, e, top, *draw) : (int64_t)fl_nearest_units(fl_scale2(x, e), top);
    const double size = near < 0 ? -near : near;
    stats->maximum = size > stats->maximum ? size : stats->maximum;
    return fl_put_mantissa(m, top, x < 0 || x > 0, stats);
}

/* --- wide parts under a shared exponent: mantissas at e + 16 ------------------------------------------------------ */

/* The element that is the rounding of a wide mantissa, ties to even; FL_WIDE_LIMIT prevents an overflow. */
FL_BOTH int32_t fl_narrow(int32_t wide) {
    return (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
}

/* The wide mantissa that is exactly the element. */
FL_BOTH int32_t fl_widen(int32_t element) {
    return element * 65536;
}

/* A wide mantissa that was rounded but not yet saturated, and its element, counted. */
FL_BOTH int32_t fl_put_wide(int64_t m, bool something, int16_t *element, struct fl_stats *stats) {
    const int32_t wide = (int32_t)fl_saturate(m, FL_WIDE_LIMIT, &stats->saturated);
    *element = (int16_t)fl_put_mantissa(fl_narrow(wide), FL_WIDE_LIMIT >> 16, something, stats);
    return wide;
}

/* --- float formats ------------------------------------------------------------------------------------------------ */

FL_BOTH uint32_t fl_float_magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* The largest magnitude of n numbers, as a word: words order like the numbers, with Inf and then NaN on top. Adds the
 * numbers other than zero whose words are at most `flush`; they are rare, so only the smallest is looked for at first.
 */
FL_BOTH uint32_t fl_count_flushed(const float *x, int64_t n, uint32_t flush, int64_t *flushed) {
    uint32_t largest = 0, least = UINT32_MAX, count = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = fl_float_magnitude(x[i]), above_zero = magnitude - 1u; /* zero wraps around */
        largest = magnitude > largest ? magnitude : largest;
        least = above_zero < least ? above_zero : least;
    }
    for (int64_t i = 0; least < flush && i < n; i++)
        count += fl_float_magnitude(x[i]) - 1u < flush;
    *flushed += count;
    return largest;
}

/* Counts a result, a binary32; beyond: what is stored is infinite or NaN. */
FL_BOTH void fl_count_float(float x, bool beyond, struct fl_stats *stats) {
    const uint32_t magnitude = fl_float_magnitude(x);
    const double size = x < 0 ? -(double)x : (double)x;
    if (magnitude <= 0x7f800000u && size > stats->maximum)
        stats->maximum = size;
    stats->nonfinite += beyond;
    stats->saturated += beyond && magnitude < 0x7f800000u;
}

/* Counts the bits lost from a number x, which no operation computed, to the binary32 f. */
FL_BOTH void fl_count_lost(double x, float f, struct fl_stats *stats) {
    stats->saturated += fl_is_finite(x) && !fl_is_finite((double)f);
    stats->flushed += x != 0 && f == 0;
}

/* x rounded to odd: cut to 24 bits, the last one set where something was cut off. Rounding that again to 22 bits or
 * fewer is rounding x itself (Boldo and Melquiond 2008). */
FL_BOTH float fl_odd_float(double x) {
    float f = (float)x;
    const double cut = f < 0 ? -(double)f : (double)f, size = x < 0 ? -x : x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((double)f != x && x == x && !(bits & 1u)) {
        /* the even neighbour was taken (Inf and zero are even too): step towards x */
        bits += cut < size ? 1u : -1u;
        memcpy(&f, &bits, sizeof f);
    }
    return f;
}

#endif
