/* flex_map_plan.h - how an elementwise map that is linear in its operands is computed in integers, from the operation,
 * the exponents of the operands and the factor alone. C and CUDA, on plain numbers: no tensor, no vector, no libm.
 *
 * The map is a's mantissa times one factor plus b's times another, if the gate (if any) is open; the sum is rounded
 * once, with a shift of its exponent minus that of the output. */
#ifndef FL_FLEX_MAP_PLAN_H
#define FL_FLEX_MAP_PLAN_H

#include "core/table/op.h"
#include "flex/flex_affine_plan.h"

struct flex_linear {
    struct fl_term a, b; /* factors of the mantissas of operands 0 and 1; exponents of the products */
    int gate;            /* the operand that must be above zero for the sum to count; 0: none */
    bool two, relu;      /* two: there is a b; relu: sums below zero count as zero */
    /* ma a + mb b at one exponent, below 2^62; if the exponents are too far apart for that, only the terms are valid
     * (fl_sum_terms). */
    int64_t ma, mb;
    int exponent;
    bool far_apart;
    bool narrow;        /* sums are at most 2^30 + 2^16 */
    bool short_factors; /* ma and mb fit 32 bits */
};

FL_BOTH void flex_align_linear(struct flex_linear *l) {
    if (l->b.m == 0)
        l->b.e = l->a.e;
    if (l->a.m == 0)
        l->a.e = l->b.e;
    l->exponent = l->a.e > l->b.e ? l->a.e : l->b.e;
    l->ma = l->mb = 0;
    l->narrow = l->short_factors = false;
    const int up_a = l->exponent - l->a.e, up_b = l->exponent - l->b.e;
    l->far_apart = up_a > 46 || up_b > 46;
    if (l->far_apart)
        return;
    const fl_int128 ma = l->a.m * ((fl_int128)1 << up_a), mb = l->b.m * ((fl_int128)1 << up_b);
    const fl_int128 size = (ma < 0 ? -ma : ma) + (mb < 0 ? -mb : mb);
    l->far_apart = size > ((fl_int128)1 << 46) + 2; /* times 2^15: below 2^62 */
    l->narrow = size <= (1 << 15) + 2;
    l->short_factors = size <= INT32_MAX;
    l->ma = (int64_t)ma;
    l->mb = (int64_t)mb;
}

/* The terms of add, sub, add_relu, add_scaled, scale, relu, relu_grad, add_relu_grad, neg, bias, bias_relu of operands
 * with the exponents e0 and e1 (any e1 for a single operand). alpha: the factor of *_scaled and scale, finite. */
FL_BOTH struct flex_linear flex_linear_terms(enum fl_op op, int e0, int e1, float alpha) {
    const struct fl_term one = {1, 0}, none = {0, 0};
    struct flex_linear l;
    l.a = one;
    l.b = none;
    l.gate = 0;
    l.relu = false;
    switch ((int)op) {
    case FL_OP_ADD_RELU:
    case FL_OP_BIAS_RELU:
        l.relu = true;
        l.b = one;
        break;
    case FL_OP_ADD:
    case FL_OP_BIAS:
        l.b = one;
        break;
    case FL_OP_SUB:
        l.b.m = -1;
        break;
    case FL_OP_ADD_SCALED:
        l.b = fl_term_of(alpha);
        break;
    case FL_OP_SCALE:
        l.a = fl_term_of(alpha);
        break;
    case FL_OP_RELU:
        l.relu = true;
        break;
    case FL_OP_RELU_GRAD:
        l.gate = 1;
        break;
    case FL_OP_ADD_RELU_GRAD:
        l.b = one;
        l.gate = 2;
        break;
    default: /* neg */
        l.a.m = -1;
        break;
    }
    l.two = l.b.m != 0;
    l.a.e += e0;
    l.b.e += e1;
    return l;
}

/* The same aligned. */
FL_BOTH struct flex_linear flex_linear_of(enum fl_op op, int e0, int e1, float alpha) {
    struct flex_linear l = flex_linear_terms(op, e0, e1, alpha);
    flex_align_linear(&l);
    return l;
}

/* The same as the affine map of a channel without offset. */
FL_BOTH struct affine_channel flex_linear_channel(const struct flex_linear *l) {
    const struct fl_coefficient a = {(int32_t)l->a.m, l->a.e}, b = {l->two ? (int32_t)l->b.m : 0, l->b.e},
                                none = {0, 0};
    struct affine_channel c;
    c.first = a;
    c.cross = b;
    c.offset = none;
    c.first_centre = c.cross_centre = 0;
    return c;
}

/* The exponent of the integers that mul, square and abs round: |integer| <= 2^30. */
FL_BOTH int flex_plain_exponent(enum fl_op op, int e0, int e1) {
    return op == FL_OP_MUL ? e0 + e1 : op == FL_OP_SQUARE ? 2 * e0 : e0;
}

#endif
