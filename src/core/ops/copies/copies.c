/* copies.c - permutations, slices and concatenations: reference kernel, kernel in threads for every format, the
 * operations. A result is an element of an operand, exactly, or zero, and is stored as any other result of a write:
 * brought to its place as it is, then looked at, and rounded where the exponent is another. */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/ops/copies/copy_rules.h"
#include "core/rows/rows.h"
#include "flexlab/tensor_blocks.h"

enum { BLOCK = 4096 /* elements of the output that a thread copies at a time */ };

static tensor_status fl_ref_copy(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    for (int64_t i = 0; i < w.count; i++) {
        const struct fl_origin from = fl_copied_from(args, i);
        w.value[i] = w.near[i] = from.operand < 0 ? 0 : w.in[from.operand][from.at];
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- blocks in threads -------------------------------------------------------------------------------------------- */

/* A permutation without dimensions of one element, and with those that lie together in the input as one. */
static struct fl_permutation merged(const struct fl_permutation *s) {
    struct fl_permutation m = {.offset = s->offset};
    for (int d = 0; d < s->ndim; d++) {
        if (s->shape[d] == 1)
            continue;
        if (m.ndim && m.stride[m.ndim - 1] == s->shape[d] * s->stride[d]) {
            m.shape[m.ndim - 1] *= s->shape[d];
            m.stride[m.ndim - 1] = s->stride[d];
        } else {
            m.shape[m.ndim] = s->shape[d];
            m.stride[m.ndim++] = s->stride[d];
        }
    }
    if (!m.ndim) { /* one element */
        m.shape[0] = m.stride[0] = 1;
        m.ndim = 1;
    }
    return m;
}

/* The position in the input of an element of the output, and its indices. */
struct place {
    int64_t at, index[TENSOR_MAX_DIMS];
};

static struct place place_of(const struct fl_permutation *s, int64_t i) {
    struct place p = {.at = s->offset};
    for (int d = s->ndim - 1; d >= 0; d--) {
        p.index[d] = i % s->shape[d];
        p.at += p.index[d] * s->stride[d];
        i /= s->shape[d];
    }
    return p;
}

/* From the end of a row of dimension d to the beginning of the next one. */
static void next_row(const struct fl_permutation *s, struct place *p, int d) {
    p->at -= p->index[d] * s->stride[d];
    p->index[d] = 0;
    for (d--; d >= 0; d--) {
        p->at += s->stride[d];
        if (++p->index[d] < s->shape[d])
            return;
        p->at -= s->shape[d] * s->stride[d];
        p->index[d] = 0;
    }
}

/* Rows of so many bytes, one after the other; their beginnings lie `stride` bytes apart. */
static void copy_rows(char *to, const char *from, int64_t rows, size_t bytes, int64_t stride) {
    switch (bytes) {
    case 32:
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * 32, from + i * stride, 32);
        break;
    case 64:
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * 64, from + i * stride, 64);
        break;
    case 128:
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * 128, from + i * stride, 128);
        break;
    default:
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * (int64_t)bytes, from + i * stride, bytes);
    }
}

/* Elements first ... first + n - 1 of a permutation whose last dimension stays. */
static void permute_runs(const struct fl_permutation *s, int bytes, const char *in, int64_t first, int64_t n,
                         char *to) {
    const int last = s->ndim - 1;
    const int64_t run = s->shape[last];
    struct place p = place_of(s, first);
    for (int64_t i = 0; i < n;) {
        const int64_t rest = run - p.index[last], part = rest < n - i ? rest : n - i;
        int64_t rows = 1;
        if (last && part == run) { /* whole runs, as many as the dimension before has left */
            const int64_t of_dimension = s->shape[last - 1] - p.index[last - 1], of_block = (n - i) / run;
            rows = of_dimension < of_block ? of_dimension : of_block;
            copy_rows(to + i * bytes, in + p.at * bytes, rows, (size_t)(run * bytes), s->stride[last - 1] * bytes);
            p.at += (rows - 1) * s->stride[last - 1];
            p.index[last - 1] += rows - 1;
        } else {
            memcpy(to + i * bytes, in + p.at * bytes, (size_t)(part * bytes));
        }
        i += rows * part;
        next_row(s, &p, last);
    }
}

#define SCATTERED(type)                                                                                                \
    static void scattered_##type(type *restrict to, const type *restrict in, int64_t n, int64_t stride) {              \
        for (int64_t i = 0; i < n; i++)                                                                                \
            to[i] = in[i * stride];                                                                                    \
    }                                                                                                                  \
    /* rows x columns of the output, `width` apart; neighbours in a column are neighbours in the input */              \
    static void turned_##type(type *restrict to, const type *restrict in, int64_t rows, int64_t columns,               \
                              int64_t width, int64_t stride) {                                                         \
        for (int64_t c = 0; c < columns; c++)                                                                          \
            for (int64_t r = 0; r < rows; r++)                                                                         \
                to[r * width + c] = in[c * stride + r];                                                                \
    }
