/* ranges.c - see ranges.h. */
#include "program/calibration/ranges.h"
#include "program/calibration/histogram.h"
#include "core/base/fail.h"
#include "flexlab/autoflex.h"
#include <math.h>

tensor_status fl_range_see(struct fl_range *r, struct fl_network *statistics, const float *x, int64_t count) {
    float least = x[0], largest = x[0], any = 0; /* any: NaN if a number is not finite */
    for (int64_t i = 0; i < count; i++) {
        least = x[i] < least ? x[i] : least;
        largest = x[i] > largest ? x[i] : largest;
        any += x[i] * 0;
    }
    if (any != 0)
        return fl_fail(TENSOR_E_DATA, "a result that is not finite");
    r->least = r->seen ? fmin(r->least, (double)least) : (double)least;
    r->largest = r->seen ? fmax(r->largest, (double)largest) : (double)largest;
    r->maximum = fmax(r->maximum, fmax(r->largest, -r->least));
    r->seen = true;
    if (statistics && !r->histogram)
        r->histogram = fl_net_memory(statistics, sizeof *r->histogram);
    if (statistics && !r->histogram)
        return TENSOR_E_MEMORY;
    if (statistics)
        fl_histogram_add(r->histogram, x, count);
    return TENSOR_OK;
}

bool fl_range_exponent(const struct fl_range *r, double margin, int *exponent) {
    const double most = r->maximum * margin;
    if (!(most > 0) && !r->seen)
        return r->frozen;
    if (!(most > 0)) { /* zeros alone: room for numbers up to 1 */
        *exponent = 14;
        return true;
    }
    int e = 14 - autoflex_floor_log2(most);
    if (rint(ldexp(most, e)) > AUTOFLEX_TOP)
        e--;
    *exponent = e;
    return true;
}
