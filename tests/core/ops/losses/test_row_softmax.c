/* Softmax of rows and its logarithm: against their formulas in long double, in every format; the causal mask; the
 * gradient of softmax in integer formats against 128-bit integers, bit for bit; gradients by finite differences. */
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

__extension__ typedef __int128 int128;

static struct held x, y, dy, dx;

static void free_all(void) {
    struct held *all[] = {&x, &y, &dy, &dx};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tensor_free(all[i]->t);
        all[i]->t = NULL;
    }
}

/* The number of elements that take part in row i of [q, n]. */
static int64_t seen(int64_t i, int64_t q, int64_t n, bool causal) {
    int64_t count = 0;
    for (int64_t j = 0; j < n; j++)
        count += !causal || j - i <= n - q;
    return count;
}

static void check_forward(const char *what, int64_t q, int64_t n, float scale, bool causal, bool logarithm) {
    CHECK(!(logarithm ? tensor_log_softmax(y.t, x.t, scale) : tensor_softmax(y.t, x.t, scale, causal)), "%s: %s", what,
          tensor_error());
    hold(&y);
    for (int64_t row = 0; row < x.n / n; row++) {
        const int64_t count = seen(row % q, q, n, causal);
        const double *z = x.v + row * n;
        long double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < count; j++)
            top = fmaxl(top, (long double)scale * z[j]);
        for (int64_t j = 0; j < count; j++)
            sum += expl((long double)scale * z[j] - top);
        for (int64_t j = 0; j < n; j++) {
            const long double at = (long double)scale * z[j] - top;
            const long double want = j >= count ? 0 : logarithm ? at - logl(sum) : expl(at) / sum;
            CHECK(j < count ? near_to(&y, row * n + j, want, 0x1p-45L * (1 + fabsl(at))) : y.v[row * n + j] == 0,
                  "%s row %lld of [%lld,%lld] j=%lld got %a want %La", what, (long long)row, (long long)q, (long long)n,
                  (long long)j, y.v[row * n + j], want);
        }
    }
}

static int128 rounded(int128 v, int down) { /* to nearest, ties to even; down: places lost */
    if (down <= 0)
        return v * ((int128)1 << -down);
    const int128 floor = v >> down, rest = v - floor * ((int128)1 << down), half = (int128)1 << (down - 1);
    return floor + (rest > half || (rest == half && (floor & 1)));
}

/* dx from mantissas, as integers: scale p (dp - sum p dp), exact and rounded once. */
static void check_exact_gradient(const char *what, int64_t q, int64_t n, float scale, bool causal) {
    int e_scale;
    const int64_t m_scale = (int64_t)(frexpf(scale, &e_scale) * 0x1p24f);
    e_scale = 24 - e_scale;
    const int16_t *p = tensor_const_data(y.t), *dp = tensor_const_data(dy.t), *got = tensor_const_data(dx.t);
    const int ep = tensor_exponent(y.t), e = e_scale + 2 * ep + tensor_exponent(dy.t), out = tensor_exponent(dx.t);
    for (int64_t row = 0; row < y.n / n; row++) {
        const int64_t count = seen(row % q, q, n, causal);
        int128 dot = 0;
        for (int64_t j = 0; j < count; j++)
            dot += (int128)p[row * n + j] * dp[row * n + j];
        for (int64_t j = 0; j < n; j++) {
            const int128 exact =
                j < count ? (int128)m_scale * p[row * n + j] * (dp[row * n + j] * ((int128)1 << ep) - dot) : 0;
            int128 want = rounded(exact, e - out);
            want = want > 32767 ? 32767 : want < -32767 ? -32767 : want;
            CHECK(got[row * n + j] == (int16_t)want, "%s row %lld j=%lld got %d want %d", what, (long long)row,
                  (long long)j, got[row * n + j], (int)want);
        }
    }
}

