/* Class accumulate=GPU: matmuls of all kinds and convolutions have the bits of the model over their gathered rows and
 * columns, for every instruction set and number of threads; what the class does not compute, and what it leaves exact.
 */
#include "check.h"
#include "core/queue/queue.h"
#include "flexlab/tensor_blocks.h"
#include "tensorcore/tensorcore.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 29;

static tensor *drawn(tensor_format format, int ndim, const int64_t *shape, float size) {
    tensor *t = tensor_new(format, ndim, shape);
    const int64_t count = t ? tensor_count(t) : 0;
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        const double u = (double)(check_random(&state) >> 11) * 0x1p-53 - 0.5;
        x[i] = check_random(&state) >> 61 ? (float)(u * size) : 0;
    }
    CHECK(t && !tensor_load_f32(t, x, count), "%s", tensor_error());
    free(x);
    return t;
}

static float *values(const tensor *t) {
    float *x = malloc((size_t)tensor_count(t) * sizeof *x);
    CHECK(!tensor_store_f32(t, x, tensor_count(t)), "%s", tensor_error());
    return x;
}

static float as_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static tensor_class class_named(const char *name) {
    tensor_class class = TENSOR_EXACT;
    CHECK(!tensor_class_find(&class, name), "%s", tensor_error());
    return class;
}

/* A sum of k products of the class, with its promotion. */
static float model(tensor_class class, struct fl_operand_kinds kinds, const float *a, const float *b, int64_t k) {
    const struct fl_accumulation *how = fl_accumulation_of_kinds(class, kinds);
    const int64_t n = fl_accumulation_promotes(class);
    float total = 0;
    if (!n)
        return fl_tensorcore_sum(how, kinds, a, b, 1, k, 0);
    for (int64_t i = 0; i < k; i += n)
        total += fl_tensorcore_sum(how, kinds, a + i, b + i, 1, k - i < n ? k - i : n, 0);
    return total;
}

static enum fl_operand_kind kind_of(tensor_format format) {
    return fl_format_of(format)->operand;
}

static struct fl_operand_kinds kinds_of(tensor_format a, tensor_format b) {
    return (struct fl_operand_kinds){kind_of(a), kind_of(b)};
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

static tensor_status multiply(int way, tensor *y, const tensor *a, const tensor *b) {
    return way == 0 ? tensor_matmul(y, a, b) : way == 1 ? tensor_matmul_nt(y, a, b) : tensor_matmul_tn(y, a, b);
}

static void check_matmul(tensor_class class, tensor_format a_format, tensor_format b_format, int way, int64_t m,
                         int64_t n, int64_t k) {
    static const char *const backends[] = {"ref", "portable", "avx2", "avx512bw", NULL};
    tensor *a = drawn(a_format, 2, way == 2 ? (int64_t[]){k, m} : (int64_t[]){m, k}, 4),
           *b = drawn(b_format, 2, way == 1 ? (int64_t[]){n, k} : (int64_t[]){k, n}, 4),
           *y = tensor_new(FMT_FP32, TENSOR_SHAPE(m, n)), *bias = drawn(FMT_FP32, 1, (int64_t[]){n}, 2);
    float *x = values(a), *z = values(b), *row = malloc((size_t)k * sizeof *row),
          *column = malloc((size_t)k * sizeof *row);
    float *expected = malloc((size_t)(m * n) * sizeof *expected), *first = values(bias);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            for (int64_t l = 0; l < k; l++) {
                row[l] = way == 2 ? x[l * m + i] : x[i * k + l];
                column[l] = way == 1 ? z[j * k + l] : z[l * n + j];
                if (a_format == FMT_FP32)
                    row[l] = as_tf32(row[l]), column[l] = as_tf32(column[l]);
            }
            expected[i * n + j] = model(class, kinds_of(a_format, b_format), row, column, k);
        }
    for (int i = 0; i < 5; i++)
        for (int threads = 1; threads <= 3; threads++) {
            tensor_set_backend(backends[i]);
            tensor_set_threads(threads);
            CHECK(!multiply(way, y, a, b), "%s", tensor_error());
            float *got = values(y);
            for (int64_t j = 0; j < m * n; j++)
                CHECK(got[j] == expected[j],
                      "%s %s by %s way %d %lldx%lldx%lld %s, %d threads: element %lld is %a, expected %a",
                      tensor_class_name(class), tensor_format_name(a_format), tensor_format_name(b_format), way,
                      (long long)m, (long long)n, (long long)k, backends[i] ? backends[i] : "all", threads,
                      (long long)j, (double)got[j], (double)expected[j]);
            free(got);
        }
    if (way < 2) { /* the epilogue follows, in binary32 */
        const tensor_epilogue with = {.bias = bias, .relu = true};
        CHECK(!(way ? tensor_matmul_nt_fused : tensor_matmul_fused)(y, a, b, &with), "%s", tensor_error());
        float *got = values(y);
        for (int64_t j = 0; j < m * n; j++) {
            const float sum = expected[j] + first[j % n];
            CHECK(got[j] == (sum > 0 ? sum : 0), "with bias: %a, expected %a", (double)got[j], (double)sum);
        }
        free(got);
    }
    free(x), free(z), free(row), free(column), free(expected), free(first);
    tensor_free(a), tensor_free(b), tensor_free(y), tensor_free(bias);
}

