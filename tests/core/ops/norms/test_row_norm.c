/* Layer normalisation and normalisation by the root mean square: forward and gradients against their formulas in long
 * double, in every format, over rows that vary, hardly vary or do not vary at all; gradients by finite differences; the
 * formats against each other. */
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

enum { N = 200 };

/* The error of exact integers times a coefficient of 31 bits, and of roundings of doubles, is less than this. */
static const long double coefficient = 0x1p-28L;

struct numbers {
    long double mean, inverse;
};

static struct numbers numbers_of(const double *x, int64_t n, bool mean_square, double epsilon) {
    long double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    const long double mean = mean_square ? 0 : sum / n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return (struct numbers){mean, 1 / sqrtl(squares / n + epsilon)};
}

static struct held x, dy, gamma_, beta, y, dx, dgamma, dbeta;

static void free_all(void) {
    struct held *all[] = {&x, &dy, &gamma_, &beta, &y, &dx, &dgamma, &dbeta};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tensor_free(all[i]->t);
        all[i]->t = NULL;
    }
}

static void check_forward(const char *what, int64_t m, int64_t n, bool rms, bool with_beta, double epsilon) {
    CHECK(!(rms ? tensor_rmsnorm(y.t, x.t, gamma_.t, epsilon)
                : tensor_layernorm(y.t, x.t, gamma_.t, with_beta ? beta.t : NULL, epsilon)),
          "%s: %s", what, tensor_error());
    hold(&y);
    long double largest = 0;
    for (int64_t i = 0; i < m * n; i++) {
        const struct numbers r = numbers_of(x.v + i / n * n, n, rms, epsilon);
        const int64_t c = i % n;
        const long double scaled = gamma_.v[c] * (x.v[i] - r.mean) * r.inverse, add = with_beta && !rms ? beta.v[c] : 0;
        const long double want = scaled + add;
        /* the nearest mantissa to the mean is up to half a mantissa away from it */
        const long double step =
            tensor_format_is_shared(tensor_format_of(x.t))
                ? ldexpl(1, -tensor_exponent(x.t)) * r.inverse * fabsl((long double)gamma_.v[c])
                : 0x1p-20L * (fabsl(scaled) + fabsl(r.mean * r.inverse * gamma_.v[c]) + fabsl(add));
        CHECK(near_to(&y, i, want, coefficient * (fabsl(scaled) + step)), "%s [%lld,%lld] i=%lld got %a want %La", what,
              (long long)m, (long long)n, (long long)i, y.v[i], want);
        largest = fabsl(want) > largest ? fabsl(want) : largest;
    }
    tensor_stats last;
    CHECK(!tensor_statistics(&last, NULL, y.t) && fabsl(last.maximum - largest) <= largest * 1e-6L + 1e-12L,
          "%s: maximum %a want %La", what, last.maximum, largest);
}

