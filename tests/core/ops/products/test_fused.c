/* test_fused.c - bias, residual and ReLU joined to the sums of matmul and convolution in the shared-exponent formats:
 * every kernel set equals the exact sum rounded once, computed by hand with wide integers, with exponents as far apart
 * as the formats allow, by either rounding, stored and only measured, with 1, 2, 3 and 7 threads. */
#include "flex_harness.h"

static struct number with_epilogue(const struct fl_args *args, struct number sum, int64_t i) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    if (e->bias.data)
        sum = number_add(sum, value_of(&e->bias, i % e->bias.count));
    if (e->residual.data)
        sum = number_add(sum, value_of(&e->residual, i));
    return e->relu && sum.negative ? (struct number){0} : sum;
}

static struct number exact_matmul(const struct fl_args *args, int64_t i) {
    const struct fl_matrices *g = &args->p.product.matrices;
    const int64_t row = i / g->n, column = i % g->n;
    int64_t sum = 0;
    for (int64_t k = 0; k < g->k; k++)
        sum += (int64_t)mantissa_of(&args->in[0], row * g->k + k) *
               mantissa_of(&args->in[1], args->op == FL_OP_MATMUL_NT ? column * g->k + k : k * g->n + column);
    return with_epilogue(args, number_of(sum, fl_exponent(&args->in[0]) + fl_exponent(&args->in[1])), i);
}

static struct number exact_conv2d(const struct fl_args *args, int64_t i) {
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t filter = i % g->filters, q = i / g->filters % g->q, p = i / g->filters / g->q % g->p,
                  image = i / g->filters / g->q / g->p, depth = g->c / g->groups,
                  channel = filter / (g->filters / g->groups) * depth;
    int64_t sum = 0;
    for (int64_t r = 0; r < g->r; r++)
        for (int64_t s = 0; s < g->s; s++) {
            const int64_t y = p * g->stride[0] + r * g->dilation[0] - g->padding[0],
                          x = q * g->stride[1] + s * g->dilation[1] - g->padding[1];
            for (int64_t c = 0; y >= 0 && y < g->h && x >= 0 && x < g->w && c < depth; c++)
                sum += (int64_t)mantissa_of(&args->in[0], ((image * g->h + y) * g->w + x) * g->c + channel + c) *
                       mantissa_of(&args->in[1], ((filter * g->r + r) * g->s + s) * depth + c);
        }
    return with_epilogue(args, number_of(sum, fl_exponent(&args->in[0]) + fl_exponent(&args->in[1])), i);
}

static int clamped(const struct fl_format *format, int e) {
    return e < format->e_min ? format->e_min : e > format->e_max ? format->e_max : e;
}

/* An exponent near the limits of the kernels' integers (limbs of 15 bits, 62 bits), or any. */
static int join_exponent(const struct fl_format *format, int of_sum) {
    static const int differences[] = {0, 1, 14, 15, 16, 26, 27, 28, 44, 45, 46, 47, 60, 61, 100};
    const int difference = differences[random_below((int64_t)(sizeof differences / sizeof differences[0]))];
    return clamped(format, random_below(8) == 0   ? random_between(format->e_min, format->e_max)
                           : random_below(4) == 0 ? of_sum + difference
                                                  : of_sum - difference);
}

static void check_fused(const struct fl_format *format, struct fl_args args, int64_t columns, int64_t a, int64_t b,
                        exact_fn exact) {
    const int64_t count = args.out.count;
    const int e = random_between(clamped(format, -60), clamped(format, 60)), other = random_exponent(format, e);
    args.format = format;
    args.rounding = random_rounding();
    args.in[0] = random_view(a, e, random_fill());
    args.in[1] = random_view(b, other, random_fill());
    if (random_below(4))
        args.p.product.epilogue.bias = random_view(columns, join_exponent(format, e + other), random_fill());
    if (random_below(3))
        args.p.product.epilogue.residual = random_view(count, join_exponent(format, e + other), random_fill());
    args.p.product.epilogue.relu = random_below(2);
    /* one that fits the sums, or the finest or the coarsest operand of them */
    const int coarsest = args.p.product.epilogue.bias.data && fl_exponent(&args.p.product.epilogue.bias) < e + other
                             ? fl_exponent(&args.p.product.epilogue.bias)
                             : e + other;
    const int near = random_below(2) ? e + other - random_between(8, 24) : coarsest - random_between(-2, 18);
    args.out.e = exponent_at(clamped(format, near));
    check_rows(&args, exact, false, ALL_ROWS);
    release_from(0);
}

static void check_matmul(const struct fl_format *format) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 3, 9}, {7, 16, 40}, {13, 70, 33}, {2, 1100, 5}, {33, 17, 1030}};
    const int64_t *s = shapes[random_below((int64_t)(sizeof shapes / sizeof shapes[0]))];
    const struct fl_args args = {.op = random_below(2) ? FL_OP_MATMUL : FL_OP_MATMUL_NT,
                                 .p.product.matrices = {.m = s[0], .n = s[1], .k = s[2]},
                                 .out = {.count = s[0] * s[1]}};
    check_fused(format, args, s[1], s[0] * s[2], s[1] * s[2], exact_matmul);
}

static void check_conv2d(const struct fl_format *format) {
    /* c filters side stride padding dilation groups; groups of one channel run in lanes */
    static const int shapes[][7] = {{3, 5, 3, 1, 1, 1, 1},    {16, 16, 3, 2, 1, 1, 1}, {4, 40, 1, 1, 0, 1, 1},
                                    {6, 12, 3, 1, 2, 2, 3},   {9, 9, 3, 1, 1, 1, 9},   {2, 4, 5, 3, 2, 1, 2},
                                    {130, 260, 1, 1, 0, 1, 1}};
    const int *s = shapes[random_below((int64_t)(sizeof shapes / sizeof shapes[0]))];
    struct fl_windows g = {.batch = 2,
                           .h = 7,
                           .w = 6,
                           .c = s[0],
                           .filters = s[1],
                           .r = s[2],
                           .s = s[2],
                           .stride = {s[3], s[3]},
                           .padding = {s[4], s[4]},
                           .dilation = {s[5], s[5]},
                           .groups = s[6]};
    g.p = (g.h + 2 * g.padding[0] - g.dilation[0] * (g.r - 1) - 1) / g.stride[0] + 1;
    g.q = (g.w + 2 * g.padding[1] - g.dilation[1] * (g.s - 1) - 1) / g.stride[1] + 1;
    const struct fl_args args = {
        .op = FL_OP_CONV2D, .p.product.windows = g, .out = {.count = g.batch * g.p * g.q * g.filters}};
    check_fused(format, args, g.filters, g.batch * g.h * g.w * g.c, g.filters * g.r * g.s * (g.c / g.groups),
                exact_conv2d);
}

/* test_fused [ROUNDS] */
int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 300;
    const char *text = getenv("FLEXLAB_TEST_SEED");
    const uint64_t first = text ? strtoull(text, NULL, 0) : 20170711;
    printf("seed %" PRIu64 "\n", first);
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *format = fl_format_at(i);
        if (format->arithmetic != FL_ARITHMETIC_SHARED)
            continue;
        seed = first;
        for (int round = 0; round < rounds; round++) {
            check_matmul(format);
            check_conv2d(format);
        }
    }
    return check_summary();
}
