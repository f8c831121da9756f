/* int8.c - layers in int8 after training. */
#include "facts/int8.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- thresholds --------------------------------------------------------------------------------------------------- */

bool int8_see_largest(struct int8_histogram *h, const float *x, int64_t n) {
    float largest = (float)h->largest;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    h->largest = largest;
    return true;
}

bool int8_see(struct int8_histogram *h, const float *x, int64_t n) {
    const double bins = h->largest > 0 ? INT8_BINS / h->largest : 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
        if (x[i] != 0)
            h->count[(int)fmin(fabs((double)x[i]) * bins, INT8_BINS - 1)]++;
    }
    return true;
}

/* Level j of the first `kept` bins has those from begin(j) to begin(j + 1) - 1. */
static int begin(int kept, int level) {
    return (int)((int64_t)level * kept / INT8_LEVELS);
}

/* The divergence of the distribution p, whose last bin has `above` besides, from q, in which the counts of a level are
 * spread evenly over those of its bins that are not empty. INFINITY where p has something that q lacks. */
static double divergence(const int64_t *count, int kept, int64_t above, int64_t total) {
    double sum = 0;
    const double of_p = (double)total, of_q = (double)(total - above);
    for (int level = 0; level < INT8_LEVELS; level++) {
        const int from = begin(kept, level), to = begin(kept, level + 1);
        int64_t in_level = 0, full = 0;
        for (int i = from; i < to; i++) {
            in_level += count[i];
            full += count[i] > 0;
        }
        for (int i = from; i < to; i++) {
            const int64_t p = count[i] + (i == kept - 1 ? above : 0);
            if (p && !count[i])
                return INFINITY;
            if (p)
                sum += (double)p / of_p * log((double)p / of_p / ((double)in_level / (double)full / of_q));
        }
    }
    return sum;
}

int int8_divergence_bins(const int64_t *count) {
    int64_t total = 0, below = 0;
    int best = INT8_BINS;
    double least = INFINITY;
    for (int i = 0; i < INT8_BINS; i++)
        total += count[i];
    for (int kept = 1; kept <= INT8_BINS && total; kept++) {
        below += count[kept - 1];
        const double d = kept < INT8_LEVELS || !below ? INFINITY : divergence(count, kept, total - below, total);
        if (d <= least && d < INFINITY) {
            least = d;
            best = kept;
        }
    }
    return best;
}

double int8_threshold(const struct int8_histogram *h, bool by_divergence) {
    return by_divergence ? h->largest * int8_divergence_bins(h->count) / INT8_BINS : h->largest;
}

/* --- making layers ------------------------------------------------------------------------------------------------ */

static int64_t sum_length(const struct int8_layer *layer) {
    return (int64_t)layer->window * layer->window * layer->channels;
}

/* The largest bias with which no sum of INT8_LONGEST_SUM products overflows int32. */
static const double most_bias = 0x1p30;
/* The limit of a number before it is shifted and stored. */
static const double most_stored = 0x1p62;

/* The step of a filter: its largest weight is INT8_LARGEST steps, unless the bias would overflow. */
static double filter_step(const float *weights, int64_t n, double bias, double input) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)weights[i]));
    const double step = fmax(largest / INT8_LARGEST, fabs(bias) / input / most_bias);
    return step > 0 ? step : 1;
}

static bool all_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* The factors, with the largest shift at which no output overflows on its way: factor[k] steps of the output a step of
 * the sums. */
static bool make_factors(struct int8_layer *layer, const double *factor, double shared) {
    const double products = (double)sum_length(layer) * INT8_LARGEST * INT8_LARGEST;
    double most = 0;
    for (int k = 0; k < layer->filters; k++)
        most = fmax(most, factor[k] * (products + fabs((double)layer->bias[k])));
    most += shared * INT8_LARGEST + 1;
    for (layer->shift = 62; layer->shift >= 0; layer->shift--)
        /* each factor is rounded to an integer, by half at most, and a half is added before the shift */
        if (ldexp(most, layer->shift) + products + most_bias + INT8_LARGEST < most_stored)
            break;
    if (layer->shift < 0)
        return false;
    for (int k = 0; k < layer->filters; k++)
        layer->factor[k] = llrint(ldexp(factor[k], layer->shift));
    layer->shared_factor = llrint(ldexp(shared, layer->shift));
    return true;
}

