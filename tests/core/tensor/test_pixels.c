/* Loads of bytes through a table: kernel sets round the table and look it up, the reference rounds number by
 * number. Elements, exponents, histories, statistics and messages are the same, whatever the table holds and whichever
 * bytes occur. A failure names its case, from which everything else follows: test_pixels CASE runs it alone. */
#include "check.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <string.h>

enum { CASES = 1500, MOST_CHANNELS = 9, MOST = 300000 };

static uint64_t seed;

static int64_t from_to(int64_t low, int64_t high) {
    return low + (int64_t)(check_random(&seed) % (uint64_t)(high - low + 1));
}

static float any_float(void) {
    uint32_t bits = (uint32_t)check_random(&seed);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 256 numbers of a channel: in order or not, ordinary or not. `special`: numbers that are not finite may be among them.
 */
static void fill_table(float *values, bool special) {
    static const float odd[] = {0,     -0.0f, 0x1p-149f, -0x1.8p-130f, 0x1.fffffep127f,
                                65519, 65520, -65536,    0x1p-25f,     0x1p-26f};
    const int kind = (int)from_to(0, 6), scale = (int)(from_to(0, 2) ? from_to(-6, 6) : from_to(-60, 60));
    const double step = (double)from_to(1, 99) / 99, first = (double)from_to(-300, 300) / 2;
    for (int i = 0; i < 256; i++)
        switch (kind) {
        case 0: /* rises */
        case 1: /* falls */
            values[i] = (float)ldexp((first + i) * (kind ? -step : step), scale);
            break;
        case 2: /* rises in stairs, with zeros */
            values[i] = (float)ldexp(i / 50 * 50 - 100, scale);
            break;
        case 3: /* as it comes */
            values[i] = (float)ldexp((double)from_to(-(1 << 24), 1 << 24), scale - 20);
            break;
        case 4: /* quarters around the edge of 16-bit mantissas: some are halves, some saturate */
            values[i] = (float)ldexp((double)from_to(-131072, 131072) / 4, scale);
            break;
        case 5: /* rises, over many powers of two */
            values[i] = (float)ldexp(1 + step, i / 2 - 64 + scale / 2);
            break;
        default: /* anything */
            do
                values[i] = any_float();
            while (!isfinite(values[i]));
        }
    for (int n = (int)from_to(0, 8) - 5; n > 0; n--)
        values[from_to(0, 255)] = odd[from_to(0, 9)];
    if (special && from_to(0, 3) == 0)
        values[from_to(0, 255)] = from_to(0, 2) == 0 ? NAN : from_to(0, 1) ? INFINITY : -INFINITY;
}

struct loaded {
    tensor *t;
    tensor_status status;
    char message[300];
};

static void load(struct loaded *l, const char *backend, tensor_format format, int64_t pixels, int64_t channels,
                 const char *predictor, bool truncates, bool wide, const tensor *bytes, const tensor *table) {
    CHECK(!tensor_set_backend(backend), "%s", tensor_error());
    l->t = tensor_new(format, TENSOR_SHAPE(pixels, channels));
    CHECK(l->t && (!predictor || !tensor_set_predictor(l->t, predictor)), "%s", tensor_error());
    CHECK(!truncates || !tensor_set_rounding(l->t, TENSOR_ROUND_TRUNCATE, 0), "%s", tensor_error());
    CHECK(!wide || !tensor_keep_wide(l->t), "%s", tensor_error());
    l->status = tensor_load_pixels(l->t, bytes, table);
    snprintf(l->message, sizeof l->message, "%s", l->status ? tensor_error() : "");
}

static bool same_state(const tensor *a, const tensor *b) {
    const struct autoflex *x = tensor_autoflex(a), *y = tensor_autoflex(b);
    return x == y || (x && y && !memcmp(x, y, sizeof *x));
}

static void compare(long number, const char *backend, const struct loaded *want, const struct loaded *got) {
    const tensor *a = want->t, *b = got->t;
    const tensor_format format = tensor_format_of(a);
    const size_t bytes = tensor_format_bytes(format);
    const char *x = tensor_const_data(a), *y = tensor_const_data(b);
    int64_t i = 0;
    while (i < tensor_count(a) && !memcmp(x + (size_t)i * bytes, y + (size_t)i * bytes, bytes))
        i++;
    CHECK(i == tensor_count(a), "case %ld, %s %s: element %lld of %lld differs", number, tensor_format_name(format),
          backend, (long long)i, (long long)tensor_count(a));
    tensor_stats s, t;
    CHECK(!tensor_statistics(&s, NULL, a) && !tensor_statistics(&t, NULL, b), "%s", tensor_error());
    CHECK(
        !memcmp(&s, &t, sizeof s),
        "case %ld, %s %s: maximum %a, want %a; gamma %d, %d; saturated %lld, %lld; flushed %lld, %lld; nonfinite %lld, "
        "%lld",
        number, tensor_format_name(format), backend, t.maximum, s.maximum, (int)t.gamma, (int)s.gamma,
        (long long)t.saturated, (long long)s.saturated, (long long)t.flushed, (long long)s.flushed,
        (long long)t.nonfinite, (long long)s.nonfinite);
    CHECK(tensor_exponent(a) == tensor_exponent(b) && same_state(a, b), "case %ld, %s %s: exponent %d, want %d", number,
          tensor_format_name(format), backend, tensor_exponent(b), tensor_exponent(a));
    CHECK(want->status == got->status && !strcmp(want->message, got->message), "case %ld, %s %s: '%s', want '%s'",
          number, tensor_format_name(format), backend, got->message, want->message);
}

/* most: pixels times channels. */
static void one_case(long number, int64_t most) {
    static const tensor_format formats[] = {FMT_FLEX16_5, FMT_DFP16, FMT_FP16, FMT_BF16, FMT_FP32};
    static const char *const predictors[] = {NULL, "paper", "ngraph", "current", "fixed", "repeat"};
    static const char *const backends[] = {"portable", "avx2", "avx512", NULL};
    seed = (uint64_t)number * 0x9e3779b97f4a7c15u;
    const tensor_format format = formats[from_to(0, 4)];
    const bool shared = format == FMT_FLEX16_5 || format == FMT_DFP16;
    const char *predictor = shared ? predictors[from_to(0, 5)] : NULL;
    const bool truncates = format == FMT_BF16 && from_to(0, 1), wide = from_to(0, 15) == 0;
    const int64_t channels = from_to(1, MOST_CHANNELS);
    const int64_t pixels = most ? most / channels : from_to(0, 3) ? from_to(256, 3000) : from_to(1, MOST / channels);
    static float values[MOST_CHANNELS * 256];
    for (int64_t c = 0; c < channels; c++)
        fill_table(values + c * 256, !shared || from_to(0, 7) == 0);
    uint8_t *bytes = malloc((size_t)(pixels * channels));
    const int64_t low = from_to(0, 2) ? 0 : from_to(0, 255), high = low ? from_to(low, 255) : 255;
    for (int64_t i = 0; i < pixels * channels; i++)
        bytes[i] = (uint8_t)from_to(low, high);
    tensor *u8 = tensor_new(FMT_U8, TENSOR_SHAPE(pixels, channels)),
           *table = tensor_new(FMT_F32, TENSOR_SHAPE(channels, 256));
    CHECK(!tensor_load_u8(u8, bytes, pixels * channels) && !tensor_load_f32(table, values, channels * 256), "%s",
          tensor_error());
    struct loaded want, got;
    load(&want, "ref", format, pixels, channels, predictor, truncates, wide, u8, table);
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        CHECK(!tensor_set_threads((int)from_to(1, 4)), "%s", tensor_error());
        load(&got, backends[i], format, pixels, channels, predictor, truncates, wide, u8, table);
        compare(number, backends[i] ? backends[i] : "best", &want, &got);
        tensor_free(got.t);
    }
    tensor_free(want.t);
    tensor_free(u8);
    tensor_free(table);
    free(bytes);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        one_case(atol(argv[1]), 0);
        return check_summary();
    }
    for (long number = 0; number < CASES; number++)
        one_case(number, 0);
    for (long number = CASES; number < CASES + 6; number++)
        one_case(number, 9 << 20); /* written around the caches */
    return check_summary();
}
