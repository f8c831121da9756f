/* axes_ops.c - the functions over any dimensions and over broadcast operands: their signatures, and the dimensions and
 * strides for their kernels. Inputs may be views with strides. */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "flexlab/tensor_blocks.h"
#include <stddef.h>
#include <string.h>

/* --- shapes ------------------------------------------------------------------------------------------------------- */

/* Reductions, gradients and argmax have one scalar: a set of dimensions, or one dimension. */
static unsigned axes_of(const struct fl_invocation *call) {
    const int64_t given = call->scalars[0].integer;
    return call->function->op == FL_OP_ARGMAX ? 1u << given : (unsigned)given;
}

/* The shape of x without the dimensions in axes, or with 1 in their place. */
static int without(const tensor *x, unsigned axes, bool keep, int64_t *shape) {
    int ndim = 0;
    for (int d = 0; d < x->ndim; d++)
        if (!(axes >> d & 1))
            shape[ndim++] = x->shape[d];
        else if (keep)
            shape[ndim++] = 1;
    if (!ndim)
        shape[ndim++] = 1;
    return ndim;
}

static bool has_shape(const tensor *t, int ndim, const int64_t *shape) {
    return t->ndim == ndim && !memcmp(t->shape, shape, (size_t)ndim * sizeof shape[0]);
}

/* The shape of the reduced tensor: operand 0 of a reduction, operand 1 of its gradient; the other operand is the whole.
 * A reduced tensor with 1 in place of the dimensions is allowed too. */
static int reduced_shape(const struct fl_invocation *call, int operand, int64_t *shape) {
    const tensor *whole = call->tensors[1 - operand], *given = call->tensors[operand];
    const int ndim = without(whole, axes_of(call), true, shape);
    return given && has_shape(given, ndim, shape) ? ndim : without(whole, axes_of(call), false, shape);
}

/* --- dimensions and strides --------------------------------------------------------------------------------------- */

static void set_shape(struct fl_axes *s, const tensor *t) {
    s->ndim = (int16_t)t->ndim;
    memcpy(s->shape, t->shape, sizeof s->shape);
}

/* Sets the strides of t, which has the shape. */
static void set_strides(struct fl_axes *s, int which, const tensor *t) {
    s->offset[which] = fl_strides_of(t, s->stride[which]);
}

/* Sets the strides of t, which is broadcast to the shape: dimensions are aligned at the last, and those of size 1 are
 * repeated. */
static void set_broadcast(struct fl_axes *s, int which, const tensor *t) {
    int64_t stride[TENSOR_MAX_DIMS];
    const int skipped = s->ndim - t->ndim;
    s->offset[which] = fl_strides_of(t, stride);
    for (int d = 0; d < s->ndim; d++)
        s->stride[which][d] = d < skipped || t->shape[d - skipped] == 1 ? 0 : stride[d - skipped];
}

/* --- reductions --------------------------------------------------------------------------------------------------- */

/* Describes the elements of x and the results to which they are reduced. */
static tensor_status run_reduce(const struct fl_invocation *call, struct fl_args *args) {
    set_shape(&args->p.axes, call->tensors[1]);
    set_strides(&args->p.axes, 0, call->tensors[1]);
    args->p.axes.inner = (uint8_t)axes_of(call);
    return fl_write((tensor *)call->tensors[0], args);
}

/* Describes the elements of dx: for each the element of dy, that of x, and its number in its group. */
static tensor_status run_reduce_grad(const struct fl_invocation *call, struct fl_args *args) {
    const unsigned axes = axes_of(call);
    const tensor *dx = call->tensors[0];
    struct fl_axes *s = &args->p.axes;
    set_shape(s, dx);
    s->inner = (uint8_t)axes;
    if (call->function->operand_count > 2)
        set_strides(s, 1, call->tensors[2]);
    int64_t group = 1, term = 1;
    for (int d = dx->ndim - 1; d >= 0; d--) {
        const bool folded = axes >> d & 1;
        s->stride[folded ? 2 : 0][d] = folded ? term : group;
        *(folded ? &term : &group) *= dx->shape[d];
    }
    return fl_write((tensor *)dx, args);
}

/* invoke.c compares only the counts of numbers; indices have the shape of the reduced x. */
static tensor_status check_index_shape(const tensor *index, int ndim, const int64_t *shape) {
    tensor expected = {.ndim = ndim};
    memcpy(expected.shape, shape, (size_t)ndim * sizeof shape[0]);
    char given[TENSOR_TEXT], wanted[TENSOR_TEXT];
    return index->ndim == ndim && !memcmp(index->shape, shape, (size_t)ndim * sizeof shape[0])
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "argmax: index is %s, expected %s", fl_shape_text(index, given),
                         fl_shape_text(&expected, wanted));
}

