/* philox.h - counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011).
 *
 * A draw is a function of only (key, counter), so any thread, order or resumed run gets the same numbers. */
#ifndef FL_PHILOX_H
#define FL_PHILOX_H

#include "autoflex/both.h"
#include <stdint.h>

struct fl_philox {
    uint32_t word[4];
};

FL_BOTH struct fl_philox fl_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct fl_philox drawn = {{c0, c1, c2, c3}};
    return drawn;
}

/* The 32-bit draw of one element of one write: stochastic rounding computes floor(x + draw / 2^32). */
FL_BOTH uint32_t fl_philox_draw(uint64_t key, uint64_t write, int64_t element) {
    return fl_philox(key, write, (uint64_t)element >> 2).word[element & 3];
}

/* Uniform in [0, 1): a 53-bit number. */
static inline double fl_philox_unit(struct fl_philox r) {
    uint64_t bits = ((uint64_t)r.word[0] << 32 | r.word[1]) >> 11;
    return (double)bits * 0x1p-53;
}

#endif
