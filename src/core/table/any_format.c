/* any_format.c - which kernels serve every format, by operation and backend. */
#include "core/table/any_format.h"
#include "core/ops/operation.h"
#include "core/ops/losses/softmax.h"

/* Those of rows in threads, by backend. */
static const struct fl_any_kernels *rows_of(enum fl_op op) {
    switch ((int)op) {
    case FL_OP_SOFTMAX:
    case FL_OP_SOFTMAX_GRAD:
    case FL_OP_LOG_SOFTMAX:
    case FL_OP_LOG_SOFTMAX_GRAD:
        return fl_softmax_map_any;
    case FL_OP_EMBEDDING:
        return fl_embedding_any;
    case FL_OP_EMBEDDING_GRAD:
        return fl_embedding_grad_any;
    case FL_OP_PERMUTE:
    case FL_OP_SLICE:
    case FL_OP_SLICE_GRAD:
    case FL_OP_CONCAT:
        return fl_copy_any;
    default:
        return NULL;
    }
}

/* Of the row `portable`: threads, and what compilers make of plain C. */
static const struct fl_any_kernels *portable_of(enum fl_op op) {
    switch ((int)op) {
    case FL_OP_AVGPOOL2D:
    case FL_OP_AVGPOOL2D_GRAD:
    case FL_OP_AVGPOOL_ADAPTIVE:
    case FL_OP_AVGPOOL_ADAPTIVE_GRAD:
        return &fl_avgpool_any;
    case FL_OP_LRN:
    case FL_OP_LRN_GRAD:
        return &fl_lrn_any;
    case FL_OP_DROPOUT:
        return &fl_dropout_any;
    case FL_OP_REDUCE_SUM:
    case FL_OP_REDUCE_MEAN:
    case FL_OP_REDUCE_MAX:
    case FL_OP_REDUCE_MIN:
    case FL_OP_REDUCE_L1:
    case FL_OP_REDUCE_L2:
    case FL_OP_BROADCAST_MUL_GRAD:
        return &fl_reduce_any;
    case FL_OP_REDUCE_MAX_GRAD:
    case FL_OP_REDUCE_MIN_GRAD:
    case FL_OP_REDUCE_L2_GRAD:
        return &fl_reduce_grad_any;
    case FL_OP_ARGMAX:
        return &fl_argmax_any;
    case FL_OP_REDUCE_SUM_GRAD:
    case FL_OP_REDUCE_MEAN_GRAD:
    case FL_OP_REDUCE_L1_GRAD:
    case FL_OP_BROADCAST_ADD:
    case FL_OP_BROADCAST_MUL:
    case FL_OP_WHERE:
    case FL_OP_WHERE_GRAD:
        return &fl_broadcast_any;
    default:
        return NULL;
    }
}

static struct fl_any_kernels find(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    if (backend >= FL_BACKENDS)
        return (struct fl_any_kernels){NULL, NULL};
    const struct fl_operation *row = fl_operation_of(op);
    if (row && row->find)
        return row->find(format, op, backend);
    if (row && row->shared16 && format->arithmetic == FL_ARITHMETIC_SHARED && format->bytes != 2)
        return (struct fl_any_kernels){NULL, NULL};
    if (row)
        return row->any ? row->any[backend] : (struct fl_any_kernels){NULL, NULL};
    if (op == FL_OP_SOFTMAX_CROSS_ENTROPY)
        return (struct fl_any_kernels){fl_softmax_kernel(backend), fl_softmax_need};
    if (op == FL_OP_CROSS_ENTROPY_WITH || op == FL_OP_CROSS_ENTROPY_TARGETS)
        return fl_entropy_any(backend);
    if (op >= FL_OP_LSTM_CELL && op <= FL_OP_GRU_STATE_GRAD)
        return fl_cells_any(backend);
    if (op == FL_OP_MATMUL_BATCHED || op == FL_OP_MATMUL_BATCHED_NT || op == FL_OP_MATMUL_BATCHED_TN)
        return fl_batched_any(format, op, backend);
    const struct fl_any_kernels *rows = rows_of(op);
    if (rows && format->arithmetic == FL_ARITHMETIC_SHARED &&
        format->bytes != 2) /* their vectors know mantissas of int16 */
        return (struct fl_any_kernels){NULL, NULL};
    if (rows)
        return rows[backend];
    const struct fl_any_kernels *found = backend == FL_PORTABLE ? portable_of(op) : NULL;
    return found ? *found : (struct fl_any_kernels){NULL, NULL};
}

fl_kernel fl_any_format_kernel(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    return find(format, op, backend).kernel;
}

fl_need fl_any_format_need(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    return find(format, op, backend).need;
}
