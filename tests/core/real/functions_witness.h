/* functions_witness.h - the real functions of ops.def by MPFR, and their one rounding: knows formats by their
 * parameters, and nothing of the library's arithmetic. */
#ifndef FL_FUNCTIONS_WITNESS_H
#define FL_FUNCTIONS_WITNESS_H

#include "core/table/format.h"
#include "core/base/memory.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <mpfr.h>
#include <string.h>

/* r = f(x), or the slope f'(x) of a gradient, at r's precision. If f is closer to a simple number than r can represent,
 * r is one of its neighbours, on the side of f. */
typedef void (*witness_function)(mpfr_t r, const mpfr_t x, double alpha, double beta);

struct witness {
    const char *name;
    int operands, scalars;
    witness_function function; /* for a gradient: its slope */
    tensor_status (*one)(tensor *, const tensor *);
    tensor_status (*one_scalar)(tensor *, const tensor *, float);
    tensor_status (*one_scalars)(tensor *, const tensor *, float, float);
    tensor_status (*two)(tensor *, const tensor *, const tensor *);
    tensor_status (*two_scalar)(tensor *, const tensor *, const tensor *, float);
    tensor_status (*two_scalars)(tensor *, const tensor *, const tensor *, float, float);
};

#define R MPFR_RNDN
#define WITNESS(name) static void mp_##name(mpfr_t r, const mpfr_t x, double alpha, double beta)
#define UNUSED (void)alpha, (void)beta
#define PLAIN(name, call)                                                                                              \
    WITNESS(name) {                                                                                                    \
        UNUSED;                                                                                                        \
        call;                                                                                                          \
    }

static inline bool beyond(const mpfr_t x, unsigned limit) {
    return mpfr_cmpabs_ui(x, limit) > 0;
}
/* Whether exp(-2 |x|) is below the precision. */
static inline bool far(const mpfr_t x) {
    return beyond(x, 400);
}

PLAIN(exp, mpfr_exp(r, x, R))
PLAIN(log, mpfr_log(r, x, R))
PLAIN(log2, mpfr_log2(r, x, R))
PLAIN(log10, mpfr_log10(r, x, R))
PLAIN(log1p, mpfr_log1p(r, x, R))
PLAIN(sqrt, mpfr_sqrt(r, x, R))
PLAIN(reciprocal, mpfr_ui_div(r, 1, x, R))
PLAIN(floor, mpfr_floor(r, x))
PLAIN(ceil, mpfr_ceil(r, x))
PLAIN(round, mpfr_roundeven(r, x))
PLAIN(sin, mpfr_sin(r, x, R))
PLAIN(cos, mpfr_cos(r, x, R))
PLAIN(tan, mpfr_tan(r, x, R))
PLAIN(asin, mpfr_asin(r, x, R))
PLAIN(acos, mpfr_acos(r, x, R))
PLAIN(atan, mpfr_atan(r, x, R))
PLAIN(sinh, mpfr_sinh(r, x, R))
PLAIN(cosh, mpfr_cosh(r, x, R))
PLAIN(asinh, mpfr_asinh(r, x, R))
PLAIN(acosh, mpfr_acosh(r, x, R))
PLAIN(atanh, mpfr_atanh(r, x, R))