SCATTERED(uint8_t)
SCATTERED(uint16_t)
SCATTERED(uint32_t)

/* Either of them, for elements of that size. */
#define BY_SIZE(bytes, what, to, i, in, at, ...)                                                                       \
    do {                                                                                                               \
        if ((bytes) == 4)                                                                                              \
            what##_uint32_t((uint32_t *)(void *)(to) + (i), (const uint32_t *)(const void *)(in) + (at), __VA_ARGS__); \
        else if ((bytes) == 2)                                                                                         \
            what##_uint16_t((uint16_t *)(void *)(to) + (i), (const uint16_t *)(const void *)(in) + (at), __VA_ARGS__); \
        else                                                                                                           \
            what##_uint8_t((uint8_t *)(void *)(to) + (i), (const uint8_t *)(const void *)(in) + (at), __VA_ARGS__);    \
    } while (0)

enum { TURNED = 16 /* columns of a tile, whose rows stay in the cache */ };

/* The same of any permutation: by tiles where rows of the output are columns of the input. */
static void permute_elements(const struct fl_permutation *s, int bytes, const char *in, int64_t first, int64_t n,
                             char *to) {
    const int last = s->ndim - 1;
    const int64_t run = s->shape[last], stride = s->stride[last];
    struct place p = place_of(s, first);
    for (int64_t i = 0; i < n;) {
        const int64_t rest = run - p.index[last], part = rest < n - i ? rest : n - i;
        int64_t rows = 1;
        if (last && part == run && s->stride[last - 1] == 1) {
            const int64_t of_dimension = s->shape[last - 1] - p.index[last - 1], of_block = (n - i) / run;
            rows = of_dimension < of_block ? of_dimension : of_block;
        }
        for (int64_t c = 0; c < part && rows > 1; c += TURNED) {
            const int64_t columns = part - c < TURNED ? part - c : TURNED, at = p.at + c * stride;
            BY_SIZE(bytes, turned, to, i + c, in, at, rows, columns, run, stride);
        }
        if (rows > 1) {
            p.at += rows - 1;
            p.index[last - 1] += rows - 1;
        } else {
            BY_SIZE(bytes, scattered, to, i, in, p.at, part, stride);
        }
        i += rows * part;
        next_row(s, &p, last);
    }
}

/* Runs of operands and of zeros, each to its place, and looked at there. */
static void place_runs(const struct fl_rows *rows, int64_t first, int64_t n, char *to, double *own,
                       struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int bytes = args->format->bytes;
    for (int64_t i = 0; i < n;) {
        const struct fl_origin from = fl_copied_from(args, first + i);
        const int64_t run = from.run < n - i ? from.run : n - i;
        if (from.operand < 0) {
            memset(to + i * bytes, 0, (size_t)(run * bytes));
        } else {
            memcpy(to + i * bytes, (const char *)args->in[from.operand].data + from.at * bytes, (size_t)(run * bytes));
            fl_rows_place(rows, from.operand, first + i, run, to + i * bytes, own, stats);
        }
        i += run;
    }
}

static void copy_block(const struct fl_rows *rows, int64_t block, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_permutation *s = rows->plan;
    const int bytes = args->format->bytes;
    const int64_t first = block * BLOCK, left = args->out.count - first, n = left < BLOCK ? left : BLOCK;
    char *to = args->out.data ? (char *)args->out.data + first * bytes : (char *)(own + BLOCK);
    if (args->op != FL_OP_PERMUTE) {
        place_runs(rows, first, n, to, own, stats);
        return;
    }
    if (s->stride[s->ndim - 1] == 1)
        permute_runs(s, bytes, args->in[0].data, first, n, to);
    else
        permute_elements(s, bytes, args->in[0].data, first, n, to);
    fl_rows_place(rows, 0, first, n, to, own, stats);
}

/* Each thread has a block of numbers, and one of elements. */
static struct fl_rows blocks_of(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = (args->out.count + BLOCK - 1) / BLOCK,
                            .width = BLOCK,
                            .doubles = BLOCK + BLOCK / 2,
                            .run = copy_block};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = blocks_of(args);
    return fl_rows_need(&rows);
}

