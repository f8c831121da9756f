/* Real functions and gradients beside memcpy: <format>.<function>.<backend>, milliseconds, nanoseconds an element, and
 * how much of the speed of a memcpy of as many bytes that is, fastest of repeated runs in turn. 16-bit formats look
 * results and slopes up in tables, which are there by then, where there are enough elements for one.
 *
 *     bench_functions [FILTER] [--threads N] [--elements N]      default: one thread, 2^25 elements */
#define _GNU_SOURCE
#include "flexlab/tensor_blocks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(void *p) {
    if (!p) {
        fprintf(stderr, "bench_functions: %s\n", *tensor_error() ? tensor_error() : "out of memory");
        exit(1);
    }
    return p;
}

/* Nearly Gaussian, as activations are. */
static tensor *operand(tensor_format f, int64_t n, uint64_t seed) {
    tensor *t = need(tensor_new(f, TENSOR_SHAPE(n)));
    float *v = need(malloc((size_t)n * sizeof *v));
    for (int64_t i = 0; i < n; i++) {
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (int)(seed >> 48);
        }
        v[i] = (float)(sum - 131070) / 65536;
    }
    tensor_load_f32(t, v, n);
    free(v);
    return t;
}

static tensor_status elu(tensor *y, const tensor *x) {
    return tensor_elu(y, x, 1);
}
static tensor_status elu_grad(tensor *dx, const tensor *dy, const tensor *x) {
    return tensor_elu_grad(dx, dy, x, 1);
}

static const struct row {
    const char *name;
    tensor_status (*function)(tensor *, const tensor *);
    tensor_status (*gradient)(tensor *, const tensor *, const tensor *);
} rows[] = {{"sigmoid", tensor_sigmoid, NULL},
            {"tanh", tensor_tanh, NULL},
            {"silu", tensor_silu, NULL},
            {"gelu", tensor_gelu, NULL},
            {"gelu_tanh", tensor_gelu_tanh, NULL},
            {"softplus", tensor_softplus, NULL},
            {"elu", elu, NULL},
            {"exp", tensor_exp, NULL},
            {"sin", tensor_sin, NULL},
            {"sigmoid_grad", NULL, tensor_sigmoid_grad},
            {"tanh_grad", NULL, tensor_tanh_grad},
            {"silu_grad", NULL, tensor_silu_grad},
            {"gelu_grad", NULL, tensor_gelu_grad},
            {"gelu_tanh_grad", NULL, tensor_gelu_tanh_grad},
            {"softplus_grad", NULL, tensor_softplus_grad},
            {"softsign_grad", NULL, tensor_softsign_grad},
            {"elu_grad", NULL, elu_grad},
            {"exp_grad", NULL, tensor_exp_grad},
            {"log_grad", NULL, tensor_log_grad},
            {"sin_grad", NULL, tensor_sin_grad}};

static tensor_status run(const struct row *row, tensor *y, const tensor *dy, const tensor *x) {
    return row->function ? row->function(y, x) : row->gradient(y, dy, x);
}

int main(int argc, char **argv) {
    static const char *const backends[] = {"portable", "avx2", "avx512bw"};
    const char *filter = "";
    int threads = 1;
    int64_t n = 1 << 25;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
            threads = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--elements") && i + 1 < argc) {
            n = atoll(argv[++i]);
        } else if (argv[i][0] == '-') {
            fprintf(stderr, "usage: bench_functions [FILTER] [--threads N] [--elements N]\n");
            return 2;
        } else {
            filter = argv[i];
        }
    }
    if (tensor_set_threads(threads) || n < 1)
        return fprintf(stderr, "bench_functions: %s\n", n < 1 ? "elements: expected at least 1" : tensor_error()), 2;
    printf("threads %d, %lld elements; ms, ns an element, ratio to memcpy of one thread\n", tensor_threads(),
           (long long)n);
    for (int k = 0; tensor_format_at(k); k++) {
        const tensor_format f = tensor_format_at(k);
        const size_t bytes = (size_t)n * tensor_format_bytes(f);
        tensor *x = operand(f, n, 1), *dy = operand(f, n, 2), *y = need(tensor_new(f, TENSOR_SHAPE(n)));
        char *copy = need(malloc(bytes));
        memset(copy, 1, bytes);
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
                char name[96];
                tensor_set_backend(backends[b]);
                const char *active = tensor_kernel_backend(f, rows[r].name);
                snprintf(name, sizeof name, "%s.%s.%s", tensor_format_name(f), rows[r].name, backends[b]);
                if (!strstr(name, filter) || !active || strcmp(active, backends[b]))
                    continue;
                double best = 1e9, best_copy = 1e9;
                double first = now();
                if (run(&rows[r], y, dy, x) || run(&rows[r], y, dy, x)) /* exponent and table */
                    return fprintf(stderr, "bench_functions: %s\n", tensor_error()), 1;
                first = now() - first;
                for (int i = 0; i < (first > 2 ? 1 : 9); i++) {
                    double start = now(), seconds;
                    memcpy(copy, tensor_const_data(x), bytes);
                    seconds = now() - start;
                    best_copy = seconds < best_copy ? seconds : best_copy;
                    start = now();
                    run(&rows[r], y, dy, x);
                    seconds = now() - start;
                    best = seconds < best ? seconds : best;
                }
                printf("%-32s %9.2f %8.3f   %.3fx\n", name, best * 1e3, best * 1e9 / (double)n, best_copy / best);
                fflush(stdout);
            }
        }
        free(copy);
        tensor_free(x);
        tensor_free(dy);
        tensor_free(y);
    }
    return 0;
}
