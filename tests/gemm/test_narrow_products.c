/* test_narrow_products.c - products of factors of 4 to 8 bits against exact integers, rounded once by quotient and
 * remainder: all layouts of matmul, batched and not, convolutions with their gradients, every kernel set that this
 * machine runs, several numbers of threads. k reaches beyond the sums that 32 bits hold, with all mantissas at the ends
 * of their range; results are of a narrow format, of 16 bits, and of fp32, whose tasks have kernels of their own. Some
 * factors have mantissas that no byte holds, written by hand. */
#include "check.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const backends[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
enum { BACKENDS = sizeof backends / sizeof backends[0] };
#ifdef FL_AMX_EMULATED
enum { FIRST_BACKEND = BACKENDS - 1 }; /* the other kernel sets have a test of their own */
#else
enum { FIRST_BACKEND = 1 };
#endif
enum { SHIFTED = 16 }; /* both factors lie at exponents that sum to it */

static uint64_t state = 7;

static tensor_format format_of(const char *family, int bits) {
    char name[16];
    tensor_format format = FMT_NONE;
    snprintf(name, sizeof name, strcmp(family, "dfp") ? "%s%d+5" : "%s%d", family, bits);
    CHECK(!tensor_format_find(&format, name), "%s", tensor_error());
    return format;
}

enum pattern { ANY, TOP, OPPOSED, ALTERNATING, SPARSE, PATTERNS, BEYOND_FIRST = PATTERNS, BEYOND_SECOND, BEYOND_LAST };
static const char *const pattern_names[] = {"any",
                                            "all at the top",
                                            "opposed",
                                            "alternating",
                                            "sparse",
                                            "first factor beyond bytes",
                                            "second beyond bytes",
                                            "one element beyond bytes"};

/* Mantissas of 16 bits in a factor of fewer: a few all over it, or the last alone. */
static void write_beyond(int16_t *m, int64_t count, bool last_alone) {
    static const int16_t beyond[] = {128, -129, 32767, -32767, 1000, -300};
    for (int64_t i = last_alone ? count - 1 : 0; i < count; i++)
        if (i == count - 1 || !(check_random(&state) >> 60))
            m[i] = beyond[check_random(&state) % 6];
}

/* A factor's mantissas; `second`: it is the second one. */
static tensor *factor(tensor_format format, int ndim, const int64_t *shape, enum pattern p, bool second) {
    tensor *t = tensor_new(format, ndim, shape);
    const int top = (1 << (tensor_format_bits(format) - 1)) - 1;
    int16_t *m = t ? tensor_data(t) : NULL;
    CHECK(m && !tensor_declare_exponent(t, SHIFTED / 2), "%s", tensor_error());
    for (int64_t i = 0; i < tensor_count(t); i++) {
        const uint64_t r = check_random(&state);
        const int any = (int)(r % (uint64_t)(2 * top + 1)) - top;
        m[i] = (int16_t)(p == ANY || p >= PATTERNS ? any
                         : p == TOP                ? top
                         : p == OPPOSED            ? (second ? -top : top)
                         : p == ALTERNATING        ? (i & 1 ? -top : top)
                         : r >> 32 & 7             ? 0
                                                   : any);
    }
    if (p == (second ? BEYOND_SECOND : BEYOND_FIRST) || (p == BEYOND_LAST && second))
        write_beyond(m, tensor_count(t), p == BEYOND_LAST);
    return t;
}

/* sum / 2^shift to nearest, ties to even, saturated. */
static int64_t rounded(int64_t sum, int shift, int64_t top) {
    const int64_t unit = (int64_t)1 << shift, size = llabs(sum), q = size / unit, twice = 2 * (size % unit);
    const int64_t up = q + (twice > unit || (twice == unit && q % 2)), bounded = up > top ? top : up;
    return sum < 0 ? -bounded : bounded;
}

