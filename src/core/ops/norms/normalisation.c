/* normalisation.c - batch normalisation: per-channel sums by kernels, numbers of channels in double (channel_rules.h),
 * per-channel affine maps by kernels. Intermediate results stay on the device.
 *
 * Integer formats: the sums are exact integers, and each coefficient re-enters as a mantissa of 31 bits with an
 * exponent of its own (coefficient.h). They multiply the distance from a centre, the integer mantissa closest to the
 * mean, so that the offset is small and a mean far larger than the deviation costs no precision. */
#include "core/base/memory.h"
#include "core/ops/norms/part_norm.h"
#include "core/ops/operation.h"
#include "core/queue/queue.h"
#include "core/reference/ref.h"
#include "flexlab/blocks_norms.h"
#include <stddef.h>

/* Intermediate results of one operation, in temporary memory of the device. */
struct passing {
    struct fl_channel_sums sums;
    struct fl_channels channels;
    double *dgamma, *dbeta;
};

enum { PASSING_BYTES = (6 + FL_WHOLE) * 8 + 3 * sizeof(struct fl_coefficient) + 5 * 4 };

static tensor_status passing(struct passing *p, const tensor *x, int64_t n) {
    char *at = fl_temporary(fl_queue_of(x->storage), (size_t)n * PASSING_BYTES);
    if (!at)
        return TENSOR_E_MEMORY;
    double *f = (double *)at;
    struct fl_coefficient *k = (struct fl_coefficient *)(f + (6 + FL_WHOLE) * n);
    int32_t *i = (int32_t *)(k + 3 * n);
    *p = (struct passing){
        .sums = {{(int64_t *)f, (int64_t *)(f + n)}, {f + 2 * n, f + 3 * n}},
        .dgamma = f + 4 * n,
        .dbeta = f + 5 * n,
        .channels = {.first = k,
                     .cross = k + n,
                     .offset = k + 2 * n,
                     .first_centre = i,
                     .cross_centre = i + n,
                     .a = (float *)(i + 2 * n),
                     .b = (float *)(i + 3 * n),
                     .d = (float *)(i + 4 * n),
                     .whole = (int64_t *)(f + 6 * n)},
    };
    return TENSOR_OK;
}

/* The passing memory of a call on x; m rows of n channels, whatever dimensions the rows are. */
static tensor_status begin(const struct fl_invocation *call, const tensor *x, struct passing *p, struct fl_args *args) {
    struct fl_batch_norm *b = &args->p.batch_norm;
    b->m = FL_SIZE(call->sizes, 'm');
    b->n = FL_SIZE(call->sizes, 'C');
    b->name = call->function->name;
    const tensor_status status = passing(p, x, b->n);
    b->sums = p->sums;
    b->channels = p->channels;
    b->dgamma = p->dgamma;
    b->dbeta = p->dbeta;
    return status;
}

static tensor_status run_as(enum fl_op op, const tensor *x, struct fl_args *args) {
    args->op = op;
    return fl_run(x, args);
}

/* Writes the map with the coefficients of the channels. */
static tensor_status write_as(enum fl_op op, const tensor *out, struct fl_args *args) {
    args->op = op;
    return fl_write((tensor *)out, args);
}

static tensor_status run_moments(const struct fl_invocation *call, struct fl_args *args) {
    struct passing p = {0};
    const tensor *x = call->tensors[2];
    tensor_status status = begin(call, x, &p, args);
    status = status ? status : run_as(FL_OP_CHANNEL_SUMS, x, args);
    return status ? status : run_as(FL_OP_CHANNEL_MOMENTS, x, args);
}

static tensor_status run_parts(const struct fl_invocation *call, struct fl_args *args, enum fl_op op) {
    struct passing p = {0};
    const tensor *first = call->tensors[1];
    tensor_status status = begin(call, first, &p, args);
    status = status ? status : run_as(op, first, args);
    return status ? status : run_as(FL_OP_CHANNEL_MOMENTS, first, args);
}

static tensor_status run_part_sums(const struct fl_invocation *call, struct fl_args *args) {
    return run_parts(call, args, FL_OP_CHANNEL_SUMS);
}

static tensor_status run_part_grad_sums(const struct fl_invocation *call, struct fl_args *args) {
    return run_parts(call, args, FL_OP_CHANNEL_GRAD_SUMS);
}

static tensor_status run_forward(const struct fl_invocation *call, struct fl_args *args) {
    struct passing p = {0};
    const tensor *y = call->tensors[0], *x = call->tensors[1];
    tensor_status status = begin(call, x, &p, args);
    status = status ? status : run_as(FL_OP_AFFINE_COEFFICIENTS, x, args);
    return status ? status : write_as(FL_OP_CHANNEL_AFFINE, y, args);
}

