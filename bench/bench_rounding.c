/* Stochastic rounding against rounding to nearest: time of each operation that writes elements of 16 bits, one entry at
 * a time.
 *
 *     bench_rounding [FILTER] [--threads N] [--rounds N]     FILTER: a part of the name, for example add or flex16+5
 *
 * The two alternate in one process on the same operands; each time is the least of all rounds, so that other load of
 * the machine disturbs neither. Columns: <format>.<op>.<backend>, elements written, nanoseconds an element to nearest
 * and stochastically, their ratio. Images are those of the first layers of ResNet-20 at batch 128, which exceed the
 * caches (large), and of batch 4, which fit into them (small). */
#define _GNU_SOURCE
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(tensor_status status, const char *what) {
    if (status) {
        fprintf(stderr, "bench_rounding: %s: %s\n", what, tensor_error());
        exit(1);
    }
}

static tensor *new_tensor(tensor_format f, int ndim, const int64_t *shape) {
    tensor *t = tensor_new(f, ndim, shape);
    if (!t) {
        fprintf(stderr, "bench_rounding: %s\n", tensor_error());
        exit(1);
    }
    return t;
}

/* Nearly Gaussian elements, as in training. */
static tensor *random_tensor(tensor_format f, int ndim, const int64_t *shape, uint64_t seed) {
    tensor *t = new_tensor(f, ndim, shape);
    float *v = malloc((size_t)tensor_count(t) * sizeof *v);
    if (!v) {
        fprintf(stderr, "bench_rounding: out of memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < tensor_count(t); i++) {
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (int)(seed >> 48);
        }
        v[i] = (float)(sum - 131070) / 65536;
    }
    check(tensor_load_f32(t, v, tensor_count(t)), "load");
    free(v);
    return t;
}

/* Operands of every operation; `out`, and tensors like it for other shapes, are written. */
struct operands {
    tensor *x, *x2, *image, *vector, *filters, *a, *b, *logits, *wide;
    tensor *mean, *variance;
};

/* An operation writes one tensor y of a shape of its own. */
struct work {
    const char *name, *kernel; /* name of the entry; operation of the table that runs */
    int ndim;
    int64_t shape[4]; /* of y; a first entry of 0 stands for the batch */
    tensor_status (*run)(tensor *y, const struct operands *o);
};

static const tensor_window same3 = {TENSOR_SQUARE(0, 1, 1)};

#define WORK(name, call)                                                                                               \
    static tensor_status run_##name(tensor *y, const struct operands *o) {                                             \
        return call;                                                                                                   \
    }
WORK(add, tensor_add(y, o->x, o->x2))
WORK(sub, tensor_sub(y, o->x, o->x2))
WORK(mul, tensor_mul(y, o->x, o->x2))
WORK(scale, tensor_scale(y, o->x, 0.7f))
WORK(add_scaled, tensor_add_scaled(y, o->x, o->x2, 0.3f))
WORK(relu, tensor_relu(y, o->x))
WORK(square, tensor_square(y, o->x))
WORK(add_relu, tensor_add_relu(y, o->x, o->x2))
WORK(bias, tensor_bias(y, o->x, o->vector))
WORK(sgd_momentum, tensor_sgd_momentum(y, o->x, o->x2, 0.9f, 1e-4f))
WORK(sgd_update, tensor_sgd_update(y, o->x2, 1e-3f))
WORK(matmul, tensor_matmul(y, o->a, o->b))
WORK(matmul_nt, tensor_matmul_nt(y, o->a, o->b))
WORK(matmul_tn, tensor_matmul_tn(y, o->a, o->b))
WORK(matmul_fused, tensor_matmul_fused(y, o->a, o->b, &(tensor_epilogue){o->wide, o->a, true}))
WORK(conv2d, tensor_conv2d(y, o->x, o->filters, &same3))
WORK(conv2d_fused, tensor_conv2d_fused(y, o->x, o->filters, &same3, &(tensor_epilogue){o->vector, o->x2, true}))
WORK(conv2d_input_grad, tensor_conv2d_input_grad(y, o->x, o->filters, &same3))
WORK(conv2d_weight_grad, tensor_conv2d_weight_grad(y, o->x, o->x2, &same3))
WORK(avgpool, tensor_avgpool_global(y, o->x))
WORK(avgpool_grad, tensor_avgpool_global_grad(y, o->logits))
WORK(maxpool2d, tensor_maxpool2d(y, o->x, &(tensor_window){TENSOR_SQUARE(2, 2, 0)}))
WORK(sum_rows, tensor_sum_rows(y, o->x))
WORK(batchnorm, tensor_batchnorm(y, o->x, NULL, o->vector, o->vector, o->mean, o->variance, 1e-5, true))
#undef WORK

