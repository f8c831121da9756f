/* The real functions of ops.def against MPFR: every input of fp16 and bf16, shared exponents at three pairs each,
 * binary32 at random, at special and at hard values; results, statistics, and the constants of real_tables.h.
 *
 *     test_functions [every]    shared exponents: the interval of the inputs (default 29); 1: all
 *     FLEXLAB_TEST_FILTER=substring selects functions */
#include "check.h"
#ifndef FL_HAVE_MPFR
int main(void) {
    return check_skip("no MPFR was found when this was configured (libmpfr-dev)");
}
#else
#include "core/real/real_tables.h"
#include "functions_witness.h"

static uint64_t seed = 20260719;
static int every = 29;

/* --- the tables of constants -------------------------------------------------------------------------------------- */

static void check_constant(const char *name, mpfr_t want, double h, double l) {
    mpfr_t left;
    mpfr_init2(left, 400);
    CHECK(mpfr_get_d(want, MPFR_RNDN) == h, "%s: first part %a, expected %a", name, h, mpfr_get_d(want, MPFR_RNDN));
    mpfr_sub_d(left, want, h, MPFR_RNDN);
    CHECK(mpfr_get_d(left, MPFR_RNDN) == l, "%s: second part %a, expected %a", name, l, mpfr_get_d(left, MPFR_RNDN));
    mpfr_clear(left);
}
#define CONSTANT(name, pair) check_constant(name, c, (const double[]){pair}[0], (const double[]){pair}[1])

static void check_tables(void) {
    mpfr_t c, d;
    mpfr_inits2(600, c, d, (mpfr_ptr)NULL);
    mpfr_const_log2(c, MPFR_RNDN);
    CONSTANT("ln 2", FL_REAL_LN2);
    mpfr_sub_d(d, c, FL_REAL_LN2_1, MPFR_RNDN);
    mpfr_sub_d(d, d, FL_REAL_LN2_2, MPFR_RNDN);
    CHECK(mpfr_get_d(d, MPFR_RNDN) == FL_REAL_LN2_3, "ln 2 in three: %a", FL_REAL_LN2_3);
    CHECK(FL_REAL_LN2_1 * 2047 * 0x1p42 == rint(FL_REAL_LN2_1 * 2047 * 0x1p42) && FL_REAL_LN2_1 * 2047 < 0x1p11 &&
              FL_REAL_LN2_2 * 2047 * 0x1p84 == rint(FL_REAL_LN2_2 * 2047 * 0x1p84),
          "multiples of the parts of ln 2 are exact");
    mpfr_ui_div(c, 1, c, MPFR_RNDN);
    CONSTANT("1 / ln 2", FL_REAL_INVERSE_LN2);
    mpfr_log_ui(c, 10, MPFR_RNDN);
    mpfr_ui_div(c, 1, c, MPFR_RNDN);
    CONSTANT("1 / ln 10", FL_REAL_INVERSE_LN10);
    mpfr_const_pi(c, MPFR_RNDN);
    CONSTANT("pi", FL_REAL_PI);
    mpfr_mul_ui(d, c, 2, MPFR_RNDN);
    mpfr_ui_div(d, 23, d, MPFR_RNDN);
    mpfr_div_ui(d, d, 64, MPFR_RNDN);
    mpfr_swap(c, d);
    CONSTANT("h / 2 pi", FL_REAL_STEP_OVER_2PI);
    mpfr_ui_div(c, 1, c, MPFR_RNDN);
    CONSTANT("2 pi / h", FL_REAL_2PI_OVER_STEP);
    mpfr_div_ui(c, d, 2, MPFR_RNDN);
    CONSTANT("pi / 2", FL_REAL_HALF_PI);
    mpfr_ui_div(d, 1, c, MPFR_RNDN); /* 2 / pi, by 64 bits */
    for (int i = 0; i < 7; i++) {
        mpfr_mul_2ui(d, d, 64, MPFR_RNDN);
        uint64_t word = 0;
        mpfr_t whole;
        mpfr_init2(whole, 64);
        mpfr_trunc(whole, d);
        word = mpfr_get_uj(whole, MPFR_RNDN);
        CHECK(word == fl_two_over_pi(i), "2 / pi: word %d", i);
        mpfr_sub(d, d, whole, MPFR_RNDN);
        mpfr_clear(whole);
    }
    mpfr_set_d(c, 0.5, MPFR_RNDN);
    mpfr_sqrt(c, c, MPFR_RNDN);
    CONSTANT("sqrt 1/2", FL_REAL_SQRT_HALF);
    mpfr_const_pi(c, MPFR_RNDN);
    mpfr_mul_ui(c, c, 2, MPFR_RNDN);
    mpfr_rec_sqrt(c, c, MPFR_RNDN);
    CONSTANT("1 / sqrt(2 pi)", FL_REAL_DENSITY_AT_0);
    mpfr_mul_ui(c, c, 4, MPFR_RNDN);
    CONSTANT("2 sqrt(2 / pi)", FL_REAL_GELU_1);
    mpfr_mul_ui(c, c, 44715, MPFR_RNDN);
    mpfr_div_ui(c, c, 1000000, MPFR_RNDN);
    CONSTANT("gelu 3", FL_REAL_GELU_3);
    mpfr_mul_ui(c, c, 3, MPFR_RNDN);
    CONSTANT("gelu 3 slope", FL_REAL_GELU_3_SLOPE);
    for (int i = 0; i < 33; i++) {
        const double *row = fl_real_table(FL_REAL_ODD, i);
        mpfr_set_ui(c, 1, MPFR_RNDN);
        mpfr_div_ui(c, c, 2 * (unsigned)i + 1, MPFR_RNDN);
        check_constant("1 / odd", c, row[0], row[1]);
        if (i < 30) {
            row = fl_real_table(FL_REAL_FACTORIALS, i);
            mpfr_fac_ui(c, (unsigned)i, MPFR_RNDN);
            mpfr_ui_div(c, 1, c, MPFR_RNDN);
            check_constant("1 / factorial", c, row[0], row[1]);
        }
        if (i < 25) {
            row = fl_real_table(FL_REAL_GAUSS, i);
            mpfr_set_d(c, -(23.0 * i / 64) * (23.0 * i / 64), MPFR_RNDN);
            mpfr_exp(c, c, MPFR_RNDN);
            check_constant("exp(-k^2 h^2)", c, row[0], row[1]);
        }
    }
    mpfr_clears(c, d, (mpfr_ptr)NULL);
}