static tensor_status run_backward(const struct fl_invocation *call, struct fl_args *args) {
    struct passing p = {0};
    const tensor *const *t = call->tensors, *x = t[4];
    tensor_status status = begin(call, x, &p, args);
    status = status ? status : run_as(FL_OP_CHANNEL_GRAD_SUMS, x, args);
    status = status ? status : run_as(FL_OP_AFFINE_GRAD_COEFFICIENTS, x, args);
    status = status ? status : write_as(FL_OP_CHANNEL_AFFINE_GRAD, t[0], args);
    status = status ? status : fl_write_values((tensor *)t[1], p.dgamma);
    return status ? status : fl_write_values((tensor *)t[2], p.dbeta);
}

static void prepare_part_running(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.running.n = FL_SIZE(sizes, 'C');
}

static void prepare_running(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.running.m = FL_SIZE(sizes, 'm');
    args->p.running.n = FL_SIZE(sizes, 'C');
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

#define NUMBERS(name, member)                                                                                          \
    { name, "C", .class = FL_CLASS_F64, .at = FL_AT(p.member) }
static const struct fl_operand moments_operands[] = {
    NUMBERS("mean", batch_norm.mean), NUMBERS("variance", batch_norm.variance), {"x", "m*C", .at = FL_AT(in[0])}};
static const struct fl_operand forward_operands[] = {{"y", "m*C"},
                                                     {"x", "m*C", .at = FL_AT(in[0])},
                                                     {"residual", "m*C", FL_OPTIONAL, .at = FL_AT(in[1])},
                                                     {"gamma", "C", .at = FL_AT(p.batch_norm.gamma)},
                                                     {"beta", "C", .at = FL_AT(p.batch_norm.beta)},
                                                     NUMBERS("mean", batch_norm.mean),
                                                     NUMBERS("variance", batch_norm.variance)};
static const struct fl_operand backward_operands[] = {{"dx", "m*C"},
                                                      {"dgamma", "C"},
                                                      {"dbeta", "C"},
                                                      {"dy", "m*C", .at = FL_AT(in[0])},
                                                      {"x", "m*C", .at = FL_AT(in[1])},
                                                      {"y", "m*C", FL_OPTIONAL, .at = FL_AT(in[2])},
                                                      {"gamma", "C", .at = FL_AT(p.batch_norm.gamma)},
                                                      NUMBERS("mean", batch_norm.mean),
                                                      NUMBERS("variance", batch_norm.variance)};
/* The batch; only its number of rows is used. */
static const struct fl_operand running_operands[] = {NUMBERS("running_mean", running.mean),
                                                     NUMBERS("running_variance", running.variance),
                                                     NUMBERS("mean", running.batch_mean),
                                                     NUMBERS("variance", running.batch_variance),
                                                     {"x", "m*C", FL_SHAPE_ONLY}};
static const struct fl_scalar_rule forward_scalars[] = {
    {"epsilon", FL_REAL64, .above = true, .at = FL_AT(p.batch_norm.epsilon)},
    {"relu", FL_BOOL, .at = FL_AT(p.batch_norm.relu)}};
static const struct fl_scalar_rule momentum_scalar[] = {{"momentum", FL_REAL64, 0, 1, .at = FL_AT(p.running.momentum)}};

const struct fl_function fl_function_moments = {
    .name = "moments", .op = FL_OP_CHANNEL_MOMENTS, .outputs = 2, FL_OPERANDS_OF(moments_operands), .run = run_moments};
const struct fl_function fl_function_batchnorm = {.name = "batchnorm",
                                                  .op = FL_OP_CHANNEL_AFFINE,
                                                  .outputs = 1,
                                                  FL_OPERANDS_OF(forward_operands),
                                                  FL_SCALARS_OF(forward_scalars),
                                                  .run = run_forward};
const struct fl_function fl_function_batchnorm_grad = {.name = "batchnorm_grad",
                                                       .op = FL_OP_CHANNEL_AFFINE_GRAD,
                                                       .outputs = 3,
                                                       FL_OPERANDS_OF(backward_operands),
                                                       .scalar_count = 1, /* without relu, which y implies */
                                                       .scalars = forward_scalars,
                                                       .run = run_backward};
const struct fl_function fl_function_running_statistics = {.name = "running_statistics",
                                                           .op = FL_OP_RUNNING_STATISTICS,
                                                           .outputs = 2,
                                                           FL_OPERANDS_OF(running_operands),
                                                           FL_SCALARS_OF(momentum_scalar),
                                                           .prepare = prepare_running};

tensor_status tensor_moments(tensor *mean, tensor *variance, const tensor *x) {
    return FL_INVOKE_PLAIN(moments, FL_GIVEN(mean, variance, x));
}
tensor_status tensor_batchnorm(tensor *y, const tensor *x, const tensor *residual, const tensor *gamma,
                               const tensor *beta, const tensor *mean, const tensor *variance, double epsilon,
                               bool relu) {
    return FL_INVOKE(batchnorm, FL_GIVEN(y, x, residual, gamma, beta, mean, variance), FL_REAL(epsilon),
                     FL_INTEGER(relu));
}
tensor_status tensor_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                                    const tensor *y, const tensor *gamma, const tensor *mean, const tensor *variance,
                                    double epsilon) {
    return FL_INVOKE(batchnorm_grad, FL_GIVEN(dx, dgamma, dbeta, dy, x, y, gamma, mean, variance), FL_REAL(epsilon));
}
tensor_status tensor_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                        const tensor *variance, const tensor *x, double momentum) {
    return FL_INVOKE(running_statistics, FL_GIVEN(running_mean, running_variance, mean, variance, x),
                     FL_REAL(momentum));
}