enum { SIDE = 512 }; /* of matrices */
static const struct work works[] = {
    {"add", "add", 4, {0, 32, 32, 16}, run_add},
    {"sub", "sub", 4, {0, 32, 32, 16}, run_sub},
    {"mul", "mul", 4, {0, 32, 32, 16}, run_mul},
    {"scale", "scale", 4, {0, 32, 32, 16}, run_scale},
    {"add_scaled", "add_scaled", 4, {0, 32, 32, 16}, run_add_scaled},
    {"relu", "relu", 4, {0, 32, 32, 16}, run_relu},
    {"square", "square", 4, {0, 32, 32, 16}, run_square},
    {"add_relu", "add_relu", 4, {0, 32, 32, 16}, run_add_relu},
    {"bias", "bias", 4, {0, 32, 32, 16}, run_bias},
    {"sgd_momentum", "sgd_momentum", 4, {0, 32, 32, 16}, run_sgd_momentum},
    {"sgd_update", "sgd_update", 4, {0, 32, 32, 16}, run_sgd_update},
    {"matmul", "matmul", 2, {SIDE, SIDE}, run_matmul},
    {"matmul_nt", "matmul_nt", 2, {SIDE, SIDE}, run_matmul_nt},
    {"matmul_tn", "matmul_tn", 2, {SIDE, SIDE}, run_matmul_tn},
    {"matmul, bias, residual, relu", "matmul", 2, {SIDE, SIDE}, run_matmul_fused},
    {"conv2d", "conv2d", 4, {0, 32, 32, 16}, run_conv2d},
    {"conv2d, bias, residual, relu", "conv2d", 4, {0, 32, 32, 16}, run_conv2d_fused},
    {"conv2d_input_grad", "conv2d_input_grad", 4, {0, 32, 32, 16}, run_conv2d_input_grad},
    {"conv2d_weight_grad", "conv2d_weight_grad", 4, {16, 3, 3, 16}, run_conv2d_weight_grad},
    {"avgpool_global", "avgpool_global", 2, {0, 16}, run_avgpool},
    {"avgpool_global_grad", "avgpool_global_grad", 4, {0, 32, 32, 16}, run_avgpool_grad},
    {"avgpool_global_grad 31x31", "avgpool_global_grad", 4, {0, 31, 31, 16}, run_avgpool_grad},
    {"maxpool2d", "maxpool2d", 4, {0, 16, 16, 16}, run_maxpool2d},
    {"sum_rows", "sum_rows", 1, {16}, run_sum_rows},
    {"channel_affine", "channel_affine", 4, {0, 32, 32, 16}, run_batchnorm},
};

static double time_once(const struct work *w, tensor *y, const struct operands *o) {
    const double start = now();
    check(w->run(y, o), w->name);
    return now() - start;
}

