/* shared_rules.h - every function that a processor and a device share, on random numbers: a case is a hash of all their
 * results. test_ptx_rules.cu compares the two. */
#ifndef SHARED_RULES_H
#define SHARED_RULES_H

#include "autoflex/write_rules.h"
#include "core/ops/norms/channel_rules.h"
#include "core/arithmetic/exact_rules.h"
#include "core/arithmetic/fixed_sum.h"
#include "core/table/slot.h"
#include "flex/flex_convert_plan.h"
#include "flex/flex_map_plan.h"
#include "flex/flex_mean_plan.h"
#include "flex/flex_sgd_plan.h"
#include "gemm/gemm_epilogue_plan.h"
#include "minifloat/minifloat_rules.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <type_traits>

FL_EITHER double fl_autoflex_foreign(const struct autoflex *a) {
    (void)a;
    return 0;
}

/* --- random numbers in, hashes out -------------------------------------------------------------------------------- */

struct shared_case {
    uint64_t seed, hash;
};

FL_BOTH uint64_t shared_bits(struct shared_case *c) { /* splitmix64 */
    uint64_t x = c->seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

FL_BOTH int64_t shared_from(struct shared_case *c, int64_t low, int64_t high) { /* low ... high */
    return low + (int64_t)(shared_bits(c) % (uint64_t)(high - low + 1));
}

/* An integer of 0 to `most` bits and either sign. */
FL_BOTH int64_t shared_integer(struct shared_case *c, int most) {
    const int bits = (int)shared_from(c, 0, most);
    const int64_t size = bits ? (int64_t)(shared_bits(c) >> (64 - bits)) : 0;
    return shared_bits(c) & 1 ? -size : size;
}

/* One of three choices: e itself, up to 70 from it, or any number between -300 and 300. */
FL_BOTH int shared_near(struct shared_case *c, int e) {
    const uint64_t which = shared_bits(c) % 3;
    return which == 0 ? e : which == 1 ? e + (int)shared_from(c, -70, 70) : (int)shared_from(c, -300, 300);
}

FL_BOTH int shared_exponent(struct shared_case *c) {
    return (int)shared_from(c, -128, 127);
}

/* Any finite number; one of four is like a rate, one of sixteen zero. */
FL_BOTH float shared_float(struct shared_case *c) {
    const uint64_t which = shared_bits(c) % 16;
    if (which < 5)
        return which ? (float)shared_from(c, -4000, 4000) / 4096 : 0;
    uint32_t bits = (uint32_t)(shared_bits(c) >> 32);
    if ((bits >> 23 & 0xff) == 0xff)
        bits ^= (uint32_t)1 << 30;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^-most ... 2^most, or zero. */
FL_BOTH double shared_double(struct shared_case *c, int most) {
    const double digits = (double)shared_integer(c, 53);
    return fl_scale2(digits, (int)shared_from(c, -most, most) - 53);
}

FL_BOTH void shared_keep_one(struct shared_case *c, int64_t x) {
    c->hash = (c->hash ^ (uint64_t)x) * 0x100000001b3u;
    c->hash ^= c->hash >> 29;
}

FL_BOTH void shared_keep_one(struct shared_case *c, double x) {
    int64_t bits = -1; /* any NaN */
    if (x == x)
        memcpy(&bits, &x, sizeof bits);
    shared_keep_one(c, bits);
}

/* Integers, floats, terms and coefficients. Arguments are computed in any order: one of them at most may draw. */
template <class... X> FL_BOTH void shared_keep(struct shared_case *c, X... results);
template <class X> FL_BOTH void shared_keep_any(struct shared_case *c, X x) {
    if constexpr (std::is_class<X>::value)
        shared_keep(c, x.m, x.e);
    else if constexpr (std::is_floating_point<X>::value)
        shared_keep_one(c, (double)x);
    else
        shared_keep_one(c, (int64_t)x);
}
template <class... X> FL_BOTH void shared_keep(struct shared_case *c, X... results) {
    (shared_keep_any(c, results), ...);
}

/* --- the rules ---------------------------------------------------------------------------------------------------- */

FL_BOTH void shared_exact(struct shared_case *c) {
    const int64_t x = shared_integer(c, 62);
    const int shift = (int)shared_from(c, 0, 80);
    shared_keep(c, fl_bits_of(x), fl_shift_round(x, shift),
                fl_shift_stochastic(x >> 1, shift, (uint32_t)shared_bits(c)));
    shared_keep(c, fl_term_of(shared_float(c)));
    shared_keep(c, fl_coefficient_of(shared_double(c, 1000)));
}

/* Sums of up to three terms that lie near each other or far apart and may cancel, and their roundings. */
FL_BOTH void shared_terms(struct shared_case *c) {
    struct fl_term terms[3];
    const int n = (int)shared_from(c, 1, 3), e = shared_exponent(c);
    for (int i = 0; i < n; i++) {
        terms[i].m = shared_integer(c, 61);
        terms[i].e = shared_near(c, e);
        if (i && shared_bits(c) % 8 == 0) {
            terms[i].m = -terms[0].m;
            terms[i].e = terms[0].e;
        }
    }
    const struct fl_wide_sum sum = fl_terms_sum(terms, n);
    const uint32_t draw = (uint32_t)shared_bits(c);
    const int e_out = shared_near(c, e);
    int64_t saturated = 0;
    shared_keep(c, (int64_t)(sum.m >> 64), (int64_t)sum.m, sum.e, fl_terms_round(sum, e_out, 32767, NULL, &saturated));
    shared_keep(c, fl_terms_round(sum, e_out + 16, 0x7fff7fff, NULL, &saturated));
    shared_keep(c, fl_terms_round(sum, e_out, 32767, &draw, &saturated));
    shared_keep(c, saturated, fl_terms_abs(sum));
}

/* Sums of doubles of any exponents that may cancel, and their means. */
FL_BOTH void shared_fixed(struct shared_case *c) {
    double x[4];
    const int n = (int)shared_from(c, 1, 4);
    for (int i = 0; i < n; i++) {
        x[i] = shared_bits(c) % 4 ? shared_double(c, 60) : fl_scale2(shared_double(c, 1000), -60);
        if (i && shared_bits(c) % 8 == 0)
            x[i] = -x[0];
    }
    shared_keep(c, fl_fixed_sum(x, n, 1, 1, true), fl_fixed_sum(x, n, 1, (uint32_t)n, false),
                fl_fixed_sum(x, n, 1, (uint32_t)shared_from(c, 1, 1024), false));
}

/* The history of an exponent: a load, then writes with another maximum at each attempt. */
FL_BOTH void shared_autoflex(struct shared_case *c) {
    const int predictors[8] = {AUTOFLEX_PAPER,     AUTOFLEX_NGRAPH, AUTOFLEX_CURRENT,     AUTOFLEX_FIXED,
                               AUTOFLEX_PER_CLASS, AUTOFLEX_AMAX,   AUTOFLEX_AMAX_RECENT, AUTOFLEX_REPEAT};
    const int kinds[3] = {FL_WRITE_FREE, FL_WRITE_ONCE, FL_WRITE_PARTS};
    const bool flex = shared_bits(c) % 2;
    const int level = (int)shared_from(c, -160, 160);
    struct fl_slot slot;
    memset(&slot, 0, sizeof slot);
    struct autoflex *a = &slot.autoflex;
    a->predictor = (int16_t)predictors[shared_bits(c) % 8];
    a->role = (int16_t)(shared_bits(c) % 6);
    a->e_min = flex ? 0 : -128;
    a->e_max = flex ? 31 : 127;
    a->e = fl_autoflex_start(a);
    if (shared_bits(c) % 2)
        fl_autoflex_load(a, shared_bits(c) % 8 ? fl_scale2(fabs(shared_double(c, 4)), level) : 0);
    for (int write = 0; write < 20; write++) {
        struct fl_stats stats, part;
        memset(&stats, 0, sizeof stats);
        memset(&part, 0, sizeof part);
        part.maximum = shared_bits(c) % 8 ? fl_scale2(fabs(shared_double(c, 4)), level) : 0;
        if (shared_bits(c) % 64 == 0)
            part.maximum = HUGE_VAL;
        part.saturated = shared_from(c, 0, 9);
        struct fl_write_state w;
        int attempts = 0;
        fl_write_begin(&w, a, true, kinds[shared_bits(c) % 3]);
        for (; w.next != FL_WRITE_DONE; attempts++) {
            shared_keep(c, 4 * a->e + w.next);
            fl_write_attempted(&w, a, fl_scale2(part.maximum, attempts % 2));
        }
        part.gamma = fl_gamma_at(a, part.maximum, a->e);
        fl_stats_merge(&stats, &part);
        fl_write_end(&w, a, stats.gamma, stats.maximum);
        fl_slot_written(&slot, &stats, 100);
        shared_keep(c, slot.e, a->predicted);
    }
    for (int i = 0; i < AUTOFLEX_WINDOW; i++)
        shared_keep(c, a->history[i]);
    shared_keep(c, a->count * 100 + a->next * 10 + a->initialised,
                (int64_t)(a->overflows + 1000 * a->clamped_low + 1000000 * a->clamped_high),
                (int64_t)a->zero_writes + 1000 * slot.total.saturated + 1000000 * (int64_t)slot.total.gamma,
                slot.total.maximum);
}

FL_BOTH void shared_keep_channel(struct shared_case *c, const struct fl_affine_channel *channel, int e0, int e1) {
    struct fl_integer_channel k;
    const bool finite = fl_integer_channel_of(channel, e0, e1, &k);
    shared_keep(c, finite);
    if (!finite)
        return;
    shared_keep(c, k.first, k.cross, k.offset, k.first_centre, k.cross_centre);
}

FL_BOTH void shared_channel(struct shared_case *c) {
    const int64_t rows = shared_from(c, 1, 1 << 20), part = shared_from(c, -rows, rows),
                  sum = part * shared_from(c, 0, 32767);
    const int e0 = shared_exponent(c), e1 = shared_near(c, e0);
    const int64_t more = shared_from(c, 0, 1 << 30),
                  squares = sum / rows * (sum / rows) * rows + more * shared_from(c, 0, rows);
    const double epsilon = shared_bits(c) % 2 ? 1e-5 : fabs(shared_double(c, 100)) + 0x1p-120;
    const float gamma = shared_float(c), beta = shared_float(c);
    double mean, variance, dot;
    fl_exact_moments(rows, sum, squares, e0, &mean, &variance);
    shared_keep(c, mean, variance);
    const struct fl_affine_channel forward = fl_normalising(gamma, beta, mean, variance, epsilon, shared_bits(c) % 2);
    shared_keep_channel(c, &forward, e0, e1);
    const int64_t of_dy = shared_from(c, -rows, rows), dy = of_dy * shared_from(c, 0, 32767),
                  dy_x = dy * shared_from(c, -32767, 32767);
    const double about_mean = fl_exact_about_mean(rows, dy, dy_x, mean, e1, e0),
                 about_another = fl_exact_about_mean(rows, dy, dy_x, shared_double(c, 60), e1, e0);
    shared_keep(c, about_mean, about_another);
    const struct fl_affine_channel backward =
        fl_normalising_gradient(gamma, mean, variance, epsilon, shared_double(c, 60), about_mean, rows, &dot);
    shared_keep(c, dot);
    shared_keep_channel(c, &backward, e0, e1);
    const double first = shared_double(c, 60);
    fl_float_moments(rows, first, fabs(shared_double(c, 60)), &mean, &variance);
    shared_keep(c, mean, variance);
}

FL_BOTH void shared_keep_forms(struct shared_case *c, const struct affine_channel *p, int e) {
    struct affine_whole whole;
    struct affine_lane t;
    struct affine_digits d;
    const bool is_whole = affine_as_whole(p, &whole), is_lane = affine_as_lane(p, e, &t),
               is_digits = affine_as_digits(p, e, 2, &d);
    shared_keep(c, is_whole * 4 + is_lane * 2 + is_digits, affine_size(p), affine_measuring_exponent(affine_size(p)));
    if (is_whole) {
        shared_keep(c, whole.first, whole.cross, whole.constant, whole.exponent);
    }
    if (is_lane) {
        const int64_t all[11] = {t.first,     t.cross, t.first_is_coarse, t.coarse_up, t.fine_constant,
                                 t.fine_down, t.up,    t.constant,        t.sticky,    t.exponent};
        for (int i = 0; i < 11; i++)
            shared_keep(c, all[i]);
    }
    if (is_digits) {
        shared_keep(c, d.levels * 100 + d.shift * 2 + d.sticky);
        for (int i = 0; i < d.levels; i++) {
            shared_keep(c, d.first[i], d.cross[i], d.constant[i]);
        }
    }
}

FL_BOTH struct fl_coefficient shared_coefficient(struct shared_case *c, int e) {
    struct fl_coefficient k;
    k.m = (int32_t)shared_integer(c, 31);
    k.e = shared_near(c, e);
    return k;
}

FL_BOTH void shared_affine(struct shared_case *c) {
    const int e = shared_exponent(c);
    struct affine_channel p;
    p.first = shared_coefficient(c, e + 20);
    p.cross = shared_coefficient(c, p.first.e);
    p.offset = shared_coefficient(c, e + 15);
    p.first_centre = (int32_t)shared_integer(c, 15);
    p.cross_centre = (int32_t)shared_integer(c, 15);
    shared_keep_forms(c, &p, e);
}

FL_BOTH void shared_linear(struct shared_case *c) {
    const enum fl_op ops[11] = {FL_OP_ADD,       FL_OP_SUB,       FL_OP_ADD_RELU, FL_OP_ADD_SCALED,
                                FL_OP_SCALE,     FL_OP_RELU,      FL_OP_NEG,      FL_OP_ADD_RELU_GRAD,
                                FL_OP_RELU_GRAD, FL_OP_BIAS_RELU, FL_OP_BIAS};
    const int e0 = shared_exponent(c), e1 = shared_near(c, e0);
    const enum fl_op op = ops[shared_bits(c) % 11];
    const struct flex_linear l = flex_linear_of(op, e0, e1, shared_float(c));
    shared_keep(c, l.a, l.b, l.gate, l.two + 2 * l.relu + 4 * l.narrow + 8 * l.short_factors + 16 * l.far_apart,
                l.exponent, l.ma, l.mb);
    const struct affine_channel channel = flex_linear_channel(&l);
    shared_keep_forms(c, &channel, shared_near(c, e0));
    shared_keep(c, flex_plain_exponent(FL_OP_MUL, e0, e1), flex_plain_exponent(FL_OP_SQUARE, e0, e1),
                flex_plain_exponent(FL_OP_ABS, e0, e1));
}

FL_BOTH void shared_sgd(struct shared_case *c) {
    struct flex_sgd_given g;
    const int e = shared_exponent(c);
    g.terms = 2 + (int)(shared_bits(c) % 2);
    for (int j = 0; j < FLEX_SGD_TERMS; j++)
        g.factor[j] = shared_bits(c) % 3 ? shared_float(c) : 1;
    g.e_out = shared_near(c, e);
    g.wide_out = shared_bits(c) % 2;
    g.measures = shared_bits(c) % 4 == 0;
    g.stochastic = shared_bits(c) % 2;
    for (int j = 0; j < FLEX_SGD_TERMS; j++) {
        g.e[j] = shared_near(c, e);
        g.wide[j] = shared_bits(c) % 2;
    }
    const struct flex_sgd p = flex_sgd_of(&g);
    for (int j = 0; j < FLEX_SGD_TERMS; j++) {
        shared_keep(c, p.factor[j], p.aligned[j], p.up[j]);
    }
    shared_keep(c, p.terms + 8 * p.far_apart + 16 * p.is_short, p.exponent, p.cut, p.shift);
}

FL_BOTH void shared_epilogue(struct shared_case *c) {
    const int of_sum = (int)shared_from(c, -256, 254);
    const bool bias = shared_bits(c) % 2, residual = shared_bits(c) % 2;
    const int of_bias = shared_near(c, of_sum);
    const struct gemm_alignment by = gemm_align(of_sum, bias, of_bias, residual, shared_near(c, of_sum));
    shared_keep(c, by.exponent, by.up_sum, by.up_bias, by.up_residual, gemm_largest_sum(&by),
                gemm_limbs_have_room(&by) * 2 + gemm_limbs_round(by.exponent - shared_near(c, by.exponent)),
                gemm_addend_of(bias, by.up_bias) * 4 + gemm_addend_of(residual, by.up_residual));
}

FL_BOTH void shared_mean(struct shared_case *c) {
    const int64_t positions = (shared_integer(c, 20) & 0xfffff) + 1;
    const struct flex_mean_plan p = flex_mean_plan_of(positions, shared_exponent(c));
    const int64_t whole = shared_from(c, -32767, 32767), sum = whole * p.divisor + shared_from(c, 0, p.divisor);
    const struct flex_mean x = flex_mean_of(sum, p.divisor, shared_near(c, 0));
    shared_keep(c, p.divisor, p.exponent, x.quotient, (int64_t)(x.rest >> 32), (int64_t)x.rest,
                (int64_t)(x.denominator >> 32), flex_mean_nearest(&x), flex_mean_threshold(&x));
}

FL_BOTH void shared_convert(struct shared_case *c) {
    float units[2], unit;
    shared_keep(c, flex_load_unit(shared_exponent(c), &unit));
    flex_store_units((int)shared_from(c, -112, 127), units);
    shared_keep(c, unit, units[0], units[1]);
}

/* e4m3fn and e5m2sat as fl_minifloat_of describes them, under an exponent too, and numbers around their range. */
FL_BOTH void shared_minifloat(struct shared_case *c) {
    const struct fl_minifloat formats[] = {
        {20,   120u << 23, 0,    0x3c800000, 0x46800000, 0x1p-9f, 0x43e80001, 0x3a800000, 0x43e00000, 0x7e,
         0x7f, 0,          0x7f, 0x80,       24,         false,   false,      4,          0x1p-6,     448},
        {21,   112u << 23, 0,    0x38800000, 0x43000000, 0x1p-16f, 0x47700000, 0x37000000, 0x47600000, 0x7b,
         0x7b, 0x7c,       0x7e, 0x80,       24,         true,     false,      3,          0x1p-14,    57344}};
    const struct fl_minifloat *f = &formats[shared_from(c, 0, 1)];
    const struct fl_minifloat under = fl_minifloat_under(f, (int)shared_from(c, -100, 100));
    struct fl_stats stats = {0, 0, 0, 0, 0, 0};
    const float x = shared_float(c), code = fl_minifloat_decode(f, (uint32_t)shared_bits(c) & 0xff);
    shared_keep(c, (double)code, fl_minifloat_encode(f, x), fl_minifloat_encode(f, code));
    shared_keep(c, under.rebias, under.least, under.magic, under.unit, under.overflow, under.flush,
                fl_minifloat_encode(&under, x));
    fl_minifloat_count(f, x, fl_float_magnitude(x) >= f->overflow, &stats);
    shared_keep(c, stats.maximum, stats.saturated * 2 + stats.nonfinite);
}

#define SHARED_RULES(RULE)                                                                                             \
    RULE(exact)                                                                                                        \
    RULE(autoflex)                                                                                                     \
    RULE(channel)                                                                                                      \
    RULE(affine) RULE(linear) RULE(sgd) RULE(epilogue) RULE(mean) RULE(terms) RULE(fixed) RULE(minifloat) RULE(convert)

/* The hash of the results of rule `rule` for the numbers of this seed. */
FL_BOTH uint64_t shared_hash(int rule, uint64_t seed) {
    struct shared_case c;
    int number = 0;
    c.seed = seed * 0x2545f4914f6cdd1du + (uint64_t)rule;
    c.hash = 0xcbf29ce484222325u;
#define RUN(name)                                                                                                      \
    if (rule == number++)                                                                                              \
        shared_##name(&c);
    SHARED_RULES(RUN)
    return c.hash;
}

#define NAME(name) #name,
static const char *const shared_names[] = {SHARED_RULES(NAME)};

#endif
