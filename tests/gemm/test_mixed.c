/* test_mixed.c - matmuls whose operands and result are of different formats, against arithmetic by hand: all pairs of
 * operands, all results, transposed, fused, batched; exponents at both ends, both kinds of predictors, every rounding,
 * instruction set and number of threads. */
#include "kernel_sets.h"
#include "mixed_witness.h"
#include "flexlab/tensor_blocks.h"

struct problem {
    int64_t batch, m, n, k;
    bool ta, tb;
};

static void sums_of(const struct problem *p, const tensor *a, const tensor *b, const struct addends *with,
                    struct result *results) {
    struct pair *pairs = malloc((size_t)p->k * sizeof *pairs);
    for (int64_t i = 0; i < p->batch * p->m * p->n; i++) {
        const int64_t matrix = i / (p->m * p->n), row = i / p->n % p->m, column = i % p->n;
        for (int64_t k = 0; k < p->k; k++)
            pairs[k] = (struct pair){matrix * p->m * p->k + (p->ta ? k * p->m + row : row * p->k + k),
                                     matrix * p->k * p->n + (p->tb ? column * p->k + k : k * p->n + column)};
        results[i] = is_shared(tensor_format_of(a)) ? exact_result(a, b, pairs, p->k, with, i)
                                                    : float_result(a, b, pairs, p->k, with, i);
    }
    free(pairs);
}

static tensor_status multiply(const struct problem *p, tensor *y, const tensor *a, const tensor *b,
                              const struct addends *with) {
    const tensor_epilogue joined = {.bias = with->bias, .residual = with->residual, .relu = with->relu};
    const bool fused = with->bias || with->residual || with->relu;
    if (p->batch > 1)
        return p->ta   ? tensor_matmul_batched_tn(y, a, b)
               : p->tb ? tensor_matmul_batched_nt(y, a, b)
                       : tensor_matmul_batched(y, a, b);
    if (p->ta)
        return tensor_matmul_tn(y, a, b);
    if (p->tb)
        return fused ? tensor_matmul_nt_fused(y, a, b, &joined) : tensor_matmul_nt(y, a, b);
    return fused ? tensor_matmul_fused(y, a, b, &joined) : tensor_matmul(y, a, b);
}

static tensor_format random_format(bool shared) {
    return shared ? (random_between(0, 1) ? FMT_DFP16 : FMT_FLEX16_5) : all_formats[random_between(0, 2)];
}

/* One product, on every instruction set, twice into the same result: the first write measures, the second has a
 * history. */
