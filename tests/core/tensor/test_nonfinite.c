/* NaN and Inf written to tensors with a shared exponent, which can represent neither: by conversions, gradients of
 * losses, products and their addends, real functions, ratios of optimisers. Each write is made twice, with elements
 * that are not finite and with ordinary ones at their positions: exponent, history, maximum, Gamma and every other
 * element are those of the second, under every predictor; NaN is stored as 0, Inf as the largest mantissa; both are
 * counted as nonfinite, Inf as saturated, too. So the next writes are the same as well. Loads refuse such numbers.
 *
 *     test_nonfinite [DEVICE]        the device of the tensors: cpu */
#include "check.h"
#include "core/values/tensor_state.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

enum { TOP = 32767, WIDE_TOP = 0x7fff7fff, MOST = 70000 };
enum kind { PLAIN, PLUS, MINUS, NO_NUMBER, KINDS };

static tensor_device *device; /* NULL: the host */
static const char *on_row;    /* the kernel set, for messages */

/* --- ways in: element i of y becomes v[i] or something like it, or by kind[i] Inf, -Inf, NaN ---------------------- */

static tensor *new_tensor(tensor_format format, int64_t rows, int64_t columns) {
    const int64_t shape[] = {rows, columns};
    tensor *t = device ? tensor_new_in(device, format, 2, shape) : tensor_new(format, 2, shape);
    CHECK(t, "%s", tensor_error());
    return t;
}

static tensor *loaded(tensor_format format, int64_t rows, int64_t columns, const double *values) {
    tensor *t = new_tensor(format, rows, columns);
    CHECK(!tensor_load_f64(t, values, rows * columns), "%s", tensor_error());
    return t;
}

/* Makes an operand at a given exponent, whatever its elements are. */
static tensor *at_exponent(tensor_format format, int64_t rows, const double *values, int e) {
    const int64_t shape[] = {rows, 1};
    tensor *x = tensor_new(FMT_FP32, 2, shape), *here = tensor_new(format, 2, shape);
    CHECK(!tensor_load_f64(x, values, rows) && !tensor_convert_at(here, x, e), "%s", tensor_error());
    tensor_free(x);
    if (!device)
        return here;
    tensor *there = new_tensor(format, rows, 1);
    CHECK(!tensor_copy(there, here), "%s", tensor_error());
    tensor_free(here);
    return there;
}

static tensor_format format_of(const tensor *t) {
    return tensor_format_of(t);
}

static double special(enum kind kind, double v) {
    return kind == PLUS ? INFINITY : kind == MINUS ? -INFINITY : kind == NO_NUMBER ? NAN : v;
}

static double numbers[MOST], others[MOST];

static void set_numbers(const double *v, const enum kind *kind, int n) {
    for (int i = 0; i < n; i++)
        numbers[i] = special(kind[i], v[i]);
}

static void convert(tensor *y, const double *v, const enum kind *kind, int n) {
    set_numbers(v, kind, n);
    tensor *x = loaded(FMT_FP32, n, 1, numbers);
    CHECK(!tensor_rewrite(y, x), "%s", tensor_error());
    tensor_free(x);
}

static void convert_halves(tensor *y, const double *v, const enum kind *kind, int n) {
    set_numbers(v, kind, n);
    tensor *x = loaded(FMT_FP16, n, 1, numbers);
    CHECK(!tensor_rewrite(y, x), "%s", tensor_error());
    tensor_free(x);
}

static void convert_at(tensor *y, const double *v, const enum kind *kind, int n) {
    set_numbers(v, kind, n);
    tensor *x = loaded(FMT_FP32, n, 1, numbers);
    CHECK(!tensor_convert_at(y, x, 11), "%s", tensor_error());
    tensor_free(x);
}

/* d = 0 - target, 2 d / n its gradient. */
static void lose(tensor *y, const double *v, const enum kind *kind, int n) {
    set_numbers(v, kind, n);
    for (int i = 0; i < n; i++)
        numbers[i] *= -(double)n;
    memset(others, 0, (size_t)n * sizeof *others);
    tensor *x = loaded(format_of(y), n, 1, others), *targets = loaded(FMT_F64, n, 1, numbers),
           *loss = new_tensor(FMT_F64, 1, 1);
    CHECK(!tensor_squared_error(loss, y, x, targets, &(tensor_loss_options){.gradient_scale = 0.5}), "%s",
          tensor_error());
    tensor_free(x);
    tensor_free(targets);
    tensor_free(loss);
}

