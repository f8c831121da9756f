/* flex_sgd_plan.h - how momentum and update of stochastic gradient descent, and combinations of up to three tensors,
 * are computed in integers, from exponents and factors alone. C and CUDA, on plain numbers: no vector, no libm.
 *
 * v' = alpha v + g + beta w, w' = w - alpha v, y = a p + b q + c w: exact sums of up to three mantissas, each times a
 * factor, rounded once.
 *
 * Aligned sums may need more than 64 bits, of which the rounding only needs those near its place. Short sums are the
 * sums without their last `cut` bits, rounded to odd (the last bit shows whether a bit cut off was set), which round as
 * the sum itself: to nearest, and stochastically if every bit of a draw is above that last one. */
#ifndef FL_FLEX_SGD_PLAN_H
#define FL_FLEX_SGD_PLAN_H

#include "core/arithmetic/exact_rules.h"
#include "core/table/kernel.h"
#include <stdbool.h>

enum { FLEX_SGD_TERMS = 3 };

/* Known before the update. Operands in the order of the kernels: momentum v, g, w, update w, v, combine p, q, w. */
struct flex_sgd_given {
    int terms;
    float factor[FLEX_SGD_TERMS];
    int e[FLEX_SGD_TERMS];     /* shared exponents */
    bool wide[FLEX_SGD_TERMS]; /* the operand counts as its wide part: mantissas of 32 bits at e + 16 */
    int e_out;
    bool wide_out;   /* the wide part is rounded, to nearest */
    bool measures;   /* nothing is stored */
    bool stochastic; /* stochastic rounding, not of a wide part */
};

struct flex_sgd {
    int terms;
    struct fl_term factor[FLEX_SGD_TERMS]; /* exponent: of the product */
    bool far_apart;                        /* aligned factors do not fit: fl_sum_terms gives whole sums */
    int64_t aligned[FLEX_SGD_TERMS];       /* factors at `exponent`, below 2^62 */
    int up[FLEX_SGD_TERMS];                /* aligned = factor * 2^up */
    int exponent;                          /* of aligned sums */
    bool is_short; /* short sums can be used: they are below 2^62, and so are the bits cut off */
    int cut;
    int shift; /* short sums are rounded at this place, those of a wide part 16 places lower */
};

FL_BOTH void flex_sgd_align(struct flex_sgd *p) {
    bool any = false;
    p->exponent = 0;
    p->far_apart = false;
    for (int j = 0; j < p->terms; j++)
        if (p->factor[j].m && (!any || p->factor[j].e > p->exponent)) {
            p->exponent = p->factor[j].e;
            any = true;
        }
    for (int j = 0; j < FLEX_SGD_TERMS; j++) {
        p->up[j] = 0;
        p->aligned[j] = 0;
        if (j >= p->terms || !p->factor[j].m)
            continue;
        p->up[j] = p->exponent - p->factor[j].e;
        p->far_apart = p->far_apart || fl_bits_of(p->factor[j].m) + p->up[j] > 62;
        if (!p->far_apart)
            p->aligned[j] = p->factor[j].m * ((int64_t)1 << p->up[j]);
    }
}

/* Short sums can be used if they are below 2^62, the bits cut off fit 64 bits, and a rounding place is above these. */
FL_BOTH void flex_sgd_shorten(struct flex_sgd *p, const struct flex_sgd_given *g) {
    int bits = 0;
    for (int j = 0; j < p->terms; j++) {
        const int term = fl_bits_of(p->factor[j].m) + p->up[j] + (g->wide[j] ? 31 : 15);
        bits = term > bits ? term : bits;
    }
    const int spare = 2; /* bits for the sum of three terms */
    p->cut = bits + spare > 62 ? bits + spare - 62 : 0;
    p->shift = p->exponent - p->cut - g->e_out;
    const bool wide = g->wide_out;
    const int shift = p->shift - (wide ? 16 : 0);
    const bool fits = !wide && g->stochastic ? !p->cut || shift > 32 : shift < 63 && (shift >= 2 || (!wide && !p->cut));
    p->is_short = p->cut <= 60 && (g->measures || fits);
}

FL_BOTH struct flex_sgd flex_sgd_of(const struct flex_sgd_given *g) {
    const struct fl_term none = {0, 0};
    struct flex_sgd p;
    p.terms = g->terms;
    for (int j = 0; j < FLEX_SGD_TERMS; j++) {
        p.factor[j] = j < p.terms ? fl_term_of(g->factor[j]) : none;
        if (j < p.terms)
            p.factor[j].e += g->e[j] + (g->wide[j] ? 16 : 0);
    }
    flex_sgd_align(&p);
    flex_sgd_shorten(&p, g);
    return p;
}

/* The plan of sgd_update with its rate, sgd_momentum with its momentum, or combine. */
FL_BOTH struct flex_sgd flex_sgd_of_task(const struct fl_args *args, float factor, bool stochastic) {
    struct flex_sgd_given given;
    given.terms = args->in[2].data ? 3 : 2;
    given.e_out = fl_exponent(&args->out);
    given.wide_out = args->out.wide != NULL;
    given.measures = args->out.data == NULL;
    given.stochastic = stochastic;
    for (int j = 0; j < FLEX_SGD_TERMS; j++) {
        const bool there = j < given.terms;
        given.factor[j] = there && args->op == FL_OP_COMBINE ? (float)args->p.factored.factors[j] : 1;
        given.e[j] = there ? fl_exponent(&args->in[j]) : 0;
        given.wide[j] = there && args->in[j].wide;
    }
    if (args->op == FL_OP_SGD_UPDATE) {
        given.factor[1] = -factor;
    } else if (args->op == FL_OP_SGD_MOMENTUM) {
        given.factor[0] = factor;
        given.factor[2] = args->p.sgd.weight_decay;
    }
    return flex_sgd_of(&given);
}

/* The sum of element i. */
FL_BOTH struct fl_wide_sum flex_sgd_sum(const struct fl_args *args, const struct flex_sgd *p, int64_t i) {
    struct fl_term terms[FLEX_SGD_TERMS];
    struct fl_wide_sum sum = {0, p->exponent};
    for (int j = 0; j < p->terms; j++) {
        const struct fl_view *in = &args->in[j];
        const int64_t m = in->wide ? ((const int32_t *)in->wide)[i] : ((const int16_t *)in->data)[i];
        sum.m += (fl_int128)p->aligned[j] * m;
        terms[j].m = p->factor[j].m * m;
        terms[j].e = p->factor[j].e;
    }
    return p->far_apart ? fl_terms_sum(terms, p->terms) : sum;
}

#endif
