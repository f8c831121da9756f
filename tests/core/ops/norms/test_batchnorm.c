/* test_batchnorm.c - batch normalisation of the shared-exponent formats by the public functions: forward, with an image
 * added, gradient; every kernel set, any number of threads.
 *
 * The witness computes the definition in rational numbers: sums of mantissas as 128-bit integers, their quotients in
 * long double; only the square root is not rational. A mantissa may differ from the rounded result if that lies so
 * close to an edge that coefficients of 31 bits can move it across. Channels are of all kinds: ordinary ones, with a
 * mean far above the deviation, almost constant, constant, with sizes of gamma, beta and epsilon far apart. */
#include "host_numbers.h"
#include "check.h"
#include "core/arithmetic/exact.h"
#include "flexlab/tensor.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static uint64_t seed;

static int64_t below(int64_t n) {
    return (int64_t)(check_random(&seed) % (uint64_t)n);
}

static int between(int low, int high) {
    return (int)(low + below((int64_t)high - low + 1));
}

/* --- tensors from mantissas --------------------------------------------------------------------------------------- */

static tensor *of_mantissas(tensor_format format, int64_t rows, int64_t channels, int e, const int16_t *mantissas) {
    tensor *t = rows ? tensor_new(format, TENSOR_SHAPE(rows, channels)) : tensor_new(format, TENSOR_SHAPE(channels));
    CHECK(t && !tensor_declare_exponent(t, e), "%s", tensor_error());
    if (mantissas)
        memcpy(tensor_data(t), mantissas, (size_t)tensor_count(t) * sizeof *mantissas);
    return t;
}

static tensor *output(tensor_format format, int64_t rows, int64_t channels, const char *predictor, int e) {
    tensor *t = of_mantissas(format, rows, channels, e, NULL);
    CHECK(!tensor_set_predictor(t, predictor), "%s", tensor_error());
    return t;
}

static int16_t mantissa(const tensor *t, int64_t i) {
    return ((const int16_t *)tensor_const_data(t))[i];
}

static double value(const tensor *t, int64_t i) {
    return ldexp(mantissa(t, i), -tensor_exponent(t));
}

/* --- the witness -------------------------------------------------------------------------------------------------- */

struct one { /* an exact result, and the size of its terms before they cancelled */
    long double value, terms;
};

/* gamma (x - mean) / sqrt(variance + epsilon) + beta + r; mean as a quotient of integers, so that x - mean is exact */
static struct one forward(int64_t x, int e_x, fl_int128 sum, int64_t n, long double variance, double epsilon,
                          double gamma, double beta, double r, bool relu) {
    const long double distance = (long double)(x * (fl_int128)n - sum) / n;
    const long double scale = gamma / sqrtl(variance + epsilon);
    const long double t = ldexpl(scale * distance, -e_x) + beta + r;
    return (struct one){relu && t < 0 ? 0 : t,
                        fabsl(ldexpl(scale * distance, -e_x)) + fabsl(ldexpl(scale, -e_x)) + fabs(beta) + fabs(r)};
}

/* Compares a stored mantissa with it. */
static bool agrees(int16_t got, struct one want, int e, int64_t *off) {
    const long double units = ldexpl(want.value, e), slack = ldexpl(want.terms, e - 30) + ldexpl(fabsl(units), -45);
    if (got == 32767 || got == -32767)
        return got > 0 ? units >= 32766.5L - slack : units <= -32766.5L + slack;
    *off += got != (int64_t)rintl(units);
    return fabsl(got - units) <= 0.5L + slack;
}

/* --- every kernel set --------------------------------------------------------------------------------------------- */

static const char *const rows_of[] = {"avx512_amx", "avx512", "avx512bw", "avx2", "portable", "ref"};
static const int threads_of[] = {1, 2, 3, 7};

/* Work that is repeated for every kernel set and number of threads, on the tensors that `fresh` returns; the others
 * must give the outputs and the statistics of the first. */