/* --- parts of a batch --------------------------------------------------------------------------------------------- */

#define PARTS                                                                                                          \
    { "sums", "3C", .class = FL_CLASS_F64, .at = FL_AT(p.batch_norm.parts) }
static const struct fl_operand part_operands[] = {PARTS, {"x", "m*C", .at = FL_AT(in[0])}};
static const struct fl_operand part_grad_operands[] = {PARTS,
                                                       {"dy", "m*C", .at = FL_AT(in[0])},
                                                       {"x", "m*C", .at = FL_AT(in[1])},
                                                       {"y", "m*C", FL_OPTIONAL, .at = FL_AT(in[2])}};
static const struct fl_operand of_part_operands[] = {{"dx", "m*C"},
                                                     {"dgamma", "C"},
                                                     {"dbeta", "C"},
                                                     {"dy", "m*C", .at = FL_AT(in[0])},
                                                     {"x", "m*C", .at = FL_AT(in[1])},
                                                     {"y", "m*C", FL_OPTIONAL, .at = FL_AT(in[2])},
                                                     {"gamma", "C", .at = FL_AT(p.batch_norm.gamma)},
                                                     NUMBERS("mean", batch_norm.mean),
                                                     NUMBERS("variance", batch_norm.variance),
                                                     NUMBERS("sum of dy", batch_norm.all_dy),
                                                     NUMBERS("sum about the mean", batch_norm.all_about)};
static const struct fl_scalar_rule of_part_scalars[] = {
    {"epsilon", FL_REAL64, .above = true, .at = FL_AT(p.batch_norm.epsilon)},
    {"rows", FL_INT64, 1, FL_PART_NORM_ROWS, .at = FL_AT(p.batch_norm.all_rows)}};

static const struct fl_scalar_rule part_running_scalars[] = {
    {"momentum", FL_REAL64, 0, 1, .at = FL_AT(p.running.momentum)},
    {"rows", FL_INT64, 1, FL_PART_NORM_ROWS, .at = FL_AT(p.running.m)}};

static const struct fl_function fl_function_part_running_statistics = {.name = "running_statistics",
                                                                       .op = FL_OP_RUNNING_STATISTICS,
                                                                       .outputs = 2,
                                                                       FL_OPERANDS_OF(running_operands),
                                                                       FL_SCALARS_OF(part_running_scalars),
                                                                       .prepare = prepare_part_running};
static const struct fl_function fl_function_part_sums = {
    .name = "part_sums", .op = FL_OP_CHANNEL_SUMS, .outputs = 1, FL_OPERANDS_OF(part_operands), .run = run_part_sums};
static const struct fl_function fl_function_part_grad_sums = {.name = "part_grad_sums",
                                                              .op = FL_OP_CHANNEL_GRAD_SUMS,
                                                              .outputs = 1,
                                                              FL_OPERANDS_OF(part_grad_operands),
                                                              .run = run_part_grad_sums};
static const struct fl_function fl_function_part_grad = {.name = "batchnorm_grad",
                                                         .op = FL_OP_CHANNEL_AFFINE_GRAD,
                                                         .outputs = 3,
                                                         FL_OPERANDS_OF(of_part_operands),
                                                         FL_SCALARS_OF(of_part_scalars),
                                                         .run = run_backward};

