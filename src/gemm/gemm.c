/* gemm.c - which driver computes an operation, and with how many threads. */
#include "gemm/gemm.h"
#include "core/base/parallel.h"
#include "core/table/format.h"
#include "gemm/gemm_driver.h"

/* Channels times filters from which a convolution with 1x1 filters is faster as a product of packed panels, measured
 * with one thread and int16 on AVX-512. The panels have few parts, and an image that is packed whole leaves the caches.
 */
enum {
    PANELS_OF_WEIGHTS = 128 * 128,
    PANELS_OF_OTHERS = 128 * 256,
    PANELS_LANES = 16,    /* of convolutions and input gradients; AVX2 does not gain */
    PANELS_COLUMNS = 512, /* most of these */
    PANELS_WORKERS = 4    /* most */
};

/* Whether a convolution is computed as a product of matrices. */
static bool is_product(const struct gemm_call *c) {
    const struct fl_windows *g = &c->args->p.product.windows;
    if (c->family->ordered || c->family->matrix || c->workers > PANELS_WORKERS || g->groups > 1 ||
        !fl_gemm_is_one_line(g) || fl_gemm_product(c->args).k > GEMM_LIMBS_K)
        return false;
    if (c->args->op == FL_OP_CONV2D_WEIGHT_GRAD)
        return g->c * g->filters >= PANELS_OF_WEIGHTS;
    return c->kernels->lanes >= PANELS_LANES && g->c * g->filters >= PANELS_OF_OTHERS &&
           fl_gemm_product(c->args).n <= PANELS_COLUMNS;
}

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
    if (!matrices && is_product(&c))
        return fl_gemm_matmul(&c, needs_only);
    const bool weights = args->op == FL_OP_CONV2D_WEIGHT_GRAD || args->op == FL_OP_MATMUL_TN;
    if (gemm_is_depthwise(args))
        return fl_gemm_depthwise(&c, needs_only);
    if (family->matrix)
        return weights ? fl_gemm_matrix_weight_gradient(&c, needs_only) : fl_gemm_matrix_forward(&c, needs_only);
    return weights ? fl_gemm_weight_gradient(&c, needs_only) : fl_gemm_forward(&c, needs_only);
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
    return call(family, args, workers_of(family, args), NULL);
}

size_t fl_gemm_need(const struct gemm_family *family, const struct fl_args *args) {
    struct gemm_workspace needs;
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
