/* tensor_describe and tensor_measure_in against a slow recount: every format, random bits and values, numbers that are
 * not finite, subnormal ones, sizes around blocks and chunks, threads, kernel sets; the effects of another format
 * against a real conversion; what is refused. */
#include "check.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 20261122;
static const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static double uniform(void) {
    return (double)(check_random(&seed) >> 11) * 0x1p-53;
}

enum { BITS, VALUES, SPREAD, CONSTANT, ZEROS, TINY, ONE_LARGE, NONE_FINITE, FEW_ODD, ENDS, KINDS };

/* Elements as words, so that everything that a format can hold occurs. */
static tensor *make(tensor_format format, int64_t n, int kind) {
    tensor *x = tensor_new(format, TENSOR_SHAPE(n));
    const bool shared = tensor_format_is_shared(format), wide = format == FMT_FP32;
    const uint32_t infinite = wide ? 0x7f800000u : format == FMT_FP16 ? 0x7c00u : 0x7f80u;
    uint16_t *half = tensor_data(x);
    uint32_t *word = tensor_data(x);
    double *value = malloc((size_t)n * sizeof *value);
    for (int64_t i = 0; i < n; i++)
        value[i] = kind == CONSTANT ? 0.1
                   : kind == ZEROS  ? 0
                   : kind == SPREAD
                       ? (check_random(&seed) & 1 ? ldexp(uniform() - 0.5, -(int)(check_random(&seed) % 60)) : 0)
                   : kind == TINY ? (uniform() - 0.5) * (shared ? 0x1p-28 : 0x1p-140)
                                  : ldexp(uniform() - 0.5, (int)(check_random(&seed) % 12)) + 100;
    if (kind == FEW_ODD && check_random(&seed) & 1) /* as after a ReLU */
        value[0] = 0;
    if (kind == ONE_LARGE)
        value[check_random(&seed) % (uint64_t)n] = -3e4;
    CHECK(!tensor_load_f64(x, value, n), "%s", tensor_error());
    for (int64_t i = 0; i < n && (kind == BITS || kind == TINY); i++)
        if (kind == BITS && wide)
            word[i] = (uint32_t)check_random(&seed);
        else if (kind == BITS)
            half[i] = (uint16_t)check_random(&seed);
        else if (!shared && !wide) /* subnormal ones of 16 bits, and zeros of both signs */
            half[i] = (uint16_t)(check_random(&seed) & 0x807fu);
    for (int64_t i = 0; i < n && kind == NONE_FINITE && !shared; i++) {
        const uint32_t bits = infinite | (check_random(&seed) & 1);
        if (wide)
            word[i] = bits;
        else
            half[i] = (uint16_t)bits;
    }
    for (int64_t i = 0; i < n && kind == FEW_ODD; i++) /* blocks without any, with one, with several */
        if (check_random(&seed) % 900 == 0 && !shared) {
            static const uint32_t words[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 1,
                                             0x807fffffu, 0x00800000u, 0x7f7fffffu, 0x80000000u};
            const uint32_t bits = words[check_random(&seed) % (sizeof words / sizeof words[0])];
            if (wide)
                word[i] = bits;
            else
                half[i] = (uint16_t)(bits >> 16 | (bits & 1));
        } else if (check_random(&seed) % 900 == 0 && shared) {
            half[i] = (uint16_t)(INT16_MIN + (int)(check_random(&seed) % 3));
        }
    for (int64_t i = 0; i < n && kind == ENDS; i++) { /* the largest squares */
        const bool below = check_random(&seed) & 1;
        if (shared)
            half[i] = (uint16_t)(below ? -INT16_MAX : INT16_MAX);
        else if (wide)
            word[i] = 0x7f7fffffu | (below ? 0x80000000u : 0);
        else
            half[i] = (uint16_t)((infinite - 1) | (below ? 0x8000u : 0));
    }
    free(value);
    return x;
}

/* --- description -------------------------------------------------------------------------------------------------- */