tensor_status fl_part_sums(tensor *sums, const tensor *x) {
    return FL_INVOKE_PLAIN(part_sums, FL_GIVEN(sums, x));
}
tensor_status fl_part_grad_sums(tensor *sums, const tensor *dy, const tensor *x, const tensor *y) {
    return FL_INVOKE_PLAIN(part_grad_sums, FL_GIVEN(sums, dy, x, y));
}
tensor_status fl_part_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                           const tensor *y, const tensor *gamma, const tensor *mean, const tensor *variance,
                           const tensor *sum_of_dy, const tensor *about_mean, double epsilon, int64_t rows) {
    return FL_INVOKE(part_grad, FL_GIVEN(dx, dgamma, dbeta, dy, x, y, gamma, mean, variance, sum_of_dy, about_mean),
                     FL_REAL(epsilon), FL_INTEGER(rows));
}
tensor_status fl_part_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                         const tensor *variance, const tensor *x, double momentum, int64_t rows) {
    return FL_INVOKE(part_running_statistics, FL_GIVEN(running_mean, running_variance, mean, variance, x),
                     FL_REAL(momentum), FL_INTEGER(rows));
}

/* --- operations --------------------------------------------------------------------------------------------------- */

/* Intermediate results are no operands: exact sums and coefficients have formats of their own (parameters.h). */
static const struct fl_operand of_sums[] = {{"x", "m*C", .at = FL_AT(in[0])}};
static const struct fl_operand of_grad_sums[] = {
    {"dy", "m*C", .at = FL_AT(in[0])}, {"x", "m*C", .at = FL_AT(in[1])}, {"y", "m*C", FL_OPTIONAL, .at = FL_AT(in[2])}};
static const struct fl_operand of_affine[] = {
    {"y", "m*C"}, {"x", "m*C", .at = FL_AT(in[0])}, {"residual", "m*C", FL_OPTIONAL, .at = FL_AT(in[1])}};
static const struct fl_operand of_affine_grad[] = {{"dx", "m*C"},
                                                   {"dy", "m*C", .at = FL_AT(in[0])},
                                                   {"x", "m*C", .at = FL_AT(in[1])},
                                                   {"y", "m*C", FL_OPTIONAL, .at = FL_AT(in[2])}};
static const struct fl_operand of_coefficients[] = {{"x", "m*C", .at = FL_AT(in[0])},
                                                    {"residual", "m*C", FL_OPTIONAL, .at = FL_AT(in[1])},
                                                    {"gamma", "C", .at = FL_AT(p.batch_norm.gamma)},
                                                    {"beta", "C", .at = FL_AT(p.batch_norm.beta)},
                                                    NUMBERS("mean", batch_norm.mean),
                                                    NUMBERS("variance", batch_norm.variance)};
static const struct fl_operand of_grad_coefficients[] = {NUMBERS("dgamma", batch_norm.dgamma),
                                                         NUMBERS("dbeta", batch_norm.dbeta),
                                                         {"dy", "m*C", .at = FL_AT(in[0])},
                                                         {"x", "m*C", .at = FL_AT(in[1])},
                                                         {"gamma", "C", .at = FL_AT(p.batch_norm.gamma)},
                                                         NUMBERS("mean", batch_norm.mean),
                                                         NUMBERS("variance", batch_norm.variance)};

/* Numbers of channels are computed by one kernel for all rows; the others have kernels of formats. */
#define OPERATION(OP, name, promises, table, kernel, bytes)                                                            \
    const struct fl_operation fl_operation_##name = {                                                                  \
        .op = FL_OP_##OP, .promise = FL_PROMISE_##promises, FL_OPERANDS_OF(table), .reference = {kernel, bytes}}
OPERATION(CHANNEL_SUMS, channel_sums, NUMBERS, of_sums, fl_ref_fold, fl_ref_bytes);
OPERATION(CHANNEL_GRAD_SUMS, channel_grad_sums, NUMBERS, of_grad_sums, fl_ref_fold, fl_ref_bytes);
OPERATION(CHANNEL_MOMENTS, channel_moments, NUMBERS, moments_operands, fl_channel_moments, NULL);
OPERATION(CHANNEL_AFFINE, channel_affine, DOUBLE, of_affine, fl_ref_affine, fl_ref_bytes);
OPERATION(CHANNEL_AFFINE_GRAD, channel_affine_grad, DOUBLE, of_affine_grad, fl_ref_affine, fl_ref_bytes);
OPERATION(AFFINE_COEFFICIENTS, affine_coefficients, NUMBERS, of_coefficients, fl_affine_coefficients, NULL);
OPERATION(AFFINE_GRAD_COEFFICIENTS, affine_grad_coefficients, NUMBERS, of_grad_coefficients,
          fl_affine_grad_coefficients, NULL);
const struct fl_operation fl_operation_running_statistics = {
    .op = FL_OP_RUNNING_STATISTICS, .promise = FL_PROMISE_NUMBERS, .reference = {fl_running_statistics, NULL}};
