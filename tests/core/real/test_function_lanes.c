/* Real functions and gradients in vectors, tables of slopes included: every kernel set against the definition, in
 * every format, results and statistics: random elements, few different ones, whole bands of saturation and of
 * underflow, NaN, infinities, zeros and subnormals among x and dy; in place and measured. `long` (any argument) makes
 * millions. */
#include "check.h"
#include "core/table/format.h"
#include "core/base/memory.h"
#include "core/real/real_lanes.h"
#include "exponents.h"
#include <math.h>
#include <string.h>

enum { MOST = 1031, ROUNDS = 3, MANY_ROUNDS = 300, WORDS = 1 << 16 };
static uint64_t seed = 20260812;

struct call {
    const struct fl_format *format;
    struct fl_args args;
    int64_t count;
    void *operand[2], *want, *got; /* x, or dy and x */
    struct fl_stats stats;         /* of the definition */
};

static double uniform(double from, double to) {
    return from + (to - from) * ((double)(check_random(&seed) >> 11) * 0x1p-53);
}

static float any_float(void) {
    const uint32_t bits = (uint32_t)(check_random(&seed) >> 32);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Draws x. */
static float argument(int manner) {
    static const float edges[] = {0,
                                  -0.0f,
                                  INFINITY,
                                  -INFINITY,
                                  NAN,
                                  0x1p-149f,
                                  -0x1p-149f,
                                  0x1p-126f,
                                  -0x1p-130f,
                                  0x1.fffffep127f,
                                  -0x1.fffffep127f,
                                  1,
                                  -1,
                                  20,
                                  -20,
                                  600,
                                  -600,
                                  0.5f};
    switch (manner) {
    case 0: /* as activations are */
        return (float)(uniform(-2, 2) + uniform(-2, 2) + uniform(-2, 2));
    case 1:
        return any_float();
    case 2: /* few, and equal ones */
        return ldexpf((float)(check_random(&seed) % 3) + 1, -24);
    case 3: /* zeros of slopes */
        return (float)((check_random(&seed) % 2 ? -0.7517916 : -1.2784646) +
                       uniform(-1, 1) * ldexp(1, -(int)(check_random(&seed) % 23)));
    case 4: /* saturated on one side, nothing on the other */
        return (float)uniform(-1000, 1000);
    case 5: /* where binary32 ends */
        return (float)(check_random(&seed) % 2 ? uniform(-105, -86) : uniform(-14.8, -12.5));
    case 6: /* near zero, where functions are nearly linear */
        return (float)ldexp(uniform(-1, 1), -(int)(check_random(&seed) % 60));
    default:
        return check_random(&seed) % 4 ? edges[check_random(&seed) % (sizeof edges / sizeof edges[0])] : any_float();
    }
}
enum { MANNERS = 8 };

static float slope_factor(int manner) {
    switch (manner) {
    case 0:
        return (float)(uniform(-1, 1) * uniform(0, 1));
    case 1:
        return any_float();
    case 2: /* zeros are many in a gradient */
        return check_random(&seed) % 3 ? (float)uniform(-0x1p-20, 0x1p-20) : check_random(&seed) % 2 ? 0.0f : -0.0f;
    default:
        return ldexpf((float)(check_random(&seed) % 7) - 3, (int)(check_random(&seed) % 277) - 149);
    }
}
enum { FACTORS = 4 };

/* Sets one element of the operand: a float, or any mantissa of a shared exponent. */
static void set(const struct call *c, int operand, int64_t i, int manner, bool factor) {
    const bool shared = c->format->arithmetic == FL_ARITHMETIC_SHARED;
    const uint16_t word = (uint16_t)(manner == 2 ? check_random(&seed) % 3 : check_random(&seed) >> 40);
    const double x = (double)(factor ? slope_factor(manner % FACTORS) : argument(manner));
    struct fl_stats stats = {0};
    const struct fl_rounding nearest = {0};
    if (c->format->bytes == 2 && (shared || manner == 1))
        ((uint16_t *)c->operand[operand])[i] = word;
    else
        c->format->encode(c->format, &c->args.in[operand], i, 1, &x, false, &nearest, &stats);
}

static tensor_status run(const struct call *c, fl_kernel kernel, void *out, int in_place, struct fl_stats *stats) {
    struct fl_args args = c->args;
    *stats = (struct fl_stats){0};
    args.stats = stats;
    args.out.data = out;
    if (in_place >= 0) {
        memcpy(out, c->operand[in_place], (size_t)(c->count * c->format->bytes));
        args.in[in_place].data = out;
    }
    return kernel(&args);
}

static double decoded(const struct call *c, const void *data, const int32_t *e, int64_t i) {
    const struct fl_view view = {.data = (void *)(uintptr_t)data, .e = e, .count = c->count};
    double x;
    c->format->decode(c->format, &view, i, 1, &x);
    return x;
}

/* Compares results as stored; all NaNs count as equal. */
static void compare(const struct call *c, const char *row, const char *how, const void *y, const struct fl_stats *s) {
    const char *op = fl_op_name(c->args.op);
    const size_t bytes = (size_t)c->format->bytes;
    const struct fl_stats *w = &c->stats;
    for (int64_t i = 0; y && i < c->count; i++) {
        const double got = decoded(c, y, c->args.out.e, i), want = decoded(c, c->want, c->args.out.e, i);
        if (memcmp((const char *)y + (size_t)i * bytes, (const char *)c->want + (size_t)i * bytes, bytes) &&
            !(got != got && want != want)) {
            const bool two = c->operand[1] != NULL;
            CHECK(false, "%s.%s.%s %s: %a, %a: got %a, expected %a", c->format->name, op, row, how,
                  decoded(c, c->operand[0], c->args.in[0].e, i),
                  two ? decoded(c, c->operand[1], c->args.in[1].e, i) : 0, got, want);
            break;
        }
    }
    CHECK(s->maximum == w->maximum, "%s.%s.%s %s: maximum %a, expected %a", c->format->name, op, row, how, s->maximum,
          w->maximum);
    CHECK(!y || (s->gamma == w->gamma && s->saturated == w->saturated && s->flushed == w->flushed &&
                 s->nonfinite == w->nonfinite),
          "%s.%s.%s %s: gamma %d, saturated %lld, flushed %lld, nonfinite %lld, expected %d, %lld, %lld, %lld",
          c->format->name, op, row, how, s->gamma, (long long)s->saturated, (long long)s->flushed,
          (long long)s->nonfinite, w->gamma, (long long)w->saturated, (long long)w->flushed, (long long)w->nonfinite);
}

static void check_call(const struct call *c) {
    for (int row = FL_PORTABLE; row <= FL_AVX512BW; row++) {
        const fl_kernel kernel = fl_kernel_in(c->format, c->args.op, (enum fl_backend)row);
        const char *name = fl_backend_name((enum fl_backend)row);
        struct fl_stats stats;
        if (!kernel)
            continue;
        memset(c->got, 0x5a, (size_t)(c->count * c->format->bytes));
        CHECK(!run(c, kernel, c->got, -1, &stats), "%s", tensor_error());
        compare(c, name, "alone", c->got, &stats);
        for (int operand = 0; operand < 2 && c->operand[operand]; operand++) {
            if (*exponent_at(0) != fl_exponent(&c->args.out) && c->args.out.e &&
                fl_exponent(&c->args.in[operand]) != fl_exponent(&c->args.out))
                continue;
            CHECK(!run(c, kernel, c->got, operand, &stats), "%s", tensor_error());
            compare(c, name, operand ? "in place of the second" : "in place", c->got, &stats);
        }
        CHECK(!run(c, kernel, NULL, -1, &stats), "%s", tensor_error());
        compare(c, name, "measured", NULL, &stats);
    }
}

static int exponent(const struct fl_format *f) {
    const uint64_t draw = check_random(&seed);
    return draw % 4                ? 8 + (int)(draw >> 32) % 10
           : draw % 8              ? (int)(draw >> 32) % 32
           : f->id == FMT_FLEX16_5 ? 31
                                   : (int)((draw >> 32) % 256) - 128;
}

static bool has_two(enum fl_op op) {
    switch ((int)op) {
#define FL_REAL2(id, CONSTANT, name, expr) case id:
#define FL_REAL2_SCALAR(id, CONSTANT, name, expr) case id:
#define FL_REAL2_SCALARS(id, CONSTANT, name, expr) case id:
#include "flexlab/ops.def"
        return true;
    default:
        return false;
    }
}

static void begin(struct call *c, const struct fl_format *f, enum fl_op op, int64_t count) {
    static const float alphas[] = {-0.8125f, 1, 0, -0.0f, 0.01f}, betas[] = {2.5f, 0, 1.0f / 3};
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    const size_t bytes = (size_t)(count * f->bytes);
    *c = (struct call){.format = f, .count = count, .want = fl_alloc(bytes), .got = fl_alloc(bytes)};
    c->args = (struct fl_args){.op = op,
                               .format = f,
                               .p.map.alpha = alphas[check_random(&seed) % (sizeof alphas / sizeof alphas[0])],
                               .p.map.beta = betas[check_random(&seed) % (sizeof betas / sizeof betas[0])]};
    if (f->truncates && check_random(&seed) % 4 == 0)
        c->args.rounding.mode = TENSOR_ROUND_TRUNCATE;
    for (int i = 0; i < 1 + has_two(op); i++) {
        c->operand[i] = fl_alloc(bytes);
        c->args.in[i] = (struct fl_view){c->operand[i], NULL, shared ? exponent_at(exponent(f)) : NULL, count};
    }
    c->args.out = (struct fl_view){c->want, NULL, shared ? exponent_at(exponent(f)) : NULL, count};
}

static void finish(struct call *c) {
    CHECK(!run(c, fl_ref_kernel(c->args.op), c->want, -1, &c->stats), "%s", tensor_error());
    check_call(c);
    for (int i = 0; i < 2; i++)
        fl_free(c->operand[i]);
    fl_free(c->want);
    fl_free(c->got);
}

static void check_random_call(const struct fl_format *f, enum fl_op op, int round) {
    const bool small = check_random(&seed) % 4 == 0;
    const int64_t count = small ? 1 + (int64_t)(check_random(&seed) % 40) : MOST - (int64_t)(check_random(&seed) % 20);
    const int manner = (round + (int)op) % MANNERS, factor = (int)(check_random(&seed) % FACTORS);
    struct call c;
    begin(&c, f, op, count);
    for (int64_t i = 0; i < count; i++) {
        set(&c, has_two(op), i, manner, false);
        if (has_two(op))
            set(&c, 0, i, factor, true);
    }
    finish(&c);
}

/* All 65,536 elements x, with difficult dy: extremes, NaN, infinities, zeros, subnormals, and random ones. */
static void check_slopes(const struct fl_format *f, enum fl_op op, int e_x, int e_out) {
    static const uint16_t hard[] = {0x7c00, 0xfc00, 0x7e00, 0x7f80, 0x7fc0, 0x0001, 0x8001, 0x7fff,
                                    0x8000, 0x0000, 0x3c00, 0x3f80, 0x7bff, 0x7f7f, 0x0400, 0x0080};
    struct call c;
    begin(&c, f, op, (f->arithmetic == FL_ARITHMETIC_SHARED ? 2 : 1) * WORDS + 7);
    if (f->arithmetic == FL_ARITHMETIC_SHARED) {
        c.args.in[1].e = exponent_at(e_x);
        c.args.out.e = exponent_at(e_out);
    }
    for (int64_t i = 0; i < c.count; i++) {
        const uint64_t draw = check_random(&seed);
        ((uint16_t *)c.operand[1])[i] = (uint16_t)i;
        ((uint16_t *)c.operand[0])[i] =
            draw % 2 ? (uint16_t)(draw >> 40) : hard[(draw >> 8) % (sizeof hard / sizeof hard[0])];
    }
    finish(&c);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? MANY_ROUNDS : ROUNDS;
    struct fl_real_block none;
    (void)argv;
    printf("seed %llu\n", (unsigned long long)seed);
    CHECK(!tensor_set_threads(2), "%s", tensor_error());
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        for (int op = 1; op < FL_OP_LIMIT; op++) {
            if (!fl_op_is_real((enum fl_op)op) || !fl_real_lanes_portable.evaluate((enum fl_op)op, 0, 0, 0, &none))
                continue;
            for (int round = 0; round < rounds * (f->bytes == 4 ? 3 : 1); round++)
                check_random_call(f, (enum fl_op)op, round);
        }
    }
    for (int op = FL_OP_LEAKY_RELU_GRAD; op <= FL_OP_COS_GRAD; op++)
        for (int round = 0; round < (argc > 1 ? 8 : op == FL_OP_GELU_GRAD); round++) {
            check_slopes(fl_format_of(FMT_FP16), (enum fl_op)op, 0, 0);
            check_slopes(fl_format_of(FMT_BF16), (enum fl_op)op, 0, 0);
            check_slopes(fl_format_of(FMT_FLEX16_5), (enum fl_op)op, 10 + 3 * round % 22, 4 + 5 * round % 28);
            check_slopes(fl_format_of(FMT_DFP16), (enum fl_op)op, 14 - 9 * round, 12 + 7 * round);
        }
    return check_summary();
}