static tensor_status copy(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = blocks_of(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    const struct fl_permutation strides =
        args->op == FL_OP_PERMUTE ? merged(&args->p.permutation) : args->p.permutation;
    rows.plan = &strides;
    rows.vectors = vectors;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

FL_ROWS_TABLE(static, fl_copy_any, copy, need)

/* --- the operations: shapes --------------------------------------------------------------------------------------- */

/* y is x with its dimensions in another order. */
static int permuted_shape(const struct fl_invocation *call, int operand, int64_t *shape) {
    (void)operand;
    const tensor *x = call->tensors[1];
    for (int d = 0; d < x->ndim; d++)
        shape[d] = x->shape[FL_ORDER_AT(call->scalars[0].integer, d)];
    return x->ndim;
}

/* Like `whole`, with another size of a dimension. */
static int with_length(const tensor *whole, int64_t dim, int64_t length, int64_t *shape) {
    memcpy(shape, whole->shape, sizeof whole->shape);
    shape[dim] = length;
    return whole->ndim;
}

/* Scalars of slice and slice_grad: dim, length, first. The whole is x, or dx. */
static const tensor *whole_of(const struct fl_invocation *call) {
    return call->tensors[call->function->op == FL_OP_SLICE ? 1 : 0];
}
static int part_shape(const struct fl_invocation *call, int operand, int64_t *shape) {
    (void)operand;
    return with_length(whole_of(call), call->scalars[0].integer, call->scalars[1].integer, shape);
}

static tensor_status check_part(const struct fl_invocation *call) {
    const int64_t dim = call->scalars[0].integer, length = call->scalars[1].integer, first = call->scalars[2].integer,
                  size = whole_of(call)->shape[dim];
    const bool is_slice = call->function->op == FL_OP_SLICE;
    return first >= 0 && length <= size && first <= size - length
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT,
                         "%s: %lld indices from %lld on, expected them in 0 to %lld: dimension %lld of %s",
                         call->function->name, (long long)length, (long long)first, (long long)size - 1, (long long)dim,
                         is_slice ? "x" : "dx");
}

/* Scalars of concat: dim, the lengths of b and c (0: no c). */
static int joined_shape(const struct fl_invocation *call, int operand, int64_t *shape) {
    const tensor *a = call->tensors[1];
    const int64_t dim = call->scalars[0].integer, b = call->scalars[1].integer, c = call->scalars[2].integer;
    return with_length(a, dim,
                       operand == 2   ? b
                       : operand == 3 ? c
                                      : a->shape[dim] + b + (call->tensors[3] ? c : 0),
                       shape);
}

/* --- the operations: parameters ----------------------------------------------------------------------------------- */

static tensor_status run_permute(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *x = call->tensors[1];
    struct fl_permutation *p = &args->p.permutation;
    int64_t stride[TENSOR_MAX_DIMS];
    fl_strides_of(x, stride);
    p->ndim = permuted_shape(call, 0, p->shape);
    for (int d = 0; d < x->ndim; d++)
        p->stride[d] = stride[FL_ORDER_AT(call->scalars[0].integer, d)];
    return fl_write((tensor *)call->tensors[0], args);
}

/* Elements of t from one index of `dim` to the next. */
static int64_t inner_of(const tensor *t, int64_t dim) {
    int64_t inner = 1;
    for (int64_t d = dim + 1; d < t->ndim; d++)
        inner *= t->shape[d];
    return inner;
}

static tensor_status run_slice(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *whole = whole_of(call);
    const int64_t dim = call->scalars[0].integer, inner = inner_of(whole, dim);
    args->p.slice = (struct fl_slice){.rows = whole->count / (whole->shape[dim] * inner),
                                      .columns = whole->shape[dim] * inner,
                                      .first = call->scalars[2].integer * inner,
                                      .part = call->scalars[1].integer * inner};
    return fl_write((tensor *)call->tensors[0], args);
}

static tensor_status run_concat(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *y = call->tensors[0];
    const int64_t dim = call->scalars[0].integer;
    args->p.rows.n = y->shape[dim] * inner_of(y, dim);
    args->p.rows.m = y->count / args->p.rows.n;
    return fl_write((tensor *)y, args);
}

/* --- the objects -------------------------------------------------------------------------------------------------- */

static const struct fl_operand permute_operands[] = {{"y", "="}, {"x", "e*", .at = FL_AT(in[0])}};
static const struct fl_scalar_rule order[] = {{"order", FL_ORDER, .of = 1}};
static const struct fl_operand slice_operands[] = {{"y", "="}, {"x", "e*", .at = FL_AT(in[0])}};
static const struct fl_operand slice_grad_operands[] = {{"dx", "e*"}, {"dy", "=", .at = FL_AT(in[0])}};
static const struct fl_scalar_rule slice_scalars[] = {
    {"dim", FL_DIM, .of = 1}, {"length", FL_LENGTH, .of = 0}, {"first", FL_INT64}};
static const struct fl_scalar_rule slice_grad_scalars[] = {
    {"dim", FL_DIM, .of = 0}, {"length", FL_LENGTH, .of = 1}, {"first", FL_INT64}};
static const struct fl_operand concat_operands[] = {{"y", "="},
                                                    {"a", "e*", .at = FL_AT(in[0])},
                                                    {"b", "=", .at = FL_AT(in[1])},
                                                    {"c", "=", FL_OPTIONAL, .at = FL_AT(in[2])}};
static const struct fl_scalar_rule concat_scalars[] = {
    {"dim", FL_DIM, .of = 1}, {"length of b", FL_LENGTH, .of = 2}, {"length of c", FL_LENGTH, .of = 3}};

#define OPERATION(OP, name, of_gradient)                                                                               \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = FL_PROMISE_COPY,                                       \
                                                     .gradient = of_gradient,                                          \
                                                     .reference = {fl_ref_copy, fl_ref_bytes},                         \
                                                     .any = fl_copy_any,                                               \
                                                     .shared16 = true}
