/* axes_ops.c - the operations over any dimensions and over broadcast operands: their checks, and the walks that their
 * kernels take. Inputs may be views with strides. */
#include "core/operations/check_operands.h"
#include "core/ops/axes/walk.h"

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* out is written, the others are read as they lie: one format, other tensors than out. */
static tensor_status check(const char *name, struct operand out, const struct operand *in, int n) {
    if (!out.t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, out.name);
    TRY(fl_need_elements(name, out.t));
    TRY(fl_need_arithmetic(name, out.name, out.t));
    for (int i = 0; i < n; i++) {
        if (!in[i].t)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, in[i].name);
        if (in[i].t->format != out.t->format)
            return fl_fail(TENSOR_E_FORMAT, "%s: %s is %s, %s is %s; tensor_convert is the bridge", name, out.name,
                           out.t->format->name, in[i].name, in[i].t->format->name);
        TRY(fl_check_apart(name, out.name, out.t, in[i].name, in[i].t));
        TRY(check_distinct(name, OPERANDS(out, in[i])));
        TRY(fl_need_present(name, in[i].t));
    }
    return TENSOR_OK;
}

static tensor_status check_axes(const char *name, const tensor *x, unsigned axes) {
    char text[TENSOR_TEXT];
    return axes >> x->ndim ? fl_fail(TENSOR_E_ARGUMENT, "%s: axes are 0x%x, expected bits 0 to %d alone for %s", name,
                                     axes, x->ndim - 1, fl_shape_text(x, text))
                           : TENSOR_OK;
}

/* The shape of x without the dimensions in axes, or with 1 in their place. */
static int reduced_shape(const tensor *x, unsigned axes, bool keep, int64_t *shape) {
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

static tensor_status check_reduced(const char *name, struct operand y, const tensor *x, unsigned axes) {
    int64_t shape[TENSOR_MAX_DIMS], kept[TENSOR_MAX_DIMS];
    TRY(check_axes(name, x, axes));
    const int ndim = reduced_shape(x, axes, false, shape);
    return has_shape(y.t, reduced_shape(x, axes, true, kept), kept) ? TENSOR_OK : check_shape_is(name, y, ndim, shape);
}

/* --- walks -------------------------------------------------------------------------------------------------------- */

static struct fl_axes shape_of(const tensor *t) {
    struct fl_axes s = {.ndim = (int16_t)t->ndim};
    memcpy(s.shape, t->shape, sizeof s.shape);
    return s;
}

/* Strides of what x becomes without its dimensions in axes, in the shape of x. */
static void strides_of_result(const tensor *x, unsigned axes, int64_t *stride) {
    int64_t at = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        stride[d] = axes >> d & 1 ? 0 : at;
        at *= axes >> d & 1 ? 1 : x->shape[d];
    }
}

/* The elements of x by what they are reduced to. */
static struct fl_axes groups_of(const tensor *x, unsigned axes) {
    struct fl_axes s = shape_of(x);
    s.inner = (uint8_t)axes;
    s.offset[0] = fl_strides_of(x, s.stride[0]);
    return s;
}

/* The elements of dx (x's shape), with the one of the result that each belongs to, its own in x, and which term of its
 * group it is. */
static struct fl_axes elements_of(const tensor *dx, const tensor *x, unsigned axes) {
    struct fl_axes s = shape_of(dx);
    s.inner = (uint8_t)axes;
    strides_of_result(dx, axes, s.stride[0]);
    if (x)
        s.offset[1] = fl_strides_of(x, s.stride[1]);
    int64_t at = 1;
    for (int d = dx->ndim - 1; d >= 0; d--)
        if (axes >> d & 1) {
            s.stride[2][d] = at;
            at *= dx->shape[d];
        }
    return s;
}

/* --- reductions --------------------------------------------------------------------------------------------------- */

static tensor_status reduce(const char *name, enum fl_op op, tensor *y, const tensor *x, unsigned axes) {
    const struct operand oy = {"y", y};
    TRY(check(name, oy, OPERANDS({"x", x})));
    TRY(check_reduced(name, oy, x, axes));
    struct fl_args args = {.op = op, .in = {fl_view_of(x)}, .p.axes = groups_of(x, axes)};
    return fl_write(y, &args);
}

/* x NULL: the gradient does not ask for it. */
static tensor_status reduce_grad(const char *name, enum fl_op op, tensor *dx, const tensor *dy, const tensor *x,
                                 bool wants_x, unsigned axes) {
    const struct operand odx = {"dx", dx}, operands[] = {{"dy", dy}, {"x", x}};
    TRY(check(name, odx, operands, wants_x ? 2 : 1));
    TRY(fl_need_contiguous(name, dy));
    TRY(check_reduced(name, operands[0], dx, axes));
    if (wants_x)
        TRY(check_same_shapes(name, OPERANDS(odx, operands[1])));
    struct fl_args args = {.op = op, .in = {fl_view_of(dy)}, .p.axes = elements_of(dx, x, axes)};
    if (wants_x)
        args.in[1] = fl_view_of(x);
    return fl_write(dx, &args);
}

