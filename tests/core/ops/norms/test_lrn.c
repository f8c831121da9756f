/* Local response normalisation and its gradient: values in long double with powl as the witness, which shares neither
 * the square roots nor the logarithm of the code; gradients against central differences of that witness, in every
 * format. */
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

struct how {
    int size;
    float alpha, beta, k;
};

/* y of channel c of a pixel of n channels. */
static long double witness(const long double *x, int64_t n, int64_t c, const struct how *l) {
    long double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (i >= c - l->size / 2 && i <= c + (l->size - 1) / 2)
            sum += x[i] * x[i];
    return x[c] / powl((long double)l->k + (long double)l->alpha / l->size * sum, (long double)l->beta);
}

static struct held x, y, dy, dx;

/* What powers and quotients in double are off by, relatively: a unit in the last place each, and beta times that of the
 * logarithm. */
static const long double relative = 0x1p-45L;

static void check_case(tensor_format f, int64_t m, int64_t n, const struct how *l, int style) {
    char what[160];
    snprintf(what, sizeof what, "%s [%lld,%lld] size %d alpha %g beta %g k %g style %d", tensor_format_name(f),
             (long long)m, (long long)n, l->size, (double)l->alpha, (double)l->beta, (double)l->k, style);
    make(&x, f, 2, (int64_t[]){m, n}, style);
    make(&dy, f, 2, (int64_t[]){m, n}, 0);
    y.t = tensor_new(f, 2, (int64_t[]){m, n});
    dx.t = tensor_new(f, 2, (int64_t[]){m, n});
    CHECK(!tensor_lrn(y.t, x.t, l->size, l->alpha, l->beta, l->k), "%s: %s", what, tensor_error());
    CHECK(!tensor_lrn_grad(dx.t, dy.t, x.t, l->size, l->alpha, l->beta, l->k), "%s: %s", what, tensor_error());
    hold(&y);
    hold(&dx);
    long double largest = 0;
    for (int64_t row = 0; row < m; row++) {
        static long double v[MOST];
        for (int64_t c = 0; c < n; c++)
            v[c] = x.v[row * n + c];
        for (int64_t c = 0; c < n; c++) {
            const long double want = witness(v, n, c, l);
            CHECK(near_to(&y, row * n + c, want, fabsl(want) * relative), "%s i=%lld got %a want %La", what,
                  (long long)(row * n + c), y.v[row * n + c], want);
            largest = fabsl(want) > largest ? fabsl(want) : largest;
        }
        for (int64_t c = 0; c < n; c++) {
            const long double h = 0x1p-20L, at = v[c];
            long double sum = 0, size = 0;
            for (int64_t i = 0; i < n; i++) {
                if (i < c - l->size || i > c + l->size)
                    continue;
                long double four[4];
                static const int steps[] = {-2, -1, 1, 2};
                for (int s = 0; s < 4; s++) {
                    v[c] = at + steps[s] * h;
                    four[s] = witness(v, n, i, l);
                }
                v[c] = at;
                /* the rule of five points: its error is h^4 times a fifth derivative */
                const long double slope = (four[0] - 8 * four[1] + 8 * four[2] - four[3]) / (12 * h);
                sum += dy.v[row * n + i] * slope;
                size +=
                    fabsl(dy.v[row * n + i] * slope) + fabsl(dy.v[row * n + i] * witness(v, n, i, l)) * 0x1p-60L / h;
            }
            CHECK(near_to(&dx, row * n + c, sum, size * 0x1p-30L), "%s dx i=%lld got %a want %La", what,
                  (long long)(row * n + c), dx.v[row * n + c], sum);
        }
    }
    tensor_stats last;
    CHECK(!tensor_statistics(&last, NULL, y.t) && fabsl(last.maximum - largest) <= largest * 1e-6L,
          "%s: maximum %a want %La", what, last.maximum, largest);
    struct held *all[] = {&x, &y, &dy, &dx};
    for (int i = 0; i < 4; i++)
        tensor_free(all[i]->t);
}

