/* Group normalisation and its gradients: values in long double as the witness, with a bound on the errors of
 * coefficients of 31 bits and of sums of float formats; central differences in fp32; the formats against fp32; and
 * cases with the same bits: one group of images of one pixel is layer normalisation. */
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

struct sizes {
    int64_t n, pixels, channels;
    int groups;
};

/* Mean and 1 / sqrt(variance + epsilon) of a group of an image. */
struct numbers {
    long double mean, inverse;
};

static int64_t element(const struct sizes *s, int64_t image, int64_t group, int64_t i) {
    const int64_t depth = s->channels / s->groups;
    return (image * s->pixels + i / depth) * s->channels + group * depth + i % depth;
}

static struct numbers numbers_of(const struct sizes *s, const double *x, int64_t image, int64_t group, double epsilon) {
    const int64_t size = s->pixels * s->channels / s->groups;
    struct numbers r = {0, 0};
    long double sum = 0;
    for (int64_t i = 0; i < size; i++)
        r.mean += x[element(s, image, group, i)];
    r.mean /= size;
    for (int64_t i = 0; i < size; i++) {
        const long double distance = x[element(s, image, group, i)] - r.mean;
        sum += distance * distance;
    }
    r.inverse = 1 / sqrtl(sum / size + epsilon);
    return r;
}

static struct held x, y, dy, dx, gamma_, beta, dgamma, dbeta;
/* Relative: 31 bits of three coefficients, and the errors of the doubles behind them; binary32 sums of dbeta are
 * bounded in their comparison. */
static const long double coefficient = 3 * 0x1p-31L;

static void free_all(void) {
    struct held *all[] = {&x, &y, &dy, &dx, &gamma_, &beta, &dgamma, &dbeta};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tensor_free(all[i]->t);
        all[i]->t = NULL;
    }
}

static void check_forward(const char *what, const struct sizes *s, bool with_beta, double epsilon) {
    const int64_t size = s->pixels * s->channels / s->groups;
    CHECK(!tensor_groupnorm(y.t, x.t, gamma_.t, with_beta ? beta.t : NULL, s->groups, epsilon), "%s: %s", what,
          tensor_error());
    hold(&y);
    long double largest = 0;
    for (int64_t image = 0; image < s->n; image++)
        for (int64_t group = 0; group < s->groups; group++) {
            const struct numbers r = numbers_of(s, x.v, image, group, epsilon);
            for (int64_t i = 0; i < size; i++) {
                const int64_t at = element(s, image, group, i), c = at % s->channels;
                const long double scaled = gamma_.v[c] * (x.v[at] - r.mean) * r.inverse,
                                  add = with_beta ? beta.v[c] : 0, want = scaled + add;
                /* the nearest mantissa to the mean is up to half a mantissa away from it */
                const long double step =
                    tensor_format_is_shared(tensor_format_of(x.t))
                        ? ldexpl(1, -tensor_exponent(x.t)) * r.inverse * fabsl((long double)gamma_.v[c])
                        : 0x1p-20L * (fabsl(scaled) + fabsl(r.mean * r.inverse * gamma_.v[c]) + fabsl(add));
                CHECK(near_to(&y, at, want, coefficient * (fabsl(scaled) + step)), "%s i=%lld got %a want %La", what,
                      (long long)at, y.v[at], want);
                largest = fabsl(want) > largest ? fabsl(want) : largest;
            }
        }
    tensor_stats last;
    CHECK(!tensor_statistics(&last, NULL, y.t) && fabsl(last.maximum - largest) <= largest * 1e-6L + 1e-12L,
          "%s: maximum %a want %La", what, last.maximum, largest);
}