static void check_backward(const char *what, int64_t m, int64_t n, bool rms, double epsilon) {
    static long double by_gamma[MOST], size[MOST], by_beta[MOST], beta_size[MOST];
    CHECK(!(rms ? tensor_rmsnorm_grad(dx.t, dgamma.t, dy.t, x.t, gamma_.t, epsilon)
                : tensor_layernorm_grad(dx.t, dgamma.t, dbeta.t, dy.t, x.t, gamma_.t, epsilon)),
          "%s: %s", what, tensor_error());
    hold(&dx);
    hold(&dgamma);
    hold(&dbeta);
    for (int64_t c = 0; c < n; c++)
        by_gamma[c] = size[c] = by_beta[c] = beta_size[c] = 0;
    for (int64_t row = 0; row < m; row++) {
        const double *of_x = x.v + row * n, *of_dy = dy.v + row * n;
        const struct numbers r = numbers_of(of_x, n, rms, epsilon);
        long double s1 = 0, s2 = 0, scale = 0;
        for (int64_t c = 0; c < n; c++) {
            const long double g = (long double)of_dy[c] * gamma_.v[c], normal = (of_x[c] - r.mean) * r.inverse;
            s1 += g;
            s2 += g * normal;
            scale += fabsl(g) + fabsl(g * normal);
            by_gamma[c] += of_dy[c] * normal;
            size[c] += fabsl(of_dy[c] * normal) + fabsl(of_dy[c] * r.mean * r.inverse) * 0x1p-20L;
            by_beta[c] += of_dy[c];
            beta_size[c] += fabsl((long double)of_dy[c]);
        }
        s1 = rms ? 0 : s1 / n;
        s2 /= n;
        const long double off = scale / n + fabsl(r.mean * r.inverse) * scale / n * 0x1p-16L;
        for (int64_t c = 0; c < n; c++) {
            const long double g = (long double)of_dy[c] * gamma_.v[c], normal = (of_x[c] - r.mean) * r.inverse;
            const long double want = r.inverse * (g - s1 - normal * s2);
            const long double terms =
                r.inverse * (fabsl(g) + fabsl(s1) + fabsl(normal * s2) + (1 + fabsl(normal)) * off);
            CHECK(near_to(&dx, row * n + c, want, coefficient * terms), "%s dx [%lld,%lld] i=%lld got %a want %La",
                  what, (long long)m, (long long)n, (long long)(row * n + c), dx.v[row * n + c], want);
        }
    }
    const bool shared = tensor_format_is_shared(tensor_format_of(x.t));
    for (int64_t c = 0; c < n; c++) {
        CHECK(near_to(&dgamma, c, by_gamma[c], coefficient * size[c]), "%s dgamma c=%lld got %a want %La", what,
              (long long)c, dgamma.v[c], by_gamma[c]);
        CHECK(rms || near_to(&dbeta, c, by_beta[c], shared ? 0 : 512 * 0x1p-24L * beta_size[c]),
              "%s dbeta c=%lld got %a want %La", what, (long long)c, dbeta.v[c], by_beta[c]);
    }
}

static void check_case(tensor_format f, int64_t m, int64_t n, int style, bool rms, double epsilon) {
    char what[120];
    snprintf(what, sizeof what, "%s %s style %d epsilon %g", tensor_format_name(f), rms ? "rmsnorm" : "layernorm",
             style, epsilon);
    make(&x, f, 2, (int64_t[]){m, n}, style);
    make(&dy, f, 2, (int64_t[]){m, n}, style == 3 ? 3 : 0);
    make(&gamma_, f, 1, &n, style == 4 ? 4 : 0);
    make(&beta, f, 1, &n, 0);
    struct held *outputs[] = {&y, &dx};
    for (int i = 0; i < 2; i++)
        outputs[i]->t = tensor_new(f, 2, (int64_t[]){m, n});
    dgamma.t = tensor_new(f, 1, &n);
    dbeta.t = tensor_new(f, 1, &n);
    check_forward(what, m, n, rms, style % 2, epsilon);
    check_backward(what, m, n, rms, epsilon);
    free_all();
}

/* A row that repeats one mantissa gives beta, exactly; a row of zeros has the gradients of the sum. */
static void check_constant(tensor_format f) {
    enum { C = 37 };
    make(&gamma_, f, 1, (int64_t[]){C}, 0);
    make(&beta, f, 1, (int64_t[]){C}, 0);
    x.t = tensor_new(f, 2, (int64_t[]){3, C});
    y.t = tensor_new(f, 2, (int64_t[]){3, C});
    double values[3 * C];
    for (int i = 0; i < 3 * C; i++)
        values[i] = (double[]){0, 5.5, -0.25}[i / C];
    CHECK(!tensor_load_f64(x.t, values, 3 * C) && !tensor_layernorm(y.t, x.t, gamma_.t, beta.t, 1e-300), "%s",
          tensor_error());
    hold(&y);
    for (int i = 0; i < 3 * C; i++)
        CHECK(near_to(&y, i, beta.v[i % C], 0), "%s i=%d got %a want %a", tensor_format_name(f), i, y.v[i],
              beta.v[i % C]);
    free_all();
}

