/* flex_convert.h - binary32 to mantissas under a given exponent and back, for conversions between formats.
 *
 * Gives: floats_to_elements, doubles_to_elements, elements_to_floats. */
#ifndef FL_FLEX_CONVERT_H
#define FL_FLEX_CONVERT_H

#include "core/base/stream.h"
#include "flex/flex_convert_plan.h"
#include "flex/flex_parts.h"
#include "flex/flex_store.h"

/* Converts the rare run with NaN or Inf, or with a unit that binary32 cannot represent. */
static void convert_unusual(int16_t *dst, int64_t n, const float *x, int e, struct fl_stats *stats) {
    for (int64_t i = 0; i < n; i++) {
        const int32_t m = fl_put_number((double)x[i], (double)x[i], e, FLEX_TOP, NULL, stats);
        if (dst)
            dst[i] = (int16_t)m;
    }
}

/* Rounds to nearest even. The addition of 1.5 * 2^23 rounds to an integer, which the last bits of the sum are.
 * Saturation and the largest mantissa follow from the largest number. */
static void floats_to_elements(const struct fl_format *format, const struct fl_view *out, int64_t first, int64_t n,
                               const float *x, const struct fl_rounding *rounding, struct fl_stats *stats) {
    (void)format;
    (void)rounding;
    int16_t *dst = element(out, first);
    const int e = fl_exponent(out);
    float unit;
    const bool usual = flex_load_unit(e, &unit);
    const float top = FLEX_TOP, whole = 0x1.8p23f, half = 0.5f / unit;
    int64_t flushed = 0;
    const uint32_t largest = fl_count_flushed(x, n, dst && usual ? fl_float_magnitude(half) : 0, &flushed);
    if (largest >= 0x7f800000u || (dst && !usual)) {
        convert_unusual(dst, n, x, e, stats);
        return;
    }
    float maximum;
    memcpy(&maximum, &largest, sizeof maximum);
    stats->maximum = fmax(stats->maximum, (double)maximum);
    if (!dst)
        return;
    const float size = maximum * unit;
    const int32_t gamma = (int32_t)rintf(size < top ? size : top);
    stats->gamma = gamma > stats->gamma ? gamma : stats->gamma;
    stats->flushed += flushed;
    uint32_t saturated = 0;
    if (size <= top)
        for (int64_t i = 0; i < n; i++) {
            const float m = x[i] * unit + whole;
            int32_t bits;
            memcpy(&bits, &m, sizeof bits);
            dst[i] = (int16_t)bits;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            const float v = x[i] * unit, below = v < top ? v : top, m = (below > -top ? below : -top) + whole;
            int32_t bits;
            memcpy(&bits, &m, sizeof bits);
            saturated += fabsf(v) >= top + 0.5f; /* a tie goes to 32768, which is even */
            dst[i] = (int16_t)bits;
        }
    stats->saturated += saturated;
}

/* Sums over the numbers that doubles_to_elements has stored. */
struct doubles_seen {
    lanes largest; /* words of the largest magnitudes, which compare as integers */
    lanes gamma, saturated, flushed;
};

/* The same of LANES doubles: the addition of 1.5 * 2^52 rounds to an integer, which the last bits of the sum are. */
static inline void store_doubles(int16_t *dst, const double *x, double unit, struct doubles_seen *seen) {
    typedef double numbers __attribute__((vector_size(LANES * 8)));
    const double limits[2] = {FLEX_TOP + 1, 0x1.8p52};
    const lanes sign = lanes_all(INT64_MIN), top = lanes_all(FLEX_TOP);
    int64_t limit[2];
    numbers v;
    memcpy(limit, limits, sizeof limit);
    memcpy(&v, x, sizeof v);
    const lanes word = (lanes)v, scaled = (lanes)(v * unit);
    const lanes inside = lanes_smallest(scaled & ~sign, lanes_all(limit[0])) | (scaled & sign);
    const lanes m = (lanes)((numbers)inside + limits[1]) - limit[1];
    const lanes negative = m < 0, size = (m ^ negative) - negative;
    seen->largest = lanes_largest(seen->largest, word & ~sign);
    seen->gamma = lanes_largest(seen->gamma, size);
    seen->saturated -= size > top;
    seen->flushed = lanes_count_lost(seen->flushed, m, word & ~sign, (lanes){0});
    lanes_store(dst, lanes_largest(lanes_smallest(m, top), -top));
}

static bool doubles_to_elements(const struct fl_view *out, int64_t first, int64_t n, const double *x,
                                struct fl_stats *stats) {
    int16_t *const dst = element(out, first), rest[LANES];
    const double unit = fl_power_of_two(fl_exponent(out));
    struct doubles_seen seen = {{0}, {0}, {0}, {0}};
    double last[LANES] = {0}, maximum;
    int64_t i = 0, largest = 0;
    for (; i + LANES <= n; i += LANES)
        store_doubles(dst + i, x + i, unit, &seen);
    if (i < n) {
        memcpy(last, x + i, (size_t)(n - i) * sizeof *x);
        store_doubles(rest, last, unit, &seen);
        memcpy(dst + i, rest, (size_t)(n - i) * sizeof *rest);
    }
    for (int k = 0; k < LANES; k++)
        largest = seen.largest[k] > largest ? seen.largest[k] : largest;
    memcpy(&maximum, &largest, sizeof maximum);
    if (!fl_is_finite(maximum))
        return false;
    stats->maximum = fmax(stats->maximum, maximum);
    for (int k = 0; k < LANES; k++) {
        const int32_t gamma = seen.gamma[k] > FLEX_TOP ? FLEX_TOP : (int32_t)seen.gamma[k];
        stats->gamma = gamma > stats->gamma ? gamma : stats->gamma;
        stats->saturated += seen.saturated[k];
        stats->flushed += seen.flushed[k];
    }
    return true;
}

/* Exact for exponents at which binary32 holds all mantissas, -112 ... 127; multiplies by two factors that binary32
 * holds. */
static uint32_t elements_to_floats(const struct fl_format *format, const struct fl_view *in, int64_t first, int64_t n,
                                   float *x, bool stream) {
    (void)format;
    const int16_t *m = element(in, first);
    const int e = fl_exponent(in);
    float units[2];
    flex_store_units(e, units);
    const float unit0 = units[0], unit1 = units[1];
    _Alignas(64) float buffer[FLEX_BLOCK];
    int32_t largest = 0;
    for (int64_t i = 0; i < n; i += FLEX_BLOCK) {
        const int64_t length = minimum(n - i, FLEX_BLOCK);
        float *y = stream ? buffer : x + i;
        for (int64_t j = 0; j < length; j++) {
            const int32_t size = m[i + j] < 0 ? -m[i + j] : m[i + j];
            largest = size > largest ? size : largest;
            y[j] = (float)m[i + j] * unit0 * unit1;
        }
        if (stream)
            fl_stream(x + i, y, (size_t)length * sizeof *x);
    }
    return fl_float_magnitude((float)largest * unit0 * unit1);
}

#endif