static void check_backward(const char *what, const struct sizes *s, double epsilon) {
    static long double by_gamma[MOST], reach[MOST], by_beta[MOST], beta_reach[MOST];
    const int64_t size = s->pixels * s->channels / s->groups;
    CHECK(!tensor_groupnorm_grad(dx.t, dgamma.t, dbeta.t, dy.t, x.t, gamma_.t, s->groups, epsilon), "%s: %s", what,
          tensor_error());
    hold(&dx);
    hold(&dgamma);
    hold(&dbeta);
    for (int64_t c = 0; c < s->channels; c++)
        by_gamma[c] = reach[c] = by_beta[c] = beta_reach[c] = 0;
    for (int64_t image = 0; image < s->n; image++)
        for (int64_t group = 0; group < s->groups; group++) {
            const struct numbers r = numbers_of(s, x.v, image, group, epsilon);
            long double s1 = 0, s2 = 0, scale = 0;
            for (int64_t i = 0; i < size; i++) {
                const int64_t at = element(s, image, group, i), c = at % s->channels;
                const long double g = (long double)dy.v[at] * gamma_.v[c], normal = (x.v[at] - r.mean) * r.inverse;
                s1 += g;
                s2 += g * normal;
                scale += fabsl(g) + fabsl(g * normal);
                by_gamma[c] += dy.v[at] * normal;
                reach[c] += fabsl(dy.v[at] * normal) + fabsl(dy.v[at] * r.mean * r.inverse) * 0x1p-20L;
                by_beta[c] += dy.v[at];
                beta_reach[c] += fabsl((long double)dy.v[at]);
            }
            s1 /= size;
            s2 /= size;
            const long double off = scale / size + fabsl(r.mean * r.inverse) * scale / size * 0x1p-16L;
            for (int64_t i = 0; i < size; i++) {
                const int64_t at = element(s, image, group, i), c = at % s->channels;
                const long double g = (long double)dy.v[at] * gamma_.v[c], normal = (x.v[at] - r.mean) * r.inverse;
                const long double want = r.inverse * (g - s1 - normal * s2);
                const long double terms =
                    r.inverse * (fabsl(g) + fabsl(s1) + fabsl(normal * s2) + (1 + fabsl(normal)) * off);
                CHECK(near_to(&dx, at, want, coefficient * terms), "%s dx i=%lld got %a want %La", what, (long long)at,
                      dx.v[at], want);
            }
        }
    const bool shared = tensor_format_is_shared(tensor_format_of(x.t));
    for (int64_t c = 0; c < s->channels; c++) {
        CHECK(near_to(&dgamma, c, by_gamma[c], coefficient * reach[c]), "%s dgamma c=%lld got %a want %La", what,
              (long long)c, dgamma.v[c], by_gamma[c]);
        CHECK(near_to(&dbeta, c, by_beta[c], shared ? 0 : 512 * 0x1p-24L * beta_reach[c]),
              "%s dbeta c=%lld got %a want %La", what, (long long)c, dbeta.v[c], by_beta[c]);
    }
}

static void make_all(tensor_format f, const struct sizes *s, int style) {
    const int64_t shape[3] = {s->n, s->pixels, s->channels};
    make(&x, f, 3, shape, style);
    make(&dy, f, 3, shape, style == 3 ? 3 : 0);
    make(&gamma_, f, 1, &s->channels, style == 4 ? 4 : 0);
    make(&beta, f, 1, &s->channels, 0);
    y.t = tensor_new(f, 3, shape);
    dx.t = tensor_new(f, 3, shape);
    dgamma.t = tensor_new(f, 1, &s->channels);
    dbeta.t = tensor_new(f, 1, &s->channels);
}

static void check_case(tensor_format f, const struct sizes *s, int style, double epsilon) {
    char what[120];
    snprintf(what, sizeof what, "%s [%lld,%lld,%lld] %d groups style %d epsilon %g", tensor_format_name(f),
             (long long)s->n, (long long)s->pixels, (long long)s->channels, s->groups, style, epsilon);
    make_all(f, s, style);
    check_forward(what, s, style % 2, epsilon);
    check_backward(what, s, epsilon);
    free_all();
}

static void check_same(const char *what, const tensor *a, const tensor *b) {
    CHECK(!memcmp(tensor_const_data(a), tensor_const_data(b), tensor_bytes(a)) &&
              tensor_exponent(a) == tensor_exponent(b),
          "%s of %s differs from that of layer normalisation", what, tensor_format_name(tensor_format_of(a)));
}

