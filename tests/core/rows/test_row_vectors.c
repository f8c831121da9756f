/* Vector kernels of rows, of groups of channels and of broadcast operands against the reference, on every kernel set:
 * elements and statistics, over drawn shapes and operands that are hard to round: small integers (ties), equal rows,
 * one huge element, both ends of the mantissas, outputs that saturate or flush; NaN and Inf in float formats. The basis
 * of estimates is checked separately: the proof of a rounding, and the powers against the C library's in long double.
 * The seed is printed; an argument sets it. */
#include "check.h"
#include "core/arithmetic/elementary.h"
#include "core/arithmetic/exact.h"
#include "core/table/format.h"
#include "core/base/memory.h"
#include "core/rows/row_vectors.h"
#include "core/ops/losses/softmax.h"
#include <math.h>
#include <string.h>

enum { CASES = 14, MOST = 24000 /* elements of an operand */ };

static uint64_t draws;

static int64_t between(int64_t low, int64_t high) {
    return low + (int64_t)(check_random(&draws) % (uint64_t)(high - low + 1));
}
static double unit(void) {
    return (double)(check_random(&draws) >> 11) * 0x1p-53;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

enum style { FULL, NARROW, EQUAL, ONE_HUGE, ENDS, LEAST, SPARSE, SMALL, POWERS, STYLES };

static int16_t mantissa(enum style style, int64_t i, int16_t one) {
    switch (style) {
    case FULL:
        return (int16_t)between(-32767, 32767);
    case NARROW:
        return (int16_t)(12000 + between(-40, 40));
    case EQUAL:
        return one;
    case ONE_HUGE:
        return (int16_t)(i % 97 == 13 ? 32767 : between(-1, 1));
    case ENDS:
        return (int16_t)(between(0, 1) ? 32767 : -32767);
    case LEAST:
        return (int16_t)(between(0, 9) ? between(-32767, 32767) : -32768);
    case SPARSE:
        return (int16_t)(between(0, 5) ? 0 : between(-3000, 3000));
    case SMALL:
        return (int16_t)between(-3, 3);
    default:
        return (int16_t)((between(0, 1) ? 1 : -1) * (1 << between(0, 14)));
    }
}

static double value(enum style style, int64_t i, int16_t one) {
    static const double odd[] = {0, -0.0, 1e-42, -6e-8, 65504, 70000, 3.3e38, INFINITY, -INFINITY, NAN};
    if (style == LEAST)
        return between(0, 30) ? unit() - 0.5 : odd[between(0, 9)];
    if (style == ENDS)
        return odd[between(0, 5)];
    return ldexp(mantissa(style, i, one), -12);
}

struct operand {
    struct fl_view view;
    int32_t e;
};

static void make(struct operand *o, const struct fl_format *f, int64_t count, enum style style, int e) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    const int16_t one = (int16_t)between(-32767, 32767);
    o->e = shared ? e : 0;
    o->view = (struct fl_view){
        .data = fl_alloc((size_t)count * (size_t)f->bytes), .e = shared ? &o->e : NULL, .count = count};
    for (int64_t i = 0; i < count; i++) {
        const double x = value(style, i, one);
        struct fl_stats stats = {0};
        if (shared)
            ((int16_t *)o->view.data)[i] = mantissa(style, i, one);
        else
            f->encode(f, &o->view, i, 1, &x, false, &(struct fl_rounding){TENSOR_ROUND_NEAREST, 0, 0, 0}, &stats);
    }
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

struct sizes {
    int64_t m, n, k;
};

struct call {
    struct fl_args args;
    struct sizes geo;
    int64_t in[3], out;
    int32_t indices[MOST];
    uint8_t marks[MOST];
};

static void rows(struct call *c, int64_t *m, int64_t *n) {
    static const int widths[] = {1,   2,   3,   7,   8,   9,   15,   17,   31,   33,   64,  65,
                                 127, 128, 129, 192, 255, 257, 1000, 1025, 2048, 2049, 3001};
    *n = between(0, 3) ? widths[between(0, (int)(sizeof widths / sizeof widths[0]) - 1)] : between(1, 4500);
    *m = between(1, *n > 500 ? 5 : *n > 20 ? 40 : 1200);
    c->geo.m = *m;
    c->geo.n = *n;
    c->in[0] = c->out = *m * *n;
}

static void permutation(struct call *c) {
    struct fl_permutation *s = &c->args.p.permutation;
    int64_t shape[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS], count = 1;
    int order[TENSOR_MAX_DIMS];
    s->ndim = (int)between(1, 5);
    for (int d = 0; d < s->ndim; d++) {
        const int64_t sizes[] = {1, 2, 3, 5, 16, 32, 33, 64, between(1, 300)};
        shape[d] = sizes[between(0, 8)];
        shape[d] = count * shape[d] > MOST ? 1 : shape[d];
        count *= shape[d];
        order[d] = d;
    }
    int64_t at = 1;
    for (int d = s->ndim - 1; d >= 0; at *= shape[d--])
        stride[d] = at;
    for (int d = s->ndim - 1; d > 0 && between(0, 3); d--) {
        const int other = (int)between(0, d), kept = order[d];
        order[d] = order[other];
        order[other] = kept;
    }
    for (int d = 0; d < s->ndim; d++) {
        s->shape[d] = shape[order[d]];
        s->stride[d] = stride[order[d]];
    }
    c->in[0] = c->out = count;
}

/* Images of pixels of n channels in groups. */
static void groups(struct call *c, enum fl_op op) {
    static const int depths[] = {1, 2, 3, 7, 8, 9, 16, 24, 31, 32, 33, 64, 100};
    struct fl_norm *g = &c->args.p.norm;
    const int64_t depth = depths[between(0, 12)];
    g->groups = (int)between(1, between(0, 1) ? 1 + 64 / depth : 4);
    g->n = depth * g->groups;
    if (between(0, 15) == 0) /* blocks of one pixel */
        g->n = (g->groups = (int)between(2, 3)) * between(1000, 1500);
    g->m = between(1, between(0, 1) ? 3 : MOST / 2 / g->n);
    g->batch = between(1, MOST / (g->m * g->n));
    c->geo = (struct sizes){g->batch * g->m, g->n, g->groups};
    c->in[0] = c->out = g->batch * g->m * g->n;
    if (op == FL_OP_GROUPNORM) {
        c->in[1] = g->n;
        c->in[2] = between(0, 2) ? g->n : 0;
        return;
    }
    c->in[1] = c->in[0];
    if (op == FL_OP_GROUPNORM_GRAD)
        c->in[2] = g->n;
    else
        c->out = g->n;
}

/* [m, n] beside an operand that is as large, a row, a column or one element. */
static void broadcast(struct call *c, enum fl_op op) {
    static const int64_t strides[][2] = {{1, 1}, {0, 1}, {1, 0}, {0, 0}};
    struct fl_axes *x = &c->args.p.axes;
    const int64_t *kind = strides[between(0, 3)];
    int64_t m, n;
    rows(c, &m, &n);
    *x = (struct fl_axes){.ndim = 2, .shape = {m, n}, .stride = {{n, 1}, {n, 1}, {n, 1}}};
    const int other = op == FL_OP_WHERE_GRAD ? 2 : 1;
    x->stride[other][0] = kind[0] * (kind[1] ? n : 1);
    x->stride[other][1] = kind[1];
    c->in[1] = op == FL_OP_WHERE_GRAD ? 0 : (kind[0] ? m : 1) * (kind[1] ? n : 1);
    x->marked = between(0, 1);
    if (op == FL_OP_WHERE || op == FL_OP_WHERE_GRAD) {
        for (int64_t i = 0; i < m * n; i++)
            c->marks[i] = (uint8_t)(between(0, 1) * between(1, 255));
        x->marks = c->marks;
    }
}

/* A reduction of one or both dimensions of [m, n]; its gradient. */
static void reduction(struct call *c, enum fl_op op, bool gradient) {
    struct fl_axes *x = &c->args.p.axes;
    int64_t m, n;
    rows(c, &m, &n);
    const int inner = (int)between(1, 3);
    const int64_t kept = (inner & 1 ? 1 : m) * (inner & 2 ? 1 : n);
    *x = (struct fl_axes){.ndim = 2, .shape = {m, n}, .inner = (unsigned)inner};
    const int64_t of_kept[2] = {inner & 1 ? 0 : inner & 2 ? 1 : n, inner & 2 ? 0 : 1};
    for (int d = 0; d < 2; d++) {
        x->stride[0][d] = gradient ? of_kept[d] : d ? 1 : n;
        x->stride[1][d] = d ? 1 : n;
        /* the number of a term within its group */
        x->stride[2][d] = !gradient || !(inner >> d & 1) ? 0 : d ? 1 : inner & 2 ? n : 1;
    }
    c->in[0] = gradient ? kept : m * n;
    c->in[1] = gradient || op == FL_OP_BROADCAST_MUL_GRAD ? m * n : 0;
    c->out = gradient ? m * n : kept;
    if (op == FL_OP_REDUCE_SUM_GRAD || op == FL_OP_REDUCE_MEAN_GRAD)
        c->in[1] = 0;
}

static void describe(struct call *c, enum fl_op op) {
    int64_t m, n;
    struct sizes *g = &c->geo;
    switch ((int)op) {
    case FL_OP_LAYERNORM:
    case FL_OP_RMSNORM:
        rows(c, &m, &n);
        c->in[1] = n;
        c->in[2] = op == FL_OP_LAYERNORM && between(0, 2) ? n : 0;
        return;
    case FL_OP_LAYERNORM_GRAD:
    case FL_OP_RMSNORM_GRAD:
        rows(c, &m, &n);
        c->in[1] = m * n;
        c->in[2] = n;
        return;
    case FL_OP_LAYERNORM_GAMMA_GRAD:
    case FL_OP_RMSNORM_GAMMA_GRAD:
        rows(c, &m, &n);
        c->in[1] = m * n;
        c->out = n;
        return;
    case FL_OP_SOFTMAX:
    case FL_OP_LOG_SOFTMAX:
    case FL_OP_SOFTMAX_GRAD:
    case FL_OP_LOG_SOFTMAX_GRAD:
        rows(c, &m, &n);
        if ((op == FL_OP_SOFTMAX || op == FL_OP_SOFTMAX_GRAD) && between(0, 1))
            g->k = between(1, n + 5);
        c->in[1] = op == FL_OP_SOFTMAX || op == FL_OP_LOG_SOFTMAX ? 0 : m * n;
        return;
    case FL_OP_EMBEDDING:
    case FL_OP_EMBEDDING_GRAD:
        rows(c, &m, &n);
        g->k = between(1, 20000 / n < 60 ? 20000 / n : 60);
        c->in[0] = op == FL_OP_EMBEDDING ? g->k * n : m * n;
        c->out = op == FL_OP_EMBEDDING ? m * n : g->k * n;
        for (int64_t i = 0; i < m; i++)
            c->indices[i] = (int32_t)between(0, g->k - 1);
        return;
    case FL_OP_PERMUTE:
        permutation(c);
        return;
    case FL_OP_GROUPNORM:
    case FL_OP_GROUPNORM_GRAD:
    case FL_OP_GROUPNORM_GAMMA_GRAD:
        groups(c, op);
        return;
    case FL_OP_LRN:
    case FL_OP_LRN_GRAD:
        rows(c, &m, &n);
        c->in[1] = op == FL_OP_LRN ? 0 : m * n;
        c->args.p.lrn = (struct fl_lrn){m, n, between(1, 9), 1e-4f, between(0, 1) ? 0.75f : 0.5f, 2};
        return;
    case FL_OP_DROPOUT:
        rows(c, &m, &n);
        c->args.p.dropout = (struct fl_dropout){.p = (float)unit(),
                                                .scale = (float)(1 + 3 * unit()),
                                                .key = check_random(&draws),
                                                .step = (double)between(0, 9)};
        return;
    case FL_OP_BROADCAST_ADD:
    case FL_OP_BROADCAST_MUL:
    case FL_OP_WHERE:
    case FL_OP_WHERE_GRAD:
        broadcast(c, op);
        return;
    case FL_OP_REDUCE_SUM:
    case FL_OP_REDUCE_MEAN:
    case FL_OP_REDUCE_MAX:
    case FL_OP_REDUCE_L1:
    case FL_OP_REDUCE_L2:
    case FL_OP_BROADCAST_MUL_GRAD:
        reduction(c, op, false);
        return;
    case FL_OP_REDUCE_SUM_GRAD:
    case FL_OP_REDUCE_MEAN_GRAD:
    case FL_OP_REDUCE_MAX_GRAD:
    case FL_OP_REDUCE_L1_GRAD:
    case FL_OP_REDUCE_L2_GRAD:
        reduction(c, op, true);
        return;
    case FL_OP_SLICE:
    case FL_OP_SLICE_GRAD: {
        const int64_t whole = between(1, 3000), part = between(1, whole);
        g->m = between(1, MOST / whole);
        g->k = between(0, whole - part);
        g->n = op == FL_OP_SLICE ? part : whole;
        c->args.p.slice = (struct fl_slice){.rows = g->m, .columns = whole, .first = g->k, .part = part};
        c->in[0] = g->m * (op == FL_OP_SLICE ? whole : part);
        c->out = g->m * g->n;
        return;
    }
    default: /* concat */
        g->m = between(1, 20);
        for (int i = 0; i < 3; i++) {
            const int64_t width = i == 2 && between(0, 1) ? 0 : between(1, 400);
            c->in[i] = g->m * width;
            g->n += width;
        }
        c->out = g->m * g->n;
        c->args.p.rows = (struct fl_row_sizes){g->m, g->n};
    }
}

/* Sets the numbers of operations that have some beside their operands. */
static void set_numbers(struct call *c, enum fl_op op, double epsilon, float scale) {
    const struct sizes *g = &c->geo;
    switch ((int)op) {
    case FL_OP_LAYERNORM:
    case FL_OP_RMSNORM:
    case FL_OP_LAYERNORM_GRAD:
    case FL_OP_RMSNORM_GRAD:
    case FL_OP_LAYERNORM_GAMMA_GRAD:
    case FL_OP_RMSNORM_GAMMA_GRAD:
        c->args.p.norm = (struct fl_norm){.m = g->m, .n = g->n, .epsilon = epsilon};
        return;
    case FL_OP_GROUPNORM:
    case FL_OP_GROUPNORM_GRAD:
    case FL_OP_GROUPNORM_GAMMA_GRAD:
        c->args.p.norm.epsilon = epsilon;
        return;
    case FL_OP_SOFTMAX:
    case FL_OP_LOG_SOFTMAX:
    case FL_OP_SOFTMAX_GRAD:
    case FL_OP_LOG_SOFTMAX_GRAD:
        c->args.p.softmax = (struct fl_softmax){.m = g->m, .n = g->n, .causal = g->k, .scale = scale};
        return;
    case FL_OP_EMBEDDING:
    case FL_OP_EMBEDDING_GRAD:
        c->args.p.table = (struct fl_table){.rows = g->k, .columns = g->n, .count = g->m, .indices = c->indices};
        return;
    default:
        return;
    }
}

static tensor_status run(struct fl_args *args, fl_kernel kernel, struct operand *out, struct fl_stats *stats,
                         bool measure) {
    *stats = (struct fl_stats){0};
    args->stats = stats;
    args->out = out->view;
    if (measure)
        args->out.data = NULL;
    return kernel(args);
}

/* All NaNs count as equal. */
static bool same(const struct fl_format *f, const struct operand *a, const struct operand *b, int64_t *at) {
    for (int64_t i = 0; i < a->view.count; i++) {
        double x, y;
        if (!memcmp((char *)a->view.data + i * f->bytes, (char *)b->view.data + i * f->bytes, (size_t)f->bytes))
            continue;
        f->decode(f, &a->view, i, 1, &x);
        f->decode(f, &b->view, i, 1, &y);
        *at = i;
        if (x == x || y == y)
            return false;
    }
    return true;
}

static bool same_stats(const struct fl_stats *a, const struct fl_stats *b) {
    return a->maximum == b->maximum && a->gamma == b->gamma && a->saturated == b->saturated &&
           a->flushed == b->flushed && a->nonfinite == b->nonfinite;
}

static int exponent_of(const struct fl_format *f, double maximum) {
    if (f->arithmetic != FL_ARITHMETIC_SHARED)
        return 0;
    const int64_t moves[] = {0, 0, 0, 1, 2, -1, -3, -9, -14, -18, 40};
    const int64_t e =
        between(0, 9) ? (maximum > 0 ? 14 - ilogb(maximum) : 7) + moves[between(0, 10)] : between(f->e_min, f->e_max);
    return (int)(e < f->e_min ? f->e_min : e > f->e_max ? f->e_max : e);
}

static void check_case(const struct fl_format *f, enum fl_op op, int number) {
    static struct call c;
    struct operand in[3] = {0}, want = {0}, got = {0};
    struct fl_stats stats, mine;
    memset(&c, 0, sizeof c);
    c.args.op = op;
    c.args.format = f;
    describe(&c, op);
    static const double epsilons[] = {1e-5, 0.5, 1e-300, 1e30};
    const double epsilon = between(0, 3) ? epsilons[between(0, 9) < 7 ? 0 : between(1, 3)]
                                         : ldexp(1 + unit() * (double)between(0, 1), (int)between(-1000, 990));
    static const float scales[] = {1, 0.125f, -0.7f, 0, 300, 1e-30f};
    set_numbers(&c, op, epsilon, scales[between(0, 5)]);
    const int rounding = (int)between(0, 7);
    c.args.rounding = (struct fl_rounding){rounding == 0 && f->draws       ? TENSOR_ROUND_STOCHASTIC
                                           : rounding == 1 && f->truncates ? TENSOR_ROUND_TRUNCATE
                                                                           : TENSOR_ROUND_NEAREST,
                                           99, 7, 0};
    const int e = (int)between(f->e_min, f->e_max);
    const bool apart = between(0, 3) == 0;
    for (int i = 0; i < 3; i++)
        if (c.in[i]) {
            const int64_t own = apart ? between(f->e_min, f->e_max) : e + between(-5, 5);
            make(&in[i], f, c.in[i], (enum style)between(0, STYLES - 1),
                 (int)(own < f->e_min   ? f->e_min
                       : own > f->e_max ? f->e_max
                                        : own));
            c.args.in[i] = in[i].view;
        }
    make(&want, f, c.out, FULL, 0);
    make(&got, f, c.out, FULL, 0);
    CHECK(!run(&c.args, fl_ref_kernel(op), &want, &stats, true), "%s.%s: reference", f->name, fl_op_name(op));
    want.e = got.e = exponent_of(f, stats.maximum);
    run(&c.args, fl_ref_kernel(op), &want, &stats, false);
    for (int backend = FL_PORTABLE; backend <= FL_AVX512BW; backend++) {
        enum fl_backend chosen;
        const fl_kernel kernel = fl_kernel_select(f, op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        int64_t at = 0;
        tensor_set_threads(1 + number % 3);
        CHECK(!run(&c.args, kernel, &got, &mine, false), "%s.%s", f->name, fl_op_name(op));
        CHECK(same(f, &want, &got, &at), "%s.%s.%s case %d [%lld,%lld] differs at %lld", f->name, fl_op_name(op),
              fl_backend_name((enum fl_backend)backend), number, (long long)c.geo.m, (long long)c.geo.n, (long long)at);
        CHECK(same_stats(&stats, &mine),
              "%s.%s.%s case %d [%lld,%lld]: maximum %a gamma %d saturated %lld flushed %lld nonfinite %lld, want %a "
              "%d %lld %lld %lld",
              f->name, fl_op_name(op), fl_backend_name((enum fl_backend)backend), number, (long long)c.geo.m,
              (long long)c.geo.n, mine.maximum, mine.gamma, (long long)mine.saturated, (long long)mine.flushed,
              (long long)mine.nonfinite, stats.maximum, stats.gamma, (long long)stats.saturated,
              (long long)stats.flushed, (long long)stats.nonfinite);
        CHECK(!run(&c.args, kernel, &got, &mine, true) && mine.maximum == stats.maximum,
              "%s.%s.%s measures %a, want %a", f->name, fl_op_name(op), fl_backend_name((enum fl_backend)backend),
              mine.maximum, stats.maximum);
    }
    for (int i = 0; i < 3; i++)
        fl_free(in[i].view.data);
    fl_free(want.view.data);
    fl_free(got.view.data);
}

/* --- the basis of estimates --------------------------------------------------------------------------------------- */

/* An estimate proves its rounding if and only if the interval around it has no tie and is not only zero. */
static void check_proofs(const struct fl_row_vectors *v) {
    for (int i = 0; i < 20000; i++) {
        const int n = (int)between(1, 19), at = (int)between(0, n - 1);
        double values[24], sizes[24];
        int16_t m[24] = {0};
        struct fl_row_rounded rounded;
        for (int c = 0; c < n; c++) {
            values[c] = (double)between(-40000, 40000) + 0.4 * (2 * unit() - 1);
            sizes[c] = fabs(values[c]);
        }
        const double tie = (double)between(-32768, 32767) + 0.5, err = ldexp(1, (int)-between(3, 30));
        const double off = err * (between(0, 1) ? 0.99 : 1.01) * (between(0, 1) ? 1 : -1);
        const bool zero = between(0, 4) == 0;
        values[at] = (zero ? 0 : tie) + off;
        sizes[at] = err * 0x1p50;
        const struct fl_row_estimates row = {values, sizes};
        const bool proved = v->round(m, n, &row, &rounded), want = fabs(off) > err;
        CHECK(proved == want, "%s at %a off %a of %a", zero ? "zero" : "tie", values[at], off, err);
        for (int c = 0; c < n && proved; c++) {
            const double nearest = nearbyint(values[c]);
            CHECK(m[c] == fmax(-32767, fmin(32767, nearest)), "%a became %d", values[c], m[c]);
        }
    }
    double tie[] = {2.5, 0, 0}, nothing[] = {0, 0, 0};
    int16_t m[3];
    struct fl_row_rounded rounded;
    CHECK(!v->round(m, 3, &(struct fl_row_estimates){tie, nothing}, &rounded), "an exact tie");
    CHECK(v->round(m, 2, &(struct fl_row_estimates){tie + 1, nothing}, &rounded) && !rounded.flushed, "exact zeros");
}

/* Powers and the defined exponential within the bounds that softmax relies on; logits down to -708. */
static void check_powers(const struct fl_row_vectors *v) {
    enum { N = 67 };
    double x[N], y[N + FL_ROW_VECTOR], worst = 0, worst_defined = 0;
    for (int i = 0; i < 3000; i++) {
        const double reach = i % 3 == 0 ? 708 : i % 3 == 1 ? 20 : 0.7;
        for (int c = 0; c < N; c++)
            x[c] = -reach * unit();
        double sum = v->powers(y, x, N);
        long double total = 0;
        for (int c = 0; c < N; c++) {
            const long double e = expl((long double)x[c]);
            worst = fmax(worst, (double)fabsl((y[c] - e) / e));
            worst_defined = fmax(worst_defined, (double)fabsl((fl_exp(x[c]) - e) / e));
            total += y[c];
        }
        CHECK(fabsl(sum - total) <= N * 0x1p-53L * total, "sum %a want %La", sum, total);
    }
    CHECK(worst < 16 * 0x1p-53 && worst_defined < 8 * 0x1p-53, "off by %g and %g, in 2^-53", worst * 0x1p53,
          worst_defined * 0x1p53);
    printf("powers are off by %.2f 2^-53 at most, the defined ones by %.2f\n", worst * 0x1p53, worst_defined * 0x1p53);
    double odd[4] = {0, -1e300, -INFINITY, NAN}, of[FL_ROW_VECTOR];
    CHECK(v->powers(of, odd, 4) != v->powers(of, odd, 4) && of[0] == 1 && of[1] < 0x1p-1020 && of[2] < 0x1p-1020 &&
              of[3] != of[3],
          "%a %a %a %a", of[0], of[1], of[2], of[3]);
}

/* Quotients are those of the division. */
static void check_divide(const struct fl_row_vectors *v) {
    double x[33], y[33];
    for (int i = 0; i < 20000; i++) {
        double by = ldexp(1 + unit(), (int)between(0, 12));
        if (i % 10 == 0)
            by = nextafter(ldexp(1, (int)between(1, 8)), i % 20 ? 0 : INFINITY);
        for (int c = 0; c < 33; c++)
            y[c] = x[c] = c % 11 == 3 ? 0 : ldexp(unit(), (int)-between(0, i % 50 ? 40 : 1100));
        v->divide(y, 33, by);
        for (int c = 0; c < 33; c++)
            CHECK(y[c] == x[c] / by, "%a / %a gave %a", x[c], by, y[c]);
    }
}

/* The quotient cut to a double, its last bit set if something was cut off, in integers. */
static double cut_quotient(int64_t x, int64_t by) {
    if (!x)
        return 0;
    const uint64_t size = (uint64_t)(x < 0 ? -x : x);
    int up = 0;
    while ((fl_uint128)size << up < ((fl_uint128)by << 53))
        up++;
    const fl_uint128 all = (fl_uint128)size << up; /* a quotient of 54 bits or more */
    fl_uint128 q = all / (fl_uint128)by;
    bool rest = all % (fl_uint128)by != 0;
    for (; q >> 53; q >>= 1, up--)
        rest = rest || q & 1;
    const double size_of = ldexp((double)(uint64_t)(q | rest), -up);
    return x < 0 ? -size_of : size_of;
}

/* Sums and products against the functions of single numbers, quotients in integers, choices; what lies behind the n
 * numbers stays. */
static void check_sums(const struct fl_row_vectors *v) {
    enum { N = 21 };
    for (int i = 0; i < 20000; i++) {
        const int n = (int)between(1, N);
        const int64_t by = between(1, between(0, 1) ? 49 : (int64_t)1 << 40);
        double a[N + 1], b[N + 1], sum[N + 1], product[N + 1], quotient[N + 1], chosen[N + 1], most[3] = {0};
        uint8_t marks[3 * N];
        const int stride = (int)between(0, 3);
        const bool marked = between(0, 1), none = between(0, 1);
        for (int c = 0; c <= N; c++) {
            a[c] = ldexp((double)between(-32767, 32767), (int)between(-60, 0));
            b[c] = ldexp((double)between(-32767, 32767), (int)between(-60, 0));
            sum[c] = product[c] = chosen[c] = a[c];
            quotient[c] = (double)(between(-((int64_t)1 << 52), (int64_t)1 << 52) >> between(0, 50));
        }
        double before[N + 1];
        memcpy(before, quotient, sizeof before);
        for (int c = 0; c < 3 * N; c++)
            marks[c] = (uint8_t)(between(0, 1) * between(1, 255));
        const double got[3] = {v->add(sum, b, n), v->multiply(product, b, n),
                               v->divide_odd(quotient, n, (double)by, 0.25)};
        v->choose(chosen, none ? NULL : b, n, marks, stride, marked);
        for (int c = 0; c < n; c++) {
            const double near = (double)before[c] / (double)by;
            most[0] = fmax(most[0], fabs(a[c] + b[c]));
            most[1] = fmax(most[1], fabs(a[c] * b[c]));
            most[2] = fmax(most[2], fabs(near));
            CHECK(sum[c] == fl_sum_odd(a[c], b[c]), "%a + %a gave %a", a[c], b[c], sum[c]);
            CHECK(product[c] == a[c] * b[c], "%a * %a gave %a", a[c], b[c], product[c]);
            CHECK(quotient[c] == 0.25 * cut_quotient((int64_t)before[c], by), "%a / %lld gave %a", before[c],
                  (long long)by, quotient[c]);
            CHECK(chosen[c] == ((marks[c * stride] != 0) == marked ? a[c] : none ? 0 : b[c]), "chose %a", chosen[c]);
        }
        for (int c = n; c <= N; c++)
            CHECK(sum[c] == a[c] && product[c] == a[c] && chosen[c] == a[c] && quotient[c] == before[c],
                  "number %d of %d changed", c, n);
        for (int k = 0; k < 3; k++)
            CHECK(got[k] == most[k], "%s: largest %a, want %a", (const char *[]){"sum", "product", "quotient"}[k],
                  got[k], most[k]);
    }
}

/* Columns against the rows of layer normalisation, where all have the same numbers, and chains one number after the
 * other. */
static void check_columns(const struct fl_row_vectors *v) {
    enum { N = 24, PIXELS = 7, ALL = N * PIXELS };
    for (int i = 0; i < 300; i++) {
        const int n = (int)between(1, N), pixels = (int)between(1, PIXELS), all = n * pixels;
        const struct fl_row_line line = {unit(), unit() - 0.5, unit(), (double)between(-900, 900),
                                         (double)between(-9, 9)};
        double x[ALL], dy[ALL], gamma[N], beta[N], same[5][N], value[ALL], size[ALL], want[N], of_want[N];
        for (int c = 0; c < all; c++) {
            x[c] = (double)between(-32767, 32767);
            dy[c] = (double)between(-32767, 32767);
        }
        for (int c = 0; c < n; c++) {
            gamma[c] = (double)between(-32767, 32767);
            beta[c] = (double)between(-32767, 32767);
            same[0][c] = line.f;
            same[1][c] = line.g;
            same[2][c] = line.h;
            same[3][c] = line.centre;
            same[4][c] = line.g_centre;
        }
        const struct fl_row_columns k = {gamma, beta, same[0], same[1], same[2], same[3], same[4], line.h};
        for (int backward = 0; backward < 2; backward++) {
            if (backward)
                v->columns_backward(pixels, n, dy, x, &k, &(struct fl_row_estimates){value, size});
            else
                v->columns_forward(pixels, n, x, &k, &(struct fl_row_estimates){value, size});
            for (int p = 0; p < pixels; p++) {
                double row[3][N] = {{0}}, scale[N] = {0}, shift[N] = {0};
                memcpy(row[0], x + p * n, (size_t)n * sizeof *x);
                memcpy(row[1], dy + p * n, (size_t)n * sizeof *dy);
                memcpy(scale, gamma, (size_t)n * sizeof *gamma);
                memcpy(shift, beta, (size_t)n * sizeof *beta);
                if (backward)
                    v->backward(n, row[1], row[0], scale, &line, &(struct fl_row_estimates){want, of_want});
                else
                    v->forward(n, row[0], scale, shift, &line, &(struct fl_row_estimates){want, of_want});
                CHECK(!memcmp(want, value + p * n, (size_t)n * sizeof *want) &&
                          !memcmp(of_want, size + p * n, (size_t)n * sizeof *want),
                      "pixel %d of %d channels differs, backward %d", p, n, backward);
            }
        }
        const int depth = (int)between(1, n), first = (int)between(0, 99), groups = n / depth, whole = groups * depth;
        double chain[N * FL_ROW_CHAINS] = {0}, sum[N * FL_ROW_CHAINS] = {0};
        v->add_chains(pixels, whole, depth, first, x, chain);
        for (int p = 0; p < (pixels); p++)
            for (int c = 0; c < whole; c++)
                sum[c / depth * FL_ROW_CHAINS + ((first + p) * depth + c % depth) % FL_ROW_CHAINS] += x[p * whole + c];
        CHECK(!memcmp(chain, sum, sizeof sum), "chains of %d groups of %d from pixel %d differ", groups, depth, first);
    }
}

static void check_vectors(const struct fl_row_vectors *v) {
    check_columns(v);
    check_sums(v);
    check_proofs(v);
    check_powers(v);
    check_divide(v);
}

static bool runs(enum fl_backend backend) {
    enum fl_backend chosen;
    fl_kernel_select(fl_format_of(FMT_FP32), FL_OP_LAYERNORM, backend, &chosen);
    return chosen == backend;
}

int main(int argc, char **argv) {
    static const enum fl_op ops[] = {FL_OP_LAYERNORM,
                                     FL_OP_RMSNORM,
                                     FL_OP_LAYERNORM_GRAD,
                                     FL_OP_RMSNORM_GRAD,
                                     FL_OP_SOFTMAX,
                                     FL_OP_LOG_SOFTMAX,
                                     FL_OP_SOFTMAX_GRAD,
                                     FL_OP_LOG_SOFTMAX_GRAD,
                                     FL_OP_EMBEDDING,
                                     FL_OP_EMBEDDING_GRAD,
                                     FL_OP_PERMUTE,
                                     FL_OP_SLICE,
                                     FL_OP_SLICE_GRAD,
                                     FL_OP_CONCAT,
                                     FL_OP_LAYERNORM_GAMMA_GRAD,
                                     FL_OP_RMSNORM_GAMMA_GRAD,
                                     FL_OP_GROUPNORM,
                                     FL_OP_GROUPNORM_GRAD,
                                     FL_OP_GROUPNORM_GAMMA_GRAD,
                                     FL_OP_LRN,
                                     FL_OP_LRN_GRAD,
                                     FL_OP_DROPOUT,
                                     FL_OP_BROADCAST_ADD,
                                     FL_OP_BROADCAST_MUL,
                                     FL_OP_WHERE,
                                     FL_OP_WHERE_GRAD,
                                     FL_OP_REDUCE_SUM,
                                     FL_OP_REDUCE_MEAN,
                                     FL_OP_REDUCE_MAX,
                                     FL_OP_REDUCE_L1,
                                     FL_OP_REDUCE_L2,
                                     FL_OP_BROADCAST_MUL_GRAD,
                                     FL_OP_REDUCE_SUM_GRAD,
                                     FL_OP_REDUCE_MEAN_GRAD,
                                     FL_OP_REDUCE_MAX_GRAD,
                                     FL_OP_REDUCE_L1_GRAD,
                                     FL_OP_REDUCE_L2_GRAD};
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20160721;
    const int cases = argc > 2 ? atoi(argv[2]) : CASES;
    draws = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int backend = FL_PORTABLE; backend <= FL_AVX512BW; backend++)
        if (runs((enum fl_backend)backend))
            check_vectors(fl_row_vectors_of((enum fl_backend)backend));
    for (int k = 0; fl_format_at(k); k++)
        for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
            for (int i = 0; i < cases; i++)
                check_case(fl_format_at(k), ops[o], i);
    return check_summary();
}
