/* test_scaled.c - tensors of floats under one exponent: texts, ids and ranges; every code both ways; loads and
 * conversions at any exponent, and what they count, against a witness by definition; writes under every predictor. */
#include "flexlab/flexlab.h"
#include "flexlab/blocks_optimisers.h"
#include "scaled_witness.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 8;

static int below(int n) {
    return (int)(check_random(&state) % (uint64_t)n);
}

static tensor_format find(const char *name) {
    tensor_format format = FMT_NONE;
    CHECK(!tensor_format_find(&format, name), "%s: %s", name, tensor_error());
    return format;
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

static void check_names(void) {
    static const struct {
        const char *text, *name;
        int id, bytes, bits, low, high;
    } known[] = {{"tensor:e4m3fn", "tensor:e4m3fn", 0x1041403, 1, 8, -113, 120},
                 {"tensor:e4m3fnsat", "tensor:e4m3fn", 0x1041403, 1, 8, -113, 120},
                 {"tensor:e5m2", "tensor:e5m2", 0x1040502, 1, 8, -112, 112},
                 {"tensor:e5m2sat", "tensor:e5m2", 0x1040502, 1, 8, -112, 112},
                 {"tensor:e3m4", "tensor:e3m4", 0x1040304, 1, 8, -110, 124},
                 {"tensor:e2m1fn", "tensor:e2m1", 0x1040201, 1, 4, -105, 126},
                 {"tensor:e5m10", "tensor:e5m10", 0x104050a, 2, 16, -112, 112},
                 {"tensor:e7m8", "tensor:e7m8", 0x1040708, 2, 16, -64, 64},
                 {"tensor:e7m0", "tensor:e7m0fn", 0x1041700, 1, 8, -64, 64},
                 {"tensor:int8", "dfp8", 0x1020800, 2, 8, -128, 127},
                 {"tensor:int16", "dfp16", FMT_DFP16, 2, 16, -128, 127}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const tensor_format f = find(known[i].text);
        tensor *t = tensor_new((tensor_format)known[i].id, TENSOR_SHAPE(1));
        CHECK(f == (tensor_format)known[i].id && !strcmp(tensor_format_name(f), known[i].name) &&
                  (int)tensor_format_bytes(f) == known[i].bytes && tensor_format_bits(f) == known[i].bits &&
                  tensor_format_is_shared(f) && tensor_format_has_mantissas(f) == (known[i].name[0] == 'd'),
              "%s is %s, 0x%x", known[i].text, tensor_format_name(f), (unsigned)f);
        const struct autoflex *a = t ? tensor_autoflex(t) : NULL;
        CHECK(a && a->e_min == known[i].low && a->e_max == known[i].high, "%s: %d ... %d", known[i].text,
              a ? a->e_min : 0, a ? a->e_max : 0);
        CHECK(a && a->predictor == (known[i].name[0] == 'd' ? AUTOFLEX_CURRENT : AUTOFLEX_DELAYED), "%s",
              known[i].text);
        tensor_free(t);
    }
    static const struct {
        const char *text, *part;
    } wrong[] = {{"tensor:", "character 8 is the end, expected an element"},
                 {"tensor:e8m3", "character 9 is '8m3', expected at most 7 exponent bits"},
                 {"tensor:e9m3", "character 9 is '9m3'"},
                 {"tensor:e4m12", "character 11 is '12', expected a number of fraction bits"},
                 {"tensor:e4m3fn:", "character 14 is ':', expected the end"},
                 {"tensor:e4m3fnx", "character 14 is 'x', expected the end, or the suffix fn"},
                 {"tensor:int3", "character 11 is '3', expected a number of mantissa bits from 4 to 16"},
                 {"tensor:int8x", "character 12 is 'x', expected the end"},
                 {"tensor:flex8+5", "character 8 is 'flex8+5', expected an element"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tensor_format f = FMT_FP32;
        CHECK(tensor_format_find(&f, wrong[i].text) == TENSOR_E_ARGUMENT && f == FMT_FP32 &&
                  strstr(tensor_error(), wrong[i].part),
              "%s: %s", wrong[i].text, tensor_error());
        CHECK(!nn_variant_find(wrong[i].text) && strstr(tensor_error(), "character"), "%s", tensor_error());
    }
    static const int no_ids[] = {0x1040803, 0x1042403, 0x1040403 + 0x2000, 0x1041201, 0x1040700, 0x104040c, 0x1050403};
    for (size_t i = 0; i < sizeof no_ids / sizeof no_ids[0]; i++)
        CHECK(!tensor_format_name((tensor_format)no_ids[i]), "0x%x", (unsigned)no_ids[i]);
    CHECK(tensor_format_extent("tensor:e4m3fn:delayed:margin=1") == 13 && tensor_format_extent("flex16+5:paper") == 8 &&
              tensor_format_extent("tensor:e5m2") == 11 && tensor_format_extent("") == 0,
          "extents");
    const nn_variant *v = nn_variant_find("tensor:e4m3fn"), *sr = nn_variant_find("tensor:e5m10-sr");
    CHECK(v && v->format == find("tensor:e4m3fn") && v->wide && !strcmp(v->predictor, "delayed"), "%s", tensor_error());
    CHECK(sr && sr->format == find("tensor:e5m10") && !sr->wide && sr->stochastic_weights, "%s", tensor_error());
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int exponent_bits, fraction_bits;
    bool fn;
} elements[] = {{"tensor:e4m3fn", 4, 3, true}, {"tensor:e5m2", 5, 2, false},   {"tensor:e4m3", 4, 3, false},
                {"tensor:e3m4", 3, 4, false},  {"tensor:e2m1", 2, 1, false},   {"tensor:e3m2", 3, 2, false},
                {"tensor:e2m3", 2, 3, false},  {"tensor:e6m5", 6, 5, false},   {"tensor:e5m10", 5, 10, false},
                {"tensor:e7m8", 7, 8, false},  {"tensor:e1m6", 1, 6, false},   {"tensor:e6m0", 6, 0, false},
                {"tensor:e7m0", 7, 0, false},  {"tensor:e1m14", 1, 14, false}, {"tensor:e5m10fn", 5, 10, true}};
enum { ELEMENTS = sizeof elements / sizeof elements[0], COUNT = 4096 };

static struct witness witness;
static tensor_format format;
static int e_low, e_high;

static void begin(int i) {
    format = find(elements[i].name);
    witness_make(&witness, elements[i].exponent_bits, elements[i].fraction_bits, elements[i].fn);
    tensor *t = tensor_new(format, TENSOR_SHAPE(1));
    e_low = t ? tensor_autoflex(t)->e_min : 0;
    e_high = t ? tensor_autoflex(t)->e_max : 0;
    tensor_free(t);
}

static int draw_exponent(void) {
    return below(8) == 0 ? e_low : below(8) == 0 ? e_high : e_low + below(e_high - e_low + 1);
}

/* Near a code, at or beside the middle of two, beyond all, or any number; binary32 if `narrow`. */
static double draw_number(int e, bool narrow) {
    const int code = below(witness.codes);
    const long double at = witness.value[code], next = witness.value[code + 1];
    double x = (double)ldexpl(at, -e);
    switch (below(7)) {
    case 0:
        break;
    case 1:
        x = (double)ldexpl((at + next) / 2, -e);
        break;
    case 2:
        x = (double)ldexpl((at + next) / 2, -e);
        x = narrow ? (double)nextafterf((float)x, below(2) ? 0 : INFINITY) : nextafter(x, below(2) ? 0 : INFINITY);
        break;
    case 3:
        x = ldexp((double)check_random(&state), below(400) - 264);
        break;
    case 4: /* about the end */
        x = (double)ldexpl(witness.value[witness.codes - 1] + (next - at), -e) * (1 + (below(1001) - 500) / 4000.0);
        break;
    default:
        x = (double)ldexpl(at + (next - at) * (long double)(check_random(&state) >> 12) * 0x1p-52L, -e);
    }
    x = narrow ? (double)(float)x : x;
    if (narrow && isinf(x))
        x = FLT_MAX;
    return below(2) ? -x : x;
}

static bool same(double a, double b) {
    return a == b ? signbit(a) == signbit(b) : a != a && b != b;
}

/* Every code is read as its value, stored as itself, and is a binary32 at every exponent. */
static void check_codes(const char *name) {
    const int bits = tensor_format_bits(format), all = 1 << bits;
    tensor *x = tensor_new(format, TENSOR_SHAPE(all)), *y = tensor_new(format, TENSOR_SHAPE(all));
    double *v = malloc((size_t)all * sizeof *v);
    for (int code = 0; code < all; code++)
        if (bits <= 8)
            ((uint8_t *)tensor_data(x))[code] = (uint8_t)code;
        else
            ((uint16_t *)tensor_data(x))[code] = (uint16_t)code;
    for (int round = 0; round < 12; round++) {
        const int e = round == 0 ? e_low : round == 1 ? e_high : draw_exponent();
        CHECK(!tensor_declare_exponent(x, e) && !tensor_store_f64(x, v, all), "%s", tensor_error());
        for (int code = 0; code < all; code++) {
            const int size = code & (all / 2 - 1);
            const double want = size < witness.codes ? (double)ldexpl(witness.value[size], -e) : NAN;
            const double signed_want = code < all / 2 ? want : -want;
            const bool infinite = size >= witness.codes && isinf(v[code]); /* of e5m2: nothing writes it */
            CHECK(infinite || (same(v[code], signed_want) && (want != want || (double)(float)want == want)),
                  "%s at %d: code 0x%x is %a, expected %a", name, e, (unsigned)code, v[code], signed_want);
        }
        tensor_stats last;
        CHECK(!tensor_convert_at(y, x, e) && !tensor_statistics(&last, NULL, y) && !tensor_store_f64(y, v, all), "%s",
              tensor_error());
        for (int code = 0; code < all; code++) {
            const int size = code & (all / 2 - 1);
            const double top = (double)ldexpl(witness.value[witness.codes - 1], -e);
            if (size < witness.codes)
                CHECK(same(v[code], (code < all / 2 ? 1 : -1) * (double)ldexpl(witness.value[size], -e)),
                      "%s at %d: 0x%x", name, e, (unsigned)code);
            else
                CHECK(v[code] != v[code] || fabs(v[code]) == top, "%s: an Inf of 0x%x is %a", name, (unsigned)code,
                      v[code]);
        }
    }
    tensor_free(x);
    tensor_free(y);
    free(v);
}

/* Conversions at an exponent, from doubles and from floats by every kernel set, and their statistics. */
static void check_conversions(const char *name, const char *row) {
    static double x[COUNT], y[COUNT];
    static float f[COUNT];
    const int e = draw_exponent(), n = COUNT - below(70);
    const bool narrow = below(3) != 0;
    tensor *from = tensor_new(narrow ? FMT_FP32 : FMT_F64, TENSOR_SHAPE(n)), *to = tensor_new(format, TENSOR_SHAPE(n));
    int64_t saturated = 0, flushed = 0, nonfinite = 0, wrong = 0;
    double maximum = 0;
    for (int i = 0; i < n; i++) {
        x[i] = below(300) ? draw_number(e, narrow) : below(2) ? NAN : below(2) ? INFINITY : -INFINITY;
        f[i] = (float)x[i];
    }
    CHECK(!tensor_set_backend(row), "%s", tensor_error());
    CHECK(!(narrow ? tensor_load_f32(from, f, n) : tensor_load_f64(from, x, n)) && !tensor_convert_at(to, from, e) &&
              !tensor_store_f64(to, y, n) && tensor_exponent(to) == e,
          "%s", tensor_error());
    for (int i = 0; i < n; i++) {
        const struct rounded want = witness_round(&witness, x[i], e);
        const bool finite = isfinite(x[i]);
        const double expected = x[i] != x[i] ? (witness.nan ? NAN : 0) : want.value;
        saturated += x[i] == x[i] && want.saturated;
        flushed += finite && want.flushed;
        nonfinite += !finite;
        maximum = finite && fabs(x[i]) > maximum ? fabs(x[i]) : maximum;
        const bool good = x[i] != x[i] ? y[i] == expected || y[i] != y[i] : same(y[i], expected);
        if (!good && !wrong++)
            printf("%s on %s at %d: %a is %a, expected %a\n", name, row, e, x[i], y[i], expected);
    }
    tensor_stats last;
    CHECK(!wrong && !tensor_statistics(&last, NULL, to), "%s on %s: %lld wrong", name, row, (long long)wrong);
    CHECK(last.saturated == saturated && last.flushed == flushed && last.nonfinite == nonfinite &&
              last.maximum == maximum && last.gamma == 0,
          "%s on %s at %d: saturated %lld of %lld, flushed %lld of %lld, nonfinite %lld of %lld, maximum %a of %a",
          name, row, e, (long long)last.saturated, (long long)saturated, (long long)last.flushed, (long long)flushed,
          (long long)last.nonfinite, (long long)nonfinite, last.maximum, maximum);
    tensor_free(from);
    tensor_free(to);
}

/* The largest exponent at which `maximum` is at most the largest element. */
static int exponent_of(double maximum) {
    int e = e_high;
    while (e > e_low && ldexpl((long double)maximum, e) > witness.value[witness.codes - 1])
        e--;
    return e;
}

/* Loads take their exponent from their own maximum, and store exactly the nearest elements there. */
static void check_loads(const char *name) {
    static double x[COUNT], y[COUNT];
    const int n = 1 + below(500), about = draw_exponent();
    double maximum = 0;
    tensor *t = tensor_new(format, TENSOR_SHAPE(n)), *wide = tensor_new(format, TENSOR_SHAPE(n));
    CHECK(!tensor_keep_wide(wide), "%s", tensor_error());
    for (int i = 0; i < n; i++) {
        x[i] = (double)(float)(below(5) ? draw_number(about, true) * ldexp(1, -below(9)) : 0);
        maximum = fmax(maximum, fabs(x[i]));
    }
    if (!maximum)
        x[0] = maximum = ldexp(1, -about);
    const int e = exponent_of(maximum);
    CHECK(!tensor_load_f64(t, x, n) && tensor_exponent(t) == e && !tensor_store_f64(t, y, n),
          "%s: %d for %a, expected %d", name, tensor_exponent(t), maximum, e);
    for (int i = 0; i < n; i++)
        CHECK(same(y[i], witness_round(&witness, x[i], e).value), "%s at %d: %a is %a", name, e, x[i], y[i]);
    CHECK(!tensor_load_f64(wide, x, n) && tensor_exponent(wide) == e && !tensor_store_f64(wide, y, n), "%s: wide",
          name);
    for (int i = 0; i < n; i++)
        CHECK(same(y[i], witness_round(&witness, x[i], e).value), "%s at %d, wide: %a is %a", name, e, x[i], y[i]);
    CHECK(!tensor_store_wide_f64(wide, y, n) && !memcmp(x, y, (size_t)n * sizeof *x), "%s: wide parts", name);
    const double bad[] = {1, NAN}, infinite[] = {-INFINITY, 1};
    tensor *two = tensor_new(format, TENSOR_SHAPE(2));
    CHECK(tensor_load_f64(two, bad, 2) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "value 1 is nan"), "%s",
          tensor_error());
    CHECK(tensor_load_f64(two, infinite, 2) == TENSOR_E_ARGUMENT && strstr(tensor_error(), name), "%s", tensor_error());
    tensor_free(two);
    tensor_free(t);
    tensor_free(wide);
}

/* --- writes ------------------------------------------------------------------------------------------------------- */

/* y = x * alpha under a predictor, in place or with a wide part or neither: at the exponent that the predictor's state
 * says, which for measuring ones is that of the exact maximum, each element is the rounding of the binary32 product. */
static void check_writes(const char *name, const char *predictor, const char *row, bool measures) {
    enum { WRITES = 12, N = 700 };
    static double x[N], y[N];
    static float z[N];
    tensor *a = tensor_new(format, TENSOR_SHAPE(N)), *out = tensor_new(format, TENSOR_SHAPE(N)), *v = NULL;
    const bool in_place = below(2), wide = below(2) && in_place;
    CHECK(!tensor_set_backend(row) && !tensor_set_predictor(out, predictor), "%s", tensor_error());
    for (int i = 0; i < N; i++)
        x[i] = draw_number(0, true) * 0x1p-6;
    CHECK(!tensor_load_f64(a, x, N) && !tensor_load_f64(out, x, N), "%s", tensor_error());
    if (wide) {
        v = tensor_new(format, TENSOR_SHAPE(N));
        CHECK(!tensor_keep_wide(out) && !tensor_load_f64(out, x, N), "%s", tensor_error());
    }
    for (int write = 0; write < WRITES; write++) {
        const float alpha = ldexpf(1 + (float)below(1 << 10) * 0x1p-10f, below(13) - 6);
        double maximum = 0;
        tensor *from = in_place ? out : a;
        if (wide) { /* w - alpha v */
            CHECK(!tensor_load_f64(v, x, N) && !tensor_store_wide_f64(out, y, N), "%s", tensor_error());
            double held[N];
            CHECK(!tensor_store_f64(v, held, N), "%s", tensor_error());
            for (int i = 0; i < N; i++)
                z[i] = (float)(y[i] - (double)alpha * held[i]);
            CHECK(!tensor_sgd_update(out, v, alpha), "%s", tensor_error());
        } else {
            CHECK(!tensor_store_f64(from, y, N), "%s", tensor_error());
            for (int i = 0; i < N; i++)
                z[i] = (float)y[i] * alpha;
            CHECK(!tensor_scale(out, from, alpha), "%s", tensor_error());
        }
        for (int i = 0; i < N; i++)
            maximum = isinf(z[i]) ? maximum : fmax(maximum, fabs((double)z[i]));
        const int e = tensor_exponent(out);
        int64_t saturated = 0, infinite = 0;
        CHECK(!measures || e == exponent_of(maximum), "%s:%s on %s, write %d: %d, expected %d", name, predictor, row,
              write, e, exponent_of(maximum));
        CHECK(!tensor_store_f64(out, y, N), "%s", tensor_error());
        for (int i = 0; i < N; i++) {
            const struct rounded want = witness_round(&witness, (double)z[i], e);
            saturated += want.saturated;
            infinite += isinf(z[i]) != 0;
            CHECK(same(y[i], want.value), "%s:%s on %s%s%s, write %d, element %d at %d: %a is %a, expected %a", name,
                  predictor, row, in_place ? ", in place" : "", wide ? ", wide" : "", write, i, e, (double)z[i], y[i],
                  want.value);
        }
        tensor_stats last;
        CHECK(!tensor_statistics(&last, NULL, out) && last.saturated == saturated && last.maximum == maximum &&
                  (!measures || saturated == infinite || e == e_low),
              "%s:%s: %lld saturated of %lld, maximum %a of %a", name, predictor, (long long)last.saturated,
              (long long)saturated, last.maximum, maximum);
        if (wide)
            CHECK(!tensor_store_wide_f64(out, y, N), "%s", tensor_error());
        for (int i = 0; wide && i < N; i++)
            CHECK(y[i] == (double)z[i], "%s: wide part %a, expected %a", name, y[i], (double)z[i]);
    }
    tensor_free(a);
    tensor_free(out);
    tensor_free(v);
}

/* Stochastic rounding: each element is one of the two neighbours, and the mean of many is right. */
static void check_draws(void) {
    enum { N = 1 << 14 };
    static double y[N];
    tensor *x = tensor_new(FMT_FP32, TENSOR_SHAPE(N)), *t = tensor_new(find("tensor:e4m3fn"), TENSOR_SHAPE(N)), *s;
    s = tensor_new(find("tensor:e4m3fn"), TENSOR_SHAPE(N));
    for (int round = 0; round < 20; round++) {
        const int e = below(200) - 100;
        const double low = ldexp(8 + below(8), -3 - e), step = ldexp(1, -3 - e), part = (1 + below(9)) / 10.0;
        double sum = 0;
        for (int i = 0; i < N; i++)
            y[i] = low;
        CHECK(!tensor_set_predictor(t, "fixed") && !tensor_set_predictor(s, "fixed") &&
                  !tensor_declare_exponent(s, e) && !tensor_load_f64(s, y, N) &&
                  !tensor_set_rounding(t, TENSOR_ROUND_STOCHASTIC, 7),
              "%s", tensor_error());
        CHECK(!tensor_set_exponent(t, e) && !tensor_scale(t, s, (float)(1 + step * part / low)) &&
                  !tensor_store_f64(t, y, N) && tensor_exponent(t) == e,
              "%s", tensor_error());
        for (int i = 0; i < N; i++) {
            CHECK(y[i] == low || y[i] == low + step, "%a between %a and %a", y[i], low, low + step);
            sum += y[i] == low ? 0 : 1;
        }
        /* six standard deviations of a mean of N draws */
        CHECK(fabs(sum / N - part) < 6 * sqrt(part * (1 - part) / N), "at %d: %g of %g", e, sum / N, part);
    }
    tensor_free(x);
    tensor_free(t);
    tensor_free(s);
}

int main(void) {
    static const char *const rows[] = {"ref", "portable", "avx2", "avx512bw", NULL};
    static const struct {
        const char *name;
        bool measures;
    } predictors[] = {{"current", true},           {"repeat", false},    {"delayed", false},
                      {"delayed:margin=1", false}, {"paper", false},     {"ngraph", false},
                      {"amax-recent", false},      {"per-class", false}, {"fixed", false}};
    check_names();
    for (int i = 0; i < ELEMENTS; i++) {
        begin(i);
        check_codes(elements[i].name);
        for (int k = 0; k < 24; k++)
            check_conversions(elements[i].name, rows[k % 5]);
        for (int k = 0; k < 20; k++)
            check_loads(elements[i].name);
        for (int k = 0; k < 45 && i < 6; k++)
            check_writes(elements[i].name, predictors[k % 9].name, rows[k % 5], predictors[k % 9].measures);
    }
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
    check_draws();
    return check_summary();
}
