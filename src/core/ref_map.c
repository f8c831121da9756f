/* ref_map.c - reference kernels: the table, the elementwise operations from ops.def, bias. */
#include "core/exact.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/ref.h"
#include <math.h>
#include <string.h>

tensor_status fl_ref_begin(struct ref_work *w, const struct fl_args *args, int64_t count) {
    *w = (struct ref_work){.args = args, .count = count};
    bool failed = false;
    for (int i = 0; i < 3; i++) {
        if (!args->in[i].data)
            continue;
        w->in[i] = fl_alloc((size_t)args->in[i].count * sizeof(double));
        if (w->in[i])
            args->format->decode(&args->in[i], 0, args->in[i].count, w->in[i]);
        else
            failed = true;
    }
    if (count) {
        w->value = fl_alloc((size_t)count * sizeof(double));
        w->near = fl_alloc((size_t)count * sizeof(double));
        failed = failed || !w->value || !w->near;
    }
    if (!failed)
        return TENSOR_OK;
    w->count = 0;
    fl_ref_end(w);
    return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the reference kernel", fl_op_name(args->op));
}

tensor_status fl_ref_end(struct ref_work *w) {
    const struct fl_args *args = w->args;
    if (w->count) {
        struct fl_stats stats = {0};
        args->format->encode(&args->out, 0, w->count, w->value, true, &args->rounding, &stats);
        if (fl_ref_shared(args)) {
            stats.maximum = 0;
            for (int64_t i = 0; i < w->count; i++)
                if (fabs(w->near[i]) > stats.maximum)
                    stats.maximum = fabs(w->near[i]);
        }
        fl_stats_merge(args->stats, &stats);
    }
    for (int i = 0; i < 3; i++)
        fl_free(w->in[i]);
    fl_free(w->value);
    fl_free(w->near);
    return TENSOR_OK;
}

/* --- elementwise: each row of ops.def twice, with the sum rounded to odd and to nearest --------------------------- */

typedef double (*map_fn)(double a, double b, double c, double alpha);

#define MAP_NAME(name) odd_##name
#define FL_SUM(p, q) fl_sum_odd(p, q)
#include "core/ref_map_expr.inc"
#define MAP_NAME(name) near_##name
#define FL_SUM(p, q) ((p) + (q))
#include "core/ref_map_expr.inc"

#define ROW(name)                                                                                                      \
    { odd_##name, near_##name }
static const struct {
    map_fn odd, near;
} maps[FL_OP_LIMIT] = {
#define FL_MAP1(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP2(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP3(id, CONSTANT, name, expr) [id] = ROW(name),
#include "flexlab/ops.def"
};

tensor_status fl_ref_map(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args, args->out.count);
    if (status)
        return status;
    const double alpha = args->alpha;
    for (int64_t i = 0; i < w.count; i++) {
        double a = w.in[0][i], b = w.in[1] ? w.in[1][i] : 0, c = w.in[2] ? w.in[2][i] : 0;
        w.value[i] = maps[args->op].odd(a, b, c, alpha);
        w.near[i] = maps[args->op].near(a, b, c, alpha);
    }
    return fl_ref_end(&w);
}

tensor_status fl_ref_bias(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args, args->out.count);
    if (status)
        return status;
    const bool relu = args->op == FL_OP_BIAS_RELU;
    for (int64_t i = 0; i < w.count; i++) {
        double a = w.in[0][i], b = w.in[1][i % args->geo.n];
        w.value[i] = relu ? odd_add_relu(a, b, 0, 0) : odd_add(a, b, 0, 0);
        w.near[i] = relu ? near_add_relu(a, b, 0, 0) : near_add(a, b, 0, 0);
    }
    return fl_ref_end(&w);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const fl_kernel table[FL_OP_LIMIT] = {
#define FL_MAP1(id, CONSTANT, name, expr) [id] = fl_ref_map,
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) [id] = fl_ref_map,
#define FL_MAP2(id, CONSTANT, name, expr) [id] = fl_ref_map,
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) [id] = fl_ref_map,
#define FL_MAP3(id, CONSTANT, name, expr) [id] = fl_ref_map,
#include "flexlab/ops.def"
    [FL_OP_BIAS] = fl_ref_bias,
    [FL_OP_BIAS_RELU] = fl_ref_bias,
    [FL_OP_MATMUL] = fl_ref_matmul,
    [FL_OP_MATMUL_NT] = fl_ref_matmul,
    [FL_OP_MATMUL_TN] = fl_ref_matmul,
    [FL_OP_CONV2D] = fl_ref_conv,
    [FL_OP_CONV2D_INPUT_GRAD] = fl_ref_conv,
    [FL_OP_CONV2D_WEIGHT_GRAD] = fl_ref_conv,
    [FL_OP_MAXPOOL2D] = fl_ref_maxpool,
    [FL_OP_MAXPOOL2D_GRAD] = fl_ref_maxpool,
    [FL_OP_AVGPOOL_GLOBAL] = fl_ref_avgpool,
    [FL_OP_AVGPOOL_GLOBAL_GRAD] = fl_ref_avgpool,
    [FL_OP_SHORTCUT_A] = fl_ref_shortcut,
    [FL_OP_SHORTCUT_A_GRAD] = fl_ref_shortcut,
    [FL_OP_SUM_ROWS] = fl_ref_fold,
    [FL_OP_MAX_ABS] = fl_ref_fold,
    [FL_OP_CHANNEL_SUMS] = fl_ref_fold,
    [FL_OP_CHANNEL_GRAD_SUMS] = fl_ref_fold,
    [FL_OP_CHANNEL_AFFINE] = fl_ref_affine,
    [FL_OP_CHANNEL_AFFINE_GRAD] = fl_ref_affine,
    [FL_OP_SGD_MOMENTUM] = fl_ref_sgd,
    [FL_OP_SGD_UPDATE] = fl_ref_sgd,
};

fl_kernel fl_ref_kernel(enum fl_op op) {
    return op > 0 && op < FL_OP_LIMIT ? table[op] : NULL;
}
