/* test_int8_elementwise.c - additions, changes of scale, pooling, softmax: every pair of operands for scales drawn at
 * random, against witnesses in integers, and against what LiteRT 2.3 returned. */
#include "check.h"
#include "flexlab/tensor.h"
#include "int8_witness.h"
#include <string.h>

static int64_t draw(uint64_t *state, int64_t least, int64_t most) {
    return least + (int64_t)(check_random(state) % (uint64_t)(most - least + 1));
}

static struct fl_int8_type draw_type(uint64_t *state) {
    struct fl_int8_type t = {expf((float)draw(state, -3000, 0) / 1000), 0, draw(state, 0, 1)};
    if (draw(state, 0, 2) == 0)
        t.scale = ldexpf(1, (int)draw(state, -4, 0));
    t.zero = (int32_t)draw(state, t.is_unsigned ? 0 : -128, t.is_unsigned ? 255 : 127);
    return t;
}

static int64_t least(const struct fl_int8_type *t) {
    return t->is_unsigned ? 0 : -128;
}

static int64_t saturate(int64_t q, const struct fl_int8_type *t) {
    return q < least(t) ? least(t) : q > least(t) + 255 ? least(t) + 255 : q;
}

static int64_t witness_add(enum fl_int8_rounding rounding, const struct fl_int8_type t[3], int64_t a, int64_t b) {
    const double over = t[2].scale;
    if (rounding == FL_INT8_EXACT) {
        const struct witness_number m = witness_bits((double)t[0].scale / over, 31, TIES_EVEN),
                                    n = witness_bits((double)t[1].scale / over, 31, TIES_EVEN);
        return (int64_t)witness_exact(a, m.integer, -m.exponent, b, n.integer, -n.exponent);
    }
    if (rounding == FL_INT8_TFLITE_XNNPACK) { /* coefficients of 21 bits over a common power of two */
        const float x = t[0].scale / t[2].scale, y = t[1].scale / t[2].scale;
        int e;
        frexpf(x > y ? x : y, &e);
        const int shift = 21 - e;
        const int64_t m = (int64_t)rint(ldexp(x, shift)), n = (int64_t)rint(ldexp(y, shift));
        return (int64_t)witness_divide((__int128)a * m + (__int128)b * n, (__int128)1 << shift, TIES_UP);
    }
    const double twice = 2.0 * (double)(t[0].scale > t[1].scale ? t[0].scale : t[1].scale);
    const int64_t x = witness_tflite((int32_t)(a * 1048576), (double)t[0].scale / twice, false, TIES_AWAY),
                  y = witness_tflite((int32_t)(b * 1048576), (double)t[1].scale / twice, false, TIES_AWAY);
    return witness_tflite((int32_t)(x + y), twice / (1048576.0 * over), false, TIES_AWAY);
}

static void test_additions(void) {
    static uint8_t a[65536], b[65536], y[65536];
    uint64_t state = 11;
    for (int i = 0; i < 65536; i++) {
        a[i] = (uint8_t)i;
        b[i] = (uint8_t)(i >> 8);
    }
    for (int trial = 0; trial < 80; trial++) {
        static const char *const sets[] = {"ref", "portable", "avx2", "avx512", "avx512_amx"};
        CHECK(!tensor_set_backend(sets[trial / 4 % 5]), "%s", tensor_error());
        const enum fl_int8_rounding rounding = (enum fl_int8_rounding[]){
            FL_INT8_EXACT, FL_INT8_TFLITE, FL_INT8_TFLITE_RUY, FL_INT8_TFLITE_XNNPACK}[trial % 4];
        struct fl_int8_type t[3];
        for (int i = 0; i < 3; i++)
            t[i] = draw_type(&state);
        CHECK(!fl_int8_add(rounding, 65536, &t[0], a, &t[1], b, &t[2], (struct fl_int8_range){0, 0}, y), "%s",
              tensor_error());
        int wrong = 0, first = 0;
        for (int i = 65535; i >= 0; i--) {
            const int64_t wanted =
                saturate(witness_add(rounding, t, witness_element(a, t[0].is_unsigned, i) - t[0].zero,
                                     witness_element(b, t[1].is_unsigned, i) - t[1].zero) +
                             t[2].zero,
                         &t[2]);
            if (witness_element(y, t[2].is_unsigned, i) != wanted) {
                wrong++;
                first = i;
            }
        }
        CHECK(!wrong, "trial %d, %s: %d of 65536 sums differ, first of bytes %d and %d", trial,
              fl_int8_rounding_name(rounding), wrong, first & 255, first >> 8);
    }
}

