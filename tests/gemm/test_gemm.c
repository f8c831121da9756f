/* Matmul and convolution against arithmetic by hand, not against the reference kernels: exact integers and one rounding
 * by remainders for the shared-exponent formats, error bounds from double for the float formats. Adversarial operands
 * for the proof that lets int16 products stay in 32-bit lanes; every kernel set that this machine runs; 1, 2, 3, 7
 * threads. */
#include "check.h"
#include "core/table/format.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

__extension__ typedef __int128 wide;

static const char *const backends[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
enum { BACKENDS = sizeof backends / sizeof backends[0] };
#ifdef FL_AMX_EMULATED
enum { FIRST_BACKEND = BACKENDS - 1 }; /* the other kernel sets have a test of their own */
#else
enum { FIRST_BACKEND = 1 };
#endif
static const int threads[] = {1, 2, 3, 7};

/* Nearest integer to s / 2^shift (s * 2^-shift for negative shifts), ties to even, by quotient and remainder;
 * saturated. */
static int16_t round_by_hand(int64_t s, int shift, int64_t *saturated) {
    wide q, n = s;
    if (shift <= 0) {
        q = shift < -60 ? (s > 0) - (s < 0) : 0;
        q = shift < -60 ? q * 100000 : n * ((wide)1 << -shift);
    } else if (shift > 100) {
        q = 0;
    } else {
        const wide d = (wide)1 << shift;
        q = n / d;
        wide r = n - q * d; /* the sign of n */
        const wide twice = (r < 0 ? -r : r) * 2;
        if (twice > d || (twice == d && (q & 1)))
            q += n < 0 ? -1 : 1;
    }
    if (q > 32767 || q < -32767) {
        ++*saturated;
        return q > 0 ? 32767 : -32767;
    }
    return (int16_t)q;
}

enum pattern { GAUSS, FULL, ALL_MAX, ALL_MIN_RAW, ALTERNATING, THRESHOLD, ONE_LARGE, ODD_LARGE, PATTERNS };
static const char *const pattern_names[] = {"Gaussian",    "full range", "all 32767", "all raw -32768",
                                            "alternating", "threshold",  "one large", "odd ones large"};

/* THRESHOLD: 2 L a b just at and just above 2^31 - 2^16 for segments of L pairs, by the magnitude of the filling. */
static int16_t element(enum pattern p, int64_t i, int level, uint64_t *seed) {
    const uint64_t r = check_random(seed);
    switch (p) {
    case GAUSS:
        return (
            int16_t)(((int)(r & 4095) + (int)(r >> 12 & 4095) + (int)(r >> 24 & 4095) + (int)(r >> 36 & 4095) - 8190));
    case FULL:
        return (int16_t)((int)(r % 65535) - 32767);
    case ALL_MAX:
        return 32767;
    case ALL_MIN_RAW:
        return -32768;
    case ALTERNATING:
        return i & 1 ? -32767 : 32767;
    case THRESHOLD: { /* squares around (2^31 - 2^16) / 2 L */
        const int64_t limit = 0x7fffffff - 0xffff;
        const int pairs = 1 << (level / 2);
        return (int16_t)((int)sqrt((double)limit / (2 * pairs)) + level % 2);
    }
    case ONE_LARGE:
        return i % 97 == 13 ? 32767 : (int16_t)(r % 3 - 1);
    case ODD_LARGE:
        return i & 1 ? 32767 : 1;
    default:
        return 0;
    }
}

static void matmul_case(tensor_format f, int kind, enum pattern p, int level, int64_t m, int64_t n, int64_t k) {
    uint64_t seed = 99 + (uint64_t)kind + (uint64_t)level;
    int64_t a_shape[2] = {kind == 2 ? k : m, kind == 2 ? m : k}, b_shape[2] = {kind == 1 ? n : k, kind == 1 ? k : n};
    tensor *a = tensor_new(f, 2, a_shape), *b = tensor_new(f, 2, b_shape), *y = tensor_new(f, TENSOR_SHAPE(m, n));
    int16_t *pa = tensor_data(a), *pb = tensor_data(b), *py = tensor_data(y);
    for (int64_t i = 0; i < m * k; i++)
        pa[i] = element(p, i, level, &seed);
    for (int64_t i = 0; i < n * k; i++)
        pb[i] = element(p, p == ALTERNATING ? i / 2 : i, level, &seed);
    tensor_declare_exponent(a, 9);
    tensor_declare_exponent(b, 12);
    int64_t *sums = malloc((size_t)(m * n) * sizeof *sums), largest = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t s = 0;
            for (int64_t l = 0; l < k; l++)
                s += (int64_t)pa[kind == 2 ? l * m + i : i * k + l] * pb[kind == 1 ? j * k + l : l * n + j];
            sums[i * n + j] = s;
            if (llabs(s) > largest)
                largest = llabs(s);
        }
    tensor_set_predictor(y, "fixed");
    for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
        tensor_set_backend(backends[back]);
        const char *op = kind == 0 ? "matmul" : kind == 1 ? "matmul_nt" : "matmul_tn";
        if (strcmp(tensor_kernel_backend(f, op), backends[back]))
            continue;
        for (int t = 0; t < 4; t++) {
            tensor_set_threads(threads[t]);
            /* exponents that fit, saturate, and round nearly everything away */
            const int fitting = 21 - (largest ? (int)ceil(log2((double)largest / 32767)) : 0);
            const int e = t == 1 ? fitting + 3 : t == 2 ? fitting - 9 : fitting;
            tensor_declare_exponent(y, e < 0 ? 0 : e > 31 ? 31 : e);
            memset(py, 0x55, (size_t)(m * n) * 2);
            tensor_status status = kind == 0   ? tensor_matmul(y, a, b)
                                   : kind == 1 ? tensor_matmul_nt(y, a, b)
                                               : tensor_matmul_tn(y, a, b);
            CHECK(!status, "%s", tensor_error());
            int64_t saturated = 0, flushed = 0, bad = -1;
            int gamma = 0;
            for (int64_t i = 0; i < m * n; i++) {
                const int16_t want = round_by_hand(sums[i], 21 - tensor_exponent(y), &saturated);
                flushed += sums[i] != 0 && want == 0;
                gamma = abs(want) > gamma ? abs(want) : gamma;
                if (bad < 0 && py[i] != want)
                    bad = i;
            }
            tensor_stats s;
            tensor_statistics(&s, NULL, y);
            CHECK(bad < 0, "%s.%s.%s %s level %d %lldx%lldx%lld threads %d e %d: i=%lld sum %lld got %d",
                  tensor_format_name(f), op, backends[back], pattern_names[p], level, (long long)m, (long long)n,
                  (long long)k, threads[t], tensor_exponent(y), (long long)bad, (long long)(bad < 0 ? 0 : sums[bad]),
                  bad < 0 ? 0 : py[bad]);
            CHECK(s.saturated == saturated && s.flushed == flushed && s.gamma == gamma &&
                      s.maximum == ldexp((double)largest, -21),
                  "%s.%s.%s %s: saturated %lld want %lld, flushed %lld want %lld, gamma %d want %d, maximum %a want %a",
                  tensor_format_name(f), op, backends[back], pattern_names[p], (long long)s.saturated,
                  (long long)saturated, (long long)s.flushed, (long long)flushed, s.gamma, gamma, s.maximum,
                  ldexp((double)largest, -21));
        }
    }
    free(sums);
    tensor_free(a);
    tensor_free(b);
    tensor_free(y);
}

