/* The claims of real_lanes.inc about its errors, against MPFR: for every function and slope, in every kernel set, the
 * real number lies within e of v, or has the same rounding to odd at 32 bits; arguments of 24 bits over the whole
 * range, and near the points at which functions are near one, one half, zero or another algorithm. And the proof of
 * Mills' ratio from its coefficients. */
#include "check.h"
#ifndef FL_HAVE_MPFR
int main(void) {
    return check_skip("no MPFR was found when this was configured (libmpfr-dev)");
}
#else
#include "core/real/real_map.h"
#include "core/real/real_pair.h"
#include "core/real/real_tables.h"
#include "functions_witness.h"

enum { BITS = 1500, ROUNDS = 1, MANY_ROUNDS = 200 };
static uint64_t seed = 20260811;

/* --- Mills' ratio ------------------------------------------------------------------------------------------------- */

enum { DEGREE = FL_REAL_MILLS + 2 }; /* the degree of the residual, and one more whose coefficient must be 0 */
struct polynomial {
    mpfr_t c[DEGREE + 1];
};

static void begin(struct polynomial *p) {
    for (int i = 0; i <= DEGREE; i++) {
        mpfr_init2(p->c[i], BITS);
        mpfr_set_zero(p->c[i], 1);
    }
}

static void end(struct polynomial *p) {
    for (int i = 0; i <= DEGREE; i++)
        mpfr_clear(p->c[i]);
}

/* Multiplies p by (a + b u), a and b as quotients of integers: all of them are exact, or nearly so at 1500 bits. */
static void times(struct polynomial *p, int a, int a_by, int b, int b_by) {
    mpfr_t t;
    mpfr_init2(t, BITS);
    for (int i = DEGREE; i >= 0; i--) {
        mpfr_mul_si(p->c[i], p->c[i], a, MPFR_RNDN);
        mpfr_div_si(p->c[i], p->c[i], a_by, MPFR_RNDN);
        if (i) {
            mpfr_mul_si(t, p->c[i - 1], b, MPFR_RNDN);
            mpfr_div_si(t, t, b_by, MPFR_RNDN);
            mpfr_add(p->c[i], p->c[i], t, MPFR_RNDN);
        }
    }
    mpfr_clear(t);
}

/* The sum of the sizes of the coefficients of p in Chebyshev polynomials: x^k is 2^(1 - k) times the sum of C(k, i) T(k
 * - 2 i), i up to k / 2, with half of the last term if that is T(0). */
static double chebyshev_sum(const struct polynomial *p) {
    struct polynomial q;
    mpfr_t t;
    mpfr_init2(t, BITS);
    begin(&q);
    for (int k = 0; k <= DEGREE; k++) {
        mpfr_mul_2si(t, p->c[k], k ? 1 - k : 0, MPFR_RNDN);
        for (int i = 0; 2 * i <= k; i++) {
            mpfr_t term;
            mpfr_init2(term, BITS);
            mpfr_set(term, t, MPFR_RNDN);
            if (k && 2 * i == k)
                mpfr_div_ui(term, term, 2, MPFR_RNDN);
            mpfr_add(q.c[k - 2 * i], q.c[k - 2 * i], term, MPFR_RNDN);
            mpfr_clear(term);
            mpfr_mul_si(t, t, k - i, MPFR_RNDN);
            mpfr_div_si(t, t, i + 1, MPFR_RNDN);
        }
    }
    double sum = 0;
    for (int k = 0; k <= DEGREE; k++)
        sum += fabs(mpfr_get_d(q.c[k], MPFR_RNDA));
    end(&q);
    mpfr_clear(t);
    return sum;
}

/* With w = 1 / (a + 5) = (3 - 2 u) / 25 and du / da = 25 / 2 w^2: Q = P w, a Q = (1 - 5 w) P, Q' = 25 / 2 P' w^3 - P
 * w^2 */
