/* block_witness.h - products of blocks by hand: every operand is quantised once along the dimension that the product
 * sums over, the products of the quantised values are added as exact numbers in the order of the definition, and the
 * sum is rounded once. */
#ifndef FL_BLOCK_WITNESS_H
#define FL_BLOCK_WITNESS_H

#include "blocks/block_product.h"
#include "blocks/block_quantise.h"
#include "core/base/memory.h"
#include "core/table/operands.h"
#include "mixed_witness.h"

/* A product: matrices, or a convolution. */
struct shape {
    enum fl_op op;
    int64_t batch, m, n, k;                 /* batch 0: one matrix */
    int64_t images, h, w, c, f, r, s, p, q; /* f: filters */
    int stride[2], padding[2], dilation[2], groups;
};

static bool is_convolution(const struct shape *v) {
    return v->groups > 0;
}

/* How an operand is quantised: [outer, k, inner]; and which rows share the scale of the format channel: those numbered
 * (h * length + i) * step + l with the same h and l. */
struct cut {
    int64_t outer, k, inner;
    int64_t length, step;
};

static struct cut cut_of(const struct shape *v, int i) {
    const int64_t batch = v->batch ? v->batch : 1, depth = is_convolution(v) ? v->c / v->groups : 0,
                  per_group = is_convolution(v) ? v->f / v->groups : 0;
    switch ((int)v->op) {
    case FL_OP_CONV2D:
        return i ? (struct cut){v->f * v->r * v->s, depth, 1, v->r * v->s, 1}                           /* a filter */
                 : (struct cut){v->images * v->h * v->w * v->groups, depth, 1, v->h * v->w, v->groups}; /* an image */
    case FL_OP_CONV2D_INPUT_GRAD:
        return i ? (struct cut){v->groups, per_group, v->r * v->s * depth, v->r * v->s, depth}
                 : (struct cut){v->images * v->p * v->q * v->groups, per_group, 1, v->p * v->q, v->groups};
    case FL_OP_CONV2D_WEIGHT_GRAD:
        return i ? (struct cut){1, v->images, v->h * v->w * v->c, v->h * v->w, v->c}
                 : (struct cut){1, v->images, v->p * v->q * v->f, v->p * v->q, v->f};
    case FL_OP_MATMUL_TN:
    case FL_OP_MATMUL_BATCHED_TN:
        return i ? (struct cut){batch, v->k, v->n, 1, 1} : (struct cut){batch, v->k, v->m, 1, 1};
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_BATCHED_NT:
        return i ? (struct cut){batch * v->n, v->k, 1, 1, 1} : (struct cut){batch * v->m, v->k, 1, 1, 1};
    default:
        return i ? (struct cut){batch, v->k, v->n, 1, 1} : (struct cut){batch * v->m, v->k, 1, 1, 1};
    }
}

static int64_t count_of(const struct shape *v, int i) {
    const struct cut c = cut_of(v, i);
    return c.outer * c.k * c.inner;
}

static int64_t results_of(const struct shape *v) {
    switch ((int)v->op) {
    case FL_OP_CONV2D:
        return v->images * v->p * v->q * v->f;
    case FL_OP_CONV2D_INPUT_GRAD:
        return v->images * v->h * v->w * v->c;
    case FL_OP_CONV2D_WEIGHT_GRAD:
        return v->f * v->r * v->s * v->c / v->groups;
    default:
        return (v->batch ? v->batch : 1) * v->m * v->n;
    }
}

/* --- the terms of a result ---------------------------------------------------------------------------------------- */

static int64_t x_at(const struct shape *v, int64_t n, int64_t p, int64_t q, int64_t r, int64_t s, int64_t c) {
    const int64_t y = p * v->stride[0] + r * v->dilation[0] - v->padding[0],
                  x = q * v->stride[1] + s * v->dilation[1] - v->padding[1];
    return y < 0 || y >= v->h || x < 0 || x >= v->w ? -1 : ((n * v->h + y) * v->w + x) * v->c + c;
}

static int64_t y_at(const struct shape *v, int64_t n, int64_t y, int64_t x, int64_t r, int64_t s, int64_t k) {
    const int64_t down = y + v->padding[0] - r * v->dilation[0], across = x + v->padding[1] - s * v->dilation[1];
    if (down < 0 || across < 0 || down % v->stride[0] || across % v->stride[1])
        return -1;
    const int64_t p = down / v->stride[0], q = across / v->stride[1];
    return p >= v->p || q >= v->q ? -1 : ((n * v->p + p) * v->q + q) * v->f + k;
}

