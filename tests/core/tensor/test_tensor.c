/* Tensors from the outside: allocation, loads and stores, conversion, exponents, statistics, writes by operations. */
#include "host_numbers.h"
#include "check.h"
#include "flexlab/flexlab.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

static void load_and_store(void) {
    uint64_t seed = 11;
    for (int k = 0; tensor_format_at(k); k++) {
        tensor_format f = tensor_format_at(k);
        const char *name = tensor_format_name(f);
        tensor_format found = FMT_NONE;
        CHECK(!tensor_format_find(&found, name) && found == f, "%s is not found by name", name);
        tensor *t = tensor_new(f, TENSOR_SHAPE(7, 33));
        double in[7 * 33], out[7 * 33];
        float narrow[7 * 33];
        tensor_store_f64(t, out, 7 * 33);
        for (int i = 0; i < 7 * 33; i++)
            CHECK(out[i] == 0, "%s: a new tensor holds %g", name, out[i]);
        double largest = 0;
        for (int i = 0; i < 7 * 33; i++) {
            in[i] = ((double)(check_random(&seed) >> 11) * 0x1p-53 - 0.5) * 20;
            largest = fmax(largest, fabs(in[i]));
        }
        CHECK(!tensor_load_f64(t, in, 7 * 33), "%s: %s", name, tensor_error());
        tensor_store_f64(t, out, 7 * 33);
        tensor_store_f32(t, narrow, 7 * 33);
        /* half a unit in the last place: 2^-24, 2^-11, 2^-8 of the value's binade; half a step of the shared grid */
        for (int i = 0; i < 7 * 33; i++) {
            double bound;
            if (tensor_format_is_shared(f))
                bound = ldexp(0.5, -tensor_exponent(t));
            else {
                const int bits = f == FMT_FP32 ? 24 : f == FMT_FP16 ? 11 : f == FMT_BF16 ? 8 : 2;
                bound = ldexp(0.5, (in[i] ? ilogb(in[i]) : 0) - bits + 1);
            }
            CHECK(fabs(out[i] - in[i]) <= bound, "%s[%d]: %a stored as %a", name, i, in[i], out[i]);
            CHECK(narrow[i] == (float)out[i], "%s[%d]: float %a, double %a", name, i, (double)narrow[i], out[i]);
        }
        if (tensor_format_is_shared(f))
            CHECK(tensor_exponent(t) == 14 - ilogb(largest), "%s: e %d for %g", name, tensor_exponent(t), largest);
        tensor *again = tensor_new(f, TENSOR_SHAPE(7, 33));
        CHECK(!tensor_convert(again, t), "%s: %s", name, tensor_error());
        CHECK(!memcmp(tensor_data(again), tensor_data(t), 7 * 33 * tensor_format_bytes(f)), "%s to itself differs",
              name);
        CHECK(!tensor_copy(again, t) && tensor_exponent(again) == tensor_exponent(t), "%s copy", name);
        for (int j = 0; tensor_format_at(j); j++) { /* a round trip through any other format remains on the grid */
            tensor *other = tensor_new(tensor_format_at(j), TENSOR_SHAPE(7, 33));
            CHECK(!tensor_convert(other, t), "%s to %s: %s", name, tensor_format_name(tensor_format_at(j)),
                  tensor_error());
            double v[7 * 33];
            tensor_store_f64(other, v, 7 * 33);
            if (tensor_format_at(j) == FMT_FP32)
                CHECK(!memcmp(v, out, sizeof v), "%s is not exact in fp32", name);
            tensor_free(other);
        }
        tensor_free(again);
        tensor_free(t);
    }
}