static void multiply(tensor_format format, tensor *y, const double *v, const enum kind *kind, int n) {
    const double one = 1;
    set_numbers(v, kind, n);
    tensor *a = loaded(format, n, 1, numbers), *b = loaded(format, 1, 1, &one);
    CHECK(!tensor_matmul(y, a, b), "%s", tensor_error());
    tensor_free(a);
    tensor_free(b);
}

static void multiply_floats(tensor *y, const double *v, const enum kind *kind, int n) {
    multiply(FMT_FP32, y, v, kind, n);
}

static void multiply_short(tensor *y, const double *v, const enum kind *kind, int n) {
    multiply(FMT_BF16, y, v, kind, n);
}

/* A residual joins sums of products: of shared exponents exactly, of floats in binary32. */
static void join(tensor_format format, tensor *y, const double *v, const enum kind *kind, int n) {
    const double one = 1;
    memset(others, 0, (size_t)n * sizeof *others);
    set_numbers(v, kind, n);
    tensor *a = loaded(format, n, 1, others), *b = loaded(format, 1, 1, &one), *r = loaded(FMT_FP32, n, 1, numbers);
    CHECK(!tensor_matmul_fused(y, a, b, &(tensor_epilogue){.residual = r}), "%s", tensor_error());
    tensor_free(a);
    tensor_free(b);
    tensor_free(r);
}

static void join_integers(tensor *y, const double *v, const enum kind *kind, int n) {
    join(FMT_DFP16, y, v, kind, n);
}

static void join_floats(tensor *y, const double *v, const enum kind *kind, int n) {
    join(FMT_FP16, y, v, kind, n);
}

static void logarithm(tensor *y, const double *v, const enum kind *kind, int n) {
    for (int i = 0; i < n; i++)
        numbers[i] = kind[i] == MINUS ? 0 : kind[i] == NO_NUMBER ? -1 : 1 + fabs(v[i]);
    tensor *x = loaded(format_of(y), n, 1, numbers);
    CHECK(!tensor_log(y, x), "%s", tensor_error());
    tensor_free(x);
}

static void reciprocal(tensor *y, const double *v, const enum kind *kind, int n) {
    for (int i = 0; i < n; i++)
        numbers[i] = kind[i] == PLUS ? 0 : v[i] < 0 ? v[i] - 1 : v[i] + 1;
    tensor *x = loaded(format_of(y), n, 1, numbers);
    CHECK(!tensor_reciprocal(y, x), "%s", tensor_error());
    tensor_free(x);
}

static void inverse_tangent(tensor *y, const double *v, const enum kind *kind, int n) {
    for (int i = 0; i < n; i++)
        numbers[i] = kind[i] == PLUS ? 1 : kind[i] == MINUS ? -1 : kind[i] == NO_NUMBER ? 1.5 : v[i] / 64;
    tensor *x = at_exponent(format_of(y), n, numbers, 14);
    CHECK(!tensor_atanh(y, x), "%s", tensor_error());
    tensor_free(x);
}

/* dy / x */
static void slope(tensor *y, const double *v, const enum kind *kind, int n) {
    for (int i = 0; i < n; i++) {
        numbers[i] = kind[i] == PLUS ? 1 : kind[i] == MINUS ? -1 : kind[i] == NO_NUMBER ? 0 : v[i];
        others[i] = kind[i] == PLAIN;
    }
    tensor *dy = loaded(format_of(y), n, 1, numbers), *x = loaded(format_of(y), n, 1, others);
    CHECK(!tensor_log_grad(y, dy, x), "%s", tensor_error());
    tensor_free(dy);
    tensor_free(x);
}

/* Rows of one element: dy - exp(y) dy, exp(y) being 0 or Inf. */
static void log_softmax_slope(tensor *y, const double *v, const enum kind *kind, int n) {
    for (int i = 0; i < n; i++) {
        numbers[i] = kind[i] == PLUS ? -1 : kind[i] == MINUS ? 1 : kind[i] == NO_NUMBER ? 0 : v[i];
        others[i] = kind[i] == PLAIN ? -1000 : 1000;
    }
    tensor *dy = loaded(format_of(y), n, 1, numbers), *of = loaded(format_of(y), n, 1, others);
    CHECK(!tensor_log_softmax_grad(y, dy, of, 1), "%s", tensor_error());
    tensor_free(dy);
    tensor_free(of);
}

