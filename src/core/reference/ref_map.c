/* ref_map.c - reference kernels: their table, the elementwise operations from ops.def, bias. */
#include "core/arithmetic/exact.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/real/real_rules.h"
#include "core/reference/ref.h"
#include <math.h>
#include <string.h>

/* The number of results that the reference kernel stores as doubles: 0 for a reduction. */
static int64_t results_of(const struct fl_args *args) {
    return args->op == FL_OP_MAX_ABS || args->op == FL_OP_CHANNEL_SUMS || args->op == FL_OP_CHANNEL_GRAD_SUMS
               ? 0
               : args->out.count;
}

size_t fl_ref_bytes(const struct fl_args *args) {
    int64_t doubles = 2 * results_of(args);
    for (int i = 0; i < 3; i++)
        doubles += args->in[i].count;
    return fl_line_bytes((size_t)doubles * sizeof(double));
}

tensor_status fl_ref_begin(struct ref_work *w, const struct fl_args *args) {
    return fl_ref_begin_with(w, args, 0);
}

tensor_status fl_ref_begin_with(struct ref_work *w, const struct fl_args *args, size_t more) {
    *w = (struct ref_work){.args = args, .count = results_of(args)};
    double *memory = fl_workspace(args, fl_ref_bytes(args) + more);
    if (!memory)
        return TENSOR_E_MEMORY;
    w->rest = (char *)memory + fl_ref_bytes(args);
    for (int i = 0; i < 3; i++) {
        if (!args->in[i].data)
            continue;
        w->in[i] = memory;
        memory += args->in[i].count;
        fl_operand_format(args, i)->decode(fl_operand_format(args, i), &args->in[i], 0, args->in[i].count, w->in[i]);
    }
    if (w->count) {
        w->value = memory;
        w->near = memory + w->count;
    }
    return TENSOR_OK;
}

void fl_ref_end(const struct ref_work *w) {
    const struct fl_args *args = w->args;
    if (!w->count)
        return;
    if (fl_is_mixed(args)) {
        fl_encode_mixed(args, 0, w->count, w->value, w->near, args->stats);
        return;
    }
    struct fl_stats stats = {0};
    const bool real = fl_op_is_real(args->op), shared = fl_ref_shared(args);
    args->format->encode(args->format, &args->out, 0, w->count, w->value, !real, &args->rounding, &stats);
    if (shared || real) {
        stats.maximum = 0;
        for (int64_t i = 0; i < w->count; i++) {
            const double size = fabs(w->near[i]);
            if (size > stats.maximum &&
                !(fl_has_exponent(args->format) && isinf(size))) /* no exponent can represent a pole */
                stats.maximum = size;
        }
    }
    fl_stats_merge(args->stats, &stats);
}

/* --- elementwise: each entry of ops.def twice, with the sum rounded to odd and to nearest ------------------------- */

#define MAP_NAME(name) odd_##name
#define FL_SUM(p, q) fl_sum_odd(p, q)
#define FL_FUNCTION(name) fl_odd_##name
#include "core/reference/ref_map_expr.inc"
#define MAP_NAME(name) near_##name
#define FL_SUM(p, q) ((p) + (q))
#define FL_FUNCTION(name) fl_near_##name
#include "core/reference/ref_map_expr.inc"

#define ROW(name)                                                                                                      \
    { odd_##name, near_##name }
static const struct fl_map_functions maps[FL_OP_LIMIT] = {
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP1(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP2(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) [id] = ROW(name),
#define FL_MAP3(id, CONSTANT, name, expr) [id] = ROW(name),
#include "flexlab/ops.def"
};

struct fl_map_functions fl_map_functions_of(enum fl_op op) {
    return maps[op];
}

tensor_status fl_ref_map(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const double alpha = args->p.map.alpha;
    for (int64_t i = 0; i < w.count; i++) {
        double a = w.in[0][i], b = w.in[1] ? w.in[1][i] : 0, c = w.in[2] ? w.in[2][i] : args->p.map.beta;
        w.value[i] = maps[args->op].odd(a, b, c, alpha);
        w.near[i] = maps[args->op].near(a, b, c, alpha);
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

tensor_status fl_ref_bias(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const bool relu = args->op == FL_OP_BIAS_RELU;
    for (int64_t i = 0; i < w.count; i++) {
        double a = w.in[0][i], b = w.in[1][i % args->p.rows.n];
        w.value[i] = relu ? odd_add_relu(a, b, 0, 0) : odd_add(a, b, 0, 0);
        w.near[i] = relu ? near_add_relu(a, b, 0, 0) : near_add(a, b, 0, 0);
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}