static void exponents(void) {
    tensor *t = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(5));
    int16_t *m = tensor_data(t);
    const int16_t values[5] = {32767, -5, 6, 0, 1};
    memcpy(m, values, sizeof values);
    CHECK(!tensor_declare_exponent(t, 10), "%s", tensor_error());
    CHECK(!tensor_set_exponent(t, 9), "%s", tensor_error());
    tensor_stats s;
    tensor_statistics(&s, NULL, t);
    CHECK(m[0] == 16384 && m[1] == -2 && m[2] == 3 && m[3] == 0 && m[4] == 0, "%d %d %d %d %d", m[0], m[1], m[2], m[3],
          m[4]);
    CHECK(s.flushed == 1 && s.saturated == 0 && s.gamma == 16384, "flushed %d saturated %d gamma %d", (int)s.flushed,
          (int)s.saturated, s.gamma);
    CHECK(!tensor_set_exponent(t, 12), "%s", tensor_error());
    tensor_statistics(&s, NULL, t);
    CHECK(m[0] == 32767 && m[1] == -16 && m[2] == 24 && s.saturated == 1, "%d %d %d saturated %d", m[0], m[1], m[2],
          (int)s.saturated);
    CHECK(tensor_set_exponent(t, 32) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "32"), "%s", tensor_error());
    CHECK(tensor_set_exponent(t, -1) == TENSOR_E_ARGUMENT, "e -1 accepted");
    CHECK(tensor_exponent(t) == 12 && m[0] == 32767, "a refused exponent changed the tensor");
    tensor_free(t);
    tensor *f = tensor_new(FMT_FP16, TENSOR_SHAPE(5));
    CHECK(tensor_set_exponent(f, 3) == TENSOR_E_FORMAT, "fp16 took an exponent");
    tensor_free(f);
    tensor *d = tensor_new(FMT_DFP16, TENSOR_SHAPE(1));
    CHECK(!tensor_declare_exponent(d, -128) && !tensor_declare_exponent(d, 127), "dfp16 range");
    tensor_free(d);
}

/* A zero tensor gives no information: the normal value that follows must not saturate. */
static void zero_then_normal(void) {
    const char *names[] = {"paper", "ngraph", "current"};
    for (int p = 0; p < 3; p++) {
        tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4)), *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4));
        tensor_set_predictor(y, names[p]);
        const float one[4] = {1.5f, -1, 0.25f, 0}, zero[4] = {0};
        for (int write = 0; write < 30; write++) {
            tensor_load_f32(x, write % 10 == 9 ? one : zero, 4);
            CHECK(!tensor_scale(y, x, 1.0f), "%s", tensor_error());
            tensor_stats s;
            tensor_statistics(&s, NULL, y);
            CHECK(s.saturated == 0, "%s: write %d saturates %d", names[p], write, (int)s.saturated);
            double v[4];
            tensor_store_f64(y, v, 4);
            if (write % 10 == 9)
                CHECK(v[0] == 1.5 && v[1] == -1 && v[2] == 0.25, "%s: write %d gives %g %g %g", names[p], write, v[0],
                      v[1], v[2]);
        }
        tensor_free(x);
        tensor_free(y);
    }
}

/* The predictors change the exponent of a real tensor as on plain numbers: x1.25 in each step, written by an
 * operation. */
static void growing_writes(void) {
    tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1)), *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1));
    const char *names[] = {"paper", "ngraph"};
    const char *want[] = {"14:16384 13:10240 13:12800 12:8000 12:10000 11:6250", "14:16384 14:20480 14:25600 13:16000 "
                                                                                 "13:20000 13:25000"};
    for (int p = 0; p < 2; p++) {
        char got[256] = "14:16384";
        tensor_set_predictor(y, names[p]);
        tensor_load_f64(y, (double[]){1}, 1);
        double value = 1;
        for (int i = 1; i < 6; i++) {
            value *= 1.25;
            tensor_load_f64(x, &value, 1);
            tensor_scale(y, x, 1.0f);
            snprintf(got + strlen(got), sizeof got - strlen(got), " %d:%d", tensor_exponent(y),
                     *(const int16_t *)tensor_const_data(y));
        }
        CHECK(!strcmp(got, want[p]), "%s: got %s want %s", names[p], got, want[p]);
    }
    tensor_free(x);
    tensor_free(y);
}

static void statistics(void) {
    tensor *x = tensor_new(FMT_FP16, TENSOR_SHAPE(4)), *y = tensor_new(FMT_FP16, TENSOR_SHAPE(4));
    tensor_load_f32(x, (float[]){60000, 0x1p-24f, 1, -3}, 4);
    tensor_scale(y, x, 2.0f);
    tensor_stats s, total;
    tensor_statistics(&s, &total, y);
    CHECK(s.saturated == 1 && s.nonfinite == 1 && s.flushed == 0 && s.maximum == 120000 - 64 * 0,
          "sat %d nonfinite %d max %g", (int)s.saturated, (int)s.nonfinite, s.maximum);
    tensor_scale(y, x, 0.25f);
    tensor_statistics(&s, &total, y);
    CHECK(s.flushed == 1 && total.saturated == 1 && total.flushed == 1 && total.writes == 2 && total.elements == 8,
          "flushed %d total %d %d writes %d", (int)s.flushed, (int)total.saturated, (int)total.flushed,
          (int)total.writes);
    tensor_reset_statistics(y);
    tensor_statistics(NULL, &total, y);
    CHECK(total.writes == 0 && total.saturated == 0, "reset kept %d writes", (int)total.writes);
    tensor_free(x);
    tensor_free(y);
}