static void exact_matmuls(void) {
    static const int64_t shapes[][3] = {
        {1, 1, 1},      {2, 3, 4},     {13, 17, 31},   {12, 32, 512}, {25, 33, 513},
        {48, 16, 1153}, {7, 70, 2305}, {16, 40, 9000}, {20, 352, 60}}; /* the last block is narrower than the others */
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int kind = 0; kind < 3; kind++)
            for (int p = 0; p < PATTERNS; p++)
                for (int level = 0; level < (p == THRESHOLD ? 22 : 1); level++)
                    matmul_case(p & 1 ? FMT_DFP16 : FMT_FLEX16_5, kind, (enum pattern)p, level, shapes[s][0],
                                shapes[s][1], shapes[s][2]);
    matmul_case(FMT_FLEX16_5, 2, ALL_MAX, 0, 5, 9, 131072); /* a sum of 2^17 products of 2^30: 2^47 */
    matmul_case(FMT_FLEX16_5, 2, ALL_MIN_RAW, 0, 5, 9, 131072);
}

/* --- convolutions, exact ----------------------------------------------------------------------------------------- */

struct geometry {
    int n, h, w, c, k, r, stride, padding, dilation, groups, p, q;
};

static int64_t at_image(const int16_t *x, const struct geometry *g, int n, int y, int z, int c) {
    return y < 0 || y >= g->h || z < 0 || z >= g->w ? 0 : x[((n * g->h + y) * g->w + z) * g->c + c];
}

