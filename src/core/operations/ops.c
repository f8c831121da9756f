/* ops.c - the public operations: every check, then the kernel through fl_write or fl_run. */
#include "core/operations/check_operands.h"
#include "core/operations/epilogue.h"
#include "core/table/mixed.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/base/sized.h"
#include "core/tensor/wide.h"
#include <math.h>
#include <string.h>

/* --- bias, matmul ------------------------------------------------------------------------------------------------- */

static tensor_status bias(enum fl_op op, const char *name, tensor *y, const tensor *x, const tensor *b) {
    TRY(check_operands(name, OPERANDS({"y", y}, {"x", x}, {"b", b})));
    TRY(check_same_shapes(name, OPERANDS({"y", y}, {"x", x})));
    TRY(check_shape_is(name, (struct operand){"b", b}, 1, (int64_t[]){last_dim(x)}));
    TRY(check_distinct(name, OPERANDS({"y", y}, {"b", b})));
    struct fl_args args = {
        .op = op, .in = {fl_view_of(x), fl_view_of(b)}, .p.rows = {.m = x->count / last_dim(x), .n = last_dim(x)}};
    return fl_write(y, &args);
}

tensor_status tensor_bias(tensor *y, const tensor *x, const tensor *b) {
    return bias(FL_OP_BIAS, "bias", y, x, b);
}
tensor_status tensor_bias_relu(tensor *y, const tensor *x, const tensor *b) {
    return bias(FL_OP_BIAS_RELU, "bias_relu", y, x, b);
}

static const tensor_epilogue nothing;

static tensor_status matmul(enum fl_op op, const char *name, tensor *y, const tensor *a, const tensor *b, bool ta,
                            bool tb, tensor_epilogue with) {
    TRY(check_mixed_operands(name, OPERANDS({"y", y}, {"a", a}, {"b", b})));
    TRY(check_ndim(name, (struct operand){"a", a}, 2, "a matrix"));
    TRY(check_ndim(name, (struct operand){"b", b}, 2, "a matrix"));
    int64_t m = a->shape[ta], k = a->shape[!ta], kb = b->shape[tb], n = b->shape[!tb];
    char text_a[TENSOR_TEXT], text_b[TENSOR_TEXT];
    if (k != kb)
        return fl_fail(TENSOR_E_SHAPE, "%s: a is %s, b is %s: inner sizes %lld and %lld differ", name,
                       fl_shape_text(a, text_a), fl_shape_text(b, text_b), (long long)k, (long long)kb);
    TRY(check_shape_is(name, (struct operand){"y", y}, 2, (int64_t[]){m, n}));
    TRY(check_distinct(name, OPERANDS({"y", y}, {"a", a}, {"b", b})));
    struct fl_args args = {
        .op = op, .in = {fl_view_of(a), fl_view_of(b)}, .p.product.matrices = {.m = m, .n = n, .k = k}};
    TRY(fl_join_epilogue(name, y, &with, &args));
    TRY(fl_note_formats(name, y, (const tensor *const[]){a, b}, (const char *const[]){"a", "b"}, with.bias,
                        with.residual, &args));
    return fl_write(y, &args);
}

tensor_status tensor_matmul(tensor *y, const tensor *a, const tensor *b) {
    return matmul(FL_OP_MATMUL, "matmul", y, a, b, false, false, nothing);
}
tensor_status tensor_matmul_nt(tensor *y, const tensor *a, const tensor *b) {
    return matmul(FL_OP_MATMUL_NT, "matmul_nt", y, a, b, false, true, nothing);
}
tensor_status tensor_matmul_tn(tensor *y, const tensor *a, const tensor *b) {
    return matmul(FL_OP_MATMUL_TN, "matmul_tn", y, a, b, true, false, nothing);
}

tensor_status tensor_matmul_fused_sized(tensor *y, const tensor *a, const tensor *b, const tensor_epilogue *with,
                                        size_t with_size) {
    tensor_epilogue ours;
    TRY(fl_take_epilogue(&ours, with, with_size, "matmul_fused: tensor_epilogue"));
    return matmul(FL_OP_MATMUL, "matmul_fused", y, a, b, false, false, ours);
}
tensor_status tensor_matmul_nt_fused_sized(tensor *y, const tensor *a, const tensor *b, const tensor_epilogue *with,
                                           size_t with_size) {
    tensor_epilogue ours;
    TRY(fl_take_epilogue(&ours, with, with_size, "matmul_nt_fused: tensor_epilogue"));
    return matmul(FL_OP_MATMUL_NT, "matmul_nt_fused", y, a, b, false, true, ours);
}

/* --- means and shortcuts ---------------------------------------------------------------------------------------- */