static void views_and_wide(void) {
    tensor *base = tensor_new(FMT_DFP16, TENSOR_SHAPE(2, 6)), *view = tensor_new_view(base, TENSOR_SHAPE(3, 4));
    double values[12], back[12];
    for (int i = 0; i < 12; i++)
        values[i] = i * 1000.0 - 1.0 / 3;
    tensor_load_f64(base, values, 12);
    CHECK(tensor_exponent(view) == tensor_exponent(base) && tensor_data(view) == tensor_data(base),
          "view has its own state");
    CHECK(!tensor_new_view(base, TENSOR_SHAPE(5)), "a view of another size was made");
    CHECK(!tensor_keep_wide(base), "%s", tensor_error());
    CHECK(tensor_bytes(base) == 12 * 6, "%zu bytes", tensor_bytes(base));
    tensor_load_f64(base, values, 12);
    tensor_store_wide_f64(base, back, 12);
    for (int i = 0; i < 12; i++)
        CHECK(fabs(back[i] - values[i]) <= ldexp(0.5, -tensor_exponent(base) - 16), "wide[%d] %a for %a", i, back[i],
              values[i]);
    /* the wide copy accumulates updates far below the 16-bit step, and enough of them change the view */
    tensor *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1)), *v = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1));
    tensor_keep_wide(w);
    tensor_load_f64(w, (double[]){1}, 1);
    tensor_load_f64(v, (double[]){1}, 1);
    tensor_set_predictor(w, "fixed");
    for (int i = 0; i < 1024; i++)
        CHECK(!tensor_sgd_update(w, v, 0x1p-20f), "%s", tensor_error());
    double now;
    tensor_store_f64(w, &now, 1);
    CHECK(now == 1 - 0x1p-10, "after 1024 updates of 2^-20: %a", now);
    tensor_free(v);
    tensor_free(w);
    tensor_free(view);
    tensor_free(base);
}

/* Batch normalisation under "current": the exponent follows this very result, however far it is from the last write. */
static void normalisation_jumps(void) {
    tensor *x = tensor_new(FMT_DFP16, TENSOR_SHAPE(4, 1)), *y = tensor_new(FMT_DFP16, TENSOR_SHAPE(4, 1)),
           *gamma = tensor_new(FMT_DFP16, TENSOR_SHAPE(1)), *beta = tensor_new(FMT_DFP16, TENSOR_SHAPE(1));
    tensor_load_f64(x, (double[]){1, 2, 3, -6}, 4);
    const double gains[] = {1, 1e-9, 1, 1e-12, 1e6, 0, 1, 0}, offsets[] = {0, 0, 0, 0, 0, 1e-4, 0, 1000};
    for (int i = 0; i < 8; i++) {
        double mean, variance, v[4];
        tensor_load_f64(gamma, &gains[i], 1);
        tensor_load_f64(beta, &offsets[i], 1);
        tensor_store_f64(gamma, &v[0], 1);
        tensor_store_f64(beta, &v[1], 1);
        const double g = v[0], b = v[1];
        host_moments(&mean, &variance, x);
        CHECK(!host_batchnorm(y, x, NULL, gamma, beta, &mean, &variance, 1e-5, false), "%s", tensor_error());
        tensor_store_f64(y, v, 4);
        const double want = g * (-6 - mean) / sqrt(variance + 1e-5) + b;
        tensor_stats s;
        tensor_statistics(&s, NULL, y);
        CHECK(s.saturated == 0 && s.gamma >= 16384, "gain %g: saturated %d gamma %d", gains[i], (int)s.saturated,
              s.gamma);
        CHECK(fabs(v[3] - want) <= ldexp(1, -tensor_exponent(y)), "gain %g: %a want %a e %d", gains[i], v[3], want,
              tensor_exponent(y));
    }
    tensor *all[] = {x, y, gamma, beta};
    for (int i = 0; i < 4; i++)
        tensor_free(all[i]);
}

/* Bias, residual and ReLU joined to a product, on numbers that every format represents exactly; in place, over an
 * exponent that changes with the result; and with nothing to join. */