/* All three sums by scattering over (output position, tap): another order than any kernel's. */
static void convolve(const struct geometry *g, const int16_t *x, const int16_t *w, const int16_t *dy, int64_t *y,
                     int64_t *dx, int64_t *dw) {
    const int depth = g->c / g->groups, own = g->k / g->groups;
    for (int n = 0; n < g->n; n++)
        for (int p = 0; p < g->p; p++)
            for (int q = 0; q < g->q; q++)
                for (int k = 0; k < g->k; k++)
                    for (int r = g->r - 1; r >= 0; r--)
                        for (int s = g->r - 1; s >= 0; s--)
                            for (int c = k / own * depth; c < (k / own + 1) * depth; c++) {
                                const int iy = p * g->stride + r * g->dilation - g->padding,
                                          ix = q * g->stride + s * g->dilation - g->padding;
                                const int64_t out = ((n * g->p + p) * g->q + q) * g->k + k,
                                              tap = ((k * g->r + r) * g->r + s) * depth + c % depth,
                                              v = at_image(x, g, n, iy, ix, c);
                                y[out] += v * w[tap];
                                dw[tap] += v * dy[out];
                                if (iy >= 0 && iy < g->h && ix >= 0 && ix < g->w)
                                    dx[((n * g->h + iy) * g->w + ix) * g->c + c] += (int64_t)dy[out] * w[tap];
                            }
}

static void compare_exact(const char *label, tensor *t, const int64_t *sums, int exponent) {
    const int16_t *m = tensor_const_data(t);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        int64_t saturated = 0;
        const int16_t want = round_by_hand(sums[i], exponent - tensor_exponent(t), &saturated);
        if (m[i] != want) {
            CHECK(m[i] == want, "%s i=%lld sum %lld e %d got %d want %d", label, (long long)i, (long long)sums[i],
                  tensor_exponent(t), m[i], want);
            return;
        }
    }
    CHECK(true, "%s", label);
}

