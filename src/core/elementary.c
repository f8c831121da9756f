/* elementary.c - exp and log without the C library's, whose last bits differ between machines. */
#include "core/elementary.h"
#include <math.h>

double fl_exp(double x) {
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

double fl_log(double x) {
    if (x != x || x < 0)
        return NAN;
    if (x == 0)
        return -HUGE_VAL;
    if (isinf(x))
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
