/* Matmuls of batches of matrices: integer formats against sums of products in 64 bits, rounded here; float formats
 * against one matmul after the other, bit for bit. Few large and many small matrices, one and several threads. */
#include "row_witness.h"

static struct held a, b, y;

typedef tensor_status (*product)(tensor *y, const tensor *a, const tensor *b);
static const product batched[] = {tensor_matmul_batched, tensor_matmul_batched_nt, tensor_matmul_batched_tn};
static const product single[] = {tensor_matmul, tensor_matmul_nt, tensor_matmul_tn};

static int64_t sum_of(int way, const int16_t *p, const int16_t *q, int64_t i, int64_t j, int64_t m, int64_t n,
                      int64_t k) {
    int64_t sum = 0;
    for (int64_t l = 0; l < k; l++)
        sum += (int64_t)p[way == 2 ? l * m + i : i * k + l] * q[way == 1 ? j * k + l : l * n + j];
    return sum;
}

static int64_t rounded(int64_t v, int down) {
    if (down <= 0)
        return v * ((int64_t)1 << -down);
    const int64_t floor = v >> down, rest = v - floor * ((int64_t)1 << down), half = (int64_t)1 << (down - 1);
    return floor + (rest > half || (rest == half && (floor & 1)));
}

static void check_exact(const char *what, int way, int64_t batch, int64_t m, int64_t n, int64_t k) {
    const int16_t *p = tensor_const_data(a.t), *q = tensor_const_data(b.t), *got = tensor_const_data(y.t);
    const int down = tensor_exponent(a.t) + tensor_exponent(b.t) - tensor_exponent(y.t);
    for (int64_t i = 0; i < batch * m * n; i++) {
        const int64_t which = i / (m * n), row = i / n % m;
        int64_t want = rounded(sum_of(way, p + which * m * k, q + which * k * n, row, i % n, m, n, k), down);
        want = want > 32767 ? 32767 : want < -32767 ? -32767 : want;
        CHECK(got[i] == want, "%s i=%lld got %d want %lld", what, (long long)i, got[i], (long long)want);
    }
}

/* Matrix i of a batch as a separate tensor. */
static tensor *matrix_of(const struct held *h, int64_t i, int64_t rows, int64_t columns) {
    tensor *t = tensor_new(tensor_format_of(h->t), TENSOR_SHAPE(rows, columns));
    CHECK(t && !tensor_load_f64(t, h->v + i * rows * columns, rows * columns), "%s", tensor_error());
    return t;
}

static void check_singles(const char *what, int way, int64_t batch, int64_t m, int64_t n, int64_t k) {
    static double want[MOST];
    for (int64_t i = 0; i < batch; i++) {
        tensor *p = way == 2 ? matrix_of(&a, i, k, m) : matrix_of(&a, i, m, k),
               *q = way == 1 ? matrix_of(&b, i, n, k) : matrix_of(&b, i, k, n),
               *r = tensor_new(tensor_format_of(a.t), TENSOR_SHAPE(m, n));
        CHECK(!single[way](r, p, q) && !tensor_store_f64(r, want, m * n), "%s", tensor_error());
        for (int64_t j = 0; j < m * n; j++)
            CHECK(want[j] == y.v[i * m * n + j], "%s matrix %lld j=%lld got %a want %a", what, (long long)i,
                  (long long)j, y.v[i * m * n + j], want[j]);
        tensor_free(p);
        tensor_free(q);
        tensor_free(r);
    }
}

static void check_case(tensor_format f, int way, const int64_t *size, int style, bool stochastic) {
    const int64_t outer = size[0], inner = size[1], m = size[2], n = size[3], k = size[4];
    char what[120];
    snprintf(what, sizeof what, "%s way %d [%lld,%lld] %lldx%lldx%lld%s", tensor_format_name(f), way, (long long)outer,
             (long long)inner, (long long)m, (long long)n, (long long)k, stochastic ? " stochastic" : "");
    make(&a, f, 4, way == 2 ? (int64_t[]){outer, inner, k, m} : (int64_t[]){outer, inner, m, k}, style);
    make(&b, f, 4, way == 1 ? (int64_t[]){outer, inner, n, k} : (int64_t[]){outer, inner, k, n}, style);
    static double first[MOST];
    for (int threads = 1; threads <= 4; threads++) { /* the last: the reference kernel */
        CHECK(!tensor_set_backend(threads == 4 ? "ref" : NULL), "%s", tensor_error());
        y.t = tensor_new(f, 4, (int64_t[]){outer, inner, m, n});
        CHECK(!tensor_set_threads(threads), "%s", tensor_error());
        if (stochastic)
            CHECK(!tensor_set_rounding(y.t, TENSOR_ROUND_STOCHASTIC, 99), "%s", tensor_error());
        CHECK(!batched[way](y.t, a.t, b.t), "%s: %s", what, tensor_error());
        hold(&y);
        if (threads == 1) {
            memcpy(first, y.v, (size_t)y.n * sizeof *first);
            if (!tensor_format_is_shared(f))
                check_singles(what, way, outer * inner, m, n, k);
            else if (!stochastic)
                check_exact(what, way, outer * inner, m, n, k);
        }
        CHECK(!memcmp(first, y.v, (size_t)y.n * sizeof *first), "%s: %d threads, or the reference, differ", what,
              threads);
        tensor_free(y.t);
    }
    tensor_free(a.t);
    tensor_free(b.t);
}

static void check_errors(void) {
    tensor *p = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 3, 4)), *q = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 4, 5)),
           *r = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 3, 5)), *s = tensor_new(FMT_FP32, TENSOR_SHAPE(1, 4, 5)),
           *flat = tensor_new(FMT_FP32, TENSOR_SHAPE(4));
    CHECK(!tensor_matmul_batched(r, p, q), "%s", tensor_error());
    CHECK(tensor_matmul_batched(r, p, s) == TENSOR_E_SHAPE && strstr(tensor_error(), "b is 1x4x5, expected 2x4x5"),
          "%s", tensor_error());
    CHECK(tensor_matmul_batched_nt(r, p, q) == TENSOR_E_SHAPE && strstr(tensor_error(), "y is 2x3x5, expected 2x3x4"),
          "%s", tensor_error());
    CHECK(tensor_matmul_batched(q, p, q) == TENSOR_E_ARGUMENT &&
              tensor_matmul_batched(r, flat, flat) == TENSOR_E_SHAPE &&
              tensor_matmul_batched(r, NULL, q) == TENSOR_E_ARGUMENT,
          "%s", tensor_error());
    tensor *all[] = {p, q, r, s, flat};
    for (int i = 0; i < 5; i++)
        tensor_free(all[i]);
}

int main(void) {
    static const int64_t sizes[][5] = {{1, 1, 1, 1, 1},   {2, 3, 5, 7, 9},     {3, 11, 16, 16, 8}, {1, 2, 33, 40, 70},
                                       {20, 2, 4, 13, 6}, {2, 2, 17, 65, 100}, {1, 3, 1, 31, 300}};
    draws = 20260104;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int f = 0; f < 5; f++)
        for (int way = 0; way < 3; way++)
            for (int s = 0; s < 7; s++)
                for (int style = 0; style < STYLES; style++)
                    check_case(all_formats[f], way, sizes[s], style, style == 4 && f >= 3);
    tensor_set_threads(0);
    tensor_set_backend(NULL);
    check_errors();
    return check_summary();
}