static int64_t witness_requantise(enum fl_int8_rounding rounding, const struct fl_int8_type *x,
                                  const struct fl_int8_type *y, int64_t q) {
    const double real = (double)x->scale / (double)y->scale;
    if (rounding == FL_INT8_EXACT) {
        const struct witness_number m = witness_bits(real, 31, TIES_EVEN);
        return (int64_t)witness_divide((__int128)q * m.integer, (__int128)1 << -m.exponent, TIES_EVEN);
    }
    if (rounding == FL_INT8_TFLITE_XNNPACK)
        return (int64_t)witness_divide(q * (int64_t)rint((double)(256 * (x->scale / y->scale))), 256, TIES_UP);
    return witness_tflite((int32_t)q, real, false, rounding == FL_INT8_TFLITE ? TIES_AWAY : TIES_UP);
}

static void test_requantisation(void) {
    uint8_t x[256], y[256], joined[512];
    uint64_t state = 12;
    for (int i = 0; i < 256; i++)
        x[i] = (uint8_t)i;
    for (int trial = 0; trial < 200; trial++) {
        const enum fl_int8_rounding rounding = (enum fl_int8_rounding[]){
            FL_INT8_EXACT, FL_INT8_TFLITE, FL_INT8_TFLITE_RUY, FL_INT8_TFLITE_XNNPACK}[trial % 4];
        const struct fl_int8_type from = draw_type(&state), to = draw_type(&state), both[2] = {from, to};
        CHECK(!fl_int8_requantise(rounding, 256, &from, x, &to, (struct fl_int8_range){0, 0}, y), "%s", tensor_error());
        int wrong = 0;
        for (int i = 0; i < 256; i++)
            wrong +=
                witness_element(y, to.is_unsigned, i) !=
                saturate(witness_requantise(rounding, &from, &to, witness_element(x, from.is_unsigned, i) - from.zero) +
                             to.zero,
                         &to);
        CHECK(!wrong, "trial %d, %s: %d of 256 differ", trial, fl_int8_rounding_name(rounding), wrong);
        CHECK(!fl_int8_concatenate(rounding, 2, 2, (int64_t[]){128, 128}, both, (const void *[]){x, x}, &to, joined),
              "%s", tensor_error());
        CHECK(!memcmp(joined, y, 128) && !memcmp(joined + 128, x, 128) && !memcmp(joined + 256, y + 128, 128) &&
                  !memcmp(joined + 384, x + 128, 128),
              "trial %d: joined tensors", trial);
        CHECK(!fl_int8_clamp(256, &to, y, (struct fl_int8_range){to.zero, (int32_t)least(&to) + 255}, y), "%s",
              tensor_error());
        for (int i = 0; i < 256; i++)
            CHECK(witness_element(y, to.is_unsigned, i) >= to.zero, "relu of %d", i);
    }
}

static void test_quantisation(void) {
    const struct fl_int8_type t = {0.25f, -3, false};
    const float x[] = {0, 0.125f, 0.375f, -0.125f, -0.375f, 1e30f, -1e30f, NAN, INFINITY, -INFINITY, 0.13f, -31.25f};
    const int8_t even[] = {-3, -3, -1, -3, -5, 127, -128, -3, 127, -128, -2, -128},
                 away[] = {-3, -2, -1, -4, -5, 127, -128, -3, 127, -128, -2, -128};
    int8_t y[12];
    float back[12];
    for (int rounding = 0; rounding < FL_INT8_ROUNDINGS; rounding++) {
        CHECK(!fl_int8_quantise((enum fl_int8_rounding)rounding, 12, x, &t, y), "%s", tensor_error());
        CHECK(!memcmp(y, rounding == FL_INT8_TFLITE ? away : even, 12), "rounding %d: quantised numbers", rounding);
    }
    CHECK(!fl_int8_dequantise(12, &t, even, back) && back[0] == 0 && back[5] == 32.5f && back[6] == -31.25f, "%g %g %g",
          (double)back[0], (double)back[5], (double)back[6]);
}