static void measure(const struct work *w, tensor_format f, int64_t batch, const struct operands *o, int rounds,
                    const char *backend, const char *size) {
    int64_t shape[4];
    for (int i = 0; i < w->ndim; i++)
        shape[i] = w->shape[i] ? w->shape[i] : batch;
    tensor *y[2];
    double least[2] = {INFINITY, INFINITY};
    for (int s = 0; s < 2; s++) {
        y[s] = random_tensor(f, w->ndim, shape, 3);
        check(tensor_set_rounding(y[s], s ? TENSOR_ROUND_STOCHASTIC : TENSOR_ROUND_NEAREST, 1), w->name);
        time_once(w, y[s], o); /* finds the exponent */
    }
    double spent = 0;
    for (int r = 0; r < rounds && (spent < 0.5 || r < 3); r++)
        for (int s = 0; s < 2; s++) {
            const double seconds = time_once(w, y[s], o);
            least[s] = fmin(least[s], seconds);
            spent += seconds;
        }
    const double count = (double)tensor_count(y[0]);
    char name[96];
    snprintf(name, sizeof name, "%s.%s.%s, %s", tensor_format_name(f), w->name, backend, size);
    printf("%-62s %9.0f %9.3f %9.3f %7.2fx\n", name, count, least[0] / count * 1e9, least[1] / count * 1e9,
           least[1] / least[0]);
    fflush(stdout);
    tensor_free(y[0]);
    tensor_free(y[1]);
}

static struct operands new_operands(tensor_format f, int64_t batch) {
    const int64_t image[4] = {batch, 32, 32, 16}, filters[4] = {16, 3, 3, 16}, square[2] = {SIDE, SIDE}, c[1] = {16},
                  row[1] = {SIDE}, logits[2] = {batch, 16};
    struct operands o = {.x = random_tensor(f, 4, image, 1),
                         .x2 = random_tensor(f, 4, image, 2),
                         .vector = random_tensor(f, 1, c, 8),
                         .filters = random_tensor(f, 4, filters, 4),
                         .a = random_tensor(f, 2, square, 5),
                         .b = random_tensor(f, 2, square, 6),
                         .logits = random_tensor(f, 2, logits, 7),
                         .wide = random_tensor(f, 1, row, 9),
                         .mean = tensor_new(FMT_F64, 1, c),
                         .variance = tensor_new(FMT_F64, 1, c)};
    check(tensor_moments(o.mean, o.variance, o.x), "moments");
    return o;
}

static void free_operands(struct operands *o) {
    tensor *all[] = {o->x, o->x2, o->vector, o->filters, o->a, o->b, o->logits, o->wide, o->mean, o->variance};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

static void measure_all(tensor_format f, const char *filter, int rounds) {
    static const char *const backends[] = {"portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    static const struct {
        const char *name;
        int64_t batch;
    } sizes[] = {{"large", 128}, {"small", 4}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct operands o = new_operands(f, sizes[s].batch);
        for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++)
            for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
                char name[96];
                snprintf(name, sizeof name, "%s.%s.%s, %s", tensor_format_name(f), works[i].name, backends[b],
                         sizes[s].name);
                check(tensor_set_backend(backends[b]), "set_backend");
                const char *active = tensor_kernel_backend(f, works[i].kernel);
                const bool here = active && !strcmp(active, backends[b]);
                const bool by_batch = works[i].shape[0] == 0 || works[i].ndim == 1;
                if (here && strstr(name, filter) && (by_batch || s == 0))
                    measure(&works[i], f, sizes[s].batch, &o, rounds, backends[b], sizes[s].name);
            }
        free_operands(&o);
    }
}

int main(int argc, char **argv) {
    const char *filter = "";
    int rounds = 25;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
            check(tensor_set_threads(atoi(argv[++i])), "--threads");
        } else if (!strcmp(argv[i], "--rounds") && i + 1 < argc && atoi(argv[i + 1]) > 0) {
            rounds = atoi(argv[++i]);
        } else if (argv[i][0] == '-') {
            fprintf(stderr, "usage: bench_rounding [FILTER] [--threads N] [--rounds N]\n");
            return 2;
        } else {
            filter = argv[i];
        }
    }
    printf("threads %d\n%-62s %9s %9s %9s %8s\n", tensor_threads(), "", "elements", "nearest", "stochastic", "ratio");
    measure_all(FMT_FLEX16_5, filter, rounds);
    measure_all(FMT_DFP16, filter, rounds);
    measure_all(FMT_FP16, filter, rounds);
    measure_all(FMT_BF16, filter, rounds);
    return 0;
}