static int64_t convolution_terms(const struct shape *v, int64_t i, struct pair *pairs) {
    const int64_t depth = v->c / v->groups, per_group = v->f / v->groups;
    int64_t t = 0;
    if (v->op == FL_OP_CONV2D) {
        const int64_t k = i % v->f, q = i / v->f % v->q, p = i / v->f / v->q % v->p, n = i / v->f / v->q / v->p;
        for (int64_t r = 0; r < v->r; r++)
            for (int64_t s = 0; s < v->s; s++)
                for (int64_t c = 0; c < depth; c++)
                    pairs[t++] = (struct pair){x_at(v, n, p, q, r, s, k / per_group * depth + c),
                                               ((k * v->r + r) * v->s + s) * depth + c};
    } else if (v->op == FL_OP_CONV2D_INPUT_GRAD) {
        const int64_t c = i % v->c, x = i / v->c % v->w, y = i / v->c / v->w % v->h, n = i / v->c / v->w / v->h;
        for (int64_t r = 0; r < v->r; r++)
            for (int64_t s = 0; s < v->s; s++)
                for (int64_t j = 0; j < per_group; j++) {
                    const int64_t k = c / depth * per_group + j;
                    pairs[t++] =
                        (struct pair){y_at(v, n, y, x, r, s, k), ((k * v->r + r) * v->s + s) * depth + c % depth};
                }
    } else {
        const int64_t c = i % depth, s = i / depth % v->s, r = i / depth / v->s % v->r, k = i / depth / v->s / v->r;
        for (int64_t n = 0; n < v->images; n++)
            for (int64_t p = 0; p < v->p; p++)
                for (int64_t q = 0; q < v->q; q++)
                    pairs[t++] = (struct pair){((n * v->p + p) * v->q + q) * v->f + k,
                                               x_at(v, n, p, q, r, s, k / per_group * depth + c)};
    }
    return t;
}

static int64_t terms_of(const struct shape *v, int64_t i, struct pair *pairs) {
    if (is_convolution(v))
        return convolution_terms(v, i, pairs);
    const bool tn = v->op == FL_OP_MATMUL_TN || v->op == FL_OP_MATMUL_BATCHED_TN,
               nt = v->op == FL_OP_MATMUL_NT || v->op == FL_OP_MATMUL_BATCHED_NT;
    const int64_t j = i % v->n, row = i / v->n % v->m, one = i / v->n / v->m;
    for (int64_t l = 0; l < v->k; l++)
        pairs[l] = (struct pair){one * v->m * v->k + (tn ? l * v->m + row : row * v->k + l),
                                 one * v->k * v->n + (nt ? j * v->k + l : l * v->n + j)};
    return v->k;
}

/* --- exact sums --------------------------------------------------------------------------------------------------- */

static void must_have(const void *memory) {
    if (!memory) {
        printf("no memory for the test\n");
        exit(1);
    }
}

/* m * 2^e, |m| < 2^36; or NaN. */
struct value {
    int64_t m;
    int e;
    bool is_nan;
};

static struct value value_of(double x) {
    if (x != x)
        return (struct value){.is_nan = true};
    if (x == 0)
        return (struct value){0};
    int e;
    const int64_t m = (int64_t)ldexp(frexp(x, &e), 36);
    if (ldexp((double)m, e - 36) != x)
        CHECK(false, "%a has more than 36 bits", x);
    return (struct value){m, e - 36, false};
}

/* The values that the elements of a tensor have in its blocks, in the order of the tensor. */
static struct value *values_in_blocks(const struct fl_block_format *format, const float *x, struct cut c) {
    const int64_t rows = c.outer * c.inner;
    float *together = malloc((size_t)(rows * c.k) * sizeof *together);
    struct value *values = malloc((size_t)(rows * c.k) * sizeof *values);
    struct fl_block_rows out;
    void *memory = fl_alloc(fl_block_place(&out, format, rows, c.k, 1, NULL));
    must_have(together);
    must_have(values);
    must_have(memory);
    for (int64_t i = 0; i < rows * c.k; i++)
        together[(i / c.inner / c.k * c.inner + i % c.inner) * c.k + i / c.inner % c.k] = x[i];
    fl_block_place(&out, format, rows, c.k, 1, memory);
    const struct fl_block_how how = {.channel_length = c.length, .channel_step = c.step};
    fl_block_quantise(format, together, rows, c.k, 1, &how, &out);
    for (int64_t i = 0; i < rows * c.k; i++)
        values[i] = value_of(fl_block_value(&out, i / c.inner / c.k * c.inner + i % c.inner, i / c.inner % c.k));
    free(together);
    fl_free(memory);
    return values;
}