static void check_batched(tensor_class class) {
    enum { BATCH = 5, M = 7, N = 70, K = 37 };
    tensor *a = drawn(FMT_FP16, 3, (int64_t[]){BATCH, M, K}, 4), *b = drawn(FMT_FP16, 3, (int64_t[]){BATCH, K, N}, 4),
           *y = tensor_new(FMT_FP16, 3, (int64_t[]){BATCH, M, N}), *one_a = tensor_new(FMT_FP16, TENSOR_SHAPE(M, K)),
           *one_b = tensor_new(FMT_FP16, TENSOR_SHAPE(K, N)), *one = tensor_new(FMT_FP16, TENSOR_SHAPE(M, N));
    CHECK(!tensor_matmul_batched(y, a, b), "%s", tensor_error());
    for (int i = 0; i < BATCH; i++) {
        memcpy(tensor_data(one_a), (char *)tensor_data(a) + 2 * i * M * K, 2 * M * K);
        memcpy(tensor_data(one_b), (char *)tensor_data(b) + 2 * i * K * N, 2 * K * N);
        CHECK(!tensor_matmul(one, one_a, one_b), "%s", tensor_error());
        CHECK(!memcmp(tensor_data(one), (char *)tensor_data(y) + 2 * i * M * N, 2 * M * N), "matrix %d of a batch", i);
    }
    tensor_free(a), tensor_free(b), tensor_free(y), tensor_free(one_a), tensor_free(one_b), tensor_free(one);
    (void)class;
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

struct shape {
    int64_t batch, h, w, c, filters, r, s;
    int stride, padding, dilation, groups;
};

/* Sums over (r, s, c), (r, s, filter) and (image, pixel), written down once more. */
static void check_convolution(tensor_class class, tensor_format values_format, tensor_format filter_format,
                              tensor_format gradient_format, const struct shape *g) {
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups,
                  p = (g->h + 2 * g->padding - (g->r - 1) * g->dilation - 1) / g->stride + 1,
                  q = (g->w + 2 * g->padding - (g->s - 1) * g->dilation - 1) / g->stride + 1;
    tensor_window how = {.stride = {g->stride, g->stride},
                         .padding = {g->padding, g->padding, g->padding, g->padding},
                         .dilation = {g->dilation, g->dilation},
                         .groups = g->groups};
    tensor *x = drawn(values_format, 4, (int64_t[]){g->batch, g->h, g->w, g->c}, 4),
           *f = drawn(filter_format, 4, (int64_t[]){g->filters, g->r, g->s, depth}, 4),
           *dy = drawn(gradient_format, 4, (int64_t[]){g->batch, p, q, g->filters}, 4),
           *y = tensor_new(FMT_FP32, 4, (int64_t[]){g->batch, p, q, g->filters}),
           *dx = tensor_new(FMT_FP32, 4, (int64_t[]){g->batch, g->h, g->w, g->c}),
           *df = tensor_new(FMT_FP32, 4, (int64_t[]){g->filters, g->r, g->s, depth});
    CHECK(!tensor_conv2d(y, x, f, &how) && !tensor_conv2d_input_grad(dx, dy, f, &how) &&
              !tensor_conv2d_weight_grad(df, dy, x, &how),
          "%s", tensor_error());
    float *of_x = values(x), *of_f = values(f), *of_dy = values(dy), *of_y = values(y), *of_dx = values(dx),
          *of_df = values(df);
    enum { MOST = 4096 };
    static float a[MOST], b[MOST];
#define X(n, i, j, c_)                                                                                                 \
    ((i) < 0 || (j) < 0 || (i) >= g->h || (j) >= g->w ? 0 : of_x[(((n)*g->h + (i)) * g->w + (j)) * g->c + (c_)])
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t i = 0; i < p; i++)
            for (int64_t j = 0; j < q; j++)
                for (int64_t k = 0; k < g->filters; k++) {
                    int64_t count = 0;
                    for (int64_t r = 0; r < g->r; r++)
                        for (int64_t s = 0; s < g->s; s++)
                            for (int64_t c = 0; c < depth; c++, count++) {
                                a[count] = X(n, i * g->stride + r * g->dilation - g->padding,
                                             j * g->stride + s * g->dilation - g->padding, k / per_group * depth + c);
                                b[count] = of_f[((k * g->r + r) * g->s + s) * depth + c];
                            }
                    const float e = model(class, kinds_of(values_format, filter_format), a, b, count),
                                got = of_y[((n * p + i) * q + j) * g->filters + k];
                    CHECK(got == e, "forward: %a, expected %a", (double)got, (double)e);
                }
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t i = 0; i < g->h; i++)
            for (int64_t j = 0; j < g->w; j++)
                for (int64_t c = 0; c < g->c; c++) {
                    int64_t count = 0;
                    for (int64_t r = 0; r < g->r; r++)
                        for (int64_t s = 0; s < g->s; s++)
                            for (int64_t k = c / depth * per_group; k < (c / depth + 1) * per_group; k++, count++) {
                                const int64_t u = i + g->padding - r * g->dilation,
                                              v = j + g->padding - s * g->dilation;
                                const bool meets = u >= 0 && v >= 0 && u % g->stride == 0 && v % g->stride == 0 &&
                                                   u / g->stride < p && v / g->stride < q;
                                a[count] =
                                    meets ? of_dy[((n * p + u / g->stride) * q + v / g->stride) * g->filters + k] : 0;
                                b[count] = of_f[((k * g->r + r) * g->s + s) * depth + c % depth];
                            }
                    const float e = model(class, kinds_of(gradient_format, filter_format), a, b, count),
                                got = of_dx[((n * g->h + i) * g->w + j) * g->c + c];
                    CHECK(got == e, "input gradient: %a, expected %a", (double)got, (double)e);
                }
    for (int64_t k = 0; k < g->filters; k++)
        for (int64_t r = 0; r < g->r; r++)
            for (int64_t s = 0; s < g->s; s++)
                for (int64_t c = 0; c < depth; c++) {
                    int64_t count = 0;
                    for (int64_t n = 0; n < g->batch; n++)
                        for (int64_t i = 0; i < p; i++)
                            for (int64_t j = 0; j < q; j++, count++) {
                                a[count] = of_dy[((n * p + i) * q + j) * g->filters + k];
                                b[count] = X(n, i * g->stride + r * g->dilation - g->padding,
                                             j * g->stride + s * g->dilation - g->padding, k / per_group * depth + c);
                            }
                    const float e = model(class, kinds_of(gradient_format, values_format), a, b, count),
                                got = of_df[((k * g->r + r) * g->s + s) * depth + c];
                    CHECK(got == e, "weight gradient: %a, expected %a", (double)got, (double)e);
                }
    free(of_x), free(of_f), free(of_dy), free(of_y), free(of_dx), free(of_df);
    tensor_free(x), tensor_free(f), tensor_free(dy), tensor_free(y), tensor_free(dx), tensor_free(df);
}

