/* gemm.c - which driver computes an operation, and with how many threads. */
#include "gemm/gemm.h"
#include "core/base/parallel.h"
#include "core/table/format.h"
#include "gemm/gemm_driver.h"

/* needs_only: not NULL if only the workspace is wanted. */
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

/* Sizes of filters, channels times channels, from which packed panels are faster than an image in place (measured). */
enum { PANELS_FORWARD = 128 * 256, PANELS_WEIGHTS = 128 * 128, PANELS_LANES = 16 /* of forward ones */ };

/* Whether a convolution of mantissas on vectors is to be computed as a product of matrices, which `as` then tells: its
 * filters see one pixel each, and their channels are many. */
static bool is_product(const struct gemm_family *family, const struct fl_args *args, struct fl_args *as) {
    const struct fl_windows *g = &args->p.product.windows;
    if (family->ordered || family->matrix || !g->r || g->groups > 1 || !fl_gemm_is_one_line(g))
        return false;
    const bool weights = args->op == FL_OP_CONV2D_WEIGHT_GRAD, forward = args->op == FL_OP_CONV2D;
    const int64_t pixels = g->batch * g->p * g->q, k = weights ? pixels : forward ? g->c : g->filters;
    if (k > GEMM_LIMBS_K || g->c * g->filters < (weights ? PANELS_WEIGHTS : PANELS_FORWARD) ||
        (!weights && family->kernels->lanes < PANELS_LANES))
        return false;
    *as = *args;
    as->op = weights ? FL_OP_MATMUL_TN : forward ? FL_OP_MATMUL_NT : FL_OP_MATMUL;
    as->p.product.windows = (struct fl_windows){0};
    as->p.product.matrices =
        (struct fl_matrices){.m = weights ? g->filters : pixels, .n = forward ? g->filters : g->c, .k = k};
    return true;
}

static double products_of(const struct fl_args *args) {
    const struct fl_windows g = fl_gemm_geometry(args, false);
    return (double)g.batch * (double)(g.p * g.q) * (double)(g.r * g.s) * (double)(g.c / g.groups) * (double)g.filters;
}

/* The number of products that one thread computes in some 30 us, below which a second one does not pay. Measured on
 * processors with AVX-512: 60 to 120 per nanosecond, 2 to 5 in depthwise kernels, some 250 on tiles. */
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
    struct fl_args as;
    if (is_product(family, args, &as))
        args = &as;
    return call(family, args, workers_of(family, args), NULL);
}

size_t fl_gemm_need(const struct gemm_family *family, const struct fl_args *args) {
    struct gemm_workspace needs;
    struct fl_args as;
    if (is_product(family, args, &as))
        args = &as;
    call(family, args, workers_of(family, args), &needs);
    return gemm_workspace_bytes(&needs);
}

/* --- what the mantissas of an operand are ------------------------------------------------------------------------- */

enum { LOOK = 1 << 16 }; /* mantissas of a part */

struct look {
    const struct fl_view *at;
    bool (*takes)(const void *mantissas, int64_t n);
    int beyond; /* not all */
};

static void look_part(void *context, int part, int worker) {
    (void)worker;
    struct look *l = context;
    const int64_t first = (int64_t)part * LOOK, n = gemm_min(LOOK, l->at->count - first);
    if (!__atomic_load_n(&l->beyond, __ATOMIC_RELAXED) && !l->takes((const int16_t *)l->at->data + first, n))
        __atomic_store_n(&l->beyond, 1, __ATOMIC_RELAXED);
}

bool fl_gemm_all(const struct fl_view *at, int workers, bool (*takes)(const void *mantissas, int64_t n)) {
    struct look l = {at, takes, 0};
    fl_parallel_within(workers, (int)gemm_parts(at->count, LOOK), look_part, &l);
    return !l.beyond;
}

static bool are_bytes(const void *mantissas, int64_t n) {
    const int16_t *m = mantissas;
    uint16_t beyond = 0;
    for (int64_t i = 0; i < n; i++)
        beyond |= (uint16_t)((uint16_t)m[i] + 128) & 0xff00;
    return !beyond;
}

bool fl_gemm_takes_bytes(const struct fl_args *args) {
    bool bytes = args->p.product.bytes;
    for (int i = 0; i < 2 && bytes && args->p.product.by_hand; i++)
        bytes = fl_gemm_all(&args->in[i], args->workers ? args->workers : fl_threads(), are_bytes);
    return bytes;
}

size_t fl_gemm_need_of_either(const struct fl_args *args, size_t bytes, size_t others) {
    if (!args->p.product.bytes)
        return others;
    return !args->p.product.by_hand || bytes > others ? bytes : others;
}
