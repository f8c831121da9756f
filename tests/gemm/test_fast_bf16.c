/* Class fast: matmuls and convolutions of bf16 by the dot instruction and on matrix tiles, each kernel set that this
 * processor can run, whether it would choose it or not. Their error against sums in double stays within a
 * written bound; if no order of summation rounds, they have the bits of class exact; neither depends on threads. Under
 * a cap, and for operations without such a kernel, class fast is class exact. */
#include "check.h"
#include "core/table/format.h"
#include "core/tensor/tensor_object.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include "window_cases.h"
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

static const int thread_counts[] = {1, 2, 3, 7};
enum { THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts };

#ifdef FL_AMX_EMULATED
enum { FIRST_ROW = FL_AVX512_AMX_FAST }; /* the other one has a test of its own */
#else
enum { FIRST_ROW = FL_BACKENDS };
#endif

enum kind { PLAIN, NT, TN, KINDS };
static const char *const ops[KINDS] = {"matmul", "matmul_nt", "matmul_tn"};

static tensor_status multiply(enum kind kind, tensor *y, const tensor *a, const tensor *b) {
    return kind == PLAIN ? tensor_matmul(y, a, b) : kind == NT ? tensor_matmul_nt(y, a, b) : tensor_matmul_tn(y, a, b);
}

static enum fl_backend row; /* the tested kernel set */

static bool row_has(const char *op) {
    return fl_kernel_in(fl_format_of(FMT_BF16), fl_op_named(op), row) != NULL;
}

/* The same by that kernel set. */
static tensor_status multiply_fast(enum kind kind, tensor *y, const tensor *a, const tensor *b, int64_t k,
                                   tensor_stats *stats) {
    struct fl_stats collected = {0};
    const struct fl_args args = {.op = fl_op_named(ops[kind]),
                                 .format = fl_format_of(FMT_BF16),
                                 .in = {fl_view_of(a), fl_view_of(b)},
                                 .out = fl_view_of(y),
                                 .p.product.matrices = {.m = tensor_dim(y, 0), .n = tensor_dim(y, 1), .k = k},
                                 .stats = &collected};
    const tensor_status status = fl_kernel_in(args.format, args.op, row)(&args);
    *stats = (tensor_stats){.maximum = collected.maximum,
                            .saturated = collected.saturated,
                            .flushed = collected.flushed,
                            .nonfinite = collected.nonfinite};
    return status;
}