static void check_gradient(const char *what, int64_t q, int64_t n, float scale, bool causal, bool logarithm) {
    CHECK(!(logarithm ? tensor_log_softmax_grad(dx.t, dy.t, y.t, scale)
                      : tensor_softmax_grad(dx.t, dy.t, y.t, scale, causal)),
          "%s: %s", what, tensor_error());
    hold(&dx);
    if (!logarithm && tensor_format_is_shared(tensor_format_of(x.t)))
        check_exact_gradient(what, q, n, scale, causal);
    for (int64_t row = 0; row < x.n / n; row++) {
        const int64_t count = logarithm ? n : seen(row % q, q, n, causal);
        long double sum = 0, size = 0;
        for (int64_t j = 0; j < count; j++) {
            const long double part = (long double)dy.v[row * n + j] * (logarithm ? 1 : y.v[row * n + j]);
            sum += part;
            size += fabsl(part);
        }
        for (int64_t j = 0; j < n; j++) {
            const long double of_y = y.v[row * n + j], of_dy = dy.v[row * n + j];
            const long double want = j >= count  ? 0
                                     : logarithm ? scale * (of_dy - expl(of_y) * sum)
                                                 : scale * of_y * (of_dy - sum);
            CHECK(near_to(&dx, row * n + j, want, 0x1p-40L * fabsl(scale) * (fabsl(of_dy) + size)),
                  "%s gradient row %lld j=%lld got %a want %La", what, (long long)row, (long long)j, dx.v[row * n + j],
                  want);
        }
    }
}

static void check_case(tensor_format f, int64_t batch, int64_t q, int64_t n, int style, float scale, bool causal,
                       bool logarithm) {
    char what[120];
    const int64_t shape[] = {batch, q, n};
    snprintf(what, sizeof what, "%s %s style %d scale %g%s", tensor_format_name(f),
             logarithm ? "log_softmax" : "softmax", style, (double)scale, causal ? " causal" : "");
    make(&x, f, 3, shape, style);
    make(&dy, f, 3, shape, 0);
    y.t = tensor_new(f, 3, shape);
    dx.t = tensor_new(f, 3, shape);
    check_forward(what, q, n, scale, causal, logarithm);
    check_gradient(what, q, n, scale, causal, logarithm);
    free_all();
}

/* Masked elements are not read: NaN and Inf there change nothing. */
static void check_mask_hides(void) {
    enum { Q = 6 };
    double values[Q * Q], clean[Q * Q];
    tensor *a = tensor_new(FMT_FP16, TENSOR_SHAPE(Q, Q)), *b = tensor_new(FMT_FP16, TENSOR_SHAPE(Q, Q)),
           *c = tensor_new(FMT_FP16, TENSOR_SHAPE(Q, Q));
    for (int i = 0; i < Q * Q; i++) {
        clean[i] = unit();
        values[i] = i % Q > i / Q ? (i % 2 ? NAN : INFINITY) : clean[i];
    }
    for (int gradient = 0; gradient < 2; gradient++) {
        double got[Q * Q], want[Q * Q];
        CHECK(!tensor_load_f64(a, clean, Q * Q) && !tensor_load_f64(b, clean, Q * Q), "%s", tensor_error());
        CHECK(!(gradient ? tensor_softmax_grad(c, a, b, 0.5f, true) : tensor_softmax(c, a, 0.5f, true)), "%s",
              tensor_error());
        CHECK(!tensor_store_f64(c, want, Q * Q) && !tensor_load_f64(a, values, Q * Q), "%s", tensor_error());
        CHECK(!(gradient ? tensor_softmax_grad(c, a, b, 0.5f, true) : tensor_softmax(c, a, 0.5f, true)), "%s",
              tensor_error());
        CHECK(!tensor_store_f64(c, got, Q * Q), "%s", tensor_error());
        for (int i = 0; i < Q * Q; i++)
            CHECK(got[i] == want[i] && (i % Q <= i / Q || got[i] == 0), "i=%d got %g want %g", i, got[i], want[i]);
    }
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
}

/* Probabilities have e = 14, whatever was written before. */
static void check_fixed_exponent(tensor_format f) {
    make(&x, f, 2, (int64_t[]){5, 40}, 0);
    y.t = tensor_new(f, 2, (int64_t[]){5, 40});
    CHECK(!tensor_set_predictor(y.t, "fixed") && !tensor_set_exponent(y.t, 14), "%s", tensor_error());
    for (int i = 0; i < 3; i++) {
        check_forward(tensor_format_name(f), 5, 40, (float)(1 + i * i * 20), false, false);
        CHECK(tensor_exponent(y.t) == 14, "%s: exponent %d", tensor_format_name(f), tensor_exponent(y.t));
    }
    free_all();
}