/* Whether y holds these sums, rounded once. */
static void compare(const char *label, const tensor *y, const int64_t *sums) {
    const tensor_format format = tensor_format_of(y);
    const int64_t count = tensor_count(y);
    int64_t bad = -1;
    if (format == FMT_FP32) {
        const float *x = tensor_const_data(y);
        for (int64_t i = 0; i < count && bad < 0; i++)
            if (x[i] != ldexpf((float)sums[i], -SHIFTED))
                bad = i;
    } else {
        const int16_t *m = tensor_const_data(y);
        const int64_t top = ((int64_t)1 << (tensor_format_bits(format) - 1)) - 1;
        for (int64_t i = 0; i < count && bad < 0; i++)
            if (m[i] != rounded(sums[i], SHIFTED - tensor_exponent(y), top))
                bad = i;
    }
    CHECK(bad < 0, "%s to %s: result %lld, of the sum %lld", label, tensor_format_name(format), (long long)bad,
          (long long)(bad < 0 ? 0 : sums[bad]));
}

/* A result whose exponent lets the largest sum fit nearly, or saturates some. */
static tensor *result(tensor_format format, int ndim, const int64_t *shape, const int64_t *sums) {
    tensor *t = tensor_new(format, ndim, shape);
    if (format == FMT_FP32)
        return t;
    int64_t largest = 1;
    for (int64_t i = 0; i < tensor_count(t); i++)
        largest = llabs(sums[i]) > largest ? llabs(sums[i]) : largest;
    int e = SHIFTED - (int)ceil(log2((double)largest)) + tensor_format_bits(format) - (int)(check_random(&state) % 3);
    e = e < 0 ? 0 : e > SHIFTED ? SHIFTED : e;
    CHECK(!tensor_set_predictor(t, "fixed") && !tensor_declare_exponent(t, e), "%s", tensor_error());
    return t;
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

typedef tensor_status (*product)(tensor *y, const tensor *a, const tensor *b);

/* layout 0: a b, 1: a b^T, 2: a^T b. batch 0: of two matrices. */
static void check_matmul(tensor_format fa, tensor_format fb, enum pattern p, int layout, int64_t batch, int64_t m,
                         int64_t n, int64_t k) {
    static const product single[] = {tensor_matmul, tensor_matmul_nt, tensor_matmul_tn},
                         several[] = {tensor_matmul_batched, tensor_matmul_batched_nt, tensor_matmul_batched_tn};
    static const char *const names[] = {"matmul", "matmul_nt", "matmul_tn"};
    const int64_t of_a[3] = {batch, layout == 2 ? k : m, layout == 2 ? m : k},
                  of_b[3] = {batch, layout == 1 ? n : k, layout == 1 ? k : n}, of_y[3] = {batch, m, n};
    const int skip = batch ? 0 : 1;
    const int64_t matrices = batch ? batch : 1;
    tensor *a = factor(fa, 3 - skip, of_a + skip, p, false), *b = factor(fb, 3 - skip, of_b + skip, p, true);
    int64_t *sums = calloc((size_t)(matrices * m * n), sizeof *sums);
    const int16_t *pa = tensor_const_data(a), *pb = tensor_const_data(b);
    for (int64_t i = 0; i < matrices; i++, pa += m * k, pb += k * n)
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++) {
                int64_t sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += pa[layout == 2 ? l * m + r : r * k + l] * pb[layout == 1 ? c * k + l : l * n + c];
                sums[(i * m + r) * n + c] = sum;
            }
    const tensor_format to[] = {fa, FMT_FLEX16_5, FMT_FP32};
    for (int f = 0; f < 3; f++) {
        tensor *y = result(to[f], 3 - skip, of_y + skip, sums);
        for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
            char label[160];
            tensor_set_backend(backends[back]);
            if (strcmp(tensor_kernel_backend(FMT_FLEX16_5, names[layout]), backends[back]))
                continue;
            tensor_set_threads(1 + (back + f) % 3);
            snprintf(label, sizeof label, "%s on %s, %s by %s, %s, %lld of %lldx%lldx%lld", names[layout],
                     backends[back], tensor_format_name(fa), tensor_format_name(fb), pattern_names[p], (long long)batch,
                     (long long)m, (long long)n, (long long)k);
            CHECK(!(batch ? several : single)[layout](y, a, b), "%s: %s", label, tensor_error());
            compare(label, y, sums);
        }
        tensor_free(y);
    }
    tensor_set_backend(NULL);
    free(sums);
    tensor_free(a);
    tensor_free(b);
}