tensor_status tensor_reduce_sum(tensor *y, const tensor *x, unsigned axes) {
    return reduce("reduce_sum", FL_OP_REDUCE_SUM, y, x, axes);
}
tensor_status tensor_reduce_mean(tensor *y, const tensor *x, unsigned axes) {
    return reduce("reduce_mean", FL_OP_REDUCE_MEAN, y, x, axes);
}
tensor_status tensor_reduce_max(tensor *y, const tensor *x, unsigned axes) {
    return reduce("reduce_max", FL_OP_REDUCE_MAX, y, x, axes);
}
tensor_status tensor_reduce_min(tensor *y, const tensor *x, unsigned axes) {
    return reduce("reduce_min", FL_OP_REDUCE_MIN, y, x, axes);
}
tensor_status tensor_reduce_l1(tensor *y, const tensor *x, unsigned axes) {
    return reduce("reduce_l1", FL_OP_REDUCE_L1, y, x, axes);
}
tensor_status tensor_reduce_l2(tensor *y, const tensor *x, unsigned axes) {
    return reduce("reduce_l2", FL_OP_REDUCE_L2, y, x, axes);
}

tensor_status tensor_reduce_sum_grad(tensor *dx, const tensor *dy, unsigned axes) {
    return reduce_grad("reduce_sum_grad", FL_OP_REDUCE_SUM_GRAD, dx, dy, NULL, false, axes);
}
tensor_status tensor_reduce_mean_grad(tensor *dx, const tensor *dy, unsigned axes) {
    return reduce_grad("reduce_mean_grad", FL_OP_REDUCE_MEAN_GRAD, dx, dy, NULL, false, axes);
}
tensor_status tensor_reduce_max_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes) {
    return reduce_grad("reduce_max_grad", FL_OP_REDUCE_MAX_GRAD, dx, dy, x, true, axes);
}
tensor_status tensor_reduce_min_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes) {
    return reduce_grad("reduce_min_grad", FL_OP_REDUCE_MIN_GRAD, dx, dy, x, true, axes);
}
tensor_status tensor_reduce_l1_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes) {
    return reduce_grad("reduce_l1_grad", FL_OP_REDUCE_L1_GRAD, dx, dy, x, true, axes);
}
tensor_status tensor_reduce_l2_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes) {
    return reduce_grad("reduce_l2_grad", FL_OP_REDUCE_L2_GRAD, dx, dy, x, true, axes);
}

tensor_status tensor_argmax(tensor *index, const tensor *x, int axis) {
    static const char name[] = "argmax";
    char text[TENSOR_TEXT];
    if (!x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: x is NULL", name);
    TRY(fl_need_present(name, x));
    TRY(fl_need_arithmetic(name, "x", x));
    if (axis < 0 || axis >= x->ndim)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: axis is %d, expected 0 to %d for %s", name, axis, x->ndim - 1,
                       fl_shape_text(x, text));
    if (x->shape[axis] > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%s: dimension %d of %s, expected fewer than 2^31 elements", name, axis,
                       fl_shape_text(x, text));
    TRY(fl_check_numbers(name, "index", index, FMT_I32, x->count / x->shape[axis], x));
    TRY(fl_need_elements(name, index));
    TRY(check_reduced(name, (struct operand){"index", index}, x, 1u << axis));
    struct fl_args args = {
        .op = FL_OP_ARGMAX, .in = {fl_view_of(x)}, .out = fl_view_of(index), .p.axes = groups_of(x, 1u << axis)};
    return fl_run(x, &args);
}

/* --- broadcast operands ------------------------------------------------------------------------------------------- */

static tensor_status bring(const char *name, struct fl_axes *s, int which, struct operand in, struct operand out) {
    char ti[TENSOR_TEXT], to[TENSOR_TEXT];
    return fl_axes_broadcast(s, which, in.t)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, %s is %s: dimensions, the last ones aligned, are equal or 1",
                         name, in.name, fl_shape_text(in.t, ti), out.name, fl_shape_text(out.t, to));
}

static tensor_status broadcast(const char *name, enum fl_op op, tensor *y, const tensor *a, const tensor *b) {
    const struct operand oy = {"y", y}, operands[] = {{"a", a}, {"b", b}};
    TRY(check(name, oy, operands, 2));
    struct fl_axes s = shape_of(y);
    for (int i = 0; i < 2; i++)
        TRY(bring(name, &s, i, operands[i], oy));
    struct fl_args args = {.op = op, .in = {fl_view_of(a), fl_view_of(b)}, .p.axes = s};
    return fl_write(y, &args);
}