struct work {
    tensor_format format;
    int64_t rows, channels;
    tensor *x, *r, *dy, *y, *gamma, *beta; /* r, dy, y: NULL if there is none */
    const double *mean, *variance;
    double epsilon;
    bool relu, gradient;
    const char *predictor;
    int e_out;
};

struct outputs {
    tensor *image, *dgamma, *dbeta;
};

static struct outputs run(const struct work *w) {
    struct outputs o = {.image = output(w->format, w->rows, w->channels, w->predictor, w->e_out)};
    if (w->gradient) {
        o.dgamma = tensor_new(w->format, TENSOR_SHAPE(w->channels));
        o.dbeta = tensor_new(w->format, TENSOR_SHAPE(w->channels));
        CHECK(!host_batchnorm_grad(o.image, o.dgamma, o.dbeta, w->dy, w->x, w->y, w->gamma, w->mean, w->variance,
                                   w->epsilon),
              "%s", tensor_error());
    } else if (w->r) {
        CHECK(!host_batchnorm(o.image, w->x, w->r, w->gamma, w->beta, w->mean, w->variance, w->epsilon, w->relu), "%s",
              tensor_error());
    } else {
        CHECK(!host_batchnorm(o.image, w->x, NULL, w->gamma, w->beta, w->mean, w->variance, w->epsilon, w->relu), "%s",
              tensor_error());
    }
    return o;
}

static void free_outputs(struct outputs *o) {
    tensor_free(o->image);
    tensor_free(o->dgamma);
    tensor_free(o->dbeta);
}

static bool same(const tensor *a, const tensor *b) {
    tensor_stats s, t;
    if (!a)
        return !b;
    tensor_statistics(&s, NULL, a);
    tensor_statistics(&t, NULL, b);
    return tensor_exponent(a) == tensor_exponent(b) && s.maximum == t.maximum && s.gamma == t.gamma &&
           s.saturated == t.saturated && s.flushed == t.flushed &&
           !memcmp(tensor_const_data(a), tensor_const_data(b), (size_t)tensor_count(a) * 2);
}

static struct outputs run_everywhere(const struct work *w, uint64_t replay) {
    struct outputs first = {0};
    for (size_t r = 0; r < sizeof rows_of / sizeof rows_of[0]; r++) {
        tensor_set_backend(rows_of[r]);
        for (size_t t = 0; t < sizeof threads_of / sizeof threads_of[0]; t++) {
            if (strcmp(rows_of[r], "ref") == 0 && t > 0)
                break;
            tensor_set_threads(threads_of[t]);
            struct outputs o = run(w);
            if (!first.image) {
                first = o;
                continue;
            }
            CHECK(same(first.image, o.image) && same(first.dgamma, o.dgamma) && same(first.dbeta, o.dbeta),
                  "seed %" PRIx64 ": %s with %d threads differs from %s", replay, rows_of[r], threads_of[t],
                  rows_of[0]);
            free_outputs(&o);
        }
    }
    tensor_set_backend(NULL);
    tensor_set_threads(0);
    return first;
}

/* --- cases by hand ------------------------------------------------------------------------------------------------ */

static void needs_steep_multipliers(void) {
    const int16_t x[] = {0, 1, 0, 1}, gamma = 31130, zero = 0;
    for (int f = 0; f < 2; f++) {
        const tensor_format format = f ? FMT_FLEX16_5 : FMT_DFP16;
        double mean, variance;
        struct work w = {.format = format,
                         .rows = 4,
                         .channels = 1,
                         .x = of_mantissas(format, 4, 1, f ? 12 : 8, x),
                         .gamma = of_mantissas(format, 0, 1, 14, &gamma),
                         .beta = of_mantissas(format, 0, 1, 14, &zero),
                         .mean = &mean,
                         .variance = &variance,
                         .epsilon = 1e-12,
                         .predictor = f ? "fixed" : "current",
                         .e_out = f ? 14 : 8};
        host_moments(&mean, &variance, w.x);
        struct outputs o = run_everywhere(&w, 0);
        for (int i = 0; i < 4; i++) {
            if (f)
                CHECK(mantissa(o.image, i) == (x[i] ? 31129 : -31129), "%d", mantissa(o.image, i));
            else
                CHECK(fabs(value(o.image, i) - (x[i] ? 1.90002 : -1.90002)) < 1e-4, "%g", value(o.image, i));
        }
        free_outputs(&o);
        tensor_free(w.x);
        tensor_free(w.gamma);
        tensor_free(w.beta);
    }
}