static void exact_convolutions(void) {
    /* n h w c k r stride padding dilation groups */
    static const struct geometry cases[] = {
        {2, 5, 5, 1, 1, 3, 1, 1, 1, 1},        {3, 8, 8, 3, 16, 3, 1, 1, 1, 1},     {2, 8, 8, 16, 16, 3, 1, 1, 1, 1},
        {2, 9, 7, 16, 32, 3, 2, 1, 1, 1},      {1, 11, 12, 17, 5, 5, 3, 2, 1, 1},   {2, 6, 6, 32, 33, 1, 1, 0, 1, 1},
        {1, 7, 7, 4, 6, 1, 2, 0, 1, 1},        {2, 4, 4, 130, 12, 3, 1, 1, 1, 1},   {1, 6, 6, 2, 3, 3, 2, 0, 1, 1},
        {40, 16, 16, 4, 5, 3, 1, 1, 1, 1},     {2, 9, 8, 16, 17, 3, 1, 2, 2, 1},    {1, 13, 12, 6, 5, 3, 2, 4, 3, 1},
        {2, 8, 9, 32, 24, 3, 1, 1, 1, 4},      {3, 17, 17, 12, 18, 3, 3, 2, 2, 3},  {3, 14, 15, 66, 66, 3, 1, 1, 1, 66},
        {2, 11, 11, 8, 16, 5, 2, 4, 2, 8},     {2, 13, 12, 48, 48, 3, 2, 1, 1, 48}, {29, 4, 4, 6, 33, 3, 1, 1, 1, 1},
        {1, 2, 61, 300, 300, 3, 1, 1, 1, 300}, {1, 2, 37, 40, 40, 5, 1, 3, 1, 40},  {1, 2, 75, 40, 40, 3, 2, 2, 2, 40},
        {3, 5, 4, 130, 260, 1, 1, 0, 1, 1},    {2, 4, 3, 260, 64, 1, 1, 0, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int p = GAUSS; p < PATTERNS; p++) {
            struct geometry g = cases[i];
            g.p = (g.h + 2 * g.padding - (g.r - 1) * g.dilation - 1) / g.stride + 1;
            g.q = (g.w + 2 * g.padding - (g.r - 1) * g.dilation - 1) / g.stride + 1;
            const tensor_format f = i & 1 ? FMT_DFP16 : FMT_FLEX16_5;
            tensor *x = tensor_new(f, TENSOR_SHAPE(g.n, g.h, g.w, g.c)),
                   *w = tensor_new(f, TENSOR_SHAPE(g.k, g.r, g.r, g.c / g.groups)),
                   *dy = tensor_new(f, TENSOR_SHAPE(g.n, g.p, g.q, g.k)),
                   *y = tensor_new(f, TENSOR_SHAPE(g.n, g.p, g.q, g.k)),
                   *dx = tensor_new(f, TENSOR_SHAPE(g.n, g.h, g.w, g.c)),
                   *dw = tensor_new(f, TENSOR_SHAPE(g.k, g.r, g.r, g.c / g.groups));
            uint64_t seed = i * 100 + (uint64_t)p;
            tensor *inputs[] = {x, w, dy};
            for (int t = 0; t < 3; t++)
                for (int64_t j = 0; j < tensor_count(inputs[t]); j++) {
                    /* the odd columns of the image, which every second filter position of a stride of 2 reads */
                    const int64_t at = p == ODD_LARGE ? (t ? 1 : j / g.c % g.w) : t == 1 ? j / 2 : j;
                    ((int16_t *)tensor_data(inputs[t]))[j] = element((enum pattern)p, at, 6 + (int)i, &seed);
                }
            tensor_declare_exponent(x, 10);
            tensor_declare_exponent(w, 14);
            tensor_declare_exponent(dy, 20);
            int64_t *sy = calloc((size_t)tensor_count(y), 8), *sx = calloc((size_t)tensor_count(dx), 8),
                    *sw = calloc((size_t)tensor_count(dw), 8);
            convolve(&g, tensor_data(x), tensor_data(w), tensor_data(dy), sy, sx, sw);
            const tensor_window how = {TENSOR_SQUARE(0, g.stride, g.padding), .dilation = {g.dilation, g.dilation},
                                       .groups = g.groups};
            for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
                tensor_set_backend(backends[back]);
                if (strcmp(tensor_kernel_backend(f, "conv2d"), backends[back]))
                    continue;
                for (int t = 0; t < 4; t++) {
                    char label[128];
                    snprintf(label, sizeof label, "conv case %zu %s %s threads %d", i, pattern_names[p], backends[back],
                             threads[t]);
                    tensor_set_threads(threads[t]);
                    CHECK(!tensor_conv2d(y, x, w, &how) && !tensor_conv2d_input_grad(dx, dy, w, &how) &&
                              !tensor_conv2d_weight_grad(dw, dy, x, &how),
                          "%s: %s", label, tensor_error());
                    compare_exact(label, y, sy, 24);
                    compare_exact(label, dx, sx, 34);
                    compare_exact(label, dw, sw, 30);
                }
            }
            free(sy);
            free(sx);
            free(sw);
            tensor *all[] = {x, w, dy, y, dx, dw};
            for (int t = 0; t < 6; t++)
                tensor_free(all[t]);
        }
}

