/* Layers in int8 (tools/facts/int8.h) against an independent witness: sums in int64 by seven loops, the rounding by
 * long division of exact integers, thresholds by the divergence implemented again with arrays. */
#include "check.h"
#include "facts/int8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;
static uint32_t draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}
static double uniform(void) {
    return draw() * 0x1p-30 - 1;
}

enum { MOST = 40000 };

static void test_shift(void) {
    for (int i = 0; i < 200000; i++) {
        const int shift = (int)(draw() % 63), bits = (int)(draw() % 62);
        int64_t v = (int64_t)(((uint64_t)draw() << 31 | draw()) >> (62 - bits));
        if (shift && draw() % 4 == 0) /* halves */
            v = ((v >> shift) << shift) + ((int64_t)1 << (shift - 1));
        v = draw() % 2 ? -v : v;
        const __int128 unit = (__int128)1 << shift;
        __int128 q = v / unit, r = v % unit; /* towards zero */
        if (r < 0) {
            r += unit;
            q--;
        }
        if (2 * r > unit || (2 * r == unit && q % 2))
            q++;
        CHECK(int8_shifted(v, shift) == (int64_t)q, "%lld >> %d", (long long)v, shift);
    }
}

static void test_layer(int channels, int filters, int window, int stride, int padding, int side, bool relu,
                       bool residual) {
    static float w[MOST], b[128];
    static int8_t x[MOST], shared[MOST], y[MOST], patch[MOST];
    static int32_t sums[MOST];
    const int n = window * window * channels, out = (side + 2 * padding - window) / stride + 1;
    for (int i = 0; i < n * filters; i++)
        w[i] = (float)uniform();
    for (int k = 0; k < filters; k++)
        b[k] = k == 1 ? 3e8f : (float)(10 * uniform());
    for (int i = 0; i < side * side * channels; i++)
        x[i] = (int8_t)(draw() % 4 ? (int)(draw() % 255) - 127 : 127);
    for (int i = 0; i < out * out * filters; i++)
        shared[i] = (int8_t)((int)(draw() % 255) - 127);
    struct int8_layer l = {channels, filters, window, stride, padding, relu, NULL, NULL, NULL, 0, 0};
    const struct int8_steps steps = {0.01, 0.02 * sqrt(n), residual ? 0.05 : 0};
    CHECK(int8_make(&l, w, b, steps), "made");
    /* the steps: each weight within half a step, the largest at 127; factors true to 2^-20 */
    for (int k = 0; k < filters; k++) {
        double largest = 0;
        for (int i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)w[k * n + i]));
        const double step = k == 1 ? 3e8 / 0.01 / 0x1p30 : largest / 127;
        for (int i = 0; i < n; i++)
            CHECK(fabs(l.weights[k * n + i] - w[k * n + i] / step) <= 0.5 + 1e-6, "weight %d of filter %d", i, k);
        CHECK(fabs(ldexp((double)l.factor[k], -l.shift) / (0.01 * step / steps.output) - 1) < 0x1p-20, "factor %d", k);
        CHECK(fabs(l.bias[k] - b[k] / 0.01 / step) <= 0.5 + 1e-6, "bias %d", k);
    }
    int8_sums(&l, x, side, side, patch, sums);
    int8_store(&l, sums, residual ? shared : NULL, (int64_t)out * out, y);
    for (int p = 0; p < out; p++)
        for (int q = 0; q < out; q++)
            for (int k = 0; k < filters; k++) {
                int64_t sum = l.bias[k];
                for (int r = 0; r < window; r++)
                    for (int s = 0; s < window; s++)
                        for (int c = 0; c < channels; c++) {
                            const int i = p * stride + r - padding, j = q * stride + s - padding;
                            if (i >= 0 && i < side && j >= 0 && j < side)
                                sum += (int64_t)x[(i * side + j) * channels + c] *
                                       l.weights[((k * window + r) * window + s) * channels + c];
                        }
                const int at = (p * out + q) * filters + k;
                CHECK(sums[at] == sum, "sum %d", at);
                const __int128 unit = (__int128)1 << l.shift;
                const __int128 v =
                    (__int128)sum * l.factor[k] + (residual ? (__int128)shared[at] * l.shared_factor : 0);
                int expected = relu ? 0 : -127;
                while (expected < 127) { /* the first integer that v is not nearer to the next one than to */
                    const __int128 above = 2 * v - (2 * (__int128)expected + 1) * unit;
                    if (above < 0 || (above == 0 && expected % 2 == 0))
                        break;
                    expected++;
                }
                CHECK(y[at] == expected, "element %d: %d, expected %d", at, y[at], expected);
            }
    int8_free(&l);
}