static float value_of(uint16_t word) {
    const uint32_t bits = (uint32_t)word << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum data {
    NORMAL,    /* any signs and fractions, exponents over 2^-8 ... 2^7 */
    INTEGERS,  /* -3 ... 3: sums of fewer than 2^20 products are exact in binary32 in every order */
    TINY,      /* products near the smallest normal binary32 and below */
    SUBNORMAL, /* operands that the instruction takes as zeros */
    DATA
};

static uint16_t element(enum data data, uint64_t *seed) {
    const uint64_t r = check_random(seed);
    const uint32_t sign = (uint32_t)(r >> 63) << 15, fraction = r & 0x7f, spread = r >> 8 & 15;
    switch (data) {
    case INTEGERS: {
        static const uint16_t integers[7] = {0xc040, 0xc000, 0xbf80, 0, 0x3f80, 0x4000, 0x4040};
        return integers[r % 7];
    }
    case TINY: /* 2^-70 ... 2^-55 */
        return (uint16_t)(sign | (57 + spread) << 7 | fraction);
    case SUBNORMAL:
        return (uint16_t)(sign | (spread < 8 ? 0 : 1 + spread) << 7 | fraction);
    default:
        return (uint16_t)(sign | (119 + spread) << 7 | fraction);
    }
}

struct problem {
    enum kind kind;
    enum data data;
    int64_t m, n, k;
    tensor *a, *b, *y;
};

static struct problem make(enum kind kind, enum data data, int64_t m, int64_t n, int64_t k) {
    const int64_t a[2] = {kind == TN ? k : m, kind == TN ? m : k}, b[2] = {kind == NT ? n : k, kind == NT ? k : n};
    struct problem p = {kind,
                        data,
                        m,
                        n,
                        k,
                        tensor_new(FMT_BF16, 2, a),
                        tensor_new(FMT_BF16, 2, b),
                        tensor_new(FMT_BF16, TENSOR_SHAPE(m, n))};
    uint64_t seed = 1000 * (uint64_t)data + (uint64_t)(m + n + k);
    uint16_t *wa = tensor_data(p.a), *wb = tensor_data(p.b);
    for (int64_t i = 0; i < m * k; i++)
        wa[i] = element(data, &seed);
    for (int64_t i = 0; i < n * k; i++)
        wb[i] = element(data == SUBNORMAL ? NORMAL : data, &seed);
    return p;
}

static void release(struct problem *p) {
    tensor_free(p->a);
    tensor_free(p->b);
    tensor_free(p->y);
}

static uint16_t a_at(const struct problem *p, int64_t i, int64_t l) {
    return ((const uint16_t *)tensor_const_data(p->a))[p->kind == TN ? l * p->m + i : i * p->k + l];
}

static uint16_t b_at(const struct problem *p, int64_t l, int64_t j) {
    return ((const uint16_t *)tensor_const_data(p->b))[p->kind == NT ? j * p->k + l : l * p->n + j];
}

/* Products of two bf16 are exact in binary32. In whatever order the K products of a sum and its blocks are added, a
 * product goes through at most K additions, and each of them errs by u = 2^-24 of its result (Higham, Accuracy and
 * Stability of Numerical Algorithms, 2002, section 4.2):
 *     |s - sum a b| <= K u / (1 - K u) sum |a b|.
 * An operand taken as zero loses its products, each at most 2^-126 |other|; products and sums taken as zero lose at
 * most 2^-126 each. Storing errs by 2^-8 of s, or by half of the smallest subnormal. Sums of products in double err by
 * K 2^-53 sum |a b|, which doubling u more than covers. */
static double bound(const struct problem *p, double sum, double magnitudes, double lost) {
    const double ku = (double)p->k * 0x1p-23;
    const double before = ku / (1 - ku) * magnitudes + lost + 2 * (double)p->k * 0x1p-126;
    return before + 0x1p-8 * (fabs(sum) + before) + 0x1p-134;
}

static void check_errors(const struct problem *p, const char *what) {
    const uint16_t *y = tensor_const_data(p->y);
    double worst = 0;
    int64_t wrong = 0;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0, magnitudes = 0, lost = 0;
            for (int64_t l = 0; l < p->k; l++) {
                const double a = value_of(a_at(p, i, l)), b = value_of(b_at(p, l, j));
                sum += a * b;
                magnitudes += fabs(a * b);
                if (fabs(a) < FLT_MIN || fabs(b) < FLT_MIN)
                    lost += fabs(a * b);
            }
            const double error = fabs((double)value_of(y[i * p->n + j]) - sum),
                         allowed = bound(p, sum, magnitudes, lost);
            wrong += !(error <= allowed);
            worst = error / allowed > worst ? error / allowed : worst;
        }
    CHECK(wrong == 0, "%s: %lld of %lld results beyond the bound, the worst by %g", what, (long long)wrong,
          (long long)(p->m * p->n), worst);
}

