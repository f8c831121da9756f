/* Conversions of fp16 and bf16: every word, every midpoint, a sweep of floats through every kernel set, and well-known
 * facts about these formats. test_conversion_long.c sweeps all floats. */
#include "conversion.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"

static const struct small_format *const formats[] = {&small_fp16, &small_bf16};

static uint16_t from_double(const struct small_format *f, double x, bool op_result, struct fl_stats *stats) {
    uint16_t word = 0xdead;
    const struct fl_view out = {&word, NULL, 0, 1};
    const struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    fl_format_of(f->id)->encode(fl_format_of(f->id), &out, 0, 1, &x, op_result, &nearest, stats);
    return word;
}

/* Each word through double, through float, and through load and store of every kernel set (neg flips its sign). */
static void round_trips(const struct small_format *f) {
    const struct fl_format *format = fl_format_of(f->id);
    enum { WORDS = 1 << 16 };
    uint16_t *words = fl_alloc(WORDS * sizeof *words), *back = fl_alloc(WORDS * sizeof *back);
    double *values = fl_alloc(WORDS * sizeof *values), *sums = fl_alloc(2 * WORDS * sizeof *sums);
    for (int w = 0; w < WORDS; w++)
        words[w] = (uint16_t)w;
    const struct fl_view view = {words, NULL, 0, WORDS}, out = {back, NULL, 0, WORDS};
    const uint16_t quiet = (uint16_t)(1u << (f->precision - 2));
    format->decode(format, &view, 0, WORDS, values);
    for (int w = 0; w < WORDS; w++) {
        if (is_nan_word(f, words[w])) {
            CHECK(values[w] != values[w], "%s 0x%04x is NaN, decoded %a", format->name, w, values[w]);
            continue;
        }
        const double want = oracle_value(f, words[w]);
        CHECK(values[w] == want && signbit(values[w]) == signbit(want), "%s 0x%04x decoded %a want %a", format->name, w,
              values[w], want);
        struct fl_stats stats = {0};
        CHECK(from_double(f, want, false, &stats) == w && from_double(f, want, true, &stats) == w,
              "%s %a encoded 0x%04x want 0x%04x", format->name, want, from_double(f, want, false, &stats), w);
        CHECK(stats.maximum == fabs(want) && !stats.saturated && !stats.flushed, "%s %a: statistics of an exact value",
              format->name, want);
    }
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        struct fl_stats stats = {0};
        struct fl_args args = {.op = FL_OP_NEG, .format = format, .out = out, .in = {view}, .stats = &stats};
        fl_kernel neg = fl_kernel_select(format, FL_OP_NEG, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        CHECK(neg(&args) == TENSOR_OK, "%s.neg: %s", format->name, tensor_error());
        for (int w = 0; w < WORDS; w++) {
            const uint16_t want = words[w] ^ 0x8000 ^ (is_nan_word(f, words[w]) ? ~words[w] & quiet : 0);
            CHECK(back[w] == want, "%s.neg.%s 0x%04x got 0x%04x want 0x%04x", format->name,
                  fl_backend_name((enum fl_backend)backend), w, back[w], want);
        }
        args = (struct fl_args){.op = FL_OP_CHANNEL_SUMS,
                                .format = format,
                                .in = {view},
                                .p.batch_norm = {.m = 1, .n = WORDS, .sums = {.f = {sums, sums + WORDS}}},
                                .stats = &stats};
        CHECK(fl_kernel_select(format, FL_OP_CHANNEL_SUMS, (enum fl_backend)backend, NULL)(&args) == TENSOR_OK,
              "%s.channel_sums: %s", format->name, tensor_error());
        for (int w = 0; w < WORDS; w++)
            CHECK(is_nan_word(f, words[w]) ? sums[w] != sums[w] : sums[w] == oracle_value(f, words[w]),
                  "%s.channel_sums.%s 0x%04x loaded as %a", format->name, fl_backend_name((enum fl_backend)backend), w,
                  sums[w]);
    }
    fl_free(words);
    fl_free(back);
    fl_free(values);
    fl_free(sums);
}

/* Between neighbours: the midpoint rounds to the even one, anything beyond it to the nearer one, from double directly
 * and from binary32 in every kernel set. */