static tensor_status image_geometry(const char *name, struct operand x, struct operand y, struct fl_windows *geo) {
    TRY(check_ndim(name, x, 4, "[N,H,W,C]"));
    TRY(check_ndim(name, y, 4, "[N,H,W,C]"));
    const int64_t *xs = x.t->shape, *ys = y.t->shape;
    geo->batch = xs[0];
    geo->h = xs[1];
    geo->w = xs[2];
    geo->c = xs[3];
    geo->p = ys[1];
    geo->q = ys[2];
    geo->filters = ys[3];
    return TENSOR_OK;
}

static tensor_status avgpool(enum fl_op op, const char *name, struct operand small, struct operand image, tensor *out,
                             const tensor *in) {
    TRY(check_operands(name, OPERANDS(small, {image.name, image.t})));
    TRY(check_ndim(name, image, 4, "[N,H,W,C]"));
    const int64_t *s = image.t->shape;
    TRY(check_shape_is(name, small, 2, (int64_t[]){s[0], s[3]}));
    TRY(check_distinct(name, OPERANDS(small, {image.name, image.t})));
    struct fl_args args = {
        .op = op,
        .in = {fl_view_of(in)},
        .p.pooling.windows = {.batch = s[0], .h = s[1], .w = s[2], .c = s[3], .p = 1, .q = 1, .filters = s[3]}};
    return fl_write(out, &args);
}

tensor_status tensor_avgpool_global(tensor *y, const tensor *x) {
    return avgpool(FL_OP_AVGPOOL_GLOBAL, "avgpool_global", (struct operand){"y", y}, (struct operand){"x", x}, y, x);
}
tensor_status tensor_avgpool_global_grad(tensor *dx, const tensor *dy) {
    return avgpool(FL_OP_AVGPOOL_GLOBAL_GRAD, "avgpool_global_grad", (struct operand){"dy", dy},
                   (struct operand){"dx", dx}, dx, dy);
}

static tensor_status shortcut(enum fl_op op, const char *name, struct operand x, struct operand y, int stride,
                              tensor *out, const tensor *in) {
    struct fl_args args = {.op = op};
    TRY(check_operands(name, OPERANDS(y, {x.name, x.t})));
    TRY(check_distinct(name, OPERANDS(y, {x.name, x.t})));
    if (stride < 1 || stride > TENSOR_WINDOW_LIMIT)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: stride %d, expected 1 to %d", name, stride, TENSOR_WINDOW_LIMIT);
    TRY(image_geometry(name, x, y, &args.p.pooling.windows));
    struct fl_windows *g = &args.p.pooling.windows;
    TRY(check_shape_is(name, y, 4,
                       (int64_t[]){g->batch, (g->h + stride - 1) / stride, (g->w + stride - 1) / stride, g->filters}));
    if (g->filters < g->c)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s has %lld channels, expected at least the %lld of %s", name, y.name,
                       (long long)g->filters, (long long)g->c, x.name);
    g->stride[0] = g->stride[1] = stride;
    args.in[0] = fl_view_of(in);
    return fl_write(out, &args);
}

tensor_status tensor_shortcut_a(tensor *y, const tensor *x, int stride) {
    return shortcut(FL_OP_SHORTCUT_A, "shortcut_a", (struct operand){"x", x}, (struct operand){"y", y}, stride, y, x);
}
tensor_status tensor_shortcut_a_grad(tensor *dx, const tensor *dy, int stride) {
    return shortcut(FL_OP_SHORTCUT_A_GRAD, "shortcut_a_grad", (struct operand){"dx", dx}, (struct operand){"dy", dy},
                    stride, dx, dy);
}

/* --- reductions --------------------------------------------------------------------------------------------------- */

tensor_status tensor_sum_rows(tensor *y, const tensor *x) {
    TRY(check_operands("sum_rows", OPERANDS({"y", y}, {"x", x})));
    TRY(check_shape_is("sum_rows", (struct operand){"y", y}, 1, (int64_t[]){last_dim(x)}));
    TRY(check_distinct("sum_rows", OPERANDS({"y", y}, {"x", x})));
    struct fl_args args = {
        .op = FL_OP_SUM_ROWS, .in = {fl_view_of(x)}, .p.rows = {.m = x->count / last_dim(x), .n = last_dim(x)}};
    return fl_write(y, &args);
}

tensor_status tensor_max_abs(double *maximum, const tensor *x) {
    if (!maximum)
        return fl_fail(TENSOR_E_ARGUMENT, "max_abs: result is NULL");
    TRY(check_operands("max_abs", OPERANDS({"x", x})));
    TRY(fl_need_host("max_abs", x));
    struct fl_stats stats = {0};
    struct fl_args args = {.op = FL_OP_MAX_ABS, .in = {fl_view_of(x)}, .stats = &stats};
    TRY(fl_run(x, &args));
    *maximum = stats.maximum;
    return TENSOR_OK;
}
