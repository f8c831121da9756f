/* copies.c - permutations, slices and concatenations: reference kernel, kernel in threads for every format, the
 * operations. A result is an element of an operand, exactly, or zero, and is stored as any other result of a write. */
#include "core/any_format.h"
#include "core/check_operands.h"
#include "core/copy_rules.h"
#include "core/rows.h"

enum { BLOCK = 1024 /* elements of the output that a thread copies at a time */ };

tensor_status fl_ref_copy(const struct fl_args *args) {
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

/* Elements that do not lie side by side: brought together as they are, then decoded at once. */
static void decode_scattered(const struct fl_args *args, int64_t first, int64_t n, double *value) {
    const struct fl_strides *s = &args->strides;
    const int bytes = args->format->bytes, last = s->ndim - 1;
    _Alignas(8) char together[BLOCK * 8];
    const char *in = args->in[0].data;
    for (int64_t i = 0; i < n;) {
        int64_t at = fl_permuted_from(s, first + i).at;
        int64_t left = s->shape[last] - (first + i) % s->shape[last]; /* of the last dimension */
        for (left = left < n - i ? left : n - i; left > 0; left--, i++, at += s->stride[last])
            memcpy(together + i * bytes, in + at * bytes, (size_t)bytes);
    }
    const struct fl_view view = {together, NULL, args->in[0].e, n};
    args->format->decode(&view, 0, n, value);
}

static void decode_runs(const struct fl_args *args, int64_t first, int64_t n, double *value) {
    for (int64_t i = 0; i < n;) {
        const struct fl_origin from = fl_copied_from(args, first + i);
        const int64_t run = from.run < n - i ? from.run : n - i;
        if (from.operand < 0)
            memset(value + i, 0, (size_t)run * sizeof *value);
        else
            args->format->decode(&args->in[from.operand], from.at, run, value + i);
        i += run;
    }
}

static void copy_block(const struct fl_rows *rows, int64_t block, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t first = block * BLOCK, left = args->out.count - first, n = left < BLOCK ? left : BLOCK;
    const struct fl_strides *s = &args->strides;
    if (args->op == FL_OP_PERMUTE && s->stride[s->ndim - 1] != 1)
        decode_scattered(args, first, n, own);
    else
        decode_runs(args, first, n, own);
    fl_rows_store(args, first, n, own, fl_rows_largest(own, n), stats);
}

static struct fl_rows blocks_of(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = (args->out.count + BLOCK - 1) / BLOCK,
                            .width = BLOCK,
                            .doubles = BLOCK,
                            .run = copy_block};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = blocks_of(args);
    return fl_rows_need(&rows);
}

static tensor_status copy(const struct fl_args *args) {
    struct fl_rows rows = blocks_of(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

const struct fl_any_format fl_copy_any = {copy, need};

/* --- the operations ----------------------------------------------------------------------------------------------- */

tensor_status tensor_permute(tensor *y, const tensor *x, const int *order) {
    static const char name[] = "permute";
    struct fl_args args = {.op = FL_OP_PERMUTE};
    TRY(check_operands(name, OPERANDS({"y", y}, {"x", x})));
    TRY(check_distinct(name, OPERANDS({"y", y}, {"x", x})));
    if (!order)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: order is NULL", name);
    int64_t stride[TENSOR_MAX_DIMS], at = 1;
    for (int d = x->ndim - 1; d >= 0; at *= x->shape[d--])
        stride[d] = at;
    unsigned seen = 0;
    args.strides.ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        if (order[d] < 0 || order[d] >= x->ndim || (seen >> order[d] & 1))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: order[%d] is %d, expected each of 0 to %d once", name, d, order[d],
                           x->ndim - 1);
        seen |= 1u << order[d];
        args.strides.shape[d] = x->shape[order[d]];
        args.strides.stride[d] = stride[order[d]];
    }
    TRY(check_shape_is(name, (struct operand){"y", y}, x->ndim, args.strides.shape));
    args.in[0] = fl_view_of(x);
    return fl_write(y, &args);
}

/* Elements of t from one index of `dim` to the next. */
static int64_t inner_of(const tensor *t, int dim) {
    int64_t inner = 1;
    for (int d = dim + 1; d < t->ndim; d++)
        inner *= t->shape[d];
    return inner;
}