struct recount {
    int64_t zeros, infinite, nan, finite, bins[TENSOR_BINS];
    double smallest, largest;
    long double sum, l1, squares, spread;
};

static struct recount recount(const tensor *x) {
    const int64_t n = tensor_count(x);
    double *value = malloc((size_t)n * sizeof *value);
    struct recount r = {0};
    CHECK(!tensor_store_f64(x, value, n), "%s", tensor_error());
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs(value[i]);
        int exponent;
        r.nan += isnan(value[i]);
        r.infinite += isinf(value[i]) != 0;
        if (!isfinite(value[i]))
            continue;
        r.finite++;
        r.sum += value[i];
        r.l1 += size;
        r.squares += (long double)size * size;
        r.zeros += size == 0;
        if (size == 0)
            continue;
        frexp(size, &exponent); /* size = f 2^exponent, 1/2 <= f < 1 */
        r.bins[exponent - 1 - TENSOR_FIRST_BIN]++;
        if (size > r.largest)
            r.largest = size;
        if (r.smallest == 0 || size < r.smallest)
            r.smallest = size;
    }
    for (int64_t i = 0; i < n; i++)
        if (isfinite(value[i]))
            r.spread += (value[i] - r.sum / r.finite) * (value[i] - r.sum / r.finite);
    free(value);
    return r;
}

static bool is_near(double got, long double expected, long double scale) {
    return fabsl(got - expected) <= 1e-12L * scale;
}

/* u / sqrt(12) by the definition of the format. */
static double rounding(const tensor *x, const struct recount *r) {
    const tensor_format f = tensor_format_of(x);
    const int digits = f == FMT_FP32 ? 24 : f == FMT_FP16 ? 11 : 8, least = f == FMT_FP16 ? -14 : -126;
    long double sum = 0;
    if (tensor_format_is_shared(f))
        return ldexp(1 / sqrt(12), -tensor_exponent(x));
    for (int i = 0; i < TENSOR_BINS; i++) {
        const int binade = i + TENSOR_FIRST_BIN, unit = (binade > least ? binade : least) + 1 - digits;
        sum += r->bins[i] * powl(2, 2 * unit) / 12;
    }
    return (double)sqrtl(sum / r->finite);
}

static void check_description(const tensor *x, const tensor_description *d, const char *what) {
    const struct recount r = recount(x);
    const char *name = tensor_format_name(tensor_format_of(x));
    const long long n = tensor_count(x);
    CHECK(d->elements == n && d->zeros == r.zeros && d->infinite == r.infinite && d->nan == r.nan,
          "%s %s %lld: %lld elements, zeros %lld/%lld, Inf %lld/%lld, NaN %lld/%lld", name, what, n,
          (long long)d->elements, (long long)d->zeros, (long long)r.zeros, (long long)d->infinite,
          (long long)r.infinite, (long long)d->nan, (long long)r.nan);
    CHECK(!memcmp(d->bins, r.bins, sizeof r.bins), "%s %s %lld: histogram", name, what, n);
    CHECK(d->smallest == r.smallest && d->largest == r.largest, "%s %s %lld: smallest %a/%a, largest %a/%a", name, what,
          n, d->smallest, r.smallest, d->largest, r.largest);
    if (!r.finite) {
        CHECK(isnan(d->mean) && isnan(d->deviation) && isnan(d->rounding) && d->l1 == 0 && d->l2 == 0, "%s", what);
        return;
    }
    const long double each = r.l1 / r.finite, deviation = sqrtl(r.spread / r.finite), l2 = sqrtl(r.squares);
    CHECK(is_near(d->mean, r.sum / r.finite, each), "%s %s %lld: mean %.17g, expected %.17Lg", name, what, n, d->mean,
          r.sum / r.finite);
    CHECK(is_near(d->deviation, deviation, deviation + each * 1e-3L), "%s %s %lld: deviation %.17g, expected %.17Lg",
          name, what, n, d->deviation, deviation);
    CHECK(is_near(d->l1, r.l1, r.l1) && is_near(d->l2, l2, l2), "%s %s %lld: l1 %.17g/%.17Lg, l2 %.17g/%.17Lg", name,
          what, n, d->l1, r.l1, d->l2, l2);
    CHECK(is_near(d->rounding, rounding(x, &r), rounding(x, &r)), "%s %s %lld: rounding %g/%g", name, what, n,
          d->rounding, rounding(x, &r));
}

