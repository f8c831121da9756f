/* openblas.c - OpenBLAS: sgemm. The kernels are chosen by OPENBLAS_CORETYPE in the environment. */
#include "gemm.h"
#include <cblas.h>

static struct gemm g;

static const char *prepare(int argc, char **argv) {
    if (!gemm_parse(&g, argc, argv, "fp32"))
        return worker_skip("OpenBLAS has no such work");
    gemm_fill_f32(&g);
    return NULL;
}

static void run(void) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)g.m, (int)g.n, (int)g.k, 1, g.a, (int)g.k, g.b,
                (int)g.n, 0, g.c, (int)g.n);
}

int main(void) {
    return worker_serve(&(struct worker){prepare, run, NULL});
}