/* w + m / (0 r + 0) */
static void divide(tensor *y, const tensor *w, const enum kind *kind, int n) {
    const double factors[] = {1, 1, 0, 0}, half = 0.5;
    for (int i = 0; i < n; i++) {
        numbers[i] = kind[i] == PLUS ? 1 : kind[i] == MINUS ? -1 : 0;
        others[i] = half;
    }
    tensor *m = loaded(format_of(y), n, 1, numbers), *r = loaded(format_of(y), n, 1, others),
           *f = loaded(FMT_F64, 1, 4, factors);
    CHECK(!tensor_keep_wide(r) && !tensor_add_ratio(y, w, m, r, f, 0), "%s", tensor_error());
    tensor_free(m);
    tensor_free(r);
    tensor_free(f);
}

static void ratio(tensor *y, const double *v, const enum kind *kind, int n) {
    tensor *w = loaded(format_of(y), n, 1, v);
    divide(y, w, kind, n);
    tensor_free(w);
}

static void ratio_in_place(tensor *y, const double *v, const enum kind *kind, int n) {
    (void)v;
    divide(y, y, kind, n);
}

#define BIT(kind) (1u << (kind))
static const struct way {
    const char *name;
    void (*write)(tensor *y, const double *v, const enum kind *kind, int n);
    unsigned kinds;
    bool host, wide, in_place;
} ways[] = {
    {"a conversion", convert, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), false, false, false},
    {"a conversion from fp16", convert_halves, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), false, false, false},
    {"a conversion with a wide part", convert, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), false, true, false},
    {"convert_at", convert_at, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), true, false, false},
    {"squared_error", lose, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), false, false, false},
    {"matmul of fp32", multiply_floats, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), true, false, false},
    {"matmul of bf16", multiply_short, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), true, false, false},
    {"a residual to exact sums", join_integers, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), true, false, false},
    {"a residual to sums of floats", join_floats, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), true, false, false},
    {"log", logarithm, BIT(MINUS) | BIT(NO_NUMBER), false, false, false},
    {"reciprocal", reciprocal, BIT(PLUS), false, false, false},
    {"atanh", inverse_tangent, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), false, false, false},
    {"log_grad", slope, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), false, false, false},
    {"log_softmax_grad", log_softmax_slope, BIT(PLUS) | BIT(MINUS) | BIT(NO_NUMBER), false, false, false},
    {"add_ratio", ratio, BIT(PLUS) | BIT(MINUS), false, false, false},
    {"add_ratio in place", ratio_in_place, BIT(PLUS) | BIT(MINUS), false, false, true},
    {"add_ratio with a wide part", ratio_in_place, BIT(PLUS) | BIT(MINUS), false, true, true},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* --- a write beside the one without them -------------------------------------------------------------------------- */

struct scene {
    const struct way *way;
    const char *predictor;
    tensor_format format;
    tensor_rounding rounding;
    int n, bad_at;         /* the write that has them */
    const enum kind *kind; /* of each element in that write */
};

static const char *text(const struct scene *s) {
    static char line[200];
    snprintf(line, sizeof line, "%s, %s, %s, %s, rounding %d, %d elements, write %d", s->way->name,
             tensor_format_name(s->format), s->predictor, on_row, (int)s->rounding, s->n, s->bad_at);
    return line;
}

static tensor *output(const struct scene *s) {
    tensor *t = new_tensor(s->format, s->n, 1);
    CHECK(!tensor_set_predictor(t, s->predictor) && !tensor_set_rounding(t, s->rounding, 7) &&
              (!s->way->wide || !tensor_keep_wide(t)),
          "%s", tensor_error());
    return t;
}

/* The largest values are at a few elements that are finite in every write; the elements that are not finite in some
 * have 0.25. */
static void draw(double *v, const struct scene *s, int write, uint64_t *seed) {
    const double size = ldexp(1 + (double)(check_random(seed) % 64) / 64, write % 3);
    for (int i = 0; i < s->n; i++)
        v[i] = ldexp((double)(check_random(seed) % 4097) - 2048, -12) * size;
    for (int i = 0; i < s->n; i++)
        if (s->kind[i] != PLAIN)
            v[i] = 0.25 * size;
    v[s->n / 2] = size;
}

