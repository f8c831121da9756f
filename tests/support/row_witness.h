/* row_witness.h - common functions of the tests of operations on rows: tensors of any format with drawn values, and the
 * distance that a stored element may have from the real number that it rounds. */
#ifndef FL_ROW_WITNESS_H
#define FL_ROW_WITNESS_H

#include "check.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <string.h>

enum { MOST = 1 << 15 };

static uint64_t draws;

static double unit(void) { /* in [-1, 1) */
    return (double)((int64_t)check_random(&draws) >> 10) * 0x1p-53;
}
static int between(int low, int high) {
    return low + (int)(check_random(&draws) % (uint64_t)(high - low + 1));
}

/* A tensor and its values, exactly. */
struct held {
    tensor *t;
    double v[MOST];
    int64_t n;
};

static void hold(struct held *h) {
    h->n = tensor_count(h->t);
    CHECK(!tensor_store_f64(h->t, h->v, h->n), "%s", tensor_error());
}

/* With values of a style: ordinary, a large mean, constant rows, extremes, mostly zeros. */
enum { STYLES = 5 };
static inline void make(struct held *h, tensor_format f, int ndim, const int64_t *shape, int style) {
    static double values[MOST];
    h->t = tensor_new(f, ndim, shape);
    CHECK(h->t != NULL, "%s", tensor_error());
    const int64_t n = tensor_count(h->t), row = shape[ndim - 1];
    double place = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = unit() + unit() + unit();
        if (i % row == 0)
            place = style == 1 ? 20 + unit() : x;
        values[i] = style == 1   ? place + x * 0.05
                    : style == 2 ? place
                    : style == 3 ? (x < 0 ? -3 : 3)
                    : style == 4 ? (between(0, 5) ? 0 : x)
                                 : x;
    }
    CHECK(!tensor_load_f64(h->t, values, n), "%s", tensor_error());
    hold(h);
}

/* The distance that the element may have from x, whose computation may be off by `slack`: half a unit in the last
 * place. */
static inline long double reach_of(const tensor *t, long double x, long double slack) {
    const tensor_format f = tensor_format_of(t);
    if (tensor_format_is_shared(f))
        return ldexpl(0.5L, -tensor_exponent(t)) * (1 + 0x1p-20L) + slack;
    const long double half = f == FMT_FP32   ? 0x1p-24L
                             : f == FMT_FP16 ? 0x1p-11L
                                             : 0x1p-8L,
                      least = f == FMT_FP16 ? 0x1p-25L : 0x1p-134L;
    return fabsl(x) * half * 1.001L + least + slack;
}

static inline bool near_to(const struct held *h, int64_t i, long double x, long double slack) {
    if (tensor_format_is_shared(tensor_format_of(h->t))) {
        const long double top = ldexpl(32767, -tensor_exponent(h->t));
        x = x > top ? top : x < -top ? -top : x;
    } else if (isinf(h->v[i])) { /* beyond the range of the format */
        const tensor_format f = tensor_format_of(h->t);
        return (h->v[i] > 0) == (x > 0) && fabsl(x) >= (f == FMT_FP16 ? 65519.9L : 0x1.fep127L);
    }
    return fabsl(h->v[i] - x) <= reach_of(h->t, x, slack);
}

static const tensor_format all_formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};

#endif
