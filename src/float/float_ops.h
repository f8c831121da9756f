/* float_ops.h - the operations for which float formats have kernels of their own, beside real functions.
 *
 * X(operation, kernel, workspace, exactly): the kernel of src/float and its fl_need; whether its results are binary32
 * numbers before they are rounded to the format, so that stochastic rounding of those is all that is asked for. */
#ifndef FL_FLOAT_OPS_H
#define FL_FLOAT_OPS_H

/* clang-format off */
#define FL_FLOAT_OPS(X) \
    X(ADD, map_elements, NULL, false) \
    X(SUB, map_elements, NULL, false) \
    X(MUL, map_elements, NULL, false) \
    X(SCALE, map_elements, NULL, false) \
    X(ADD_SCALED, map_elements, NULL, false) \
    X(RELU, map_elements, NULL, false) \
    X(RELU_GRAD, map_elements, NULL, false) \
    X(ADD_RELU, map_elements, NULL, false) \
    X(NEG, map_elements, NULL, false) \
    X(ABS, map_elements, NULL, false) \
    X(SQUARE, map_elements, NULL, false) \
    X(ADD_RELU_GRAD, map_elements, NULL, false) \
    X(CLIP, map_elements, NULL, false) \
    X(BIAS, bias_map, bias_need, false) \
    X(BIAS_RELU, bias_map, bias_need, false) \
    X(MATMUL, gemm_any, gemm_need, true) \
    X(MATMUL_NT, gemm_any, gemm_need, true) \
    X(MATMUL_TN, gemm_any, gemm_need, true) \
    X(CONV2D, gemm_any, gemm_need, true) \
    X(CONV2D_INPUT_GRAD, gemm_any, gemm_need, true) \
    X(CONV2D_WEIGHT_GRAD, gemm_any, gemm_need, true) \
    X(MAXPOOL2D, maxpool, NULL, true) \
    X(MAXPOOL2D_GRAD, maxpool_grad, maxpool_grad_need, true) \
    X(AVGPOOL_GLOBAL, avgpool, NULL, false) \
    X(AVGPOOL_GLOBAL_GRAD, avgpool_grad, NULL, false) \
    X(SHORTCUT_A, shortcut, NULL, true) \
    X(SHORTCUT_A_GRAD, shortcut, NULL, true) \
    X(SUM_ROWS, sum_rows, chunk_need, false) \
    X(MAX_ABS, max_abs, NULL, false) \
    X(CHANNEL_SUMS, channel_sums, chunk_need, false) \
    X(CHANNEL_GRAD_SUMS, channel_sums, chunk_need, false) \
    X(CHANNEL_AFFINE, channel_affine, channel_affine_need, true) \
    X(CHANNEL_AFFINE_GRAD, channel_affine, channel_affine_need, true) \
    X(SGD_MOMENTUM, sgd_momentum, NULL, false) \
    X(SGD_UPDATE, sgd_update, NULL, false) \
    X(COMBINE, combine, NULL, false) \
    X(ROOT_MEAN, root_mean, NULL, false) \
    X(ADD_RATIO, add_ratio, NULL, false) \
    X(CLIP_WEIGHT, clip_weights, NULL, false)
/* clang-format on */

#endif