static void check_product(tensor_format fa, tensor_format fb, tensor_format fy, bool small) {
    struct problem p = {.batch = random_between(0, 3) ? 1 : random_between(2, 12),
                        .m = random_between(1, small ? 9 : 40),
                        .n = random_between(1, small ? 40 : 70),
                        .k = random_between(0, 9)
                                 ? random_between(1, small ? 40 : 90)
                                 : random_between(500, 1100) * (random_between(0, 3) == 0) + random_between(1, 60)};
    const int way = (int)random_between(0, 2);
    p.ta = way == 1;
    p.tb = way == 2;
    const enum fill fill = (enum fill)random_between(0, FILLS - 1);
    const int64_t sa[] = {p.batch, p.ta ? p.k : p.m, p.ta ? p.m : p.k},
                  sb[] = {p.batch, p.tb ? p.n : p.k, p.tb ? p.k : p.n}, sy[] = {p.batch, p.m, p.n};
    const int from = p.batch > 1 ? 0 : 1;
    tensor *a = random_tensor(fa, 3 - from, sa + from, fill), *b = random_tensor(fb, 3 - from, sb + from, fill);
    tensor *bias = NULL, *residual = NULL;
    struct addends with = {.relu = false};
    if (p.batch == 1 && !p.ta && random_between(0, 1)) {
        const bool any = random_between(0, 1);
        with.relu = random_between(0, 1);
        if (random_between(0, 2))
            with.bias = bias = random_tensor(any ? random_format(random_between(0, 1)) : fy, 1, sy + 2, fill);
        if (random_between(0, 2))
            with.residual = residual = random_tensor(any ? random_format(random_between(0, 1)) : fy, 2, sy + 1, fill);
    }
    struct rounding how = {TENSOR_ROUND_NEAREST, check_random(&seed), 0};
    const int kind = (int)random_between(0, 5);
    if (kind == 0 && fy != FMT_FP32)
        how.mode = TENSOR_ROUND_STOCHASTIC;
    if (kind == 1 && fy == FMT_BF16)
        how.mode = TENSOR_ROUND_TRUNCATE;
    const char *predictor = random_between(0, 1) ? "paper" : "current";
    const int64_t count = p.batch * p.m * p.n;
    struct result *results = malloc((size_t)count * sizeof *results);
    sums_of(&p, a, b, &with, results);
    for (int isa = FIRST_BACKEND; isa < BACKENDS; isa++) {
        tensor_set_backend(backends[isa]);
        tensor_set_threads((int)random_between(1, 3));
        tensor *y = tensor_new(fy, 3 - from, sy + from);
        if (is_shared(fy))
            tensor_set_predictor(y, predictor);
        tensor_set_rounding(y, how.mode, how.seed);
        for (how.write = 0; how.write < 2; how.write++) {
            char what[200];
            struct autoflex before = {.e = 0};
            if (is_shared(fy))
                before = *tensor_autoflex(y);
            snprintf(what, sizeof what,
                     "%s x %s -> %s %lldx%lldx%lldx%lld%s%s%s%s%s fill %d rounding %d %s %s write %d",
                     tensor_format_name(fa), tensor_format_name(fb), tensor_format_name(fy), (long long)p.batch,
                     (long long)p.m, (long long)p.n, (long long)p.k, p.ta ? " tn" : "", p.tb ? " nt" : "",
                     bias ? " bias" : "", residual ? " residual" : "", with.relu ? " relu" : "", fill, how.mode,
                     predictor, backends[isa], (int)how.write);
            const tensor_status status = multiply(&p, y, a, b, &with);
            CHECK(!status, "%s: %s", what, tensor_error());
            if (!status)
                check_write(what, y, results, &before, &how);
        }
        tensor_free(y);
    }
    free(results);
    tensor_free(a);
    tensor_free(b);
    tensor_free(bias);
    tensor_free(residual);
}

static void check_all(int rounds) {
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < FORMATS; i++)
            for (int j = 0; j < FORMATS; j++)
                for (int k = 0; k < FORMATS; k++)
                    if (is_shared(all_formats[i]) == is_shared(all_formats[j]))
                        check_product(all_formats[i], all_formats[j], all_formats[k], round > 0);
}

/* Exact sums on a tie of two neighbours of the result, and addends far below the last place of a double, which
 * determine the rounding. */
static void check_ties(void) {
    enum { M = 20, N = 37, K = 70 };
    const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16};
    const int16_t root[] = {4096, 45, 16}, rest[] = {1, 24, 1}; /* root^2 + rest is 2^24, 2^11, 2^8, and 1 */
    const struct problem p = {.batch = 1, .m = M, .n = N, .k = K};
    const struct rounding how = {TENSOR_ROUND_NEAREST, 0, 0};
    struct result results[M * N];
    for (int f = 0; f < 3; f++) {
        tensor *a = tensor_new(FMT_DFP16, TENSOR_SHAPE(M, K)), *b = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(K, N)),
               *bias = tensor_new(FMT_FP32, TENSOR_SHAPE(N)), *residual = tensor_new(FMT_FP32, TENSOR_SHAPE(M, N));
        int16_t *ma = tensor_data(a), *mb = tensor_data(b);
        float *x = tensor_data(bias), *r = tensor_data(residual);
        for (int i = 0; i < M; i++) {
            ma[i * K] = (int16_t)(random_between(0, 1) ? root[f] : -root[f]);
            ma[i * K + K - 1] = (int16_t)(ma[i * K] < 0 ? -rest[f] : rest[f]);
        }
        for (int j = 0; j < N; j++) {
            mb[j] = root[f];
            mb[(K - 1) * N + j] = 1;
            x[j] = (float)random_between(-1, 1) * 0x1p-60f;
        }
        for (int i = 0; i < M * N; i++)
            r[i] = (float)random_between(-1, 1) * 0x1p-61f;
        for (int joined = 0; joined < 4; joined++) {
            const struct addends with = {joined & 1 ? bias : NULL, joined & 2 ? residual : NULL, false};
            sums_of(&p, a, b, &with, results);
            for (int isa = FIRST_BACKEND; isa < BACKENDS; isa++) {
                char what[100];
                snprintf(what, sizeof what, "ties to %s, addends %d, %s", tensor_format_name(formats[f]), joined,
                         backends[isa]);
                tensor_set_backend(backends[isa]);
                tensor *y = tensor_new(formats[f], TENSOR_SHAPE(M, N));
                CHECK(!multiply(&p, y, a, b, &with), "%s: %s", what, tensor_error());
                check_write(what, y, results, NULL, &how);
                tensor_free(y);
            }
        }
        tensor_free(a);
        tensor_free(b);
        tensor_free(bias);
        tensor_free(residual);
    }
    tensor_set_backend(NULL);
}