/* Sums of more products than a depthwise kernel holds in 32 bits. */
static void long_weight_gradient(void) {
    enum { PIXELS = 170000, CHANNELS = 16 };
    tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, PIXELS / 2, 1, CHANNELS)),
           *dy = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, PIXELS / 2, 1, CHANNELS)),
           *dw = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(CHANNELS, 1, 1, 1));
    int16_t *a = tensor_data(x), *b = tensor_data(dy);
    int64_t sums[CHANNELS] = {0};
    uint64_t seed = 5;
    for (int64_t i = 0; i < (int64_t)PIXELS * CHANNELS; i++) {
        a[i] = element(FULL, i, 0, &seed);
        b[i] = element(i % CHANNELS ? FULL : ALL_MIN_RAW, i, 0, &seed);
        sums[i % CHANNELS] += a[i] * b[i];
    }
    tensor_declare_exponent(x, 14);
    tensor_declare_exponent(dy, 14);
    for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
        tensor_set_backend(backends[back]);
        if (strcmp(tensor_kernel_backend(FMT_FLEX16_5, "conv2d"), backends[back]))
            continue;
        CHECK(!tensor_conv2d_weight_grad(dw, dy, x, &(tensor_window){TENSOR_SQUARE(0, 1, 0), .groups = CHANNELS}), "%s",
              tensor_error());
        compare_exact(backends[back], dw, sums, 28);
    }
    tensor_free(x);
    tensor_free(dy);
    tensor_free(dw);
}

/* Depthwise sums that int32 just holds, and that it just does not hold: 2^31 - 2^15 and 2^31; those of all channels, or
 * of the last one alone. */
static void largest_depthwise_sums(void) {
    enum { SIDE = 3, POSITIONS = SIDE * SIDE, MOST_CHANNELS = 45 };
    for (int back = FIRST_BACKEND; back < BACKENDS; back++)
        for (int channels = 3; channels <= MOST_CHANNELS; channels += 6)
            for (int variant = 0; variant < 4; variant++) {
                const int least = INT16_MIN + variant % 2, first_large = variant / 2 * (channels - 1);
                tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, SIDE, SIDE, channels)),
                       *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(channels, SIDE, SIDE, 1)),
                       *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, 1, 1, channels));
                int16_t *of_x = tensor_data(x), *of_w = tensor_data(w);
                int64_t sums[MOST_CHANNELS];
                for (int64_t i = 0; i < POSITIONS * channels; i++) {
                    of_x[i] = INT16_MIN;
                    of_w[i] = (int16_t)(i / POSITIONS < first_large ? i % POSITIONS
                                        : i % POSITIONS == 4        ? INT16_MIN
                                        : i % POSITIONS == SIDE + 2 ? least
                                                                    : 0);
                }
                for (int c = 0; c < channels; c++) {
                    sums[c] = 0;
                    for (int i = 0; i < POSITIONS; i++)
                        sums[c] += INT16_MIN * (int64_t)of_w[c * POSITIONS + i];
                }
                tensor_declare_exponent(x, 14);
                tensor_declare_exponent(w, 14);
                tensor_set_backend(backends[back]);
                if (!strcmp(tensor_kernel_backend(FMT_FLEX16_5, "conv2d"), backends[back])) {
                    CHECK(!tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 0), .groups = channels}), "%s",
                          tensor_error());
                    compare_exact(backends[back], y, sums, 28);
                }
                tensor_free(x);
                tensor_free(w);
                tensor_free(y);
            }
}

