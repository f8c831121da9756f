/* Gradients of real functions against differences of the functions themselves in binary32: dx = dy (f(x + h) - f(x -
 * h)) / 2h, within a bound that is written down; and that every row of a gradient has its function here. */
#include "check.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

static uint64_t seed = 20260722;

struct pair {
    const char *name;
    tensor_status (*function)(tensor *, const tensor *);
    tensor_status (*gradient)(tensor *, const tensor *, const tensor *);
    double from, to; /* of x */
};

static tensor_status leaky_relu(tensor *y, const tensor *x) {
    return tensor_leaky_relu(y, x, 0.25f);
}
static tensor_status leaky_relu_grad(tensor *dx, const tensor *dy, const tensor *x) {
    return tensor_leaky_relu_grad(dx, dy, x, 0.25f);
}
static tensor_status elu(tensor *y, const tensor *x) {
    return tensor_elu(y, x, 1.5f);
}
static tensor_status elu_grad(tensor *dx, const tensor *dy, const tensor *x) {
    return tensor_elu_grad(dx, dy, x, 1.5f);
}
static tensor_status hardtanh(tensor *y, const tensor *x) {
    return tensor_hardtanh(y, x, -1.5f, 2.5f);
}
static tensor_status hardtanh_grad(tensor *dx, const tensor *dy, const tensor *x) {
    return tensor_hardtanh_grad(dx, dy, x, -1.5f, 2.5f);
}
static tensor_status clamp(tensor *y, const tensor *x) {
    return tensor_clamp(y, x, -1.5f, 2.5f);
}
static tensor_status clamp_grad(tensor *dx, const tensor *dy, const tensor *x) {
    return tensor_clamp_grad(dx, dy, x, -1.5f, 2.5f);
}

#define PAIR(name, from, to)                                                                                           \
    { #name "_grad", tensor_##name, tensor_##name##_grad, from, to }
static const struct pair pairs[] = {{"leaky_relu_grad", leaky_relu, leaky_relu_grad, -4, 4},
                                    {"elu_grad", elu, elu_grad, -4, 4},
                                    {"hardtanh_grad", hardtanh, hardtanh_grad, -4, 4},
                                    {"clamp_grad", clamp, clamp_grad, -4, 4},
                                    PAIR(sigmoid, -6, 6),
                                    PAIR(logsigmoid, -6, 6),
                                    PAIR(silu, -6, 6),
                                    PAIR(softsign, -6, 6),
                                    PAIR(tanh, -4, 4),
                                    PAIR(softplus, -6, 6),
                                    PAIR(gelu, -4, 4),
                                    PAIR(gelu_tanh, -4, 4),
                                    PAIR(exp, -3, 2),
                                    PAIR(log, 0.5, 4),
                                    PAIR(sqrt, 0.5, 4),
                                    PAIR(reciprocal, 0.75, 4),
                                    PAIR(sin, -6, 6),
                                    PAIR(cos, -6, 6)};
enum { PAIRS = sizeof pairs / sizeof pairs[0], N = 2000 };

static const char *const rows[] = {
#define FL_REAL2(id, CONSTANT, name, expr) #name,
#define FL_REAL2_SCALAR(id, CONSTANT, name, expr) #name,
#define FL_REAL2_SCALARS(id, CONSTANT, name, expr) #name,
#include "flexlab/ops.def"
};

static void check_pair(const struct pair *p) {
    /* f has |f'''| <= 20 here but at kinks: h^2 20 / 6 < 2^-12; two roundings of |f| < 8 in f(x + h) - f(x - h): 2^-20
     * / 2h = 2^-14; the rounding of dx is far below */
    const float h = 0x1p-7f;
    const double bound = 0x1p-11;
    float x[N], dy[N], above[N], below[N], dx[N];
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(N)), *g = tensor_new(FMT_FP32, TENSOR_SHAPE(N)),
           *y = tensor_new(FMT_FP32, TENSOR_SHAPE(N));
    for (int i = 0; i < N; i++) {
        x[i] = (float)(p->from + (p->to - p->from) * (double)(check_random(&seed) >> 11) * 0x1p-53);
        x[i] = rintf(x[i] * 0x1p15f) * 0x1p-15f; /* x + h and x - h are binary32 */
        dy[i] = (float)((double)(check_random(&seed) >> 11) * 0x1p-52 - 1);
        above[i] = x[i] + h;
        below[i] = x[i] - h;
    }
    CHECK(!tensor_load_f32(t, above, N) && !p->function(y, t) && !tensor_store_f32(y, above, N) &&
              !tensor_load_f32(t, below, N) && !p->function(y, t) && !tensor_store_f32(y, below, N) &&
              !tensor_load_f32(t, x, N) && !tensor_load_f32(g, dy, N) && !p->gradient(y, g, t) &&
              !tensor_store_f32(y, dx, N),
          "%s: %s", p->name, tensor_error());
    for (int i = 0; i < N; i++) {
        const double want = (double)dy[i] * ((double)above[i] - (double)below[i]) / (2 * (double)h);
        const double kinks[] = {0, -1.5, 2.5}; /* of f or f' */
        bool kink = false;
        for (int k = 0; k < 3; k++)
            kink |= fabs((double)x[i] - kinks[k]) <= (double)h && (p - pairs < 4 || p->function == tensor_softsign);
        CHECK(kink || fabs((double)dx[i] - want) <= bound, "%s: x %a, dy %a: got %a, by differences %a", p->name,
              (double)x[i], (double)dy[i], (double)dx[i], want);
    }
    tensor_free(t);
    tensor_free(g);
    tensor_free(y);
}

/* Quotients in the middle between two elements become the even one: dy = o^2 a / 8 and x = o - 1 make a / 8, which is a
 * half of an odd number of steps of 1 / 4. */
static void check_ties(tensor_format format) {
    for (int o = 3; o <= 57; o += 2)
        for (int a = 1; o * o * a <= 32767 && a <= 33; a += 2) {
            const float dy = (float)(o * o * a) / 8, x = (float)(o - 1), want = rintf((float)a / 2) / 4;
            float got = -1;
            tensor *tdy = tensor_new(format, TENSOR_SHAPE(1)), *tx = tensor_new(format, TENSOR_SHAPE(1)),
                   *y = tensor_new(format, TENSOR_SHAPE(1));
            CHECK(!tensor_set_predictor(tdy, "fixed") && !tensor_set_predictor(tx, "fixed") &&
                      !tensor_set_predictor(y, "fixed") && !tensor_set_exponent(tdy, 3) &&
                      !tensor_set_exponent(tx, 4) && !tensor_set_exponent(y, 2) && !tensor_load_f32(tdy, &dy, 1) &&
                      !tensor_load_f32(tx, &x, 1) && !tensor_softsign_grad(y, tdy, tx) && !tensor_store_f32(y, &got, 1),
                  "%s", tensor_error());
            CHECK(got == want, "softsign_grad: dy %g, x %g: got %g, expected %g", (double)dy, (double)x, (double)got,
                  (double)want);
            tensor_free(tdy);
            tensor_free(tx);
            tensor_free(y);
        }
}

int main(void) {
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < PAIRS; i++)
        check_pair(&pairs[i]);
    check_ties(FMT_FLEX16_5);
    check_ties(FMT_DFP16);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        bool found = false;
        for (int i = 0; i < PAIRS; i++)
            found |= !strcmp(rows[r], pairs[i].name);
        CHECK(found, "%s has no function here", rows[r]);
    }
    return check_summary();
}
