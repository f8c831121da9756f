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

/* Uniform in (-1, 1) from two words, never 0 nor an end: odd multiples of 2^-53. */
static double symmetric_unit(uint32_t high, uint32_t low) {
    int64_t bits = (int64_t)(((uint64_t)high << 32 | low) >> 11) - ((int64_t)1 << 52);
    return (double)(2 * bits + 1) * 0x1p-53;
}

/* A positive number that is no subnormal, taken apart: x = m 2^e with m in [sqrt(1/2), sqrt(2)). */
static double mantissa_of(double x, int *e) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t fraction = bits & UINT64_MAX >> 12;
    const int below = fraction < 0x6a09e667f3bcd; /* the fraction of sqrt(1/2) */
    *e = (int)(bits >> 52) - 1022 - below;
    bits = fraction | (uint64_t)(1022 + below) << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    return m;
}

/* log x to about 1e-15, of x = m 2^e: log m = 2 artanh(s), s = (m - 1)/(m + 1), |s| < 0.172; the series to s^19 leaves
 * less than 2e-17. */
static double natural_log(double m, int e) {
    const double s = (m - 1) / (m + 1), t = s * s;
    double series = 0;
    for (int k = 19; k >= 1; k -= 2)
        series = series * t + 1.0 / k;
    return e * 0x1.62e42fefa39efp-1 + 2 * s * series;
}

/* A pair in the square of uniform numbers: the first of them, and in *s the sum of their squares. */
static double draw_pair(uint64_t key, uint64_t attempt, int64_t element, double *s) {
    const struct fl_philox r = fl_philox(key, attempt, (uint64_t)element);
    const double u = symmetric_unit(r.word[0], r.word[1]), v = symmetric_unit(r.word[2], r.word[3]);
    *s = u * u + v * v;
    return u;
}

/* Standard normals of n elements by Marsaglia's polar method; rejected pairs (one in five) take the next attempt's
 * counter. The other number of a pair is not used, so that an element depends only on its own index. Each step is a
 * loop of its own over some elements, so that their chains of operations overlap. */
enum { BLOCK = 64 };
static void standard_normals(double values[BLOCK], int n, uint64_t key, int64_t first) {
    double u[BLOCK], s[BLOCK], m[BLOCK];
    int e[BLOCK];
    for (int i = 0; i < n; i++)
        u[i] = draw_pair(key, 0, first + i, &s[i]);
    for (int i = 0; i < n; i++)
        for (uint64_t attempt = 1; s[i] >= 1; attempt++)
            u[i] = draw_pair(key, attempt, first + i, &s[i]);
    for (int i = 0; i < n; i++)
        m[i] = mantissa_of(s[i], &e[i]);
    for (int i = 0; i < n; i++)
        values[i] = u[i] * sqrt(-2 * natural_log(m[i], e[i]) / s[i]);
}

void fl_init_values(double *values, int64_t count, enum fl_init init, double scale, uint64_t key) {
    if (init == FL_INIT_NORMAL) {
        for (int64_t first = 0; first < count; first += BLOCK) {
            double block[BLOCK];
            const int n = count - first < BLOCK ? (int)(count - first) : BLOCK;
            standard_normals(block, n, key, first);
            for (int i = 0; i < n; i++)
                values[first + i] = scale * block[i];
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        switch (init) {
        case FL_INIT_ZERO:
        case FL_INIT_NORMAL:
            values[i] = 0;
            break;
        case FL_INIT_ONE:
            values[i] = 1;
            break;
        case FL_INIT_FORGET:
            values[i] = i / (count / 4) == 1;
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
