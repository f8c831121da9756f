/* gemm.c - which driver computes an operation, and the workspace of a call. */
#include "gemm/gemm.h"
#include "core/base/fail.h"
#include "core/table/format.h"
#include "core/base/parallel.h"
#include "gemm/gemm_driver.h"
#include <string.h>

/* --- workspace ---------------------------------------------------------------------------------------------------- */

struct gemm_workspace fl_gemm_needs(const struct gemm_call *c, const struct gemm_arena *common,
                                    const struct gemm_arena *worker, int64_t parts) {
    return (struct gemm_workspace){.common = common->used,
                                   .worker = worker->used +
                                             2 * FL_ALIGNMENT, /* workers begin in different sets of the cache */
                                   .workers = (int)gemm_min(parts, c->workers)};
}

static size_t bytes_of(const struct gemm_workspace *needs) {
    return needs->common + needs->worker * (size_t)needs->workers;
}

tensor_status fl_gemm_begin(struct gemm_call *c, struct gemm_workspace needs, struct gemm_workspace *needs_only,
                            char **block) {
    *block = NULL;
    if (needs_only) {
        *needs_only = needs;
        return TENSOR_OK;
    }
    if (!(*block = fl_workspace(c->args, bytes_of(&needs))))
        return TENSOR_E_MEMORY;
    c->workers = needs.workers;
    c->worker_memory = *block + needs.common;
    c->worker_bytes = needs.worker;
    for (int i = 0; i < c->workers; i++)
        memset(gemm_worker_stats(c, i), 0, (size_t)c->stores->stats_bytes);
    return TENSOR_OK;
}

void fl_gemm_end(const struct gemm_call *c) {
    for (int i = 0; i < c->workers; i++)
        c->stores->finish(c->args, gemm_worker_stats(c, i));
}

/* --- operations as convolutions ----------------------------------------------------------------------------------- */

bool fl_gemm_is_one_line(const struct fl_windows *g) {
    return g->r == 1 && g->s == 1 && g->stride[0] == 1 && g->stride[1] == 1 && g->p == g->h && g->q == g->w &&
           !g->padding[0] && !g->padding[1];
}

static struct fl_windows geometry_of(const struct fl_args *args, bool flat) {
    const struct fl_matrices *m = &args->p.product.matrices;
    struct fl_windows g = args->p.product.windows;
    const bool tn = args->op == FL_OP_MATMUL_TN, gradient = args->op == FL_OP_MATMUL;
    if (tn || gradient || args->op == FL_OP_MATMUL_NT)
        g = (struct fl_windows){.batch = 1,
                                .h = 1,
                                .p = 1,
                                .w = tn ? m->k : m->m,
                                .q = tn ? m->k : m->m,
                                .c = tn || gradient ? m->n : m->k,
                                .filters = tn         ? m->m
                                           : gradient ? m->k
                                                      : m->n,
                                .r = 1,
                                .s = 1,
                                .stride = {1, 1},
                                .dilation = {1, 1}};
    if (!g.groups)
        g.groups = 1;
    if (flat && fl_gemm_is_one_line(&g)) {
        g.w = g.q = g.batch * g.p * g.q;
        g.batch = g.h = g.p = 1;
    }
    return g;
}

/* One window alone is never stepped from: image copies need no room for steps. An input gradient steps over its own
 * pixels all the same. */
static int64_t stride_of(int stride, int64_t windows, bool gradient) {
    return windows == 1 && !gradient ? 1 : stride;
}

struct gemm_convolution fl_gemm_convolution(const struct fl_args *args, bool flat) {
    const struct fl_windows g = geometry_of(args, flat);
    const bool gradient = args->op == FL_OP_CONV2D_INPUT_GRAD || args->op == FL_OP_MATMUL;
    const int64_t depth = g.c / g.groups, filters = g.filters / g.groups;
    return (struct gemm_convolution){.batch = g.batch,
                                     .groups = g.groups,
                                     .y = {gradient ? g.p : g.h, gradient ? g.h : g.p, g.r,
                                           stride_of(g.stride[0], g.p, gradient), g.padding[0], g.dilation[0]},
                                     .x = {gradient ? g.q : g.w, gradient ? g.w : g.q, g.s,
                                           stride_of(g.stride[1], g.q, gradient), g.padding[1], g.dilation[1]},
                                     .depth = gradient ? filters : depth,
                                     .filters = gradient ? depth : filters,
                                     .in_pixel = gradient ? g.filters : g.c,
                                     .out_pixel = gradient ? g.c : g.filters,
                                     .gradient = gradient};
}

/* --- the driver --------------------------------------------------------------------------------------------------- */

/* needs_only: not NULL, where nothing but the workspace is wanted. */
static tensor_status call(const struct gemm_family *family, const struct fl_args *args, int workers,
                          struct gemm_workspace *needs_only) {
    struct gemm_call c = {.family = family,
                          .kernels = family->kernels,
                          .packing = family->packing,
                          .stores = family->stores,
                          .args = args,
                          .workers = workers};
    const bool matrices = args->op == FL_OP_MATMUL || args->op == FL_OP_MATMUL_NT || args->op == FL_OP_MATMUL_TN;
    if (matrices && (args->p.product.matrices.k <= GEMM_LIMBS_K || !(family->kernels->tile || family->matrix)))
        return fl_gemm_takes_unpacked(&c) ? fl_gemm_unpacked(&c, needs_only) : fl_gemm_matmul(&c, needs_only);
    const bool weights = args->op == FL_OP_CONV2D_WEIGHT_GRAD || args->op == FL_OP_MATMUL_TN;
    if (gemm_is_depthwise(args))
        return fl_gemm_depthwise(&c, needs_only);
    if (family->matrix)
        return weights ? fl_gemm_matrix_weight_gradient(&c, needs_only) : fl_gemm_matrix_forward(&c, needs_only);
    return weights ? fl_gemm_weight_gradient(&c, needs_only) : fl_gemm_forward(&c, needs_only);
}

static double products_of(const struct fl_args *args) {
    const struct fl_windows g = geometry_of(args, false);
    return (double)g.batch * (double)(g.p * g.q) * (double)(g.r * g.s) * (double)(g.c / g.groups) * (double)g.filters;
}

/* Products that one thread computes in some 30 us: what has fewer is not worth a second one. Measured on processors
 * with AVX-512 at 60 to 120 a nanosecond, depthwise kernels at 2 to 5, tiles at some 250. */
static double products_alone(const struct gemm_family *family, const struct fl_args *args) {
    if (gemm_is_depthwise(args))
        return (double)family->kernels->lanes * 0x1p13;
    return family->matrix ? 0x1p23 : (double)family->kernels->lanes * 0x1p17;
}

static int workers_of(const struct gemm_family *family, const struct fl_args *args) {
    const int threads = args->workers ? args->workers : fl_threads();
    return threads > 1 && products_of(args) > products_alone(family, args) ? threads : 1;
}

tensor_status fl_gemm(const struct gemm_family *family, const struct fl_args *args) {
    return call(family, args, workers_of(family, args), NULL);
}

size_t fl_gemm_need(const struct gemm_family *family, const struct fl_args *args) {
    struct gemm_workspace needs;
    call(family, args, workers_of(family, args), &needs);
    return bytes_of(&needs);
}