/* --- a write and its expected result ------------------------------------------------------------------------------ */

struct expected {
    double maximum; /* from MPFR, as double */
    int64_t saturated, flushed, nonfinite;
};

static const struct fl_format *format_of(const tensor *t) {
    return fl_format_of(tensor_format_of(t));
}

static void compare(const struct witness *w, const tensor *y, const tensor *a, const tensor *b, float alpha, float beta,
                    bool truncate, const char *what) {
    const int64_t n = tensor_count(y);
    double *va = fl_alloc((size_t)n * sizeof *va), *vb = fl_alloc((size_t)n * sizeof *vb),
           *vy = fl_alloc((size_t)n * sizeof *vy);
    const struct fl_format *f = format_of(y);
    CHECK(!tensor_store_f64(a, va, n) && !tensor_store_f64(y, vy, n) && (!b || !tensor_store_f64(b, vb, n)), "store");
    struct expected e = {0};
    int wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        struct rounded r;
        witness_round(&r, w, f, tensor_exponent(y), truncate, va[i], b ? vb[i] : 0, (double)alpha, (double)beta);
        e.saturated += r.saturated;
        e.flushed += r.flushed;
        e.nonfinite += r.nonfinite;
        if (r.size > e.maximum)
            e.maximum = r.size;
        const bool same =
            r.value != r.value ? vy[i] != vy[i] : r.value == vy[i] && (f->top || !signbit(r.value) == !signbit(vy[i]));
        if (!same && wrong++ < 3)
            CHECK(false, "%s.%s %s: x %a, b %a, alpha %a, beta %a: got %a, expected %a", f->name, w->name, what, va[i],
                  b ? vb[i] : 0, (double)alpha, (double)beta, vy[i], r.value);
    }
    tensor_stats s;
    CHECK(!tensor_statistics(&s, NULL, y), "statistics");
    CHECK(s.saturated == e.saturated && s.flushed == e.flushed && s.nonfinite == e.nonfinite,
          "%s.%s %s: saturated %lld, flushed %lld, nonfinite %lld, expected %lld, %lld, %lld", f->name, w->name, what,
          (long long)s.saturated, (long long)s.flushed, (long long)s.nonfinite, (long long)e.saturated,
          (long long)e.flushed, (long long)e.nonfinite);
    /* functions stop beyond 2^865, or 32 bits before */
    const bool right = e.maximum > 0x1p800    ? s.maximum > 0x1p700
                       : e.maximum < 0x1p-800 ? s.maximum < 0x1p-700
                                              : fabs(s.maximum - e.maximum) <= e.maximum * 0x1p-31;
    CHECK(right || s.maximum == e.maximum, "%s.%s %s: maximum %a, expected %a", f->name, w->name, what, s.maximum,
          e.maximum);
    fl_free(va);
    fl_free(vb);
    fl_free(vy);
}

