/* test_block_product.c - all nine products of blocks at odd sizes against exact arithmetic by hand, on every
 * instruction set and 1, 2 and 3 threads: strides, padding, dilation, groups, epilogues, spread scales, NaN; and long
 * sums. usage: test_block_product [CALLS] */
#include "block_witness.h"

static const char *const names[] = {
    "mx:int8",     "mx:e2m1",       "mx:e2m3",      "mx:e3m2",        "mx:e4m3fn",    "mx:e5m2",
    "nvfp4",       "hbfp:int8/64",  "mx:int4/16",   "hbfp:int5/40",   "mx:int8/16",   "mx:int8/2",
    "mx:e4m3fn/6", "mx:e2m1:rceil", "channel:int8", "channel:e4m3fn", "channel:e3m2", "channel:e2m1:floor"};
enum { NAMES = sizeof names / sizeof *names };

static const struct fl_block_format *format_named(const char *name) {
    const struct fl_block_format *f = NULL;
    if (fl_block_format_find(&f, name)) {
        printf("%s\n", tensor_error());
        exit(1);
    }
    return f;
}

static struct shape random_matrices(void) {
    static const enum fl_op ops[] = {FL_OP_MATMUL,         FL_OP_MATMUL_NT,         FL_OP_MATMUL_TN,
                                     FL_OP_MATMUL_BATCHED, FL_OP_MATMUL_BATCHED_NT, FL_OP_MATMUL_BATCHED_TN};
    const int which = (int)random_between(0, 5);
    return (struct shape){.op = ops[which],
                          .batch = which < 3 ? 0 : random_between(1, 3),
                          .m = random_between(1, random_between(0, 3) ? 20 : 80),
                          .n = random_between(1, random_between(0, 3) ? 20 : 80),
                          .k = random_between(1, random_between(0, 1) ? 40 : 200)};
}

static struct shape random_windows(void) {
    static const enum fl_op ops[] = {FL_OP_CONV2D, FL_OP_CONV2D_INPUT_GRAD, FL_OP_CONV2D_WEIGHT_GRAD};
    struct shape v;
    do {
        const int groups = random_between(0, 2) ? 1 : (int)random_between(2, 3);
        v = (struct shape){.op = ops[random_between(0, 2)],
                           .images = random_between(1, random_between(0, 2) ? 3 : 40),
                           .h = random_between(1, 6),
                           .w = random_between(1, 7),
                           .c = groups * (random_between(0, 3) ? random_between(1, random_between(0, 3) ? 9 : 40)
                                                               : 16 * random_between(1, 3)),
                           .f = groups * random_between(1, random_between(0, 3) ? 9 : 40),
                           .r = random_between(1, 3),
                           .s = random_between(1, 3),
                           .groups = groups};
        for (int i = 0; i < 2; i++) {
            v.stride[i] = (int)random_between(1, 2);
            v.padding[i] = (int)random_between(0, 2);
            v.dilation[i] = (int)random_between(1, 2);
        }
        v.p = v.h + 2 * v.padding[0] - v.dilation[0] * (v.r - 1) - 1;
        v.q = v.w + 2 * v.padding[1] - v.dilation[1] * (v.s - 1) - 1;
    } while (v.p < 0 || v.q < 0);
    v.p = v.p / v.stride[0] + 1;
    v.q = v.q / v.stride[1] + 1;
    return v;
}

static void check_drawn(void) {
    static const int spreads[] = {0, 3, 12, 40, 110};
    static const tensor_format results[] = {FMT_FP32, FMT_FP32, FMT_FP16, FMT_BF16};
    const uint64_t start = seed;
    const int spread = spreads[random_between(0, 4)];
    const bool special = random_between(0, 5) == 0;
    struct call c = {.shape = random_between(0, 1) ? random_matrices() : random_windows(),
                     .result = results[random_between(0, 3)]};
    c.blocks[0] = format_named(names[random_between(0, NAMES - 1)]);
    c.blocks[1] = random_between(0, 3) ? c.blocks[0] : format_named(names[random_between(0, NAMES - 1)]);
    for (int i = 0; i < 2; i++)
        c.in[i] = random_floats(count_of(&c.shape, i), spread, special);
    const bool forward = c.shape.op == FL_OP_CONV2D || c.shape.op == FL_OP_MATMUL || c.shape.op == FL_OP_MATMUL_NT;
    if (forward && random_between(0, 1)) {
        c.columns = is_convolution(&c.shape) ? c.shape.f : c.shape.n;
        c.bias = random_floats(c.columns, spread, false);
    }
    if (forward && random_between(0, 1))
        c.residual = random_floats(results_of(&c.shape), spread, false);
    c.relu = forward && random_between(0, 1);
    char what[64];
    snprintf(what, sizeof what, "seed %llu spread %d", (unsigned long long)start, spread);
    check_call(&c, what, 60);
    free_call(&c);
}