static void midpoints(const struct small_format *f) {
    struct converter rows[FL_BACKENDS];
    bool present[FL_BACKENDS] = {false};
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++)
        present[backend] = converter_new(&rows[backend], f->id, (enum fl_backend)backend);
    const char *name = fl_format_of(f->id)->name;
    float *x = fl_alloc(3 * CONVERSIONS / 2 * sizeof *x);
    uint16_t *want = fl_alloc(3 * CONVERSIONS / 2 * sizeof *want);
    int64_t n = 0;
    double largest_error = 0;
    for (uint16_t low = 0; low < f->infinity; low++) {
        const uint16_t high = low + 1, even = low % 2 ? high : low;
        const double a = oracle_value(f, low);
        /* Inf is at the place of the next number */
        const double b = high < f->infinity ? oracle_value(f, high) : 2 * a - oracle_value(f, low - 1);
        const double middle = (a + b) / 2;
        const double near[3] = {nextafter(middle, 0), middle, nextafter(middle, INFINITY)};
        const uint16_t to[3] = {low, even, high};
        for (int i = 0; i < 3; i++)
            for (int negative = 0; negative < 2; negative++) {
                struct fl_stats stats = {0};
                const uint16_t word = from_double(f, negative ? -near[i] : near[i], false, &stats);
                const uint16_t expected = (uint16_t)(to[i] | negative << 15);
                CHECK(word == expected, "%s from double %a got 0x%04x want 0x%04x", name, near[i], word, expected);
                CHECK(stats.maximum == near[i] && stats.saturated == (to[i] == f->infinity) &&
                          stats.nonfinite == stats.saturated && stats.flushed == (to[i] == 0 && near[i] > 0),
                      "%s from double %a: statistics", name, near[i]);
            }
        if (to[1] < f->infinity)
            largest_error = fmax(largest_error, fabs(middle - oracle_value(f, to[1])));
        const float middle_float = (float)middle;
        CHECK((double)middle_float == middle, "%s midpoint %a is no binary32", name, middle);
        const float floats[3] = {nextafterf(middle_float, 0), middle_float, nextafterf(middle_float, INFINITY)};
        for (int i = 0; i < 3; i++, n++) {
            x[n] = low & 4 ? -floats[i] : floats[i];
            want[n] = (uint16_t)(to[i] | (low & 4 ? 0x8000 : 0));
        }
    }
    CHECK(f->id != FMT_FP16 || largest_error == 16, "fp16: largest error below overflow is %g, want 16", largest_error);
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++) {
        if (!present[backend])
            continue;
        for (int64_t first = 0; first < n; first += CONVERSIONS) {
            const int64_t count = n - first < CONVERSIONS ? n - first : CONVERSIONS;
            memcpy(rows[backend].b, x + first, (size_t)count * sizeof *x);
            convert(&rows[backend], count, false);
            for (int64_t i = 0; i < count; i++)
                CHECK(rows[backend].y[i] == want[first + i], "%s.%s from float %a got 0x%04x want 0x%04x", name,
                      fl_backend_name((enum fl_backend)backend), (double)x[first + i], rows[backend].y[i],
                      want[first + i]);
        }
        converter_free(&rows[backend]);
    }
    fl_free(x);
    fl_free(want);
}

/* --- facts, through the public functions --- */

static double loaded(tensor_format format, double x) {
    tensor *t = tensor_new(format, TENSOR_SHAPE(1));
    CHECK(t && tensor_load_f64(t, &x, 1) == TENSOR_OK && tensor_store_f64(t, &x, 1) == TENSOR_OK, "%s", tensor_error());
    tensor_free(t);
    return x;
}

static double added(tensor_format format, double a, double b) {
    tensor *ta = tensor_new(format, TENSOR_SHAPE(1)), *tb = tensor_new(format, TENSOR_SHAPE(1));
    double y = NAN;
    CHECK(ta && tb && !tensor_load_f64(ta, &a, 1) && !tensor_load_f64(tb, &b, 1) && !tensor_add(ta, ta, tb) &&
              !tensor_store_f64(ta, &y, 1),
          "%s", tensor_error());
    tensor_free(ta);
    tensor_free(tb);
    return y;
}

static void loads_as(tensor_format format, double x, double want) {
    const double got = loaded(format, x);
    CHECK(got == want, "%s %a loads as %a, want %a", tensor_format_name(format), x, got, want);
}