/* Depthwise convolutions of one image, with filters of 3x3 and a padding of one. */
static struct geometry depthwise(int height, int width, int channels, int stride) {
    return (struct geometry){.n = 1,
                             .h = height,
                             .w = width,
                             .c = channels,
                             .k = channels,
                             .r = 3,
                             .stride = stride,
                             .padding = 1,
                             .dilation = 1,
                             .groups = channels,
                             .p = (height - 1) / stride + 1,
                             .q = (width - 1) / stride + 1};
}

/* Compares the weight gradient of depthwise convolutions with a stride of one. */
static void check_depthwise_weights(const char *label, const struct geometry *g, tensor *x, tensor *dy) {
    const int64_t pixels = (int64_t)g->h * g->w * g->c, weights = g->c * 9;
    int16_t *no_weights = calloc((size_t)weights, sizeof *no_weights);
    int64_t *unused = calloc((size_t)pixels, sizeof *unused), *sw = calloc((size_t)weights, sizeof *sw);
    tensor *dw = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(g->c, 3, 3, 1));
    tensor_declare_exponent(x, 14);
    tensor_declare_exponent(dy, 14);
    convolve(g, tensor_data(x), no_weights, tensor_data(dy), unused, unused, sw);
    for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
        tensor_set_backend(backends[back]);
        if (strcmp(tensor_kernel_backend(FMT_FLEX16_5, "conv2d"), backends[back]))
            continue;
        for (int t = 1; t <= 2; t++) { /* two threads may divide the rows of filters */
            tensor_set_threads(t);
            CHECK(!tensor_conv2d_weight_grad(dw, dy, x, &(tensor_window){TENSOR_SQUARE(0, 1, 1), .groups = g->c}), "%s",
                  tensor_error());
            compare_exact(label, dw, sw, 28);
        }
    }
    free(no_weights);
    free(unused);
    free(sw);
    tensor_free(dw);
}

/* One column of the least mantissa: depthwise sums that see two or three of its pixels do not fit int32, all others are
 * zero. */
static void large_column(void) {
    enum { HIGH = 3, WIDE = 61, CHANNELS = 300, ROOM = HIGH * WIDE * CHANNELS };
    static int64_t sy[ROOM], sx[ROOM], sw[CHANNELS * HIGH * HIGH];
    for (int stride = 1; stride <= 2; stride++) {
        const struct geometry g = depthwise(HIGH, WIDE, CHANNELS, stride);
        tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, g.h, g.w, CHANNELS)),
               *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(CHANNELS, 3, 3, 1)),
               *dy = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, g.p, g.q, CHANNELS)),
               *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, g.p, g.q, CHANNELS)),
               *dx = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, g.h, g.w, CHANNELS));
        const tensor_window how = {TENSOR_SQUARE(0, stride, 1), .groups = CHANNELS};
        tensor *all[] = {x, w, dy, y, dx};
        for (int64_t i = 0; i < tensor_count(w); i++)
            ((int16_t *)tensor_data(w))[i] = INT16_MIN;
        for (int column = 0; column < WIDE; column += 1 + column % 3) {
            for (int t = 0; t < 3; t += 2)
                for (int64_t i = 0; i < tensor_count(all[t]); i++)
                    ((int16_t *)tensor_data(all[t]))[i] = i / CHANNELS % (t ? g.q : g.w) == column ? INT16_MIN : 0;
            for (int t = 0; t < 3; t++)
                tensor_declare_exponent(all[t], 14);
            memset(sy, 0, sizeof sy);
            memset(sx, 0, sizeof sx);
            convolve(&g, tensor_data(x), tensor_data(w), tensor_data(dy), sy, sx, sw);
            for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
                tensor_set_backend(backends[back]);
                if (strcmp(tensor_kernel_backend(FMT_FLEX16_5, "conv2d"), backends[back]))
                    continue;
                CHECK(!tensor_conv2d(y, x, w, &how) && !tensor_conv2d_input_grad(dx, dy, w, &how), "%s",
                      tensor_error());
                compare_exact("column", y, sy, 28);
                compare_exact("column", dx, sx, 28);
            }
        }
        for (int t = 0; t < 5; t++)
            tensor_free(all[t]);
    }
}