/* --- finite differences, in fp32 ---------------------------------------------------------------------------------- */

/* The sum of dy y, with one number of one operand changed. */
static double loss_with(struct held *moved, int64_t i, double by, bool rms) {
    double values[MOST], sum = 0;
    memcpy(values, moved->v, (size_t)moved->n * sizeof *values);
    values[i] += by;
    CHECK(!tensor_load_f64(moved->t, values, moved->n), "%s", tensor_error());
    CHECK(!(rms ? tensor_rmsnorm(y.t, x.t, gamma_.t, 1e-3) : tensor_layernorm(y.t, x.t, gamma_.t, beta.t, 1e-3)), "%s",
          tensor_error());
    CHECK(!tensor_load_f64(moved->t, moved->v, moved->n), "%s", tensor_error());
    hold(&y);
    for (int64_t j = 0; j < y.n; j++)
        sum += dy.v[j] * y.v[j];
    return sum;
}

static void check_differences(bool rms) {
    enum { M = 3, C = 11 };
    make(&x, FMT_FP32, 2, (int64_t[]){M, C}, 0);
    make(&dy, FMT_FP32, 2, (int64_t[]){M, C}, 0);
    make(&gamma_, FMT_FP32, 1, (int64_t[]){C}, 0);
    make(&beta, FMT_FP32, 1, (int64_t[]){C}, 0);
    y.t = tensor_new(FMT_FP32, 2, (int64_t[]){M, C});
    dx.t = tensor_new(FMT_FP32, 2, (int64_t[]){M, C});
    dgamma.t = tensor_new(FMT_FP32, 1, (int64_t[]){C});
    dbeta.t = tensor_new(FMT_FP32, 1, (int64_t[]){C});
    CHECK(!(rms ? tensor_rmsnorm_grad(dx.t, dgamma.t, dy.t, x.t, gamma_.t, 1e-3)
                : tensor_layernorm_grad(dx.t, dgamma.t, dbeta.t, dy.t, x.t, gamma_.t, 1e-3)),
          "%s", tensor_error());
    hold(&dx);
    hold(&dgamma);
    hold(&dbeta);
    struct held *moved[] = {&x, &gamma_, &beta}, *gradient[] = {&dx, &dgamma, &dbeta};
    const double h = 0x1p-8;
    for (int k = 0; k < (rms ? 2 : 3); k++)
        for (int64_t i = 0; i < moved[k]->n; i++) {
            const double slope = (loss_with(moved[k], i, h, rms) - loss_with(moved[k], i, -h, rms)) / (2 * h);
            /* rounding of 33 elements of y, and h^2 / 6 times a third derivative */
            CHECK(fabs(slope - gradient[k]->v[i]) < 2e-3, "rms %d operand %d i=%lld slope %g gradient %g", rms, k,
                  (long long)i, slope, gradient[k]->v[i]);
        }
    free_all();
}

/* --- the formats against fp32 ------------------------------------------------------------------------------------- */

