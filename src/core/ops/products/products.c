/* products.c - the operations bias, matmul (with a bias, a residual and a ReLU), sums of rows and the largest
 * magnitude. */
#include "core/ops/products/products.h"
#include "core/queue/queue.h"
#include "core/reference/ref.h"
#include "core/table/mixed.h"

/* The tensor that stands at that place of struct fl_args; NULL: none. */
static const tensor *tensor_at(const struct fl_invocation *call, unsigned at) {
    for (int i = 0; i < call->function->operand_count; i++)
        if (call->function->operands[i].at == at)
            return call->tensors[i];
    return NULL;
}

tensor_status fl_run_product(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *factors[] = {tensor_at(call, FL_AT(in[0])), tensor_at(call, FL_AT(in[1]))};
    tensor *y = (tensor *)call->tensors[0];
    fl_note_formats(y, factors, tensor_at(call, FL_AT(p.product.epilogue.bias)),
                    tensor_at(call, FL_AT(p.product.epilogue.residual)), args);
    return fl_write(y, args);
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

static void prepare_matrices(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.product.matrices =
        (struct fl_matrices){.m = FL_SIZE(sizes, 'm'), .n = FL_SIZE(sizes, 'n'), .k = FL_SIZE(sizes, 'k')};
}

static void prepare_batched(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    prepare_matrices(args, sizes, scalars);
    args->p.product.matrices.batch = FL_SIZE(sizes, 'l');
}

#define MATRICES(name, a_shape, b_shape)                                                                               \
    static const struct fl_operand name##_operands[] = {{"y", "mn", .class = FL_CLASS_ANY},                            \
                                                        {"a", a_shape, FL_FACTOR(0)},                                  \
                                                        {"b", b_shape, FL_FACTOR(1)},                                  \
                                                        FL_JOINED("n", "mn")}
MATRICES(matmul, "mk", "kn");
MATRICES(matmul_nt, "mk", "nk");
MATRICES(matmul_tn, "km", "kn");
#define BATCHES(name, a_shape, b_shape)                                                                                \
    static const struct fl_operand name##_operands[] = {                                                               \
        {"y", "l*mn", .class = FL_CLASS_ANY}, {"a", a_shape, FL_FACTOR(0)}, {"b", b_shape, FL_FACTOR(1)}}
BATCHES(matmul_batched, "l*mk", "l*kn");
BATCHES(matmul_batched_nt, "l*mk", "l*nk");
BATCHES(matmul_batched_tn, "l*km", "l*kn");
static const struct fl_scalar_rule relu[] = {FL_RELU};

#define OPERATION(OP, name, of_gradient, ...)                                                                          \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = FL_PROMISE_EXACT,                                      \
                                                     .gradient = of_gradient,                                          \
                                                     .reference = {fl_ref_matmul, fl_ref_bytes},                       \
                                                     FL_OPERANDS_OF(name##_operands),                                  \
                                                     __VA_ARGS__}
OPERATION(MATMUL, matmul, "matmul_nt, matmul_tn", .any = NULL);
OPERATION(MATMUL_NT, matmul_nt, "matmul, matmul_tn", .any = NULL);
OPERATION(MATMUL_TN, matmul_tn, "matmul_nt, matmul", .any = NULL);
OPERATION(MATMUL_BATCHED, matmul_batched, "matmul_batched_nt, matmul_batched_tn", .find = fl_batched_any);
OPERATION(MATMUL_BATCHED_NT, matmul_batched_nt, "matmul_batched, matmul_batched_tn", .find = fl_batched_any);
OPERATION(MATMUL_BATCHED_TN, matmul_batched_tn, "matmul_batched_nt, matmul_batched", .find = fl_batched_any);

/* Without what joins the sums, and with it. */
#define FUNCTION(OP, text, table, count, puts, ...)                                                                    \
    const struct fl_function fl_function_##text = {.name = #text,                                                      \
                                                   .op = FL_OP_##OP,                                                   \
                                                   .outputs = 1,                                                       \
                                                   .operand_count = count,                                             \
                                                   .operands = table##_operands,                                       \
                                                   .prepare = puts,                                                    \
                                                   .run = fl_run_product,                                              \
                                                   __VA_ARGS__}
FUNCTION(MATMUL, matmul, matmul, 3, prepare_matrices, .scalar_count = 0);
FUNCTION(MATMUL_NT, matmul_nt, matmul_nt, 3, prepare_matrices, .scalar_count = 0);
FUNCTION(MATMUL_TN, matmul_tn, matmul_tn, 3, prepare_matrices, .scalar_count = 0);
FUNCTION(MATMUL, matmul_fused, matmul, 5, prepare_matrices, FL_SCALARS_OF(relu));
FUNCTION(MATMUL_NT, matmul_nt_fused, matmul_nt, 5, prepare_matrices, FL_SCALARS_OF(relu));
FUNCTION(MATMUL_BATCHED, matmul_batched, matmul_batched, 3, prepare_batched, .scalar_count = 0);
FUNCTION(MATMUL_BATCHED_NT, matmul_batched_nt, matmul_batched_nt, 3, prepare_batched, .scalar_count = 0);
FUNCTION(MATMUL_BATCHED_TN, matmul_batched_tn, matmul_batched_tn, 3, prepare_batched, .scalar_count = 0);

