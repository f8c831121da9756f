/* autoflex.c - the public functions over the rules of autoflex_rules.h. */
#include "autoflex/autoflex_rules.h"

void autoflex_reset(struct autoflex *a, autoflex_predictor predictor, int e_min, int e_max) {
    memset(a, 0, sizeof *a);
    a->predictor = (int16_t)predictor;
    a->e_min = e_min;
    a->e_max = e_max;
    a->e = fl_autoflex_start(a);
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