/* The sum of terms one after the other, as numbers. */
static inline struct number slow_sum(const struct value *a, const struct value *b, const struct pair *pairs,
                                     int64_t terms) {
    struct number sum = number_of(0, 0);
    for (int64_t j = 0; j < terms; j++)
        if (pairs[j].a >= 0 && pairs[j].b >= 0) {
            const struct value *x = &a[pairs[j].a], *y = &b[pairs[j].b];
            const int64_t low = y->m % (1 << 18), high = y->m / (1 << 18);
            sum = number_add(
                sum, number_add(number_of(x->m * high, -18 - x->e - y->e), number_of(x->m * low, -x->e - y->e)));
        }
    return sum;
}

/* The same with an integer of 128 bits for each limb that a number has: products of 72 bits, wherever they begin in
 * their limb, leave 24 bits for the number of terms. */
static struct result exact_sum(const struct value *a, const struct value *b, const struct pair *pairs, int64_t terms) {
    struct result r = {.special = 0};
    __extension__ __int128 sums[NUMBER_LIMBS] = {0};
    for (int64_t j = 0; j < terms; j++) {
        const struct value *x = pairs[j].a < 0 ? NULL : &a[pairs[j].a], *y = pairs[j].b < 0 ? NULL : &b[pairs[j].b];
        if ((x && x->is_nan) || (y && y->is_nan))
            r.special = (double)NAN;
        if (!x || !y || !x->m || !y->m)
            continue;
        const int place = NUMBER_UNIT + x->e + y->e;
        sums[place / 32] += (__extension__(__int128) x->m) * y->m * ((int64_t)1 << place % 32);
    }
    for (int i = 0; i < NUMBER_LIMBS; i++) {
        for (int part = 0; part < 3 && sums[i]; part++) { /* 48 bits at a time */
            const int64_t some = (int64_t)(sums[i] % ((int64_t)1 << 48));
            r.x = number_add(r.x, number_of(some, NUMBER_UNIT - 32 * i - 48 * part));
            sums[i] /= (int64_t)1 << 48;
        }
        if (sums[i] != 0)
            CHECK(false, "limb %d: a sum of more than 128 bits", i);
    }
    return r;
}

/* --- a call ------------------------------------------------------------------------------------------------------- */

struct call {
    struct shape shape;
    tensor_format result;
    const struct fl_block_format *blocks[2];
    float *in[2], *bias, *residual;
    int64_t columns; /* of the bias */
    bool relu;
};

static double stored_value(tensor_format f, const void *data, int64_t i) {
    return f == FMT_FP32   ? (double)((const float *)data)[i]
           : f == FMT_FP16 ? half_value(((const uint16_t *)data)[i])
                           : float_bits((uint32_t)((const uint16_t *)data)[i] << 16);
}

/* Computes the results into out, and the statistics. */
static void run_call(const struct call *c, void *out, struct fl_stats *stats) {
    const struct shape *v = &c->shape;
    const struct fl_format *fp32 = fl_format_of(FMT_FP32), *result = fl_format_of(c->result);
    struct fl_args args = {
        .op = v->op,
        .format = result,
        .out = {.data = out, .count = results_of(v)},
        .in = {{.data = c->in[0], .count = count_of(v, 0)}, {.data = c->in[1], .count = count_of(v, 1)}},
        .rounding = {.mode = TENSOR_ROUND_NEAREST},
        .stats = stats};
    tensor_class class = TENSOR_EXACT;
    CHECK(!fl_operands_class(&class, c->blocks[0], c->blocks[1]), "no class");
    args.p.product = (struct fl_product){.epilogue = {.bias = {.data = c->bias, .count = c->columns},
                                                      .residual = {.data = c->residual, .count = args.out.count},
                                                      .relu = c->relu},
                                         .exactness = class};
    if (result != fp32)
        args.p.product.formats = (struct fl_formats){{fp32, fp32}, fp32, fp32};
    if (is_convolution(v))
        args.p.product.windows = (struct fl_windows){v->images,
                                                     v->h,
                                                     v->w,
                                                     v->c,
                                                     v->p,
                                                     v->q,
                                                     v->f,
                                                     v->r,
                                                     v->s,
                                                     {v->stride[0], v->stride[1]},
                                                     {v->padding[0], v->padding[1]},
                                                     {v->dilation[0], v->dilation[1]},
                                                     v->groups};
    else
        args.p.product.matrices = (struct fl_matrices){v->m, v->n, v->k, v->batch};
    *stats = (struct fl_stats){0};
    CHECK(!fl_block_product(&args), "%s", tensor_error());
}

