/* methods.c - see methods.h. */
#include "program/calibration/methods.h"
#include "core/arithmetic/elementary.h"
#include <math.h>

enum { BINS = FL_HISTOGRAM_BINS, MSE_STEPS = 128, MSE_LEAST = 13 };

struct fl_int8_type fl_type_of_range(struct fl_span span, bool symmetric) {
    const double low = fmin(span.low, 0), high = fmax(span.high, 0);
    struct fl_int8_type type = {.scale = 1, .is_unsigned = !symmetric};
    if (!(high > low))
        return type;
    type.scale = (float)(symmetric ? fmax(high, -low) / 127 : (high - low) / 255);
    if (!(type.scale > 0)) /* of numbers near the least float */
        type.scale = 0x1p-126f;
    if (!symmetric)
        type.zero = (int32_t)fmin(255, rint(-low / (double)type.scale));
    return type;
}

/* --- percentile --------------------------------------------------------------------------------------------------- */

/* The magnitude of a sign beyond which at most `cut` numbers lie, to the edge of a bin; 0: all are beyond. */
static double edge_above(const struct fl_histogram *h, int sign, double cut) {
    double above = 0;
    for (int i = BINS - 1; i >= 0; i--) {
        above += (double)h->count[sign][i];
        if (above > cut)
            return (i + 1) * fl_histogram_width(h);
    }
    return 0;
}

static struct fl_span by_percentile(const struct fl_histogram *h, double percentile, bool symmetric) {
    const double part = (double)(h->zeros + h->numbers) * (100 - percentile) / 100;
    if (!symmetric)
        return (struct fl_span){-edge_above(h, 1, part / 2), edge_above(h, 0, part / 2)};
    double above = 0, edge = 0;
    for (int i = BINS - 1; i >= 0 && !(edge > 0); i--) {
        above += (double)(h->count[0][i] + h->count[1][i]);
        if (above > part)
            edge = (i + 1) * fl_histogram_width(h);
    }
    return (struct fl_span){-edge, edge};
}

/* --- mean of squared errors --------------------------------------------------------------------------------------- */

static double squared_error(const struct fl_histogram *h, struct fl_int8_type type) {
    const double width = fl_histogram_width(h), scale = (double)type.scale;
    const double least = type.is_unsigned ? 0 : -128, most = type.is_unsigned ? 255 : 127;
    double sum = 0;
    for (int sign = 0; sign < 2; sign++)
        for (int i = 0; i < BINS; i++) {
            if (!h->count[sign][i])
                continue;
            const double centre = (sign ? -1 : 1) * (i + 0.5) * width;
            const double q = fmin(fmax(rint(centre / scale) + type.zero, least), most);
            const double error = centre - scale * (q - type.zero);
            sum += (double)h->count[sign][i] * error * error;
        }
    return sum;
}

static struct fl_span by_squares(const struct fl_histogram *h, double least, double largest, bool symmetric) {
    struct fl_span best = {least, largest};
    double fewest = INFINITY;
    for (int i = MSE_STEPS; i >= MSE_LEAST; i--) {
        const struct fl_span span = {least * i / MSE_STEPS, largest * i / MSE_STEPS};
        const double error = squared_error(h, fl_type_of_range(span, symmetric));
        if (error < fewest) {
            fewest = error;
            best = span;
        }
    }
    return best;
}

/* --- entropy ------------------------------------------------------------------------------------------------------ */

/* x log x. */
static double times_log(double x) {
    return x > 0 ? x * fl_log(x) : 0;
}

/* Sums over the first i bins. */
struct sums {
    int64_t count[FL_ENTROPY_BINS + 1];
    int full[FL_ENTROPY_BINS + 1];         /* bins that are not empty */
    double count_log[FL_ENTROPY_BINS + 1]; /* count log count */
};

/* Level j of the first `kept` bins has those from begin(j) to begin(j + 1) - 1. */
static int begin(int kept, int level) {
    return (int)((int64_t)level * kept / FL_ENTROPY_LEVELS);
}

/* The divergence of p, the first `kept` bins with what lies above them in the last, from q, in which the counts of a
 * level are spread evenly over those of its bins that are not empty: sum p log(p / q), with p and q of sum 1. INFINITY
 * where p has something that q lacks. */
static double divergence(const struct sums *s, const int64_t *count, int kept) {
    const double total = (double)s->count[FL_ENTROPY_BINS], below = (double)s->count[kept];
    const double above = total - below, last = (double)count[kept - 1];
    if (!(below > 0) || (above > 0 && !(last > 0)))
        return INFINITY;
    double sum = s->count_log[kept] - times_log(last) + times_log(last + above); /* sum of c log c over p's counts */
    for (int level = 0; level < FL_ENTROPY_LEVELS; level++) {
        const int from = begin(kept, level), to = begin(kept, level + 1);
        const int64_t in_level = s->count[to] - s->count[from];
        const double of_p = (double)in_level + (level == FL_ENTROPY_LEVELS - 1 ? above : 0);
        if (in_level)
            sum -= of_p * fl_log((double)in_level / (s->full[to] - s->full[from]));
    }
    return sum / total - fl_log(total) + fl_log(below);
}

int fl_entropy_bins(const int64_t count[FL_ENTROPY_BINS]) {
    struct sums s = {.count = {0}};
    int best = FL_ENTROPY_BINS;
    double least = INFINITY;
    for (int i = 0; i < FL_ENTROPY_BINS; i++) {
        s.count[i + 1] = s.count[i] + count[i];
        s.full[i + 1] = s.full[i] + (count[i] > 0);
        s.count_log[i + 1] = s.count_log[i] + times_log((double)count[i]);
    }
    for (int kept = FL_ENTROPY_LEVELS; kept <= FL_ENTROPY_BINS; kept++) {
        const double d = divergence(&s, count, kept);
        if (d <= least && d < INFINITY) {
            least = d;
            best = kept;
        }
    }
    return best;
}

static struct fl_span by_entropy(const struct fl_histogram *h) {
    int64_t count[FL_ENTROPY_BINS];
    const int pair = BINS / FL_ENTROPY_BINS;
    for (int i = 0; i < FL_ENTROPY_BINS; i++) {
        count[i] = 0;
        for (int j = pair * i; j < pair * (i + 1); j++)
            count[i] += h->count[0][j] + h->count[1][j];
    }
    const double edge = fl_entropy_bins(count) * pair * fl_histogram_width(h);
    return (struct fl_span){-edge, edge};
}

struct fl_span fl_range_by(const program_quantisation *how, double least, double largest,
                           const struct fl_histogram *h) {
    struct fl_span span = {least, largest};
    if (!h || !h->numbers)
        return span;
    switch (how->method) {
    case PROGRAM_MINMAX:
        break;
    case PROGRAM_PERCENTILE:
        span = by_percentile(h, how->percentile, how->symmetric);
        break;
    case PROGRAM_MSE:
        span = by_squares(h, least, largest, how->symmetric);
        break;
    case PROGRAM_ENTROPY:
        span = by_entropy(h);
        break;
    }
    return (struct fl_span){fmax(span.low, least), fmin(span.high, largest)};
}