static void run(const struct witness *w, tensor *y, const tensor *a, const tensor *b, float alpha, float beta,
                const char *what) {
    const bool truncate = what && strstr(what, "truncat");
    const tensor_status status = witness_call(w, y, a, b, alpha, beta);
    CHECK(!status, "%s: %s", w->name, tensor_error());
    if (!status)
        compare(w, y, a, b, alpha, beta, truncate, what);
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

static const float scalars[][2] = {{0.01f, 6}, {1, 0.5f}};

/* Words 0, step, 2 step ... of a 16-bit format. */
static tensor *words(tensor_format format, int64_t first, int64_t step, int e) {
    const int64_t n = (65536 - first + step - 1) / step;
    tensor *t = tensor_new(format, TENSOR_SHAPE(n));
    uint16_t *data = tensor_data(t);
    for (int64_t i = 0; i < n; i++)
        data[i] = (uint16_t)(first + i * step);
    if (tensor_format_is_shared(format))
        CHECK(!tensor_declare_exponent(t, e), "%s", tensor_error());
    return t;
}

static tensor *output(tensor_format format, int64_t n, int e) {
    tensor *t = tensor_new(format, TENSOR_SHAPE(n));
    if (tensor_format_is_shared(format))
        CHECK(!tensor_set_predictor(t, "fixed") && !tensor_declare_exponent(t, e), "%s", tensor_error());
    return t;
}

/* Gradients: dy has random bits of the format, as x does. */
static tensor *partner(const tensor *x, int e) {
    const int64_t n = tensor_count(x);
    tensor *t = tensor_new(tensor_format_of(x), TENSOR_SHAPE(n));
    uint16_t *data = tensor_data(t);
    for (int64_t i = 0; i < n; i++)
        data[i] = (uint16_t)(check_random(&seed) >> 13);
    if (tensor_format_is_shared(tensor_format_of(x)))
        CHECK(!tensor_declare_exponent(t, e), "%s", tensor_error());
    return t;
}

static void with_scalars(const struct witness *w, tensor *y, const tensor *x, int e_dy, const char *what) {
    for (int s = 0; s < (w->scalars ? 2 : 1); s++) {
        const float alpha = w->scalars == 2 ? -scalars[s][0] : scalars[s][0];
        tensor *dy = w->operands == 2 ? partner(x, e_dy) : NULL;
        run(w, y, dy ? dy : x, dy ? x : NULL, w->scalars ? alpha : 0, w->scalars == 2 ? scalars[s][1] : 0, what);
        tensor_free(dy);
    }
}

static void floats(const struct witness *w, tensor_format format, bool truncate) {
    /* gradients have a random second operand: some of the words each time */
    const int64_t step = truncate || w->operands == 2 ? every % 2 ? every : every + 1 : 1;
    tensor *x = words(format, (int64_t)(check_random(&seed) % (uint64_t)step), step, 0),
           *y = output(format, tensor_count(x), 0);
    if (truncate)
        CHECK(!tensor_set_rounding(y, TENSOR_ROUND_TRUNCATE, 0), "%s", tensor_error());
    with_scalars(w, y, x, 0, truncate ? "truncated" : "");
    tensor_free(x);
    tensor_free(y);
}

static void shared(const struct witness *w, tensor_format format) {
    static const int flex[][3] = {{12, 14, 15}, {3, 9, 20}, {31, 31, 31}},
                     dfp[][3] = {{13, 16, 20}, {-90, -20, 30}, {110, 100, 10}};
    for (int p = 0; p < 3; p++) {
        const int *e = format == FMT_DFP16 ? dfp[p] : flex[p];
        tensor *x = words(format, (int64_t)(check_random(&seed) % (uint64_t)every), every, e[0]),
               *y = output(format, tensor_count(x), e[1]);
        with_scalars(w, y, x, e[2], "");
        tensor_free(x);
        tensor_free(y);
    }
}

/* binary32: special values, both sides of the points at which algorithms change, and random words. */
static void binary32(const struct witness *w) {
    enum { N = 3000 };
    static const double places[] = {0,
                                    0x1p-149,
                                    0x1p-126,
                                    0x1p-60,
                                    0x1p-30,
                                    0x1p-20,
                                    0x1p-8,
                                    0.17,
                                    0.2,
                                    0.3,
                                    0.34,
                                    0.35,
                                    0.5,
                                    0.7071067812,
                                    0.785,
                                    1,
                                    1.2784645,
                                    1.4,
                                    1.5707963267948966,
                                    2,
                                    3.14159265,
                                    6,
                                    8.74,
                                    10,
                                    12.36,
                                    17.3,
                                    26,
                                    88.7,
                                    103.97,
                                    600,
                                    0.7517916,
                                    100,
                                    1e3,
                                    1e4,
                                    1e5,
                                    1e6,
                                    1e7,
                                    1e8,
                                    1e9,
                                    1e10,
                                    16367173.0 * 0x1p72,
                                    0x1.921fb6p0,
                                    0x1.6ac5b2p127,
                                    0x1p23,
                                    0x1p24,
                                    0x1p100,
                                    0x1.fffffep127,
                                    INFINITY,
                                    NAN};
    tensor *x = output(FMT_FP32, N, 0), *dy = output(FMT_FP32, N, 0), *y = output(FMT_FP32, N, 0);
    float *vx = tensor_data(x), *vd = tensor_data(dy);
    for (int i = 0; i < N; i++) {
        const int place = i / 6, places_count = (int)(sizeof places / sizeof places[0]);
        uint32_t word = (uint32_t)(check_random(&seed) >> 20);
        if (place < places_count) {
            const float at = (float)places[place], near = i % 3 == 0 ? at : nextafterf(at, i % 3 == 1 ? 0 : INFINITY);
            vx[i] = i % 6 < 3 ? near : -near;
        } else if (i % 2) {
            vx[i] = ldexpf((float)((int32_t)word) * 0x1p-31f, (int)(check_random(&seed) % 14) - 7);
        } else {
            memcpy(&vx[i], &word, sizeof word);
        }
        word = (uint32_t)(check_random(&seed) >> 20);
        memcpy(&vd[i], &word, sizeof word);
        if (i % 3)
            vd[i] = (float)((int32_t)word) * 0x1p-31f;
    }
    for (int s = 0; s < (w->scalars ? 2 : 1); s++)
        run(w, y, w->operands == 2 ? dy : x, w->operands == 2 ? x : NULL,
            w->scalars == 2 ? -scalars[s][0]
            : w->scalars    ? scalars[s][0]
                            : 0,
            w->scalars == 2 ? scalars[s][1] : 0, "");
    tensor_free(x);
    tensor_free(dy);
    tensor_free(y);
}

int main(int argc, char **argv) {
    if (argc > 1)
        every = atoi(argv[1]);
    if (every < 1)
        return fprintf(stderr, "usage: test_functions [every, at least 1]\n"), 2;
    const char *filter = getenv("FLEXLAB_TEST_FILTER");
    printf("seed %llu, shared exponents: every %d-th input\n", (unsigned long long)seed, every);
    check_tables();
    int rows = 0;
    for (int op = 1; op < FL_OP_LIMIT; op++) {
        if (!fl_op_is_real((enum fl_op)op))
            continue;
        const struct witness *w = witness_of(fl_op_name((enum fl_op)op));
        CHECK(w, "%s has no witness", fl_op_name((enum fl_op)op));
        if (!w || (filter && !strstr(w->name, filter)))
            continue;
        rows++;
        floats(w, FMT_FP16, false);
        floats(w, FMT_BF16, false);
        floats(w, FMT_BF16, true);
        shared(w, FMT_FLEX16_5);
        shared(w, FMT_DFP16);
        binary32(w);
    }
    CHECK(rows > 0, "no function has that name");
    printf("%d functions\n", rows);
    mpfr_free_cache();
    return check_summary();
}
#endif
