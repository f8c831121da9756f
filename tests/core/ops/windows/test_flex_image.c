/* test_flex_image.c - pooling and shortcuts of the shared-exponent formats equal the exact result rounded once, on
 * every kernel set. */
#include "flex_harness.h"
#include "window_cases.h"

static int64_t input_at(const struct fl_windows *g, int64_t n, int64_t y, int64_t x, int64_t c) {
    return ((n * g->h + y) * g->w + x) * g->c + c;
}

/* Position in x of the first largest element of the window of output (n, p, q, c). */
static int64_t first_largest(const struct fl_view *x, const struct fl_windows *g, int64_t n, int64_t p, int64_t q,
                             int64_t c) {
    int64_t best = -1;
    for (int64_t r = 0; r < g->r; r++)
        for (int64_t s = 0; s < g->s; s++) {
            const int64_t y = p * g->stride[0] + r * g->dilation[0] - g->padding[0],
                          z = q * g->stride[1] + s * g->dilation[1] - g->padding[1];
            if (y < 0 || y >= g->h || z < 0 || z >= g->w)
                continue;
            const int64_t i = input_at(g, n, y, z, c);
            if (best < 0 || mantissa_of(x, i) > mantissa_of(x, best))
                best = i;
        }
    return best;
}

static struct number exact_maxpool(const struct fl_args *args, int64_t i) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t c = i % g->c, q = i / g->c % g->q, p = i / g->c / g->q % g->p, n = i / g->c / g->q / g->p;
    return value_of(&args->in[0], first_largest(&args->in[0], g, n, p, q, c));
}

static struct number exact_maxpool_grad(const struct fl_args *args, int64_t i) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t c = i % g->c, n = i / g->c / g->w / g->h;
    int64_t sum = 0;
    for (int64_t p = 0; p < g->p; p++)
        for (int64_t q = 0; q < g->q; q++)
            if (first_largest(&args->in[1], g, n, p, q, c) == i)
                sum += mantissa_of(&args->in[0], ((n * g->p + p) * g->q + q) * g->c + c);
    return number_of(sum, fl_exponent(&args->in[0]));
}

static struct number exact_mean(const struct fl_args *args, int64_t i) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t n = i / g->c, c = i % g->c;
    int64_t sum = 0;
    for (int64_t y = 0; y < g->h; y++)
        for (int64_t x = 0; x < g->w; x++)
            sum += mantissa_of(&args->in[0], input_at(g, n, y, x, c));
    return number_divide(number_of(sum, fl_exponent(&args->in[0])), (uint32_t)(g->h * g->w));
}

static struct number exact_mean_grad(const struct fl_args *args, int64_t i) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t n = i / g->c / g->w / g->h;
    return number_divide(value_of(&args->in[0], n * g->c + i % g->c), (uint32_t)(g->h * g->w));
}

static struct number exact_shortcut(const struct fl_args *args, int64_t i) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t k = i % g->filters, q = i / g->filters % g->q, p = i / g->filters / g->q % g->p;
    const int64_t n = i / g->filters / g->q / g->p, c = k - (g->filters - g->c) / 2;
    if (c < 0 || c >= g->c)
        return (struct number){0};
    return value_of(&args->in[0], input_at(g, n, p * g->stride[0], q * g->stride[1], c));
}

static struct number exact_shortcut_grad(const struct fl_args *args, int64_t i) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t c = i % g->c, x = i / g->c % g->w, y = i / g->c / g->w % g->h, n = i / g->c / g->w / g->h;
    if (y % g->stride[0] || x % g->stride[1])
        return (struct number){0};
    const int64_t pixel = (n * g->p + y / g->stride[0]) * g->q + x / g->stride[1];
    return value_of(&args->in[0], pixel * g->filters + (g->filters - g->c) / 2 + c);
}

static int64_t random_channels(void) {
    static const int64_t usual[] = {1, 3, 10, 16, 33, 64, 1030};
    return usual[random_below(random_below(8) ? 6 : 7)];
}