static void evaluates_constant_channel(void) {
    const int16_t x[] = {3, 3, 3}, one = 16384, zero = 0;
    const double mean = ldexp(3.4, -7), variance = 0;
    struct work w = {.format = FMT_FLEX16_5,
                     .rows = 3,
                     .channels = 1,
                     .x = of_mantissas(FMT_FLEX16_5, 3, 1, 7, x),
                     .gamma = of_mantissas(FMT_FLEX16_5, 0, 1, 14, &one),
                     .beta = of_mantissas(FMT_FLEX16_5, 0, 1, 14, &zero),
                     .mean = &mean,
                     .variance = &variance,
                     .epsilon = 1e-5,
                     .predictor = "fixed",
                     .e_out = 14};
    struct outputs o = run_everywhere(&w, 0);
    CHECK(fabs(value(o.image, 0) + 0.98821) < 1e-4, "%g", value(o.image, 0));
    free_outputs(&o);
    tensor_free(w.x);
    tensor_free(w.gamma);
    tensor_free(w.beta);
}

static void gradient_of_few_steps(void) {
    const int16_t x[] = {-300, 200, 100, 700, -700, 20, 3, 90}, dy[] = {0, 1, 0, 1, 0, 1, 1, 0}, one = 16384;
    double mean, variance;
    struct work w = {.format = FMT_DFP16,
                     .rows = 8,
                     .channels = 1,
                     .x = of_mantissas(FMT_DFP16, 8, 1, 8, x),
                     .dy = of_mantissas(FMT_DFP16, 8, 1, 20, dy),
                     .gamma = of_mantissas(FMT_DFP16, 0, 1, 14, &one),
                     .mean = &mean,
                     .variance = &variance,
                     .epsilon = 1e-5,
                     .gradient = true,
                     .predictor = "current",
                     .e_out = 8};
    host_moments(&mean, &variance, w.x);
    struct outputs o = run_everywhere(&w, 0);
    CHECK(fabs(value(o.image, 0) + 1.681e-7) < 1e-10 && fabs(value(o.image, 1) - 2.323e-7) < 1e-10, "%g %g",
          value(o.image, 0), value(o.image, 1));
    free_outputs(&o);
    tensor_free(w.x);
    tensor_free(w.dy);
    tensor_free(w.gamma);
}

/* Constant channels give beta alone; "current" finds its exponent. */
static void constant_channels_give_beta(void) {
    const int16_t x[] = {5, 5, 5, 5}, one = 16384;
    double mean, variance;
    tensor *beta = tensor_new(FMT_DFP16, TENSOR_SHAPE(1));
    tensor_load_f64(beta, (double[]){0.001}, 1);
    struct work w = {.format = FMT_DFP16,
                     .rows = 4,
                     .channels = 1,
                     .x = of_mantissas(FMT_DFP16, 4, 1, -14, x),
                     .gamma = of_mantissas(FMT_DFP16, 0, 1, 14, &one),
                     .beta = beta,
                     .mean = &mean,
                     .variance = &variance,
                     .epsilon = 1e-5,
                     .predictor = "current",
                     .e_out = 8};
    host_moments(&mean, &variance, w.x);
    struct outputs o = run_everywhere(&w, 0);
    CHECK(value(o.image, 0) == value(beta, 0) && fabs(value(beta, 0) - 0.001) < 1e-7, "%g", value(o.image, 0));
    free_outputs(&o);
    tensor_free(w.x);
    tensor_free(w.gamma);
    tensor_free(beta);
}