WITNESS(rsqrt) {
    UNUSED;
    mpfr_rec_sqrt(r, x, R);
    if (mpfr_zero_p(x))
        mpfr_set_inf(r, mpfr_signbit(x) ? -1 : 1);
}
WITNESS(expm1) {
    UNUSED;
    mpfr_expm1(r, x, R);
    if (far(x) && mpfr_sgn(x) < 0 && !mpfr_inf_p(x)) {
        mpfr_set_si(r, -1, R);
        mpfr_nextabove(r);
    }
}
WITNESS(tanh) {
    UNUSED;
    mpfr_tanh(r, x, R);
    if (far(x) && !mpfr_inf_p(x)) {
        mpfr_set_si(r, mpfr_sgn(x), R);
        if (mpfr_sgn(x) > 0)
            mpfr_nextbelow(r);
        else
            mpfr_nextabove(r);
    }
}
WITNESS(tanhshrink) {
    UNUSED;
    mpfr_t t;
    mpfr_init2(t, 2 * mpfr_get_prec(r) + 900);
    mpfr_tanh(t, x, R);
    mpfr_sub(t, x, t, R);
    mpfr_set(r, t, R);
    if (far(x) && !mpfr_inf_p(x)) { /* x -+ 1, and slightly beyond */
        mpfr_sub_si(t, x, mpfr_sgn(x), R);
        mpfr_set(r, t, R);
        if (mpfr_sgn(x) > 0)
            mpfr_nextabove(r);
        else
            mpfr_nextbelow(r);
    }
    if (mpfr_inf_p(x) || mpfr_zero_p(x))
        mpfr_set(r, x, R);
    mpfr_clear(t);
}
WITNESS(sigmoid) {
    UNUSED;
    mpfr_neg(r, x, R);
    mpfr_exp(r, r, R);
    mpfr_add_ui(r, r, 1, R);
    mpfr_ui_div(r, 1, r, R);
    if (far(x) && mpfr_sgn(x) > 0 && !mpfr_inf_p(x)) {
        mpfr_set_ui(r, 1, R);
        mpfr_nextbelow(r);
    }
}
WITNESS(softplus) {
    UNUSED;
    mpfr_exp(r, x, R);
    mpfr_log1p(r, r, R);
    if (far(x) && mpfr_sgn(x) > 0) {
        mpfr_set(r, x, R);
        if (!mpfr_inf_p(x))
            mpfr_nextabove(r);
    }
}
WITNESS(logsigmoid) {
    mpfr_t minus;
    mpfr_init2(minus, mpfr_get_prec(x));
    mpfr_neg(minus, x, R);
    mp_softplus(r, minus, alpha, beta);
    mpfr_neg(r, r, R);
    mpfr_clear(minus);
}
/* x times a share; beyond the limit the share is 1 or 0 */
static inline void gate(mpfr_t r, const mpfr_t x, unsigned limit) {
    if (mpfr_inf_p(x)) {
        if (mpfr_sgn(x) < 0)
            mpfr_set_zero(r, -1);
        else
            mpfr_set_inf(r, 1);
    } else if (beyond(x, limit) && mpfr_sgn(x) > 0) {
        mpfr_set(r, x, R);
        mpfr_nextbelow(r);
    } else if (beyond(x, limit)) {
        mpfr_set_si_2exp(r, -1, -5000, R);
    }
}
WITNESS(silu) {
    mp_sigmoid(r, x, alpha, beta);
    mpfr_mul(r, r, x, R);
    gate(r, x, 400);
}
WITNESS(softsign) {
    UNUSED;
    mpfr_t d;
    mpfr_init2(d, 1000);
    mpfr_abs(d, x, R);
    mpfr_add_ui(d, d, 1, R);
    mpfr_div(r, x, d, R);
    if (mpfr_inf_p(x))
        mpfr_set_si(r, mpfr_sgn(x), R);
    mpfr_clear(d);
}
/* Normal distribution: erfc(-x / sqrt 2) / 2 */
static inline void normal(mpfr_t r, const mpfr_t x) {
    mpfr_t t;
    mpfr_init2(t, mpfr_get_prec(r) + 60);
    mpfr_set_ui(t, 2, R);
    mpfr_sqrt(t, t, R);
    mpfr_div(t, x, t, R);
    mpfr_neg(t, t, R);
    mpfr_erfc(r, t, R);
    mpfr_div_ui(r, r, 2, R);
    mpfr_clear(t);
}
WITNESS(gelu) {
    UNUSED;
    if (!beyond(x, 30)) {
        normal(r, x);
        mpfr_mul(r, r, x, R);
    } else {
        mpfr_set_nan(r);
    }
    gate(r, x, 30);
}
/* sqrt(8 / pi) (x + 0.044715 x^3), and its slope */
static inline void gelu_argument(mpfr_t u, mpfr_t slope, const mpfr_t x) {
    mpfr_t c, cubic;
    mpfr_inits2(mpfr_get_prec(u), c, cubic, (mpfr_ptr)NULL);
    mpfr_const_pi(c, R);
    mpfr_ui_div(c, 8, c, R);
    mpfr_sqrt(c, c, R);
    mpfr_sqr(cubic, x, R);
    mpfr_mul_ui(cubic, cubic, 44715, R);
    mpfr_div_ui(cubic, cubic, 1000000, R);
    mpfr_mul_ui(slope, cubic, 3, R);
    mpfr_add_ui(slope, slope, 1, R);
    mpfr_mul(slope, slope, c, R);
    mpfr_add_ui(cubic, cubic, 1, R);
    mpfr_mul(cubic, cubic, x, R);
    mpfr_mul(u, cubic, c, R);
    mpfr_clears(c, cubic, (mpfr_ptr)NULL);
}
WITNESS(gelu_tanh) {
    mpfr_t u, slope;
    mpfr_inits2(mpfr_get_prec(r) + 60, u, slope, (mpfr_ptr)NULL);
    gelu_argument(u, slope, x);
    mp_sigmoid(r, u, alpha, beta);
    mpfr_mul(r, r, x, R);
    gate(r, x, 20);
    mpfr_clears(u, slope, (mpfr_ptr)NULL);
}
WITNESS(leaky_relu) {
    (void)beta;
    if (mpfr_sgn(x) > 0)
        mpfr_set(r, x, R);
    else
        mpfr_mul_d(r, x, alpha, R);
}
WITNESS(elu) {
    if (mpfr_sgn(x) > 0) {
        mpfr_set(r, x, R);
    } else {
        mp_expm1(r, x, alpha, beta);
        mpfr_mul_d(r, r, alpha, R);
    }
}
WITNESS(hardtanh) {
    mpfr_set(r, x, R);
    if (mpfr_cmp_d(x, alpha) < 0)
        mpfr_set_d(r, alpha, R);
    else if (mpfr_cmp_d(x, beta) > 0)
        mpfr_set_d(r, beta, R);
}

