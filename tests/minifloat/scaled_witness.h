/* scaled_witness.h - floats under an exponent by definition: the values of all codes from their fields, and the nearest
 * of them by comparisons of exact long doubles. It shares no code with src/minifloat. */
#ifndef SCALED_WITNESS_H
#define SCALED_WITNESS_H

#include "check.h"
#include <math.h>
#include <stdbool.h>

struct witness {
    int exponent_bits, fraction_bits, codes; /* finite codes, without the sign */
    bool nan;                                /* some code is NaN */
    long double value[1 << 15];              /* of the codes, and what would follow the largest */
};

/* finite: the element has neither Inf nor NaN; fn: only the last code is NaN. */
static void witness_make(struct witness *w, int exponent_bits, int fraction_bits, bool fn) {
    const int bits = exponent_bits + fraction_bits, bias = (1 << (exponent_bits - 1)) - 1, all = 1 << bits;
    const bool finite = bits < 6;
    w->exponent_bits = exponent_bits;
    w->fraction_bits = fraction_bits;
    w->nan = !finite;
    w->codes = finite ? all : fn || !fraction_bits ? all - 1 : all - (1 << fraction_bits);
    for (int code = 0; code <= w->codes && code < 1 << 15; code++) {
        const int exponent = code >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
        w->value[code] = exponent ? ldexpl((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)
                                  : ldexpl(fraction, 1 - bias - fraction_bits);
    }
}

struct rounded {
    double value;
    bool saturated, flushed;
};

/* x rounded once at exponent e; NaN is for the caller. Every comparison is of exact numbers: x has 53 bits, and sums of
 * neighbours few more than 16. */
static struct rounded witness_round(const struct witness *w, double x, int e) {
    const long double size = ldexpl(fabsl((long double)x), e);
    int low = 0, high = w->codes; /* value[low] <= size, and below value[high] or beyond all */
    struct rounded r = {0};
    if (isinf(x) || size >= w->value[w->codes]) {
        low = w->codes;
    } else {
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (w->value[middle] <= size)
                low = middle;
            else
                high = middle;
        }
        const long double twice = 2 * size, both = w->value[low] + w->value[low + 1];
        /* Of a tie the even code, or, of normal numbers without a fraction, the larger one. */
        const bool odd = w->fraction_bits ? low & 1 : low > 0;
        low += twice > both || (twice == both && odd);
    }
    r.saturated = low == w->codes;
    low -= r.saturated;
    r.flushed = size > 0 && !low;
    r.value = copysign((double)ldexpl(w->value[low], -e), x);
    return r;
}

#endif
