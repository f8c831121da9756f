/* ref_map.c - reference kernels: the table, the elementwise operations from ops.def, bias. */
#include "core/arithmetic/exact.h"
#include "core/base/fail.h"
#include "core/ops/losses/losses.h"
#include "core/base/memory.h"
#include "core/real/real_rules.h"
#include "core/reference/ref.h"
#include "core/ops/losses/softmax.h"
#include "core/ops/operation.h"
#include <math.h>
#include <string.h>

/* Results of an operation that the reference kernel keeps as doubles: none of a reduction. */
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
        fl_operand_format(args, i)->decode(&args->in[i], 0, args->in[i].count, w->in[i]);
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
    args->format->encode(&args->out, 0, w->count, w->value, !real, &args->rounding, &stats);
    if (shared || real) {
        stats.maximum = 0;
        for (int64_t i = 0; i < w->count; i++) {
            const double size = fabs(w->near[i]);
            if (size > stats.maximum && !(shared && isinf(size))) /* no exponent makes room for a pole */
                stats.maximum = size;
        }
    }
    fl_stats_merge(args->stats, &stats);
}

/* --- elementwise: each row of ops.def twice, with the sum rounded to odd and to nearest --------------------------- */

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

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const fl_kernel table[FL_OP_LIMIT] = {
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
    [FL_OP_CHANNEL_MOMENTS] = fl_channel_moments,
    [FL_OP_RUNNING_STATISTICS] = fl_running_statistics,
    [FL_OP_AFFINE_COEFFICIENTS] = fl_affine_coefficients,
    [FL_OP_AFFINE_GRAD_COEFFICIENTS] = fl_affine_grad_coefficients,
    [FL_OP_SOFTMAX_CROSS_ENTROPY] = fl_softmax_ref,
    [FL_OP_CROSS_ENTROPY_WITH] = fl_entropy_ref,
    [FL_OP_CROSS_ENTROPY_TARGETS] = fl_entropy_ref,
    [FL_OP_SQUARED_ERROR] = fl_error_losses,
    [FL_OP_HUBER] = fl_error_losses,
    [FL_OP_WASSERSTEIN] = fl_critic_losses,
    [FL_OP_CLIP_WEIGHT] = fl_ref_clip_weight,
    [FL_OP_COMBINE] = fl_ref_sgd,
    [FL_OP_ROOT_MEAN] = fl_ref_root_mean,
    [FL_OP_ADD_RATIO] = fl_ref_add_ratio,
    [FL_OP_SUM_SQUARES] = fl_sum_squares,
    [FL_OP_OPTIMISER_STEP] = fl_optimiser_numbers,
    [FL_OP_TRUST_RATE] = fl_trust_number,
    [FL_OP_SOFTMAX] = fl_ref_softmax_map,
    [FL_OP_SOFTMAX_GRAD] = fl_ref_softmax_map_grad,
    [FL_OP_LOG_SOFTMAX] = fl_ref_softmax_map,
    [FL_OP_LOG_SOFTMAX_GRAD] = fl_ref_softmax_map_grad,
    [FL_OP_MATMUL_BATCHED] = fl_ref_matmul,
    [FL_OP_MATMUL_BATCHED_NT] = fl_ref_matmul,
    [FL_OP_MATMUL_BATCHED_TN] = fl_ref_matmul,
    [FL_OP_CHECK_INDICES] = fl_check_indices,
    [FL_OP_EMBEDDING] = fl_ref_embedding,
    [FL_OP_EMBEDDING_GRAD] = fl_ref_embedding_grad,
    [FL_OP_PERMUTE] = fl_ref_copy,
    [FL_OP_SLICE] = fl_ref_copy,
    [FL_OP_SLICE_GRAD] = fl_ref_copy,
    [FL_OP_CONCAT] = fl_ref_copy,
    [FL_OP_LSTM_CELL] = fl_ref_cells,
    [FL_OP_LSTM_HIDDEN] = fl_ref_cells,
    [FL_OP_LSTM_CELL_GRAD] = fl_ref_cells,
    [FL_OP_LSTM_GATES_GRAD] = fl_ref_cells,
    [FL_OP_GRU_HIDDEN] = fl_ref_cells,
    [FL_OP_GRU_INPUT_GRAD] = fl_ref_cells,
    [FL_OP_GRU_GATES_GRAD] = fl_ref_cells,
    [FL_OP_GRU_STATE_GRAD] = fl_ref_cells,
    [FL_OP_AVGPOOL2D] = fl_ref_avgpool_window,
    [FL_OP_AVGPOOL2D_GRAD] = fl_ref_avgpool_window,
    [FL_OP_AVGPOOL_ADAPTIVE] = fl_ref_avgpool_window,
    [FL_OP_AVGPOOL_ADAPTIVE_GRAD] = fl_ref_avgpool_window,
    [FL_OP_LRN] = fl_ref_lrn,
    [FL_OP_LRN_GRAD] = fl_ref_lrn,
    [FL_OP_DROPOUT] = fl_ref_dropout,
    [FL_OP_REDUCE_SUM] = fl_ref_reduce,
    [FL_OP_REDUCE_MEAN] = fl_ref_reduce,
    [FL_OP_REDUCE_MAX] = fl_ref_reduce,
    [FL_OP_REDUCE_MIN] = fl_ref_reduce,
    [FL_OP_REDUCE_L1] = fl_ref_reduce,
    [FL_OP_REDUCE_L2] = fl_ref_reduce,
    [FL_OP_BROADCAST_MUL_GRAD] = fl_ref_reduce,
    [FL_OP_REDUCE_MAX_GRAD] = fl_ref_reduce_grad,
    [FL_OP_REDUCE_MIN_GRAD] = fl_ref_reduce_grad,
    [FL_OP_REDUCE_L2_GRAD] = fl_ref_reduce_grad,
    [FL_OP_ARGMAX] = fl_ref_argmax,
    [FL_OP_REDUCE_SUM_GRAD] = fl_ref_broadcast,
    [FL_OP_REDUCE_MEAN_GRAD] = fl_ref_broadcast,
    [FL_OP_REDUCE_L1_GRAD] = fl_ref_broadcast,
    [FL_OP_BROADCAST_ADD] = fl_ref_broadcast,
    [FL_OP_BROADCAST_MUL] = fl_ref_broadcast,
    [FL_OP_WHERE] = fl_ref_broadcast,
    [FL_OP_WHERE_GRAD] = fl_ref_broadcast,
};