static void compare_values(const struct scene *s, const tensor *y, const tensor *twin, bool bad) {
    static double got[MOST], want[MOST], wide[MOST];
    const double unit = ldexp(1, -tensor_exponent(y));
    CHECK(!tensor_store_f64(y, got, s->n) && !tensor_store_f64(twin, want, s->n) &&
              !tensor_store_wide_f64(y, wide, s->n),
          "%s", tensor_error());
    int wrong = -1, wrong_wide = -1;
    for (int i = s->n - 1; i >= 0; i--) {
        const enum kind kind = bad ? s->kind[i] : PLAIN;
        const double sign = kind == PLUS ? 1 : kind == MINUS ? -1 : 0;
        if (kind != PLAIN)
            want[i] = sign * TOP * unit;
        const double beyond = s->way->in_place ? sign * WIDE_TOP * unit / 65536 : want[i];
        if (got[i] != want[i])
            wrong = i;
        if (s->way->wide && kind != PLAIN && wide[i] != beyond)
            wrong_wide = i;
    }
    CHECK(wrong < 0, "%s: element %d is %g, expected %g", text(s), wrong, got[wrong], want[wrong]);
    CHECK(wrong_wide < 0, "%s: wide element %d is %a", text(s), wrong_wide, wide[wrong_wide]);
}

static void compare_writes(const struct scene *s, const tensor *y, const tensor *twin, bool bad) {
    tensor_stats last, all, want, want_all;
    int64_t infinite = 0, none = 0;
    for (int i = 0; i < s->n && bad; i++) {
        infinite += s->kind[i] == PLUS || s->kind[i] == MINUS;
        none += s->kind[i] == NO_NUMBER;
    }
    CHECK(!tensor_statistics(&last, &all, y) && !tensor_statistics(&want, &want_all, twin), "%s", tensor_error());
    CHECK(want.nonfinite == 0 && isfinite(want.maximum), "%s: the other write has them too", text(s));
    CHECK(last.saturated == want.saturated + infinite && last.nonfinite == infinite + none &&
              last.flushed == want.flushed,
          "%s: %lld saturated, %lld nonfinite, %lld flushed; %lld, 0, %lld without %lld Inf and %lld NaN", text(s),
          (long long)last.saturated, (long long)last.nonfinite, (long long)last.flushed, (long long)want.saturated,
          (long long)want.flushed, (long long)infinite, (long long)none);
    CHECK(last.maximum == want.maximum && last.gamma == want.gamma && all.maximum == want_all.maximum &&
              all.gamma == want_all.gamma,
          "%s: maximum %g and Gamma %d, %g and %d without", text(s), last.maximum, last.gamma, want.maximum,
          want.gamma);
    const struct autoflex *a = tensor_autoflex(y);
    const struct autoflex state = *a;
    a = tensor_autoflex(twin);
    CHECK(!memcmp(&state, a, sizeof state) && tensor_exponent(y) == tensor_exponent(twin),
          "%s: exponent %d and %d maxima, %d and %d without", text(s), tensor_exponent(y), state.count,
          tensor_exponent(twin), a->count);
}

enum { WRITES = 6 };

static void play(const struct scene *s) {
    static double v[MOST];
    static const enum kind plain[MOST] = {PLAIN};
    tensor *y = output(s), *twin = output(s);
    uint64_t seed = (uint64_t)s->n;
    for (int write = 0; write < WRITES; write++) {
        const bool bad = write == s->bad_at;
        draw(v, s, write, &seed);
        if (bad) {
            s->way->write(y, v, s->kind, s->n);
            s->way->write(twin, v, plain, s->n);
        } else {
            convert(y, v, plain, s->n);
            convert(twin, v, plain, s->n);
        }
        compare_writes(s, y, twin, bad);
        compare_values(s, y, twin, bad);
    }
    tensor_free(y);
    tensor_free(twin);
}

/* A write of only such numbers has the effect of zeros. */
static void play_nothing_else(struct scene s) {
    static const double zeros[MOST] = {0};
    enum kind kind[5];
    static const enum kind plain[5] = {PLAIN};
    s.n = 5;
    s.kind = kind;
    for (int i = 0; i < s.n; i++)
        kind[i] = PLUS + i % 3;
    tensor *y = output(&s), *twin = output(&s);
    const double v[] = {1, 2, 3, -4, 5};
    for (int write = 0; write < 3; write++) {
        const bool bad = write == s.bad_at;
        void (*const way)(tensor *, const double *, const enum kind *, int) = bad ? s.way->write : convert;
        way(y, bad ? zeros : v, bad ? kind : plain, s.n);
        way(twin, bad ? zeros : v, plain, s.n);
        compare_writes(&s, y, twin, bad);
        compare_values(&s, y, twin, bad);
    }
    tensor_free(y);
    tensor_free(twin);
}