static void facts(void) {
    /* Liu 2018, "Training neural networks with mixed precision" (slides): the limits of binary16 */
    loads_as(FMT_FP16, 0x1p-25, 0);
    loads_as(FMT_FP16, 0x1.000001p-25, 0x1p-24);
    loads_as(FMT_FP16, 65504, 65504);
    loads_as(FMT_FP16, 65519.999, 65504);
    loads_as(FMT_FP16, 65520, INFINITY);
    loads_as(FMT_FP16, -65520, -INFINITY);
    CHECK(added(FMT_FP16, 0x1p-3, 0x1p-14) == 0x1p-3, "fp16: 2^-3 + 2^-14 is %a", added(FMT_FP16, 0x1p-3, 0x1p-14));
    CHECK(added(FMT_FP32, 0x1p-3, 0x1p-14) != 0x1p-3, "fp32: 2^-3 + 2^-14 is 2^-3");
    loads_as(FMT_BF16, 0x1.fep127, 0x1.fep127);
    loads_as(FMT_BF16, 0x1.fefp127, 0x1.fep127);
    loads_as(FMT_BF16, 0x1.ffp127, INFINITY);
    loads_as(FMT_BF16, 1e300, INFINITY);
    /* epsilon: the step above 1, half of which is lost when added to 1; the range: smallest and largest number */
    static const struct {
        tensor_format format;
        double epsilon, smallest, largest;
    } known[] = {{FMT_FP32, 0x1p-23, 0x1p-149, 0x1.fffffep127},
                 {FMT_FP16, 0x1p-10, 0x1p-24, 65504},
                 {FMT_BF16, 0x1p-7, 0x1p-133, 0x1.fep127}};
    for (int i = 0; i < 3; i++) {
        const tensor_format f = known[i].format;
        const double epsilon = known[i].epsilon;
        CHECK(added(f, 1, epsilon) == 1 + epsilon, "%s: 1 + epsilon is lost", tensor_format_name(f));
        CHECK(added(f, 1, epsilon / 2) == 1, "%s: 1 + epsilon / 2 is kept", tensor_format_name(f));
        loads_as(f, known[i].smallest, known[i].smallest);
        loads_as(f, known[i].smallest / 2, 0);
        loads_as(f, known[i].largest, known[i].largest);
        loads_as(f, known[i].largest * (1 + epsilon / 4), known[i].largest);
        loads_as(f, known[i].largest * (1 + epsilon / 2), INFINITY);
    }
    /* a load rounds once: rounded to binary32 first, this would be half way and go to 1 */
    loads_as(FMT_FP16, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-10);
    loads_as(FMT_BF16, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-7);
    struct fl_stats stats = {0};
    CHECK(from_double(&small_fp16, 1 + 0x1p-11 + 0x1p-40, true, &stats) == 0x3c00,
          "fp16: an operation's result is binary32 first");
}

static void truncation(void) {
    tensor *t = tensor_new(FMT_BF16, TENSOR_SHAPE(6));
    const double x[6] = {1 + 0x1.fp-7, -1 - 0x1.fp-7, 0x1.fp-134, 1e300, -INFINITY, 0x1.8p-133};
    const double want[6] = {1 + 0x1p-7, -1 - 0x1p-7, 0, 0x1.fep127, -INFINITY, 0x1p-133};
    double y[6] = {0};
    tensor_stats last = {0};
    CHECK(t && !tensor_set_rounding(t, TENSOR_ROUND_TRUNCATE, 0) && !tensor_load_f64(t, x, 6) &&
              !tensor_store_f64(t, y, 6) && !tensor_statistics(&last, NULL, t),
          "%s", tensor_error());
    for (int i = 0; i < 6; i++)
        CHECK(y[i] == want[i], "bf16 truncates %a to %a, want %a", x[i], y[i], want[i]);
    CHECK(last.saturated == 0 && last.flushed == 1 && last.nonfinite == 1,
          "bf16 truncation: saturated %lld flushed %lld", (long long)last.saturated, (long long)last.flushed);
    tensor_free(t);
    t = tensor_new(FMT_FP16, TENSOR_SHAPE(1));
    CHECK(tensor_set_rounding(t, TENSOR_ROUND_TRUNCATE, 0) == TENSOR_E_FORMAT, "fp16 accepts truncation");
    tensor_free(t);
}

/* Micikevicius et al. 2018: an update below 2^-11 of the weight is lost in fp16, but not with a binary32 master. */
static void lost_updates(void) {
    for (int wide = 0; wide < 2; wide++) {
        tensor *w = tensor_new(FMT_FP16, TENSOR_SHAPE(1)), *v = tensor_new(FMT_FP16, TENSOR_SHAPE(1));
        const float one = 1;
        double y = NAN;
        tensor_status status = tensor_load_f32(w, &one, 1) | tensor_load_f32(v, &one, 1);
        if (wide)
            status |= tensor_keep_wide(w);
        for (int step = 0; step < 64; step++)
            status |= tensor_sgd_update(w, v, 0x1p-13f);
        status |= tensor_store_f64(w, &y, 1);
        const double want = wide ? 1 - 0x1p-7 : 1;
        CHECK(!status && y == want, "fp16 weight %s master after 64 updates of 2^-13: %a, want %a",
              wide ? "with" : "without", y, want);
        tensor_free(w);
        tensor_free(v);
    }
}

int main(void) {
    tensor_set_threads(1); /* short calls, many of them */
    for (int i = 0; i < 2; i++) {
        round_trips(formats[i]);
        midpoints(formats[i]);
        sweep_floats(formats[i], 0, 251, false);
    }
    sweep_floats(&small_bf16, 0, 251, true);
    facts();
    truncation();
    lost_updates();
    return check_summary();
}
