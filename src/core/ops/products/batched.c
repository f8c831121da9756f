/* batched.c - matmuls of matrices side by side, in one write: kernels that run the matrix kernel of a kernel set for
 * each matrix.
 *
 * If there are many matrices, each is computed by one thread; if there are few, one after the other, each by all
 * threads. Matrices do not depend on each other, so the results are the same. */
#include "core/ops/products/products.h"
#include "core/base/memory.h"
#include "core/table/mixed.h"
#include "core/base/parallel.h"
#include "core/rows/rows.h"

static enum fl_op matrix_op(enum fl_op op) {
    switch ((int)op) {
    case FL_OP_MATMUL_BATCHED:
        return FL_OP_MATMUL;
    case FL_OP_MATMUL_BATCHED_NT:
        return FL_OP_MATMUL_NT;
    default:
        return FL_OP_MATMUL_TN;
    }
}

static int workers_of(const struct fl_args *args) {
    return args->workers ? args->workers : fl_threads();
}

/* Each thread takes whole matrices: there are enough of them that none waits long. */
static bool takes_whole(const struct fl_args *args, int workers) {
    return args->p.product.matrices.batch >= 4 * workers;
}

static void *at(void *data, int64_t element, int bytes) {
    return data ? (char *)data + element * bytes : NULL;
}

/* The arguments for matrix i. */
static struct fl_args matrix_call(const struct fl_args *args, int64_t i, int workers) {
    const struct fl_matrices *g = &args->p.product.matrices;
    const int64_t sizes[] = {g->m * g->k, g->k * g->n, g->m * g->n};
    struct fl_args one = *args;
    one.op = matrix_op(args->op);
    one.p.product.matrices.batch = 0;
    for (int j = 0; j < 2; j++) {
        one.in[j].data = at(args->in[j].data, i * sizes[j], fl_operand_format(args, j)->bytes);
        one.in[j].count = sizes[j];
    }
    one.out.data = at(args->out.data, i * sizes[2], args->format->bytes);
    one.out.count = sizes[2];
    one.rounding.first = args->rounding.first + i * sizes[2];
    one.workers = workers;
    one.again = false; /* the workspace is that of the last matrix */
    one.workspace = NULL;
    one.workspace_bytes = 0;
    return one;
}

struct kernel_of_matrix {
    fl_kernel kernel;
    size_t bytes; /* of its workspace */
    tensor_status *status;
};

static void run_matrix(const struct fl_rows *rows, int64_t i, double *own, struct fl_stats *stats) {
    const struct kernel_of_matrix *k = rows->plan;
    struct fl_args one = matrix_call(rows->args, i, 1);
    one.workspace = own;
    one.workspace_bytes = k->bytes;
    one.stats = stats;
    const tensor_status status = k->kernel(&one); /* it has its workspace, and cannot fail otherwise */
    if (status)
        __atomic_store_n(k->status, status, __ATOMIC_RELAXED);
}

static size_t matrix_need(const struct fl_args *args, fl_need need, int workers) {
    const struct fl_args one = matrix_call(args, 0, workers);
    return fl_line_bytes(need ? need(&one) : 0);
}

static struct fl_rows whole_matrices(const struct fl_args *args, fl_need need) {
    const struct fl_matrices *g = &args->p.product.matrices;
    return (struct fl_rows){.args = args,
                            .rows = g->batch,
                            .width = g->m * g->n * (g->k / 16 + 1),
                            .doubles = (int64_t)(matrix_need(args, need, 1) / sizeof(double)),
                            .run = run_matrix};
}

static size_t need_of(const struct fl_args *args, fl_need need) {
    const int workers = workers_of(args);
    if (!takes_whole(args, workers))
        return matrix_need(args, need, workers);
    const struct fl_rows rows = whole_matrices(args, need);
    return fl_rows_need(&rows);
}

static tensor_status run_whole(const struct fl_args *args, fl_kernel kernel, fl_need need) {
    struct fl_rows rows = whole_matrices(args, need);
    tensor_status status = TENSOR_OK;
    const struct kernel_of_matrix plan = {kernel, (size_t)rows.doubles * sizeof(double), &status};
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    rows.plan = &plan;
    fl_rows_run(&rows, memory);
    return status;
}

static tensor_status run_one_by_one(const struct fl_args *args, fl_kernel kernel, fl_need need, int workers) {
    const size_t bytes = matrix_need(args, need, workers);
    void *memory = bytes ? fl_workspace(args, bytes) : NULL;
    if (bytes && !memory)
        return TENSOR_E_MEMORY;
    tensor_status status = TENSOR_OK;
    for (int64_t i = 0; i < args->p.product.matrices.batch && !status; i++) {
        struct fl_args one = matrix_call(args, i, workers);
        one.workspace = memory;
        one.workspace_bytes = bytes;
        status = kernel(&one);
    }
    return status;
}

/* The kernel of one matrix. */
struct matrix_kernel {
    fl_kernel kernel;
    fl_need need;
};

static struct matrix_kernel kernel_of(const struct fl_args *args, enum fl_backend backend) {
    const bool mixed = fl_is_mixed(args);
    const struct fl_kernels *set = (mixed ? fl_product_format(args) : args->format)->sets[backend];
    const enum fl_op op = matrix_op(args->op);
    return mixed ? (struct matrix_kernel){set->mixed, set->mixed_need}
                 : (struct matrix_kernel){set->op[op], set->need[op]};
}

static tensor_status run_on(const struct fl_args *args, enum fl_backend backend) {
    const struct matrix_kernel k = kernel_of(args, backend);
    const int workers = workers_of(args);
    return takes_whole(args, workers) ? run_whole(args, k.kernel, k.need)
                                      : run_one_by_one(args, k.kernel, k.need, workers);
}

#define KERNELS_OF_SET(name, BACKEND)                                                                                  \
    static tensor_status run_##name(const struct fl_args *args) {                                                      \
        return run_on(args, BACKEND);                                                                                  \
    }                                                                                                                  \
    static size_t need_##name(const struct fl_args *args) {                                                            \
        return need_of(args, kernel_of(args, BACKEND).need);                                                           \
    }
KERNELS_OF_SET(portable, FL_PORTABLE)
KERNELS_OF_SET(avx2, FL_AVX2)
KERNELS_OF_SET(avx2_vnni, FL_AVX2_VNNI)
KERNELS_OF_SET(avx512bw, FL_AVX512BW)
KERNELS_OF_SET(avx512, FL_AVX512)
KERNELS_OF_SET(avx512_amx, FL_AVX512_AMX)

struct fl_any_kernels fl_batched_any(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    static const struct fl_any_kernels kernels[FL_BACKENDS] = {
        [FL_PORTABLE] = {run_portable, need_portable},    [FL_AVX2] = {run_avx2, need_avx2},
        [FL_AVX2_VNNI] = {run_avx2_vnni, need_avx2_vnni}, [FL_AVX512BW] = {run_avx512bw, need_avx512bw},
        [FL_AVX512] = {run_avx512, need_avx512},          [FL_AVX512_AMX] = {run_avx512_amx, need_avx512_amx}};
    const struct fl_kernels *set = format->sets[backend];
    return set && set->op[matrix_op(op)] ? kernels[backend] : (struct fl_any_kernels){NULL, NULL};
}
