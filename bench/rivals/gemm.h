/* gemm.h - the shape and the operands that the matmul rivals share: C[M,N] = A[M,K] B[K,N], row-major, normal data. */
#ifndef FLEXLAB_BENCH_GEMM_H
#define FLEXLAB_BENCH_GEMM_H

#include "worker.h"
#include <stdlib.h>
#include <string.h>

struct gemm {
    int64_t m, n, k;
    void *a, *b, *c;
};

/* "matmul TYPE M N K"; true if it is that TYPE. */
static inline int gemm_parse(struct gemm *g, int argc, char **argv, const char *type) {
    if (argc != 5 || strcmp(argv[0], "matmul") || strcmp(argv[1], type))
        return 0;
    g->m = atoll(argv[2]);
    g->n = atoll(argv[3]);
    g->k = atoll(argv[4]);
    return g->m > 0 && g->n > 0 && g->k > 0;
}

static inline void gemm_fill_f32(struct gemm *g) {
    g->a = worker_memory((size_t)(g->m * g->k) * sizeof(float));
    g->b = worker_memory((size_t)(g->k * g->n) * sizeof(float));
    g->c = worker_memory((size_t)(g->m * g->n) * sizeof(float));
    worker_normal(g->a, g->m * g->k, 1);
    worker_normal(g->b, g->k * g->n, 2);
}

static inline void gemm_fill_bf16(struct gemm *g) {
    g->a = worker_memory((size_t)(g->m * g->k) * sizeof(uint16_t));
    g->b = worker_memory((size_t)(g->k * g->n) * sizeof(uint16_t));
    g->c = worker_memory((size_t)(g->m * g->n) * sizeof(float));
    worker_normal_bf16(g->a, g->m * g->k, 1);
    worker_normal_bf16(g->b, g->k * g->n, 2);
}

#endif
