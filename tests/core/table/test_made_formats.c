/* test_made_formats.c - formats made from their parameters: their texts and ids, every mantissa both ways, and sums of
 * products against exact integers rounded and saturated once. Of floats the texts, ids and statistics: test_element has
 * their codes, kernels_floats their operations. */
#include "check.h"
#include "flexlab/flexlab.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static int64_t random_below(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(state >> 33) % n;
}

/* x / 2^shift to the nearest integer, ties to even, without a double. */
static int64_t divided(int64_t x, int shift) {
    if (shift <= 0)
        return x * ((int64_t)1 << -shift);
    const int64_t unit = (int64_t)1 << shift, floor = x >> shift, rest = x - floor * unit;
    return 2 * rest > unit || (2 * rest == unit && floor % 2 != 0) ? floor + 1 : floor;
}

static tensor_format find(const char *name) {
    tensor_format format = FMT_NONE;
    CHECK(!tensor_format_find(&format, name), "%s: %s", name, tensor_error());
    return format;
}

/* --- texts and ids
 * ------------------------------------------------------------------------------------------------
 */

static void check_names(void) {
    char name[24];
    for (int bits = 4; bits <= 16; bits++) {
        for (int e = 1; e <= 7; e++) {
            snprintf(name, sizeof name, "flex%d+%d", bits, e);
            const tensor_format format = find(name);
            const bool known = bits == 16 && e == 5;
            CHECK(format == (known ? FMT_FLEX16_5 : (tensor_format)(0x1010000 + 256 * bits + e)), "%s is 0x%x", name,
                  (unsigned)format);
            CHECK(!strcmp(tensor_format_name(format), name), "%s is called %s", name, tensor_format_name(format));
            CHECK(tensor_format_bits(format) == bits && tensor_format_is_shared(format), "%s", name);
            tensor *t = tensor_new(format, TENSOR_SHAPE(1));
            CHECK(t && tensor_autoflex(t)->e_min == 0 && tensor_autoflex(t)->e_max == (1 << e) - 1, "%s", name);
            tensor_free(t);
        }
        snprintf(name, sizeof name, "dfp%d", bits);
        CHECK(find(name) == (bits == 16 ? FMT_DFP16 : (tensor_format)(0x1020000 + 256 * bits)), "%s", name);
    }
    tensor *t = tensor_new((tensor_format)0x1010b03, TENSOR_SHAPE(2)); /* an id alone, never looked up */
    CHECK(t && !strcmp(tensor_format_name(tensor_format_of(t)), "flex11+3"), "%s", tensor_error());
    tensor_free(t);
}

/* Floats: those that are others have their ids, and a text has one canonical name. */
static void check_floats(void) {
    static const struct {
        const char *text, *name;
        int bytes, bits;
    } known[] = {{"e5m10", "fp16", 2, 16},         {"e8m7", "bf16", 2, 16},       {"e8m23", "fp32", 4, 32},
                 {"e4m3fn", "e4m3fn", 1, 8},       {"e5m2", "e5m2", 1, 8},        {"e4m3", "e4m3", 1, 8},
                 {"e4m3fnsat", "e4m3fnsat", 1, 8}, {"e5m2sat", "e5m2sat", 1, 8},  {"e2m1", "e2m1", 1, 4},
                 {"e2m1fn", "e2m1", 1, 4},         {"e3m2sat", "e3m2", 1, 6},     {"e6m5", "e6m5", 2, 12},
                 {"e5m10sat", "e5m10sat", 2, 16},  {"e5m10fn", "e5m10fn", 2, 16}, {"e6m0", "e6m0fn", 1, 7}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const tensor_format f = find(known[i].text), again = find(known[i].name);
        CHECK(f == again && !strcmp(tensor_format_name(f), known[i].name) && !tensor_format_is_shared(f) &&
                  (int)tensor_format_bytes(f) == known[i].bytes && tensor_format_bits(f) == known[i].bits,
              "%s is %s, %d bits", known[i].text, tensor_format_name(f), tensor_format_bits(f));
    }
    tensor *t = tensor_new((tensor_format)0x1031403, TENSOR_SHAPE(3)); /* an id alone, never looked up */
    const double x[3] = {447, 465, -0x1p-10};
    double y[3];
    tensor_stats last;
    CHECK(t && !strcmp(tensor_format_name(tensor_format_of(t)), "e4m3fn") && !tensor_load_f64(t, x, 3) &&
              !tensor_store_f64(t, y, 3) && !tensor_statistics(&last, NULL, t),
          "%s", tensor_error());
    CHECK(y[0] == 448 && isnan(y[1]) && y[2] == 0 && signbit(y[2]), "e4m3fn: %g %g %g", y[0], y[1], y[2]);
    CHECK(last.saturated == 1 && last.nonfinite == 1 && last.flushed == 1 && last.maximum == 465, "statistics");
    tensor_free(t);
    t = tensor_new(find("e4m3fnsat"), TENSOR_SHAPE(3));
    const double z[3] = {1e30, -INFINITY, NAN};
    CHECK(t && !tensor_load_f64(t, z, 3) && !tensor_store_f64(t, y, 3) && !tensor_statistics(&last, NULL, t), "%s",
          tensor_error());
    CHECK(y[0] == 448 && y[1] == -448 && isnan(y[2]), "e4m3fnsat: %g %g %g", y[0], y[1], y[2]);
    CHECK(last.saturated == 2 && last.nonfinite == 2, "statistics of e4m3fnsat: %lld saturated, %lld not finite",
          (long long)last.saturated, (long long)last.nonfinite);
    tensor_free(t);
}