static void check_matmuls(void) {
    static const int64_t shapes[][3] = {{1, 1, 1},     {2, 3, 5},      {13, 33, 31},  {12, 32, 64},  {25, 47, 515},
                                        {5, 70, 2049}, {49, 20, 2052}, {20, 352, 67}, {7, 9, 16384}, {5, 7, 16389}};
    for (int bits = 4; bits <= 8; bits++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int layout = 0; layout < 3; layout++) {
                const int64_t *of = shapes[s];
                const enum pattern p = (enum pattern)((s + (size_t)bits + (size_t)layout) % PATTERNS);
                const tensor_format f = format_of(s % 2 ? "dfp" : "flex", bits), g = format_of("flex", 12 - bits);
                check_matmul(f, f, bits == 8 ? ANY : p, layout, 0, of[0], of[1], of[2]);
                check_matmul(f, g, p, layout, s < 4 ? 1 + (int64_t)s * 4 : 0, of[0], of[1], of[2]);
            }
    for (int p = BEYOND_FIRST; p <= BEYOND_LAST; p++)
        for (int layout = 0; layout < 3; layout++)
            for (int s = 1; s < 6; s++)
                check_matmul(format_of("flex", 8), format_of("dfp", 4 + s % 5), (enum pattern)p, layout, s == 3 ? 4 : 0,
                             shapes[s][0], shapes[s][1], shapes[s][2]);
    /* 2^31 / 127^2 = 133,145 products fit an int32 */
    static const int64_t long_k[] = {133144, 133160, 200000};
    for (size_t i = 0; i < sizeof long_k / sizeof long_k[0]; i++)
        for (int layout = 0; layout < 3; layout++) {
            check_matmul(format_of("flex", 8), format_of("flex", 8), TOP, layout, 0, 3, 5, long_k[i]);
            check_matmul(format_of("flex", 8), format_of("dfp", 8), OPPOSED, layout, 0, 2, 17, long_k[i]);
        }
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

struct geometry {
    int n, h, w, c, k, r, stride, padding, dilation, groups, p, q;
};

/* All three sums, one product after the other by output position and tap. */
static void convolve(const struct geometry *g, const int16_t *x, const int16_t *w, const int16_t *dy, int64_t *y,
                     int64_t *dx, int64_t *dw) {
    const int depth = g->c / g->groups, own = g->k / g->groups;
    for (int64_t out = 0; out < (int64_t)g->n * g->p * g->q * g->k; out++) {
        const int k = (int)(out % g->k), q = (int)(out / g->k % g->q), p = (int)(out / g->k / g->q % g->p),
                  n = (int)(out / g->k / g->q / g->p);
        for (int r = 0; r < g->r; r++)
            for (int s = 0; s < g->r; s++) {
                const int iy = p * g->stride + r * g->dilation - g->padding,
                          ix = q * g->stride + s * g->dilation - g->padding;
                if (iy < 0 || iy >= g->h || ix < 0 || ix >= g->w)
                    continue;
                for (int c = 0; c < depth; c++) {
                    const int64_t in = (((int64_t)n * g->h + iy) * g->w + ix) * g->c + k / own * depth + c,
                                  tap = (((int64_t)k * g->r + r) * g->r + s) * depth + c;
                    y[out] += x[in] * w[tap];
                    dw[tap] += x[in] * dy[out];
                    dx[in] += dy[out] * w[tap];
                }
            }
    }
}

static void check_convolution(struct geometry g, int bits, enum pattern p, tensor_format to) {
    const tensor_format f = format_of("flex", bits);
    g.p = (g.h + 2 * g.padding - (g.r - 1) * g.dilation - 1) / g.stride + 1;
    g.q = (g.w + 2 * g.padding - (g.r - 1) * g.dilation - 1) / g.stride + 1;
    const int64_t image[] = {g.n, g.h, g.w, g.c}, filter[] = {g.k, g.r, g.r, g.c / g.groups},
                  out[] = {g.n, g.p, g.q, g.k};
    tensor *x = factor(f, 4, image, p, false), *w = factor(f, 4, filter, p, true), *dy = factor(f, 4, out, p, true);
    int64_t *sy = calloc((size_t)tensor_count(dy), sizeof *sy), *sx = calloc((size_t)tensor_count(x), sizeof *sx),
            *sw = calloc((size_t)tensor_count(w), sizeof *sw);
    convolve(&g, tensor_const_data(x), tensor_const_data(w), tensor_const_data(dy), sy, sx, sw);
    tensor *y = result(to, 4, out, sy), *dx = result(to, 4, image, sx), *dw = result(to, 4, filter, sw);
    const tensor_window how = {TENSOR_SQUARE(0, g.stride, g.padding), .dilation = {g.dilation, g.dilation},
                               .groups = g.groups};
    for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
        char label[160];
        tensor_set_backend(backends[back]);
        if (strcmp(tensor_kernel_backend(FMT_FLEX16_5, "conv2d"), backends[back]))
            continue;
        tensor_set_threads(1 + back % 3);
        snprintf(label, sizeof label, "%s, %s, %s, image %dx%dx%dx%d, %d filters of %d, stride %d, %d groups",
                 backends[back], tensor_format_name(f), pattern_names[p], g.n, g.h, g.w, g.c, g.k, g.r, g.stride,
                 g.groups);
        CHECK(!tensor_conv2d(y, x, w, &how) && !tensor_conv2d_input_grad(dx, dy, w, &how) &&
                  !tensor_conv2d_weight_grad(dw, dy, x, &how),
              "%s: %s", label, tensor_error());
        compare(label, y, sy);
        compare(label, dx, sx);
        compare(label, dw, sw);
    }
    tensor_set_backend(NULL);
    tensor *const all[] = {x, w, dy, y, dx, dw};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
    free(sy);
    free(sx);
    free(sw);
}