static void fused(void) {
    enum { M = 3, K = 20, N = 5 };
    for (int f = 0; tensor_format_at(f); f++) {
        const tensor_format format = tensor_format_at(f);
        tensor *a = tensor_new(format, TENSOR_SHAPE(M, K)), *b = tensor_new(format, TENSOR_SHAPE(K, N)),
               *bt = tensor_new(format, TENSOR_SHAPE(N, K)), *bias = tensor_new(format, TENSOR_SHAPE(N)),
               *y = tensor_new(format, TENSOR_SHAPE(M, N)), *image = tensor_new_view(a, TENSOR_SHAPE(M, 1, 1, K)),
               *filters = tensor_new_view(bt, TENSOR_SHAPE(N, 1, 1, K)), *r = tensor_new(format, TENSOR_SHAPE(M, N)),
               *pixels = tensor_new(format, TENSOR_SHAPE(M, 1, 1, N)),
               *r_pixels = tensor_new_view(r, TENSOR_SHAPE(M, 1, 1, N));
        double va[M * K], vb[K * N], vt[N * K], vc[N], vr[M * N], want[M * N], got[4][M * N];
        for (int i = 0; i < M * K; i++)
            va[i] = i % 7 - 3;
        for (int i = 0; i < K * N; i++)
            vt[i % N * K + i / N] = vb[i] = i % 5 - 2;
        for (int j = 0; j < N; j++)
            vc[j] = j - 2;
        for (int i = 0; i < M * N; i++) {
            vr[i] = i % 4 * 4.25;
            want[i] = vc[i % N] + vr[i];
            for (int k = 0; k < K; k++)
                want[i] += va[i / N * K + k] * vb[k * N + i % N];
            want[i] = want[i] > 0 ? want[i] : 0;
        }
        CHECK(!tensor_load_f64(a, va, M * K) && !tensor_load_f64(b, vb, K * N) && !tensor_load_f64(bt, vt, N * K) &&
                  !tensor_load_f64(bias, vc, N) && !tensor_load_f64(r, vr, M * N) && !tensor_load_f64(y, vr, M * N),
              "%s", tensor_error());
        const tensor_epilogue all = {.bias = bias, .residual = r, .relu = true};
        const tensor_window how = {TENSOR_SQUARE(0, 1, 0)};
        CHECK(!tensor_matmul_fused(y, a, b, &(tensor_epilogue){.bias = bias, .residual = y, .relu = true}), "%s",
              tensor_error());
        tensor_store_f64(y, got[0], M * N);
        CHECK(!tensor_matmul_fused(y, a, b, &all), "%s", tensor_error());
        tensor_store_f64(y, got[1], M * N);
        CHECK(!tensor_matmul_nt_fused(y, a, bt, &all), "%s", tensor_error());
        tensor_store_f64(y, got[2], M * N);
        CHECK(!tensor_conv2d_fused(pixels, image, filters, &how,
                                   &(tensor_epilogue){.bias = bias, .residual = r_pixels, .relu = true}),
              "%s", tensor_error());
        tensor_store_f64(pixels, got[3], M * N);
        for (int c = 0; c < 4; c++)
            for (int i = 0; i < M * N; i++)
                CHECK(got[c][i] == want[i], "%s call %d [%d]: %g want %g", tensor_format_name(format), c, i, got[c][i],
                      want[i]);
        tensor_stats s;
        tensor_statistics(&s, NULL, y);
        CHECK(s.elements == M * N && s.writes == 1 && s.saturated == 0 && s.flushed == 0, "%s: not one clean write",
              tensor_format_name(format));
        tensor *plain = tensor_new(format, TENSOR_SHAPE(M, N)), *alone = tensor_new(format, TENSOR_SHAPE(M, N));
        CHECK(!tensor_matmul_fused(alone, a, b, &(tensor_epilogue){NULL, NULL, false}) && !tensor_matmul(plain, a, b),
              "%s", tensor_error());
        tensor_store_f64(alone, got[0], M * N);
        tensor_store_f64(plain, got[1], M * N);
        CHECK(!memcmp(got[0], got[1], sizeof got[0]), "%s: joining nothing is not the product",
              tensor_format_name(format));
        tensor *made[] = {image, filters, r_pixels, pixels, a, b, bt, bias, y, r, plain, alone};
        for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
            tensor_free(made[i]);
    }
}

int main(void) {
    fused();
    normalisation_jumps();
    load_and_store();
    exponents();
    zero_then_normal();
    growing_writes();
    statistics();
    views_and_wide();
    return check_summary();
}