static void check_mills(void) {
    const double *const coefficients = fl_real_mills();
    struct polynomial slope, square, product;
    begin(&slope);
    begin(&square);
    begin(&product);
    for (int i = 0; i < FL_REAL_MILLS; i++) {
        mpfr_set_d(square.c[i], coefficients[i], MPFR_RNDN);
        mpfr_set_d(product.c[i], coefficients[i], MPFR_RNDN);
        if (i) {
            mpfr_set_d(slope.c[i - 1], coefficients[i], MPFR_RNDN);
            mpfr_mul_d(slope.c[i - 1], slope.c[i - 1], i * 12.5, MPFR_RNDN);
        }
    }
    for (int i = 0; i < 3; i++)
        times(&slope, 3, 25, -2, 25);
    for (int i = 0; i < 2; i++)
        times(&square, 3, 25, -2, 25);
    times(&product, 2, 5, 2, 5);
    for (int i = 0; i <= DEGREE; i++) {
        mpfr_sub(slope.c[i], slope.c[i], square.c[i], MPFR_RNDN);
        mpfr_sub(slope.c[i], slope.c[i], product.c[i], MPFR_RNDN);
    }
    mpfr_add_ui(slope.c[0], slope.c[0], 1, MPFR_RNDN);
    const double sum = chebyshev_sum(&slope);
    printf("Mills' ratio: residual 2^%.2f\n", log2(sum));
    CHECK(sum < 0x1.be8p-50, "the residual of Mills' ratio is %a, expected less than 2^-49.2", sum); /* 2^-49.2 */
    /* at 20, where u is 1: sqrt(pi / 2) e^200 erfc(20 / sqrt 2) */
    mpfr_t at, ratio;
    mpfr_inits2(BITS, at, ratio, (mpfr_ptr)NULL);
    mpfr_set_zero(at, 1);
    for (int i = 0; i < FL_REAL_MILLS; i++)
        mpfr_add_d(at, at, coefficients[i], MPFR_RNDN);
    mpfr_div_ui(at, at, 25, MPFR_RNDN);
    mpfr_set_ui(ratio, 200, MPFR_RNDN);
    mpfr_sqrt(ratio, ratio, MPFR_RNDN);
    mpfr_erfc(ratio, ratio, MPFR_RNDN);
    mpfr_t factor;
    mpfr_init2(factor, BITS);
    mpfr_set_ui(factor, 200, MPFR_RNDN);
    mpfr_exp(factor, factor, MPFR_RNDN);
    mpfr_mul(ratio, ratio, factor, MPFR_RNDN);
    mpfr_const_pi(factor, MPFR_RNDN);
    mpfr_div_ui(factor, factor, 2, MPFR_RNDN);
    mpfr_sqrt(factor, factor, MPFR_RNDN);
    mpfr_mul(ratio, ratio, factor, MPFR_RNDN);
    mpfr_div(at, at, ratio, MPFR_RNDN);
    mpfr_sub_ui(at, at, 1, MPFR_RNDN);
    CHECK(fabs(mpfr_get_d(at, MPFR_RNDN)) < 0x1p-56, "Mills' ratio at 20 is off by %a", mpfr_get_d(at, MPFR_RNDN));
    mpfr_clears(at, ratio, factor, (mpfr_ptr)NULL);
    end(&slope);
    end(&square);
    end(&product);
}

/* --- bounds ------------------------------------------------------------------------------------------------------- */

static const float alpha = -0.8125f, beta = 2.5f;

static float argument(void) {
    static const double places[] = {0,
                                    1,
                                    -1,
                                    -0.7517916243860497,
                                    -0.7524614220710163,
                                    -1.278464542761074,
                                    20,
                                    -20,
                                    -13.5,
                                    0.35,
                                    -0.35,
                                    0.1733,
                                    17.5,
                                    37.5,
                                    -37.5,
                                    600,
                                    -600,
                                    -104,
                                    88.7,
                                    5,
                                    -0.8125,
                                    2.5};
    const uint64_t draw = check_random(&seed);
    const double share = (double)(draw >> 11) * 0x1p-52 - 1;
    switch (check_random(&seed) % 6) {
    case 0:
        return (float)ldexp(share, (int)(check_random(&seed) % 270) - 140);
    case 1:
    case 2:
        return (float)(places[draw % (sizeof places / sizeof places[0])] + share * ldexp(1, -(int)(draw % 23)));
    case 3:
        return (float)(share * 700);
    default:
        return (float)(share * 8);
    }
}

static double worst;