/* One line of x and one of dy of the least mantissa: depthwise weight gradients of many lines, whose sums do not fit
 * int32 where the lines meet. */
static void large_lines(void) {
    enum { HIGH = 20, WIDE = 61, CHANNELS = 64, LINE = WIDE * CHANNELS };
    const struct geometry g = depthwise(HIGH, WIDE, CHANNELS, 1);
    tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, HIGH, WIDE, CHANNELS)),
           *dy = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, HIGH, WIDE, CHANNELS));
    for (int line = 0; line < HIGH; line++)
        for (int meets = line - (line > 0); meets <= line + 1 && meets < HIGH; meets++) {
            for (int64_t i = 0; i < HIGH * LINE; i++) {
                ((int16_t *)tensor_data(x))[i] = i / LINE == line ? INT16_MIN : 0;
                ((int16_t *)tensor_data(dy))[i] = i / LINE == meets ? INT16_MIN : 0;
            }
            check_depthwise_weights("lines", &g, x, dy);
        }
    tensor_free(x);
    tensor_free(dy);
}

/* Depthwise weight gradients of mantissas of one size, of which 2, 4, 6, 8, 10 and more products just fit int32; all
 * of one sign, or dy of another one at one pixel. */
static void mantissas_of_one_size(void) {
    enum { HIGH = 2, WIDE = 61 };
    static const int16_t sizes[] = {32767, 23170, 23171, 18918, 16384, 14654, 13377, 11585, 181};
    for (int channels = 32; channels <= 64; channels += 16) {
        const struct geometry g = depthwise(HIGH, WIDE, channels, 1);
        tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, HIGH, WIDE, channels)),
               *dy = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, HIGH, WIDE, channels));
        for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
            const int16_t size = sizes[i / 2], at_one = (int16_t)(i % 2 ? -size : size);
            for (int64_t j = 0; j < tensor_count(x); j++) {
                ((int16_t *)tensor_data(x))[j] = size;
                ((int16_t *)tensor_data(dy))[j] = j / channels == 7 ? at_one : size;
            }
            check_depthwise_weights("one size", &g, x, dy);
        }
        tensor_free(x);
        tensor_free(dy);
    }
}

/* A weight gradient of 1x1 filters over more pixels than a block of packed panels has. */
static void weight_gradient_in_blocks(void) {
    enum { PIXELS = 1123, CHANNELS = 128 };
    tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, 1, PIXELS, CHANNELS)),
           *dy = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, 1, PIXELS, CHANNELS)),
           *dw = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(CHANNELS, 1, 1, CHANNELS));
    int16_t *a = tensor_data(dy), *b = tensor_data(x);
    int64_t *sums = calloc(CHANNELS * CHANNELS, sizeof *sums);
    uint64_t seed = 8;
    for (int64_t i = 0; i < PIXELS * CHANNELS; i++) {
        a[i] = element(FULL, i, 0, &seed);
        b[i] = element(GAUSS, i, 0, &seed);
    }
    for (int64_t pixel = 0; pixel < PIXELS; pixel++)
        for (int64_t i = 0; i < CHANNELS * CHANNELS; i++)
            sums[i] += (int64_t)a[pixel * CHANNELS + i / CHANNELS] * b[pixel * CHANNELS + i % CHANNELS];
    tensor_declare_exponent(x, 14);
    tensor_declare_exponent(dy, 14);
    for (int back = FIRST_BACKEND; back < BACKENDS; back++)
        for (int t = 1; t <= 2; t++) {
            tensor_set_backend(backends[back]);
            tensor_set_threads(t);
            if (strcmp(tensor_kernel_backend(FMT_FLEX16_5, "conv2d"), backends[back]))
                continue;
            CHECK(!tensor_conv2d_weight_grad(dw, dy, x, &(tensor_window){TENSOR_SQUARE(0, 1, 0)}), "%s",
                  tensor_error());
            compare_exact("blocks", dw, sums, 28);
        }
    free(sums);
    tensor_free(x);
    tensor_free(dy);
    tensor_free(dw);
}

