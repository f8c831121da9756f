/* real_quick.h - the operations of real_pair.h in double, for a second compilation of real_functions.inc, whose results
 * have an error below 2^-40. */
#ifndef FL_REAL_QUICK_H
#define FL_REAL_QUICK_H

#include "autoflex/both.h"
#include <math.h>

FL_BOTH double fl_quick_new(double h, double l) {
    (void)l;
    return h;
}
FL_BOTH double fl_quick_of(double x) {
    return x;
}
FL_BOTH double fl_quick_sum(double a, double b) {
    return a + b;
}
FL_BOTH double fl_quick_product(double a, double b) {
    return a * b;
}
FL_BOTH double fl_quick_negative(double a) {
    return -a;
}
FL_BOTH double fl_quick_add(double a, double b) {
    return a + b;
}
FL_BOTH double fl_quick_sub(double a, double b) {
    return a - b;
}
FL_BOTH double fl_quick_mul(double a, double b) {
    return a * b;
}
FL_BOTH double fl_quick_scale(double a, double power) {
    return a * power;
}
FL_BOTH double fl_quick_div(double a, double b) {
    return a / b;
}
FL_BOTH double fl_quick_sqrt(double a) {
    return sqrt(a);
}
FL_BOTH double fl_quick_top(double a) {
    return a;
}

#endif
