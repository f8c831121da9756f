/* Speed of the kernels of this machine: <format>.<op>.<backend>, one line each, random data, median of repeated runs.
 *
 *     bench_kernels [FILTER] [--threads N]     FILTER: a part of the name, for example conv2d or flex16+5.matmul.avx512
 *
 * Unit: G products/s for matmul and convolution, G elements/s for the rest. The last column is the ratio to the row
 * of the same operation below it (avx512 to avx512bw, avx512bw to avx2, avx2 to portable). */
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

static tensor *random_tensor(tensor_format f, int ndim, const int64_t *shape, uint64_t seed) {
    tensor *t = tensor_new(f, ndim, shape);
    float *v = t ? malloc((size_t)tensor_count(t) * sizeof *v) : NULL;
    if (!v) {
        fprintf(stderr, "bench_kernels: %s\n", t ? "out of memory" : tensor_error());
        exit(1);
    }
    for (int64_t i = 0; i < tensor_count(t); i++) { /* nearly Gaussian: mantissas as training has them */
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (int)(seed >> 48);
        }
        v[i] = (float)(sum - 131070) / 65536;
    }
    tensor_load_f32(t, v, tensor_count(t));
    free(v);
    return t;
}

/* As networks store weights and the states of Adam: at twice the width, if elements are narrow. */
static tensor *state_tensor(tensor_format f, int ndim, const int64_t *shape, uint64_t seed, const char *predictor) {
    tensor *t = random_tensor(f, ndim, shape, seed);
    if ((tensor_format_bytes(f) == 2 && tensor_keep_wide(t)) ||
        (tensor_format_is_shared(f) && tensor_set_predictor(t, predictor))) {
        fprintf(stderr, "bench_kernels: %s\n", tensor_error());
        exit(1);
    }
    return t;
}

/* One row each for combine, root_mean, add_ratio. */
static tensor *adam_factors(void) {
    static const double rows[] = {0.9, 0.1, 0, 0, 0.999, 0.001, 1, 0, 1 - 1e-5, -1e-3, 2, 1e-8};
    tensor *t = tensor_new(FMT_F64, TENSOR_SHAPE(3, 4));
    if (!t || tensor_load_f64(t, rows, 12)) {
        fprintf(stderr, "bench_kernels: %s\n", tensor_error());
        exit(1);
    }
    return t;
}

/* Everything an operation may need, at the sizes of the widest layer of ResNet-20 at batch 128 (and a 1024^3 matmul).
 */
struct operands {
    tensor *x, *x2, *y, *w, *a, *b, *c, *vector, *dgamma, *dbeta;
    tensor *mean, *variance;
    tensor *weight, *moment, *root, *factors; /* of optimisers: with wide parts */
};

static void run_op(const char *op, struct operands *o) {
    const tensor_window same = {TENSOR_SQUARE(0, 1, 1)};
    if (!strcmp(op, "matmul"))
        tensor_matmul(o->c, o->a, o->b);
    else if (!strcmp(op, "matmul_nt"))
        tensor_matmul_nt(o->c, o->a, o->b);
    else if (!strcmp(op, "matmul_tn"))
        tensor_matmul_tn(o->c, o->a, o->b);
    else if (!strcmp(op, "conv2d"))
        tensor_conv2d(o->y, o->x, o->w, &same);
    else if (!strcmp(op, "conv2d_input_grad"))
        tensor_conv2d_input_grad(o->y, o->x, o->w, &same);
    else if (!strcmp(op, "conv2d_weight_grad"))
        tensor_conv2d_weight_grad(o->w, o->x, o->x2, &same);
    else if (!strcmp(op, "channel_affine"))
        tensor_batchnorm(o->y, o->x, NULL, o->vector, o->vector, o->mean, o->variance, 1e-5, true);
    else if (!strcmp(op, "channel_affine_grad")) /* with channel_grad_sums, which always accompanies it */
        tensor_batchnorm_grad(o->y, o->dgamma, o->dbeta, o->x, o->x2, o->x2, o->vector, o->mean, o->variance, 1e-5);
    else if (!strcmp(op, "channel_sums"))
        tensor_moments(o->mean, o->variance, o->x);
    else if (!strcmp(op, "add"))
        tensor_add(o->y, o->x, o->x2);
    else if (!strcmp(op, "add_relu"))
        tensor_add_relu(o->y, o->x, o->x2);
    else if (!strcmp(op, "relu_grad"))
        tensor_relu_grad(o->y, o->x, o->x2);
    else if (!strcmp(op, "scale"))
        tensor_scale(o->y, o->x, 0.7f);
    else if (!strcmp(op, "sgd_momentum"))
        tensor_sgd_momentum(o->y, o->x, o->x2, 0.9f, 1e-4f);
    else if (!strcmp(op, "sgd_update"))
        tensor_sgd_update(o->weight, o->x, 1e-3f);
    else if (!strcmp(op, "combine"))
        tensor_combine(o->moment, o->moment, o->x, NULL, o->factors, 0);
    else if (!strcmp(op, "root_mean"))
        tensor_root_mean(o->root, o->x, o->factors, 1);
    else if (!strcmp(op, "add_ratio"))
        tensor_add_ratio(o->weight, o->weight, o->moment, o->root, o->factors, 2);
    else if (!strcmp(op, "clip"))
        tensor_clip(o->y, o->x, 0.5f);
}

