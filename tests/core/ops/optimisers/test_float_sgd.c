/* The one rounding of stochastic gradient descent in float formats, where it is hard: sums half way between two floats
 * that a far smaller third term decides, cancellations, exponents far apart. Every row against the reference, whose sum
 * is an exact integer. */
#include "check.h"
#include "core/table/format.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <string.h>

enum { COUNT = 4096 };

static float random_float(uint64_t *seed, int bits, int low, int high) {
    const uint64_t r = check_random(seed);
    const int64_t m = (int64_t)(r >> 40) >> (24 - bits);
    const int e = low + (int)((r & 0xffff) % (uint64_t)(high - low + 1));
    return (float)ldexp((double)(r & 0x10000 ? -m : m), e - bits);
}

/* momentum * v + g + decay * w */
static void fill(uint64_t *seed, float momentum, float decay, float *v, float *g, float *w) {
    for (int i = 0; i < COUNT; i++) {
        v[i] = random_float(seed, 24, -20, 20);
        g[i] = random_float(seed, 24, -20, 20);
        w[i] = random_float(seed, 1 + i % 24, -60, 10);
        const float sign = check_random(seed) & 1 ? 1 : -1;
        switch (i % 7) {
        case 0: /* half a place of g, and a little more or less */
            v[i] = (nextafterf(g[i], INFINITY) - g[i]) / 2 * sign;
            break;
        case 1: /* the product cancels against g but for its low bits */
            g[i] = -momentum * v[i];
            break;
        case 2: /* both products of one size, g far below */
            w[i] = -(float)((double)momentum * v[i] / (decay != 0 ? decay : 1));
            g[i] = random_float(seed, 24, -70, -30);
            break;
        case 3: /* half a place of g, decided 100 bits further down */
            v[i] = (nextafterf(g[i], INFINITY) - g[i]) / 2 * sign;
            w[i] = random_float(seed, 3, -125, -90);
            break;
        case 4: /* subnormal results */
            v[i] = random_float(seed, 24, -146, -126);
            g[i] = random_float(seed, 5, -146, -140);
            w[i] = random_float(seed, 24, -149, -100);
            break;
        case 5: /* zeros of either sign: an exact zero is +0 */
            v[i] = i & 8 ? 0.0f : -0.0f;
            g[i] = i & 16 ? 0.0f : -0.0f;
            w[i] = -0.0f;
            break;
        default:
            break;
        }
    }
}

static void compare(fl_kernel kernel, enum fl_backend backend, enum fl_op op, float alpha, float beta, const float *a,
                    const float *b, const float *c, uint64_t seed) {
    static float want[COUNT], got[COUNT];
    struct fl_stats stats = {0};
    struct fl_args args = {
        .op = op,
        .format = fl_format_of(FMT_FP32),
        .out = {want, NULL, 0, COUNT},
        .in = {{(void *)a, NULL, 0, COUNT}, {(void *)b, NULL, 0, COUNT}, {(void *)c, NULL, 0, COUNT}},
        .p.sgd = {.momentum = alpha, .weight_decay = beta, .rate = alpha},
        .stats = &stats};
    CHECK(fl_ref_kernel(op)(&args) == TENSOR_OK, "%s", tensor_error());
    args.out.data = got;
    CHECK(kernel(&args) == TENSOR_OK, "%s", tensor_error());
    for (int i = 0; i < COUNT; i++)
        CHECK(!memcmp(&want[i], &got[i], sizeof got[i]),
              "fp32.%s.%s seed %llu i=%d %a %a %a alpha %a beta %a got %a want %a", fl_op_name(op),
              fl_backend_name(backend), (unsigned long long)seed, i, (double)a[i], (double)b[i], c ? (double)c[i] : 0,
              (double)alpha, (double)beta, (double)got[i], (double)want[i]);
}

int main(void) {
    static const float momenta[] = {1, 0.5f, 0.9f, 0x1.000002p0f, -0.75f}, decays[] = {1, 0x1p-30f, 1e-4f, 0};
    static float v[COUNT], g[COUNT], w[COUNT];
    const char *text = getenv("FLEXLAB_TEST_SEED");
    const uint64_t seed0 = text ? strtoull(text, NULL, 0) : 2008;
    printf("seed %llu\n", (unsigned long long)seed0);
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++)
        for (int i = 0; i < 20; i++) {
            const enum fl_backend row = (enum fl_backend)backend;
            enum fl_backend chosen;
            fl_kernel momentum = fl_kernel_select(fl_format_of(FMT_FP32), FL_OP_SGD_MOMENTUM, row, &chosen);
            if (chosen != row)
                continue;
            fl_kernel update = fl_kernel_select(fl_format_of(FMT_FP32), FL_OP_SGD_UPDATE, row, NULL);
            const float alpha = momenta[i % 5], beta = decays[i % 4];
            uint64_t seed = seed0 + (uint64_t)i;
            fill(&seed, alpha, beta, v, g, w);
            compare(momentum, row, FL_OP_SGD_MOMENTUM, alpha, beta, v, g, w, seed0 + (uint64_t)i);
            compare(update, row, FL_OP_SGD_UPDATE, alpha, 0, g, v, NULL, seed0 + (uint64_t)i);
        }
    return check_summary();
}