static void check_refusals(void) {
    static const struct {
        const char *text, *part;
    } wrong[] = {{"flex", "character 5 is the end, expected a number of mantissa bits "
                          "from 4 to 16"},
                 {"flex17+5", "character 5 is '17+5'"},
                 {"flex3+5", "character 5 is '3+5'"},
                 {"flex08+5", "character 5 is '08+5'"},
                 {"flex-8+5", "character 5 is '-8+5'"},
                 {"flex8", "character 6 is the end, expected '+' and a number of exponent bits"},
                 {"flex8+", "character 7 is the end, expected a number of exponent bits "
                            "from 1 to 7"},
                 {"flex8+8", "character 7 is '8'"},
                 {"flex8+55", "character 7 is '55'"},
                 {"flex8+5 ", "character 8 is ' ', expected the end"},
                 {"dfp", "character 4 is the end"},
                 {"dfp8+8", "character 5 is '+8', expected the end"},
                 {"e9m3", "character 2 is '9m3', expected a number of exponent bits from 1 to 8"},
                 {"e0m3", "character 2 is '0m3'"},
                 {"e4m20", "character 4 is '20', expected a number of fraction bits from 0 to 11"},
                 {"e4m3fnx", "character 7 is 'x', expected the end, or the suffix"},
                 {"e4m3satfn", "character 8 is 'fn'"},
                 {"e4m", "character 4 is the end"},
                 {"int12", "unknown format 'int12'"},
                 {"", "unknown format ''"}};
    static const int no_ids[] = {0x1010311, 0x1011105, 0x1010808, 0x1010800, 0x1020801, 0x1070805, 0x2010805,
                                 0x1011005, 0x103050a, 0x1030807, 0x1031201, 0x1031807, 0x1030907, 0x1030410};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tensor_format format = FMT_FP32;
        CHECK(tensor_format_find(&format, wrong[i].text) == TENSOR_E_ARGUMENT, "%s", wrong[i].text);
        CHECK(strstr(tensor_error(), wrong[i].part) && format == FMT_FP32, "%s: %s", wrong[i].text, tensor_error());
    }
    for (size_t i = 0; i < sizeof no_ids / sizeof no_ids[0]; i++) {
        CHECK(!tensor_format_name((tensor_format)no_ids[i]), "0x%x", (unsigned)no_ids[i]);
        CHECK(!tensor_new((tensor_format)no_ids[i], TENSOR_SHAPE(1)), "0x%x", (unsigned)no_ids[i]);
    }
}

/* --- numbers
 * ------------------------------------------------------------------------------------------------------
 */

static tensor *fixed(tensor_format format, int e, int64_t rows, int64_t columns) {
    tensor *t = tensor_new(format, TENSOR_SHAPE(rows, columns));
    CHECK(t && !tensor_set_predictor(t, "fixed") && !tensor_declare_exponent(t, e), "%s", tensor_error());
    return t;
}