/* Compares a call with the definition; `some` results at most, spread over all. */
static inline void check_call(const struct call *c, const char *what, int64_t some) {
    static const char *const backends[] = {"portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    const struct shape *v = &c->shape;
    const int64_t count = results_of(v), longest = is_convolution(v) ? count_of(v, 0) + count_of(v, 1) : v->k;
    struct value *in[2];
    double *want = malloc((size_t)count * sizeof *want);
    struct pair *pairs = malloc((size_t)longest * sizeof *pairs);
    void *out = fl_alloc((size_t)count * sizeof(float)), *before = fl_alloc((size_t)count * sizeof(float));
    must_have(want);
    must_have(pairs);
    must_have(out);
    must_have(before);
    for (int i = 0; i < 2; i++)
        in[i] = values_in_blocks(c->blocks[i], c->in[i], cut_of(v, i));
    const int64_t step = count > some ? count / some : 1;
    tensor_stats expects = {0};
    for (int64_t i = 0; i < count; i += step) {
        const int64_t terms = terms_of(v, i, pairs);
        struct result r = exact_sum(in[0], in[1], pairs, terms);
        if (i == 0 && r.special == 0) { /* the witness's own witness */
            const struct number slow = slow_sum(in[0], in[1], pairs, terms);
            CHECK(slow.negative == r.x.negative && !number_compare_magnitude(&slow, &r.x), "%s: the two sums differ",
                  what);
        }
        if (c->bias)
            r.x = number_add(r.x, number_of_double((double)c->bias[i % c->columns]));
        if (c->residual)
            r.x = number_add(r.x, number_of_double((double)c->residual[i]));
        if (c->relu && r.x.negative)
            r.x = number_of(0, 0);
        want[i] = expected(&r, c->result, 0, &(struct rounding){.mode = TENSOR_ROUND_NEAREST}, i, &expects);
    }
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        struct fl_stats stats;
        tensor_set_backend(backends[k]);
        tensor_set_threads(1 + (int)(k % 3));
        run_call(c, out, &stats);
        int64_t wrong = -1;
        for (int64_t i = 0; i < count && wrong < 0; i += step)
            if (!same_value(stored_value(c->result, out, i) + 0.0, want[i] + 0.0))
                wrong = i;
        CHECK(wrong < 0, "%s: op %d %s by %s, %s: result %lld is %a, expected %a (m %lld n %lld k %lld)", what, v->op,
              c->blocks[0]->name, c->blocks[1]->name, backends[k], (long long)wrong,
              stored_value(c->result, out, wrong < 0 ? 0 : wrong), want[wrong < 0 ? 0 : wrong], (long long)v->m,
              (long long)v->n, (long long)v->k);
        if (step == 1)
            CHECK(stats.maximum == expects.maximum && stats.saturated == expects.saturated &&
                      stats.flushed == expects.flushed && stats.nonfinite == expects.nonfinite,
                  "%s, %s: maximum %a, %lld saturated, %lld flushed, %lld no numbers, expected %a, %lld, %lld, %lld",
                  what, backends[k], stats.maximum, (long long)stats.saturated, (long long)stats.flushed,
                  (long long)stats.nonfinite, expects.maximum, (long long)expects.saturated, (long long)expects.flushed,
                  (long long)expects.nonfinite);
        const size_t bytes = (size_t)count * (c->result == FMT_FP32 ? 4 : 2);
        CHECK(k == 0 || !memcmp(out, before, bytes), "%s: %s has other bits than portable", what, backends[k]);
        memcpy(before, out, bytes);
    }
    tensor_set_backend(NULL);
    tensor_set_threads(0);
    free(in[0]);
    free(in[1]);
    free(want);
    free(pairs);
    fl_free(out);
    fl_free(before);
}

/* Fills x: `spread` binary orders below one, some zeros, and special: a few NaN and Inf. */
static inline float *random_floats(int64_t n, int spread, bool special) {
    float *x = fl_alloc((size_t)n * sizeof *x);
    must_have(x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = ldexpf((float)random_between(-(1 << 23), 1 << 23), -23 - (int)random_between(0, spread));
        if (random_between(0, 9) == 0)
            x[i] = 0;
        if (special && random_between(0, 60) == 0)
            x[i] = random_between(0, 1) ? NAN : INFINITY;
    }
    return x;
}

static inline void free_call(struct call *c) {
    fl_free(c->in[0]);
    fl_free(c->in[1]);
    fl_free(c->bias);
    fl_free(c->residual);
}

#endif