/* Migacz 2017, the slide "Pseudocode": quantise, expand, compare. */
static int witness_bins(const int64_t *count) {
    int best = 2048;
    double least = INFINITY;
    for (int kept = 128; kept <= 2048; kept++) {
        static double p[2048], q[2048];
        double sum_p = 0, sum_q = 0, d = 0;
        memset(q, 0, sizeof q);
        for (int i = 0; i < kept; i++)
            p[i] = (double)count[i];
        for (int i = kept; i < 2048; i++)
            p[kept - 1] += (double)count[i];
        for (int level = 0; level < 128; level++) {
            double mass = 0;
            int full = 0;
            for (int i = 0; i < kept; i++)
                if (i >= level * kept / 128 && i < (level + 1) * kept / 128 && count[i]) {
                    mass += (double)count[i];
                    full++;
                }
            for (int i = level * kept / 128; i < (level + 1) * kept / 128; i++)
                q[i] = count[i] ? mass / full : 0;
        }
        for (int i = 0; i < kept; i++) {
            sum_p += p[i];
            sum_q += q[i];
        }
        for (int i = 0; i < kept && sum_q > 0; i++)
            if (p[i] > 0)
                d += q[i] > 0 ? p[i] / sum_p * (log(p[i] / sum_p) - log(q[i] / sum_q)) : INFINITY;
        if (sum_q > 0 && d < least - 1e-12) {
            least = d;
            best = kept;
        }
    }
    return best;
}

static void test_divergence(void) {
    static struct int8_histogram h;
    static float x[MOST];
    for (int round = 0; round < 3; round++) {
        memset(&h, 0, sizeof h);
        for (int i = 0; i < MOST; i++) /* a long tail */
            x[i] = (float)(-log(1 - 0.5 * (uniform() + 1) * 0.99999) * (round + 1)) * (i % 2 ? 1 : -1);
        x[7] = (float)(30 * (round + 1));
        CHECK(int8_see_largest(&h, x, MOST) && int8_see(&h, x, MOST), "finite");
        CHECK(h.largest == (double)x[7] && int8_threshold(&h, false) == h.largest, "largest");
        const int bins = int8_divergence_bins(h.count);
        CHECK(bins == witness_bins(h.count), "round %d: %d bins, the witness says %d", round, bins,
              witness_bins(h.count));
        CHECK(int8_threshold(&h, true) < h.largest, "round %d: an outlier is cut off", round);
    }
}

static void test_not_finite(void) {
    static struct int8_histogram h;
    const float values[] = {1, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        const float x[] = {0.5f, values[i], -1};
        h = (struct int8_histogram){.largest = 1};
        CHECK(int8_see_largest(&h, x, 3) == (i == 0), "value %d", i);
        CHECK(int8_see(&h, x, 3) == (i == 0), "value %d", i);
        CHECK(h.count[INT8_BINS / 2] == 1 && h.count[INT8_BINS - 1] == (i ? 0 : 2), "bins of value %d", i);
    }
}

int main(void) {
    test_not_finite();
    test_shift();
    test_layer(3, 16, 3, 1, 1, 9, true, false);
    test_layer(16, 32, 3, 2, 1, 8, true, true);
    test_layer(17, 5, 1, 1, 0, 5, false, true);
    test_layer(64, 10, 1, 1, 0, 1, false, false);
    test_divergence();
    return check_summary();
}