static struct fl_windows random_image(int64_t channels) {
    const int64_t room = channels > 100 ? 4 : 9;
    return (struct fl_windows){
        .batch = random_below(3) + 1, .h = random_below(room) + 1, .w = random_below(room) + 1, .c = channels};
}

static void check_case(const struct fl_format *format, enum fl_op op, const struct fl_windows *g, int64_t inputs,
                       int64_t outputs, exact_fn exact) {
    const int e = random_between(format->e_min, format->e_max);
    struct fl_args args = {.op = op, .format = format, .p.pooling.windows = *g, .rounding = random_rounding()};
    args.in[0] = random_view(inputs, e, random_fill());
    if (op == FL_OP_MAXPOOL2D_GRAD)
        args.in[1] = random_view(outputs, random_between(format->e_min, format->e_max), random_fill());
    args.out = (struct fl_view){.e = exponent_at(random_exponent(format, e)), .count = outputs};
    /* the reference stores a quotient in 53 bits: enough for nearest, not for every draw of 32 bits */
    const bool mean = op == FL_OP_AVGPOOL_GLOBAL || op == FL_OP_AVGPOOL_GLOBAL_GRAD;
    check_rows(&args, exact, false, mean && args.rounding.mode == TENSOR_ROUND_STOCHASTIC ? KERNEL_ROWS : ALL_ROWS);
    release_from(0);
}

static void check_maxpool(const struct fl_format *format) {
    int after[2];
    const struct fl_windows g = draw_pool(&seed, random_channels(), after);
    const int64_t x = g.batch * g.h * g.w * g.c, y = g.batch * g.p * g.q * g.c;
    check_case(format, FL_OP_MAXPOOL2D, &g, x, y, exact_maxpool);
    check_case(format, FL_OP_MAXPOOL2D_GRAD, &g, y, x, exact_maxpool_grad);
}

static void check_mean(const struct fl_format *format, struct fl_windows g) {
    g.p = g.q = 1;
    g.filters = g.c;
    const int64_t x = g.batch * g.h * g.w * g.c, y = g.batch * g.c;
    check_case(format, FL_OP_AVGPOOL_GLOBAL, &g, x, y, exact_mean);
    check_case(format, FL_OP_AVGPOOL_GLOBAL_GRAD, &g, y, x, exact_mean_grad);
}

static void check_shortcut(const struct fl_format *format) {
    struct fl_windows g = random_image(random_channels());
    g.stride[0] = g.stride[1] = random_between(1, 3);
    g.filters = g.c + random_below(2) * random_below(40);
    g.p = (g.h + g.stride[0] - 1) / g.stride[0];
    g.q = (g.w + g.stride[1] - 1) / g.stride[1];
    const int64_t x = g.batch * g.h * g.w * g.c, y = g.batch * g.p * g.q * g.filters;
    check_case(format, FL_OP_SHORTCUT_A, &g, x, y, exact_shortcut);
    check_case(format, FL_OP_SHORTCUT_A_GRAD, &g, y, x, exact_shortcut_grad);
}

int main(int argc, char **argv) {
    const struct fl_format *formats[] = {fl_format_of(FMT_FLEX16_5), fl_format_of(FMT_DFP16)};
    const uint64_t start = argc > 1 ? strtoull(argv[1], NULL, 16) : 0x5eed;
    seed = start;
    printf("seed %" PRIx64 "\n", start);
    for (int f = 0; f < 2; f++) {
        for (int round = 0; round < 60; round++) {
            check_maxpool(formats[f]);
            check_mean(formats[f], random_image(random_channels()));
            check_shortcut(formats[f]);
        }
        /* more than one chunk for the threads; a divisor that is not a power of two, and one that is */
        check_mean(formats[f], (struct fl_windows){.batch = 20, .h = 7, .w = 7, .c = 64});
        check_mean(formats[f], (struct fl_windows){.batch = 20, .h = 8, .w = 8, .c = 64});
    }
    return check_summary();
}