bool int8_make(struct int8_layer *layer, const float *weights, const float *bias, struct int8_steps steps) {
    const int64_t n = sum_length(layer);
    const size_t filters = (size_t)layer->filters;
    layer->weights = text_alloc(filters * (size_t)n, 1);
    layer->bias = text_alloc(filters, sizeof *layer->bias);
    layer->factor = text_alloc(filters, sizeof *layer->factor);
    if (n > INT8_LONGEST_SUM || !all_finite(weights, layer->filters * n) || !all_finite(bias, layer->filters))
        return false;
    double *factor = text_alloc(filters, sizeof *factor);
    for (size_t k = 0; k < filters; k++) {
        const float *filter = weights + k * (size_t)n;
        const double step = filter_step(filter, n, bias[k], steps.input);
        for (int64_t i = 0; i < n; i++)
            layer->weights[k * (size_t)n + (size_t)i] = (int8_t)lrint(filter[i] / step);
        layer->bias[k] = (int32_t)lrint(bias[k] / steps.input / step);
        factor[k] = steps.input * step / steps.output;
    }
    const bool good = make_factors(layer, factor, steps.residual / steps.output);
    free(factor);
    return good;
}

void int8_free(struct int8_layer *layer) {
    free(layer->weights);
    free(layer->bias);
    free(layer->factor);
    *layer = (struct int8_layer){0};
}

/* --- integers alone ----------------------------------------------------------------------------------------------- */

static void take_patch(const struct int8_layer *layer, const int8_t *x, int height, int width, int top, int left,
                       int8_t *patch) {
    const size_t pixel = (size_t)layer->channels;
    for (int r = 0; r < layer->window; r++)
        for (int s = 0; s < layer->window; s++, patch += pixel) {
            const int line = top + r, column = left + s;
            if (line < 0 || line >= height || column < 0 || column >= width)
                memset(patch, 0, pixel);
            else
                memcpy(patch, x + ((size_t)line * (size_t)width + (size_t)column) * pixel, pixel);
        }
}

/* |a b| <= 127^2, and n of them are below 2^30: no sum overflows, with a bias of up to 2^30 either. */
static int32_t product(const int8_t *restrict a, const int8_t *restrict b, int64_t n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void int8_sums(const struct int8_layer *layer, const int8_t *x, int height, int width, int8_t *patch, int32_t *sums) {
    const int64_t n = sum_length(layer);
    for (int top = -layer->padding; top + layer->window <= height + layer->padding; top += layer->stride)
        for (int left = -layer->padding; left + layer->window <= width + layer->padding; left += layer->stride) {
            take_patch(layer, x, height, width, top, left, patch);
            for (int k = 0; k < layer->filters; k++)
                *sums++ = product(patch, layer->weights + k * n, n) + layer->bias[k];
        }
}

int64_t int8_shifted(int64_t v, int shift) {
    if (!shift)
        return v;
    const int64_t half = (int64_t)1 << (shift - 1), floor = v >> shift, rest = v - floor * 2 * half;
    return floor + (rest > half || (rest == half && (floor & 1)));
}

void int8_store(const struct int8_layer *layer, const int32_t *sums, const int8_t *residual, int64_t pixels,
                int8_t *y) {
    const int64_t low = layer->relu ? 0 : -INT8_LARGEST;
    for (int64_t i = 0; i < pixels * layer->filters; i++) {
        int64_t v = sums[i] * layer->factor[i % layer->filters];
        if (residual)
            v += residual[i] * layer->shared_factor;
        v = int8_shifted(v, layer->shift);
        y[i] = (int8_t)(v < low ? low : v > INT8_LARGEST ? INT8_LARGEST : v);
    }
}

int int8_largest(const struct int8_layer *layer, const int32_t *sums) {
    int largest = 0;
    for (int k = 1; k < layer->filters; k++)
        if (sums[k] * layer->factor[k] > sums[largest] * layer->factor[largest])
            largest = k;
    return largest;
}
