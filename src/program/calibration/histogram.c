/* histogram.c - see histogram.h. */
#include "program/calibration/histogram.h"
#include <math.h>
#include <string.h>

/* The least k with x <= 2^k. */
static int exponent_of(double x) {
    int e;
    return frexp(x, &e) == 0.5 ? e - 1 : e;
}

static void grow(struct fl_histogram *h, int exponent) {
    const int steps = exponent - h->exponent < 12 ? exponent - h->exponent : 12; /* 12: all in the first bin */
    for (int sign = 0; sign < 2; sign++)
        for (int i = 1; i < FL_HISTOGRAM_BINS; i++) {
            const int64_t moved = h->count[sign][i];
            h->count[sign][i] = 0;
            h->count[sign][i >> steps] += moved;
        }
    h->exponent = exponent;
}

double fl_histogram_width(const struct fl_histogram *h) {
    return ldexp(1.0 / FL_HISTOGRAM_BINS, h->exponent);
}

void fl_histogram_add(struct fl_histogram *h, const float *x, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    if (largest > 0) {
        const int exponent = exponent_of((double)largest);
        if (!h->numbers)
            h->exponent = exponent;
        else if (exponent > h->exponent)
            grow(h, exponent);
    }
    const double scale = 1 / fl_histogram_width(h); /* a power of two: products are exact */
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++) {
        if (x[i] == 0) {
            zeros++;
            continue;
        }
        const double at = fabs((double)x[i]) * scale;
        const int bin = (int)at;
        h->count[x[i] < 0][bin - (bin == at)]++;
    }
    h->zeros += zeros;
    h->numbers += count - zeros;
}