/* One result of k products. */
static void check_long(const char *name, int64_t k, int spread) {
    struct call c = {.shape = {.op = FL_OP_MATMUL_NT, .m = 1, .n = 1, .k = k}, .result = FMT_FP32};
    c.blocks[0] = c.blocks[1] = format_named(name);
    for (int i = 0; i < 2; i++)
        c.in[i] = random_floats(k, spread, false);
    check_call(&c, "long", 1);
    free_call(&c);
}

/* All elements the largest, of one sign or the other: sums as large as there are. */
static void check_extremes(const char *name, int64_t k, float a, float b) {
    struct call c = {.shape = {.op = FL_OP_MATMUL, .m = 3, .n = 18, .k = k}, .result = FMT_FP32};
    c.blocks[0] = c.blocks[1] = format_named(name);
    const float with[] = {a, b};
    for (int i = 0; i < 2; i++) {
        c.in[i] = random_floats(count_of(&c.shape, i), 0, false);
        for (int64_t j = 0; j < count_of(&c.shape, i); j++)
            c.in[i][j] = with[i];
    }
    check_call(&c, "extremes", 6);
    free_call(&c);
}

/* The last third of a sum takes away the first, and what remains is the second, `down` binary orders below: sums that
 * are not exact show, which they hardly do in others that are rounded. A third is a multiple of every block. */
static void check_cancelling(const char *name, int down, int spread) {
    enum { THIRD = 960 };
    struct call c = {.shape = {.op = FL_OP_MATMUL_NT, .m = 2, .n = 9, .k = 3 * THIRD}, .result = FMT_FP32};
    c.blocks[0] = c.blocks[1] = format_named(name);
    for (int i = 0; i < 2; i++) {
        c.in[i] = random_floats(count_of(&c.shape, i), spread, false);
        for (int64_t row = 0; row < (i ? c.shape.n : c.shape.m); row++) {
            float *x = c.in[i] + row * c.shape.k;
            for (int64_t j = 0; j < THIRD; j++) {
                x[j] = fabsf(c.in[0][j]); /* so the sum of the first is as large as the bounds allow */
                x[2 * THIRD + j] = i ? x[j] : -x[j];
                x[THIRD + j] = ldexpf(x[THIRD + j], -down);
            }
        }
    }
    check_call(&c, "cancelling", 18);
    free_call(&c);
}

int main(int argc, char **argv) {
    const long calls = argc > 1 ? atol(argv[1]) : 2000;
    for (int i = 0; i < NAMES; i++) {
        check_extremes(names[i], 700, 0x1.fcp100f, 0x1.fcp-100f);
        check_extremes(names[i], 65, -0x1.fffffep127f, 0x1.fffffep127f);
        check_extremes(names[i], 65, 0x1p-149f, -0x1p-140f);
        check_extremes(names[i], 33, 0, 1);
        check_long(names[i], calls > 2000 ? 100000 : 20000, i % 3 * 20);
    }
    for (int i = 0; i < NAMES; i++)
        for (int down = 0; down<60; down += calls> 2000 || (down > 8 && down < 20) ? 1 : 7) {
            seed = (uint64_t)(100 * i + down);
            check_cancelling(names[i], down, down % 3 * 8);
        }
    for (long i = 0; i < calls; i++) {
        seed = 1000 + (uint64_t)i;
        check_drawn();
    }
    return check_summary();
}
