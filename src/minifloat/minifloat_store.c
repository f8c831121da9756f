/* minifloat_store.c - the constants of conversions, and how numbers are rounded and stored. */
#include "core/arithmetic/draws.h"
#include "core/arithmetic/stochastic.h"
#include "minifloat/minifloat.h"
#include <math.h>

enum { BLOCK = 1024, DRAWN = 256 };

static uint32_t word_of(double x) {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

struct fl_minifloat fl_minifloat_of(const struct fl_format *format, int given) {
    const struct fl_element *const e = format->element;
    int digits;
    (void)frexp(e->largest, &digits);
    const int last = digits - 1 - e->fraction_bits > e->unit ? digits - 1 - e->fraction_bits : e->unit;
    const uint32_t middle = word_of(e->largest + ldexp(0.5, last)); /* exact */
    const bool up = e->fraction_bits == 0 || e->largest_code & 1;   /* of the middle */
    const struct fl_minifloat f = {
        .shift = 23 - (uint32_t)e->fraction_bits,
        .rebias = (uint32_t)(127 - e->bias) << 23,
        .odd = e->fraction_bits == 0,
        .least = word_of(ldexp(1, e->least_exponent)),
        .magic = word_of(ldexp(1, e->unit + 23)),
        .unit = (float)ldexp(1, e->unit),
        .overflow = up ? middle : middle + 1,
        .flush = word_of(ldexp(1, e->unit - 1)),
        .largest = word_of(e->largest),
        .largest_code = e->largest_code,
        .too_large = e->saturates      ? e->largest_code
                     : e->has_infinity ? e->infinity_code
                                       : e->nan_code,
        .infinity = e->has_infinity ? e->infinity_code : 0,
        .nan = e->has_nan ? e->nan_code : 0,
        .signed_nan = e->has_nan ? 1u << (e->bits - 1) : 0,
        .sign = 32 - (uint32_t)e->bits,
        .saturates = e->saturates,
        .scaled = fl_has_exponent(format),
        .digits = e->fraction_bits + 1,
        .least_normal = ldexp(1, e->least_exponent),
        .largest_value = e->largest,
    };
    return fl_has_exponent(format) && given ? fl_minifloat_under(&f, given) : f;
}

/* --- storing ------------------------------------------------------------------------------------------------------ */

static void store_drawn(const struct fl_minifloat_conversions *c, const struct fl_minifloat *f, int bytes,
                        int64_t first, int64_t n, const float *x, const double *exact, const struct fl_rounding *how,
                        char *to, struct fl_stats *stats) {
    struct draws memory;
    float y[DRAWN];
    const uint32_t *draws = draws_of(how, first, n, &memory);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)fl_round_by_draw(exact ? exact[i] : (double)x[i], draws[i], f->digits, f->least_normal);
    for (int64_t i = 0; i < n; i++) {
        fl_minifloat_count(f, x[i], fl_float_magnitude(y[i]) > f->largest, stats);
        stats->flushed += x[i] != 0 && y[i] == 0;
    }
    if (to)
        c->encode(f, bytes, y, n, to);
}

void fl_minifloat_store(const struct fl_minifloat_conversions *c, const struct fl_format *format,
                        const struct fl_view *out, int64_t first, int64_t n, const float *x, const double *exact,
                        const struct fl_rounding *rounding, struct fl_stats *stats) {
    const struct fl_minifloat f = fl_minifloat_of(format, fl_exponent(out));
    const bool drawn = rounding->mode == TENSOR_ROUND_STOCHASTIC;
    const int64_t step = drawn ? DRAWN : BLOCK;
    for (int64_t i = 0; i < n; i += step) {
        const int64_t length = n - i < step ? n - i : step;
        char *to = out->data ? (char *)out->data + (first + i) * format->bytes : NULL;
        if (drawn) {
            store_drawn(c, &f, format->bytes, first + i, length, x + i, exact ? exact + i : NULL, rounding, to, stats);
            continue;
        }
        c->count(&f, x + i, length, stats);
        if (to)
            c->encode(&f, format->bytes, x + i, length, to);
    }
}