WITNESS(clamp) {
    mp_hardtanh(r, x, alpha, beta);
}

/* --- slopes ------------------------------------------------------------------------------------------------------- */

WITNESS(leaky_relu_grad) {
    (void)beta;
    mpfr_set_d(r, mpfr_sgn(x) > 0 ? 1 : alpha, R);
}
WITNESS(hardtanh_grad) {
    mpfr_set_d(r, mpfr_cmp_d(x, alpha) > 0 && mpfr_cmp_d(x, beta) < 0 ? 1 : 0, R);
}
WITNESS(clamp_grad) {
    /* a comparison with NaN gives 0 in MPFR: a NaN lies in no interval */
    mpfr_set_d(r, !mpfr_nan_p(x) && mpfr_cmp_d(x, alpha) >= 0 && mpfr_cmp_d(x, beta) <= 0 ? 1 : 0, R);
}
WITNESS(elu_grad) {
    (void)beta;
    if (mpfr_sgn(x) > 0) {
        mpfr_set_ui(r, 1, R);
    } else {
        mpfr_exp(r, x, R);
        mpfr_mul_d(r, r, alpha, R);
    }
}
/* 1 / cosh^2 at twice the precision, so that 1 - x^2 is precise for a small x */
WITNESS(tanh_grad) {
    UNUSED;
    mpfr_cosh(r, x, R);
    mpfr_sqr(r, r, R);
    mpfr_ui_div(r, 1, r, R);
}
WITNESS(sigmoid_grad) {
    mpfr_t half;
    mpfr_init2(half, mpfr_get_prec(x) + 2);
    mpfr_div_ui(half, x, 2, R);
    mp_tanh_grad(r, half, alpha, beta);
    mpfr_div_ui(r, r, 4, R);
    mpfr_clear(half);
}
WITNESS(softplus_grad) {
    mp_sigmoid(r, x, alpha, beta);
}
WITNESS(logsigmoid_grad) {
    mpfr_t minus;
    mpfr_init2(minus, mpfr_get_prec(x));
    mpfr_neg(minus, x, R);
    mp_sigmoid(r, minus, alpha, beta);
    mpfr_clear(minus);
}
/* Slopes that end at -0 and 1. */
static inline bool ends(mpfr_t r, const mpfr_t x, bool above) {
    if (!far(x))
        return false;
    if (mpfr_sgn(x) < 0) {
        if (mpfr_inf_p(x))
            mpfr_set_zero(r, -1);
        else
            mpfr_set_si_2exp(r, -1, -5000, R);
    } else {
        mpfr_set_ui(r, 1, R);
        if (!mpfr_inf_p(x) && above)
            mpfr_nextabove(r);
    }
    return true;
}
/* s(u) (1 + x s(-u) u') */
static inline void gated_slope(mpfr_t r, const mpfr_t x, const mpfr_t u, const mpfr_t slope) {
    mpfr_t t, minus;
    mpfr_inits2(mpfr_get_prec(r) + 60, t, minus, (mpfr_ptr)NULL);
    mpfr_neg(minus, u, R);
    mp_sigmoid(t, minus, 0, 0);
    mpfr_mul(t, t, x, R);
    mpfr_mul(t, t, slope, R);
    mpfr_add_ui(t, t, 1, R);
    mp_sigmoid(minus, u, 0, 0);
    mpfr_mul(r, t, minus, R);
    mpfr_clears(t, minus, (mpfr_ptr)NULL);
}
WITNESS(silu_grad) {
    UNUSED;
    if (ends(r, x, true))
        return;
    mpfr_t one;
    mpfr_init2(one, 53);
    mpfr_set_ui(one, 1, R);
    gated_slope(r, x, x, one);
    mpfr_clear(one);
}
WITNESS(gelu_tanh_grad) {
    UNUSED;
    if (ends(r, x, true))
        return;
    mpfr_t u, slope;
    mpfr_inits2(mpfr_get_prec(r) + 60, u, slope, (mpfr_ptr)NULL);
    gelu_argument(u, slope, x);
    if (mpfr_cmp_ui(x, 12) > 0) { /* 1 + a trace, beyond the precision */
        mpfr_set_ui(r, 1, R);
        mpfr_nextabove(r);
    } else {
        gated_slope(r, x, u, slope);
    }
    mpfr_clears(u, slope, (mpfr_ptr)NULL);
}
WITNESS(gelu_grad) {
    UNUSED;
    if (ends(r, x, true))
        return;
    mpfr_t density, pi;
    mpfr_inits2(mpfr_get_prec(r) + 60, density, pi, (mpfr_ptr)NULL);
    mpfr_sqr(density, x, R);
    mpfr_div_si(density, density, -2, R);
    mpfr_exp(density, density, R);
    mpfr_const_pi(pi, R);
    mpfr_mul_ui(pi, pi, 2, R);
    mpfr_rec_sqrt(pi, pi, R);
    mpfr_mul(density, density, pi, R);
    mpfr_mul(density, density, x, R);
    normal(pi, x);
    mpfr_add(r, density, pi, R);
    if (mpfr_cmp_ui(x, 25) > 0) {
        mpfr_set_ui(r, 1, R);
        mpfr_nextabove(r);
    }
    mpfr_clears(density, pi, (mpfr_ptr)NULL);
}
WITNESS(softsign_grad) {
    UNUSED;
    mpfr_t d;
    mpfr_init2(d, 2000);
    mpfr_abs(d, x, R);
    mpfr_add_ui(d, d, 1, R);
    mpfr_sqr(d, d, R);
    mpfr_ui_div(r, 1, d, R);
    mpfr_clear(d);
}
PLAIN(exp_grad, mpfr_exp(r, x, R))
PLAIN(log_grad, mpfr_ui_div(r, 1, x, R))
PLAIN(sin_grad, mpfr_cos(r, x, R))
WITNESS(sqrt_grad) {
    UNUSED;
    mpfr_sqrt(r, x, R);
    mpfr_mul_ui(r, r, 2, R);
    mpfr_ui_div(r, 1, r, R);
}
WITNESS(reciprocal_grad) {
    UNUSED;
    mpfr_sqr(r, x, R);
    mpfr_si_div(r, -1, r, R);
}
WITNESS(cos_grad) {
    UNUSED;
    mpfr_sin(r, x, R);
    mpfr_neg(r, r, R);
}