static void check_problem(enum kind kind, enum data data, int64_t m, int64_t n, int64_t k) {
    struct problem p = make(kind, data, m, n, k);
    const size_t bytes = tensor_bytes(p.y);
    uint16_t *first = malloc(bytes), *exact = malloc(bytes);
    char what[128];
    snprintf(what, sizeof what, "%s %s %lldx%lldx%lld data %d", fl_backend_name(row), ops[kind], (long long)m,
             (long long)n, (long long)k, data);
    tensor_set_class(TENSOR_EXACT);
    CHECK(!multiply(kind, p.y, p.a, p.b), "%s", tensor_error());
    memcpy(exact, tensor_const_data(p.y), bytes);
    tensor_stats stats_of_exact, stats;
    tensor_statistics(&stats_of_exact, NULL, p.y);
    for (int t = 0; t < THREAD_COUNTS; t++) {
        tensor_set_threads(thread_counts[t]);
        memset(tensor_data(p.y), 0x55, bytes);
        CHECK(!multiply_fast(kind, p.y, p.a, p.b, k, &stats), "%s", tensor_error());
        if (t == 0)
            memcpy(first, tensor_const_data(p.y), bytes);
        CHECK(!memcmp(first, tensor_const_data(p.y), bytes), "%s: other bytes with %d threads", what, thread_counts[t]);
        if (data == INTEGERS)
            CHECK(stats.maximum == stats_of_exact.maximum && stats.flushed == stats_of_exact.flushed &&
                      stats.saturated == stats_of_exact.saturated && stats.nonfinite == stats_of_exact.nonfinite,
                  "%s: other statistics with %d threads", what, thread_counts[t]);
    }
    if (data == INTEGERS)
        CHECK(!memcmp(first, exact, bytes), "%s: not the bits of class exact", what);
    check_errors(&p, what);
    tensor_set_threads(0);
    tensor_set_class(TENSOR_EXACT);
    free(first);
    free(exact);
    release(&p);
}

static void check_products(void) {
    static const int64_t shapes[][3] = {{1, 1, 1},      {2, 3, 4},      {1, 40, 2},      {13, 17, 31},
                                        {12, 32, 1024}, {25, 33, 1025}, {48, 16, 1023},  {7, 70, 2305},
                                        {16, 1000, 37}, {600, 9, 65},   {130, 200, 257}, {5, 9, 20001}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int data = 0; data < DATA; data++)
                check_problem((enum kind)kind, (enum data)data, shapes[s][0], shapes[s][1], shapes[s][2]);
}

/* Inf and NaN appear in the right elements and in no others: rows and columns that pad a tile have no effect. */
static void check_infinities(void) {
    struct problem p = make(PLAIN, INTEGERS, 14, 35, 9);
    uint16_t *a = tensor_data(p.a), *b = tensor_data(p.b);
    for (int64_t i = 0; i < 9; i++)
        a[3 * 9 + i] = b[i * 35 + 20] = 0x3f80;
    a[3 * 9 + 8] = 0x7f80;
    b[0 * 35 + 20] = 0x7fc0;
    for (int64_t j = 0; j < 35; j++)
        b[8 * 35 + j] = 0x3f80;
    tensor_stats stats;
    CHECK(!multiply_fast(PLAIN, p.y, p.a, p.b, 9, &stats), "%s", tensor_error());
    const uint16_t *y = tensor_const_data(p.y);
    for (int i = 0; i < 14; i++)
        for (int j = 0; j < 35; j++) {
            const float x = value_of(y[i * 35 + j]);
            CHECK(j == 20 ? isnan(x) : i == 3 ? isinf(x) : isfinite(x), "y[%d][%d] is %g", i, j, (double)x);
        }
    CHECK(stats.nonfinite == 34 + 14, "%lld counted", (long long)stats.nonfinite);
    release(&p);
}

/* --- convolution --- */

enum way { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, WAYS };
static const char *const ways[WAYS] = {"conv2d", "conv2d_input_grad", "conv2d_weight_grad"};