static void residual_at_the_mean(void) {
    const int16_t x[] = {5, 5}, r[] = {32767, 32767}, one = 16384, b = 12851;
    const double mean = 5, variance = 0;
    struct work w = {.format = FMT_FLEX16_5,
                     .rows = 2,
                     .channels = 1,
                     .x = of_mantissas(FMT_FLEX16_5, 2, 1, 0, x),
                     .r = of_mantissas(FMT_FLEX16_5, 2, 1, 31, r),
                     .gamma = of_mantissas(FMT_FLEX16_5, 0, 1, 14, &one),
                     .beta = of_mantissas(FMT_FLEX16_5, 0, 1, 20, &b),
                     .mean = &mean,
                     .variance = &variance,
                     .epsilon = 1e-5,
                     .predictor = "fixed",
                     .e_out = 13};
    struct outputs o = run_everywhere(&w, 0);
    tensor_stats s;
    tensor_statistics(&s, NULL, o.image);
    CHECK(mantissa(o.image, 0) == 101, "%d, want 101 (100.523)", mantissa(o.image, 0));
    CHECK(fabs(ldexp(s.maximum, 13) - 100.523) < 0.001, "%g before rounding", ldexp(s.maximum, 13));
    free_outputs(&o);
    tensor_free(w.x);
    tensor_free(w.r);
    tensor_free(w.gamma);
    tensor_free(w.beta);
}

/* Terms at the ends of 128 bits, just above a tie: in every row of the image, and at its end. */
static void far_apart_above_a_tie(void) {
    enum { ROWS = 257 };
    int16_t x[ROWS], r[ROWS];
    const int16_t gamma = 16384, beta = -3;
    const double mean = 0, variance = 0;
    for (int i = 0; i < ROWS; i++) {
        x[i] = 32767;
        r[i] = 16385;
    }
    for (int rows = 1; rows <= ROWS; rows += ROWS - 1) {
        struct work w = {.format = FMT_DFP16,
                         .rows = rows,
                         .channels = 1,
                         .x = of_mantissas(FMT_DFP16, rows, 1, 30, x),
                         .r = of_mantissas(FMT_DFP16, rows, 1, 0, r),
                         .gamma = of_mantissas(FMT_DFP16, 0, 1, 62, &gamma),
                         .beta = of_mantissas(FMT_DFP16, 0, 1, 65, &beta),
                         .mean = &mean,
                         .variance = &variance,
                         .epsilon = 1,
                         .predictor = "fixed",
                         .e_out = -1};
        struct outputs o = run_everywhere(&w, 0);
        for (int i = 0; i < rows; i++)
            CHECK(mantissa(o.image, i) == 8193, "row %d of %d: %d", i, rows, mantissa(o.image, i));
        free_outputs(&o);
        tensor *all[] = {w.x, w.r, w.gamma, w.beta};
        for (int i = 0; i < 4; i++)
            tensor_free(all[i]);
    }
}

static void refuses_what_is_not_finite(void) {
    const int16_t x[] = {1, 2}, one = 16384;
    tensor *t = of_mantissas(FMT_DFP16, 2, 1, 3, x), *y = output(FMT_DFP16, 2, 1, "fixed", 14),
           *gamma = of_mantissas(FMT_DFP16, 0, 1, 14, &one);
    const double cases[][2] = {{NAN, 1}, {INFINITY, 1}, {0, NAN}, {0, -1}, {1.7e308, 0}};
    ((int16_t *)tensor_data(y))[0] = 77;
    for (int i = 0; i < 5; i++) {
        CHECK(host_batchnorm(y, t, NULL, gamma, gamma, &cases[i][0], &cases[i][1], 1e-5, false) == TENSOR_E_ARGUMENT &&
                  strstr(tensor_error(), "channel 0"),
              "case %d: %s", i, tensor_error());
        CHECK(mantissa(y, 0) == 77, "case %d wrote", i);
    }
    tensor_free(t);
    tensor_free(y);
    tensor_free(gamma);
}

