/* autoflex_numbers.c - the state of an exponent as numbers, and back. */
#include "autoflex/autoflex_numbers.h"
#include <math.h>
#include <string.h>

enum { EXPONENTS = 3, POSITIONS = 7 }; /* the indices after the last exponent and the last position */

struct fl_number_range fl_autoflex_range(int i) {
    return i < EXPONENTS ? fl_range_of_exponent() : i < POSITIONS ? fl_range_of_position() : fl_range_of_count();
}

void fl_autoflex_to_numbers(const struct autoflex *a, int64_t whole[FL_AUTOFLEX_WHOLE], double real[FL_AUTOFLEX_REAL]) {
    const int64_t numbers[FL_AUTOFLEX_WHOLE] = {a->e,
                                                a->e_min,
                                                a->e_max,
                                                a->initialised,
                                                a->written + 2 * a->block,
                                                a->count,
                                                a->next,
                                                (int64_t)a->overflows,
                                                (int64_t)a->clamped_low,
                                                (int64_t)a->clamped_high,
                                                (int64_t)a->zero_writes};
    memcpy(whole, numbers, sizeof numbers);
    memcpy(real, a->history, sizeof a->history);
    real[AUTOFLEX_WINDOW] = a->predicted;
}

static bool in_range(const int64_t whole[FL_AUTOFLEX_WHOLE], const double real[FL_AUTOFLEX_REAL]) {
    bool good = true;
    for (int i = 0; i < FL_AUTOFLEX_WHOLE; i++)
        good = good && whole[i] >= fl_autoflex_range(i).low && whole[i] <= fl_autoflex_range(i).high;
    for (int i = 0; i < FL_AUTOFLEX_REAL; i++)
        good = good && real[i] >= 0 && (i == AUTOFLEX_WINDOW || isfinite(real[i]));
    return good;
}

bool fl_autoflex_from_numbers(struct autoflex *a, const int64_t whole[FL_AUTOFLEX_WHOLE],
                              const double real[FL_AUTOFLEX_REAL]) {
    if (!in_range(whole, real))
        return false;
    a->e = (int32_t)whole[0];
    a->e_min = (int32_t)whole[1];
    a->e_max = (int32_t)whole[2];
    a->initialised = (int32_t)whole[3];
    a->written = (int16_t)(whole[4] % 2);
    a->block = (int16_t)(whole[4] / 2);
    a->count = (int32_t)whole[5];
    a->next = (int16_t)whole[6];
    a->overflows = (uint64_t)whole[7];
    a->clamped_low = (uint64_t)whole[8];
    a->clamped_high = (uint64_t)whole[9];
    a->zero_writes = (uint64_t)whole[10];
    memcpy(a->history, real, sizeof a->history);
    a->predicted = real[AUTOFLEX_WINDOW];
    return true;
}

bool fl_autoflex_is_possible(const struct autoflex *a, int e_min, int e_max) {
    bool good = a->e >= e_min && a->e <= e_max && a->e_min == e_min && a->e_max == e_max && a->count >= 0 &&
                a->count <= AUTOFLEX_WINDOW && a->next >= 0 && a->next < AUTOFLEX_WINDOW &&
                (a->next == a->count || a->count == AUTOFLEX_WINDOW) && a->initialised >> 1 == 0 &&
                a->written >> 1 == 0 && a->block >= 0 && a->block <= AUTOFLEX_LONGEST_HISTORY / AUTOFLEX_WINDOW &&
                a->predicted >= 0;
    for (int i = 0; i < a->count && good; i++)
        good = a->history[i] > 0;
    return good;
}
