/* dropout_vectors.h - dropout of a block in vectors.
 *
 * Gives: draws_at, row_drop. */
#ifndef FL_DROPOUT_VECTORS_H
#define FL_DROPOUT_VECTORS_H

#include "core/arithmetic/draws.h"
#include "core/ops/dropout/dropout_rules.h"
#include "core/rows/row_lanes.h"
#include "core/rows/row_vectors.h"

/* Draws as numbers of 64 bits, whose comparison with the threshold is a mask of a double. */
static inline words draws_at(const uint32_t *draw) {
    uint32_t some __attribute__((vector_size(LANES * sizeof(uint32_t))));
    memcpy(&some, draw, sizeof some);
    return __builtin_convertvector(some, words);
}

/* Not by a product with 0: a dropped NaN is 0, a dropped -1 is +0. */
static void row_drop(double *x, int64_t n, const struct fl_dropped *how, int64_t first) {
    const struct fl_rounding as = {.key = how->key, .write = how->counter}; /* draws of the same key and counter */
    const lanes scale = lanes_all(how->scale);
    const words threshold = (words){0} + (int64_t)how->threshold;
    struct draws memory;
    for (int64_t i = 0; i < n; i += DRAW_RUN) {
        const int64_t some = n - i < DRAW_RUN ? n - i : DRAW_RUN;
        const uint32_t *draw = draws_of(&as, first + i, some, &memory);
        for (int64_t j = i; j < i + some; j += LANES, draw += LANES)
            lanes_to(x + j, (lanes)((words)(lanes_at(x + j) * scale) & (draws_at(draw) >= threshold)));
    }
}

#endif