#define PUBLIC(name)                                                                                                   \
    tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b) {                                         \
        return FL_INVOKE_PLAIN(name, FL_GIVEN(y, a, b));                                                               \
    }
PUBLIC(matmul)
PUBLIC(matmul_nt)
PUBLIC(matmul_tn)
PUBLIC(matmul_batched)
PUBLIC(matmul_batched_nt)
PUBLIC(matmul_batched_tn)

#define FUSED(name)                                                                                                    \
    tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, const tensor_epilogue *with) {            \
        const tensor_epilogue e = with ? *with : (tensor_epilogue){.relu = false};                                     \
        return FL_INVOKE(name, FL_GIVEN(y, a, b, e.bias, e.residual), FL_INTEGER(e.relu));                             \
    }
FUSED(matmul_fused)
FUSED(matmul_nt_fused)

/* --- rows of elements --------------------------------------------------------------------------------------------- */

static void prepare_rows(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.rows = (struct fl_row_sizes){.m = FL_SIZE(sizes, 'm'), .n = FL_SIZE(sizes, 'n')};
}

/* The largest magnitude is of a tensor in the memory of the host: nothing else has it at once. */
static tensor_status check_host(const struct fl_invocation *call) {
    return fl_need_host(call->function->name, call->tensors[0]);
}
static tensor_status run_max_abs(const struct fl_invocation *call, struct fl_args *args) {
    struct fl_stats stats = {0};
    args->stats = &stats;
    const tensor_status status = fl_run(call->tensors[0], args);
    if (!status)
        *call->scalars[0].result = stats.maximum;
    return status;
}

static const struct fl_operand bias_operands[] = {
    {"y", "m*n"}, {"x", "m*n", FL_IN_PLACE, .at = FL_AT(in[0])}, {"b", "n", .at = FL_AT(in[1])}};
static const struct fl_operand sum_rows_operands[] = {{"y", "n"}, {"x", "m*n", .at = FL_AT(in[0])}};
static const struct fl_operand max_abs_operands[] = {{"x", "e*", .at = FL_AT(in[0])}};
static const struct fl_scalar_rule largest[] = {{"maximum", FL_RESULT}};

#define ROWS_OPERATION(OP, name, of_promise, of_gradient, kernel)                                                      \
    const struct fl_operation fl_operation_##name = {                                                                  \
        .op = FL_OP_##OP, .promise = of_promise, .gradient = of_gradient, .reference = {kernel, fl_ref_bytes}}
ROWS_OPERATION(BIAS, bias, FL_PROMISE_EXACT, "sum_rows", fl_ref_bias);
ROWS_OPERATION(BIAS_RELU, bias_relu, FL_PROMISE_EXACT, "relu_grad, sum_rows", fl_ref_bias);
ROWS_OPERATION(SUM_ROWS, sum_rows, FL_PROMISE_EXACT, NULL, fl_ref_fold);
ROWS_OPERATION(MAX_ABS, max_abs, FL_PROMISE_NUMBERS, NULL, fl_ref_fold);

#define ROWS_FUNCTION(OP, text, table)                                                                                 \
    const struct fl_function fl_function_##text = {                                                                    \
        .name = #text, .op = FL_OP_##OP, .outputs = 1, FL_OPERANDS_OF(table), .prepare = prepare_rows}
ROWS_FUNCTION(BIAS, bias, bias_operands);
ROWS_FUNCTION(BIAS_RELU, bias_relu, bias_operands);
ROWS_FUNCTION(SUM_ROWS, sum_rows, sum_rows_operands);
const struct fl_function fl_function_max_abs = {.name = "max_abs",
                                                .op = FL_OP_MAX_ABS,
                                                FL_OPERANDS_OF(max_abs_operands),
                                                FL_SCALARS_OF(largest),
                                                .check = check_host,
                                                .run = run_max_abs};

tensor_status tensor_bias(tensor *y, const tensor *x, const tensor *b) {
    return FL_INVOKE_PLAIN(bias, FL_GIVEN(y, x, b));
}
tensor_status tensor_bias_relu(tensor *y, const tensor *x, const tensor *b) {
    return FL_INVOKE_PLAIN(bias_relu, FL_GIVEN(y, x, b));
}
tensor_status tensor_sum_rows(tensor *y, const tensor *x) {
    return FL_INVOKE_PLAIN(sum_rows, FL_GIVEN(y, x));
}
tensor_status tensor_max_abs(double *maximum, const tensor *x) {
    return FL_INVOKE(max_abs, FL_GIVEN(x), {.result = maximum});
}
