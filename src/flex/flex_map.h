/* flex_map.h - elementwise operations and bias. Linear ones (sums of one or two operands times a constant each, gated
 * or cut at zero) are affine maps of one channel if those are faster, otherwise exact sums in 32, 64 or more bits;
 * products, squares and magnitudes are integers of 31 bits.
 *
 * Gives: linear_map, plain_map. */
#ifndef FL_FLEX_MAP_H
#define FL_FLEX_MAP_H

#include "flex/flex_affine.h"
#include "flex/flex_map_plan.h"
#include "flex/flex_parts.h"
#include "flex/flex_store.h"

struct linear {
    struct flex_linear plan;
    const int16_t *gate;     /* the sum counts only if it is above zero; NULL: always */
    const int16_t *repeated; /* bias: b for one period */
    int64_t period;
};

static struct linear linear_of(const struct fl_args *args) {
    struct linear l = {
        .plan = flex_linear_of(args->op, fl_exponent(&args->in[0]), fl_exponent(&args->in[1]), args->p.map.alpha),
        .period = INT64_MAX};
    if (l.plan.gate)
        l.gate = args->in[l.plan.gate].data;
    return l;
}

#define LINEAR_SUMS(name, type)                                                                                        \
    static void name(type *t, int64_t n, const int16_t *a, const int16_t *b, const struct flex_linear *l) {            \
        const type ma = (type)l->ma, mb = (type)l->mb;                                                                 \
        const type least = l->relu ? 0 : -((type)1 << (sizeof(type) * 8 - 2)) * 2;                                     \
        if (!l->two)                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                type sum = ma * a[i];                                                                                  \
                t[i] = sum > least ? sum : least;                                                                      \
            }                                                                                                          \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                type sum = ma * a[i] + mb * b[i];                                                                      \
                t[i] = sum > least ? sum : least;                                                                      \
            }                                                                                                          \
    }
LINEAR_SUMS(linear_sums_32, int32_t)
LINEAR_SUMS(linear_sums_64, int64_t)

/* linear_sums_64 for short factors. */
static void linear_products(int64_t *t, int64_t n, const int16_t *a, const int16_t *b, const struct flex_linear *l) {
    const lanes ma = lanes_all(l->ma), mb = lanes_all(l->mb), least = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes sum = lanes_product(ma, lanes_mantissas(a + i));
        if (l->two)
            sum += lanes_product(mb, lanes_mantissas(b + i));
        if (l->relu)
            sum = lanes_largest(sum, least);
        memcpy(t + i, &sum, sizeof sum);
    }
    linear_sums_64(t + i, n - i, a + i, l->two ? b + i : NULL, l);
}

#define CLOSED_SUMS(name, type)                                                                                        \
    static void name(type *t, int64_t n, const int16_t *gate) {                                                        \
        for (int64_t i = 0; i < n; i++)                                                                                \
            t[i] &= -(type)(gate[i] > 0);                                                                              \
    }
CLOSED_SUMS(closed_sums_32, int32_t)
CLOSED_SUMS(closed_sums_64, int64_t)

static void far_apart_sums(const struct fl_args *args, const struct linear *l, int64_t first, int64_t n,
                           const int16_t *a, const int16_t *b, struct fl_stats *stats) {
    for (int64_t i = 0; i < n; i++) {
        const struct fl_term terms[2] = {{l->plan.a.m * a[i], l->plan.a.e}, {l->plan.b.m * b[i], l->plan.b.e}};
        struct fl_wide_sum sum = fl_sum_terms(terms, 2);
        if ((l->plan.relu && sum.m < 0) || (l->gate && l->gate[first + i] <= 0))
            sum.m = 0;
        const double size = fl_wide_abs(sum);
        stats->maximum = size > stats->maximum ? size : stats->maximum;
        if (args->out.data)
            store_sum(args, first + i, sum, stats);
    }
}

static void linear_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                       struct fl_stats *stats) {
    const struct linear *l = plan;
    const int shift = l->plan.exponent - fl_exponent(&args->out);
    struct flex_stats sums = {0};
    union {
        int32_t narrow[FLEX_BLOCK];
        int64_t wide[FLEX_BLOCK];
    } t;
    for (int64_t n; first < end; first += n) {
        n = block_size(first, end, l->period);
        const int16_t *a = element(&args->in[0], first);
        const int16_t *b = l->repeated ? l->repeated + first % l->period : element(&args->in[1], first);
        if (l->plan.far_apart) {
            far_apart_sums(args, l, first, n, a, b, stats);
        } else if (l->plan.narrow) {
            linear_sums_32(t.narrow, n, a, b, &l->plan);
            if (l->gate)
                closed_sums_32(t.narrow, n, l->gate + first);
            store_block32(element(&args->out, first), first, n, t.narrow, shift, &args->rounding, &sums);
        } else {
            (l->plan.short_factors ? linear_products : linear_sums_64)(t.wide, n, a, b, &l->plan);
            if (l->gate)
                closed_sums_64(t.wide, n, l->gate + first);
            store_block(element(&args->out, first), first, n, t.wide, shift, &args->rounding, &sums);
        }
    }
    flex_stats_finish(&sums, l->plan.exponent, stats);
}