/* Many numbers at once, ties among them, against one at a time; and back. */
static void test_many_numbers(void) {
    enum { MOST = 40000 };
    uint64_t seed = 41, *const state = &seed;
    static float x[MOST], back[MOST];
    static uint8_t y[MOST];
    for (int k = 0; k < 60; k++) {
        const struct fl_int8_type t = {
            ldexpf((float)(check_random(state) % 4 ? check_random(state) % 1000 + 1 : 1), -9),
            (int32_t)(check_random(state) % 256) - (k % 2 ? 0 : 128), k % 2};
        const enum fl_int8_rounding rounding = (enum fl_int8_rounding)(k % FL_INT8_ROUNDINGS);
        const int count = k % 10 ? (int)(check_random(state) % 700) : MOST;
        const bool multiply = rounding == FL_INT8_TFLITE_RUY || rounding == FL_INT8_TFLITE_XNNPACK;
        for (int i = 0; i < count; i++)
            x[i] = (float)((int)(check_random(state) % 1200) - 600) / 2 * t.scale *
                   (check_random(state) % 3 ? 1 : (float)(check_random(state) % 1000) / 999);
        CHECK(!fl_int8_quantise(rounding, count, x, &t, y) && !fl_int8_dequantise(count, &t, y, back), "%s",
              tensor_error());
        for (int i = 0; i < count; i++) {
            const float real = multiply ? x[i] * (1 / t.scale) : x[i] / t.scale;
            const double q = (double)(rounding == FL_INT8_TFLITE ? roundf(real) : nearbyintf(real)) + t.zero;
            const int want = (int)saturate((int64_t)q, &t), got = witness_element(y, t.is_unsigned, i);
            CHECK(got == want, "rounding %d, scale %a, zero %d: %a is %d, expected %d", (int)rounding, (double)t.scale,
                  t.zero, (double)x[i], got, want);
            CHECK(back[i] == (float)(got - t.zero) * t.scale, "%d is %a", got, (double)back[i]);
        }
    }
}

/* The mean of windows that reach over the border, and the largest. */
static void test_pools(void) {
    uint64_t state = 13;
    for (int trial = 0; trial < 120; trial++) {
        const int64_t n = draw(&state, 1, 3), h = draw(&state, 4, 13), w = draw(&state, 4, 13), c = draw(&state, 1, 70);
        const struct fl_int8_window win = {.height = draw(&state, 2, 4),
                                           .width = draw(&state, 2, 4),
                                           .stride_h = draw(&state, 1, 3),
                                           .stride_w = draw(&state, 1, 3),
                                           .top = draw(&state, 0, 1),
                                           .right = draw(&state, 0, 1)};
        const bool exact = trial % 2 == 0, padded = draw(&state, 0, 1);
        const struct fl_int8_type x_type = draw_type(&state), y_type = exact ? draw_type(&state) : x_type;
        const int64_t height = fl_int8_positions(h, win.top, 0, win.height, win.stride_h, 1),
                      width = fl_int8_positions(w, 0, win.right, win.width, win.stride_w, 1);
        uint8_t *x = malloc((size_t)(n * h * w * c)), *y = malloc((size_t)(n * height * width * c)),
                *most = malloc((size_t)(n * height * width * c));
        for (int64_t i = 0; i < n * h * w * c; i++)
            x[i] = (uint8_t)check_random(&state);
        CHECK(!fl_int8_average_pool(exact ? FL_INT8_EXACT : FL_INT8_TFLITE, n, h, w, c, &win, padded, &x_type, x,
                                    &y_type, (struct fl_int8_range){0, 0}, y),
              "%s", tensor_error());
        CHECK(!fl_int8_max_pool(n, h, w, c, &win, &x_type, (struct fl_int8_range){0, 0}, x, most), "%s",
              tensor_error());
        int64_t wrong = 0;
        for (int64_t i = 0; i < n * height * width * c; i++) {
            const int64_t channel = i % c, column = i / c % width, row = i / c / width % height,
                          image = i / c / width / height;
            int64_t sum = 0, count = 0, largest = -1000;
            for (int64_t j = 0; j < win.height * win.width; j++) {
                const int64_t at_y = row * win.stride_h - win.top + j / win.width,
                              at_x = column * win.stride_w + j % win.width;
                const bool inside = at_y >= 0 && at_y < h && at_x < w;
                const int32_t q =
                    inside ? witness_element(x, x_type.is_unsigned, ((image * h + at_y) * w + at_x) * c + channel)
                           : x_type.zero;
                sum += inside || padded ? q : 0;
                count += inside || padded;
                largest = inside && q > largest ? q : largest;
            }
            const struct witness_number m = witness_bits((double)x_type.scale / (double)y_type.scale, 31, TIES_EVEN);
            const int64_t q = exact ? (int64_t)witness_divide((__int128)(sum - count * x_type.zero) * m.integer,
                                                              (__int128)count << -m.exponent, TIES_EVEN) +
                                          y_type.zero
                                    : (int64_t)witness_divide(sum, count, TIES_AWAY);
            wrong += witness_element(y, y_type.is_unsigned, i) != saturate(q, &y_type);
            wrong += witness_element(most, x_type.is_unsigned, i) != largest;
        }
        CHECK(!wrong, "trial %d: %lld differ", trial, (long long)wrong);
        free(x);
        free(y);
        free(most);
    }
}