fl_kernel fl_ref_kernel(enum fl_op op) {
    const struct fl_operation *row = fl_operation_of(op);
    return row ? row->reference.kernel : op > 0 && op < FL_OP_LIMIT ? table[op] : NULL;
}

fl_need fl_ref_need(enum fl_op op) {
    if (fl_operation_of(op))
        return fl_operation_of(op)->reference.need;
    if (op >= FL_OP_LSTM_CELL && op <= FL_OP_GRU_STATE_GRAD)
        return fl_cells_need;
    switch ((int)op) {
    case FL_OP_CHANNEL_MOMENTS:
    case FL_OP_RUNNING_STATISTICS:
    case FL_OP_AFFINE_COEFFICIENTS:
    case FL_OP_AFFINE_GRAD_COEFFICIENTS:
    case FL_OP_OPTIMISER_STEP:
    case FL_OP_TRUST_RATE:
    case FL_OP_CHECK_INDICES:
    case FL_OP_WASSERSTEIN:
        return NULL;
    case FL_OP_SUM_SQUARES:
        return fl_sum_squares_need;
    case FL_OP_SOFTMAX_CROSS_ENTROPY:
        return fl_softmax_need;
    case FL_OP_CROSS_ENTROPY_WITH:
    case FL_OP_CROSS_ENTROPY_TARGETS:
        return fl_entropy_need;
    case FL_OP_SQUARED_ERROR:
    case FL_OP_HUBER:
        return fl_error_losses_need;
    case FL_OP_REDUCE_MAX_GRAD:
    case FL_OP_REDUCE_MIN_GRAD:
    case FL_OP_REDUCE_L2_GRAD:
        return fl_ref_reduce_grad_need;
    default:
        return fl_ref_kernel(op) ? fl_ref_bytes : NULL;
    }
}
