/* nn_init.c - initial weights, the same on every machine and for every format.
 *
 * A number is a function of (seed, name of the parameter, index of the element): Philox keyed by seed and name, counted
 * by element. All later steps are + - * / and square root in double, each correctly rounded by IEEE 754, so the bits
 * depend on no mathematical library. */
#include "nn/graph/nn_graph.h"
#include "core/base/fail.h"
#include "core/base/hash.h"
#include "core/arithmetic/philox.h"
#include <math.h>
#include <string.h>

uint64_t nn_name_key(uint64_t seed, const char *name) {
    const uint64_t hash = fl_hash(FL_HASH, name, name ? strlen(name) : 0);
    struct fl_philox r = fl_philox(seed, 0, hash); /* mixes similar results of FNV */
    return (uint64_t)r.word[0] << 32 | r.word[1];
}

/* log x for 0 < x < Inf to about 1e-15: exponent and mantissa taken apart exactly, m in [sqrt(1/2), sqrt(2)), then
 * log m = 2 artanh(s), s = (m - 1)/(m + 1), |s| < 0.172; the series to s^19 leaves less than 2e-17. */
static double natural_log(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), t = s * s, series = 0;
    for (int k = 19; k >= 1; k -= 2)
        series = series * t + 1.0 / k;
    return e * 0x1.62e42fefa39efp-1 + 2 * s * series;
}

/* Uniform in (-1, 1) from two words, never 0 nor an end: odd multiples of 2^-53. */
static double symmetric_unit(uint32_t high, uint32_t low) {
    int64_t bits = (int64_t)(((uint64_t)high << 32 | low) >> 11) - ((int64_t)1 << 52);
    return (double)(2 * bits + 1) * 0x1p-53;
}

/* Standard normal by Marsaglia's polar method; rejected pairs (one in five) take the next attempt's counter. The other
 * number of the pair is not used, so that an element depends only on its own index. */
static double standard_normal(uint64_t key, int64_t element) {
    for (uint64_t attempt = 0;; attempt++) {
        struct fl_philox r = fl_philox(key, attempt, (uint64_t)element);
        double u = symmetric_unit(r.word[0], r.word[1]), v = symmetric_unit(r.word[2], r.word[3]);
        double s = u * u + v * v;
        if (s < 1)
            return u * sqrt(-2 * natural_log(s) / s);
    }
}

void fl_init_values(double *values, int64_t count, enum fl_init init, double scale, uint64_t key) {
    for (int64_t i = 0; i < count; i++) {
        switch (init) {
        case FL_INIT_ZERO:
            values[i] = 0;
            break;
        case FL_INIT_ONE:
            values[i] = 1;
            break;
        case FL_INIT_FORGET:
            values[i] = i / (count / 4) == 1;
            break;
        case FL_INIT_NORMAL:
            values[i] = scale * standard_normal(key, i);
            break;
        case FL_INIT_UNIFORM: {
            struct fl_philox r = fl_philox(key, 0, (uint64_t)i);
            values[i] = scale * symmetric_unit(r.word[0], r.word[1]);
            break;
        }
        }
    }
}

tensor_status nn_normal_numbers(double *values, int64_t count, uint64_t seed, const char *name) {
    if (!values || !name || count < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "normal numbers: %s",
                       !values ? "values is NULL"
                       : !name ? "the name is NULL"
                               : "a count below 0");
    fl_init_values(values, count, FL_INIT_NORMAL, 1, nn_name_key(seed, name));
    return TENSOR_OK;
}