/* --- float formats: |result - exact| within (k + chunks) 2^-24 sum |a b|, and half a unit of the storage -------------
 */

static void float_bounds(void) {
    const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16};
    static const int64_t shapes[][3] = {{5, 7, 3}, {33, 20, 700}, {9, 40, 4500}};
    uint64_t seed = 12;
    for (int k = 0; k < 3; k++)
        for (int s = 0; s < 3; s++)
            for (int back = FIRST_BACKEND; back < BACKENDS; back++) {
                const tensor_format f = formats[k];
                const int64_t m = shapes[s][0], n = shapes[s][1], inner = shapes[s][2];
                const int bits = f == FMT_FP32 ? 24 : f == FMT_FP16 ? 11 : 8;
                tensor *a = tensor_new(f, TENSOR_SHAPE(m, inner)), *b = tensor_new(f, TENSOR_SHAPE(inner, n)),
                       *y = tensor_new(f, TENSOR_SHAPE(m, n));
                double *va = malloc((size_t)(m * inner) * 8), *vb = malloc((size_t)(inner * n) * 8),
                       *vy = malloc((size_t)(m * n) * 8);
                for (int64_t i = 0; i < m * inner; i++)
                    va[i] = (double)(check_random(&seed) >> 11) * 0x1p-53 - 0.5;
                for (int64_t i = 0; i < inner * n; i++)
                    vb[i] = (double)(check_random(&seed) >> 11) * 0x1p-53 - 0.4;
                tensor_load_f64(a, va, m * inner);
                tensor_load_f64(b, vb, inner * n);
                tensor_store_f64(a, va, m * inner);
                tensor_store_f64(b, vb, inner * n);
                tensor_set_backend(backends[back]);
                CHECK(!tensor_matmul(y, a, b), "%s", tensor_error());
                tensor_store_f64(y, vy, m * n);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        double exact = 0, size = 0;
                        for (int64_t l = 0; l < inner; l++) {
                            exact += va[i * inner + l] * vb[l * n + j];
                            size += fabs(va[i * inner + l] * vb[l * n + j]);
                        }
                        const double bound = (double)(inner + inner / 512 + 1) * 0x1p-24 * size +
                                             ldexp(fabs(exact) + size * 1e-3, -bits) + 0x1p-25;
                        CHECK(fabs(vy[i * n + j] - exact) <= bound, "%s %s [%lld,%lld]: %a for %a, bound %a",
                              tensor_format_name(f), backends[back], (long long)i, (long long)j, vy[i * n + j], exact,
                              bound);
                    }
                free(va);
                free(vb);
                free(vy);
                tensor_free(a);
                tensor_free(b);
                tensor_free(y);
            }
}

int main(void) {
    exact_matmuls();
    exact_convolutions();
    long_weight_gradient();
    largest_depthwise_sums();
    large_column();
    large_lines();
    mantissas_of_one_size();
    weight_gradient_in_blocks();
    float_bounds();
    return check_summary();
}