#ifndef FL_AMX_EMULATED /* tiles in plain C would take minutes */
/* Sums of 2^53 and more, which no double can represent: next to a tie of two neighbours of the result, in the operands'
 * own format, too. */
static void check_long_sums(void) {
    enum { K = 3 << 22, TOP = 32767, SQUARE = TOP * TOP };
    const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_DFP16};
    tensor *a = tensor_new(FMT_DFP16, TENSOR_SHAPE(1, K)), *b = tensor_new(FMT_DFP16, TENSOR_SHAPE(K, 1));
    int16_t *ma = tensor_data(a), *mb = tensor_data(b);
    tensor_declare_exponent(a, 20);
    tensor_declare_exponent(b, 26);
    const struct rounding how = {TENSOR_ROUND_NEAREST, 0, 0};
    for (int f = 0; f < 4; f++)
        for (int step = f % 2 ? 1 : -1; step <= (f != 2 ? 1 : -1); step += 2) {
            const int cut = 54 - (is_shared(formats[f]) ? 15 : kind_of(formats[f]).digits); /* of a sum of 54 bits */
            const int64_t odd = ((int64_t)(K - 8) * SQUARE >> cut) - 1 - random_between(0, 1),
                          sum = (odd << cut) + ((int64_t)1 << (cut - 1)) + step, rest = sum % SQUARE;
            for (int64_t i = 0; i < K; i++) {
                ma[i] = i < sum / SQUARE ? TOP : 0;
                mb[i] = TOP;
            }
            ma[K - 2] = (int16_t)(rest / TOP);
            ma[K - 1] = (int16_t)(rest % TOP);
            mb[K - 1] = 1;
            const struct result result = {.x = number_of(sum, 46)};
            for (int isa = FIRST_BACKEND; isa < BACKENDS; isa++) {
                char what[100];
                snprintf(what, sizeof what, "a sum of 2^54 to %s, %d from a tie, %s", tensor_format_name(formats[f]),
                         step, backends[isa]);
                tensor_set_backend(backends[isa]);
                tensor *y = tensor_new(formats[f], TENSOR_SHAPE(1, 1));
                const struct autoflex before = is_shared(formats[f]) ? *tensor_autoflex(y) : (struct autoflex){0};
                CHECK(sum >= (int64_t)1 << 53 && !tensor_matmul(y, a, b), "%s: %s", what, tensor_error());
                check_write(what, y, &result, &before, &how);
                tensor_free(y);
            }
        }
    tensor_free(a);
    tensor_free(b);
    tensor_set_backend(NULL);
}

#endif

/* Formats without a product are refused, by name, and nothing is written. */
static void check_refusals(void) {
    tensor *a = tensor_new(FMT_DFP16, TENSOR_SHAPE(2, 3)), *b = tensor_new(FMT_FP16, TENSOR_SHAPE(3, 4)),
           *n = tensor_new(FMT_F64, TENSOR_SHAPE(3, 4)), *y = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 4));
    CHECK(tensor_matmul(y, a, b) == TENSOR_E_FORMAT, "dfp16 by fp16");
    CHECK(strstr(tensor_error(), "a is dfp16, b is fp16") && strstr(tensor_error(), "tensor_convert"), "%s",
          tensor_error());
    CHECK(tensor_matmul(y, a, n) == TENSOR_E_FORMAT, "dfp16 by numbers");
    CHECK(strstr(tensor_error(), "b is f64"), "%s", tensor_error());
    tensor_stats last;
    tensor_statistics(&last, NULL, y);
    CHECK(last.writes == 0, "a refused product was written");
    tensor_free(a);
    tensor_free(b);
    tensor_free(n);
    tensor_free(y);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20180207;
    check_refusals();
    check_ties();
#ifdef FL_AMX_EMULATED
    check_all(1);
#else
    check_all(argc > 2 ? atoi(argv[2]) : 2);
    check_long_sums();
#endif
    return check_summary();
}
