/* gemm_driver.c - code that the drivers share: the workspace of a task, and operations as convolutions. */
#include "gemm/gemm_driver.h"
#include "core/table/format.h"
#include <string.h>

/* --- workspace ---------------------------------------------------------------------------------------------------- */

struct gemm_workspace fl_gemm_needs(const struct gemm_call *c, const struct gemm_arena *common,
                                    const struct gemm_arena *worker, int64_t parts) {
    return (struct gemm_workspace){.common = common->used,
                                   .worker = worker->used +
                                             2 * FL_ALIGNMENT, /* workers begin in different sets of the cache */
                                   .workers = (int)gemm_min(parts, c->workers)};
}

tensor_status fl_gemm_begin(struct gemm_call *c, struct gemm_workspace needs, struct gemm_workspace *needs_only,
                            char **block) {
    *block = NULL;
    if (needs_only) {
        *needs_only = needs;
        return TENSOR_OK;
    }
    if (!(*block = fl_workspace(c->args, gemm_workspace_bytes(&needs))))
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

struct gemm_product fl_gemm_product(const struct fl_args *args) {
    const struct fl_matrices *m = &args->p.product.matrices;
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t pixels = g->batch * g->p * g->q;
    switch ((int)args->op) {
    case FL_OP_CONV2D:
        return (struct gemm_product){.m = pixels, .n = g->filters, .k = g->c, .nt = true};
    case FL_OP_CONV2D_INPUT_GRAD:
        return (struct gemm_product){.m = pixels, .n = g->c, .k = g->filters};
    case FL_OP_CONV2D_WEIGHT_GRAD:
        return (struct gemm_product){.m = g->filters, .n = g->c, .k = pixels, .tn = true};
    default:
        return (struct gemm_product){m->m, m->n, m->k, .tn = args->op == FL_OP_MATMUL_TN,
                                     .nt = args->op == FL_OP_MATMUL_NT};
    }
}

struct fl_windows fl_gemm_geometry(const struct fl_args *args, bool flat) {
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

/* A single window has no next one, so image copies need no space for a stride. An input gradient has a stride over its
 * own pixels anyway. */
static int64_t stride_of(int stride, int64_t windows, bool gradient) {
    return windows == 1 && !gradient ? 1 : stride;
}

struct gemm_convolution fl_gemm_convolution(const struct fl_args *args, bool flat) {
    const struct fl_windows g = fl_gemm_geometry(args, flat);
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
