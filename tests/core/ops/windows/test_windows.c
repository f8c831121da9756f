/* Convolutions, transposed convolutions and max pooling of windows of any shape, in two directions and in one, by the
 * public functions: every format and every kernel set against integers.
 *
 * The witness shares no idea with the kernels: it scatters. Image and result meet at positions p stride + r dilation of
 * the padded image; each meeting adds one product to y, one to dx and one to dw. A transposed convolution is
 * implemented from its own definition (each x spreads over y), not as a gradient. Operands are small integers, so that
 * every sum is an integer that binary32 represents and every order of summation gives it; here it is rounded to the
 * digits of the format. Sequences are computed twice, as [N,L,C] and as images of height 1.
 *
 *     test_windows [SEED [ROUNDS]] */
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include "core/table/format.h"
#include "window_cases.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 20170711;

static const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};
static const char *const rows[] = {"ref", "portable", "avx2", "avx512bw", "avx512", "avx512_amx"};
enum { FORMATS = sizeof formats / sizeof formats[0], ROWS = sizeof rows / sizeof rows[0] };

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Draws integers of at most 3 in size. */
static int64_t *draw_integers(int64_t n) {
    int64_t *v = calloc((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = window_between(&seed, -3, 3);
    return v;
}

static int64_t *zeros(int64_t n) {
    return calloc((size_t)n, sizeof(int64_t));
}

/* x rounded to this number of binary digits, ties to even. */
static int64_t to_digits(int64_t x, int digits) {
    const int64_t size = llabs(x);
    int64_t unit = 1;
    while (size >= unit << digits)
        unit *= 2;
    int64_t floor = size / unit, rest = size % unit;
    floor += 2 * rest > unit || (2 * rest == unit && floor % 2);
    return x < 0 ? -floor * unit : floor * unit;
}

static int digits_of(tensor_format f) {
    return f == FMT_BF16 ? 8 : f == FMT_FP16 ? 11 : 24; /* shared exponents: sums stay below 2^14 */
}

static tensor *tensor_of(tensor_format f, int dims, const int64_t *shape, const int64_t *v) {
    tensor *t = tensor_new(f, dims, shape);
    if (v) {
        double *values = calloc((size_t)tensor_count(t), sizeof *values);
        for (int64_t i = 0; i < tensor_count(t); i++)
            values[i] = (double)v[i];
        CHECK(!tensor_load_f64(t, values, tensor_count(t)), "%s", tensor_error());
        free(values);
    }
    return t;
}

static char label[512];

static void expect(tensor *t, const int64_t *want, tensor_status status) {
    const tensor_format f = tensor_format_of(t);
    CHECK(!status, "%s: %s", label, tensor_error());
    if (status)
        return;
    double *got = calloc((size_t)tensor_count(t), sizeof *got);
    CHECK(!tensor_store_f64(t, got, tensor_count(t)), "%s", tensor_error());
    for (int64_t i = 0; i < tensor_count(t); i++)
        if (got[i] != (double)to_digits(want[i], digits_of(f))) {
            CHECK(false, "%s %s: element %lld is %g, the sum %lld", label, tensor_format_name(f), (long long)i, got[i],
                  (long long)want[i]);
            break;
        }
    CHECK(true, "%s", label);
    free(got);
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

struct problem {
    struct fl_windows g; /* padding: above and to the left */
    int after[2];
    int64_t x, w, y; /* elements */
};

static int64_t at(int64_t a, int64_t b, int64_t i, int64_t j, int64_t k) {
    return (i * a + j) * b + k;
}

/* For every meeting, adds image[x] * filter[w] to result[y] and so on, for those that are not NULL, in the order of
 * `what`: y from x and w; x from y and w; w from x and y. */
enum meeting { TO_RESULT, TO_IMAGE, TO_FILTERS };
static void scatter(const struct problem *p, enum meeting what, int64_t *x, int64_t *w, int64_t *y) {
    const struct fl_windows *g = &p->g;
    const int64_t depth = g->c / g->groups, own = g->filters / g->groups;
    for (int64_t s = g->s - 1; s >= 0; s--)
        for (int64_t r = g->r - 1; r >= 0; r--)
            for (int64_t n = 0; n < g->batch; n++)
                for (int64_t i = 0; i < g->p; i++)
                    for (int64_t j = 0; j < g->q; j++) {
                        const int64_t down = i * g->stride[0] + r * g->dilation[0] - g->padding[0],
                                      right = j * g->stride[1] + s * g->dilation[1] - g->padding[1];
                        if (down < 0 || down >= g->h || right < 0 || right >= g->w)
                            continue;
                        int64_t *image = x + at(g->h, g->w, n, down, right) * g->c,
                                *result = y + at(g->p, g->q, n, i, j) * g->filters;
                        for (int64_t k = 0; k < g->filters; k++)
                            for (int64_t c = 0; c < depth; c++) {
                                int64_t *filter = w + at(g->s, depth, k * g->r + r, s, c),
                                        *pixel = image + k / own * depth + c;
                                if (what == TO_RESULT)
                                    result[k] += *pixel * *filter;
                                else if (what == TO_IMAGE)
                                    *pixel += result[k] * *filter;
                                else
                                    *filter += *pixel * result[k];
                            }
                    }
}

static tensor_window window_of(const struct problem *p) {
    const struct fl_windows *g = &p->g;
    return (tensor_window){.stride = {g->stride[0], g->stride[1]},
                           .padding = {g->padding[0], p->after[0], g->padding[1], p->after[1]},
                           .dilation = {g->dilation[0], g->dilation[1]},
                           .groups = g->groups};
}

/* For sequences, only the numbers across. */
static tensor_window window_1d(const tensor_window *how) {
    return (tensor_window){.window = {0, how->window[1]},
                           .stride = {0, how->stride[1]},
                           .padding = {0, 0, how->padding[2], how->padding[3]},
                           .dilation = {0, how->dilation[1]},
                           .groups = how->groups,
                           .output_padding = {0, how->output_padding[1]}};
}

/* Shapes in two directions, or in one, without the dimensions of size 1. */
struct shapes {
    int dims;
    int64_t x[4], w[4], y[4];
};

static struct shapes shapes_of(const struct fl_windows *g, bool sequences) {
    const int64_t depth = g->c / (g->groups ? g->groups : 1);
    if (sequences)
        return (struct shapes){3, {g->batch, g->w, g->c}, {g->filters, g->s, depth}, {g->batch, g->q, g->filters}};
    return (struct shapes){
        4, {g->batch, g->h, g->w, g->c}, {g->filters, g->r, g->s, depth}, {g->batch, g->p, g->q, g->filters}};
}

/* A call in one direction or two. */
#define IN(sequences, two, one) ((sequences) ? (one) : (two))

/* --- convolution -------------------------------------------------------------------------------------------------- */

/* max(0, sums + bias + residual); bias of each of n columns. */
static int64_t *joined(const int64_t *sums, int64_t count, const int64_t *bias, int64_t n, const int64_t *residual) {
    int64_t *v = zeros(count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t all = sums[i] + bias[i % n] + residual[i];
        v[i] = all > 0 ? all : 0;
    }
    return v;
}

static void check_convolution(const struct problem *p, bool sequences, tensor_format f, int64_t *const v[3]) {
    const tensor_window how = window_of(p);
    const tensor_window line = window_1d(&how);
    const struct shapes s = shapes_of(&p->g, sequences);
    int64_t *y0 = zeros(p->y), *x0 = zeros(p->x), *w0 = zeros(p->w), *bias = draw_integers(p->g.filters);
    scatter(p, TO_RESULT, v[0], v[1], y0);
    scatter(p, TO_IMAGE, x0, v[1], v[2]);
    scatter(p, TO_FILTERS, v[0], w0, v[2]);
    int64_t *more = joined(y0, p->y, bias, p->g.filters, v[2]);
    tensor *x = tensor_of(f, s.dims, s.x, v[0]), *w = tensor_of(f, s.dims, s.w, v[1]),
           *dy = tensor_of(f, s.dims, s.y, v[2]), *b = tensor_of(f, 1, &p->g.filters, bias),
           *y = tensor_of(f, s.dims, s.y, NULL), *fused = tensor_of(f, s.dims, s.y, NULL),
           *dx = tensor_of(f, s.dims, s.x, NULL), *dw = tensor_of(f, s.dims, s.w, NULL);
    const tensor_epilogue with = {.bias = b, .residual = dy, .relu = true};
    expect(y, y0, IN(sequences, tensor_conv2d(y, x, w, &how), tensor_conv1d(y, x, w, &line)));
    expect(dx, x0,
           IN(sequences, tensor_conv2d_input_grad(dx, dy, w, &how), tensor_conv1d_input_grad(dx, dy, w, &line)));
    expect(dw, w0,
           IN(sequences, tensor_conv2d_weight_grad(dw, dy, x, &how), tensor_conv1d_weight_grad(dw, dy, x, &line)));
    expect(
        fused, more,
        IN(sequences, tensor_conv2d_fused(fused, x, w, &how, &with), tensor_conv1d_fused(fused, x, w, &line, &with)));
    tensor *const all[] = {x, w, dy, b, y, fused, dx, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    int64_t *const memory[] = {y0, x0, w0, bias, more};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
}

/* --- transposed convolution --------------------------------------------------------------------------------------- */

/* Each element of x, times a filter, is spread over y: in p, y is the image. */
static void check_transposed(const struct problem *p, bool sequences, tensor_format f, const int more[2],
                             int64_t *const v[3]) {
    tensor_window how = window_of(p);
    how.output_padding[0] = more[0];
    how.output_padding[1] = more[1];
    const tensor_window line = window_1d(&how);
    const struct shapes s = shapes_of(&p->g, sequences);
    int64_t *y0 = zeros(p->x), *x0 = zeros(p->y), *w0 = zeros(p->w), *bias = draw_integers(p->g.c);
    scatter(p, TO_IMAGE, y0, v[1], v[2]);   /* y from x and w */
    scatter(p, TO_RESULT, v[0], v[1], x0);  /* dx from dy and w */
    scatter(p, TO_FILTERS, v[0], w0, v[2]); /* dw from dy and x */
    int64_t *joins = joined(y0, p->x, bias, p->g.c, v[0]);
    tensor *x = tensor_of(f, s.dims, s.y, v[2]), *w = tensor_of(f, s.dims, s.w, v[1]),
           *dy = tensor_of(f, s.dims, s.x, v[0]), *b = tensor_of(f, 1, &p->g.c, bias),
           *y = tensor_of(f, s.dims, s.x, NULL), *fused = tensor_of(f, s.dims, s.x, NULL),
           *dx = tensor_of(f, s.dims, s.y, NULL), *dw = tensor_of(f, s.dims, s.w, NULL);
    const tensor_epilogue with = {.bias = b, .residual = dy, .relu = true};
    expect(y, y0, IN(sequences, tensor_conv_transpose2d(y, x, w, &how), tensor_conv_transpose1d(y, x, w, &line)));
    expect(dx, x0,
           IN(sequences, tensor_conv_transpose2d_input_grad(dx, dy, w, &how),
              tensor_conv_transpose1d_input_grad(dx, dy, w, &line)));
    expect(dw, w0,
           IN(sequences, tensor_conv_transpose2d_weight_grad(dw, dy, x, &how),
              tensor_conv_transpose1d_weight_grad(dw, dy, x, &line)));
    expect(fused, joins,
           IN(sequences, tensor_conv_transpose2d_fused(fused, x, w, &how, &with),
              tensor_conv_transpose1d_fused(fused, x, w, &line, &with)));
    tensor *const all[] = {x, w, dy, b, y, fused, dx, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    int64_t *const memory[] = {y0, x0, w0, bias, joins};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
}

/* --- max pooling -------------------------------------------------------------------------------------------------- */

/* Computes y, and dx from dy; of equal maxima, the first in row-major order counts. */
static void pool(const struct problem *p, const int64_t *x, const int64_t *dy, int64_t *y, int64_t *dx) {
    const struct fl_windows *g = &p->g;
    for (int64_t i = 0; i < p->y; i++) {
        const int64_t c = i % g->c, q = i / g->c % g->q, row = i / g->c / g->q % g->p, n = i / g->c / g->q / g->p;
        int64_t best = -1;
        for (int64_t place = g->r * g->s - 1; place >= 0; place--) {
            const int64_t down = row * g->stride[0] + place / g->s * g->dilation[0] - g->padding[0],
                          right = q * g->stride[1] + place % g->s * g->dilation[1] - g->padding[1];
            if (down < 0 || down >= g->h || right < 0 || right >= g->w)
                continue;
            const int64_t from = at(g->h, g->w, n, down, right) * g->c + c;
            best = best < 0 || x[from] >= x[best] ? from : best; /* backwards: the earlier of equal ones */
        }
        y[i] = x[best];
        dx[best] += dy[i];
    }
}

static void check_pool(const struct problem *p, bool sequences, tensor_format f) {
    tensor_window how = window_of(p);
    how.window[0] = (int)p->g.r;
    how.window[1] = (int)p->g.s;
    const tensor_window line = window_1d(&how);
    const struct shapes s = shapes_of(&p->g, sequences);
    int64_t *vx = draw_integers(p->x), *vdy = draw_integers(p->y), *y0 = zeros(p->y), *x0 = zeros(p->x);
    pool(p, vx, vdy, y0, x0);
    tensor *x = tensor_of(f, s.dims, s.x, vx), *dy = tensor_of(f, s.dims, s.y, vdy),
           *y = tensor_of(f, s.dims, s.y, NULL), *dx = tensor_of(f, s.dims, s.x, NULL);
    expect(y, y0, IN(sequences, tensor_maxpool2d(y, x, &how), tensor_maxpool1d(y, x, &line)));
    expect(dx, x0, IN(sequences, tensor_maxpool2d_grad(dx, dy, x, &how), tensor_maxpool1d_grad(dx, dy, x, &line)));
    tensor *const all[] = {x, dy, y, dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    int64_t *const memory[] = {vx, vdy, y0, x0};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
}

/* --- random problems ---------------------------------------------------------------------------------------------- */

static void count_elements(struct problem *p) {
    const struct fl_windows *g = &p->g;
    p->x = g->batch * g->h * g->w * g->c;
    p->y = g->batch * g->p * g->q * g->filters;
    p->w = g->filters * g->r * g->s * (g->c / (g->groups ? g->groups : 1));
}

static void make_sequence(struct problem *p) {
    struct fl_windows *g = &p->g;
    g->h = g->p = g->r = 1;
    g->stride[0] = g->dilation[0] = 1;
    g->padding[0] = p->after[0] = 0;
}

/* The height or width from which a transposed convolution makes `from` pixels. */
static int64_t spread(const struct problem *p, int way, int64_t from, int64_t positions, int more) {
    const struct fl_windows *g = &p->g;
    return (from - 1) * g->stride[way] + (positions - 1) * g->dilation[way] + 1 + more - g->padding[way] -
           p->after[way];
}

static void run_round(int round, const char *row) {
    const tensor_format f = formats[round % FORMATS];
    const int64_t channels = round % 4 ? 5 : 20;
    const bool sequences = round % 3 == 0;
    struct problem p = {.x = 0};
    p.g = draw_windows(&seed, channels, p.after);
    if (sequences)
        make_sequence(&p);
    count_elements(&p);
    snprintf(label, sizeof label, "round %d %s %s%s after %d %d", round, row, sequences ? "sequences " : "",
             windows_text(&p.g), p.after[0], p.after[1]);
    int64_t *const v[3] = {draw_integers(p.x), draw_integers(p.w), draw_integers(p.y)};
    check_convolution(&p, sequences && round % 2, f, v);
    for (int i = 0; i < 3; i++)
        free(v[i]);

    int more[2];
    for (int way = 0; way < 2; way++)
        more[way] = (int)window_between(&seed, 0, p.g.stride[way] - 1);
    p.g.p = p.g.p > 9 ? 9 : p.g.p;
    p.g.q = p.g.q > 9 ? 9 : p.g.q;
    p.g.h = spread(&p, 0, p.g.p, p.g.r, more[0]);
    p.g.w = spread(&p, 1, p.g.q, p.g.s, more[1]);
    if (p.g.h > 0 && p.g.w > 0) {
        count_elements(&p);
        snprintf(label, sizeof label, "round %d %s transposed %s%s after %d %d more %d %d", round, row,
                 sequences ? "sequences " : "", windows_text(&p.g), p.after[0], p.after[1], more[0], more[1]);
        int64_t *const t[3] = {draw_integers(p.x), draw_integers(p.w), draw_integers(p.y)};
        check_transposed(&p, sequences && round % 2, f, more, t);
        for (int i = 0; i < 3; i++)
            free(t[i]);
    }

    p.g = draw_pool(&seed, channels, p.after);
    if (sequences) {
        make_sequence(&p);
        if (!windows_see(p.g.w, p.g.padding[1], p.g.s, p.g.stride[1], p.g.dilation[1], p.g.q))
            return;
    }
    count_elements(&p);
    snprintf(label, sizeof label, "round %d %s pool %s%s after %d %d", round, row, sequences ? "sequences " : "",
             windows_text(&p.g), p.after[0], p.after[1]);
    check_pool(&p, sequences && round % 2, f);
}

/* Windows share lines of matrix tiles, while image lines have different phases: whole lines of 16 pixels, channels that
 * divide the size of a line, a stride only down. */
static void run_shared_lines(const char *row) {
    for (int i = 0; i < 8; i++) {
        struct problem p = {.g = {.batch = 2,
                                  .h = 7,
                                  .w = i & 1 ? 32 : 16,
                                  .c = i & 2 ? 32 : 16,
                                  .filters = 5,
                                  .r = 3,
                                  .s = i & 2 ? 3 : 5,
                                  .stride = {i & 4 ? 3 : 2, 1},
                                  .padding = {1, i & 2 ? 1 : 2},
                                  .dilation = {1, 1},
                                  .groups = 1},
                            .after = {0, i & 2 ? 1 : 2}};
        p.g.p = window_count(p.g.h, 1, 0, p.g.r, p.g.stride[0], 1);
        p.g.q = p.g.w;
        count_elements(&p);
        snprintf(label, sizeof label, "shared lines %d %s %s", i, row, windows_text(&p.g));
        int64_t *const v[3] = {draw_integers(p.x), draw_integers(p.w), draw_integers(p.y)};
        for (int f = 0; f < FORMATS; f++)
            check_convolution(&p, false, formats[f], v);
        for (int k = 0; k < 3; k++)
            free(v[k]);
    }
}

/* --- checks and messages ------------------------------------------------------------------------------------------ */

#define REFUSED(call, status, fragment)                                                                                \
    do {                                                                                                               \
        const tensor_status refused = (call);                                                                          \
        CHECK(refused == (status), #call ": status %d (%s)", (int)refused, tensor_error());                            \
        CHECK(strstr(tensor_error(), fragment), #call ": \"%s\" lacks \"%s\"", tensor_error(), fragment);              \
    } while (0)
#define NEW(...) tensor_new(FMT_FP32, TENSOR_SHAPE(__VA_ARGS__))

static void messages_of_images(void) {
    tensor *x = NEW(2, 8, 6, 4), *w = NEW(6, 3, 2, 4), *y = NEW(2, 8, 7, 6), *other = NEW(2, 8, 7, 4),
           *line = NEW(2, 6, 4);
    const tensor_window good = {.stride = {1, 1}, .padding = {2, 0, 1, 1}};
#define WITH(...) tensor_conv2d(y, x, w, &(tensor_window){__VA_ARGS__})
    CHECK(!tensor_conv2d(y, x, w, &good), "%s", tensor_error());
    CHECK(!WITH(.padding = {2, 0, 1, 1}), "stride 0 means 1: %s", tensor_error());
    REFUSED(WITH(.stride = {-1, 1}), TENSOR_E_ARGUMENT, "conv2d: stride_down is -1, expected 1 to 4095");
    REFUSED(WITH(.stride = {2}), TENSOR_E_SHAPE, "y is 2x8x7x6, expected 2x3x5x6");
    REFUSED(WITH(.stride = {1, 4096}), TENSOR_E_ARGUMENT, "stride_across is 4096, expected 1 to 4095");
    REFUSED(WITH(.stride = {1, 1}, .padding = {0, 1, -2, 0}), TENSOR_E_ARGUMENT, "padding_left is -2, expected 0 to");
    REFUSED(WITH(.stride = {1, 1}, .dilation = {2}), TENSOR_E_SHAPE, "y is 2x8x7x6, expected 2x4x5x6");
    REFUSED(WITH(.dilation = {2, 4096}), TENSOR_E_ARGUMENT, "dilation_across is 4096, expected 1 to 4095");
    REFUSED(WITH(.stride = {1, 1}, .groups = -1), TENSOR_E_ARGUMENT, "groups is -1, expected 1 or more");
    REFUSED(WITH(.stride = {1, 1}, .groups = 3), TENSOR_E_ARGUMENT, "3 groups do not divide 4 channels");
    REFUSED(WITH(.stride = {1, 1}, .window = {3, 3}), TENSOR_E_ARGUMENT, "window 3x3, expected 0 or the 3x2 of the");
    REFUSED(WITH(.stride = {2, 2}, .output_padding = {1, 0}), TENSOR_E_ARGUMENT,
            "output padding 1x0, expected 0: it belongs to transposed");
    REFUSED(WITH(.stride = {1, 1}, .dilation = {1, 9}), TENSOR_E_SHAPE,
            "a 3x2 filter with dilation 1x9 covers 3x10 pixels and does not fit a 8x6 image with padding 0");
    REFUSED(WITH(.stride = {1, 1}, .padding = {1, 1, 0, 1}), TENSOR_E_SHAPE, "y is 2x8x7x6, expected 2x8x6x6");
    REFUSED(tensor_conv2d(x, x, w, &good), TENSOR_E_ARGUMENT, "y and x are the same tensor");
    REFUSED(tensor_conv2d(other, x, w, &good), TENSOR_E_SHAPE, "y is 2x8x7x4, expected 2x8x7x6");
    REFUSED(tensor_conv2d(y, line, w, &good), TENSOR_E_SHAPE, "x is 2x6x4, expected [N,H,W,C]");
    REFUSED(tensor_conv2d(y, NULL, w, &good), TENSOR_E_ARGUMENT, "x is NULL");
    REFUSED(tensor_conv2d(y, x, w, NULL), TENSOR_E_SHAPE, "y is 2x8x7x6, expected 2x6x5x6");
    CHECK(!tensor_conv2d_fused(y, x, w, &good, NULL), "no epilogue: %s", tensor_error());
    REFUSED(tensor_conv2d_fused(y, x, w, &good, &(tensor_epilogue){.residual = other}), TENSOR_E_SHAPE, "residual");

    tensor *wide = NEW(2, 16, 7, 4), *half = NEW(2, 8, 6, 6);
#define TRANSPOSED(...) tensor_conv_transpose2d(wide, half, w, &(tensor_window){__VA_ARGS__})
    CHECK(!TRANSPOSED(.stride = {2, 1}, .padding = {1, 1}, .output_padding = {1, 0}), "%s", tensor_error());
    REFUSED(TRANSPOSED(.stride = {2, 1}, .padding = {1, 1}, .output_padding = {2, 0}), TENSOR_E_ARGUMENT,
            "output padding 2x0, expected 0 or more and less than the stride 2x1");
    REFUSED(TRANSPOSED(.stride = {2, 1}, .padding = {1, 1}, .output_padding = {0, -1}), TENSOR_E_ARGUMENT,
            "output_padding_across is -1, expected 0 to 4095");
    REFUSED(TRANSPOSED(.stride = {2, 1}, .padding = {1, 1}), TENSOR_E_SHAPE, "y is 2x16x7x4, expected 2x15x7x4");
    REFUSED(TRANSPOSED(.stride = {1, 1}, .padding = {9, 9}), TENSOR_E_SHAPE,
            "padding 9, 9, 0, 0 leaves nothing of the 10x7 pixels that 8x6 pixels reach");
    REFUSED(TRANSPOSED(.stride = {2, 1}, .groups = 4), TENSOR_E_ARGUMENT, "4 groups do not divide 6 filters");
    REFUSED(tensor_conv_transpose2d(wide, x, w, &good), TENSOR_E_SHAPE, "y is 2x16x7x4, expected 2x8x5x4");
    REFUSED(tensor_conv_transpose2d(half, half, w, &good), TENSOR_E_ARGUMENT, "conv_transpose2d: y and x are the same");

#define POOL(...) tensor_maxpool2d(other, x, &(tensor_window){__VA_ARGS__})
    CHECK(!POOL(.window = {3, 2}, .stride = {1, 1}, .padding = {2, 0, 1, 1}), "%s", tensor_error());
    REFUSED(POOL(.window = {3, 0}, .stride = {1, 1}), TENSOR_E_ARGUMENT, "window_width is 0, expected 1 to 1048576");
    REFUSED(POOL(.window = {3, 2}, .stride = {1, 1}, .padding = {3}), TENSOR_E_ARGUMENT,
            "padding 3, 0, 0, 0, expected less than the window 3x2");
    REFUSED(POOL(.window = {3, 2}, .stride = {1, 1}, .groups = 2), TENSOR_E_ARGUMENT, "2 groups and output padding 0");
    REFUSED(POOL(.window = {3, 2}, .stride = {1, 1}), TENSOR_E_SHAPE, "y is 2x8x7x4, expected 2x6x5x4");
    REFUSED(POOL(.window = {9, 9}, .stride = {1, 1}), TENSOR_E_SHAPE, "a window of 9 does not fit a 8x6 image");
    REFUSED(POOL(.window = {2, 1}, .stride = {1, 1}, .dilation = {17, 1}, .padding = {9, 9}), TENSOR_E_SHAPE,
            "a window with dilation 17x1 sees only padding of a 8x6 image");
    tensor *one = NEW(2, 1, 6, 4), *none_seen = NEW(2, 1, 6, 4);
    REFUSED(
        tensor_maxpool2d(none_seen, one,
                         &(tensor_window){.window = {2, 1}, .stride = {1, 1}, .dilation = {4, 1}, .padding = {2, 2}}),
        TENSOR_E_SHAPE, "a window with dilation 4x1 sees only padding of a 1x6 image");
    tensor *const all[] = {x, w, y, other, line, wide, half, one, none_seen};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

static void messages_of_sequences(void) {
    tensor *x = NEW(2, 9, 4), *w = NEW(6, 3, 4), *y = NEW(2, 9, 6), *image = NEW(2, 1, 9, 4);
    const tensor_window causal = {.padding = {0, 0, 4, 0}, .dilation = {0, 2}};
#define LINE(...) tensor_conv1d(y, x, w, &(tensor_window){__VA_ARGS__})
    CHECK(!tensor_conv1d(y, x, w, &causal), "%s", tensor_error());
    CHECK(!LINE(.padding = {0, 0, 2, 0}), "stride 0 means 1: %s", tensor_error());
    REFUSED(LINE(.padding = {2, 0}), TENSOR_E_ARGUMENT, "conv1d: the window has numbers for the direction down");
    REFUSED(LINE(.stride = {2, 1}), TENSOR_E_ARGUMENT, "conv1d: the window has numbers for the direction down");
    REFUSED(LINE(.padding = {0, 0, 2, -1}), TENSOR_E_ARGUMENT, "padding_right is -1, expected 0 to 4095");
    REFUSED(LINE(.dilation = {0, -3}), TENSOR_E_ARGUMENT, "dilation is -3, expected");
    REFUSED(LINE(.dilation = {0, 5}), TENSOR_E_SHAPE,
            "a 3 filter with dilation 5 covers 11 pixels and does not fit a 9 image with padding 0");
    REFUSED(LINE(.stride = {0, 1}), TENSOR_E_SHAPE, "y is 2x9x6, expected 2x7x6");
    REFUSED(tensor_conv1d(y, image, w, &causal), TENSOR_E_SHAPE, "x is 2x1x9x4, expected [N,W,C]");
    REFUSED(tensor_conv1d(y, x, image, &causal), TENSOR_E_SHAPE, "w is 2x1x9x4, expected [K,S,D]");
    REFUSED(tensor_conv_transpose1d(x, y, w, &(tensor_window){.padding = {0, 0, 1, 1}, .output_padding = {0, 1}}),
            TENSOR_E_ARGUMENT, "output padding 1, expected 0 or more and less than the stride 1");
    REFUSED(tensor_maxpool1d(x, x, &(tensor_window){.window = {0, 1}}), TENSOR_E_ARGUMENT, "same tensor");
    tensor *const all[] = {x, w, y, image};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

/* Window positions beyond integers of 32 bits, or 16: kernels leave those to the definition. */
static void large_windows(void) {
    enum { LIMIT = TENSOR_WINDOW_STEP_LIMIT };
    for (int f = 0; f < FORMATS; f++) {
        struct problem p = {.g = {.batch = 1,
                                  .h = 60,
                                  .w = 1,
                                  .c = 1,
                                  .filters = 1,
                                  .r = 60,
                                  .s = 2,
                                  .stride = {1, LIMIT},
                                  .padding = {30, LIMIT},
                                  .dilation = {1, LIMIT}},
                            .after = {29, LIMIT}};
        p.g.p = window_count(60, 30, 29, 60, 1, 1);
        p.g.q = window_count(1, LIMIT, LIMIT, 2, LIMIT, LIMIT);
        count_elements(&p);
        snprintf(label, sizeof label, "large window");
        CHECK(p.g.q == 2 && windows_see(p.g.w, LIMIT, 2, LIMIT, LIMIT, p.g.q), "%s", label);
        check_pool(&p, false, formats[f]);
        p.g.s = 1;
        p.g.padding[1] = p.after[1] = 0;
        p.g.stride[1] = p.g.dilation[1] = 1;
        p.g.q = 1;
        count_elements(&p);
        check_pool(&p, false, formats[f]);
    }
}

/* If a filter has one position, a stride needs no memory. */
static void strides_of_one_window(void) {
    static const enum fl_op ops[] = {FL_OP_CONV2D, FL_OP_CONV2D_WEIGHT_GRAD};
    for (int i = 0; i < 2; i++)
        for (int backend = FL_PORTABLE; backend <= FL_AVX512_AMX; backend++) {
            enum fl_backend chosen;
            const struct fl_format *f = fl_format_of(FMT_FLEX16_5);
            struct fl_args args = {.op = ops[i],
                                   .format = f,
                                   .workers = 2,
                                   .p.product.windows = {.batch = 1,
                                                         .h = 1,
                                                         .w = 2,
                                                         .c = 2048,
                                                         .p = 1,
                                                         .q = 1,
                                                         .filters = 64,
                                                         .r = 1,
                                                         .s = 2,
                                                         .stride = {1, 1},
                                                         .dilation = {1, 1},
                                                         .groups = 1}};
            fl_kernel_select(f, ops[i], (enum fl_backend)backend, &chosen);
            const fl_need need = fl_need_of(f, ops[i], chosen);
            const size_t near = need(&args);
            args.p.product.windows.stride[0] = args.p.product.windows.stride[1] = TENSOR_WINDOW_STEP_LIMIT;
            const size_t far = need(&args);
            CHECK(far < near + (1 << 20), "%s: %zu bytes, with the largest stride %zu", fl_backend_name(chosen), near,
                  far);
        }
}

int main(int argc, char **argv) {
    const int rounds = argc > 2 ? atoi(argv[2]) : 250;
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    const uint64_t start = seed;
    for (int row = 0; row < ROWS; row++) {
        tensor_set_backend(rows[row]);
        if (strcmp(tensor_kernel_backend(FMT_FLEX16_5, "conv2d"), rows[row]))
            continue;
        seed = start; /* the same problems */
        for (int round = 0; round < rounds; round++) {
            tensor_set_threads(round % 3 + 1);
            run_round(round, rows[row]);
        }
        run_shared_lines(rows[row]);
    }
    tensor_set_backend(NULL);
    large_windows();
    strides_of_one_window();
    messages_of_images();
    messages_of_sequences();
    return check_summary();
}
