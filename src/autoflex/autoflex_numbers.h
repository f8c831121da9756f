/* autoflex_numbers.h - the state of an exponent as numbers that mean the same on every machine and in every version:
 * in checkpoints, of tensors and of the shadows of telemetry. docs/checkpoints.md has their order. */
#ifndef FL_AUTOFLEX_NUMBERS_H
#define FL_AUTOFLEX_NUMBERS_H

#include "flexlab/autoflex.h"

enum { FL_AUTOFLEX_WHOLE = 11, FL_AUTOFLEX_REAL = AUTOFLEX_WINDOW + 1 };

/* The range of a number of a state. Counters may grow further without overflow. */
struct fl_number_range {
    int64_t low, high;
};
static inline struct fl_number_range fl_range_of_exponent(void) {
    return (struct fl_number_range){INT16_MIN, INT16_MAX};
}
static inline struct fl_number_range fl_range_of_position(void) { /* and of gamma */
    return (struct fl_number_range){0, INT16_MAX};
}
static inline struct fl_number_range fl_range_of_count(void) {
    return (struct fl_number_range){0, INT64_C(1) << 62};
}
/* The range of whole number i. */
struct fl_number_range fl_autoflex_range(int i);

void fl_autoflex_to_numbers(const struct autoflex *a, int64_t whole[FL_AUTOFLEX_WHOLE], double real[FL_AUTOFLEX_REAL]);
/* Sets all but predictor and role. Returns false and changes nothing if a number is out of its range;
 * fl_autoflex_is_possible then checks their combination. */
bool fl_autoflex_from_numbers(struct autoflex *a, const int64_t whole[FL_AUTOFLEX_WHOLE],
                              const double real[FL_AUTOFLEX_REAL]);
/* Whether that is a state of a tensor with this range of exponents. */
bool fl_autoflex_is_possible(const struct autoflex *a, int e_min, int e_max);

#endif