/* --- refusals, and what stays exact ------------------------------------------------------------------------------- */

static void check_refused(const char *class, tensor_format a_format, tensor_format b_format, const char *expected) {
    tensor *a = drawn(a_format, 2, (int64_t[]){3, 4}, 4), *b = drawn(b_format, 2, (int64_t[]){4, 5}, 4),
           *y = tensor_new(a_format, TENSOR_SHAPE(3, 5));
    tensor_set_class(class_named(class));
    CHECK(tensor_matmul(y, a, b) == TENSOR_E_UNSUPPORTED && strstr(tensor_error(), expected), "%s", tensor_error());
    tensor_set_class(TENSOR_EXACT);
    tensor_free(a), tensor_free(b), tensor_free(y);
}

/* Integer formats, and sums that need no rounding, have the exact bits and statistics. */
static void check_exact(tensor_format format, bool whole) {
    tensor *a = drawn(format, 2, (int64_t[]){9, 40}, 4), *b = drawn(format, 2, (int64_t[]){40, 33}, 4);
    float small[40 * 33];
    for (int i = 0; i < 40 * 33; i++)
        small[i] = (float)(int)(check_random(&state) >> 61) - 3;
    if (whole)
        CHECK(!tensor_load_f32(a, small, 9 * 40) && !tensor_load_f32(b, small, 40 * 33), "%s", tensor_error());
    tensor *y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = tensor_new(format, TENSOR_SHAPE(9, 33));
        tensor_set_class(i ? class_named("accumulate=a100") : TENSOR_EXACT);
        CHECK(!tensor_matmul(y[i], a, b), "%s", tensor_error());
    }
    tensor_set_class(TENSOR_EXACT);
    tensor_stats s, t;
    CHECK(!tensor_statistics(&s, NULL, y[0]) && !tensor_statistics(&t, NULL, y[1]), "%s", tensor_error());
    CHECK(!memcmp(tensor_data(y[0]), tensor_data(y[1]), 9 * 33 * (format == FMT_FP32 ? 4 : 2)), "%s is not exact",
          tensor_format_name(format));
    CHECK(s.maximum == t.maximum && s.flushed == t.flushed && s.elements == t.elements, "%s: other statistics",
          tensor_format_name(format));
    tensor_free(a), tensor_free(b), tensor_free(y[0]), tensor_free(y[1]);
}