/* On numbers that all formats represent exactly, results differ only by the roundings of both. */
static void check_formats(bool rms) {
    enum { M = 9, C = 24 };
    double values[3][M * C];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < M * C; i++)
            values[k][i] = between(-100, 100) * 0x1p-5;
    static struct held reference;
    for (int f = 0; f < 5; f++) {
        x.t = tensor_new(all_formats[f], 2, (int64_t[]){M, C});
        y.t = tensor_new(all_formats[f], 2, (int64_t[]){M, C});
        gamma_.t = tensor_new(all_formats[f], 1, (int64_t[]){C});
        beta.t = tensor_new(all_formats[f], 1, (int64_t[]){C});
        CHECK(!tensor_load_f64(x.t, values[0], M * C) && !tensor_load_f64(gamma_.t, values[1], C) &&
                  !tensor_load_f64(beta.t, values[2], C),
              "%s", tensor_error());
        CHECK(!(rms ? tensor_rmsnorm(y.t, x.t, gamma_.t, 1e-5) : tensor_layernorm(y.t, x.t, gamma_.t, beta.t, 1e-5)),
              "%s", tensor_error());
        hold(&y);
        if (f == 0)
            memcpy(&reference, &y, sizeof y);
        for (int i = 0; i < M * C; i++)
            CHECK(near_to(&y, i, reference.v[i], fabs(reference.v[i]) * 0x1p-23 + 0x1p-26), "%s i=%d got %a, fp32 %a",
                  tensor_format_name(all_formats[f]), i, y.v[i], reference.v[i]);
        free_all();
    }
}

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(4, 6)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(4, 6)),
           *c = tensor_new(FMT_FP32, TENSOR_SHAPE(6)), *d = tensor_new(FMT_FP32, TENSOR_SHAPE(5)),
           *h = tensor_new(FMT_FP16, TENSOR_SHAPE(6)), *e = tensor_new(FMT_FP32, TENSOR_SHAPE(6));
    CHECK(tensor_layernorm(a, a, c, NULL, 1e-5) == TENSOR_E_ARGUMENT, "in place");
    CHECK(tensor_layernorm(a, b, d, NULL, 1e-5) == TENSOR_E_SHAPE && strstr(tensor_error(), "gamma is 5, expected 6"),
          "%s", tensor_error());
    CHECK(tensor_layernorm(a, b, c, h, 1e-5) == TENSOR_E_FORMAT, "%s", tensor_error());
    CHECK(tensor_layernorm(a, b, c, c, 0) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "epsilon is 0"), "%s",
          tensor_error());
    CHECK(tensor_rmsnorm(a, b, NULL, 1e-5) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "gamma is NULL"), "%s",
          tensor_error());
    CHECK(tensor_rmsnorm(a, b, c, INFINITY) == TENSOR_E_ARGUMENT, "%s", tensor_error());
    CHECK(tensor_layernorm_grad(a, e, e, b, b, c, 1e-5) == TENSOR_E_ARGUMENT, "one tensor for both: %s",
          tensor_error());
    CHECK(tensor_layernorm_grad(a, c, NULL, b, b, c, 1e-5) == TENSOR_E_ARGUMENT, "dgamma is gamma: %s", tensor_error());
    CHECK(!tensor_layernorm_grad(a, e, NULL, b, b, c, 1e-5), "%s", tensor_error());
    tensor *all[] = {a, b, c, d, e, h};
    for (int i = 0; i < 6; i++)
        tensor_free(all[i]);
}

int main(void) {
    static const int64_t shapes[][2] = {{1, 1}, {4, 7}, {3, 64}, {30, 33}, {1100, 5}, {2, 1030}};
    static const double epsilons[] = {1e-5, 1e-12, 1, 1e-300};
    draws = 20260101;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int i = 0; i < 2 * 5 * 6; i++) { /* the best kernels, then those of the reference */
        const int f = i / 6 % 5, s = i % 6;
        CHECK(!tensor_set_backend(i < 5 * 6 ? NULL : "ref"), "%s", tensor_error());
        for (int style = 0; style < STYLES; style++)
            for (int rms = 0; rms < 2; rms++)
                check_case(all_formats[f], shapes[s][0], shapes[s][1], style, rms,
                           epsilons[style == 2 || style == 4 ? 0 : (s + style) % 4]);
    }
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
    for (int f = 0; f < 5; f++)
        check_constant(all_formats[f]);
    for (int rms = 0; rms < 2; rms++) {
        check_differences(rms);
        check_formats(rms);
    }
    check_errors();
    return check_summary();
}