/* With one group and one pixel, each image is a row, as in layernorm. */
static void check_rows(tensor_format f) {
    const struct sizes s = {9, 1, 35, 1};
    make_all(f, &s, 0);
    tensor *rows = tensor_new(f, TENSOR_SHAPE(9, 1, 35)), *by_gamma = tensor_new(f, TENSOR_SHAPE(35)),
           *by_beta = tensor_new(f, TENSOR_SHAPE(35));
    CHECK(!tensor_groupnorm(y.t, x.t, gamma_.t, beta.t, 1, 1e-5) &&
              !tensor_layernorm(rows, x.t, gamma_.t, beta.t, 1e-5),
          "%s", tensor_error());
    check_same("y", y.t, rows);
    CHECK(!tensor_groupnorm_grad(dx.t, dgamma.t, dbeta.t, dy.t, x.t, gamma_.t, 1, 1e-5), "%s", tensor_error());
    tensor_free(rows);
    rows = tensor_new(f, TENSOR_SHAPE(9, 1, 35));
    CHECK(!tensor_layernorm_grad(rows, by_gamma, by_beta, dy.t, x.t, gamma_.t, 1e-5), "%s", tensor_error());
    check_same("dx", dx.t, rows);
    check_same("dgamma", dgamma.t, by_gamma);
    check_same("dbeta", dbeta.t, by_beta);
    tensor_free(rows);
    tensor_free(by_gamma);
    tensor_free(by_beta);
    free_all();
}

/* Instance normalisation of constant channels gives beta, exactly. */
static void check_constant(tensor_format f) {
    const struct sizes s = {2, 6, 5, 5};
    make_all(f, &s, 0);
    double values[60];
    for (int i = 0; i < 60; i++)
        values[i] = i % 5 * 0.75 - 1 + i / 30;
    CHECK(!tensor_load_f64(x.t, values, 60) && !tensor_groupnorm(y.t, x.t, gamma_.t, beta.t, 5, 1e-300), "%s",
          tensor_error());
    hold(&y);
    for (int i = 0; i < 60; i++)
        CHECK(near_to(&y, i, beta.v[i % 5], 0), "%s i=%d got %a want %a", tensor_format_name(f), i, y.v[i],
              beta.v[i % 5]);
    free_all();
}

/* --- finite differences, in fp32 ---------------------------------------------------------------------------------- */

/* The sum of dy y, with one number of one operand changed. */
static double loss_with(const struct sizes *s, struct held *moved, int64_t i, double by) {
    double values[MOST], sum = 0;
    memcpy(values, moved->v, (size_t)moved->n * sizeof *values);
    values[i] += by;
    CHECK(!tensor_load_f64(moved->t, values, moved->n), "%s", tensor_error());
    CHECK(!tensor_groupnorm(y.t, x.t, gamma_.t, beta.t, s->groups, 1e-3), "%s", tensor_error());
    CHECK(!tensor_load_f64(moved->t, moved->v, moved->n), "%s", tensor_error());
    hold(&y);
    for (int64_t j = 0; j < y.n; j++)
        sum += dy.v[j] * y.v[j];
    return sum;
}