/* --- random cases ------------------------------------------------------------------------------------------------- */

static int64_t counted, off_by_one;

/* Mantissas of one channel. */
static void fill_channel(int16_t *x, int64_t rows, int64_t channels, int64_t c) {
    const int kind = between(0, 5), size = between(0, 15), centre = between(-30000, 30000);
    for (int64_t i = 0; i < rows; i++) {
        int m = centre; /* constant */
        if (kind == 1)
            m = centre + between(-1, 1);
        else if (kind == 2)
            m = centre + (i == 0);
        else if (kind == 3)
            m = centre + between(-20, 20);
        else if (kind > 3)
            m = between(-(1 << size), 1 << size);
        x[i * channels + c] = (int16_t)(m > 32767 ? 32767 : m < -32767 ? -32767 : m);
    }
}

struct sums {
    fl_int128 x, xx, dy, dyx;
};

static struct sums sums_of(const struct work *w, int64_t c) {
    struct sums s = {0};
    for (int64_t i = c; i < w->rows * w->channels; i += w->channels) {
        const int64_t x = mantissa(w->x, i);
        const int64_t dy = w->dy && (!w->y || mantissa(w->y, i) > 0) ? mantissa(w->dy, i) : 0;
        s.x += x;
        s.xx += x * x;
        s.dy += dy;
        s.dyx += dy * x;
    }
    return s;
}

static void check_forward(const struct work *w, const struct outputs *o, uint64_t replay) {
    const int e_x = tensor_exponent(w->x), e = tensor_exponent(o->image);
    for (int64_t c = 0; c < w->channels; c++) {
        const struct sums s = sums_of(w, c);
        const long double variance = ldexpl((long double)(w->rows * s.xx - s.x * s.x) / w->rows / w->rows, -2 * e_x);
        for (int64_t i = c; i < w->rows * w->channels; i += w->channels) {
            const struct one want = forward(mantissa(w->x, i), e_x, s.x, w->rows, variance, w->epsilon,
                                            value(w->gamma, c), value(w->beta, c), w->r ? value(w->r, i) : 0, w->relu);
            counted++;
            CHECK(agrees(mantissa(o->image, i), want, e, &off_by_one),
                  "seed %" PRIx64 " channel %d element %d: %d, want %Lg", replay, (int)c, (int)i, mantissa(o->image, i),
                  ldexpl(want.value, e));
        }
    }
}

/* Compares one gradient of a channel: an exact 0 must be 0, any other the rounding of a few operations in double. */
static void check_number(const char *name, const tensor *t, int64_t c, long double want, uint64_t replay) {
    int64_t off = 0;
    const struct one exact = {want, ldexpl(fabsl(want), -18)};
    CHECK(agrees(mantissa(t, c), exact, tensor_exponent(t), &off), "seed %" PRIx64 ": %s of channel %d is %d, want %Lg",
          replay, name, (int)c, mantissa(t, c), ldexpl(want, tensor_exponent(t)));
}

