/* autoflex.c - the public functions over the rules of autoflex_rules.h. */
#include "autoflex/autoflex_rules.h"
#include "autoflex/delayed.h"
#include "core/base/fail.h"

tensor_status autoflex_reset(struct autoflex *a, autoflex_predictor predictor, int e_min, int e_max) {
    static const char what[] = "autoflex_reset";
    if (!a)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the state is NULL", what);
    if (!autoflex_name(predictor))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: unknown predictor %d, expected one of autoflex_at", what,
                       (int)predictor);
    if (e_min > e_max || e_min < -AUTOFLEX_RANGE || e_max > AUTOFLEX_RANGE)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: exponents %d ... %d, expected a range in this order within +-%d", what,
                       e_min, e_max, AUTOFLEX_RANGE);
    memset(a, 0, sizeof *a);
    fl_autoflex_set_predictor(a, predictor);
    a->e_min = e_min;
    a->e_max = e_max;
    a->e = fl_autoflex_start(a);
    return TENSOR_OK;
}

tensor_status autoflex_set_bits(struct autoflex *a, int bits) {
    if (!a)
        return fl_fail(TENSOR_E_ARGUMENT, "autoflex_set_bits: the state is NULL");
    if (bits < AUTOFLEX_LEAST_BITS || bits > AUTOFLEX_BITS)
        return fl_fail(TENSOR_E_ARGUMENT, "autoflex_set_bits: %d, expected %d to %d", bits, AUTOFLEX_LEAST_BITS,
                       AUTOFLEX_BITS);
    a->bits = (int16_t)bits;
    return TENSOR_OK;
}

tensor_status autoflex_set_largest(struct autoflex *a, double largest) {
    if (!a)
        return fl_fail(TENSOR_E_ARGUMENT, "autoflex_set_largest: the state is NULL");
    if (!(largest > 0) || !fl_is_finite(largest))
        return fl_fail(TENSOR_E_ARGUMENT, "autoflex_set_largest: %g, expected a finite number above 0", largest);
    a->largest = largest;
    return TENSOR_OK;
}

void autoflex_load(struct autoflex *a, double maximum) {
    fl_autoflex_load(a, maximum);
}
int autoflex_load_exponent(struct autoflex *a, double maximum) {
    return fl_autoflex_load_exponent(a, maximum);
}
int autoflex_adjust(struct autoflex *a) {
    return fl_autoflex_adjust(a);
}
int autoflex_initialise(struct autoflex *a, double maximum) {
    return fl_autoflex_initialise(a, maximum);
}
int autoflex_fit(struct autoflex *a, double maximum) {
    return fl_autoflex_fit(a, maximum);
}
bool autoflex_repeat(struct autoflex *a, double maximum) {
    return fl_autoflex_repeat(a, maximum);
}
void autoflex_record(struct autoflex *a, int gamma, double maximum) {
    fl_autoflex_record(a, gamma, maximum);
}

int autoflex_floor_log2(double x) {
    return fl_floor_log2(x);
}
int autoflex_ceil_log2(double x) {
    return fl_ceil_log2(x);
}
