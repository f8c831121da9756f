/* support_promises.h - what operations promise, and what their gradients are made of: docs/support.md, written by
 * test_support. */
#ifndef FL_SUPPORT_PROMISES_H
#define FL_SUPPORT_PROMISES_H

#include "core/table/kernel.h"

/* Of operations that are no maps. */
enum promise {
    EXACT = 1, /* integers: the exact rational result rounded once; floats: binary32 in a fixed order */
    REAL,      /* the real number rounded once, in every format */
    DOUBLE,    /* integers: double, in a fixed sequence, of exact sums; rounded once. floats: in double */
    COPY,      /* values as they are, stored as results */
    NUMBERS    /* numbers beside the formats: means, indices, factors; double in a fixed sequence */
};

struct known {
    enum promise promise;
    const char *gradient; /* what computes it; NULL: nothing in training needs one */
};

static const struct known known[FL_OP_LIMIT] = {
    [FL_OP_BIAS] = {EXACT, "sum_rows"},
    [FL_OP_BIAS_RELU] = {EXACT, "relu_grad, sum_rows"},
    [FL_OP_MATMUL] = {EXACT, "matmul_nt, matmul_tn"},
    [FL_OP_MATMUL_NT] = {EXACT, "matmul, matmul_tn"},
    [FL_OP_MATMUL_TN] = {EXACT, "matmul_nt, matmul"},
    [FL_OP_CONV2D] = {EXACT, "conv2d_input_grad, conv2d_weight_grad"},
    [FL_OP_CONV2D_INPUT_GRAD] = {EXACT, "conv2d, conv2d_weight_grad"},
    [FL_OP_CONV2D_WEIGHT_GRAD] = {EXACT, NULL},
    [FL_OP_MAXPOOL2D] = {EXACT, NULL},
    [FL_OP_MAXPOOL2D_GRAD] = {EXACT, NULL},
    [FL_OP_AVGPOOL_GLOBAL] = {EXACT, NULL},
    [FL_OP_AVGPOOL_GLOBAL_GRAD] = {EXACT, NULL},
    [FL_OP_SHORTCUT_A] = {COPY, NULL},
    [FL_OP_SHORTCUT_A_GRAD] = {COPY, NULL},
    [FL_OP_SUM_ROWS] = {EXACT, NULL},
    [FL_OP_MAX_ABS] = {NUMBERS, NULL},
    [FL_OP_CHANNEL_SUMS] = {NUMBERS, NULL},
    [FL_OP_CHANNEL_GRAD_SUMS] = {NUMBERS, NULL},
    [FL_OP_CHANNEL_MOMENTS] = {NUMBERS, NULL},
    [FL_OP_RUNNING_STATISTICS] = {NUMBERS, NULL},
    [FL_OP_CHANNEL_AFFINE] = {DOUBLE, NULL},
    [FL_OP_CHANNEL_AFFINE_GRAD] = {DOUBLE, NULL},
    [FL_OP_AFFINE_COEFFICIENTS] = {NUMBERS, NULL},
    [FL_OP_AFFINE_GRAD_COEFFICIENTS] = {NUMBERS, NULL},
    [FL_OP_SGD_MOMENTUM] = {EXACT, NULL},
    [FL_OP_SGD_UPDATE] = {EXACT, NULL},
    [FL_OP_SOFTMAX_CROSS_ENTROPY] = {DOUBLE, "its own"},
    [FL_OP_CROSS_ENTROPY_WITH] = {DOUBLE, "its own"},
    [FL_OP_CROSS_ENTROPY_TARGETS] = {DOUBLE, "its own"},
    [FL_OP_SQUARED_ERROR] = {DOUBLE, "its own"},
    [FL_OP_HUBER] = {DOUBLE, "its own"},
    [FL_OP_WASSERSTEIN] = {DOUBLE, "its own"},
    [FL_OP_CLIP_WEIGHT] = {EXACT, NULL},
    [FL_OP_LAYERNORM] = {DOUBLE, "layernorm_grad, layernorm_gamma_grad, sum_rows"},
    [FL_OP_LAYERNORM_GRAD] = {DOUBLE, NULL},
    [FL_OP_LAYERNORM_GAMMA_GRAD] = {DOUBLE, NULL},
    [FL_OP_RMSNORM] = {DOUBLE, "rmsnorm_grad, rmsnorm_gamma_grad"},
    [FL_OP_RMSNORM_GRAD] = {DOUBLE, NULL},
    [FL_OP_RMSNORM_GAMMA_GRAD] = {DOUBLE, NULL},
    [FL_OP_SOFTMAX] = {DOUBLE, NULL},
    [FL_OP_SOFTMAX_GRAD] = {EXACT, NULL},
    [FL_OP_LOG_SOFTMAX] = {DOUBLE, NULL},
    [FL_OP_LOG_SOFTMAX_GRAD] = {DOUBLE, NULL},
    [FL_OP_CHECK_INDICES] = {NUMBERS, NULL},
    [FL_OP_EMBEDDING] = {COPY, NULL},
    [FL_OP_EMBEDDING_GRAD] = {EXACT, NULL},
    [FL_OP_PERMUTE] = {COPY, "permute"},
    [FL_OP_SLICE] = {COPY, NULL},
    [FL_OP_SLICE_GRAD] = {COPY, NULL},
    [FL_OP_LSTM_CELL] = {DOUBLE, "lstm_cell_grad, lstm_gates_grad"},
    [FL_OP_LSTM_HIDDEN] = {DOUBLE, "lstm_cell_grad, lstm_gates_grad"},
    [FL_OP_LSTM_CELL_GRAD] = {DOUBLE, NULL},
    [FL_OP_LSTM_GATES_GRAD] = {DOUBLE, NULL},
    [FL_OP_GRU_HIDDEN] = {DOUBLE, "gru_input_grad, gru_gates_grad, gru_state_grad"},
    [FL_OP_GRU_INPUT_GRAD] = {DOUBLE, NULL},
    [FL_OP_GRU_GATES_GRAD] = {DOUBLE, NULL},
    [FL_OP_GRU_STATE_GRAD] = {DOUBLE, NULL},
    [FL_OP_AVGPOOL2D] = {EXACT, NULL},
    [FL_OP_AVGPOOL2D_GRAD] = {EXACT, NULL},
    [FL_OP_AVGPOOL_ADAPTIVE] = {EXACT, NULL},
    [FL_OP_AVGPOOL_ADAPTIVE_GRAD] = {EXACT, NULL},
    [FL_OP_LRN] = {DOUBLE, NULL},
    [FL_OP_LRN_GRAD] = {DOUBLE, NULL},
    [FL_OP_GROUPNORM] = {DOUBLE, "groupnorm_grad, groupnorm_gamma_grad, sum_rows"},
    [FL_OP_GROUPNORM_GRAD] = {DOUBLE, NULL},
    [FL_OP_GROUPNORM_GAMMA_GRAD] = {DOUBLE, NULL},
    [FL_OP_DROPOUT] = {EXACT, "dropout"},
    [FL_OP_CONCAT] = {COPY, "slice"},
    [FL_OP_MATMUL_BATCHED] = {EXACT, "matmul_batched_nt, matmul_batched_tn"},
    [FL_OP_MATMUL_BATCHED_NT] = {EXACT, "matmul_batched, matmul_batched_tn"},
    [FL_OP_MATMUL_BATCHED_TN] = {EXACT, "matmul_batched_nt, matmul_batched"},
    [FL_OP_COMBINE] = {EXACT, NULL},
    [FL_OP_ROOT_MEAN] = {DOUBLE, NULL},
    [FL_OP_ADD_RATIO] = {DOUBLE, NULL},
    [FL_OP_SUM_SQUARES] = {NUMBERS, NULL},
    [FL_OP_OPTIMISER_STEP] = {NUMBERS, NULL},
    [FL_OP_TRUST_RATE] = {NUMBERS, NULL},
    [FL_OP_ADD] = {EXACT, "dy itself"},
    [FL_OP_SUB] = {EXACT, "dy, neg"},
    [FL_OP_MUL] = {EXACT, "mul"},
    [FL_OP_SCALE] = {EXACT, "scale"},
    [FL_OP_ADD_SCALED] = {EXACT, "dy, scale"},
    [FL_OP_ADD_RELU] = {EXACT, "relu_grad"},
    [FL_OP_NEG] = {EXACT, "neg"},
    [FL_OP_SQUARE] = {EXACT, NULL},
    [FL_OP_REDUCE_SUM] = {EXACT, NULL},
    [FL_OP_REDUCE_MEAN] = {EXACT, NULL},
    [FL_OP_REDUCE_MAX] = {COPY, NULL},
    [FL_OP_REDUCE_MIN] = {COPY, NULL},
    [FL_OP_REDUCE_L1] = {EXACT, NULL},
    [FL_OP_REDUCE_L2] = {DOUBLE, NULL},
    [FL_OP_REDUCE_SUM_GRAD] = {COPY, NULL},
    [FL_OP_REDUCE_MEAN_GRAD] = {EXACT, NULL},
    [FL_OP_REDUCE_MAX_GRAD] = {COPY, NULL},
    [FL_OP_REDUCE_MIN_GRAD] = {COPY, NULL},
    [FL_OP_REDUCE_L1_GRAD] = {EXACT, NULL},
    [FL_OP_REDUCE_L2_GRAD] = {DOUBLE, NULL},
    [FL_OP_ARGMAX] = {NUMBERS, NULL},
    [FL_OP_BROADCAST_ADD] = {EXACT, "reduce_sum"},
    [FL_OP_BROADCAST_MUL] = {EXACT, "broadcast_mul_grad"},
    [FL_OP_BROADCAST_MUL_GRAD] = {EXACT, NULL},
    [FL_OP_WHERE] = {COPY, NULL},
    [FL_OP_WHERE_GRAD] = {COPY, NULL},
};

#endif