/* Computes a, b to y by the public functions: exact, in any format. */
static void convolve(enum way way, tensor *y, const tensor *a, const tensor *b, const struct fl_windows *x,
                     const int after[2]) {
    const tensor_window how = {.stride = {x->stride[0], x->stride[1]},
                               .padding = {x->padding[0], after[0], x->padding[1], after[1]},
                               .dilation = {x->dilation[0], x->dilation[1]},
                               .groups = x->groups};
    CHECK(!(way == FORWARD          ? tensor_conv2d(y, a, b, &how)
            : way == INPUT_GRADIENT ? tensor_conv2d_input_grad(y, a, b, &how)
                                    : tensor_conv2d_weight_grad(y, a, b, &how)),
          "%s", tensor_error());
}

/* Magnitudes of the operands, as fp32. */
static tensor *magnitudes_of(const tensor *t) {
    const int64_t shape[4] = {tensor_dim(t, 0), tensor_dim(t, 1), tensor_dim(t, 2), tensor_dim(t, 3)};
    tensor *of = tensor_new(FMT_FP32, 4, shape);
    const uint16_t *from = tensor_const_data(t);
    float *to = tensor_data(of);
    for (int64_t i = 0; i < tensor_count(t); i++)
        to[i] = fabsf(value_of(from[i]));
    return of;
}

