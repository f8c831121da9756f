/* test_stochastic.c - stochastic rounding of the shared-exponent formats, floor(x + draw / 2^32), on every kernel row:
 *   - the generator gives the published numbers of Philox 4x32-10, and the vectors' draws are those of the definition
 *     for any stretch of elements, where the words of the counter carry too;
 *   - results, saturation and all statistics are those of exact arithmetic at every shift at which kernels change their
 *     way, for elements that fill no vector, and for writes of several parts, with 1, 2, 3 and 7 threads;
 *   - a sum that a draw takes to exactly one integer is rounded to it, and one less to the integer below;
 *   - the mean of many draws is the value. */
#include "core/base/memory.h"
#include "core/arithmetic/philox.h"
#include "flex_harness.h"

#include "core/arithmetic/draws.h" /* compiled for the processor that the tests are compiled for */

/* --- the generator --- */

/* Known answers that are distributed with Random123, the authors' library. */
static void check_published(void) {
    static const struct {
        uint32_t counter[4], key[2], word[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const uint32_t *c = known[i].counter, *k = known[i].key, *want = known[i].word;
        uint32_t witness[4];
        witness_philox(c, k, witness);
        const struct fl_philox got =
            fl_philox((uint64_t)k[1] << 32 | k[0], (uint64_t)c[3] << 32 | c[2], (uint64_t)c[1] << 32 | c[0]);
        for (int w = 0; w < 4; w++)
            CHECK(got.word[w] == want[w] && witness[w] == want[w],
                  "answer %zu word %d: %08" PRIx32 ", witness %08" PRIx32 ", want %08" PRIx32, i, w, got.word[w],
                  witness[w], want[w]);
    }
}

/* Stretches that begin and end anywhere, and those across 2^34 elements, where the counter's second word changes. */
static void check_draws(void) {
    static struct draws memory;
    for (int trial = 0; trial < 3000; trial++) {
        const uint64_t replay = seed;
        const int64_t n = random_below(DRAW_RUN) + 1, carry = (random_below(3) + 1) * ((int64_t)1 << 34);
        const int64_t first = trial % 3 == 0   ? random_below(100)
                              : trial % 3 == 1 ? carry - random_below(DRAW_RUN)
                                               : (int64_t)(check_random(&seed) >> 2);
        const struct fl_rounding how = {TENSOR_ROUND_STOCHASTIC, check_random(&seed), check_random(&seed)};
        const uint32_t *draws = draws_of(&how, first, n, &memory);
        int64_t bad = -1;
        for (int64_t i = 0; i < n; i++)
            if (draws[i] != witness_draw(how.key, how.write, first + i))
                bad = i;
        CHECK(bad < 0, "seed %" PRIx64 ": draw of element %" PRId64 " + %" PRId64 " is %08" PRIx32, replay, first, bad,
              draws[bad < 0 ? 0 : bad]);
    }
}

/* --- results at chosen shifts --- */

static struct number exact(const struct fl_args *args, int64_t i) {
    const int64_t a = mantissa_of(&args->in[0], i);
    switch ((int)args->op) {
    case FL_OP_MUL:
        return number_of(a * mantissa_of(&args->in[1], i), fl_exponent(&args->in[0]) + fl_exponent(&args->in[1]));
    case FL_OP_ADD:
        return number_add(value_of(&args->in[0], i), value_of(&args->in[1], i));
    case FL_OP_BIAS:
        return number_add(value_of(&args->in[0], i), value_of(&args->in[1], i % args->p.rows.n));
    case FL_OP_NEG:
        return number_of(-a, fl_exponent(&args->in[0]));
    case FL_OP_RELU:
        return a < 0 ? (struct number){0} : value_of(&args->in[0], i);
    default: { /* scale */
        int exponent;
        const int64_t bits = (int64_t)ldexp(frexp(args->p.map.alpha, &exponent), 24);
        return number_of(bits * a, fl_exponent(&args->in[0]) + 24 - exponent);
    }
    }
}

/* A write whose sums, at their own exponent, are shifted by `shift`; dfp16, whose exponents reach far enough. */
static void check_shift(enum fl_op op, int64_t count, int shift, enum fill kind) {
    struct fl_args args = {.op = op,
                           .format = fl_format_of(FMT_DFP16),
                           .rounding = {TENSOR_ROUND_STOCHASTIC, check_random(&seed), check_random(&seed)}};
    int exponent = random_between(-20, 20); /* of the sums */
    args.in[0] = random_view(count, exponent, kind);
    if (op == FL_OP_ADD || op == FL_OP_BIAS) {
        const int64_t others = op == FL_OP_BIAS ? random_below(40) + 1 : count;
        static const int apart[] = {0, 1, 14, 15, 16, 17, 31, 40, 46, 47};
        args.in[0].e =
            exponent_at(fl_exponent(&args.in[0]) - apart[random_below((int64_t)(sizeof apart / sizeof apart[0]))]);
        count -= count % others;
        if (!count)
            count = others, args.in[0] = random_view(count, fl_exponent(&args.in[0]), kind);
        args.in[1] = random_view(others, exponent, kind);
        args.p.rows = (struct fl_row_sizes){.m = count / others, .n = others};
    } else if (op == FL_OP_MUL) {
        args.in[1] = random_view(count, random_between(-20, 20), random_fill());
        exponent += fl_exponent(&args.in[1]);
    } else if (op == FL_OP_SCALE) {
        args.p.map.alpha = ldexpf((float)(random_between(1 << 22, (1 << 24) - 1) | 1), -24);
        exponent += 24;
    }
    int e = exponent - shift;
    const int off = e < -128 ? -128 - e : e > 127 ? 127 - e : 0; /* shift everything into the format's range */
    args.in[0].e = exponent_at(fl_exponent(&args.in[0]) + off);
    if (op == FL_OP_ADD || op == FL_OP_BIAS)
        args.in[1].e = exponent_at(fl_exponent(&args.in[1]) + off);
    e += off;
    args.in[0].count = args.out.count = count;
    args.out.e = exponent_at(e);
    if (fl_exponent(&args.in[0]) >= -128 && fl_exponent(&args.in[0]) <= 127 && fl_exponent(&args.in[1]) >= -128 &&
        fl_exponent(&args.in[1]) <= 127)
        check_rows(&args, exact, false, ALL_ROWS);
    release_from(0);
}

static void check_shifts(void) {
    static const int shifts[] = {-120, -47, -17, -16, -15, -1, 0,  1,  2,  3,  8,  14, 15, 16, 17, 24, 29,  30,  31,
                                 32,   33,  34,  40,  45,  46, 47, 48, 61, 62, 63, 64, 94, 95, 96, 97, 127, 128, 200};
    static const enum fl_op ops[] = {FL_OP_MUL, FL_OP_ADD, FL_OP_BIAS, FL_OP_RELU, FL_OP_SCALE};
    static const int64_t counts[] = {1, 7, 31, 33, 1023, 1024, 1057, 2500};
    for (size_t s = 0; s < sizeof shifts / sizeof shifts[0]; s++)
        for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
            for (int kind = 0; kind < FILL_KINDS; kind++)
                check_shift(ops[o], counts[random_below((int64_t)(sizeof counts / sizeof counts[0]))], shifts[s],
                            (enum fill)kind);
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) /* several parts for the threads */
        check_shift(ops[o], 70001, random_between(12, 34), FILL_RANDOM);
}