static const struct {
    const char *op;
    double work; /* products or elements a call */
} rows[] = {{"matmul", 0x1p30},
            {"matmul_nt", 0x1p30},
            {"matmul_tn", 0x1p30},
            {"conv2d", 131072.0 * 16 * 144},
            {"conv2d_input_grad", 131072.0 * 16 * 144},
            {"conv2d_weight_grad", 131072.0 * 16 * 144},
            {"channel_sums", 131072.0 * 16},
            {"channel_affine", 131072.0 * 16},
            {"channel_affine_grad", 131072.0 * 16},
            {"add", 131072.0 * 16},
            {"add_relu", 131072.0 * 16},
            {"relu_grad", 131072.0 * 16},
            {"scale", 131072.0 * 16},
            {"sgd_momentum", 131072.0 * 16},
            {"sgd_update", 131072.0 * 16},
            {"combine", 131072.0 * 16},
            {"root_mean", 131072.0 * 16},
            {"add_ratio", 131072.0 * 16},
            {"clip", 131072.0 * 16}};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_once(const char *op, const char *backend, struct operands *o) {
    tensor_set_backend(backend);
    double start = now();
    run_op(op, o);
    return now() - start;
}

int main(int argc, char **argv) {
    static const char *const backends[] = {"portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    const char *filter = "";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
            if (tensor_set_threads(atoi(argv[++i]))) {
                fprintf(stderr, "bench_kernels: %s\n", tensor_error());
                return 2;
            }
        } else if (argv[i][0] == '-') {
            fprintf(stderr, "usage: bench_kernels [FILTER] [--threads N]\n");
            return 2;
        } else {
            filter = argv[i];
        }
    }
    printf("threads %d; unit G products/s (matmul, conv2d) or G elements/s\n", tensor_threads());
    for (int k = 0; tensor_format_at(k); k++) {
        const tensor_format f = tensor_format_at(k);
        const int64_t image[4] = {128, 32, 32, 16}, filters[4] = {16, 3, 3, 16}, square[2] = {1024, 1024}, c[1] = {16};
        struct operands o = {random_tensor(f, 4, image, 1),
                             random_tensor(f, 4, image, 2),
                             random_tensor(f, 4, image, 3),
                             random_tensor(f, 4, filters, 4),
                             random_tensor(f, 2, square, 5),
                             random_tensor(f, 2, square, 6),
                             random_tensor(f, 2, square, 7),
                             random_tensor(f, 1, c, 8),
                             random_tensor(f, 1, c, 9),
                             random_tensor(f, 1, c, 10),
                             tensor_new(FMT_F64, 1, c),
                             tensor_new(FMT_F64, 1, c),
                             state_tensor(f, 4, image, 11, "paper"),
                             state_tensor(f, 4, image, 12, "current"),
                             state_tensor(f, 4, image, 13, "current"),
                             adam_factors()};
        tensor_moments(o.mean, o.variance, o.x);
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            double below = 0;
            for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
                char name[96];
                snprintf(name, sizeof name, "%s.%s.%s", tensor_format_name(f), rows[r].op, backends[b]);
                tensor_set_backend(backends[b]);
                const char *active = tensor_kernel_backend(f, rows[r].op);
                if (!strstr(name, filter) || !active || strcmp(active, backends[b]))
                    continue;
                double seconds[15], first = time_once(rows[r].op, backends[b], &o);
                const int runs = first > 1 ? 1 : first > 0.1 ? 3 : 15;
                for (int i = 0; i < runs; i++)
                    seconds[i] = time_once(rows[r].op, backends[b], &o);
                qsort(seconds, (size_t)runs, sizeof seconds[0], by_value);
                double rate = rows[r].work / seconds[runs / 2] * 1e-9;
                printf("%-40s %9.2f", name, rate);
                if (below > 0)
                    printf("   %.2fx", rate / below);
                printf("\n");
                fflush(stdout);
                below = rate;
            }
        }
        tensor *all[] = {o.x,      o.x2,     o.y,     o.w,      o.a,      o.b,    o.c,
                         o.vector, o.dgamma, o.dbeta, o.weight, o.moment, o.root, o.factors};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            tensor_free(all[i]);
    }
    return 0;
}