/* Every mantissa, loaded, is itself again; its multiples by eighths are rounded
 * and saturated once. */
static void check_mantissas(tensor_format format) {
    const int top = (1 << (tensor_format_bits(format) - 1)) - 1;
    const int64_t count = 2 * (int64_t)top + 1;
    double *values = malloc((size_t)count * sizeof *values), *back = malloc((size_t)count * sizeof *back);
    tensor *x = tensor_new(format, TENSOR_SHAPE(count)), *y = tensor_new(format, TENSOR_SHAPE(count));
    CHECK(values && back && x && y, "memory");
    for (int64_t i = 0; i < count; i++)
        values[i] = ldexp((double)(i - top), -5);
    CHECK(!tensor_load_f64(x, values, count) && tensor_exponent(x) == 5 && !tensor_store_f64(x, back, count), "%s",
          tensor_error());
    CHECK(!memcmp(values, back, (size_t)count * sizeof *back), "%s: mantissas changed", tensor_format_name(format));
    CHECK(!tensor_set_predictor(y, "fixed") && !tensor_declare_exponent(y, 5), "%s", tensor_error());
    for (int eighths = -13; eighths <= 13; eighths += 2) {
        tensor_stats last, total;
        CHECK(!tensor_scale(y, x, (float)eighths / 8) && !tensor_store_f64(y, back, count) &&
                  !tensor_statistics(&last, &total, y),
              "%s", tensor_error());
        int64_t saturated = 0, flushed = 0, wrong = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t m = divided((i - top) * eighths, 3);
            saturated += m > top || m < -top;
            flushed += !m && i != top;
            m = m > top ? top : m < -top ? -top : m;
            wrong += back[i] != ldexp((double)m, -5);
        }
        CHECK(!wrong && last.saturated == saturated && last.flushed == flushed && tensor_exponent(y) == 5,
              "%s by %d/8: %lld wrong, %lld saturated of %lld, %lld flushed of %lld", tensor_format_name(format),
              eighths, (long long)wrong, (long long)last.saturated, (long long)saturated, (long long)last.flushed,
              (long long)flushed);
    }
    tensor_free(x);
    tensor_free(y);
    free(values);
    free(back);
}

/* y = x w with mantissas drawn over their whole range, at exponents at which
 * some results saturate. */
static void check_products(tensor_format format, const char *row) {
    const int top = (1 << (tensor_format_bits(format) - 1)) - 1;
    const int64_t m = 1 + random_below(9), k = 1 + random_below(700), n = 1 + random_below(40);
    double *x = malloc((size_t)(m * k) * sizeof *x), *w = malloc((size_t)(k * n) * sizeof *w),
           *y = malloc((size_t)(m * n) * sizeof *y);
    const int ex = (int)random_below(8), ew = (int)random_below(8);
    tensor *a = fixed(format, ex, m, k), *b = fixed(format, ew, k, n);
    for (int64_t i = 0; i < m * k; i++)
        x[i] = ldexp((double)(random_below(2 * top + 1) - top), -ex);
    for (int64_t i = 0; i < k * n; i++)
        w[i] = ldexp((double)(random_below(2 * top + 1) - top), -ew);
    x[0] = ldexp(top, -ex); /* the load then chooses these exponents */
    w[0] = ldexp(top, -ew);
    const int typical = (int)ceil(log2((double)top * sqrt((double)k) / 2)); /* bits beyond those of a result */
    const int ey = ex + ew - typical + (int)random_below(4);
    const int e = ey < 0 ? 0 : ey > 7 ? 7 : ey;
    tensor *c = fixed(format, e, m, n);
    CHECK(!tensor_set_backend(row) && !tensor_load_f64(a, x, m * k), "%s", tensor_error());
    CHECK(!tensor_load_f64(b, w, k * n) && !tensor_matmul(c, a, b) && !tensor_store_f64(c, y, m * n), "%s",
          tensor_error());
    CHECK(tensor_exponent(a) == ex && tensor_exponent(b) == ew && tensor_exponent(c) == e, "exponents moved");
    tensor_stats last, total;
    CHECK(!tensor_statistics(&last, &total, c), "%s", tensor_error());
    int64_t wrong = 0, saturated = 0;
    int gamma = 0;
    for (int64_t i = 0; i < m * n; i++) {
        int64_t sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += (int64_t)ldexp(x[i / n * k + j], ex) * (int64_t)ldexp(w[j * n + i % n], ew);
        int64_t r = divided(sum, ex + ew - e);
        saturated += r > top || r < -top;
        r = r > top ? top : r < -top ? -top : r;
        gamma = llabs(r) > gamma ? (int)llabs(r) : gamma;
        wrong += y[i] != ldexp((double)r, -e);
    }
    CHECK(!wrong && last.saturated == saturated && last.gamma == gamma,
          "%s on %s, %lldx%lldx%lld: %lld wrong, %lld saturated of %lld, gamma "
          "%d of %d",
          tensor_format_name(format), row, (long long)m, (long long)k, (long long)n, (long long)wrong,
          (long long)last.saturated, (long long)saturated, last.gamma, gamma);
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    free(x);
    free(w);
    free(y);
}