/* --- sums that a draw takes to an integer --- */

/* a * 2^up + b is any integer of about up + 15 bits. At `shift` up to 32, a draw adds v = draw >> (32 - shift) to it: k
 * 2^shift - v is rounded to k, one less to k - 1. Both ways of summing (31 and 62 bits) and all of the shifts between.
 */
static void check_edge(int up, int shift) {
    enum { N = 2100 };
    int16_t *a = allocate(N * sizeof *a), *b = allocate(N * sizeof *b), *got = allocate(N * sizeof *got),
            *want = allocate(N * sizeof *want);
    const struct fl_rounding how = {TENSOR_ROUND_STOCHASTIC, check_random(&seed), check_random(&seed)};
    int replaced = 0;
    for (int64_t i = 0; i < N; i++) {
        const int64_t v = witness_draw(how.key, how.write, i) >> (32 - shift), below = random_below(2);
        const int64_t room = ((int64_t)1 << (up + 14)) >> shift;
        int64_t k = room > 1
                        ? random_between(-(int)(room < 30000 ? room : 30000) + 2, room < 30000 ? (int)room - 2 : 30000)
                        : random_below(2);
        int64_t x = k * ((int64_t)1 << shift) - v - below;
        b[i] = (int16_t)(x & (((int64_t)1 << up) - 1)); /* up <= 16: the low bits, as a mantissa above or below zero */
        int64_t high = (x - b[i]) / ((int64_t)1 << up);
        if ((x - b[i]) % ((int64_t)1 << up) || high > 32767 || high < -32768 || b[i] == -32768) {
            high = b[i] = 0; /* no such mantissas: zero stays zero */
            k = below;
            replaced++;
        }
        a[i] = (int16_t)high;
        want[i] = (int16_t)(k - below);
    }
    CHECK(replaced < N * 3 / 4, "up %d shift %d: %d of %d sums are not to be had", up, shift, replaced, N);
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        struct fl_stats stats = {0};
        const struct fl_args args = {
            .op = FL_OP_ADD,
            .format = fl_format_of(FMT_DFP16),
            .in = {{.data = a, .e = exponent_at(40 - up), .count = N}, {.data = b, .e = exponent_at(40), .count = N}},
            .out = {.data = got, .e = exponent_at(40 - shift), .count = N},
            .rounding = how,
            .stats = &stats};
        const fl_kernel kernel = fl_kernel_select(args.format, args.op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        memset(got, 0x5b, N * sizeof *got);
        CHECK(!kernel(&args), "add failed");
        int64_t bad = -1;
        for (int64_t i = N - 1; i >= 0; i--)
            if (got[i] != want[i])
                bad = i;
        CHECK(bad < 0, "%s up %d shift %d key %" PRIx64 ": element %" PRId64 ", %d and %d, is %d, want %d",
              fl_backend_name(chosen), up, shift, how.key, bad, a[bad < 0 ? 0 : bad], b[bad < 0 ? 0 : bad],
              got[bad < 0 ? 0 : bad], want[bad < 0 ? 0 : bad]);
    }
    release_from(0);
}