static const char *const kinds[KINDS] = {"bits", "values",    "spread",      "constant", "zeros",
                                         "tiny", "one large", "none finite", "few odd",  "ends"};

/* Compares every kernel set and number of threads, bit for bit. */
static void describe(tensor_format format, int64_t n, int kind) {
    static const char *const rows[] = {"ref", "portable", "avx2", "avx512bw", "avx512_amx"};
    tensor *x = make(format, n, kind);
    tensor_description first, d;
    memset(&first, 0xa5, sizeof first);
    tensor_set_threads(1);
    CHECK(!tensor_describe(&first, x), "%s", tensor_error());
    check_description(x, &first, kinds[kind]);
    if (kind == CONSTANT && tensor_format_is_shared(format))
        CHECK(first.deviation == 0, "constant: deviation %g", first.deviation);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (tensor_set_backend(rows[i]))
            continue;
        tensor_set_threads(1 + (int)i % 3);
        CHECK(!tensor_describe(&d, x), "%s", tensor_error());
        CHECK(!memcmp(&d, &first, sizeof d), "%s %s %lld: row %s is another", tensor_format_name(format), kinds[kind],
              (long long)n, rows[i]);
    }
    CHECK(!tensor_set_backend("avx512_amx"), "%s", tensor_error());
    tensor_free(x);
}

/* --- in another format -------------------------------------------------------------------------------------------- */

static void measure(const tensor *x, tensor_format format, int e, const char *what) {
    const int64_t n = tensor_count(x);
    tensor *y = tensor_new(format, TENSOR_SHAPE(n));
    double *before = malloc((size_t)n * sizeof *before), *after = malloc((size_t)n * sizeof *after);
    const bool shared = tensor_format_is_shared(format);
    const char *from = tensor_format_name(tensor_format_of(x)), *to = tensor_format_name(format);
    tensor_measure m;
    tensor_stats last;
    long double error = 0, size = 0;
    int64_t finite = 0;
    CHECK(!tensor_measure_in(&m, x, format, shared ? e : 0), "%s", tensor_error());
    CHECK(!(shared ? tensor_convert_at(y, x, e) : tensor_convert(y, x)) && !tensor_statistics(&last, NULL, y) &&
              !tensor_store_f64(x, before, n) && !tensor_store_f64(y, after, n),
          "%s", tensor_error());
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(before[i]) || !isfinite(after[i]))
            continue;
        finite++;
        error += (after[i] - (long double)before[i]) * (after[i] - (long double)before[i]);
        size += (long double)before[i] * before[i];
    }
    CHECK(m.elements == n && m.finite == finite && m.saturated == last.saturated && m.flushed == last.flushed &&
              m.nonfinite == last.nonfinite,
          "%s in %s at %d, %s: finite %lld/%lld, saturated %lld/%lld, flushed %lld/%lld, nonfinite %lld/%lld", from, to,
          e, what, (long long)m.finite, (long long)finite, (long long)m.saturated, (long long)last.saturated,
          (long long)m.flushed, (long long)last.flushed, (long long)m.nonfinite, (long long)last.nonfinite);
    const long double expected = finite ? sqrtl(error / finite) : 0, root = finite ? sqrtl(size / finite) : 0;
    CHECK(is_near(m.error, expected, expected) && is_near(m.size, root, root),
          "%s in %s at %d, %s: error %.17g/%.17Lg, size %.17g/%.17Lg", from, to, e, what, m.error, expected, m.size,
          root);
    tensor_free(y);
    free(before);
    free(after);
}

