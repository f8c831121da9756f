/* elementary.h - exp and log by a fixed sequence of IEEE operations, so that every machine gets the same bits; those of
 * C libraries differ in the last bits. A processor and a device run the same code.
 *
 * Errors are a few units in the last place of a double: far below the one rounding to 16 or 24 bits that follows. */
#ifndef FL_ELEMENTARY_H
#define FL_ELEMENTARY_H

#include "autoflex/both.h"
#include <math.h>

/* Shared with exponentials.inc, which computes the same in vectors. */
#define FL_LOG2_E 0x1.71547652b82fep+0
#define FL_LN2_HIGH 0x1.62e42fefa38p-1 /* n * this is exact */
#define FL_LN2_LOW 0x1.ef35793c7673p-45
#define FL_EXP_LEAST (-745.2) /* e^x is 0 below */

/* e^x; 0 below -745, +Inf above 709.78, NaN for NaN. */
FL_BOTH double fl_exp(double x) {
    if (x != x)
        return x;
    if (x < FL_EXP_LEAST)
        return 0;
    if (x > 709.79)
        return HUGE_VAL;
    double n = rint(x * FL_LOG2_E);
    double r = (x - n * FL_LN2_HIGH) - n * FL_LN2_LOW; /* |r| <= 0.347 */
    double sum = 1;                                    /* Taylor, from the smallest term: r^14/14! < 3e-18 */
    for (int k = 14; k >= 1; k--)
        sum = 1 + sum * r / k;
    return ldexp(sum, (int)n);
}

/* Natural logarithm; NaN below 0, -Inf at 0. */
FL_BOTH double fl_log(double x) {
    if (x != x || x < 0)
        return NAN;
    if (x == 0)
        return -HUGE_VAL;
    if (x - x != 0)
        return x;
    int e;
    double m = frexp(x, &e);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s; /* log m = 2 atanh s, |s| <= 0.172 */
    double sum = 0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return e * FL_LN2_HIGH + (2 * s * sum + e * FL_LN2_LOW);
}

#endif