static tensor_status check_argmax(const struct fl_invocation *call) {
    const tensor *index = call->tensors[0], *x = call->tensors[1];
    const int64_t axis = call->scalars[0].integer;
    int64_t shape[TENSOR_MAX_DIMS];
    char text[TENSOR_TEXT];
    if (x->shape[axis] > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "argmax: dimension %lld of %s, expected fewer than 2^31 elements",
                       (long long)axis, fl_shape_text(x, text));
    return check_index_shape(index, reduced_shape(call, 0, shape), shape);
}

static tensor_status run_argmax(const struct fl_invocation *call, struct fl_args *args) {
    set_shape(&args->p.axes, call->tensors[1]);
    set_strides(&args->p.axes, 0, call->tensors[1]);
    args->p.axes.inner = (uint8_t)axes_of(call);
    args->out = fl_view_of(call->tensors[0]);
    return fl_run(call->tensors[1], args);
}

static const struct fl_operand reduce_operands[] = {{"y", "="}, {"x", "e*", FL_STRIDED, .at = FL_AT(in[0])}};
static const struct fl_operand reduce_grad_operands[] = {
    {"dx", "e*"}, {"dy", "=", .at = FL_AT(in[0])}, {"x", "e*", FL_STRIDED, .at = FL_AT(in[1])}};
static const struct fl_operand argmax_operands[] = {{"index", "=", .class = FL_CLASS_I32},
                                                    {"x", "e*", FL_STRIDED, .at = FL_AT(in[0])}};
static const struct fl_scalar_rule axes_of_x[] = {{"axes", FL_AXES, .of = 1}};
static const struct fl_scalar_rule axes_of_dx[] = {{"axes", FL_AXES, .of = 0}};
static const struct fl_scalar_rule axis_of_x[] = {{"axis", FL_DIM, .of = 1}};

#define REDUCTION(OP, text)                                                                                            \
    {                                                                                                                  \
        .name = text, .op = FL_OP_##OP, .outputs = 1, FL_OPERANDS_OF(reduce_operands), FL_SCALARS_OF(axes_of_x),       \
        .shape_of = reduced_shape, .run = run_reduce                                                                   \
    }
#define REDUCTION_GRAD(OP, text, operands_given)                                                                       \
    {                                                                                                                  \
        .name = text, .op = FL_OP_##OP, .outputs = 1, .operand_count = operands_given,                                 \
        .operands = reduce_grad_operands, FL_SCALARS_OF(axes_of_dx), .shape_of = reduced_shape, .run = run_reduce_grad \
    }
const struct fl_function fl_function_reduce_sum = REDUCTION(REDUCE_SUM, "reduce_sum");
const struct fl_function fl_function_reduce_mean = REDUCTION(REDUCE_MEAN, "reduce_mean");
const struct fl_function fl_function_reduce_max = REDUCTION(REDUCE_MAX, "reduce_max");
const struct fl_function fl_function_reduce_min = REDUCTION(REDUCE_MIN, "reduce_min");
const struct fl_function fl_function_reduce_l1 = REDUCTION(REDUCE_L1, "reduce_l1");
const struct fl_function fl_function_reduce_l2 = REDUCTION(REDUCE_L2, "reduce_l2");
/* Gradients of sums and means need no x. */
const struct fl_function fl_function_reduce_sum_grad = REDUCTION_GRAD(REDUCE_SUM_GRAD, "reduce_sum_grad", 2);
const struct fl_function fl_function_reduce_mean_grad = REDUCTION_GRAD(REDUCE_MEAN_GRAD, "reduce_mean_grad", 2);
const struct fl_function fl_function_reduce_max_grad = REDUCTION_GRAD(REDUCE_MAX_GRAD, "reduce_max_grad", 3);
const struct fl_function fl_function_reduce_min_grad = REDUCTION_GRAD(REDUCE_MIN_GRAD, "reduce_min_grad", 3);
const struct fl_function fl_function_reduce_l1_grad = REDUCTION_GRAD(REDUCE_L1_GRAD, "reduce_l1_grad", 3);
const struct fl_function fl_function_reduce_l2_grad = REDUCTION_GRAD(REDUCE_L2_GRAD, "reduce_l2_grad", 3);
const struct fl_function fl_function_argmax = {.name = "argmax",
                                               .op = FL_OP_ARGMAX,
                                               .outputs = 1,
                                               FL_OPERANDS_OF(argmax_operands),
                                               FL_SCALARS_OF(axis_of_x),
                                               .shape_of = reduced_shape,
                                               .check = check_argmax,
                                               .run = run_argmax};