OPERATION(PERMUTE, permute, "permute");
OPERATION(SLICE, slice, NULL);
OPERATION(SLICE_GRAD, slice_grad, NULL);
OPERATION(CONCAT, concat, "slice");

const struct fl_function fl_function_permute = {.name = "permute",
                                                .op = FL_OP_PERMUTE,
                                                .outputs = 1,
                                                FL_OPERANDS_OF(permute_operands),
                                                FL_SCALARS_OF(order),
                                                .shape_of = permuted_shape,
                                                .run = run_permute};
const struct fl_function fl_function_slice = {.name = "slice",
                                              .op = FL_OP_SLICE,
                                              .outputs = 1,
                                              FL_OPERANDS_OF(slice_operands),
                                              FL_SCALARS_OF(slice_scalars),
                                              .shape_of = part_shape,
                                              .check = check_part,
                                              .run = run_slice};
const struct fl_function fl_function_slice_grad = {.name = "slice_grad",
                                                   .op = FL_OP_SLICE_GRAD,
                                                   .outputs = 1,
                                                   FL_OPERANDS_OF(slice_grad_operands),
                                                   FL_SCALARS_OF(slice_grad_scalars),
                                                   .shape_of = part_shape,
                                                   .check = check_part,
                                                   .run = run_slice};
const struct fl_function fl_function_concat = {.name = "concat",
                                               .op = FL_OP_CONCAT,
                                               .outputs = 1,
                                               FL_OPERANDS_OF(concat_operands),
                                               FL_SCALARS_OF(concat_scalars),
                                               .shape_of = joined_shape,
                                               .run = run_concat};

/* --- the public functions ----------------------------------------------------------------------------------------- */

/* The size of a dimension; 0 where there is none, which is then no shape that fits. */
static int64_t length_of(const tensor *t, int dim) {
    return t && dim >= 0 && dim < t->ndim ? t->shape[dim] : 0;
}

tensor_status tensor_permute(tensor *y, const tensor *x, const int *order_given) {
    int64_t packed = 0;
    if (!order_given)
        return fl_fail(TENSOR_E_ARGUMENT, "permute: order is NULL");
    for (int d = 0; x && d < x->ndim; d++) {
        if (order_given[d] < 0 || order_given[d] >= x->ndim)
            return fl_fail(TENSOR_E_ARGUMENT, "permute: order[%d] is %d, expected each of 0 to %d once", d,
                           order_given[d], x->ndim - 1);
        packed |= (int64_t)order_given[d] << 4 * d;
    }
    return FL_INVOKE(permute, FL_GIVEN(y, x), FL_INTEGER(packed));
}
tensor_status tensor_slice(tensor *y, const tensor *x, int dim, int64_t first) {
    return FL_INVOKE(slice, FL_GIVEN(y, x), FL_INTEGER(dim), FL_INTEGER(length_of(y, dim)), FL_INTEGER(first));
}
tensor_status tensor_slice_grad(tensor *dx, const tensor *dy, int dim, int64_t first) {
    return FL_INVOKE(slice_grad, FL_GIVEN(dx, dy), FL_INTEGER(dim), FL_INTEGER(length_of(dy, dim)), FL_INTEGER(first));
}
tensor_status tensor_concat(tensor *y, const tensor *a, const tensor *b, const tensor *c, int dim) {
    return FL_INVOKE(concat, FL_GIVEN(y, a, b, c), FL_INTEGER(dim), FL_INTEGER(length_of(b, dim)),
                     FL_INTEGER(length_of(c, dim)));
}