/* The margin of "paper" follows the number of bits: where it did not, exponents
 * of 8 bits fell to the end of their range. */
static void check_prediction(void) {
    for (int bits = 5; bits <= 16; bits++) {
        char name[24];
        snprintf(name, sizeof name, "flex%d+5", bits);
        tensor *x = tensor_new(find(name), TENSOR_SHAPE(64)), *y = tensor_new(find(name), TENSOR_SHAPE(64));
        double v[64];
        for (int i = 0; i < 64; i++)
            v[i] = (i - 32) / 32.0;
        CHECK(x && y && !tensor_load_f64(x, v, 64), "%s", tensor_error());
        for (int i = 0; i < 60; i++)
            CHECK(!tensor_add(y, x, x), "%s", tensor_error());
        tensor_stats last, total;
        CHECK(!tensor_statistics(&last, &total, y), "%s", tensor_error());
        const int top = (1 << (bits - 1)) - 1;
        CHECK(last.gamma > top / 5 && !last.saturated, "%s: the largest mantissa is %d of %d, %lld saturated", name,
              last.gamma, top, (long long)last.saturated);
        tensor_free(x);
        tensor_free(y);
    }
}

static void check_variants(void) {
    const nn_variant *v = nn_variant_find("flex12+5"), *sr = nn_variant_find("flex12+5-sr");
    CHECK(v && v->format == find("flex12+5") && v->wide && !v->stochastic_weights, "%s", tensor_error());
    CHECK(sr && sr->format == v->format && !sr->wide && sr->stochastic_weights, "%s", tensor_error());
    CHECK(v == nn_variant_find("flex12+5"), "another one");
    CHECK(!strcmp(v->predictor, "paper") && !strcmp(sr->predictor, "paper") &&
              !strcmp(nn_variant_find("dfp8")->predictor, "current") && !nn_variant_find("e3m4")->predictor,
          "predictors");
    CHECK(!nn_variant_find("flex12+9") && strstr(tensor_error(), "character 8"), "%s", tensor_error());
    CHECK(!nn_variant_find("flex12") && strstr(tensor_error(), "character 7"), "%s", tensor_error());
    CHECK(!nn_variant_find("flex12+5 and a text of more than 24 characters") && strstr(tensor_error(), "character 9"),
          "%s", tensor_error());
    CHECK(!nn_variant_find("fp12") && strstr(tensor_error(), "expected one of"), "%s", tensor_error());
}

int main(void) {
    static const char *const rows[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    static const char *const names[] = {"flex4+4", "flex5+5", "flex8+5", "flex9+3",  "flex12+5", "flex15+5",
                                        "dfp4",    "dfp8",    "dfp10",   "flex16+4", "flex16+5", "dfp15"};
    check_names();
    check_floats();
    tensor_format format = FMT_FP32;
    CHECK(tensor_format_find(&format, "e8m3fn") == TENSOR_E_UNSUPPORTED && strstr(tensor_error(), "binary32"), "%s",
          tensor_error());
    check_refusals();
    check_prediction();
    check_variants();
    for (size_t f = 0; f < sizeof names / sizeof names[0]; f++) {
        check_mantissas(find(names[f]));
        for (int i = 0; i < 60; i++)
            check_products(find(names[f]), rows[i % 6]);
    }
    tensor_set_backend(NULL);
    return check_summary();
}
