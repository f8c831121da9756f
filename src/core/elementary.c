/* elementary.c - exp and log without the C library's, whose last bits differ between machines. */
#include "core/elementary.h"
#include <math.h>

static const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45; /* n * ln2_high is exact */

double fl_exp(double x) {
    if (x != x)
        return x;
    if (x < -745.2)
        return 0;
    if (x > 709.79)
        return HUGE_VAL;
    double n = rint(x * 0x1.71547652b82fep+0);
    double r = (x - n * ln2_high) - n * ln2_low; /* |r| <= 0.347 */
    double sum = 1;                              /* Taylor, from the smallest term: r^14/14! < 3e-18 */
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
    return e * ln2_high + (2 * s * sum + e * ln2_low);
}