/* The least and the largest draw, which one in 2^32 is: of these keys, elements 42028 and 30338 of the first write have
 * them. The least takes every sum below zero to the integer below, however small it is; the largest, one of 2^-32 or
 * more to the integer above. */
static void check_extreme_draws(void) {
    static const struct {
        uint64_t key;
        int64_t element;
        uint32_t draw;
    } extremes[] = {{171431, 42028, 0}, {149059, 30338, UINT32_MAX}};
    static const int shifts[] = {1, 16, 30, 31, 32, 33, 34, 35, 36, 46, 47, 62, 63, 64, 94, 95, 96, 200};
    for (int k = 0; k < 2; k++) {
        CHECK(witness_draw(extremes[k].key, 0, extremes[k].element) == extremes[k].draw, "key %d", k);
        for (size_t s = 0; s < sizeof shifts / sizeof shifts[0]; s++) {
            const int64_t count = extremes[k].element + 2;
            const int e = shifts[s] > 100 ? 100 : 40;
            struct fl_args args = {.op = FL_OP_NEG,
                                   .format = fl_format_of(FMT_DFP16),
                                   .in = {random_view(count, e, FILL_SMALL)},
                                   .out = {.e = exponent_at(e - shifts[s]), .count = count},
                                   .rounding = {TENSOR_ROUND_STOCHASTIC, extremes[k].key, 0}};
            ((int16_t *)args.in[0].data)[extremes[k].element] = k ? (int16_t)-random_between(1, 9) : 1;
            check_rows(&args, exact, false, ALL_ROWS);
            release_from(0);
        }
    }
}

/* --- no bias --- */

/* The mean of n results of one value lies within 5 standard deviations of it, each result's being at most one half; so
 * do the means of the elements at each place modulo 4, which have a word of the generator each. */
static void check_unbiased(enum fl_op op, float alpha, int shift) {
    enum { N = 40000 };
    const int16_t m = (int16_t)random_between(-9000, 9000);
    int16_t *x = allocate(N * sizeof *x), *y = allocate(N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = m;
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        struct fl_stats stats = {0};
        const struct fl_args args = {.op = op,
                                     .format = fl_format_of(FMT_FLEX16_5),
                                     .in = {{.data = x, .e = exponent_at(20), .count = N}},
                                     .out = {.data = y, .e = exponent_at(20 - shift), .count = N},
                                     .p.map.alpha = alpha,
                                     .rounding = {TENSOR_ROUND_STOCHASTIC, check_random(&seed), check_random(&seed)},
                                     .stats = &stats};
        const fl_kernel kernel = fl_kernel_select(args.format, args.op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        CHECK(!kernel(&args), "%s failed", fl_op_name(op));
        double sum[4] = {0};
        for (int i = 0; i < N; i++)
            sum[i % 4] += y[i];
        const double want = ldexp((double)alpha * m, -shift), bound = 5 * 0.5 / sqrt(N),
                     quarter = 5 * 0.5 / sqrt(N / 4);
        const double mean = (sum[0] + sum[1] + sum[2] + sum[3]) / N;
        CHECK(fabs(mean - want) <= bound, "%s.%s: mean %g of %g, bound %g", fl_op_name(op), fl_backend_name(chosen),
              mean, want, bound);
        for (int w = 0; w < 4; w++)
            CHECK(fabs(sum[w] / (N / 4) - want) <= quarter, "%s.%s: word %d, mean %g of %g, bound %g", fl_op_name(op),
                  fl_backend_name(chosen), w, sum[w] / (N / 4), want, quarter);
    }
    release_from(0);
}

int main(int argc, char **argv) {
    const uint64_t start = argc > 1 ? strtoull(argv[1], NULL, 16) : 0x57;
    seed = start;
    printf("seed %" PRIx64 "\n", start);
    check_published();
    check_draws();
    check_shifts();
    for (int up = 14; up <= 16; up++)
        for (int shift = 1; shift <= up + 16; shift++)
            check_edge(up, shift);
    check_extreme_draws();
    for (int trial = 0; trial < 6; trial++) {
        check_unbiased(FL_OP_NEG, -1, random_between(1, 14));
        check_unbiased(FL_OP_SCALE, 0.7f, random_between(1, 11));
    }
    return check_summary();
}