/* r rounded to odd at 53 bits: towards zero, with the last bit set if bits were cut off. */
static double odd_of(const mpfr_t r) {
    mpfr_t cut;
    mpfr_init2(cut, 53);
    const int inexact = mpfr_set(cut, r, MPFR_RNDZ);
    const double x = mpfr_get_d(cut, MPFR_RNDZ);
    mpfr_clear(cut);
    return fl_pair_odd(fl_pair_new(x, inexact ? x * 0x1p-60 : 0));
}

static void check_one(const struct witness *w, const char *row, double x, double v, double e, const mpfr_t r) {
    mpfr_t error;
    if (v - v != 0 || mpfr_nan_p(r) || mpfr_inf_p(r)) {
        CHECK(v - v != 0 || e != 0 || mpfr_number_p(r), "%s.%s(%a): %a, which is no number", w->name, row, x, v);
        return;
    }
    mpfr_init2(error, BITS);
    mpfr_sub_d(error, r, v, MPFR_RNDN);
    mpfr_abs(error, error, MPFR_RNDN);
    const double off = mpfr_get_d(error, MPFR_RNDA);
    const bool within = mpfr_cmp_d(error, e) <= 0, aside = fl_coarse(odd_of(r)) == fl_coarse(v);
    mpfr_clear(error);
    const double size = fabs(v); /* beyond +-600, e^x has the value at 600 */
    CHECK(within || (e != 0 && aside) || size < 0x1p-500 || size > 0x1p500, "%s.%s(%a): %a, off by %a, more than %a",
          w->name, row, x, v, off, e);
    if (within && e > 0 && e < size * 0x1p-40 && off / e > worst)
        worst = off / e;
}

static void check_bounds(enum fl_op op, const struct witness *w, const struct fl_real_lanes *const *lanes,
                         const char *const *rows) {
    static struct fl_real_block blocks[3];
    mpfr_t r, x;
    mpfr_init2(r, BITS);
    mpfr_init2(x, 53);
    for (int i = 0; i < FL_REAL_BLOCK; i++) {
        const float value = i < 2 ? (i ? -0.0f : 0.0f) : argument();
        for (int k = 0; k < 3; k++)
            blocks[k].b[i] = value;
    }
    for (int k = 0; k < 3; k++)
        if (lanes[k])
            lanes[k]->evaluate(op, (double)alpha, (double)beta, FL_REAL_BLOCK, &blocks[k]);
    for (int i = 0; i < FL_REAL_BLOCK; i++) {
        mpfr_set_flt(x, blocks[0].b[i], MPFR_RNDN);
        w->function(r, x, (double)alpha, (double)beta);
        for (int k = 0; k < 3; k++)
            if (lanes[k])
                check_one(w, rows[k], (double)blocks[0].b[i], blocks[k].v[i], blocks[k].e[i], r);
    }
    mpfr_clears(r, x, (mpfr_ptr)NULL);
}

int main(int argc, char **argv) {
    const enum fl_backend backends[3] = {FL_PORTABLE, FL_AVX2, FL_AVX512BW};
    const struct fl_real_lanes *lanes[3];
    const char *rows[3];
    const int rounds = argc > 1 ? MANY_ROUNDS : ROUNDS;
    (void)argv;
    for (int i = 0; i < 3; i++) {
        const bool runs = fl_kernel_in(fl_format_of(FMT_FP32), FL_OP_GELU, backends[i]) != NULL;
        lanes[i] = runs ? fl_real_lanes_of(backends[i]) : NULL;
        rows[i] = fl_backend_name(backends[i]);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    check_mills();
    int found = 0;
    for (size_t i = 0; i < sizeof witnesses / sizeof witnesses[0]; i++) {
        struct fl_real_block none;
        const enum fl_op op = fl_op_named(witnesses[i].name);
        if (!fl_real_lanes_portable.evaluate(op, 0, 0, 0, &none))
            continue;
        found++;
        for (int round = 0; round < rounds; round++)
            check_bounds(op, &witnesses[i], lanes, rows);
    }
    printf("%d functions and slopes; at most %.2f of the bound\n", found, worst);
    CHECK(found == 31, "%d functions", found);
    return check_summary();
}
#endif
