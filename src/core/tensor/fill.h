/* fill.h - numbers that are made where a tensor lies: one constant, or a function of (key, counter, element) by the
 * counter-based generator. A processor and a device run the same code: IEEE operations in a fixed order. */
#ifndef FL_FILL_H
#define FL_FILL_H

#include "core/arithmetic/elementary.h"
#include "core/arithmetic/philox.h"
#include <stdint.h>

enum fl_fill_kind { FL_FILL_NONE, FL_FILL_CONSTANT, FL_FILL_UNIFORM, FL_FILL_NORMAL };

struct fl_fill {
    enum fl_fill_kind kind;
    double a, b; /* the constant; the bounds; mean and deviation */
    uint64_t key, counter;
};

/* 53 bits of two words. */
FL_BOTH int64_t fl_fill_bits(uint32_t high, uint32_t low) {
    return (int64_t)(((uint64_t)high << 32 | low) >> 11);
}

/* Standard normal by Marsaglia's polar method (Marsaglia and Bray 1964): points of odd multiples of 2^-53 in the square
 * (-1, 1)^2, drawn anew while they lie outside of the unit circle (one in five). An attempt is in the upper bits of the
 * element's number, so that an element depends on no other. */
FL_BOTH double fl_fill_normal(uint64_t key, uint64_t counter, int64_t element) {
    for (uint64_t attempt = 0;; attempt++) {
        const struct fl_philox r = fl_philox(key, counter, attempt << 40 | (uint64_t)element);
        const double u = (double)(2 * (fl_fill_bits(r.word[0], r.word[1]) - ((int64_t)1 << 52)) + 1) * 0x1p-53,
                     v = (double)(2 * (fl_fill_bits(r.word[2], r.word[3]) - ((int64_t)1 << 52)) + 1) * 0x1p-53,
                     s = u * u + v * v;
        if (s < 1)
            return u * sqrt(-2 * fl_log(s) / s);
    }
}

/* Element i, as a double. */
FL_BOTH double fl_fill_value(const struct fl_fill *f, int64_t i) {
    if (f->kind == FL_FILL_CONSTANT)
        return f->a;
    if (f->kind == FL_FILL_NORMAL)
        return f->a + f->b * fl_fill_normal(f->key, f->counter, i);
    const struct fl_philox r = fl_philox(f->key, f->counter, (uint64_t)i);
    return f->a + (f->b - f->a) * ((double)fl_fill_bits(r.word[0], r.word[1]) * 0x1p-53);
}

#endif