static void check_gradient(const struct work *w, const struct outputs *o, uint64_t replay) {
    const int e_x = tensor_exponent(w->x), e_dy = tensor_exponent(w->dy), e = tensor_exponent(o->image);
    const int64_t n = w->rows;
    for (int64_t c = 0; c < w->channels; c++) {
        const struct sums s = sums_of(w, c);
        const long double variance = ldexpl((long double)(n * s.xx - s.x * s.x) / n / n, -2 * e_x);
        const long double inverse = 1 / sqrtl(variance + w->epsilon);
        const long double scale = value(w->gamma, c) * inverse; /* of dy */
        /* the sum of dy times the distance of x from its mean, then that of x */
        const long double dot = ldexpl((long double)(s.dyx * n - s.dy * s.x) / n, -e_dy - e_x);
        const long double cross = -scale * inverse * inverse * dot / n;
        check_number("dgamma", o->dgamma, c, dot * inverse, replay);
        check_number("dbeta", o->dbeta, c, ldexpl((long double)s.dy, -e_dy), replay);
        for (int64_t i = c; i < n * w->channels; i += w->channels) {
            const bool open = !w->y || mantissa(w->y, i) > 0;
            const long double dy =
                ldexpl((long double)((open ? mantissa(w->dy, i) : 0) * (fl_int128)n - s.dy) / n, -e_dy);
            const long double x = ldexpl((long double)(mantissa(w->x, i) * (fl_int128)n - s.x) / n, -e_x);
            struct one want = {scale * dy + cross * x, fabsl(scale * dy) + fabsl(cross * x) +
                                                           fabsl(ldexpl(scale, -e_dy)) + fabsl(ldexpl(cross, -e_x))};
            counted++;
            CHECK(agrees(mantissa(o->image, i), want, e, &off_by_one),
                  "seed %" PRIx64 " gradient, channel %d element %d: %d, want %Lg", replay, (int)c, (int)i,
                  mantissa(o->image, i), ldexpl(want.value, e));
        }
    }
}

static tensor *random_vector(tensor_format format, int64_t n) {
    tensor *t = of_mantissas(format, 0, n, format == FMT_DFP16 ? between(-20, 40) : between(5, 25), NULL);
    for (int64_t i = 0; i < n; i++)
        ((int16_t *)tensor_data(t))[i] = (int16_t)(below(8) ? between(-32767, 32767) : between(-3, 3));
    return t;
}

static void random_case(tensor_format format, int64_t rows, int64_t channels) {
    const uint64_t replay = seed;
    const bool dfp = format == FMT_DFP16;
    int16_t *image = malloc((size_t)(rows * channels) * sizeof *image);
    double *mean = malloc((size_t)channels * sizeof *mean), *variance = malloc((size_t)channels * sizeof *variance);
    struct work w = {.format = format, .rows = rows, .channels = channels, .mean = mean, .variance = variance};
    for (int64_t c = 0; c < channels; c++)
        fill_channel(image, rows, channels, c);
    w.x = of_mantissas(format, rows, channels, dfp ? between(-30, 40) : between(0, 31), image);
    w.gradient = below(2);
    w.relu = !w.gradient && below(2);
    w.epsilon = (double[]){1e-5, 1e-5, 1e-3, 1e-12, 0x1p-70, 10}[below(6)];
    w.predictor = dfp && below(2) ? "current" : below(2) ? "paper" : "fixed";
    w.e_out = dfp ? between(-20, 40) : between(0, 31);
    w.gamma = random_vector(format, channels);
    w.beta = random_vector(format, channels);
    tensor **more = w.gradient ? &w.dy : &w.r;
    if (w.gradient || below(2)) {
        for (int64_t c = 0; c < channels; c++)
            fill_channel(image, rows, channels, c);
        *more = of_mantissas(format, rows, channels, dfp ? between(-30, 60) : between(0, 31), image);
    }
    if (w.gradient && below(2)) {
        for (int64_t i = 0; i < rows * channels; i++)
            image[i] = (int16_t)(below(2) ? between(1, 5) : 0);
        w.y = of_mantissas(format, rows, channels, 5, image);
    }
    host_moments(mean, variance, w.x);
    struct outputs o = run_everywhere(&w, replay);
    if (w.gradient)
        check_gradient(&w, &o, replay);
    else
        check_forward(&w, &o, replay);
    tensor *all[] = {w.x, w.r, w.dy, w.y, w.gamma, w.beta, o.image, o.dgamma, o.dbeta};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
    free(image);
    free(mean);
    free(variance);
}

/* --- gradients whose sums cancel ---------------------------------------------------------------------------------- */

/* Of every three x the second is larger by one, and their dy are equal: dgamma is exactly 0, however large dy and the
 * mean are; no double can represent the third of the mean. */