static tensor_status check_dim(const char *name, struct operand o, int dim) {
    char text[TENSOR_TEXT];
    return dim >= 0 && dim < o.t->ndim ? TENSOR_OK
                                       : fl_fail(TENSOR_E_ARGUMENT, "%s: dimension %d, expected 0 to %d: %s is %s",
                                                 name, dim, o.t->ndim - 1, o.name, fl_shape_text(o.t, text));
}

/* part is `whole` with fewer indices of a dimension, from `first` on. */
static tensor_status check_part(const char *name, struct operand whole, struct operand part, int dim, int64_t first) {
    TRY(check_dim(name, whole, dim));
    int64_t shape[TENSOR_MAX_DIMS];
    memcpy(shape, whole.t->shape, sizeof shape);
    shape[dim] = part.t->ndim == whole.t->ndim ? part.t->shape[dim] : shape[dim];
    TRY(check_shape_is(name, part, whole.t->ndim, shape));
    if (first < 0 || shape[dim] > whole.t->shape[dim] || first > whole.t->shape[dim] - shape[dim])
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: %lld indices from %lld on, expected them in 0 to %lld: dimension %d of %s", name,
                       (long long)shape[dim], (long long)first, (long long)whole.t->shape[dim] - 1, dim, whole.name);
    return TENSOR_OK;
}

tensor_status tensor_slice(tensor *y, const tensor *x, int dim, int64_t first) {
    static const char name[] = "slice";
    TRY(check_operands(name, OPERANDS({"y", y}, {"x", x})));
    TRY(check_distinct(name, OPERANDS({"y", y}, {"x", x})));
    TRY(check_part(name, (struct operand){"x", x}, (struct operand){"y", y}, dim, first));
    const int64_t inner = inner_of(x, dim);
    struct fl_args args = {.op = FL_OP_SLICE,
                           .in = {fl_view_of(x)},
                           .geo = {.n = y->shape[dim] * inner, .c = x->shape[dim] * inner, .k = first * inner}};
    args.geo.m = y->count / args.geo.n;
    return fl_write(y, &args);
}

tensor_status tensor_slice_grad(tensor *dx, const tensor *dy, int dim, int64_t first) {
    static const char name[] = "slice_grad";
    TRY(check_operands(name, OPERANDS({"dx", dx}, {"dy", dy})));
    TRY(check_distinct(name, OPERANDS({"dx", dx}, {"dy", dy})));
    TRY(check_part(name, (struct operand){"dx", dx}, (struct operand){"dy", dy}, dim, first));
    const int64_t inner = inner_of(dx, dim);
    struct fl_args args = {.op = FL_OP_SLICE_GRAD,
                           .in = {fl_view_of(dy)},
                           .geo = {.n = dx->shape[dim] * inner, .c = dy->shape[dim] * inner, .k = first * inner}};
    args.geo.m = dx->count / args.geo.n;
    return fl_write(dx, &args);
}

tensor_status tensor_concat(tensor *y, const tensor *a, const tensor *b, const tensor *c, int dim) {
    static const char name[] = "concat";
    const struct operand parts[3] = {{"a", a}, {"b", b}, {"c", c}};
    const int count = c ? 3 : 2;
    struct fl_args args = {.op = FL_OP_CONCAT};
    TRY(check_operands(name, OPERANDS({"y", y}, {"a", a}, {"b", b})));
    TRY(check_distinct(name, OPERANDS({"y", y}, {"a", a}, {"b", b})));
    if (c) {
        TRY(check_operands(name, OPERANDS({"y", y}, {"c", c})));
        TRY(check_distinct(name, OPERANDS({"y", y}, {"c", c})));
    }
    TRY(check_dim(name, parts[0], dim));
    int64_t shape[TENSOR_MAX_DIMS], length = 0;
    for (int i = 0; i < count; i++) {
        memcpy(shape, a->shape, sizeof shape);
        shape[dim] = parts[i].t->ndim == a->ndim ? parts[i].t->shape[dim] : shape[dim];
        TRY(check_shape_is(name, parts[i], a->ndim, shape));
        length += shape[dim];
        args.in[i] = fl_view_of(parts[i].t);
    }
    shape[dim] = length;
    TRY(check_shape_is(name, (struct operand){"y", y}, a->ndim, shape));
    args.geo.n = length * inner_of(a, dim);
    args.geo.m = y->count / args.geo.n;
    return fl_write(y, &args);
}