static void set_kinds(enum kind *kind, const struct way *way, int n, int how) {
    static const enum kind all[] = {PLUS, MINUS, NO_NUMBER};
    memset(kind, 0, (size_t)n * sizeof *kind);
    if (how < 3) /* a single one, first, anywhere or last */
        kind[how == 0 ? 0 : how == 1 ? n / 3 : n - 1] = all[how];
    else /* many */
        for (int i = 0; i < n; i += 3)
            kind[i] = all[(i / 3) % 3];
    kind[n / 2] = PLAIN;
    for (int i = 0; i < n; i++)
        if (kind[i] != PLAIN && !(way->kinds & BIT(kind[i])))
            kind[i] = way->kinds & BIT(PLUS) ? PLUS : MINUS;
}

static bool takes_zeros(const struct way *way) {
    return way->write == convert || way->write == convert_at || way->write == lose || way->write == multiply_floats ||
           way->write == join_integers;
}

static void every_predictor(const struct way *way, tensor_format format, tensor_rounding rounding, int n) {
    static enum kind kind[MOST];
    for (int p = 0; autoflex_at(p); p++) {
        const autoflex_predictor predictor = autoflex_at(p);
        if (device && predictor >= AUTOFLEX_ADDED)
            continue;
        for (int bad_at = way->in_place || device ? 3 : 0; bad_at <= 3; bad_at += 3) {
            struct scene s = {way, autoflex_name(predictor), format, rounding, n, bad_at, kind};
            for (int how = device ? 3 : 0; how < 4; how++) {
                set_kinds(kind, way, n, how);
                play(&s);
            }
            if (takes_zeros(way) && bad_at)
                s.bad_at = 1, play_nothing_else(s);
        }
    }
}

static bool runs(const struct way *way) {
    return !(device && way->host);
}

/* Series on kernel sets: each predictor, and on one of them large tensors, whose real functions are looked up in
 * tables. */
static void series(void) {
    static const tensor_format formats[] = {FMT_FLEX16_5, FMT_DFP16};
    for (int w = 0; w < WAYS; w++)
        for (int f = 0; f < 2 && runs(&ways[w]); f++) {
            every_predictor(&ways[w], formats[f], TENSOR_ROUND_NEAREST, 37);
            every_predictor(&ways[w], formats[f], TENSOR_ROUND_STOCHASTIC, 37);
        }
}

static void large(void) {
    static enum kind kind[MOST];
    for (int w = 0; w < WAYS; w++)
        for (int n = 1500; n <= MOST && runs(&ways[w]); n += MOST - 1500) {
            struct scene s = {&ways[w], "amax", FMT_DFP16, TENSOR_ROUND_NEAREST, n, 3, kind};
            for (int how = 0; how < 4; how++) {
                set_kinds(kind, &ways[w], n, how);
                play(&s);
            }
        }
}

/* --- a case found earlier: an Inf ended the history of "amax" ----------------------------------------------------- */