/* --- finite differences, in fp32 ---------------------------------------------------------------------------------- */

static double loss_with(int64_t i, double by, float scale, bool causal, bool logarithm) {
    double values[MOST], sum = 0;
    memcpy(values, x.v, (size_t)x.n * sizeof *values);
    values[i] += by;
    CHECK(!tensor_load_f64(x.t, values, x.n), "%s", tensor_error());
    CHECK(!(logarithm ? tensor_log_softmax(y.t, x.t, scale) : tensor_softmax(y.t, x.t, scale, causal)), "%s",
          tensor_error());
    CHECK(!tensor_load_f64(x.t, x.v, x.n), "%s", tensor_error());
    hold(&y);
    for (int64_t j = 0; j < y.n; j++)
        sum += dy.v[j] * y.v[j];
    return sum;
}

static void check_differences(bool causal, bool logarithm) {
    const float scale = 0.75f;
    const int64_t shape[] = {2, 4, 5};
    make(&x, FMT_FP32, 3, shape, 0);
    make(&dy, FMT_FP32, 3, shape, 0);
    y.t = tensor_new(FMT_FP32, 3, shape);
    dx.t = tensor_new(FMT_FP32, 3, shape);
    CHECK(!(logarithm ? tensor_log_softmax(y.t, x.t, scale) : tensor_softmax(y.t, x.t, scale, causal)), "%s",
          tensor_error());
    CHECK(!(logarithm ? tensor_log_softmax_grad(dx.t, dy.t, y.t, scale)
                      : tensor_softmax_grad(dx.t, dy.t, y.t, scale, causal)),
          "%s", tensor_error());
    hold(&dx);
    for (int64_t i = 0; i < x.n; i++) {
        const double h = 0x1p-8,
                     slope = (loss_with(i, h, scale, causal, logarithm) - loss_with(i, -h, scale, causal, logarithm)) /
                             (2 * h);
        CHECK(fabs(slope - dx.v[i]) < 1e-3, "causal %d log %d i=%lld slope %g gradient %g", causal, logarithm,
              (long long)i, slope, dx.v[i]);
    }
    free_all();
}

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(6)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(6)),
           *c = tensor_new(FMT_FP16, TENSOR_SHAPE(6)), *d = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 3));
    CHECK(tensor_softmax(a, b, 1, true) == TENSOR_E_SHAPE && strstr(tensor_error(), "two dimensions"), "%s",
          tensor_error());
    CHECK(tensor_softmax(a, b, NAN, false) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "scale is nan"), "%s",
          tensor_error());
    CHECK(tensor_softmax(a, c, 1, false) == TENSOR_E_FORMAT, "%s", tensor_error());
    CHECK(tensor_softmax_grad(a, b, d, 1, false) == TENSOR_E_SHAPE, "%s", tensor_error());
    CHECK(tensor_log_softmax(a, NULL, 1) == TENSOR_E_ARGUMENT, "%s", tensor_error());
    CHECK(!tensor_softmax(a, a, 1, false), "in place: %s", tensor_error());
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(d);
}

int main(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {2, 5, 5}, {3, 7, 4}, {2, 3, 33}, {1, 2, 1030}};
    static const float scales[] = {1, 0.125f, -3.5f, 0, 300};
    draws = 20260102;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int i = 0; i < 2 * 5 * 5; i++) { /* the best kernels, then those of the reference */
        const int f = i / 5 % 5, s = i % 5;
        CHECK(!tensor_set_backend(i < 5 * 5 ? NULL : "ref"), "%s", tensor_error());
        for (int style = 0; style < STYLES; style++)
            for (int kind = 0; kind < 3; kind++)
                check_case(all_formats[f], shapes[s][0], shapes[s][1], shapes[s][2], style,
                           scales[(s + style + kind) % 5], kind == 1, kind == 2);
    }
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
    check_mask_hides();
    check_fixed_exponent(FMT_FLEX16_5);
    check_fixed_exponent(FMT_DFP16);
    for (int kind = 0; kind < 3; kind++)
        check_differences(kind == 1, kind == 2);
    check_errors();
    return check_summary();
}
