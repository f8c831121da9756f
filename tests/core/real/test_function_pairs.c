/* The promises of real_rules.h about its arithmetic, against MPFR: pairs of doubles err by less than 2^-95 of a
 * function, doubles by less than 2^-40 or report that by NaN, fl_odd_ is the function rounded to odd at 53 bits and
 * fl_near_ at 32. Arguments of 24 bits over the whole range, and near the points at which functions are near one, zero
 * or a pole. Gradients that are quotients are rounded to odd likewise, so that those without a remainder are exact. */
#include "check.h"
#ifndef FL_HAVE_MPFR
int main(void) {
    return check_skip("no MPFR was found when this was configured (libmpfr-dev)");
}
#else
#include "core/real/real_rules.h"
#include "functions_witness.h"

enum { TURNS = 600, BITS = 1500 };
static uint64_t seed = 20260723;

static const struct row {
    const char *name;
    struct fl_pair (*pair)(struct fl_pair x);
    double (*quick)(double x);
    double (*odd)(double x), (*near)(double x); /* NULL for slopes */
    witness_function witness;
    double least, most; /* the domain, without its ends */
    double zero;        /* the zero of a slope, near which its error is absolute; NaN: none */
} rows[] = {
#define FUNCTION(name, least, most)                                                                                    \
    { #name, fl_pair_##name, fl_quick_##name, fl_odd_##name, fl_near_##name, mp_##name, least, most, NAN }
#define SLOPE_AT(name, gradient, zero)                                                                                 \
    { #name, fl_pair_##name, fl_quick_##name, NULL, NULL, mp_##gradient, -HUGE_VAL, HUGE_VAL, zero }
    FUNCTION(sigmoid, -590, HUGE_VAL),
    FUNCTION(logsigmoid, -HUGE_VAL, 590),
    FUNCTION(silu, -590, HUGE_VAL),
    FUNCTION(softsign, -HUGE_VAL, HUGE_VAL),
    FUNCTION(tanh, -HUGE_VAL, HUGE_VAL),
    FUNCTION(tanhshrink, -HUGE_VAL, HUGE_VAL),
    FUNCTION(softplus, -590, HUGE_VAL),
    FUNCTION(gelu, -34, HUGE_VAL),
    FUNCTION(gelu_tanh, -17, HUGE_VAL),
    FUNCTION(exp, -600, 600),
    FUNCTION(expm1, -HUGE_VAL, 600),
    FUNCTION(log, 0, HUGE_VAL),
    FUNCTION(log2, 0, HUGE_VAL),
    FUNCTION(log10, 0, HUGE_VAL),
    FUNCTION(log1p, -1, HUGE_VAL),
    FUNCTION(sqrt, 0, HUGE_VAL),
    FUNCTION(rsqrt, 0, HUGE_VAL),
    FUNCTION(reciprocal, -HUGE_VAL, HUGE_VAL),
    FUNCTION(sin, -HUGE_VAL, HUGE_VAL),
    FUNCTION(cos, -HUGE_VAL, HUGE_VAL),
    FUNCTION(tan, -HUGE_VAL, HUGE_VAL),
    FUNCTION(asin, -1, 1),
    FUNCTION(acos, -1, 1),
    FUNCTION(atan, -HUGE_VAL, HUGE_VAL),
    FUNCTION(sinh, -600, 600),
    FUNCTION(cosh, -600, 600),
    FUNCTION(asinh, -HUGE_VAL, HUGE_VAL),
    FUNCTION(acosh, 1, HUGE_VAL),
    FUNCTION(atanh, -1, 1),
    SLOPE_AT(tanh_slope, tanh_grad, NAN),
    SLOPE_AT(sigmoid_slope, sigmoid_grad, NAN),
    SLOPE_AT(cos_slope, cos_grad, NAN),
    SLOPE_AT(silu_slope, silu_grad, -1.278464542761074),
    SLOPE_AT(gelu_slope, gelu_grad, -0.7517916243860497),
    SLOPE_AT(gelu_tanh_slope, gelu_tanh_grad, -0.7524614220710163),
};

/* Draws an argument of 24 bits. */
static double argument(const struct row *row) {
    static const double places[] = {
        1, -1, 0.35, 0.34, 0.3, 0.2, 0.17, 1.4, 8.74, 12.36, 1.5707963267948966, 3.141592653589793, 0.785};
    const uint64_t draw = check_random(&seed);
    const float share = (float)((double)(draw >> 11) * 0x1p-52 - 1);
    const int e = (int)(check_random(&seed) % 273) - 128; /* 2^-128 to 2^143, the limit of dfp16 */
    const double place = places[draw % (sizeof places / sizeof places[0])];
    switch (check_random(&seed) % 6) {
    case 0:
        return ldexp((double)share, e);
    case 1:
        return (double)(float)(place + (double)share * ldexp(1, -(int)(draw % 22)));
    case 2:
        return (double)(float)(row->zero == row->zero ? row->zero + (double)share * ldexp(1, -(int)(draw % 23))
                                                      : (double)share * 30);
    case 3:
        return (double)(float)((double)share * 600);
    default:
        return (double)(float)((double)share * 8);
    }
}

/* Whether x is r rounded to odd at this number of bits. */
static bool is_odd(double x, const mpfr_t r, int bits) {
    mpfr_t cut;
    mpfr_init2(cut, bits);
    const int inexact = mpfr_set(cut, r, MPFR_RNDZ);
    if (inexact) { /* towards zero; odd if its last bit is set, otherwise the next one away from zero */
        const double down = mpfr_get_d(cut, MPFR_RNDN);
        int e;
        const double m = ldexp(frexp(down, &e), bits);
        if (fmod(fabs(m), 2) != 1) {
            if (mpfr_sgn(r) > 0)
                mpfr_nextabove(cut);
            else
                mpfr_nextbelow(cut);
        }
    }
    const bool same = mpfr_cmp_d(cut, x) == 0;
    mpfr_clear(cut);
    return same;
}

static double worst_pair, worst_quick;

static void check(const struct row *row, double x) {
    mpfr_t r, error, mx, half;
    mpfr_inits2(BITS, r, error, half, (mpfr_ptr)NULL);
    mpfr_init2(mx, 53);
    mpfr_set_d(mx, x, MPFR_RNDN);
    row->witness(r, mx, 0, 0);
    const double size = fabs(mpfr_get_d(r, MPFR_RNDN));
    if (mpfr_number_p(r) && size < 0x1p860 && size > 0x1p-800) {
        const struct fl_pair p = row->pair(fl_pair_of(x));
        mpfr_sub_d(error, r, p.h, MPFR_RNDN);
        mpfr_sub_d(error, error, p.l, MPFR_RNDN);
        const double scale = row->zero == row->zero && fabs(x - row->zero) < 0.25 ? 0.5 : size;
        const double relative = fabs(mpfr_get_d(error, MPFR_RNDN)) / scale;
        CHECK(relative < 0x1p-95, "%s(%a): pairs err by %a", row->name, x, relative);
        CHECK(p.h == p.h + p.l, "%s(%a): a pair that is not rounded", row->name, x);
        worst_pair = relative > worst_pair ? relative : worst_pair;
        const double quick = row->quick(x);
        mpfr_sub_d(error, r, quick, MPFR_RNDN);
        const double rough = fabs(mpfr_get_d(error, MPFR_RNDN)) / size;
        CHECK(quick != quick || rough < 0x1p-40, "%s(%a): doubles err by %a", row->name, x, rough);
        if (quick == quick)
            worst_quick = rough > worst_quick ? rough : worst_quick;
        if (row->odd) {
            CHECK(is_odd(row->odd(x), r, 53), "%s(%a): %a is not it rounded to odd", row->name, x, row->odd(x));
            CHECK(is_odd(row->near(x), r, 32), "%s(%a): %a is not it rounded to odd at 32 bits", row->name, x,
                  row->near(x));
        }
    }
    mpfr_clears(r, error, half, mx, (mpfr_ptr)NULL);
}

/* --- gradients that are quotients --------------------------------------------------------------------------------- */

static void divide_softsign(mpfr_t r, const mpfr_t dy, const mpfr_t x) {
    mpfr_abs(r, x, MPFR_RNDN);
    mpfr_add_ui(r, r, 1, MPFR_RNDN);
    mpfr_sqr(r, r, MPFR_RNDN);
    mpfr_div(r, dy, r, MPFR_RNDN);
}
static void divide_log(mpfr_t r, const mpfr_t dy, const mpfr_t x) {
    mpfr_div(r, dy, x, MPFR_RNDN);
}
static void divide_sqrt(mpfr_t r, const mpfr_t dy, const mpfr_t x) {
    mpfr_sqrt(r, x, MPFR_RNDN);
    mpfr_mul_ui(r, r, 2, MPFR_RNDN);
    mpfr_div(r, dy, r, MPFR_RNDN);
}
static void divide_reciprocal(mpfr_t r, const mpfr_t dy, const mpfr_t x) {
    mpfr_sqr(r, x, MPFR_RNDN);
    mpfr_div(r, dy, r, MPFR_RNDN);
    mpfr_neg(r, r, MPFR_RNDN);
}

static const struct quotient {
    const char *name;
    double (*odd)(double dy, double x), (*near)(double dy, double x);
    void (*divide)(mpfr_t r, const mpfr_t dy, const mpfr_t x);
    int power; /* the power of x that divides dy */
} quotients[] = {
    {"softsign_grad", fl_odd_softsign_grad, fl_near_softsign_grad, divide_softsign, 2},
    {"log_grad", fl_odd_log_grad, fl_near_log_grad, divide_log, 1},
    {"sqrt_grad", fl_odd_sqrt_grad, fl_near_sqrt_grad, divide_sqrt, 1},
    {"reciprocal_grad", fl_odd_reciprocal_grad, fl_near_reciprocal_grad, divide_reciprocal, 2},
};

/* The x whose divisor is o 2^place, or the square of that. */
static double divisor(const struct quotient *q, double o, int place) {
    if (q->divide == divide_softsign)
        return ldexp(o, place & 7) - 1;
    return q->divide == divide_sqrt ? ldexp(o * o, 2 * place) : ldexp(o, place);
}

/* Draws any numbers of 24 bits, or dy as a multiple of the divisor. */
static void draw_quotient(const struct quotient *q, double *dy, double *x) {
    const int places = (int)(check_random(&seed) % 200) - 100;
    if (check_random(&seed) % 2) {
        *dy = ldexp((float)((double)(check_random(&seed) >> 11) * 0x1p-52 - 1), places);
        *x = ldexp((float)((double)(check_random(&seed) >> 11) * 0x1p-53), (int)(check_random(&seed) % 272) - 128);
    } else {
        const uint64_t o = 2 * (check_random(&seed) >> (53 + check_random(&seed) % 10)) + 1,
                       multiple = q->power == 2 ? o * o : o;
        *dy = ldexp((double)(multiple * (1 + check_random(&seed) % (0xffffff / multiple))), places);
        *x = divisor(q, (double)o, (int)(check_random(&seed) % 60) - 30);
    }
    if (check_random(&seed) % 2)
        *dy = -*dy;
    if (q->divide != divide_sqrt && q->divide != divide_log && check_random(&seed) % 2)
        *x = -*x;
}

static void check_quotients(const struct quotient *q) {
    int exact = 0;
    mpfr_t r, mdy, mx;
    mpfr_init2(r, BITS);
    mpfr_inits2(53, mdy, mx, (mpfr_ptr)NULL);
    for (int turn = 0; turn < 20 * TURNS; turn++) {
        double dy, x;
        draw_quotient(q, &dy, &x);
        if (x == 0 || dy == 0)
            continue;
        mpfr_set_d(mdy, dy, MPFR_RNDN);
        mpfr_set_d(mx, x, MPFR_RNDN);
        q->divide(r, mdy, mx);
        exact += mpfr_min_prec(r) <= 24;
        CHECK(is_odd(q->odd(dy, x), r, 53), "%s(%a, %a): %a is not it rounded to odd", q->name, dy, x, q->odd(dy, x));
        CHECK(is_odd(q->near(dy, x), r, 32), "%s(%a, %a): %a is not it rounded to odd at 32 bits", q->name, dy, x,
              q->near(dy, x));
    }
    mpfr_clears(r, mdy, mx, (mpfr_ptr)NULL);
    CHECK(exact > 5 * TURNS, "%s: only %d exact quotients", q->name, exact);
}

int main(void) {
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int turn = 0; turn < TURNS; turn++) {
            const double x = argument(&rows[i]);
            if (x > rows[i].least && x < rows[i].most && x != 0)
                check(&rows[i], x);
        }
    }
    for (size_t i = 0; i < sizeof quotients / sizeof quotients[0]; i++)
        check_quotients(&quotients[i]);
    CHECK(fl_odd_softsign_grad(169, 12) == 1, "169 / 13^2: %a", fl_odd_softsign_grad(169, 12));
    printf("largest relative errors: pairs %a, doubles %a\n", worst_pair, worst_quick);
    mpfr_free_cache();
    return check_summary();
}
#endif
