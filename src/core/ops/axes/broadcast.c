/* broadcast.c - elementwise operations whose operands are broadcast or lie at strides: sum, product, choice, and the
 * gradients of sums, means and L1 norms over dimensions. Reference kernel, kernels in threads for every format.
 * axes_rules.h defines an element. */
#include "core/ops/axes/axes.h"
#include "core/ops/operation.h"
#include "core/rows/rows.h"
#include <string.h>

enum { BLOCK = 1024 /* elements of the output that a thread computes at a time */ };

static bool mark_at(const struct fl_args *args, int64_t at) {
    return args->p.axes.marks && args->p.axes.marks[at];
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

static tensor_status fl_ref_broadcast(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_walk walk = fl_walk_of_elements(args);
    const int64_t parameter = fl_axes_parameter(args);
    for (int64_t i = 0; i < w.count; i++) {
        const double a = w.in[0][fl_walk_at(&walk, 0, i)], b = w.in[1] ? w.in[1][fl_walk_at(&walk, 1, i)] : 0;
        const struct fl_axes_value value = fl_axes_element(args->op, a, b, mark_at(args, fl_walk_at(&walk, 2, i)),
                                                           parameter, fl_exponent(&args->in[0]), fl_ref_shared(args));
        w.value[i] = value.odd;
        w.near[i] = value.near;
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- blocks in threads -------------------------------------------------------------------------------------------- */

/* Decodes elements that are not adjacent: it first copies them together, then decodes them at once. */
static void decode_scattered(const struct fl_args *args, int in, int64_t at, int64_t stride, int64_t n, double *to) {
    enum { SOME = 256 };
    _Alignas(8) char together[SOME * 8];
    const size_t bytes = (size_t)args->format->bytes;
    for (int64_t i = 0; i < n; i += SOME) {
        const int64_t count = n - i < SOME ? n - i : SOME;
        const char *from = (const char *)args->in[in].data + (at + i * stride) * (int64_t)bytes;
        for (int64_t j = 0; j < count; j++)
            memcpy(together + (size_t)j * bytes, from + j * stride * (int64_t)bytes, bytes);
        const struct fl_view view = {together, NULL, args->in[in].e, count};
        args->format->decode(args->format, &view, 0, count, to + i);
    }
}

void fl_axes_read(const struct fl_rows *rows, int in, int64_t at, int64_t stride, int64_t n, double *to) {
    const struct fl_args *args = rows->args;
    if (stride == 1 && n >= FL_ROW_VECTOR) {
        fl_rows_read_values(rows, in, at, n, to);
    } else if (stride == 1 || n == 1) {
        args->format->decode(args->format, &args->in[in], at, n, to);
    } else if (stride) {
        decode_scattered(args, in, at, stride, n, to);
    } else {
        args->format->decode(args->format, &args->in[in], at, 1, to);
        for (int64_t i = 1; i < n; i++)
            to[i] = to[0];
    }
}

/* Computes n results of one line of the walk from a, b and the marks; returns the largest magnitude. */
static double combine(const struct fl_rows *rows, double *a, const double *b, int64_t mark, int64_t mark_stride,
                      int64_t n) {
    const struct fl_args *args = rows->args;
    const bool shared = fl_ref_shared(args);
    const int e = fl_exponent(&args->in[0]);
    const int64_t parameter = fl_axes_parameter(args);
    double largest = 0;
    if (args->op == FL_OP_REDUCE_SUM_GRAD)
        return fl_rows_largest(a, n);
    /* A quotient of a mantissa by a number below 2^32 that is no middle between two mantissas is at least 2^-49 of
     * itself away from one, so its double is rounded as it is. Stochastic rounding needs more. */
    if (args->op == FL_OP_REDUCE_MEAN_GRAD &&
        (!shared || (args->rounding.mode != TENSOR_ROUND_STOCHASTIC && parameter < (int64_t)1 << 32))) {
        const double count = (double)parameter;
        for (int64_t i = 0; i < n; i++)
            a[i] /= count;
        return fl_rows_largest(a, n);
    }
    if (args->op == FL_OP_BROADCAST_MUL)
        return rows->vectors->multiply(a, b, n);
    if (args->op == FL_OP_BROADCAST_ADD)
        return rows->vectors->add(a, b, n);
    if ((args->op == FL_OP_WHERE || args->op == FL_OP_WHERE_GRAD) && args->p.axes.marks) {
        const bool gradient = args->op == FL_OP_WHERE_GRAD;
        rows->vectors->choose(a, gradient ? NULL : b, n, args->p.axes.marks + mark, mark_stride,
                              !gradient || parameter != 0);
        return fl_rows_largest(a, n);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct fl_axes_value value =
            fl_axes_element(args->op, a[i], b[i], mark_at(args, mark + i * mark_stride), parameter, e, shared);
        largest = fabs(value.near) > largest ? fabs(value.near) : largest;
        a[i] = value.odd;
    }
    return largest;
}

static void broadcast_block(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_walk *w = rows->plan;
    const int last = w->ndim - 1;
    const int64_t first = row * BLOCK, left = args->out.count - first, n = left < BLOCK ? left : BLOCK;
    double *a = own, *b = own + BLOCK + FL_ROW_VECTOR, largest = 0; /* a read fills whole vectors */
    if (!args->in[1].data)
        memset(b, 0, (size_t)n * sizeof *b);
    for (int64_t i = 0, run; i < n; i += run) {
        run = fl_walk_run(w, first + i, n - i);
        fl_axes_read(rows, 0, fl_walk_at(w, 0, first + i), last < 0 ? 0 : w->stride[0][last], run, a + i);
        if (args->in[1].data)
            fl_axes_read(rows, 1, fl_walk_at(w, 1, first + i), last < 0 ? 0 : w->stride[1][last], run, b + i);
        const double size =
            combine(rows, a + i, b + i, fl_walk_at(w, 2, first + i), last < 0 ? 0 : w->stride[2][last], run);
        largest = size > largest ? size : largest;
    }
    fl_rows_write(rows, first, n, a, &largest, stats);
}

static struct fl_rows blocks_of(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = (args->out.count + BLOCK - 1) / BLOCK,
                            .width = BLOCK,
                            .doubles = 2 * (BLOCK + FL_ROW_VECTOR),
                            .run = broadcast_block};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = blocks_of(args);
    return fl_rows_need(&rows);
}

static tensor_status broadcast(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = blocks_of(args);
    rows.vectors = vectors;
    const struct fl_walk walk = fl_walk_of_elements(args);
    rows.plan = &walk;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

FL_ROWS_TABLE(static, kernels, broadcast, need)

#define OPERATION(OP, name, promised, of_gradient)                                                                     \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = FL_PROMISE_##promised,                                 \
                                                     .gradient = of_gradient,                                          \
                                                     .reference = {fl_ref_broadcast, fl_ref_bytes},                    \
                                                     .any = kernels}
OPERATION(REDUCE_SUM_GRAD, reduce_sum_grad, COPY, NULL);
OPERATION(REDUCE_MEAN_GRAD, reduce_mean_grad, EXACT, NULL);
OPERATION(REDUCE_L1_GRAD, reduce_l1_grad, EXACT, NULL);
OPERATION(BROADCAST_ADD, broadcast_add, EXACT, "reduce_sum");
OPERATION(BROADCAST_MUL, broadcast_mul, EXACT, "broadcast_mul_grad");
OPERATION(WHERE, where, COPY, NULL);
OPERATION(WHERE_GRAD, where_grad, COPY, NULL);