static void check_convolutions(void) {
    /* n h w c k r stride padding dilation groups */
    static const struct geometry cases[] = {
        {2, 5, 5, 1, 1, 3, 1, 1, 1, 1},    {3, 8, 8, 3, 16, 3, 1, 1, 1, 1},    {2, 8, 8, 16, 16, 3, 1, 1, 1, 1},
        {2, 9, 7, 16, 32, 3, 2, 1, 1, 1},  {1, 11, 12, 17, 5, 5, 3, 2, 1, 1},  {2, 6, 6, 32, 33, 1, 1, 0, 1, 1},
        {1, 7, 7, 4, 6, 1, 2, 0, 1, 1},    {2, 4, 4, 130, 12, 3, 1, 1, 1, 1},  {1, 6, 6, 2, 3, 3, 2, 0, 1, 1},
        {40, 16, 16, 4, 5, 3, 1, 1, 1, 1}, {2, 9, 8, 16, 17, 3, 1, 2, 2, 1},   {1, 13, 12, 6, 5, 3, 2, 4, 3, 1},
        {2, 8, 9, 32, 24, 3, 1, 1, 1, 4},  {3, 17, 17, 12, 18, 3, 3, 2, 2, 3}, {3, 14, 15, 66, 66, 3, 1, 1, 1, 66},
        {2, 3, 3, 600, 7, 3, 1, 1, 1, 1},  {1, 2, 2, 1040, 40, 3, 1, 1, 1, 1}, {3000, 1, 1, 5, 7, 1, 1, 0, 1, 1},
        {1, 1, 70, 7, 50, 1, 1, 0, 1, 1},  {1, 40, 40, 5, 130, 3, 1, 1, 1, 1}, {2100, 1, 1, 3, 4, 3, 1, 1, 1, 1},
        {5, 9, 6, 9, 48, 3, 2, 1, 1, 1},   {1, 10, 60, 20, 40, 3, 1, 1, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int j = 0; j < 3; j++) {
            const enum pattern p = j ? (enum pattern)((i + (size_t)j) % PATTERNS) : ANY;
            const int bits = j ? 4 + (int)(i + (size_t)j) % 5 : 8;
            check_convolution(cases[i], bits, p,
                              i % 3 == 0 ? FMT_FP32
                              : j == 1   ? FMT_FLEX16_5
                                         : format_of("flex", bits));
        }
    for (size_t i = 1; i < 14; i++)
        check_convolution(cases[i], 4 + (int)i % 5, (enum pattern)(BEYOND_FIRST + i % 3),
                          i % 2 ? FMT_FLEX16_5 : format_of("flex", 8));
}

int main(void) {
    check_matmuls();
    check_convolutions();
    return check_summary();
}