#ifdef FLEX_PAIRS

/* Plans the map as an affine map of one channel without offset, in 32-bit lanes, or straight in 64-bit ones for
 * stochastic rounding. False if it does not fit those, would overwrite operands that it may have to read again, or
 * lacks memory for its plan, which is no failure. */
static bool linear_as_affine(struct affine *p, const struct fl_args *args, const struct linear *l) {
    for (int i = 0; i < 3; i++)
        if (args->in[i].data && args->in[i].data == args->out.data)
            return false;
    const int gated = !l->gate ? 0 : l->plan.two ? AFFINE_CLOSED : AFFINE_GATED;
    const struct affine_channel channel = flex_linear_channel(&l->plan);
    struct affine_digits digits;
    const int e = args->out.data ? fl_exponent(&args->out) : affine_measuring_exponent(affine_size(&channel));
    const bool stochastic = args->rounding.mode == TENSOR_ROUND_STOCHASTIC;
    if ((stochastic ? l->plan.narrow || !args->out.data : !affine_as_digits_of(&channel, e, 2, &digits)) ||
        !new_affine(p, args, 1, gated | (l->plan.two ? AFFINE_SECOND : 0) | (l->plan.relu ? AFFINE_RELU : 0)))
        return false;
    p->x = l->plan.two ? args->in[1].data : NULL;
    p->gate = l->gate;
    p->entries[0].exact = channel;
    finish_affine(p, args);
    return stochastic ? p->straight : p->groups[0].levels == 2;
}

#endif

/* The workspace: a row of the bias, repeated. */
static size_t bias_need(const struct fl_args *args) {
    return (size_t)period_of(args->p.rows.n) * sizeof(int16_t);
}

/* add, sub, add_relu, add_scaled, scale, relu, relu_grad, add_relu_grad, neg */
static size_t linear_need(const struct fl_args *args) {
    (void)args;
#ifdef FLEX_PAIRS
    return affine_bytes(1);
#else
    return 0;
#endif
}

/* These operations and bias, bias_relu. */
static tensor_status linear_map(const struct fl_args *args) {
    struct linear l = linear_of(args);
#ifdef FLEX_PAIRS
    struct affine affine;
    if (args->op != FL_OP_BIAS && args->op != FL_OP_BIAS_RELU && linear_as_affine(&affine, args, &l)) {
        run_parts(args, &affine, affine_run, args->out.count, affine.period);
        return TENSOR_OK;
    }
#endif
    if (args->op == FL_OP_BIAS || args->op == FL_OP_BIAS_RELU) {
        const int64_t channels = args->p.rows.n;
        l.period = period_of(channels);
        int16_t *b = fl_workspace(args, bias_need(args));
        if (!b)
            return TENSOR_E_MEMORY;
        for (int64_t i = 0; i < l.period; i += channels)
            memcpy(b + i, args->in[1].data, (size_t)channels * sizeof *b);
        l.repeated = b;
    }
    run_parts(args, &l, linear_run, args->out.count, l.repeated ? l.period : FLEX_BLOCK);
    return TENSOR_OK;
}

/* --- one exponent, sums of 31 bits ------------------------------------------------------------------------------- */

static void product_sums(int32_t *t, int64_t n, const int16_t *a, const int16_t *b) {
    for (int64_t i = 0; i < n; i++)
        t[i] = (int32_t)a[i] * b[i];
}

static void magnitudes(int32_t *t, int64_t n, const int16_t *a) {
    for (int64_t i = 0; i < n; i++)
        t[i] = a[i] < 0 ? -(int32_t)a[i] : a[i];
}

static void plain_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                      struct fl_stats *stats) {
    const int exponent = *(const int *)plan;
    struct flex_stats sums = {0};
    int32_t t[FLEX_BLOCK];
    for (int64_t n; first < end; first += n) {
        n = minimum(end - first, FLEX_BLOCK);
        const int16_t *a = element(&args->in[0], first), *b = element(&args->in[1], first);
        switch ((int)args->op) {
        case FL_OP_MUL:
            product_sums(t, n, a, b);
            break;
        case FL_OP_SQUARE:
            product_sums(t, n, a, a);
            break;
        default:
            magnitudes(t, n, a);
            break;
        }
        store_block32(element(&args->out, first), first, n, t, exponent - fl_exponent(&args->out), &args->rounding,
                      &sums);
    }
    flex_stats_finish(&sums, exponent, stats);
}

/* mul, square, abs */
static tensor_status plain_map(const struct fl_args *args) {
    const int exponent = flex_plain_exponent(args->op, fl_exponent(&args->in[0]), fl_exponent(&args->in[1]));
    run_parts(args, &exponent, plain_run, args->out.count, FLEX_BLOCK);
    return TENSOR_OK;
}

#endif
