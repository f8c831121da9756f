/* dropout_rules.h - which elements dropout (Srivastava et al. 2014) preserves. The same code for a processor and a
 * device. */
#ifndef FL_DROPOUT_RULES_H
#define FL_DROPOUT_RULES_H

#include "core/arithmetic/philox.h"
#include <stdbool.h>
#include <string.h>

/* p, at least 0 and below 1, in units of 2^-32, truncated: elements with draws below it are dropped. */
FL_BOTH uint32_t fl_dropout_threshold(float p) {
    return (uint32_t)((double)p * 4294967296.0);
}

/* The upper half of the counter: the bits of the step's number. */
FL_BOTH uint64_t fl_dropout_counter(double step) {
    uint64_t bits;
    memcpy(&bits, &step, sizeof bits);
    return bits;
}

FL_BOTH bool fl_dropout_keeps(uint32_t draw, uint32_t threshold) {
    return draw >= threshold;
}

#endif