static void cancelled_gradients_are_zero(void) {
    enum { ROWS = 999, CHANNELS = 64 };
    static int16_t x[ROWS * CHANNELS], dy[ROWS * CHANNELS], gamma[CHANNELS];
    double mean[CHANNELS], variance[CHANNELS];
    for (int rows = 3; rows <= ROWS; rows += 83 * 3) {
        for (int i = 0; i < rows; i++)
            for (int c = 0; c < CHANNELS; c++) {
                x[i * CHANNELS + c] = (int16_t)(30011 - 951 * c + (i % 3 == 1));
                dy[i * CHANNELS + c] = (int16_t)(32749 - 17 * c - i / 3);
                gamma[c] = 16384;
            }
        struct work w = {.format = FMT_DFP16,
                         .rows = rows,
                         .channels = CHANNELS,
                         .x = of_mantissas(FMT_DFP16, rows, CHANNELS, rows % 2 ? 3 : 11, x),
                         .dy = of_mantissas(FMT_DFP16, rows, CHANNELS, -128, dy),
                         .gamma = of_mantissas(FMT_DFP16, 0, CHANNELS, 14, gamma),
                         .mean = mean,
                         .variance = variance,
                         .epsilon = 1e-5,
                         .gradient = true,
                         .predictor = "current",
                         .e_out = 8};
        host_moments(mean, variance, w.x);
        struct outputs o = run(&w);
        for (int c = 0; c < CHANNELS; c++)
            CHECK(mantissa(o.dgamma, c) == 0, "%d rows, channel %d: %d at exponent %d", rows, c, mantissa(o.dgamma, c),
                  tensor_exponent(o.dgamma));
        free_outputs(&o);
        tensor_free(w.x);
        tensor_free(w.dy);
        tensor_free(w.gamma);
    }
}

/* A mean that is not that of x counts as it is given, close to x or not. */
static void gradient_about_another_mean(void) {
    const int16_t x[] = {100, 101, 103, 96}, dy[] = {1, -2, 7, 4}, one = 16384;
    const double variance = 3, means[] = {100, 100.25, -3, 1e30, -1e30};
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++) {
        struct work w = {.format = FMT_DFP16,
                         .rows = 4,
                         .channels = 1,
                         .x = of_mantissas(FMT_DFP16, 4, 1, 0, x),
                         .dy = of_mantissas(FMT_DFP16, 4, 1, 2, dy),
                         .gamma = of_mantissas(FMT_DFP16, 0, 1, 14, &one),
                         .mean = &means[i],
                         .variance = &variance,
                         .epsilon = 1,
                         .gradient = true,
                         .predictor = "current",
                         .e_out = 8};
        struct outputs o = run(&w);
        long double want = 0;
        for (int j = 0; j < 4; j++)
            want += ldexpl(dy[j] * (x[j] - (long double)means[i]), -2) / 2;
        check_number("dgamma", o.dgamma, 0, want, 0);
        free_outputs(&o);
        tensor_free(w.x);
        tensor_free(w.dy);
        tensor_free(w.gamma);
    }
}

/* Gradients with exponents over the whole range of the format, from one row to very many. */
static void gradient_of_any_size(tensor_format format, int64_t rows, int64_t channels) {
    const uint64_t replay = seed;
    const bool dfp = format == FMT_DFP16;
    const int low = dfp ? -128 : 0, high = dfp ? 127 : 31;
    int16_t *image = malloc((size_t)(rows * channels) * sizeof *image);
    double *mean = malloc((size_t)channels * sizeof *mean), *variance = malloc((size_t)channels * sizeof *variance);
    struct work w = {
        .format = format, .rows = rows, .channels = channels, .mean = mean, .variance = variance, .gradient = true};
    for (int64_t c = 0; c < channels; c++)
        fill_channel(image, rows, channels, c);
    w.x = of_mantissas(format, rows, channels, between(low, high), image);
    for (int64_t c = 0; c < channels; c++)
        fill_channel(image, rows, channels, c);
    w.dy = of_mantissas(format, rows, channels, below(8) ? between(low, high) : low, image);
    if (below(2)) {
        for (int64_t i = 0; i < rows * channels; i++)
            image[i] = (int16_t)(below(2) ? between(1, 5) : 0);
        w.y = of_mantissas(format, rows, channels, 5, image);
    }
    w.gamma = random_vector(format, channels);
    w.epsilon = (double[]){1e-5, 1e-5, 1e-3, 1e-12, 0x1p-70, 10}[below(6)];
    w.predictor = dfp && below(2) ? "current" : below(2) ? "paper" : "fixed";
    w.e_out = between(low, high);
    host_moments(mean, variance, w.x);
    struct outputs o = run(&w);
    check_gradient(&w, &o, replay);
    tensor *all[] = {w.x, w.dy, w.y, w.gamma, o.image, o.dgamma, o.dbeta};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
    free(image);
    free(mean);
    free(variance);
}

