/* Numbers as tensors: running statistics against their formula, optional results of losses, bytes through a table;
 * errors name their cause. */
#include "check.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

enum { MOST = 4096 };

static uint64_t seed = 20261122;

static double uniform(void) {
    return (double)(check_random(&seed) >> 11) * 0x1p-53 - 0.5;
}

static tensor *filled(tensor_format format, int64_t rows, int64_t channels, double size) {
    static double values[MOST];
    tensor *t = channels ? tensor_new(format, TENSOR_SHAPE(rows, channels)) : tensor_new(format, TENSOR_SHAPE(rows));
    for (int64_t i = 0; i < tensor_count(t); i++)
        values[i] = uniform() * size;
    CHECK(t && !tensor_load_f64(t, values, tensor_count(t)), "%s", tensor_error());
    return t;
}

static tensor *numbers(tensor_format format, int64_t n) {
    tensor *t = tensor_new(format, TENSOR_SHAPE(n));
    CHECK(t != NULL, "%s", tensor_error());
    return t;
}

static void same_elements(const char *what, const tensor *a, const tensor *b) {
    CHECK(tensor_exponent(a) == tensor_exponent(b) && tensor_count(a) == tensor_count(b) &&
              !memcmp(tensor_const_data(a), tensor_const_data(b),
                      (size_t)tensor_count(a) * tensor_format_bytes(tensor_format_of(a))),
          "%s: another result", what);
}