static void stays_awake(void) {
    const float value = 20000 * 0x1p-14f, infinite = INFINITY;
    tensor *y = tensor_new(FMT_DFP16, TENSOR_SHAPE(1)), *x = tensor_new(FMT_FP32, TENSOR_SHAPE(1)),
           *inf = tensor_new(FMT_FP32, TENSOR_SHAPE(1));
    CHECK(!tensor_set_predictor(y, "amax") && !tensor_load_f32(y, &value, 1) && !tensor_load_f32(x, &value, 1) &&
              !tensor_load_f32(inf, &infinite, 1),
          "%s", tensor_error());
    for (int i = 0; i < 5; i++) {
        tensor_stats last;
        CHECK(i == 3 ? !tensor_convert_at(y, inf, 14) : !tensor_rewrite(y, x), "%s", tensor_error());
        CHECK(!tensor_statistics(&last, NULL, y) && last.saturated == (i == 3) && last.nonfinite == (i == 3),
              "write %d", i);
        const int16_t *m = tensor_const_data(y);
        CHECK(tensor_exponent(y) == 14 && m[0] == (i == 3 ? TOP : 20000), "write %d: mantissa %d, exponent %d", i, m[0],
              tensor_exponent(y));
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(inf);
}

/* The rules on plain numbers: a maximum that is not finite does not count. */
static void plain_numbers(void) {
    for (int p = 0; autoflex_at(p); p++)
        for (int wrote = 0; wrote < 2; wrote++) {
            struct autoflex a;
            autoflex_reset(&a, autoflex_at(p), -128, 127);
            if (wrote)
                autoflex_load(&a, 3);
            const struct autoflex before = a;
            autoflex_record(&a, TOP, INFINITY);
            CHECK(autoflex_fit(&a, INFINITY) == before.e && autoflex_initialise(&a, INFINITY) == before.e &&
                      !autoflex_repeat(&a, INFINITY) && !memcmp(&a, &before, sizeof a),
                  "%s: Inf left exponent %d, %d maxima", autoflex_name(autoflex_at(p)), a.e, a.count);
        }
}

/* --- loads refuse them and change nothing ------------------------------------------------------------------------- */

static void refused(tensor *t, const struct autoflex *before, tensor_status status, const char *what) {
    double values[2];
    CHECK(status == TENSOR_E_ARGUMENT && strstr(tensor_error(), "finite numbers only"), "%s: %d, %s", what, status,
          tensor_error());
    CHECK(!tensor_store_f64(t, values, 2) && values[0] == 3 && values[1] == -1 &&
              !memcmp(tensor_autoflex(t), before, sizeof *before),
          "%s: %g %g", what, values[0], values[1]);
}

static void loads(tensor_format format, const char *predictor, double bad, bool wide) {
    const double good[] = {3, -1}, doubles[] = {1, bad};
    const float floats[] = {1, (float)bad};
    tensor *t = tensor_new(format, TENSOR_SHAPE(2)), *x = tensor_new(FMT_FP16, TENSOR_SHAPE(2)),
           *pixels = tensor_new(FMT_U8, TENSOR_SHAPE(2)), *table = tensor_new(FMT_F32, TENSOR_SHAPE(2, 256));
    float meanings[512] = {0};
    meanings[256 + 9] = (float)bad;
    CHECK(!tensor_set_predictor(t, predictor) && (!wide || !tensor_keep_wide(t)) && !tensor_load_f64(t, good, 2) &&
              !tensor_load_f64(x, doubles, 2) && !tensor_load_u8(pixels, (const uint8_t[]){9, 9}, 2) &&
              !tensor_load_f32(table, meanings, 512),
          "%s", tensor_error());
    const struct autoflex before = *tensor_autoflex(t);
    refused(t, &before, tensor_load_f32(t, floats, 2), "load_f32");
    refused(t, &before, tensor_load_f64(t, doubles, 2), "load_f64");
    refused(t, &before, tensor_load_array(t, floats, TENSOR_TYPE_F32, 2), "load_array");
    refused(t, &before, tensor_fill(t, bad), "fill");
    refused(t, &before, tensor_convert(t, x), "convert");
    refused(t, &before, tensor_load_pixels(t, pixels, table), "load_pixels");
    tensor_free(t);
    tensor_free(x);
    tensor_free(pixels);
    tensor_free(table);
}

static double largest_so_far(const struct autoflex *a, void *context) {
    (void)context;
    double largest = 0;
    for (int i = 0; i < a->count; i++)
        largest = fmax(largest, a->history[i]);
    return largest;
}

int main(int argc, char **argv) {
    static const char *const rows[] = {"ref", "portable", "avx2", "avx512bw", NULL};
    if (argc > 1 && !(device = tensor_device_find(argv[1])))
        return check_skip(tensor_error());
    on_row = device ? argv[1] : "best";
    CHECK(autoflex_add("of-the-test", largest_so_far, NULL), "not added");
    if (device) {
        series();
        return check_summary();
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        on_row = rows[i] ? rows[i] : "best";
        CHECK(!tensor_set_backend(rows[i]), "%s", tensor_error());
        series();
        if (i)
            large();
    }
    stays_awake();
    plain_numbers();
    for (int p = 0; autoflex_at(p); p++)
        for (int i = 0; i < 12; i++)
            loads(i % 2 ? FMT_DFP16 : FMT_FLEX16_5, autoflex_name(autoflex_at(p)),
                  i / 2 % 3 == 0   ? INFINITY
                  : i / 2 % 3 == 1 ? -INFINITY
                                   : NAN,
                  i >= 6);
    return check_summary();
}
