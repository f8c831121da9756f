/* LSTM and GRU: every result against formulas in long double with the C library's functions, one rounding each;
 * sequences with one exponent, its history and statistics over all steps; gradients against differences; a device
 * against the processor; what is refused.
 *
 *     test_recurrent [DEVICE]        the toy device; or DEVICE (cuda) */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/tensor.h"
#include "same_state.h"
#include "toy_device.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>

enum { STEPS = 5, BATCH = 3, UNITS = 7, MOST = STEPS * BATCH * 4 * UNITS, WRITES = 5 };
typedef long double real;

static uint64_t draws = 3;

static double unit(void) {
    return (double)((int64_t)check_random(&draws) >> 11) * 0x1p-52;
}

static real logistic(real x) {
    return 1 / (1 + expl(-x));
}
static real slope(real x) { /* of it */
    return logistic(x) * logistic(-x);
}
static real tanh_slope(real x) {
    return 1 / (coshl(x) * coshl(x));
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static tensor_format format;
static bool shared;

static tensor *new_tensor(int ndim, const int64_t *shape, const char *predictor) {
    tensor *t = tensor_new(format, ndim, shape);
    CHECK(t && (!shared || !predictor || !tensor_set_predictor(t, predictor)), "%s", tensor_error());
    return t;
}
static tensor *over_time(int64_t steps, int gates, const char *predictor) {
    return new_tensor(TENSOR_SHAPE(steps, BATCH, gates * UNITS), predictor);
}
static tensor *one_step(int gates, const char *predictor) {
    return new_tensor(TENSOR_SHAPE(BATCH, gates * UNITS), predictor);
}

static void load_random(tensor *t, double scale) {
    static double v[MOST];
    for (int64_t i = 0; i < tensor_count(t); i++)
        v[i] = scale * (unit() + unit());
    CHECK(!tensor_load_f64(t, v, tensor_count(t)), "%s", tensor_error());
}

/* The elements as numbers, in newly allocated memory. */
static const double *values_of(const tensor *t) {
    static double pool[64][MOST];
    static int next;
    double *v = pool[next++ % 64];
    CHECK(!tensor_store_f64(t, v, tensor_count(t)), "%s", tensor_error());
    return v;
}

/* --- one rounding ------------------------------------------------------------------------------------------------- */

struct seen { /* of what is written */
    real maximum;
    int gamma;
    int64_t saturated, flushed;
};

/* x at exponent e, rounded to nearest even and saturated. */
static real rounded_at(int e, real x, struct seen *seen) {
    real m = rintl(ldexpl(x, e));
    seen->flushed += m == 0 && x != 0;
    seen->saturated += fabsl(m) > 32767;
    m = m > 32767 ? 32767 : m < -32767 ? -32767 : m;
    seen->maximum = fabsl(x) > seen->maximum ? fabsl(x) : seen->maximum;
    seen->gamma = fabsl(m) > seen->gamma ? (int)fabsl(m) : seen->gamma;
    return ldexpl(m, -e);
}

/* Checks that got is `exact`, which is known to within `error`, rounded once: in float formats by way of binary32. */
static void check_rounded(const char *what, const tensor *t, int64_t i, double got, real exact, real error,
                          struct seen *seen) {
    if (shared) {
        const real want = rounded_at(tensor_exponent(t), exact, seen);
        CHECK(got == (double)want, "%s %s[%lld]: %.9g, expected %.9Lg of %.15Lg", tensor_format_name(format), what,
              (long long)i, got, want, exact);
        return;
    }
    const int digits = format == FMT_FP32 ? 24 : format == FMT_FP16 ? 11 : 8, least = format == FMT_FP16 ? -14 : -126;
    const int e = exact == 0 ? least : ilogbl(exact);
    const real place = ldexpl(1, (e < least ? least : e) - digits + 1);
    CHECK(fabsl(got - exact) <= 0.5005L * place + error, "%s %s[%lld]: %.9g, expected %.15Lg",
          tensor_format_name(format), what, (long long)i, got, exact);
}

/* --- one step ----------------------------------------------------------------------------------------------------- */

/* Element (row, gate, unit) of an array with this number of gates. */
static real at(const double *v, int gates, int64_t row, int gate, int64_t j) {
    return v[(row * gates + gate) * UNITS + j];
}

static void lstm_step(double scale) {
    tensor *gates = one_step(4, NULL), *after = one_step(4, NULL), *c = one_step(1, NULL), *before = one_step(1, NULL),
           *h = one_step(1, NULL), *dh = one_step(1, NULL), *dc = one_step(1, NULL), *dc_after = one_step(1, NULL),
           *dgates = one_step(4, NULL);
    tensor *const inputs[] = {gates, after, before, dh, dc_after};
    for (int i = 0; i < 5; i++)
        load_random(inputs[i], scale);
    for (int again = 0; again < 3; again++)
        CHECK(!tensor_lstm_cell(c, gates, before) && !tensor_lstm_hidden(h, gates, c) &&
                  !tensor_lstm_cell_grad(dc, dh, gates, c, dc_after, after) &&
                  !tensor_lstm_gates_grad(dgates, dh, dc, gates, c, before),
              "%s", tensor_error());
    const double *vg = values_of(gates), *va = values_of(after), *vb = values_of(before), *vc = values_of(c),
                 *vh = values_of(h), *vdh = values_of(dh), *vda = values_of(dc_after), *vdc = values_of(dc),
                 *vd = values_of(dgates);
    struct seen seen = {0};
    for (int64_t r = 0; r < BATCH; r++)
        for (int64_t j = 0; j < UNITS; j++) {
            const int64_t k = r * UNITS + j;
            const real i = at(vg, 4, r, 0, j), f = at(vg, 4, r, 1, j), g = at(vg, 4, r, 2, j), o = at(vg, 4, r, 3, j),
                       dcell = vdc[k], big = scale * (1 + scale) * (1 + scale) * 0x1p-48L;
            check_rounded("c", c, k, vc[k], logistic(f) * vb[k] + logistic(i) * tanhl(g), big, &seen);
            check_rounded("h", h, k, vh[k], logistic(o) * tanhl(vc[k]), big, &seen);
            check_rounded("dc", dc, k, vdc[k],
                          vdh[k] * logistic(o) * tanh_slope(vc[k]) + vda[k] * logistic(at(va, 4, r, 1, j)), big, &seen);
            const real want[4] = {dcell * tanhl(g) * slope(i), dcell * vb[k] * slope(f),
                                  dcell * logistic(i) * tanh_slope(g), vdh[k] * tanhl(vc[k]) * slope(o)};
            for (int gate = 0; gate < 4; gate++)
                check_rounded("dgates", dgates, k, (double)at(vd, 4, r, gate, j), want[gate], big, &seen);
        }
    tensor *const all[] = {gates, after, c, before, h, dh, dc, dc_after, dgates};
    for (int i = 0; i < 9; i++)
        tensor_free(all[i]);
}

static void gru_step(double scale) {
    tensor *x = one_step(3, NULL), *hg = one_step(3, NULL), *before = one_step(1, NULL), *dh = one_step(1, NULL),
           *dy = one_step(1, NULL), *h = one_step(1, NULL), *dx = one_step(3, NULL), *dg = one_step(3, NULL),
           *ds = one_step(1, NULL);
    tensor *const inputs[] = {x, hg, before, dh, dy};
    for (int i = 0; i < 5; i++)
        load_random(inputs[i], scale);
    for (int again = 0; again < 3; again++)
        CHECK(!tensor_gru_hidden(h, x, hg, before) && !tensor_gru_input_grad(dx, dh, x, hg, before) &&
                  !tensor_gru_gates_grad(dg, dh, x, hg, before) && !tensor_gru_state_grad(ds, dh, x, hg, dy),
              "%s", tensor_error());
    const double *vx = values_of(x), *vg = values_of(hg), *vb = values_of(before), *vdh = values_of(dh),
                 *vdy = values_of(dy), *vh = values_of(h), *vdx = values_of(dx), *vdg = values_of(dg),
                 *vds = values_of(ds);
    struct seen seen = {0};
    for (int64_t r = 0; r < BATCH; r++)
        for (int64_t j = 0; j < UNITS; j++) {
            const int64_t k = r * UNITS + j;
            const real reset = at(vx, 3, r, 0, j) + at(vg, 3, r, 0, j), z = at(vx, 3, r, 1, j) + at(vg, 3, r, 1, j),
                       hn = at(vg, 3, r, 2, j), n = at(vx, 3, r, 2, j) + logistic(reset) * hn,
                       dn = vdh[k] * logistic(-z) * tanh_slope(n),
                       big = scale * (1 + scale) * (1 + scale) * (1 + scale) * 0x1p-48L;
            check_rounded("h", h, k, vh[k], logistic(-z) * tanhl(n) + logistic(z) * vb[k], big, &seen);
            check_rounded("ds", ds, k, vds[k], vdh[k] * logistic(z) + vdy[k], big, &seen);
            const real want[3] = {dn * hn * slope(reset), vdh[k] * (vb[k] - tanhl(n)) * slope(z), dn};
            for (int gate = 0; gate < 3; gate++) {
                check_rounded("dx", dx, k, (double)at(vdx, 3, r, gate, j), want[gate], big, &seen);
                check_rounded("dgates", dg, k, (double)at(vdg, 3, r, gate, j),
                              gate == 2 ? dn * logistic(reset) : want[gate], big, &seen);
            }
        }
    tensor *const all[] = {x, hg, before, dh, dy, h, dx, dg, ds};
    for (int i = 0; i < 9; i++)
        tensor_free(all[i]);
}

/* --- one write over all steps ------------------------------------------------------------------------------------- */

/* A tensor that a sequence wrote, before and after. */
struct written {
    const char *name;
    tensor *t;
    int64_t count;
    struct autoflex before;
    struct seen seen;
};

/* Writes that measured; later attempts with a larger range than needed; writes that did not settle. The scale of
 * gradients grows seventeen-fold from one write to the next, which is more than in any training. */
static int searched, roomy, unsettled, repeated;

static void note(struct written *w) {
    if (shared)
        w->before = *tensor_autoflex(w->t);
    w->seen = (struct seen){0};
}

/* The exponent is the one that the rules give for the whole sequence, and the statistics include all steps. */
static void check_write(const struct written *w, int write) {
    tensor_stats last;
    CHECK(!tensor_statistics(&last, NULL, w->t), "%s", tensor_error());
    CHECK(last.elements == w->count && last.writes == 1, "%s: %lld elements, %lld writes", w->name,
          (long long)last.elements, (long long)last.writes);
    if (!shared)
        return;
    struct autoflex want = w->before;
    const bool measures = autoflex_needs_maximum(want.predictor) || !want.initialised;
    if (autoflex_needs_maximum(want.predictor))
        autoflex_fit(&want, last.maximum);
    else if (!want.initialised)
        autoflex_initialise(&want, last.maximum);
    else
        autoflex_adjust(&want);
    const struct autoflex *got = tensor_autoflex(w->t);
    if (want.predictor == AUTOFLEX_REPEAT && !measures && got->e < want.e) {
        /* the maximum of the previous attempt did not fit; that of the last one, at other exponents, hardly differs */
        CHECK(ldexp(last.maximum, want.e) > 0.9 * AUTOFLEX_TOP, "%s write %d: %g was made anew though it fits e %d",
              w->name, write, last.maximum, want.e);
        want.e = got->e;
        want.predicted = got->predicted;
        repeated++;
    }
    CHECK(want.predictor != AUTOFLEX_REPEAT || measures || !last.saturated, "%s write %d: %lld saturated", w->name,
          write, (long long)last.saturated);
    searched += measures;
    const int room = want.e - tensor_exponent(w->t);
    if (measures && room) { /* later attempts choose a larger range; the last one counts in any case */
        want.e -= room;
        roomy += room == 1 || room == 2;
        unsettled += room != 1 && room != 2;
    }
    autoflex_record(&want, last.gamma, last.maximum);
    CHECK(same_autoflex(&want, tensor_autoflex(w->t)), "%s %s write %d: exponent %d, expected %d (predictor %s)",
          tensor_format_name(format), w->name, write, tensor_exponent(w->t), want.e, autoflex_name(want.predictor));
    CHECK(fabsl(last.maximum - w->seen.maximum) <= 1e-13L * w->seen.maximum && last.gamma == w->seen.gamma &&
              last.saturated == w->seen.saturated &&
              llabs(last.flushed - w->seen.flushed) <= 1, /* a tie in one is not a tie in the other */
          "%s %s write %d: maximum %.17g, gamma %d, saturated %lld, flushed %lld; expected %.17Lg, %d, %lld, %lld",
          tensor_format_name(format), w->name, write, last.maximum, last.gamma, (long long)last.saturated,
          (long long)last.flushed, w->seen.maximum, w->seen.gamma, (long long)w->seen.saturated,
          (long long)w->seen.flushed);
}

/* Sum over k of a[k] u for row r: u [UNITS, gates UNITS], or its transpose; and its size, for the error of binary32. */
static real product(const double *a, int gates, const double *u, bool transposed, int64_t r, int64_t column,
                    real *size) {
    const int64_t k_count = transposed ? gates * UNITS : UNITS, width = (int64_t)gates * UNITS;
    real sum = 0;
    *size = 0;
    for (int64_t k = 0; k < k_count; k++) {
        const real term = (real)a[r * k_count + k] * u[transposed ? column * width + k : k * width + column];
        sum += term;
        *size += fabsl(term);
    }
    return sum;
}
static const real small_error = (UNITS * 4 + 3) * 0x1p-24L;

struct net {
    int gates;
    int64_t steps;
    tensor *h, *c, *g, *x, *u, *bias, *zero, *dx, *dg, *du, *db, *dh, *dc, *dy;
};

static void make_net(struct net *n, int gates, int64_t steps, const char *predictor) {
    *n = (struct net){.gates = gates, .steps = steps};
    n->h = over_time(steps, 1, predictor);
    n->c = over_time(steps, 1, predictor);
    n->g = over_time(steps, gates, predictor);
    n->x = over_time(steps, gates, predictor);
    n->u = new_tensor(TENSOR_SHAPE(UNITS, gates * UNITS), predictor);
    n->bias = new_tensor(TENSOR_SHAPE(gates * UNITS), predictor);
    n->zero = one_step(1, predictor);
    n->dx = over_time(steps, gates, predictor);
    n->dg = over_time(steps, gates, predictor);
    n->du = new_tensor(TENSOR_SHAPE(UNITS, gates * UNITS), predictor);
    n->db = new_tensor(TENSOR_SHAPE(gates * UNITS), predictor);
    n->dh = one_step(1, predictor);
    n->dc = one_step(1, predictor);
    n->dy = over_time(steps, 1, predictor);
}

static void free_net(struct net *n) {
    tensor *const all[] = {n->h,  n->c,  n->g,  n->x,  n->u,  n->bias, n->zero,
                           n->dx, n->dg, n->du, n->db, n->dh, n->dc,   n->dy};
    for (int i = 0; i < 14; i++)
        tensor_free(all[i]);
}

static tensor_status forward(const struct net *n) {
    return n->gates == 4 ? tensor_lstm(n->h, n->c, n->g, n->x, n->u, n->zero, n->zero)
                         : tensor_gru(n->h, n->g, n->x, n->u, n->bias, n->zero);
}
static tensor_status backward(const struct net *n) {
    return n->gates == 4
               ? tensor_lstm_grad(n->dx, n->du, n->dh, n->dc, n->dy, n->h, n->c, n->g, n->u, n->zero)
               : tensor_gru_grad(n->dx, n->dg, n->du, n->db, n->dh, n->dc, n->dy, n->h, n->g, n->x, n->u, n->zero);
}

/* Computes each step from the stored results of the previous step. */
static void check_forward(struct net *n, int write, struct written *wg, struct written *wc, struct written *wh) {
    const double *h = values_of(n->h), *c = values_of(n->c), *g = values_of(n->g), *x = values_of(n->x),
                 *u = values_of(n->u), *bias = values_of(n->bias), *zero = values_of(n->zero);
    const int gates = n->gates, width = gates * UNITS;
    for (int64_t t = 0; t < n->steps; t++) {
        const double *before = t ? h + (t - 1) * BATCH * UNITS : zero, *cell = t ? c + (t - 1) * BATCH * UNITS : zero;
        for (int64_t r = 0; r < BATCH; r++) {
            for (int64_t k = 0; k < width; k++) {
                const int64_t i = (t * BATCH + r) * width + k;
                real size, add = gates == 4 ? x[i] : bias[k];
                const real sum = product(before, gates, u, false, r, k, &size) + add;
                check_rounded("gates", n->g, i, g[i], sum, small_error * (size + fabsl(add)), &wg->seen);
            }
            for (int64_t j = 0; j < UNITS; j++) {
                const int64_t row = t * BATCH + r, i = row * UNITS + j;
                if (gates == 4) {
                    check_rounded("c", n->c, i, c[i],
                                  logistic(at(g, 4, row, 1, j)) * cell[r * UNITS + j] +
                                      logistic(at(g, 4, row, 0, j)) * tanhl(at(g, 4, row, 2, j)),
                                  0x1p-40L, &wc->seen);
                    check_rounded("h", n->h, i, h[i], logistic(at(g, 4, row, 3, j)) * tanhl(c[i]), 0x1p-40L, &wh->seen);
                    continue;
                }
                const real z = at(x, 3, row, 1, j) + at(g, 3, row, 1, j),
                           candidate = at(x, 3, row, 2, j) +
                                       logistic(at(x, 3, row, 0, j) + at(g, 3, row, 0, j)) * at(g, 3, row, 2, j);
                check_rounded("h", n->h, i, h[i], logistic(-z) * tanhl(candidate) + logistic(z) * before[r * UNITS + j],
                              0x1p-40L, &wh->seen);
            }
        }
    }
    (void)write;
}

/* The whole backward pass of shared exponents, rounded where the definition rounds. */
static void check_backward(struct net *n, struct written *wx, struct written *wg, struct written *wh,
                           struct written *wc) {
    const double *h = values_of(n->h), *c = values_of(n->c), *g = values_of(n->g), *x = values_of(n->x),
                 *u = values_of(n->u), *zero = values_of(n->zero), *dx = values_of(n->dx), *dg = values_of(n->dg),
                 *dy = values_of(n->dy), *du = values_of(n->du);
    const int gates = n->gates;
    const double *back = gates == 4 ? dx : dg; /* through the products */
    double dh[BATCH * UNITS], dc[BATCH * UNITS] = {0};
    real size;
    for (int64_t t = n->steps - 1; t >= 0; t--)
        for (int pass = 0; pass < 2; pass++) /* units, then the products of whole rows */
            for (int64_t r = 0; r < BATCH; r++)
                for (int64_t j = 0; j < UNITS; j++) {
                    const int64_t k = r * UNITS + j, row = t * BATCH + r, i = row * UNITS + j;
                    const real before = t ? (gates == 4 ? c : h)[i - BATCH * UNITS] : zero[k];
                    if (pass) {
                        if (t == 0)
                            continue;
                        const real sum = product(back + t * BATCH * gates * UNITS, gates, u, true, r, j, &size);
                        const real around = gates == 4 ? dy[i - BATCH * UNITS] : dc[k];
                        dh[k] = (double)rounded_at(tensor_exponent(n->dh), sum + around, &wh->seen);
                        continue;
                    }
                    if (t == n->steps - 1)
                        dh[k] = dy[i];
                    if (gates == 4) {
                        const real gi = at(g, 4, row, 0, j), gf = at(g, 4, row, 1, j), gg = at(g, 4, row, 2, j),
                                   go = at(g, 4, row, 3, j);
                        const real after = t == n->steps - 1 ? 0 : dc[k] * logistic(at(g, 4, row + BATCH, 1, j));
                        dc[k] = (double)rounded_at(tensor_exponent(n->dc),
                                                   dh[k] * logistic(go) * tanh_slope(c[i]) + after, &wc->seen);
                        const real want[4] = {dc[k] * tanhl(gg) * slope(gi), dc[k] * before * slope(gf),
                                              dc[k] * logistic(gi) * tanh_slope(gg), dh[k] * tanhl(c[i]) * slope(go)};
                        for (int gate = 0; gate < 4; gate++)
                            check_rounded("dx", n->dx, i, (double)at(dx, 4, row, gate, j), want[gate], 0, &wx->seen);
                        continue;
                    }
                    const real reset = at(x, 3, row, 0, j) + at(g, 3, row, 0, j),
                               z = at(x, 3, row, 1, j) + at(g, 3, row, 1, j), hn = at(g, 3, row, 2, j),
                               candidate = at(x, 3, row, 2, j) + logistic(reset) * hn,
                               dn = dh[k] * logistic(-z) * tanh_slope(candidate);
                    const real want[3] = {dn * hn * slope(reset), dh[k] * (before - tanhl(candidate)) * slope(z), dn};
                    for (int gate = 0; gate < 3; gate++) {
                        check_rounded("dx", n->dx, i, (double)at(dx, 3, row, gate, j), want[gate], 0, &wx->seen);
                        check_rounded("dg", n->dg, i, (double)at(dg, 3, row, gate, j),
                                      gate == 2 ? dn * logistic(reset) : want[gate], 0, &wg->seen);
                    }
                    if (t)
                        dc[k] = (double)rounded_at(tensor_exponent(n->dc), dh[k] * logistic(z) + dy[i - BATCH * UNITS],
                                                   &wc->seen);
                }
    struct seen ignored = {0};
    for (int64_t a = 0; a < UNITS; a++) /* one exact sum over all steps */
        for (int64_t b = 0; b < gates * UNITS; b++) {
            real sum = 0;
            for (int64_t row = BATCH; row < n->steps * BATCH; row++)
                sum += (real)h[(row - BATCH) * UNITS + a] * back[row * gates * UNITS + b];
            check_rounded("du", n->du, a * gates * UNITS + b, du[a * gates * UNITS + b], sum, 0, &ignored);
        }
}

static void sequences(int gates, int64_t steps, const char *predictor) {
    struct net n;
    make_net(&n, gates, steps, predictor);
    const int64_t all = steps * BATCH * UNITS, between = (steps - 1) * BATCH * UNITS;
    struct written wg = {"gates", n.g, all * gates}, wc = {"c", n.c, all}, wh = {"h", n.h, all},
                   wx = {"dx", n.dx, all * gates}, wd = {"dg", n.dg, all * gates}, wdh = {"dh", n.dh, between},
                   wdc = {"dc", n.dc, gates == 4 ? all : between};
    for (int write = 0; write < WRITES; write++) {
        const double scale = write == 3 ? 12 : write == 4 ? 0.01 : 0.7;
        load_random(n.x, scale);
        load_random(n.u, 0.5);
        load_random(n.bias, 0.3);
        load_random(n.dy, scale * 1e-3);
        note(&wg), note(&wc), note(&wh);
        CHECK(!forward(&n), "%s", tensor_error());
        check_forward(&n, write, &wg, &wc, &wh);
        check_write(&wg, write);
        check_write(&wh, write);
        if (gates == 4)
            check_write(&wc, write);
        note(&wx), note(&wd), note(&wdh), note(&wdc);
        CHECK(!backward(&n), "%s", tensor_error());
        if (!shared)
            continue;
        check_backward(&n, &wx, &wd, &wdh, &wdc);
        check_write(&wx, write);
        if (gates == 3)
            check_write(&wd, write);
        if (steps > 1 || gates == 4)
            check_write(&wdc, write);
        if (steps > 1)
            check_write(&wdh, write);
    }
    free_net(&n);
}

/* --- gradients against differences of the same in double ---------------------------------------------------------- */

/* The sum of dy h. */
static double loss_of(int gates, int64_t steps, const double *x, const double *u, const double *bias,
                      const double *dy) {
    double h[BATCH * UNITS] = {0}, c[BATCH * UNITS] = {0}, next[BATCH * UNITS], loss = 0;
    const int width = gates * UNITS;
    for (int64_t t = 0; t < steps; t++) {
        for (int64_t r = 0; r < BATCH; r++)
            for (int64_t j = 0; j < UNITS; j++) {
                double in[4] = {0}, of_h[4] = {0};
                for (int gate = 0; gate < gates; gate++) {
                    in[gate] = x[(t * BATCH + r) * width + gate * UNITS + j];
                    of_h[gate] = gates == 3 ? bias[gate * UNITS + j] : 0;
                    for (int64_t k = 0; k < UNITS; k++)
                        of_h[gate] += h[r * UNITS + k] * u[k * width + gate * UNITS + j];
                }
                const int64_t k = r * UNITS + j;
                if (gates == 4) {
                    c[k] = c[k] / (1 + exp(-in[1] - of_h[1])) + tanh(in[2] + of_h[2]) / (1 + exp(-in[0] - of_h[0]));
                    next[k] = tanh(c[k]) / (1 + exp(-in[3] - of_h[3]));
                } else {
                    const double z = 1 / (1 + exp(-in[1] - of_h[1]));
                    next[k] = (1 - z) * tanh(in[2] + of_h[2] / (1 + exp(-in[0] - of_h[0]))) + z * h[k];
                }
                loss += dy[(t * BATCH + r) * UNITS + j] * next[k];
            }
        memcpy(h, next, sizeof h);
    }
    return loss;
}

static void check_slopes(const char *what, int gates, int64_t steps, double *v, int64_t count, const double *got,
                         double *x, double *u, double *bias, const double *dy, double bound) {
    for (int64_t i = 0; i < count; i++) {
        const double kept = v[i], h = 1e-5;
        v[i] = kept + h;
        const double above = loss_of(gates, steps, x, u, bias, dy);
        v[i] = kept - h;
        const double slope_here = (above - loss_of(gates, steps, x, u, bias, dy)) / (2 * h);
        v[i] = kept;
        CHECK(fabs(got[i] - slope_here) <= bound, "%s %s %d gates [%lld]: %.9g, expected %.9g within %g",
              tensor_format_name(format), what, gates, (long long)i, got[i], slope_here, bound);
    }
}

/* Gradients are sums of about ten terms of at most 2, each with errors of a few units in the last place of the
 * format. */
static void gradients(int gates, double bound) {
    struct net n;
    make_net(&n, gates, STEPS, NULL);
    for (int again = 0; again < 4; again++) { /* exponents are found */
        load_random(n.x, 0.8);
        load_random(n.u, 0.4);
        load_random(n.bias, 0.3);
        load_random(n.dy, 0.5);
        CHECK(!forward(&n) && !backward(&n), "%s", tensor_error());
    }
    double x[MOST], u[MOST], bias[MOST];
    memcpy(x, values_of(n.x), (size_t)tensor_count(n.x) * sizeof *x);
    memcpy(u, values_of(n.u), (size_t)tensor_count(n.u) * sizeof *u);
    memcpy(bias, values_of(n.bias), (size_t)tensor_count(n.bias) * sizeof *bias);
    const double *dy = values_of(n.dy);
    check_slopes("dx", gates, STEPS, x, tensor_count(n.x), values_of(n.dx), x, u, bias, dy, bound);
    check_slopes("du", gates, STEPS, u, tensor_count(n.u), values_of(n.du), x, u, bias, dy, 8 * bound);
    if (gates == 3)
        check_slopes("dbias", gates, STEPS, bias, tensor_count(n.bias), values_of(n.db), x, u, bias, dy, 8 * bound);
    free_net(&n);
}

/* --- a device ----------------------------------------------------------------------------------------------------- */

static void on_device(int gates, const char *predictor, tensor_device *device) {
    struct net n, there;
    make_net(&n, gates, STEPS, predictor);
    make_net(&there, gates, STEPS, predictor);
    tensor **const here[] = {&n.h,  &n.c,  &n.g,  &n.x,  &n.u,  &n.bias, &n.zero,
                             &n.dx, &n.dg, &n.du, &n.db, &n.dh, &n.dc,   &n.dy};
    tensor **const far[] = {&there.h,  &there.c,  &there.g,  &there.x,  &there.u,  &there.bias, &there.zero,
                            &there.dx, &there.dg, &there.du, &there.db, &there.dh, &there.dc,   &there.dy};
    tensor *copy[14];
    for (int i = 0; i < 14; i++) {
        int64_t shape[3];
        const int ndim = tensor_ndim(*here[i]);
        for (int d = 0; d < ndim; d++)
            shape[d] = tensor_dim(*here[i], d);
        copy[i] = *far[i]; /* on the host, for what comes back */
        *far[i] = tensor_new_in(device, format, ndim, shape);
        CHECK(*far[i] && (!shared || !predictor || !tensor_set_predictor(*far[i], predictor)), "%s", tensor_error());
    }
    for (int write = 0; write < 3; write++) {
        load_random(n.x, write == 1 ? 9 : 0.5);
        load_random(n.u, 0.4);
        load_random(n.bias, 0.3);
        load_random(n.dy, 0.5);
        CHECK(!tensor_copy(there.x, n.x) && !tensor_copy(there.u, n.u) && !tensor_copy(there.bias, n.bias) &&
                  !tensor_copy(there.dy, n.dy) && !forward(&n) && !backward(&n) && !forward(&there) &&
                  !backward(&there),
              "%s", tensor_error());
        for (int i = 0; i < 14; i++) {
            tensor_stats a, b;
            if ((i >= 3 && i <= 6) || i == 13)
                continue; /* given, not written */
            CHECK(!tensor_copy(copy[i], *far[i]) && !tensor_statistics(&a, NULL, *here[i]) &&
                      !tensor_statistics(&b, NULL, *far[i]),
                  "%s", tensor_error());
            CHECK(!memcmp(tensor_const_data(copy[i]), tensor_const_data(*here[i]), tensor_bytes(copy[i])) &&
                      same_stats(&a, &b) &&
                      (!shared || same_autoflex(tensor_autoflex(*here[i]), tensor_autoflex(*far[i]))),
                  "%s, %d gates, predictor %s, write %d: tensor %d differs (exponent %d, %d on the host)",
                  tensor_format_name(format), gates, predictor ? predictor : "its own", write, i,
                  tensor_exponent(*far[i]), tensor_exponent(*here[i]));
        }
    }
    for (int i = 0; i < 14; i++)
        tensor_free(copy[i]);
    free_net(&n);
    free_net(&there);
}

/* There are so many units that a device splits the sums of a product: each part of a sequence has separate sums. */
static void many_units(tensor_device *device) {
    enum { WIDE = 264, STEPS_WIDE = 2, ROWS = 4 };
    const int64_t one[] = {STEPS_WIDE, ROWS, WIDE}, four[] = {STEPS_WIDE, ROWS, 4 * WIDE}, u[] = {WIDE, 4 * WIDE},
                  state[] = {ROWS, WIDE};
    static double v[WIDE * 4 * WIDE];
    enum { H, C, GATES_, X, U, ZERO, DX, DU, DH, DC, DY, ALL };
    static const int given[] = {X, U, ZERO, DY};
    const int64_t *shapes[ALL];
    tensor *here[ALL], *there[ALL];
    for (int i = 0; i < ALL; i++) {
        const bool square = i == U || i == DU, single = i == ZERO || i == DH || i == DC,
                   gates = i == GATES_ || i == X || i == DX;
        const int ndim = square || single ? 2 : 3;
        shapes[i] = square ? u : single ? state : gates ? four : one;
        here[i] = tensor_new(format, ndim, shapes[i]);
        there[i] = tensor_new_in(device, format, ndim, shapes[i]);
        CHECK(here[i] && there[i], "%s", tensor_error());
    }
    for (int i = 0; i < 4; i++) {
        const int64_t n = tensor_count(here[given[i]]);
        for (int64_t k = 0; k < n; k++)
            v[k] = given[i] == ZERO ? 0 : 0.3 * unit();
        CHECK(!tensor_load_f64(here[given[i]], v, n) && !tensor_load_f64(there[given[i]], v, n), "%s", tensor_error());
    }
    for (int side = 0; side < 2; side++) {
        tensor **t = side ? there : here;
        CHECK(!tensor_lstm(t[H], t[C], t[GATES_], t[X], t[U], t[ZERO], t[ZERO]) &&
                  !tensor_lstm_grad(t[DX], t[DU], t[DH], t[DC], t[DY], t[H], t[C], t[GATES_], t[U], t[ZERO]),
              "%s", tensor_error());
    }
    for (int i = 0; i < ALL; i++) {
        tensor *copy = tensor_new(format, tensor_ndim(here[i]), shapes[i]);
        CHECK(copy && !tensor_copy(copy, there[i]) &&
                  !memcmp(tensor_const_data(copy), tensor_const_data(here[i]), tensor_bytes(copy)),
              "%s, %d units: tensor %d differs (exponent %d, %d on the host)", tensor_format_name(format), WIDE, i,
              tensor_exponent(there[i]), tensor_exponent(here[i]));
        tensor_free(copy);
        tensor_free(here[i]);
        tensor_free(there[i]);
    }
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

#define REFUSED(call, status, words)                                                                                   \
    CHECK((call) == (status) && strstr(tensor_error(), words), "%s: %s, expected '%s'", #call, tensor_error(), words)

static void refusals(void) {
    struct net n;
    make_net(&n, 4, STEPS, NULL);
    tensor *gates = one_step(4, NULL), *c = one_step(1, NULL), *d = one_step(1, NULL);
    REFUSED(tensor_lstm_cell(c, gates, NULL), TENSOR_E_ARGUMENT, "c_before is NULL");
    REFUSED(tensor_lstm_cell(c, d, d), TENSOR_E_SHAPE, "lstm_cell: gates is 3x7, expected 3x28");
    REFUSED(tensor_lstm_cell(c, gates, c), TENSOR_E_ARGUMENT, "the same tensor");
    REFUSED(tensor_lstm_hidden(n.h, gates, c), TENSOR_E_SHAPE, "h is 5x3x7, expected [N,h]");
    REFUSED(tensor_lstm_cell_grad(c, d, gates, n.zero, NULL, gates), TENSOR_E_ARGUMENT, "dc_after is NULL");
    REFUSED(tensor_lstm_gates_grad(gates, c, d, gates, c, d), TENSOR_E_ARGUMENT, "the same tensor");
    REFUSED(tensor_gru_hidden(c, gates, gates, d), TENSOR_E_SHAPE, "x_gates is 3x28, expected 3x21");
    REFUSED(tensor_lstm(n.h, n.h, n.g, n.x, n.u, n.zero, n.zero), TENSOR_E_ARGUMENT, "the same tensor");
    REFUSED(tensor_lstm(n.h, n.c, n.g, n.x, n.g, n.zero, n.zero), TENSOR_E_ARGUMENT, "gates and u are the same tensor");
    REFUSED(tensor_lstm(n.h, n.c, n.g, n.x, gates, n.zero, n.zero), TENSOR_E_SHAPE, "u is 3x28, expected 7x28");
    REFUSED(tensor_gru(n.h, n.g, n.x, n.u, n.bias, n.zero), TENSOR_E_SHAPE, "x is 5x3x28, expected 5x3x21");
    REFUSED(tensor_lstm_grad(n.dx, n.du, n.dh, n.dh, n.dy, n.h, n.c, n.g, n.u, n.zero), TENSOR_E_ARGUMENT,
            "the same tensor");
    if (format == FMT_FLEX16_5) {
        CHECK(!tensor_set_rounding(n.c, TENSOR_ROUND_STOCHASTIC, 1), "%s", tensor_error());
        REFUSED(forward(&n), TENSOR_E_ARGUMENT, "must not be rounded stochastically");
    }
    tensor_free(gates);
    tensor_free(c);
    tensor_free(d);
    free_net(&n);
}

/* A tensor that a sequence writes may have a wide part, which then is exactly the value of the elements. */
static void wide_parts(void) {
    tensor *t[] = {over_time(STEPS, 1, NULL),
                   over_time(STEPS, 1, NULL),
                   over_time(STEPS, 4, NULL),
                   over_time(STEPS, 4, NULL),
                   new_tensor(TENSOR_SHAPE(UNITS, 4 * UNITS), NULL),
                   one_step(1, NULL),
                   one_step(1, NULL)};
    static double elements[MOST], wide[MOST];
    for (int i = 0; i < 7; i++)
        load_random(t[i], 1);
    for (int i = 0; i < 3; i++)
        CHECK(!tensor_keep_wide(t[i]), "%s", tensor_error());
    CHECK(!tensor_lstm(t[0], t[1], t[2], t[3], t[4], t[5], t[6]), "%s", tensor_error());
    for (int i = 0; i < 3; i++) {
        const int64_t n = tensor_count(t[i]);
        CHECK(!tensor_store_f64(t[i], elements, n) && !tensor_store_wide_f64(t[i], wide, n) &&
                  !memcmp(elements, wide, (size_t)n * sizeof *wide),
              "%s: the wide part of result %d is not its elements", tensor_format_name(format), i);
    }
    for (int i = 0; i < 7; i++)
        tensor_free(t[i]);
}

int main(int argc, char **argv) {
    static const struct {
        tensor_format format;
        double bound;
    } formats[] = {{FMT_FP32, 1e-6}, {FMT_FP16, 6e-3}, {FMT_BF16, 5e-2}, {FMT_FLEX16_5, 2e-3}, {FMT_DFP16, 2e-3}};
    static const char *const predictors[] = {NULL, "paper", "ngraph", "current", "repeat"};
    const char *name = argc > 1 ? argv[1] : "toy";
    if (argc == 1 && !toy_begin((size_t)1 << 30))
        return check_skip("no memory for the toy device");
    tensor_device *device = tensor_device_find(name);
    CHECK(device, "%s", tensor_error());
    for (size_t i = 0; device && i < sizeof formats / sizeof *formats; i++) {
        format = formats[i].format;
        shared = tensor_format_is_shared(format);
        for (int e = -8; e <= 4; e++) {
            lstm_step(ldexp(1, e));
            gru_step(ldexp(1, e));
        }
        for (int p = 0; p < (shared ? 5 : 1); p++)
            for (int gates = 3; gates <= 4; gates++) {
                sequences(gates, STEPS, predictors[p]);
                sequences(gates, 1, predictors[p]);
                on_device(gates, predictors[p], device);
            }
        if (shared)
            many_units(device);
        for (int gates = 3; gates <= 4; gates++)
            gradients(gates, formats[i].bound);
        refusals();
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        format = formats[i].format;
        shared = tensor_format_is_shared(format);
        wide_parts();
    }
    CHECK(searched > 200 && roomy <= searched / 15 && unsettled <= 1, "%d writes: %d with room to spare, %d unsettled",
          searched, roomy, unsettled);
    CHECK(repeated > 0, "no sequence was computed again by 'repeat'");
    return check_summary();
}