/* What LiteRT 2.3 returned, from the reference kernels and from the optimised ones. */
static void test_recorded(void) {
    static const struct {
        float scale;
        int32_t zero;
        int8_t x[11], y[11];
    } rows[] = {
        {0.05f,
         3,
         {-113, 73, 34, 13, 75, -66, 93, -43, 119, -47, -37},
         {-128, -111, -126, -127, -109, -128, -82, -128, 42, -128, -128}},
        {0.14469251f,
         14,
         {-29, -45, 77, -81, -105, 105, -33, -75, 74, 58, 66},
         {-128, -128, -124, -128, -128, 120, -128, -128, -125, -128, -127}},
        {0.9f,
         -128,
         {61, 26, 120, -95, 69, -36, 44, 94, -13, 122, -76},
         {-128, -128, -92, -128, -128, -128, -128, -128, -128, 92, -128}},
    };
    const struct fl_int8_type y_type = {0x1p-8f, -128, false};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct fl_int8_type x_type = {rows[i].scale, rows[i].zero, false};
        int8_t y[11];
        CHECK(!fl_int8_softmax(FL_INT8_TFLITE, 1, 11, 1, &x_type, rows[i].x, &y_type, y) && !memcmp(y, rows[i].y, 11),
              "softmax %zu, reference kernel", i);
        CHECK(!fl_int8_softmax(FL_INT8_TFLITE_RUY, 1, 11, 1, &x_type, rows[i].x, &y_type, y) &&
                  !memcmp(y, rows[i].y, 11),
              "softmax %zu, optimised kernel", i);
        CHECK(!fl_int8_softmax(FL_INT8_EXACT, 1, 11, 1, &x_type, rows[i].x, &y_type, y), "%s", tensor_error());
        for (int j = 0; j < 11; j++)
            CHECK(abs(y[j] - rows[i].y[j]) <= 1, "softmax %zu: %d and %d", i, y[j], rows[i].y[j]);
    }
    const int8_t a[] = {53, -92, -87, -118, 96, -82, -87, -11, -42, -62},
                 b[] = {-38, -43, -29, 35, -99, 12, -81, 12, 65, -41},
                 sum[] = {91, -33, -21, -14, 95, 4, -48, 63, 65, -7};
    for (int rounding = FL_INT8_TFLITE; rounding <= FL_INT8_TFLITE_XNNPACK; rounding++) {
        int8_t y[10];
        CHECK(!fl_int8_add((enum fl_int8_rounding)rounding, 10, &(struct fl_int8_type){0.05f, 3, false}, a,
                           &(struct fl_int8_type){0.031f, -100, false}, b, &(struct fl_int8_type){0.06f, 17, false},
                           (struct fl_int8_range){0, 0}, y) &&
                  !memcmp(y, sum, 10),
              "additions, rounding %d", rounding);
    }
}

static void test_refusals(void) {
    const struct fl_int8_type t = {1, 0, false}, small = {1e-6f, 0, false}, wrong = {-1, 0, false};
    const struct fl_int8_window none = {.height = 5, .width = 1};
    const struct fl_int8_range all = {0, 0};
    int8_t x[4] = {1, 2, 3, 4}, y[4] = {9, 9, 9, 9};
    CHECK(fl_int8_add(FL_INT8_TFLITE, 4, &t, x, &t, x, &small, all, y) == TENSOR_E_ARGUMENT, "scales too far apart");
    CHECK(fl_int8_add(FL_INT8_EXACT, 4, &t, x, &wrong, x, &t, all, y) == TENSOR_E_ARGUMENT, "a negative scale");
    CHECK(fl_int8_requantise(FL_INT8_ROUNDINGS, 4, &t, x, &t, all, y) == TENSOR_E_ARGUMENT, "no rounding");
    CHECK(fl_int8_max_pool(1, 4, 1, 1, &none, &t, all, x, y) == TENSOR_E_SHAPE, "a window larger than the image");
    CHECK(fl_int8_average_pool(FL_INT8_TFLITE, 1, 4, 1, 1, &(struct fl_int8_window){.height = 2, .width = 1}, false, &t,
                               x, &small, all, y) == TENSOR_E_ARGUMENT,
          "an average at another scale");
    CHECK(fl_int8_softmax(FL_INT8_TFLITE, 1, 4, 1, &t, x, &t, y) == TENSOR_E_ARGUMENT, "an output of another scale");
    CHECK(y[0] == 9 && y[3] == 9, "a failure wrote results");
    for (int i = 0; i < FL_INT8_ROUNDINGS; i++)
        CHECK(fl_int8_rounding_named(fl_int8_rounding_name((enum fl_int8_rounding)i)) == (enum fl_int8_rounding)i,
              "rounding %d by name", i);
}

int main(void) {
    test_additions();
    test_requantisation();
    test_quantisation();
    test_many_numbers();
    test_pools();
    test_recorded();
    test_refusals();
    return check_summary();
}