#define DEFINE_REDUCTION(name)                                                                                         \
    tensor_status tensor_##name(tensor *y, const tensor *x, unsigned axes) {                                           \
        return FL_INVOKE(name, FL_GIVEN(y, x), FL_INTEGER(axes));                                                      \
    }
DEFINE_REDUCTION(reduce_sum)
DEFINE_REDUCTION(reduce_mean)
DEFINE_REDUCTION(reduce_max)
DEFINE_REDUCTION(reduce_min)
DEFINE_REDUCTION(reduce_l1)
DEFINE_REDUCTION(reduce_l2)

#define DEFINE_GRADIENT(name)                                                                                          \
    tensor_status tensor_##name(tensor *dx, const tensor *dy, const tensor *x, unsigned axes) {                        \
        return FL_INVOKE(name, FL_GIVEN(dx, dy, x), FL_INTEGER(axes));                                                 \
    }
DEFINE_GRADIENT(reduce_max_grad)
DEFINE_GRADIENT(reduce_min_grad)
DEFINE_GRADIENT(reduce_l1_grad)
DEFINE_GRADIENT(reduce_l2_grad)
tensor_status tensor_reduce_sum_grad(tensor *dx, const tensor *dy, unsigned axes) {
    return FL_INVOKE(reduce_sum_grad, FL_GIVEN(dx, dy), FL_INTEGER(axes));
}
tensor_status tensor_reduce_mean_grad(tensor *dx, const tensor *dy, unsigned axes) {
    return FL_INVOKE(reduce_mean_grad, FL_GIVEN(dx, dy), FL_INTEGER(axes));
}
tensor_status tensor_argmax(tensor *index, const tensor *x, int axis) {
    return FL_INVOKE(argmax, FL_GIVEN(index, x), FL_INTEGER(axis));
}

/* --- broadcast operands ------------------------------------------------------------------------------------------- */

static tensor_status run_broadcast(const struct fl_invocation *call, struct fl_args *args) {
    set_shape(&args->p.axes, call->tensors[0]);
    for (int i = 0; i < 2; i++)
        set_broadcast(&args->p.axes, i, call->tensors[1 + i]);
    return fl_write((tensor *)call->tensors[0], args);
}

/* The dimensions of dy that an operand of the shape of da was repeated along. */
static unsigned repeated(const tensor *da, const tensor *dy) {
    unsigned axes = 0;
    const int skipped = dy->ndim - da->ndim;
    for (int d = 0; d < dy->ndim; d++)
        if (d < skipped || (da->shape[d - skipped] == 1 && dy->shape[d] != 1))
            axes |= 1u << d;
    return axes;
}

static tensor_status run_broadcast_grad(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *da = call->tensors[0], *dy = call->tensors[1];
    set_shape(&args->p.axes, dy);
    args->p.axes.inner = (uint8_t)repeated(da, dy);
    set_strides(&args->p.axes, 0, dy);
    if (call->function->operand_count > 2)
        set_broadcast(&args->p.axes, 1, call->tensors[2]);
    return fl_write((tensor *)da, args);
}

static tensor_status run_where(const struct fl_invocation *call, struct fl_args *args) {
    set_shape(&args->p.axes, call->tensors[0]);
    set_broadcast(&args->p.axes, 2, call->tensors[1]);
    for (int i = 0; i < 2; i++)
        set_broadcast(&args->p.axes, i, call->tensors[2 + i]);
    return fl_write((tensor *)call->tensors[0], args);
}

static tensor_status run_where_grad(const struct fl_invocation *call, struct fl_args *args) {
    set_shape(&args->p.axes, call->tensors[0]);
    set_strides(&args->p.axes, 0, call->tensors[1]);
    set_broadcast(&args->p.axes, 2, call->tensors[2]);
    return fl_write((tensor *)call->tensors[0], args);
}

/* The copy is a permutation that exchanges no dimensions. */
static tensor_status run_contiguous(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *x = call->tensors[1];
    struct fl_permutation *p = &args->p.permutation;
    p->ndim = x->ndim;
    memcpy(p->shape, x->shape, sizeof p->shape);
    p->offset = fl_strides_of(x, p->stride);
    return fl_write((tensor *)call->tensors[0], args);
}

#define REPEATED (FL_STRIDED | FL_BROADCAST)
#define MASK                                                                                                           \
    { "mask", "e*", REPEATED, FL_CLASS_U8, FL_AT(p.axes.marks) }