static void measure_all(tensor_format format, int64_t n, int kind) {
    tensor *x = make(format, n, kind);
    for (int i = 0; i < FORMATS; i++) {
        measure(x, formats[i], formats[i] == FMT_DFP16 ? 125 : 31, kinds[kind]);
        measure(x, formats[i], formats[i] == FMT_DFP16 ? -120 : 0, kinds[kind]);
        measure(x, formats[i], 7, kinds[kind]);
    }
    tensor_free(x);
}

/* dfp16 at the ends of its exponents, whose values binary32 cannot represent. */
static void ends(void) {
    static const int at[] = {-128, -113, -112, 126, 127};
    for (unsigned i = 0; i < sizeof at / sizeof at[0]; i++) {
        tensor *x = make(FMT_DFP16, 5000, BITS);
        tensor_description d;
        CHECK(!tensor_declare_exponent(x, at[i]) && !tensor_describe(&d, x), "%s", tensor_error());
        check_description(x, &d, "end");
        for (int f = 0; f < FORMATS; f++)
            measure(x, formats[f], formats[f] == FMT_DFP16 ? at[(i + 1) % 5] : 3, "end");
        tensor_free(x);
    }
}

/* --- refused ------------------------------------------------------------------------------------------------------ */

static void refused(void) {
    tensor *x = tensor_new(FMT_FP32, TENSOR_SHAPE(4, 6)), *numbers = tensor_new(FMT_F64, TENSOR_SHAPE(4));
    tensor *view = tensor_new_view(x, TENSOR_SHAPE(24)),
           *across = tensor_new_strided(x, 2, (int64_t[]){6, 4}, (int64_t[]){1, 6}, 0);
    tensor_description d, before;
    tensor_measure m;
    memset(&d, 0x5a, sizeof d);
    before = d;
    CHECK(x && view && across && numbers, "%s", tensor_error());
    CHECK(tensor_describe(&d, NULL) == TENSOR_E_ARGUMENT && tensor_describe(NULL, x) == TENSOR_E_ARGUMENT &&
              tensor_describe(&d, across) == TENSOR_E_ARGUMENT && tensor_describe(&d, numbers) == TENSOR_E_FORMAT,
          "%s", tensor_error());
    CHECK(!memcmp(&d, &before, sizeof d), "a refused description is written");
    CHECK(!tensor_describe(&d, view) && d.elements == 24 && d.zeros == 24, "%s", tensor_error());
    CHECK(tensor_measure_in(&m, x, FMT_FLEX16_5, 32) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "32") &&
              tensor_measure_in(&m, x, FMT_FLEX16_5, -1) == TENSOR_E_ARGUMENT &&
              tensor_measure_in(&m, x, FMT_FP16, 1) == TENSOR_E_ARGUMENT &&
              tensor_measure_in(&m, x, FMT_F64, 0) == TENSOR_E_FORMAT &&
              tensor_measure_in(&m, x, (tensor_format)77, 0) == TENSOR_E_FORMAT &&
              tensor_measure_in(NULL, x, FMT_FP16, 0) == TENSOR_E_ARGUMENT &&
              tensor_measure_in(&m, across, FMT_FP16, 0) == TENSOR_E_ARGUMENT,
          "%s", tensor_error());
    tensor_free(view);
    tensor_free(across);
    tensor_free(x);
    tensor_free(numbers);
}

int main(void) {
    static const int64_t sizes[] = {1, 2, 7, 8, 9, 255, 1023, 1024, 1025, 2051, 32768, 32769, 70001};
    for (int f = 0; f < FORMATS; f++)
        for (int kind = 0; kind < KINDS; kind++)
            for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
                describe(formats[f], sizes[i], kind);
    for (int f = 0; f < FORMATS; f++) {
        describe(formats[f], 64 * 32768 + 1029, VALUES); /* longer chunks */
        for (int kind = 0; kind < KINDS; kind++)
            measure_all(formats[f], 1 + (int64_t)(check_random(&seed) % 3000), kind);
        measure_all(formats[f], 40003, VALUES);
    }
    describe(FMT_FLEX16_5, 64 * 131072 + 70001, SPREAD); /* chunks too long for counters of 16 bits */
    ends();
    refused();
    return check_summary();
}
