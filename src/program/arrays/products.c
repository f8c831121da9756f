/* products.c - MatMul and Gemm on arrays: of integers, of constants, and what the library's own do not take. */
#include "program/arrays/products.h"
#include "program/arrays/windows.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <math.h>
#include <string.h>

int64_t fl_rows(const struct fl_array *a) {
    return a->ndim > 1 ? a->dim[a->ndim - 2] : 1;
}

int64_t fl_columns(const struct fl_array *b) {
    return b->ndim > 1 ? b->dim[b->ndim - 1] : 1;
}

struct product {
    int64_t rows, inner, columns, matrices, rows_of_part;
    int batch_ndim;
    int64_t batch[FL_ARRAY_DIMS], x_stride[FL_ARRAY_DIMS], w_stride[FL_ARRAY_DIMS]; /* in matrices */
    const double *x, *w;
    double *y;
    const int64_t *integer_x, *integer_w; /* instead of x and w */
    int64_t *integer_y;
};

static void matrix_strides(const struct product *p, const struct fl_array *a, int64_t *stride) {
    int64_t step = 1;
    for (int d = p->batch_ndim - 1, from = a->ndim - 3; d >= 0; d--, from--) {
        stride[d] = from < 0 || a->dim[from] == 1 ? 0 : step;
        step *= from < 0 ? 1 : a->dim[from];
    }
}

static tensor_status read_product(struct product *p, const struct fl_array *a, const struct fl_array *b,
                                  const struct fl_array *y) {
    struct fl_array left = *a, right = *b;
    left.ndim = a->ndim > 2 ? a->ndim - 2 : 0;
    right.ndim = b->ndim > 2 ? b->ndim - 2 : 0;
    *p = (struct product){.rows = fl_rows(a), .inner = a->dim[a->ndim - 1], .columns = fl_columns(b), .matrices = 1};
    TRY(fl_broadcast_shape(&p->batch_ndim, p->batch, &left, &right));
    for (int d = 0; d < p->batch_ndim; d++)
        p->matrices *= p->batch[d];
    matrix_strides(p, a, p->x_stride);
    matrix_strides(p, b, p->w_stride);
    if (y->count != p->matrices * p->rows * p->columns)
        return fl_fail(TENSOR_E_SHAPE, "a product of %lld elements, expected %lld", (long long)y->count,
                       (long long)(p->matrices * p->rows * p->columns));
    p->rows_of_part = (1 << 15) / (p->inner * p->columns + 1) + 1 + y->count / (1 << 30);
    return TENSOR_OK;
}

#define MULTIPLY(name, type, unsigned_type, from_x, from_w, to)                                                        \
    static void name(const struct product *p, int64_t x_matrix, int64_t w_matrix, int64_t row) {                       \
        const type *const x = p->from_x + (x_matrix * p->rows + row % p->rows) * p->inner;                             \
        const type *const w = p->from_w + w_matrix * p->inner * p->columns;                                            \
        type *const y = p->to + row * p->columns;                                                                      \
        memset(y, 0, (size_t)p->columns * sizeof *y);                                                                  \
        for (int64_t k = 0; k < p->inner; k++)                                                                         \
            for (int64_t j = 0; j < p->columns; j++)                                                                   \
                y[j] = (type)((unsigned_type)y[j] + (unsigned_type)x[k] * (unsigned_type)w[k * p->columns + j]);       \
    }
MULTIPLY(multiply_numbers, double, double, x, w, y)
MULTIPLY(multiply_integers, int64_t, uint64_t, integer_x, integer_w, integer_y)

static void product_part(void *context, int part, int worker) {
    const struct product *const p = context;
    const int64_t first = part * p->rows_of_part, all = p->matrices * p->rows;
    (void)worker;
    for (int64_t row = first; row < first + p->rows_of_part && row < all; row++) {
        int64_t rest = row / p->rows, x_matrix = 0, w_matrix = 0;
        for (int d = p->batch_ndim - 1; d >= 0; d--) {
            x_matrix += rest % p->batch[d] * p->x_stride[d];
            w_matrix += rest % p->batch[d] * p->w_stride[d];
            rest /= p->batch[d];
        }
        (p->integer_y ? multiply_integers : multiply_numbers)(p, x_matrix, w_matrix, row);
    }
}

static void run_product(struct product *p) {
    if (p->columns)
        fl_parallel((int)((p->matrices * p->rows + p->rows_of_part - 1) / p->rows_of_part), product_part, p);
}

tensor_status fl_multiply(const struct fl_array *a, const struct fl_array *b, const struct fl_array *y, const double *x,
                          const double *w, double *product) {
    struct product p;
    TRY(read_product(&p, a, b, y));
    p.x = x;
    p.w = w;
    p.y = product;
    run_product(&p);
    return TENSOR_OK;
}

/* --- MatMul ------------------------------------------------------------------------------------------------------- */