static const struct witness witnesses[] = {
#define ROW(field, op, inputs, count)                                                                                  \
    { .name = #op, .operands = inputs, .scalars = count, .function = mp_##op, .field = tensor_##op }
#define FL_REAL1(id, CONSTANT, name, expr) ROW(one, name, 1, 0),
#define FL_REAL1_SCALAR(id, CONSTANT, name, expr) ROW(one_scalar, name, 1, 1),
#define FL_REAL1_SCALARS(id, CONSTANT, name, expr) ROW(one_scalars, name, 1, 2),
#define FL_REAL2(id, CONSTANT, name, expr) ROW(two, name, 2, 0),
#define FL_REAL2_SCALAR(id, CONSTANT, name, expr) ROW(two_scalar, name, 2, 1),
#define FL_REAL2_SCALARS(id, CONSTANT, name, expr) ROW(two_scalars, name, 2, 2),
#include "flexlab/ops.def"
};

static inline const struct witness *witness_of(const char *name) {
    for (size_t i = 0; i < sizeof witnesses / sizeof witnesses[0]; i++)
        if (!strcmp(witnesses[i].name, name))
            return &witnesses[i];
    return NULL;
}

static inline tensor_status witness_call(const struct witness *w, tensor *y, const tensor *a, const tensor *b,
                                         float alpha, float beta) {
    return w->one           ? w->one(y, a)
           : w->one_scalar  ? w->one_scalar(y, a, alpha)
           : w->one_scalars ? w->one_scalars(y, a, alpha, beta)
           : w->two         ? w->two(y, a, b)
           : w->two_scalar  ? w->two_scalar(y, a, b, alpha)
                            : w->two_scalars(y, a, b, alpha, beta);
}

/* --- the value, and its rounding ---------------------------------------------------------------------------------- */

/* a or x, b as in the entries of ops.def. */
static inline void witness_value(mpfr_t r, const struct witness *w, double a, double b, double alpha, double beta) {
    mpfr_t x;
    mpfr_init2(x, 53);
    mpfr_set_d(x, w->operands == 2 ? b : a, R);
    w->function(r, x, alpha, beta);
    if (w->operands == 2) {
        if (mpfr_zero_p(r) && (mpfr_underflow_p() || mpfr_overflow_p())) /* beyond MPFR's exponents */
            mpfr_set_si_2exp(r, mpfr_signbit(r) ? -1 : 1, -4000, R);
        /* these select; a NaN of x is in their slope or is not */
        const bool between = !strcmp(w->name, "hardtanh_grad") || !strcmp(w->name, "clamp_grad"),
                   chosen = between || !strcmp(w->name, "leaky_relu_grad"), zero = between && mpfr_zero_p(r);
        if (zero)
            mpfr_set_zero(r, 1);
        else
            mpfr_mul_d(r, r, a, R);
        if (b != b && !chosen)
            mpfr_set_nan(r);
    } else if (a != a && !mpfr_nan_p(r)) {
        mpfr_set_nan(r);
    }
    mpfr_clear(x);
}

struct rounded {
    double value; /* the value to store, as a double */
    double size;  /* |r| before, for the maximum; 0 if it does not count */
    bool saturated, flushed, nonfinite;
};

struct grid {
    int digits, least, top_exponent; /* significant bits, exponent of the smallest unit, 2^top is too large */
};

static inline struct grid grid_of(tensor_format format) {
    return format == FMT_FP16   ? (struct grid){11, -24, 16}
           : format == FMT_BF16 ? (struct grid){8, -133, 128}
                                : (struct grid){24, -149, 128};
}

/* Rounds to a multiple of the unit, whose exponent is *unit. */
static inline double to_grid(const mpfr_t r, const struct fl_format *f, int e, bool truncate) {
    mpfr_t t;
    mpfr_init2(t, mpfr_get_prec(r));
    const struct grid g = grid_of(f->id);
    long unit = -e;
    if (f->arithmetic != FL_ARITHMETIC_SHARED) {
        unit = mpfr_zero_p(r) ? g.least : mpfr_get_exp(r) - g.digits;
        unit = unit < g.least ? g.least : unit > 2000 ? 2000 : unit;
    }
    mpfr_mul_2si(t, r, -unit, R);
    if (truncate)
        mpfr_trunc(t, t);
    else
        mpfr_roundeven(t, t);
    mpfr_mul_2si(t, t, unit, R);
    const double value = mpfr_get_d(t, R);
    mpfr_clear(t);
    return value;
}

static inline void witness_round(struct rounded *out, const struct witness *w, const struct fl_format *f, int e,
                                 bool truncate, double a, double b, double alpha, double beta) {
    enum { FIRST = 130, THEN = 1400 };
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    mpfr_t r, low;
    mpfr_init2(r, FIRST);
    witness_value(r, w, a, b, alpha, beta);
    memset(out, 0, sizeof *out);
    const bool finite_in = isfinite(a) && isfinite(b), pole = mpfr_inf_p(r) && (!finite_in || mpfr_divby0_p());
    if (mpfr_inf_p(r) && !pole) /* beyond MPFR's exponents */
        mpfr_set_si_2exp(r, mpfr_sgn(r), 3000, R);
    if (mpfr_zero_p(r) && (mpfr_underflow_p() || mpfr_overflow_p()))
        mpfr_set_si_2exp(r, mpfr_signbit(r) ? -1 : 1, -4000, R);
    mpfr_clear_flags();
    if (mpfr_nan_p(r) || mpfr_inf_p(r)) {
        out->nonfinite = true;
        out->value = mpfr_get_d(r, R);
        if (shared) {
            out->saturated = mpfr_inf_p(r);
            out->value = mpfr_nan_p(r) ? 0 : ldexp(mpfr_sgn(r) * 32767, -e);
        } else if (mpfr_inf_p(r)) {
            out->size = INFINITY;
        }
        mpfr_clear(r);
        return;
    }
    out->size = fabs(mpfr_get_d(r, MPFR_RNDZ));
    out->value = to_grid(r, f, e, truncate);
    /* if both agree within 2^-100, this suffices; otherwise more bits are needed */
    mpfr_init2(low, FIRST);
    mpfr_mul_d(low, r, 1 - 0x1p-45, R);
    mpfr_sub(low, r, low, R);
    mpfr_mul_2si(low, low, -52, R); /* r 2^-97 */
    mpfr_sub(low, r, low, R);
    bool clear = to_grid(low, f, e, truncate) == out->value;
    mpfr_sub(low, r, low, R);
    mpfr_add(low, r, low, R);
    clear = clear && to_grid(low, f, e, truncate) == out->value;
    mpfr_clear(low);
    if (!clear && !mpfr_zero_p(r)) {
        mpfr_set_prec(r, THEN);
        witness_value(r, w, a, b, alpha, beta);
        if (mpfr_zero_p(r))
            mpfr_set_si_2exp(r, mpfr_signbit(r) ? -1 : 1, -4000, R);
        mpfr_clear_flags();
        out->value = to_grid(r, f, e, truncate);
    }
    const double largest =
        shared ? ldexp(32767, -e) : ldexp(2 - ldexp(1, 1 - grid_of(f->id).digits), grid_of(f->id).top_exponent - 1);
    out->flushed = !mpfr_zero_p(r) && out->value == 0;
    if (out->value == 0)
        out->value = mpfr_signbit(r) ? -0.0 : 0.0;
    if (fabs(out->value) > largest) {
        out->saturated = !truncate; /* towards zero nothing becomes infinite */
        out->nonfinite = !shared && !truncate;
        out->value = copysign(shared || truncate ? largest : INFINITY, out->value);
    }
    mpfr_clear(r);
}

#undef R
#endif