static void running_statistics(tensor_format format, int64_t rows, int64_t channels) {
    tensor *x = filled(format, rows, channels, 3);
    tensor *mean = numbers(FMT_F64, channels), *variance = numbers(FMT_F64, channels);
    double m[MOST], v[MOST], read[MOST];
    CHECK(!tensor_moments(mean, variance, x) && !tensor_store_f64(mean, m, channels) &&
              !tensor_store_f64(variance, v, channels),
          "%s", tensor_error());
    /* by their formula, from mean 0 and variance 1 */
    tensor *running[2] = {numbers(FMT_F64, channels), numbers(FMT_F64, channels)};
    double want[2][MOST];
    for (int64_t c = 0; c < channels; c++) {
        want[0][c] = 0;
        want[1][c] = read[c] = 1;
    }
    CHECK(!tensor_load_f64(running[1], read, channels), "%s", tensor_error());
    for (int step = 0; step < 5; step++) {
        CHECK(!tensor_running_statistics(running[0], running[1], mean, variance, x, 0.1), "%s", tensor_error());
        for (int64_t c = 0; c < channels; c++) {
            want[0][c] += 0.1 * (m[c] - want[0][c]);
            want[1][c] += 0.1 * (v[c] * (rows > 1 ? (double)rows / ((double)rows - 1) : 1) - want[1][c]);
        }
    }
    for (int i = 0; i < 2; i++) {
        CHECK(!tensor_store_f64(running[i], read, channels), "%s", tensor_error());
        for (int64_t c = 0; c < channels; c++)
            CHECK(read[c] == want[i][c], "running %s of channel %lld: %a, want %a", i ? "variance" : "mean",
                  (long long)c, read[c], want[i][c]);
        tensor_free(running[i]);
    }
    tensor *all[] = {x, mean, variance};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

static void cross_entropy(tensor_format format, int64_t rows, int64_t classes) {
    tensor *x = filled(format, rows, classes, 8), *a = tensor_new(format, TENSOR_SHAPE(rows, classes)),
           *b = tensor_new(format, TENSOR_SHAPE(rows, classes));
    tensor *loss = numbers(FMT_F64, 1), *predicted = numbers(FMT_I32, rows), *correct = numbers(FMT_I32, 1),
           *labels = numbers(FMT_I32, rows);
    int32_t l[MOST], p[MOST], read[MOST], right, expected = 0;
    double one, other;
    tensor *scale = numbers(FMT_F64, 1);
    const tensor_loss_options two = {.gradient_scale = 2}, there = {.gradient_scale_tensor = scale};
    for (int64_t i = 0; i < rows; i++)
        l[i] = (int32_t)(check_random(&seed) % (uint64_t)classes);
    CHECK(!tensor_load_i32(labels, l, rows) && !tensor_load_f64(scale, &(double){2}, 1), "%s", tensor_error());
    CHECK(!tensor_cross_entropy(loss, a, predicted, correct, x, labels, &two), "%s", tensor_error());
    CHECK(!tensor_store_f64(loss, &one, 1) && !tensor_store_i32(predicted, p, rows), "%s", tensor_error());
    for (int64_t i = 0; i < rows; i++)
        expected += p[i] == l[i];
    CHECK(!tensor_store_i32(correct, &right, 1) && right == expected, "%d right, want %d", right, expected);
    CHECK(!tensor_cross_entropy(loss, b, predicted, NULL, x, labels, &there), "%s", tensor_error());
    same_elements("gradient by a scale in a tensor", a, b);
    CHECK(!tensor_store_f64(loss, &other, 1) && one == other, "loss %a, with a scale in a tensor %a", one, other);
    CHECK(!tensor_store_i32(predicted, read, rows) && !memcmp(read, p, (size_t)rows * sizeof *p), "predictions");
    CHECK(!tensor_cross_entropy(loss, NULL, NULL, NULL, x, labels, NULL) && !tensor_store_f64(loss, &other, 1) &&
              one == other,
          "loss alone %a, want %a", other, one);
    l[rows - 1] = (int32_t)classes;
    CHECK(!tensor_load_i32(labels, l, rows), "%s", tensor_error());
    CHECK(tensor_cross_entropy(loss, a, NULL, NULL, x, labels, &two) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "expected 0 to"),
          "a label out of range: %s", tensor_error());
    same_elements("after a refused call", a, b);
    tensor *all[] = {x, a, b, loss, predicted, correct, labels, scale};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

/* Bytes through a table against loads of the same floats: elements, exponent, statistics. */
static void pixels(tensor_format format, int64_t count, int64_t channels, bool wide) {
    static uint8_t bytes[MOST];
    static float values[70 * 256], floats[MOST];
    for (int64_t i = 0; i < channels * 256; i++)
        values[i] = (float)((double)(i % 256) / 255 - 0.4) * (float)(1 + i / 256);
    for (int64_t i = 0; i < count * channels; i++) {
        bytes[i] = (uint8_t)check_random(&seed);
        floats[i] = values[i % channels * 256 + bytes[i]];
    }
    tensor *a = tensor_new(format, TENSOR_SHAPE(count, channels)),
           *b = tensor_new(format, TENSOR_SHAPE(count, channels));
    tensor *u8 = numbers(FMT_U8, count * channels), *table = tensor_new(FMT_F32, TENSOR_SHAPE(channels, 256));
    if (wide)
        CHECK(!tensor_keep_wide(a) && !tensor_keep_wide(b), "%s", tensor_error());
    CHECK(!tensor_load_u8(u8, bytes, count * channels) && !tensor_load_f32(table, values, channels * 256), "%s",
          tensor_error());
    for (int twice = 0; twice < 2; twice++) {
        tensor_stats s, t;
        CHECK(!tensor_load_pixels(a, u8, table) && !tensor_load_f32(b, floats, count * channels), "%s", tensor_error());
        same_elements("pixels", a, b);
        CHECK(!tensor_statistics(&s, NULL, a) && !tensor_statistics(&t, NULL, b) && !memcmp(&s, &t, sizeof s),
              "statistics of pixels");
    }
    CHECK(tensor_load_pixels(a, table, u8) == TENSOR_E_SHAPE && strstr(tensor_error(), "pixels is f32"), "%s",
          tensor_error());
    CHECK(tensor_load_pixels(a, u8, u8) == TENSOR_E_SHAPE && strstr(tensor_error(), "values is u8"), "%s",
          tensor_error());
    CHECK(tensor_load_pixels(NULL, u8, table) == TENSOR_E_ARGUMENT, "y NULL");
    tensor_free(a);
    tensor_free(b);
    tensor_free(u8);
    tensor_free(table);
}

static void refused(tensor_status got, tensor_status want, const char *part) {
    CHECK(got == want && strstr(tensor_error(), part), "status %d, message '%s', expected %d and '%s'", (int)got,
          tensor_error(), (int)want, part);
}

static void errors(void) {
    tensor *x = filled(FMT_FLEX16_5, 4, 3, 1), *f = numbers(FMT_F64, 3), *g = numbers(FMT_F64, 3),
           *four = numbers(FMT_F64, 4), *i = numbers(FMT_I32, 4), *bytes = numbers(FMT_U8, 4);
    double d[4] = {0};
    uint8_t b[4] = {1, 2, 3, 255};
    refused(tensor_add(f, f, g), TENSOR_E_FORMAT, "cannot be an operand of arithmetic");
    refused(tensor_moments(f, f, x), TENSOR_E_ARGUMENT, "same tensor");
    refused(tensor_moments(f, four, x), TENSOR_E_SHAPE, "variance is f64 4, expected f64 with 3 elements");
    refused(tensor_moments(f, i, x), TENSOR_E_FORMAT, "variance is i32 4");
    refused(tensor_moments(f, NULL, x), TENSOR_E_ARGUMENT, "variance is NULL");
    refused(tensor_load_f64(i, d, 4), TENSOR_E_FORMAT, "the tensor is i32, expected f64");
    refused(tensor_load_f32(f, (float[3]){0}, 3), TENSOR_E_FORMAT, "the tensor is f64, expected f32");
    refused(tensor_load_i32(f, (int32_t[3]){0}, 3), TENSOR_E_FORMAT, "the tensor is f64, expected i32");
    refused(tensor_store_i32(f, (int32_t[3]){0}, 3), TENSOR_E_FORMAT, "expected i32");
    refused(tensor_sum(d, f), TENSOR_E_FORMAT, "cannot be an operand");
    refused(tensor_running_statistics(f, g, f, g, x, 0.1), TENSOR_E_ARGUMENT, "same tensor");
    tensor *rows = tensor_new(FMT_F64, TENSOR_SHAPE(4, 3)), *more = tensor_new(FMT_F64, TENSOR_SHAPE(4, 3));
    refused(tensor_batchnorm(rows, more, NULL, f, g, f, g, 1e-5, false), TENSOR_E_FORMAT, "cannot be an operand");
    refused(tensor_batchnorm_grad(rows, f, g, more, more, NULL, f, f, g, 1e-5), TENSOR_E_FORMAT,
            "cannot be an operand");
    CHECK(!tensor_kernel_backend(FMT_F64, "add"), "a kernel that adds f64");
    static _Alignas(64) char memory[256];
    tensor *p = tensor_new_on(FMT_F64, TENSOR_SHAPE(3), memory, 64),
           *q = tensor_new_on(FMT_F64, TENSOR_SHAPE(3), memory, 64);
    refused(tensor_moments(p, q, x), TENSOR_E_ARGUMENT, "overlapping memory");
    tensor *l = numbers(FMT_F64, 1);
    refused(tensor_cross_entropy(l, NULL, i, NULL, x, i, NULL), TENSOR_E_ARGUMENT, "predicted and labels are the same");
    tensor_free(rows);
    tensor_free(more);
    tensor_free(p);
    tensor_free(q);
    tensor_free(l);
    refused(tensor_set_predictor(f, "paper"), TENSOR_E_FORMAT, "no shared exponent");
    CHECK(!tensor_load_u8(bytes, b, 4) && !tensor_store_f64(bytes, d, 4) && d[3] == 255, "bytes as numbers: %g", d[3]);
    tensor *y = tensor_new(FMT_BF16, TENSOR_SHAPE(4));
    CHECK(!tensor_convert(y, bytes) && !tensor_store_f64(y, d, 4) && d[2] == 3 && d[3] == 255, "bytes in bf16: %g",
          d[3]);
    refused(tensor_convert(bytes, y), TENSOR_E_FORMAT, "cannot be an operand");
    CHECK(!tensor_format_at(5) && tensor_format_bytes(FMT_I32) == 4 && !strcmp(tensor_format_name(FMT_F64), "f64"),
          "numbers among the formats");
    tensor *all[] = {x, f, g, four, i, bytes, y};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        tensor_free(all[k]);
}

int main(void) {
    static const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};
    static const int64_t sizes[][2] = {{2, 1}, {7, 3}, {33, 16}, {64, 10}, {40, 70}};
    for (int f = 0; f < 5; f++)
        for (int s = 0; s < 5; s++) {
            running_statistics(formats[f], sizes[s][0], sizes[s][1]);
            cross_entropy(formats[f], sizes[s][0], sizes[s][1]);
            pixels(formats[f], sizes[s][0], sizes[s][1], s == 2);
        }
    errors();
    return check_summary();
}