static tensor_status multiply_floats(const struct fl_arrays *a) {
    const double *x = NULL, *w = NULL;
    void *memory[3] = {NULL};
    struct fl_array *const out = a->out[0];
    tensor_status status = fl_as_doubles(a->in[0], &x, &memory[0]);
    if (!status)
        status = fl_as_doubles(a->in[1], &w, &memory[1]);
    if (!status)
        status = fl_memory(&memory[2], out->count, sizeof(double));
    if (!status)
        status = fl_multiply(a->in[0], a->in[1], out, x, w, memory[2]);
    if (!status)
        fl_store_numbers(out, 0, 1, memory[2], out->count);
    for (int i = 0; i < 3; i++)
        fl_free(memory[i]);
    return status;
}

static tensor_status multiply_whole(const struct fl_arrays *a) {
    struct product p;
    void *memory[3] = {NULL};
    struct fl_array *const out = a->out[0];
    tensor_status status = read_product(&p, a->in[0], a->in[1], out);
    for (int i = 0; i < 3 && !status; i++)
        status = fl_memory(&memory[i], i < 2 ? a->in[i]->count : out->count, sizeof(int64_t));
    if (!status) {
        for (int i = 0; i < 2; i++)
            fl_load_integers(memory[i], a->in[i], 0, 1, a->in[i]->count);
        p.integer_x = memory[0];
        p.integer_w = memory[1];
        p.integer_y = memory[2];
        run_product(&p);
        fl_store_integers(out, 0, 1, memory[2], out->count);
    }
    for (int i = 0; i < 3; i++)
        fl_free(memory[i]);
    return status;
}

tensor_status fl_compute_matmul(const struct fl_arrays *a) {
    if (!a->out[0] || !a->out[0]->count)
        return TENSOR_OK;
    TRY(fl_want_type(a->in[1], a->in[0]->type, "the second operand"));
    return fl_type_is_float(a->in[0]->type) ? multiply_floats(a) : multiply_whole(a);
}

/* --- Gemm --------------------------------------------------------------------------------------------------------- */

struct gemm {
    const struct fl_arrays *a;
    int64_t inner;
    int64_t x_row, x_step, w_step, w_column, c_row, c_column;
};

/* A row of alpha a b + beta c. Integers take whole factors. */
static void gemm_part(void *context, int row, int worker) {
    const struct gemm *const g = context;
    const struct fl_array *const *const in = g->a->in, *const c = fl_operand(g->a, 2);
    struct fl_array *const y = g->a->out[0];
    const double alpha = fl_net_float(g->a->node, "alpha", 1), beta = fl_net_float(g->a->node, "beta", 1);
    (void)worker;
    for (int64_t j = 0; j < y->dim[1]; j++) {
        const int64_t at = row * y->dim[1] + j, added = row * g->c_row + j * g->c_column;
        if (fl_type_is_float(y->type)) {
            double sum = 0;
            for (int64_t k = 0; k < g->inner; k++)
                sum += fl_array_number(in[0], row * g->x_row + k * g->x_step) *
                       fl_array_number(in[1], k * g->w_step + j * g->w_column);
            fl_array_put_number(y, at, alpha * sum + (c && beta != 0 ? beta * fl_array_number(c, added) : 0));
        } else {
            uint64_t sum = 0;
            for (int64_t k = 0; k < g->inner; k++)
                sum += (uint64_t)fl_array_integer(in[0], row * g->x_row + k * g->x_step) *
                       (uint64_t)fl_array_integer(in[1], k * g->w_step + j * g->w_column);
            sum *= (uint64_t)(int64_t)alpha;
            if (c)
                sum += (uint64_t)(int64_t)beta * (uint64_t)fl_array_integer(c, added);
            fl_array_put_integer(y, at, (int64_t)sum);
        }
    }
}

static bool is_whole(double factor) {
    return fabs(factor) < 0x1p31 && factor == rint(factor);
}

tensor_status fl_compute_gemm(const struct fl_arrays *a) {
    const struct fl_array *const c = fl_operand(a, 2), *const y = a->out[0];
    const bool turn_x = fl_net_int(a->node, "transA", 0) != 0, turn_w = fl_net_int(a->node, "transB", 0) != 0;
    const double alpha = fl_net_float(a->node, "alpha", 1), beta = fl_net_float(a->node, "beta", 1);
    if (!y || !y->count)
        return TENSOR_OK;
    struct gemm g = {.a = a, .inner = a->in[0]->dim[!turn_x]};
    const int64_t x_columns = a->in[0]->dim[1], w_columns = a->in[1]->dim[1];
    g.x_row = turn_x ? 1 : x_columns;
    g.x_step = turn_x ? x_columns : 1;
    g.w_step = turn_w ? 1 : w_columns;
    g.w_column = turn_w ? w_columns : 1;
    if (c && c->ndim) {
        const int64_t columns = c->dim[c->ndim - 1];
        g.c_column = columns > 1;
        g.c_row = c->ndim > 1 && c->dim[0] > 1 ? columns : 0;
    }
    if (!fl_type_is_float(y->type) && (!is_whole(alpha) || !is_whole(beta)))
        return fl_fail(TENSOR_E_UNSUPPORTED, "alpha %g and beta %g of integers, expected whole numbers", alpha, beta);
    if (y->dim[0] > INT32_MAX)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%lld rows, expected less than 2^31", (long long)y->dim[0]);
    fl_parallel((int)y->dim[0], gemm_part, &g);
    return fl_activate(a);
}
