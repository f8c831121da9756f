/* The state of a tensor as bytes: a tensor that is given it goes on as the one that it was taken from, in every format
 * and with wide parts; bytes that are no state are refused and change nothing. tensor_rewrite: a conversion as an
 * operation writes. */
#include "check.h"
#include "flexlab/nn.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 37, STEPS = 5 };

static uint64_t seed = 0x57a7e;

static tensor *numbers(double scale) {
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(COUNT));
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(scale * ((double)(check_random(&seed) % 20001) / 10000 - 1));
    CHECK(t && !tensor_load_f32(t, values, COUNT), "%s", tensor_error());
    return t;
}

static void same(const char *name, const tensor *a, const tensor *b) {
    double x[COUNT], y[COUNT];
    CHECK(!tensor_store_wide_f64(a, x, COUNT) && !tensor_store_wide_f64(b, y, COUNT), "%s", tensor_error());
    CHECK(!memcmp(x, y, sizeof x), "%s: other values", name);
    CHECK(tensor_exponent(a) == tensor_exponent(b), "%s: exponents %d and %d", name, tensor_exponent(a),
          tensor_exponent(b));
}

/* Both take the same writes; the second began with the state of the first. */
static void go_on(const char *name, bool wide, const char *predictor) {
    tensor_format format;
    CHECK(!tensor_format_find(&format, name), "%s", tensor_error());
    tensor *a = tensor_new(format, TENSOR_SHAPE(COUNT)), *b = tensor_new(format, TENSOR_SHAPE(COUNT));
    CHECK(a && b, "%s", tensor_error());
    tensor *const both[] = {a, b};
    for (int k = 0; k < 2; k++) {
        if (predictor)
            CHECK(!tensor_set_predictor(both[k], predictor), "%s", tensor_error());
        if (wide)
            CHECK(!tensor_keep_wide(both[k]), "%s", tensor_error());
    }
    for (int step = 0; step < STEPS; step++) {
        tensor *x = numbers(ldexp(1, step));
        CHECK(!(wide ? tensor_convert(a, x) : tensor_rewrite(a, x)), "%s", tensor_error());
        tensor_free(x);
    }
    const size_t size = tensor_state_bytes(a, true);
    unsigned char *bytes = malloc(size);
    CHECK(bytes && !tensor_state_store(a, true, bytes, size) && !tensor_state_load(b, true, bytes, size), "%s",
          tensor_error());
    same(name, a, b);
    for (int step = 0; step < STEPS; step++) {
        tensor *x = numbers(ldexp(1, 2 * step));
        for (int k = 0; k < 2; k++)
            CHECK(!(wide ? tensor_convert(both[k], x) : tensor_rewrite(both[k], x)), "%s", tensor_error());
        same(name, a, b);
        tensor_free(x);
    }
    CHECK(tensor_state_store(a, true, bytes, size - 1) == TENSOR_E_ARGUMENT, "%s: %s", name, tensor_error());
    CHECK(tensor_state_load(b, false, bytes, size) == TENSOR_E_ARGUMENT, "%s: %s", name, tensor_error());
    memset(bytes, 0x55, size);
    CHECK(tensor_state_load(b, true, bytes, size) == TENSOR_E_DATA, "%s: %s", name, tensor_error());
    same(name, a, b);
    free(bytes);
    tensor_free(a);
    tensor_free(b);
}

/* Without a history, and for floats, the two conversions are one; NaN and Inf are only refused by tensor_convert. */
static void test_rewrite(void) {
    tensor *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(COUNT)), *z = tensor_new(FMT_BF16, TENSOR_SHAPE(COUNT)),
           *w = tensor_new(FMT_BF16, TENSOR_SHAPE(COUNT)), *x = numbers(3);
    double a[COUNT], b[COUNT];
    CHECK(!tensor_rewrite(z, x) && !tensor_convert(w, x), "%s", tensor_error());
    CHECK(!tensor_store_f64(z, a, COUNT) && !tensor_store_f64(w, b, COUNT) && !memcmp(a, b, sizeof a), "bf16");
    float bad[COUNT] = {INFINITY, NAN, 1};
    CHECK(!tensor_load_f32(x, bad, COUNT), "%s", tensor_error());
    CHECK(tensor_convert(y, x) != TENSOR_OK && !tensor_rewrite(y, x), "%s", tensor_error());
    CHECK(!tensor_store_f64(y, a, COUNT) && a[1] == 0 && a[0] > 0, "values %g %g", a[0], a[1]);
    CHECK(tensor_rewrite(NULL, x) == TENSOR_E_ARGUMENT && tensor_rewrite(y, NULL) == TENSOR_E_ARGUMENT, "NULL");
    CHECK(!tensor_rewrite(y, y), "%s", tensor_error());
    tensor_free(x);
    tensor_free(y);
    tensor_free(z);
    tensor_free(w);
}

int main(void) {
    static const char *const formats[] = {"fp32",  "fp16",    "bf16",   "flex16+5",
                                          "dfp16", "flex8+5", "e4m3fn", "tensor:e4m3fn"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const bool shared = strchr("fdt", formats[i][0]) && strncmp(formats[i], "fp", 2) != 0;
        go_on(formats[i], false, NULL);
        if (strcmp(formats[i], "fp32") != 0)
            go_on(formats[i], true, NULL);
        if (shared) {
            go_on(formats[i], false, "repeat");
            go_on(formats[i], false, "delayed:history=32:margin=1");
        }
    }
    test_rewrite();
    CHECK(tensor_state_bytes(NULL, true) == 0 && tensor_state_store(NULL, true, &seed, 1) == TENSOR_E_ARGUMENT, "NULL");
    CHECK(nn_name_key(1, NULL) == nn_name_key(1, "") && nn_name_key(1, "a") != nn_name_key(2, "a"), "keys");
    return check_summary();
}