/* alpha 0 and k 1: y is x. */
static void check_identity(tensor_format f) {
    make(&x, f, 2, (int64_t[]){7, 11}, 0);
    y.t = tensor_new(f, TENSOR_SHAPE(7, 11));
    CHECK(!tensor_lrn(y.t, x.t, 5, 0, 0.75f, 1), "%s", tensor_error());
    hold(&y);
    for (int64_t i = 0; i < x.n; i++)
        CHECK(near_to(&y, i, x.v[i], 0), "%s i=%lld got %a want %a", tensor_format_name(f), (long long)i, y.v[i],
              x.v[i]);
    tensor_free(x.t);
    tensor_free(y.t);
}

/* NaN and Inf reach the outputs whose window holds them, and no others. */
static void check_special(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(1, 6)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(1, 6));
    double v[6] = {1, NAN, 1, 1, INFINITY, 1};
    CHECK(!tensor_load_f64(a, v, 6) && !tensor_lrn(b, a, 3, 1, 0.75f, 1) && !tensor_store_f64(b, v, 6), "%s",
          tensor_error());
    CHECK(v[0] != v[0] && v[1] != v[1] && v[2] != v[2] && v[3] == 0 && v[4] != v[4] && v[5] == 0, "%g %g %g %g %g %g",
          v[0], v[1], v[2], v[3], v[4], v[5]);
    tensor_free(a);
    tensor_free(b);
}

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(4, 6)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(4, 6)),
           *c = tensor_new(FMT_FP32, TENSOR_SHAPE(6));
#define REFUSED(call, status, words)                                                                                   \
    CHECK((call) == (status) && strstr(tensor_error(), words), "%s: expected %s, got '%s'", #call, words,              \
          tensor_error())
    REFUSED(tensor_lrn(a, b, 0, 1, 0.75f, 1), TENSOR_E_ARGUMENT, "size is 0");
    REFUSED(tensor_lrn(a, b, 5, -1, 0.75f, 1), TENSOR_E_ARGUMENT, "alpha is -1");
    REFUSED(tensor_lrn(a, b, 5, NAN, 0.75f, 1), TENSOR_E_ARGUMENT, "alpha");
    REFUSED(tensor_lrn(a, b, 5, 1, 0, 1), TENSOR_E_ARGUMENT, "beta is 0");
    REFUSED(tensor_lrn(a, b, 5, 1, 4.5f, 1), TENSOR_E_ARGUMENT, "beta is 4.5");
    REFUSED(tensor_lrn(a, b, 5, 1, 0.75f, 0), TENSOR_E_ARGUMENT, "k is 0");
    REFUSED(tensor_lrn(a, b, 5, 1, 0.75f, INFINITY), TENSOR_E_ARGUMENT, "k is inf");
    REFUSED(tensor_lrn(a, a, 5, 1, 0.75f, 1), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_lrn(a, c, 5, 1, 0.75f, 1), TENSOR_E_SHAPE, "y is");
    REFUSED(tensor_lrn_grad(a, b, NULL, 5, 1, 0.75f, 1), TENSOR_E_ARGUMENT, "x is NULL");
    REFUSED(tensor_lrn_grad(a, b, a, 5, 1, 0.75f, 1), TENSOR_E_ARGUMENT, "same tensor");
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
}

int main(int argc, char **argv) {
    static const int64_t shapes[][2] = {{1, 1}, {3, 2}, {5, 7}, {9, 16}, {2, 33}};
    static const struct how hows[] = {{5, 5e-4f, 0.75f, 2}, {5, 1, 0.75f, 1},       {3, 0.5f, 0.5f, 1}, {4, 2, 1, 0.5f},
                                      {1, 1, 2, 1},         {9, 0.3f, 0.6f, 1e-3f}, {200, 0.1f, 4, 1}};
    draws = argc > 1 ? strtoull(argv[1], NULL, 0) : 20260311;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int i = 0; i < 5 * 5 * 7 * 2; i++) {
        CHECK(!tensor_set_backend(i < 5 * 5 * 7 ? NULL : "ref"), "%s", tensor_error());
        check_case(all_formats[i % 5], shapes[i / 5 % 5][0], shapes[i / 5 % 5][1], &hows[i / 25 % 7], i / 7 % STYLES);
    }
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
    for (int f = 0; f < 5; f++)
        check_identity(all_formats[f]);
    check_special();
    check_errors();
    return check_summary();
}