static const struct fl_operand broadcast_operands[] = {
    {"y", "e*"}, {"a", "e*", REPEATED, .at = FL_AT(in[0])}, {"b", "e*", REPEATED, .at = FL_AT(in[1])}};
static const struct fl_operand broadcast_grad_operands[] = {{"da", "e*", FL_BROADCAST},
                                                            {"dy", "e*", FL_STRIDED, .at = FL_AT(in[0])},
                                                            {"b", "e*", REPEATED, .at = FL_AT(in[1])}};
static const struct fl_operand where_operands[] = {
    {"y", "e*"}, MASK, {"a", "e*", REPEATED, .at = FL_AT(in[0])}, {"b", "e*", REPEATED, .at = FL_AT(in[1])}};
static const struct fl_operand where_grad_operands[] = {
    {"da", "e*"}, {"dy", "e*", FL_STRIDED, .at = FL_AT(in[0])}, MASK};
static const struct fl_operand contiguous_operands[] = {{"y", "e*"}, {"x", "e*", FL_STRIDED, .at = FL_AT(in[0])}};
static const struct fl_scalar_rule marked_alone[] = {{"marked", FL_BOOL, .at = FL_AT(p.axes.marked)}};

const struct fl_function fl_function_broadcast_add = {.name = "broadcast_add",
                                                      .op = FL_OP_BROADCAST_ADD,
                                                      .outputs = 1,
                                                      FL_OPERANDS_OF(broadcast_operands),
                                                      .run = run_broadcast};
const struct fl_function fl_function_broadcast_mul = {.name = "broadcast_mul",
                                                      .op = FL_OP_BROADCAST_MUL,
                                                      .outputs = 1,
                                                      FL_OPERANDS_OF(broadcast_operands),
                                                      .run = run_broadcast};
const struct fl_function fl_function_broadcast_add_grad = {.name = "broadcast_add_grad",
                                                           .op = FL_OP_REDUCE_SUM,
                                                           .outputs = 1,
                                                           .operand_count = 2, /* without b */
                                                           .operands = broadcast_grad_operands,
                                                           .run = run_broadcast_grad};
const struct fl_function fl_function_broadcast_mul_grad = {.name = "broadcast_mul_grad",
                                                           .op = FL_OP_BROADCAST_MUL_GRAD,
                                                           .outputs = 1,
                                                           FL_OPERANDS_OF(broadcast_grad_operands),
                                                           .run = run_broadcast_grad};
const struct fl_function fl_function_where = {
    .name = "where", .op = FL_OP_WHERE, .outputs = 1, FL_OPERANDS_OF(where_operands), .run = run_where};
const struct fl_function fl_function_where_grad = {.name = "where_grad",
                                                   .op = FL_OP_WHERE_GRAD,
                                                   .outputs = 1,
                                                   FL_OPERANDS_OF(where_grad_operands),
                                                   FL_SCALARS_OF(marked_alone),
                                                   .run = run_where_grad};
const struct fl_function fl_function_contiguous = {.name = "contiguous",
                                                   .op = FL_OP_PERMUTE,
                                                   .outputs = 1,
                                                   FL_OPERANDS_OF(contiguous_operands),
                                                   .run = run_contiguous};

tensor_status tensor_broadcast_add(tensor *y, const tensor *a, const tensor *b) {
    return FL_INVOKE_PLAIN(broadcast_add, FL_GIVEN(y, a, b));
}
tensor_status tensor_broadcast_mul(tensor *y, const tensor *a, const tensor *b) {
    return FL_INVOKE_PLAIN(broadcast_mul, FL_GIVEN(y, a, b));
}
tensor_status tensor_broadcast_add_grad(tensor *da, const tensor *dy) {
    return FL_INVOKE_PLAIN(broadcast_add_grad, FL_GIVEN(da, dy));
}
tensor_status tensor_broadcast_mul_grad(tensor *da, const tensor *dy, const tensor *b) {
    return FL_INVOKE_PLAIN(broadcast_mul_grad, FL_GIVEN(da, dy, b));
}
tensor_status tensor_where(tensor *y, const tensor *mask, const tensor *a, const tensor *b) {
    return FL_INVOKE_PLAIN(where, FL_GIVEN(y, mask, a, b));
}
tensor_status tensor_where_grad(tensor *da, const tensor *dy, const tensor *mask, bool marked) {
    return FL_INVOKE(where_grad, FL_GIVEN(da, dy, mask), FL_INTEGER(marked));
}
tensor_status tensor_contiguous(tensor *y, const tensor *x) {
    return FL_INVOKE_PLAIN(contiguous, FL_GIVEN(y, x));
}
