/* copies.c - permutations, slices and concatenations: reference kernel, kernel in threads for every format, the
 * operations. A result is an element of an operand, exactly, or zero, and is stored as any other result of a write:
 * brought to its place as it is, then looked at, and rounded where the exponent is another. */
#include "core/table/any_format.h"
#include "core/operations/check_operands.h"
#include "core/rows/copy_rules.h"
#include "core/rows/rows.h"

enum { BLOCK = 4096 /* elements of the output that a thread copies at a time */ };

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

/* Where in the input an element of the output stands, and its indices. */
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

FL_ROWS_KERNELS(fl_copy_any, copy, need)

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
    args.p.permutation.ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        if (order[d] < 0 || order[d] >= x->ndim || (seen >> order[d] & 1))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: order[%d] is %d, expected each of 0 to %d once", name, d, order[d],
                           x->ndim - 1);
        seen |= 1u << order[d];
        args.p.permutation.shape[d] = x->shape[order[d]];
        args.p.permutation.stride[d] = stride[order[d]];
    }
    TRY(check_shape_is(name, (struct operand){"y", y}, x->ndim, args.p.permutation.shape));
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
                           .p.slice = {.rows = x->count / (x->shape[dim] * inner),
                                       .columns = x->shape[dim] * inner,
                                       .first = first * inner,
                                       .part = y->shape[dim] * inner}};
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
                           .p.slice = {.rows = dx->count / (dx->shape[dim] * inner),
                                       .columns = dx->shape[dim] * inner,
                                       .first = first * inner,
                                       .part = dy->shape[dim] * inner}};
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
    args.p.rows.n = length * inner_of(a, dim);
    args.p.rows.m = y->count / args.p.rows.n;
    return fl_write(y, &args);
}
