/* device_products.c - how fast a device multiplies matrices and convolves: operations (two a product) each second, as a
 * JSON list.
 *
 *     device_products [DEVICE [SIZE...]]        cuda; 1024 2048 4096: square matrices; then the convolutions of
 * ResNet-20 of 512 images, unless SIZE was given
 *
 * In each of five formats, and in class fast ("bf16,fast") where tensor cores have it. Operands are random over the
 * whole range of mantissas. Each figure is the median of seven batches of calls that last 20 ms or more, each waited
 * for once.
 */
#define _GNU_SOURCE
#include "flexlab/tensor.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 7 };

static int rows_written;

static void check(tensor_status status) {
    if (!status)
        return;
    fprintf(stderr, "device_products: %s\n", tensor_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tensor *random_tensor(tensor_device *device, tensor_format format, int ndim, const int64_t *shape) {
    static uint64_t state = 1;
    tensor *t = tensor_new_in(device, format, ndim, shape);
    if (!t)
        check(tensor_error_status());
    const int64_t n = tensor_count(t);
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; values && i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((double)(state >> 40) * 0x1p-23 - 1);
    }
    check(values ? tensor_load_f32(t, values, n) : TENSOR_E_MEMORY);
    free(values);
    return t;
}

struct work {
    tensor *out, *a, *b;
    bool conv;
};

static void run(const struct work *w, int calls) {
    const tensor_window how = {TENSOR_SQUARE(0, 1, 1)};
    for (int i = 0; i < calls; i++)
        check(w->conv ? tensor_conv2d(w->out, w->a, w->b, &how) : tensor_matmul(w->out, w->a, w->b));
}

static int ascending(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

static void measure(tensor_device *device, const char *name, const char *format, struct work w, double products) {
    double seconds[BATCHES];
    int calls = 1;
    for (;; calls *= 2) { /* the first calls choose an exponent, and take memory */
        const double start = now();
        run(&w, calls);
        check(tensor_device_wait(device));
        if (now() - start >= 0.02 || calls >= 1 << 16)
            break;
    }
    for (int i = 0; i < BATCHES; i++) {
        const double start = now();
        run(&w, calls);
        check(tensor_device_wait(device));
        seconds[i] = (now() - start) / calls;
    }
    qsort(seconds, BATCHES, sizeof *seconds, ascending);
    printf("%s\n    {\"work\": \"%s\", \"format\": \"%s\", \"microseconds\": %.2f, \"tera_operations\": %.3f}",
           rows_written++ ? "," : "[", name, format, seconds[BATCHES / 2] * 1e6,
           2e-12 * products / seconds[BATCHES / 2]);
    fflush(stdout);
    tensor_free(w.out);
    tensor_free(w.a);
    tensor_free(w.b);
}

static void square(tensor_device *device, const char *format_name, tensor_format format, int64_t n) {
    char name[40];
    snprintf(name, sizeof name, "matmul %lld", (long long)n);
    const struct work w = {.out = tensor_new_in(device, format, TENSOR_SHAPE(n, n)),
                           .a = random_tensor(device, format, TENSOR_SHAPE(n, n)),
                           .b = random_tensor(device, format, TENSOR_SHAPE(n, n))};
    measure(device, name, format_name, w, (double)n * (double)n * (double)n);
}

static void convolution(tensor_device *device, const char *format_name, tensor_format format, int64_t side,
                        int64_t channels) {
    char name[40];
    snprintf(name, sizeof name, "conv2d %lldx%lldx%lld", (long long)side, (long long)side, (long long)channels);
    const struct work w = {.out = tensor_new_in(device, format, TENSOR_SHAPE(512, side, side, channels)),
                           .a = random_tensor(device, format, TENSOR_SHAPE(512, side, side, channels)),
                           .b = random_tensor(device, format, TENSOR_SHAPE(channels, 3, 3, channels)),
                           .conv = true};
    measure(device, name, format_name, w, 512.0 * (double)(side * side) * 9 * (double)(channels * channels));
}

int main(int argc, char **argv) {
    tensor_device *device = tensor_device_find(argc > 1 ? argv[1] : "cuda");
    if (!device)
        check(tensor_error_status());
    static const char *const formats[] = {
        "flex16+5", "dfp16", "bf16", "fp16", "fp32", "bf16,fast", "fp16,fast", "fp16,fast:sums=fp16", "fp32,fast:tf32"};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const char *const comma = strchr(formats[f], ',');
        char name[40];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(formats[f], ","), formats[f]);
        tensor_format format;
        tensor_class class = TENSOR_EXACT;
        check(tensor_format_find(&format, name));
        check(comma ? tensor_class_find(&class, comma + 1) : TENSOR_OK);
        check(tensor_set_class(class));
        for (int i = 2; i < argc; i++) {
            const long n = strtol(argv[i], NULL, 10);
            if (n < 1 || n > 32768) {
                fprintf(stderr, "device_products: size %s, expected 1 to 32768\n", argv[i]);
                return 1;
            }
            square(device, formats[f], format, n);
        }
        for (int64_t n = 1024; argc < 3 && n <= 4096; n *= 2)
            square(device, formats[f], format, n);
        for (int64_t i = 0; argc < 3 && i < 3; i++)
            convolution(device, formats[f], format, 32 >> i, 16 << i);
    }
    printf("%s\n", rows_written ? "\n]" : "[]");
    return 0;
}