static void check_differences(void) {
    const struct sizes s = {2, 3, 6, 2};
    make_all(FMT_FP32, &s, 0);
    CHECK(!tensor_groupnorm_grad(dx.t, dgamma.t, dbeta.t, dy.t, x.t, gamma_.t, s.groups, 1e-3), "%s", tensor_error());
    hold(&dx);
    hold(&dgamma);
    hold(&dbeta);
    struct held *moved[] = {&x, &gamma_, &beta}, *gradient[] = {&dx, &dgamma, &dbeta};
    const double h = 0x1p-8;
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < moved[k]->n; i++) {
            const double slope = (loss_with(&s, moved[k], i, h) - loss_with(&s, moved[k], i, -h)) / (2 * h);
            /* rounding of 36 elements of y, and h^2 / 6 times a third derivative */
            CHECK(fabs(slope - gradient[k]->v[i]) < 2e-3, "operand %d i=%lld slope %g gradient %g", k, (long long)i,
                  slope, gradient[k]->v[i]);
        }
    free_all();
}

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(4, 2, 6)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(4, 2, 6)),
           *c = tensor_new(FMT_FP32, TENSOR_SHAPE(6)), *d = tensor_new(FMT_FP32, TENSOR_SHAPE(5)),
           *h = tensor_new(FMT_FP16, TENSOR_SHAPE(6)), *e = tensor_new(FMT_FP32, TENSOR_SHAPE(6)),
           *v = tensor_new(FMT_FP32, TENSOR_SHAPE(6));
#define REFUSED(call, status, words)                                                                                   \
    CHECK((call) == (status) && strstr(tensor_error(), words), "%s: expected %s, got '%s'", #call, words,              \
          tensor_error())
    REFUSED(tensor_groupnorm(a, a, c, NULL, 2, 1e-5), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_groupnorm(a, b, d, NULL, 2, 1e-5), TENSOR_E_SHAPE, "gamma is 5, expected 6");
    REFUSED(tensor_groupnorm(a, b, c, h, 2, 1e-5), TENSOR_E_FORMAT, "fp16");
    REFUSED(tensor_groupnorm(a, b, c, e, 4, 1e-5), TENSOR_E_ARGUMENT, "4 groups, expected a divisor of 6 channels");
    REFUSED(tensor_groupnorm(a, b, c, e, 0, 1e-5), TENSOR_E_ARGUMENT, "groups is 0");
    REFUSED(tensor_groupnorm(a, b, c, e, -2, 1e-5), TENSOR_E_ARGUMENT, "groups is -2");
    REFUSED(tensor_groupnorm(a, b, c, e, 2, 0), TENSOR_E_ARGUMENT, "epsilon is 0");
    REFUSED(tensor_groupnorm(a, b, c, e, 2, NAN), TENSOR_E_ARGUMENT, "epsilon");
    REFUSED(tensor_groupnorm(e, v, c, NULL, 2, 1e-5), TENSOR_E_SHAPE, "expected [N,...,C]");
    REFUSED(tensor_groupnorm_grad(a, e, e, b, b, c, 2, 1e-5), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_groupnorm_grad(a, c, NULL, b, b, c, 2, 1e-5), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_groupnorm_grad(a, NULL, NULL, b, b, c, 2, 1e-5), TENSOR_E_ARGUMENT, "dgamma is NULL");
    CHECK(!tensor_groupnorm_grad(a, e, NULL, b, b, c, 2, 1e-5), "%s", tensor_error());
    tensor *all[] = {a, b, c, d, e, h, v};
    for (int i = 0; i < 7; i++)
        tensor_free(all[i]);
}

int main(int argc, char **argv) {
    static const struct sizes sizes[] = {{1, 1, 1, 1},   {3, 5, 6, 2},   {2, 9, 16, 16},
                                         {2, 300, 4, 1}, {5, 30, 33, 3}, {1, 17, 130, 2}};
    static const double epsilons[] = {1e-5, 1e-12, 1, 1e-300};
    draws = argc > 1 ? strtoull(argv[1], NULL, 0) : 20260401;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int i = 0; i < 2 * 5 * 6; i++) { /* the best kernels, then those of the reference */
        const int s = i % 6;
        CHECK(!tensor_set_backend(i < 5 * 6 ? NULL : "ref"), "%s", tensor_error());
        for (int style = 0; style < STYLES; style++)
            check_case(all_formats[i / 6 % 5], &sizes[s], style,
                       epsilons[style == 2 || style == 4 ? 0 : (s + style) % 4]);
    }
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
    for (int f = 0; f < 5; f++) {
        check_rows(all_formats[f]);
        check_constant(all_formats[f]);
    }
    check_differences();
    check_errors();
    return check_summary();
}