/* --- the share of mantissas that coefficients of 31 bits move across an edge -------------------------------------- */

/* Counts gradients whose two terms differ in size by 2^-30 to 1, which one common shift for both would spoil. */
static void share_off_by_one(void) {
    counted = off_by_one = 0;
    for (int round = 0; round < 24; round++) {
        enum { ROWS = 512, CHANNELS = 40 };
        int16_t *m = malloc(ROWS * CHANNELS * sizeof *m);
        double mean[CHANNELS], variance[CHANNELS];
        struct work w = {.format = FMT_DFP16, .rows = ROWS, .channels = CHANNELS, .gradient = round % 2};
        for (int i = 0; i < ROWS * CHANNELS; i++)
            m[i] = (int16_t)between(-20000, 20000);
        w.x = of_mantissas(w.format, ROWS, CHANNELS, 14, m);
        for (int i = 0; i < ROWS * CHANNELS; i++)
            m[i] = (int16_t)(between(-20000, 20000) + (w.gradient && i % 3 ? m[i] / 4 : 0));
        *(w.gradient ? &w.dy : &w.r) = of_mantissas(w.format, ROWS, CHANNELS, between(12, 18), m);
        w.gamma = random_vector(w.format, CHANNELS);
        tensor_declare_exponent(w.gamma, 15);
        w.beta = random_vector(w.format, CHANNELS);
        tensor_declare_exponent(w.beta, 15);
        w.mean = mean;
        w.variance = variance;
        w.epsilon = 1e-5;
        w.predictor = "current";
        w.e_out = 8;
        host_moments(mean, variance, w.x);
        struct outputs o = run(&w);
        if (w.gradient)
            check_gradient(&w, &o, 0);
        else
            check_forward(&w, &o, 0);
        tensor *all[] = {w.x, w.r, w.dy, w.gamma, w.beta, o.image, o.dgamma, o.dbeta};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            tensor_free(all[i]);
        free(m);
    }
    printf("%" PRId64 " of %" PRId64 " mantissas next to the exact result rounded\n", off_by_one, counted);
    CHECK(off_by_one * 100000 <= counted, "more than 0.001 %%");
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 16) : 0xba7c4;
    const int rounds = argc > 2 ? atoi(argv[2]) : 60;
    needs_steep_multipliers();
    evaluates_constant_channel();
    gradient_of_few_steps();
    constant_channels_give_beta();
    residual_at_the_mean();
    far_apart_above_a_tie();
    refuses_what_is_not_finite();
    for (int round = 0; round < rounds; round++)
        for (int f = 0; f < 2; f++)
            random_case(f ? FMT_FLEX16_5 : FMT_DFP16, between(2, below(8) ? 60 : 700),
                        below(3) ? between(1, 40) : between(1, 300));
    cancelled_gradients_are_zero();
    gradient_about_another_mean();
    for (int round = 0; round < rounds * 4; round++)
        gradient_of_any_size(round % 2 ? FMT_FLEX16_5 : FMT_DFP16, 1 + below((int64_t)1 << between(0, 12)),
                             between(1, 8));
    gradient_of_any_size(FMT_DFP16, 300007, 1);
    share_off_by_one();
    return check_summary();
}