tensor_status tensor_broadcast_add(tensor *y, const tensor *a, const tensor *b) {
    return broadcast("broadcast_add", FL_OP_BROADCAST_ADD, y, a, b);
}
tensor_status tensor_broadcast_mul(tensor *y, const tensor *a, const tensor *b) {
    return broadcast("broadcast_mul", FL_OP_BROADCAST_MUL, y, a, b);
}

/* The dimensions of dy that a of shape da was repeated along, aligned at the last. */
static unsigned repeated(const tensor *da, const tensor *dy) {
    unsigned axes = 0;
    const int skipped = dy->ndim - da->ndim;
    for (int d = 0; d < dy->ndim; d++)
        if (d < skipped || (da->shape[d - skipped] == 1 && dy->shape[d] != 1))
            axes |= 1u << d;
    return axes;
}

/* da <- dy, and with b the sum of dy b. */
static tensor_status broadcast_grad(const char *name, enum fl_op op, tensor *da, const tensor *dy, const tensor *b,
                                    int operands) {
    const struct operand oda = {"da", da}, ody = {"dy", dy}, in[] = {{"dy", dy}, {"b", b}};
    TRY(check(name, oda, in, operands));
    struct fl_axes s = shape_of(dy), of_da = shape_of(dy);
    TRY(bring(name, &of_da, 0, oda, ody));
    s.inner = (uint8_t)repeated(da, dy);
    s.offset[0] = fl_strides_of(dy, s.stride[0]);
    if (operands == 2)
        TRY(bring(name, &s, 1, in[1], ody));
    struct fl_args args = {.op = op, .in = {fl_view_of(dy)}, .p.axes = s};
    if (operands == 2)
        args.in[1] = fl_view_of(b);
    return fl_write(da, &args);
}

tensor_status tensor_broadcast_add_grad(tensor *da, const tensor *dy) {
    return broadcast_grad("broadcast_add_grad", FL_OP_REDUCE_SUM, da, dy, NULL, 1);
}
tensor_status tensor_broadcast_mul_grad(tensor *da, const tensor *dy, const tensor *b) {
    return broadcast_grad("broadcast_mul_grad", FL_OP_BROADCAST_MUL_GRAD, da, dy, b, 2);
}

/* --- choice ------------------------------------------------------------------------------------------------------- */

static tensor_status check_mask(const char *name, const tensor *mask, struct operand out, struct fl_axes *s) {
    if (!mask)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: mask is NULL", name);
    if (mask->format->id != FMT_U8)
        return fl_fail(TENSOR_E_FORMAT, "%s: mask is %s, expected u8", name, mask->format->name);
    TRY(fl_need_present(name, mask));
    TRY(fl_check_apart(name, out.name, out.t, "mask", mask));
    s->marks = mask->storage->data;
    return bring(name, s, 2, (struct operand){"mask", mask}, out);
}

tensor_status tensor_where(tensor *y, const tensor *mask, const tensor *a, const tensor *b) {
    static const char name[] = "where";
    const struct operand oy = {"y", y}, operands[] = {{"a", a}, {"b", b}};
    TRY(check(name, oy, operands, 2));
    struct fl_axes s = shape_of(y);
    for (int i = 0; i < 2; i++)
        TRY(bring(name, &s, i, operands[i], oy));
    TRY(check_mask(name, mask, oy, &s));
    struct fl_args args = {.op = FL_OP_WHERE, .in = {fl_view_of(a), fl_view_of(b)}, .p.axes = s};
    return fl_write(y, &args);
}

tensor_status tensor_where_grad(tensor *da, const tensor *dy, const tensor *mask, bool marked) {
    static const char name[] = "where_grad";
    const struct operand oda = {"da", da}, ody = {"dy", dy};
    TRY(check(name, oda, &ody, 1));
    TRY(check_same_shapes(name, OPERANDS(oda, ody)));
    struct fl_axes s = shape_of(da);
    s.marked = marked;
    s.offset[0] = fl_strides_of(dy, s.stride[0]);
    TRY(check_mask(name, mask, oda, &s));
    struct fl_args args = {.op = FL_OP_WHERE_GRAD, .in = {fl_view_of(dy)}, .p.axes = s};
    return fl_write(da, &args);
}

/* --- strides ------------------------------------------------------------------------------------------------------ */

tensor_status tensor_contiguous(tensor *y, const tensor *x) {
    static const char name[] = "contiguous";
    const struct operand oy = {"y", y}, ox = {"x", x};
    TRY(check(name, oy, &ox, 1));
    TRY(check_same_shapes(name, OPERANDS(oy, ox)));
    struct fl_args args = {.op = FL_OP_PERMUTE, .in = {fl_view_of(x)}, .p.permutation = {.ndim = x->ndim}};
    memcpy(args.p.permutation.shape, x->shape, sizeof args.p.permutation.shape);
    args.p.permutation.offset = fl_strides_of(x, args.p.permutation.stride);
    return fl_write(y, &args);
}