static void check_convolution(enum way way, enum data data, const struct fl_windows *x, const int after[2],
                              bool infinite) {
    const int64_t image[4] = {x->batch, x->h, x->w, x->c}, filter[4] = {x->filters, x->r, x->s, x->c / x->groups},
                  out[4] = {x->batch, x->p, x->q, x->filters};
    const int64_t *a_shape = way == FORWARD ? image : out, *b_shape = way == WEIGHT_GRADIENT ? image : filter,
                  *y_shape = way == FORWARD          ? out
                             : way == INPUT_GRADIENT ? image
                                                     : filter;
    tensor *a = tensor_new(FMT_BF16, 4, a_shape), *b = tensor_new(FMT_BF16, 4, b_shape),
           *y = tensor_new(FMT_BF16, 4, y_shape), *exact = tensor_new(FMT_BF16, 4, y_shape),
           *magnitude = tensor_new(FMT_FP32, 4, y_shape);
    uint64_t seed = 77 + (uint64_t)way + (uint64_t)x->c;
    uint16_t *wa = tensor_data(a), *wb = tensor_data(b);
    for (int64_t i = 0; i < tensor_count(a); i++)
        wa[i] = element(data, &seed);
    for (int64_t i = 0; i < tensor_count(b); i++)
        wb[i] = element(data, &seed);
    if (infinite) {
        wa[check_random(&seed) % (uint64_t)tensor_count(a)] = 0x7f80;
        /* if a strided gradient reaches no pixel, class exact multiplies filters by zero, and class fast omits it */
        if (way != INPUT_GRADIENT || (x->stride[0] == 1 && x->stride[1] == 1)) {
            const uint64_t count = (uint64_t)tensor_count(b), line = (uint64_t)(x->w * x->c);
            /* for an image, in its last line, next to the padding */
            wb[way == WEIGHT_GRADIENT ? count - 1 - check_random(&seed) % line : check_random(&seed) % count] = 0x7f80;
        }
    }
    tensor *ma = magnitudes_of(a), *mb = magnitudes_of(b);
    convolve(way, exact, a, b, x, after);
    convolve(way, magnitude, ma, mb, x, after);
    const double k =
        way == WEIGHT_GRADIENT ? (double)(out[0] * out[1] * out[2]) : (double)(x->r * x->s * x->c * x->filters);
    const float *m = tensor_const_data(magnitude);
    const uint16_t *want = tensor_const_data(exact), *got = tensor_const_data(y);
    for (int t = 0; t < THREAD_COUNTS; t++) {
        tensor_set_threads(thread_counts[t]);
        memset(tensor_data(y), 0x55, tensor_bytes(y));
        struct fl_stats stats = {0};
        const struct fl_args args = {.op = fl_op_named(ways[way]),
                                     .format = fl_format_of(FMT_BF16),
                                     .in = {fl_view_of(a), fl_view_of(b)},
                                     .out = fl_view_of(y),
                                     .p.product.windows = *x,
                                     .stats = &stats};
        CHECK(!fl_kernel_in(args.format, args.op, row)(&args), "%s", tensor_error());
        int64_t wrong = 0, other = 0;
        for (int64_t i = 0; i < tensor_count(y); i++) {
            const double error = fabs((double)value_of(got[i]) - (double)value_of(want[i]));
            const double allowed =
                2 * (k * 0x1p-23 * (double)m[i] + 2 * k * 0x1p-126) + 0x1p-7 * fabs((double)value_of(want[i]));
            wrong += isfinite(value_of(want[i]))
                         ? !(error <= allowed)
                         : isnan(value_of(want[i])) != isnan(value_of(got[i])) || isfinite(value_of(got[i]));
            other += got[i] != want[i];
        }
        CHECK(!wrong && (data != INTEGERS || infinite || !other),
              "%s %s %s data %d threads %d infinite %d: %lld beyond the bound, %lld not the exact bits",
              fl_backend_name(row), ways[way], windows_text(x), (int)data, thread_counts[t], infinite, (long long)wrong,
              (long long)other);
    }
    tensor_set_threads(0);
    tensor *const all[] = {a, b, y, exact, magnitude, ma, mb};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

static void check_convolutions(void) {
    /* batch h w c filters r s stride padding dilation groups */
    static const int shapes[][11] = {{2, 8, 8, 16, 16, 3, 3, 1, 1, 1, 1},  {3, 7, 7, 5, 9, 3, 3, 2, 1, 1, 1},
                                     {1, 9, 11, 32, 40, 3, 3, 1, 1, 1, 1}, {2, 16, 16, 32, 32, 3, 3, 1, 1, 1, 1},
                                     {1, 13, 10, 3, 17, 5, 3, 2, 2, 2, 1}, {4, 6, 5, 64, 33, 1, 1, 1, 0, 1, 1},
                                     {2, 9, 9, 24, 12, 3, 3, 1, 2, 2, 3},  {1, 20, 33, 7, 4, 2, 7, 3, 0, 1, 1},
                                     {5, 4, 4, 48, 20, 1, 1, 2, 0, 1, 1},  {2, 5, 6, 8, 8, 3, 3, 1, 1, 1, 8},
                                     {1, 1, 50, 3, 2, 1, 9, 1, 4, 3, 1},   {1, 40, 24, 16, 16, 3, 3, 1, 1, 1, 1},
                                     {1, 37, 37, 64, 64, 3, 3, 1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int *v = shapes[i], after[2] = {v[8], v[8]};
        struct fl_windows g = {.batch = v[0],
                               .h = v[1],
                               .w = v[2],
                               .c = v[3],
                               .filters = v[4],
                               .r = v[5],
                               .s = v[6],
                               .stride = {v[7], v[7]},
                               .padding = {v[8], v[8]},
                               .dilation = {v[9], v[9]},
                               .groups = v[10]};
        g.p = window_count(g.h, v[8], v[8], g.r, v[7], v[9]);
        g.q = window_count(g.w, v[8], v[8], g.s, v[7], v[9]);
        for (int way = 0; way < WAYS; way++) {
            check_convolution((enum way)way, INTEGERS, &g, after, false);
            check_convolution((enum way)way, NORMAL, &g, after, false);
            check_convolution((enum way)way, INTEGERS, &g, after, true);
        }
    }
    uint64_t seed = 20170711;
    for (int i = 0; i < 60; i++) {
        int after[2];
        const struct fl_windows g = draw_windows(&seed, i % 4 ? 20 : 70, after);
        for (int way = 0; way < WAYS; way++) {
            check_convolution((enum way)way, INTEGERS, &g, after, false);
            check_convolution((enum way)way, NORMAL, &g, after, false);
        }
    }
}

static void *class_of_new_thread(void *got) {
    *(tensor_class *)got = tensor_result_class();
    return NULL;
}

static void check_setting(void) {
    CHECK(tensor_result_class() == TENSOR_EXACT, "not exact at the start");
    CHECK(!tensor_set_class(TENSOR_FAST), "%s", tensor_error());
    pthread_t thread;
    tensor_class other = TENSOR_FAST;
    CHECK(!pthread_create(&thread, NULL, class_of_new_thread, &other) && !pthread_join(thread, NULL), "no thread");
    CHECK(other == TENSOR_EXACT, "a new thread is not exact");
    CHECK(tensor_set_class((tensor_class)2) == TENSOR_E_ARGUMENT, "class 2 was taken");
    CHECK(strstr(tensor_error(), "set_class: 2, expected TENSOR_EXACT (0) or TENSOR_FAST (1)"), "%s", tensor_error());
    CHECK(tensor_result_class() == TENSOR_FAST, "a refused class changed the setting");
    CHECK(!tensor_set_class(TENSOR_EXACT), "%s", tensor_error());
}

/* Under a cap below avx512, and whenever there is no kernel of class fast, the kernel of class exact runs. */
static void check_exact_otherwise(void) {
    static const char *const caps[] = {"ref", "portable", "avx2", "avx512bw"};
    struct problem p = make(PLAIN, NORMAL, 30, 50, 700);
    const size_t bytes = tensor_bytes(p.y);
    uint16_t *exact = malloc(bytes);
    CHECK(!tensor_matmul(p.y, p.a, p.b), "%s", tensor_error());
    memcpy(exact, tensor_const_data(p.y), bytes);
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        CHECK(!tensor_set_backend(caps[i]), "%s", tensor_error());
        tensor_set_class(TENSOR_EXACT);
        const char *runs = tensor_kernel_backend(FMT_BF16, "matmul");
        tensor_set_class(TENSOR_FAST);
        CHECK(tensor_kernel_backend(FMT_BF16, "matmul") == runs, "under %s another row runs", caps[i]);
        memset(tensor_data(p.y), 0x55, bytes);
        CHECK(!tensor_matmul(p.y, p.a, p.b), "%s", tensor_error());
        CHECK(!memcmp(exact, tensor_const_data(p.y), bytes), "class fast under %s: not the exact bits", caps[i]);
    }
    tensor_set_backend(NULL);
    for (int f = 0; tensor_format_at(f); f++)
        for (int i = 0; tensor_op_at(i); i++) {
            const bool product = tensor_format_at(f) == FMT_BF16 &&
                                 (!strncmp(tensor_op_at(i), "matmul", 6) || !strncmp(tensor_op_at(i), "conv2d", 6));
            tensor_set_class(TENSOR_EXACT);
            const char *runs = tensor_kernel_backend(tensor_format_at(f), tensor_op_at(i));
            tensor_set_class(TENSOR_FAST);
            const char *fast = tensor_kernel_backend(tensor_format_at(f), tensor_op_at(i));
            CHECK(product ? fast == runs || !strcmp(fast, "avx512_fast") || !strcmp(fast, "avx512_amx_fast")
                          : fast == runs,
                  "%s.%s runs on %s", tensor_format_name(tensor_format_at(f)), tensor_op_at(i), fast);
        }
    tensor_set_class(TENSOR_EXACT);
    free(exact);
    release(&p);
}

int main(void) {
    check_setting();
    check_exact_otherwise();
    int rows = 0;
    for (int backend = FIRST_ROW; backend < FL_KERNEL_SETS; backend++) {
        row = (enum fl_backend)backend;
        if (!row_has("matmul"))
            continue;
        rows++;
        check_products();
        check_infinities();
        if (row_has("conv2d"))
            check_convolutions();
    }
    if (!rows && !check_failures)
        return check_skip("this processor, or this build, has no products of bf16");
    return check_summary();
}