/* Elements under an exponent enter the sums as they are, and the power of two multiplies these: the product of the same
 * codes without exponents, shifted, plus the bias. `own`: the result is under an exponent too. */
static void check_scaled(tensor_format plain, const char *name, bool own) {
    enum { M = 9, K = 150, N = 70 };
    static float x[M * N], y[M * N], shift[N];
    tensor_format scaled, result = FMT_FP32;
    CHECK(!tensor_format_find(&scaled, name), "%s", tensor_error());
    result = own ? scaled : result;
    tensor *a = tensor_new(plain, TENSOR_SHAPE(M, K)), *b = tensor_new(plain, TENSOR_SHAPE(K, N)),
           *u = tensor_new(scaled, TENSOR_SHAPE(M, K)), *v = tensor_new(scaled, TENSOR_SHAPE(K, N)),
           *c = tensor_new(FMT_FP32, TENSOR_SHAPE(M, N)), *d = tensor_new(result, TENSOR_SHAPE(M, N)),
           *bias = tensor_new(FMT_FP32, TENSOR_SHAPE(N)), *wanted = tensor_new(result, TENSOR_SHAPE(M, N));
    const int e[2] = {(int)(check_random(&state) % 40) - 20, (int)(check_random(&state) % 40) - 20};
    tensor *const codes[2] = {a, b}, *const same[2] = {u, v};
    for (int i = 0; i < 2; i++) {
        const int64_t n = tensor_count(codes[i]);
        for (int64_t k = 0; k < n; k++) /* no Inf and no NaN */
            ((uint8_t *)tensor_data(codes[i]))[k] =
                (uint8_t)(check_random(&state) % 0x78 | (check_random(&state) & 0x80));
        memcpy(tensor_data(same[i]), tensor_data(codes[i]), (size_t)n);
        CHECK(!tensor_declare_exponent(same[i], e[i]), "%s", tensor_error());
    }
    for (int i = 0; i < N; i++)
        shift[i] = ldexpf((float)(check_random(&state) % 2000) - 1000, -e[0] - e[1]);
    CHECK(!tensor_load_f32(bias, shift, N) && !tensor_matmul(c, a, b) && !tensor_store_f32(c, x, M * N), "%s",
          tensor_error());
    for (int i = 0; i < M * N; i++)
        x[i] = ldexpf(x[i], -e[0] - e[1]) + (own ? 0 : shift[i % N]);
    CHECK(!(own ? tensor_matmul(d, u, v) : tensor_matmul_fused(d, u, v, &(tensor_epilogue){.bias = bias})), "%s",
          tensor_error());
    CHECK(!tensor_load_f32(wanted, x, M * N) && tensor_exponent(wanted) == tensor_exponent(d), "%s: %d, expected %d",
          name, tensor_exponent(d), tensor_exponent(wanted));
    CHECK(!tensor_store_f32(wanted, x, M * N) && !tensor_store_f32(d, y, M * N), "%s", tensor_error());
    int wrong = 0;
    for (int i = 0; i < M * N; i++)
        wrong += x[i] != y[i];
    CHECK(!wrong, "%s at %d and %d: %d of %d differ", name, e[0], e[1], wrong, M * N);
    tensor *const all[] = {a, b, u, v, c, d, bias, wanted};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

int main(void) {
    static const char *const classes[] = {"accumulate=v100", "accumulate=a100", "accumulate=h100",
                                          "accumulate=h100:promote=64", "accumulate=b200"};
    static const tensor_format formats[] = {FMT_FP16, FMT_BF16, FMT_FP32};
    tensor_format made[2];
    CHECK(!tensor_format_find(&made[0], "e4m3fn") && !tensor_format_find(&made[1], "e5m2") &&
              kind_of(made[0]) == FL_OPERAND_E4M3 && kind_of(made[1]) == FL_OPERAND_E5M2,
          "%s", tensor_error());
    printf("seed %llu\n", (unsigned long long)state);
    for (int i = 0; i < 5; i++) {
        const tensor_class class = class_named(classes[i]);
        tensor_set_class(class);
        for (int f = 0; f < (i ? 3 : 1); f++)
            for (int way = 0; way < 3; way++) {
                check_matmul(class, formats[f], formats[f], way, 5, 3, 7);
                check_matmul(class, formats[f], formats[f], way, 9, 70, 150);
            }
        const bool fp8 = fl_accumulation_of(class, FL_OPERAND_E4M3) != NULL;
        for (int f = 0; f < 4 && fp8; f++) /* all mixes of the two */
            for (int way = 0; way < 3; way++)
                check_matmul(class, made[f / 2], made[f % 2], way, 9, 70, 150);
        for (int k = 0; k < 4 && fp8; k++) {
            check_scaled(made[0], "tensor:e4m3fn", k % 2);
            check_scaled(made[1], "tensor:e5m2", k % 2);
        }
        check_batched(class);
        if (i) {
            check_convolution(class, FMT_BF16, FMT_BF16, FMT_BF16, &(struct shape){2, 7, 6, 3, 5, 3, 3, 1, 1, 1, 1});
            check_convolution(class, FMT_BF16, FMT_BF16, FMT_BF16, &(struct shape){1, 9, 8, 8, 6, 3, 2, 2, 1, 2, 2});
        }
        for (int f = 1; f < 7 && fp8; f++) /* x, filter and dy in all mixes; trainings have the first */
            check_convolution(class, made[f >> 2 & 1], made[f >> 1 & 1], made[f & 1],
                              &(struct shape){2, 7, 6, 6, 4, 3, 2, f % 2 + 1, 1, 1, 2});
        tensor_set_class(TENSOR_EXACT);
    }
    check_refused("accumulate=v100", FMT_BF16, FMT_BF16,
                  "class accumulate=v100 has no products of bf16, expected operands of one kind of fp16");
    check_refused("accumulate=a100", made[0], made[0], "class accumulate=a100 has no products of e4m3fn");
    check_refused("accumulate=a100", made[0], made[1],
                  "has no products of e4m3fn by e5m2, expected operands of one kind");
    check_refused("accumulate=h100", made[1], FMT_FP16,
                  "has no products of e5m2 by fp16, expected operands of one kind of fp16, bf16, tf32, e4m3 and e5m2 "
                  "(tf32: fp32), or e4m3 by e5m2");
    check_refused("accumulate=h100", FMT_BF16, made[0], "has no products of bf16 by e4m3fn");
    check_refused("accumulate=v100", FMT_FP32, FMT_FP32, "accumulate=v100 has no products of fp32");
    check_refused("accumulate=h100", FMT_FP16, FMT_BF16,
                  "no products of fp16 by bf16, expected operands of one kind of fp16, bf16, tf32");
    check_exact(FMT_FLEX16_5, false);
    check_exact(FMT_DFP16, false);
    check_exact(FMT_FP16, true);
    check_exact(FMT_BF16, true);
    check_exact(FMT_FP32, true);
    return check_summary();
}
