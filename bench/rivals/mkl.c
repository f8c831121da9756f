/* mkl.c - MKL: sgemm, int16 matmul into int32 (sums may wrap), bf16 matmul into binary32. */
#include "gemm.h"
#include <mkl_cblas.h>

static struct gemm g;
static void (*chosen)(void);

static void run_f32(void) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)g.m, (int)g.n, (int)g.k, 1, g.a, (int)g.k, g.b,
                (int)g.n, 0, g.c, (int)g.n);
}

static void run_int16(void) {
    const MKL_INT32 offset = 0;
    cblas_gemm_s16s16s32(CblasRowMajor, CblasNoTrans, CblasNoTrans, CblasFixOffset, (int)g.m, (int)g.n, (int)g.k, 1,
                         g.a, (int)g.k, 0, g.b, (int)g.n, 0, 0, g.c, (int)g.n, &offset);
}

static void run_bf16(void) {
    cblas_gemm_bf16bf16f32(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)g.m, (int)g.n, (int)g.k, 1, g.a, (int)g.k,
                           g.b, (int)g.n, 0, g.c, (int)g.n);
}

static const char *prepare(int argc, char **argv) {
    if (gemm_parse(&g, argc, argv, "fp32")) {
        chosen = run_f32;
        gemm_fill_f32(&g);
    } else if (gemm_parse(&g, argc, argv, "bf16")) {
        chosen = run_bf16;
        gemm_fill_bf16(&g);
    } else if (gemm_parse(&g, argc, argv, "int16")) {
        chosen = run_int16;
        g.a = worker_memory((size_t)(g.m * g.k) * sizeof(int16_t));
        g.b = worker_memory((size_t)(g.k * g.n) * sizeof(int16_t));
        g.c = worker_memory((size_t)(g.m * g.n) * sizeof(int32_t));
        worker_mantissas(g.a, g.m * g.k, "gauss", 1);
        worker_mantissas(g.b, g.k * g.n, "gauss", 2);
    } else {
        return worker_skip("MKL has no such work");
    }
    return NULL;
}

static void run(void) {
    chosen();
}

int main(void) {
    return worker_serve(&(struct worker){prepare, run, NULL});
}
