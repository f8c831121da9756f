/* optimiser.c - the operations of optimisers as objects: stochastic gradient descent, combinations whose factors stand
 * in tensors, the numbers of a step. */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/ops/optimisers/optimiser_rules.h"
#include "core/queue/queue.h"
#include "core/reference/ref.h"
#include "core/tensor/wide.h"
#include "flexlab/tensor_blocks.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* --- stochastic gradient descent, bounds -------------------------------------------------------------------------- */

static const struct fl_operand momentum_operands[] = {
    {"v", "e*", .at = FL_AT(in[0])}, {"g", "e*", .at = FL_AT(in[1])}, {"w", "e*", FL_WIDE, .at = FL_AT(in[2])}};
static const struct fl_scalar_rule momentum_scalars[] = {{"momentum", FL_REAL32, .at = FL_AT(p.sgd.momentum)},
                                                         {"weight_decay", FL_REAL32, .at = FL_AT(p.sgd.weight_decay)}};
static const struct fl_operand update_operands[] = {
    {"w", "e*", FL_WIDE, .at = FL_AT(in[0])},
    {"v", "e*", .at = FL_AT(in[1])},
    {"rate", "1", FL_LATE_VALUE, FL_CLASS_F32, FL_AT(p.sgd.rate), .what = "sgd_update_by: rate"}};
static const struct fl_scalar_rule rate_scalar[] = {{"rate", FL_REAL32, .at = FL_AT(p.sgd.rate)}};
static const struct fl_operand clip_by_operands[] = {
    {"y", "e*"},
    {"x", "e*", FL_IN_PLACE, .at = FL_AT(in[0])},
    {"limit", "1", FL_LATE_VALUE | FL_NOT_NEGATIVE, FL_CLASS_F32, FL_AT(p.map.alpha), .what = "clip_by: limit"}};
static const struct fl_operand weight[] = {{"w", "e*", FL_WIDE, .at = FL_AT(in[0])}};
static const struct fl_scalar_rule limit_scalar[] = {
    {"limit", FL_REAL32, 0, FLT_MAX, .at = FL_AT(p.clip_weight.limit)}};

const struct fl_operation fl_operation_sgd_momentum = {
    .op = FL_OP_SGD_MOMENTUM, .promise = FL_PROMISE_EXACT, .reference = {fl_ref_sgd, fl_ref_bytes}};
const struct fl_operation fl_operation_sgd_update = {
    .op = FL_OP_SGD_UPDATE, .promise = FL_PROMISE_EXACT, .reference = {fl_ref_sgd, fl_ref_bytes}};
const struct fl_operation fl_operation_clip_weight = {
    .op = FL_OP_CLIP_WEIGHT, .promise = FL_PROMISE_EXACT, .reference = {fl_ref_clip_weight, fl_ref_bytes}};

const struct fl_function fl_function_sgd_momentum = {.name = "sgd_momentum",
                                                     .op = FL_OP_SGD_MOMENTUM,
                                                     .outputs = 1,
                                                     FL_OPERANDS_OF(momentum_operands),
                                                     FL_SCALARS_OF(momentum_scalars)};
const struct fl_function fl_function_sgd_update = {.name = "sgd_update",
                                                   .op = FL_OP_SGD_UPDATE,
                                                   .outputs = 1,
                                                   .operand_count = 2, /* without the rate as a tensor */
                                                   .operands = update_operands,
                                                   FL_SCALARS_OF(rate_scalar)};
const struct fl_function fl_function_sgd_update_by = {
    .name = "sgd_update_by", .op = FL_OP_SGD_UPDATE, .outputs = 1, FL_OPERANDS_OF(update_operands)};
const struct fl_function fl_function_clip_by = {
    .name = "clip_by", .op = FL_OP_CLIP, .outputs = 1, FL_OPERANDS_OF(clip_by_operands)};
const struct fl_function fl_function_clip_weight = {
    .name = "clip_weight", .op = FL_OP_CLIP_WEIGHT, .outputs = 1, FL_OPERANDS_OF(weight), FL_SCALARS_OF(limit_scalar)};

tensor_status tensor_sgd_momentum(tensor *v, const tensor *g, const tensor *w, float momentum, float weight_decay) {
    return FL_INVOKE(sgd_momentum, FL_GIVEN(v, g, w), FL_REAL(momentum), FL_REAL(weight_decay));
}
tensor_status tensor_sgd_update(tensor *w, const tensor *v, float rate) {
    return FL_INVOKE(sgd_update, FL_GIVEN(w, v), FL_REAL(rate));
}
tensor_status tensor_sgd_update_by(tensor *w, const tensor *v, const tensor *rate) {
    return FL_INVOKE_PLAIN(sgd_update_by, FL_GIVEN(w, v, rate));
}
tensor_status tensor_clip_by(tensor *y, const tensor *x, const tensor *limit) {
    return FL_INVOKE_PLAIN(clip_by, FL_GIVEN(y, x, limit));
}
tensor_status tensor_clip_weight(tensor *w, float limit) {
    return FL_INVOKE(clip_weight, FL_GIVEN(w), FL_REAL(limit));
}

/* --- combinations whose factors stand in a row of a tensor -------------------------------------------------------- */

/* Rounding to nearest in 16 bits, a state that decays by less than half a step never decays. */
static tensor_status check_state(const char *op, const tensor *r) {
    const struct fl_storage *s = r->storage;
    if (s->wide || r->format->bytes > 2 ||
        (r->format->arithmetic == FL_ARITHMETIC_SHARED && s->rounding == TENSOR_ROUND_STOCHASTIC))
        return TENSOR_OK;
    return fl_fail(
        TENSOR_E_ARGUMENT,
        "%s: r is %s without a wide part and rounded to nearest, where it would stop moving; expected a wide "
        "part (tensor_keep_wide)%s",
        op, r->format->name, r->format->arithmetic == FL_ARITHMETIC_SHARED ? " or stochastic rounding" : "");
}

/* The last operand is the tensor of factors, the scalar the row. */
static tensor_status check_row(const struct fl_invocation *call) {
    const tensor *factors = call->tensors[call->function->operand_count - 1];
    return call->scalars[0].integer < factors->shape[0]
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: row is %lld, expected 0 to %lld", call->function->name,
                         (long long)call->scalars[0].integer, (long long)factors->shape[0] - 1);
}

static tensor_status check_root_mean(const struct fl_invocation *call) {
    TRY(check_row(call));
    return check_state("root_mean", call->tensors[0]);
}

static tensor_status check_add_ratio(const struct fl_invocation *call) {
    const tensor *m = call->tensors[2], *r = call->tensors[3];
    TRY(check_row(call));
    TRY(check_state("add_ratio", r));
    return m->storage->wide && !r->storage->wide
               ? fl_fail(TENSOR_E_ARGUMENT,
                         "add_ratio: m has a wide part and r has none, expected one beside the other")
               : TENSOR_OK;
}

/* How many factors there are, and their name in messages. */
static tensor_status run_factors(const struct fl_invocation *call, struct fl_args *args) {
    static const char *const what[] = {"combine: a factor as binary32", "root_mean: a factor as binary32",
                                       "add_ratio: a factor as binary32"};
    const enum fl_op op = args->op;
    args->p.factored.factors += FL_FACTORS * call->scalars[0].integer;
    args->late = (struct fl_late){.at = args->p.factored.factors,
                                  .what = what[op == FL_OP_COMBINE     ? 0
                                               : op == FL_OP_ROOT_MEAN ? 1
                                                                       : 2],
                                  .kind = FL_LATE_FACTORS,
                                  .count = (uint8_t)(op == FL_OP_ADD_RATIO                       ? 4
                                                     : op == FL_OP_ROOT_MEAN || call->tensors[3] ? 3
                                                                                                 : 2)};
    return fl_write((tensor *)call->tensors[0], args);
}

#define FACTORS                                                                                                        \
    { "factors", "f4", .class = FL_CLASS_F64, .at = FL_AT(p.factored.factors) }
static const struct fl_operand combine_operands[] = {{"y", "e*"},
                                                     {"p", "e*", FL_IN_PLACE | FL_WIDE, .at = FL_AT(in[0])},
                                                     {"q", "e*", FL_IN_PLACE, .at = FL_AT(in[1])},
                                                     {"w", "e*", FL_OPTIONAL | FL_WIDE, .at = FL_AT(in[2])},
                                                     FACTORS};
static const struct fl_operand root_mean_operands[] = {
    {"r", "e*", FL_WIDE, .at = FL_AT(in[0])}, {"g", "e*", .at = FL_AT(in[1])}, FACTORS};
static const struct fl_operand add_ratio_operands[] = {{"y", "e*"},
                                                       {"w", "e*", FL_IN_PLACE | FL_WIDE, .at = FL_AT(in[0])},
                                                       {"m", "e*", FL_WIDE, .at = FL_AT(in[1])},
                                                       {"r", "e*", FL_WIDE, .at = FL_AT(in[2])},
                                                       FACTORS};
static const struct fl_scalar_rule row_number[] = {{"row", FL_INT32, 0, INT32_MAX}};

const struct fl_operation fl_operation_combine = {
    .op = FL_OP_COMBINE, .promise = FL_PROMISE_EXACT, .reference = {fl_ref_sgd, fl_ref_bytes}};
const struct fl_operation fl_operation_root_mean = {
    .op = FL_OP_ROOT_MEAN, .promise = FL_PROMISE_DOUBLE, .reference = {fl_ref_root_mean, fl_ref_bytes}};
const struct fl_operation fl_operation_add_ratio = {
    .op = FL_OP_ADD_RATIO, .promise = FL_PROMISE_DOUBLE, .reference = {fl_ref_add_ratio, fl_ref_bytes}};

#define FACTORED(OP, text, table, checks)                                                                              \
    {                                                                                                                  \
        .name = text, .op = FL_OP_##OP, .outputs = 1, FL_OPERANDS_OF(table), FL_SCALARS_OF(row_number),                \
        .check = checks, .run = run_factors                                                                            \
    }
const struct fl_function fl_function_combine = FACTORED(COMBINE, "combine", combine_operands, check_row);
const struct fl_function fl_function_root_mean = FACTORED(ROOT_MEAN, "root_mean", root_mean_operands, check_root_mean);
const struct fl_function fl_function_add_ratio = FACTORED(ADD_RATIO, "add_ratio", add_ratio_operands, check_add_ratio);

tensor_status tensor_combine(tensor *y, const tensor *p, const tensor *q, const tensor *w, const tensor *factors,
                             int row) {
    return FL_INVOKE(combine, FL_GIVEN(y, p, q, w, factors), FL_INTEGER(row));
}
tensor_status tensor_root_mean(tensor *r, const tensor *g, const tensor *factors, int row) {
    return FL_INVOKE(root_mean, FL_GIVEN(r, g, factors), FL_INTEGER(row));
}
tensor_status tensor_add_ratio(tensor *y, const tensor *w, const tensor *m, const tensor *r, const tensor *factors,
                               int row) {
    return FL_INVOKE(add_ratio, FL_GIVEN(y, w, m, r, factors), FL_INTEGER(row));
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static tensor_status check_index(const struct fl_invocation *call) {
    const tensor *sums = call->tensors[0];
    return call->scalars[0].integer < sums->count
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "sum_squares: index is %lld, expected 0 to %lld",
                         (long long)call->scalars[0].integer, (long long)sums->count - 1);
}

static tensor_status run_sum(const struct fl_invocation *call, struct fl_args *args) {
    args->p.sum_squares.sum += call->scalars[0].integer;
    return fl_run(call->tensors[1], args);
}

static const struct fl_operand sum_operands[] = {{"sums", "s*", .class = FL_CLASS_F64, .at = FL_AT(p.sum_squares.sum)},
                                                 {"x", "e*", .at = FL_AT(in[0])}};
static const struct fl_scalar_rule number[] = {{"index", FL_INT64, 0, 0x1p62}};
const struct fl_operation fl_operation_sum_squares = {
    .op = FL_OP_SUM_SQUARES, .promise = FL_PROMISE_NUMBERS, .reference = {fl_sum_squares, fl_sum_squares_need}};
const struct fl_function fl_function_sum_squares = {.name = "sum_squares",
                                                    .op = FL_OP_SUM_SQUARES,
                                                    .outputs = 1,
                                                    FL_OPERANDS_OF(sum_operands),
                                                    FL_SCALARS_OF(number),
                                                    .check = check_index,
                                                    .run = run_sum};

tensor_status tensor_sum_squares(tensor *sums, int64_t index, const tensor *x) {
    return FL_INVOKE(sum_squares, FL_GIVEN(sums, x), FL_INTEGER(index));
}

/* Tensors of numbers have no kernels; those of any format serve. */
static tensor_status run_numbers(const tensor *on, struct fl_args *args) {
    tensor dressed = *on;
    dressed.format = fl_format_at(0);
    return fl_run(&dressed, args);
}

static tensor_status check_fraction(const char *name, float value) {
    return value >= 0 && value < 1
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "optimiser: %s %g, expected 0 or more and below 1", name, (double)value);
}

static tensor_status check_size(const char *name, float value) {
    return value >= 0 && isfinite(value)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "optimiser: %s %g, expected 0 or more", name, (double)value);
}

static tensor_status check_how(const tensor_optimiser *how) {
    if ((int)how->kind < TENSOR_OPTIMISER_SGD || how->kind > TENSOR_OPTIMISER_LAMB)
        return fl_fail(TENSOR_E_ARGUMENT, "optimiser: kind %d, expected %d to %d", (int)how->kind, TENSOR_OPTIMISER_SGD,
                       TENSOR_OPTIMISER_LAMB);
    TRY(check_fraction("beta1", how->beta1));
    TRY(check_fraction("beta2", how->beta2));
    TRY(check_fraction("momentum", how->momentum));
    TRY(check_size("epsilon", how->epsilon));
    TRY(check_size("weight decay", how->weight_decay));
    return check_size("norm", how->clip_norm);
}

/* The numbers of a step are a tensor of a fixed shape. */
static tensor_status check_numbers(const char *op, const tensor *numbers) {
    char text[TENSOR_TEXT];
    if (!numbers)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: numbers is NULL", op);
    if (numbers->format->id != FMT_F64 || numbers->ndim != 2 || numbers->shape[0] != TENSOR_STEP_ROWS ||
        numbers->shape[1] != FL_FACTORS)
        return fl_fail(TENSOR_E_SHAPE, "%s: numbers is %s %s, expected f64 %dx%d", op, numbers->format->name,
                       fl_shape_text(numbers, text), TENSOR_STEP_ROWS, FL_FACTORS);
    return fl_need_elements(op, numbers);
}

tensor_status tensor_optimiser_begin(tensor *numbers, const tensor_optimiser *how) {
    if (!how)
        return fl_fail(TENSOR_E_ARGUMENT, "optimiser_begin: how is NULL");
    TRY(check_numbers("optimiser_begin", numbers));
    TRY(check_how(how));
    double n[FL_FACTORS * TENSOR_STEP_ROWS] = {0};
    n[FL_STEP_POWER_1] = n[FL_STEP_POWER_2] = n[FL_STEP_CLIP] = 1;
    n[FL_STEP_KIND] = (double)how->kind;
    n[FL_STEP_BETA_1] = how->beta1;
    n[FL_STEP_BETA_2] = how->beta2;
    n[FL_STEP_EPSILON] = how->epsilon;
    n[FL_STEP_DECAY] = how->weight_decay;
    n[FL_STEP_CLIP_NORM] = how->clip_norm;
    n[FL_STEP_MOMENTUM] = how->momentum;
    return tensor_load_f64(numbers, n, FL_FACTORS * TENSOR_STEP_ROWS);
}

static tensor_status run_step(const struct fl_invocation *call, struct fl_args *args) {
    args->in[0] = fl_view_of(call->tensors[0]);
    args->p.optimiser_step.sums_count = call->tensors[2] ? call->tensors[2]->count : 0;
    return run_numbers(call->tensors[0], args);
}

static tensor_status check_step(const struct fl_invocation *call) {
    return check_numbers(call->function->name, call->tensors[0]);
}

static tensor_status run_trust(const struct fl_invocation *call, struct fl_args *args) {
    args->in[0] = fl_view_of(call->tensors[2]);
    args->out = fl_view_of(call->tensors[0]);
    return run_numbers(call->tensors[0], args);
}

static const struct fl_operand step_operands[] = {
    {"numbers", "94", .class = FL_CLASS_F64, .at = FL_AT(p.optimiser_step.numbers)},
    {"rate", "1", FL_LATE_VALUE, FL_CLASS_F32, FL_AT(p.optimiser_step.rate), .what = "optimiser_step: rate"},
    {"sums", "s*", FL_OPTIONAL | FL_NOT_NEGATIVE, FL_CLASS_F64, FL_AT(p.optimiser_step.sums)},
    {"scale", "1", FL_NOT_NEGATIVE, FL_CLASS_F64, FL_AT(p.optimiser_step.scale)}};
static const struct fl_operand trust_operands[] = {
    {"to", "1", .class = FL_CLASS_F32},
    {"rate", "1", FL_LATE_VALUE, FL_CLASS_F32, FL_AT(p.trust_rate.rate), .what = "trust_rate: rate"},
    {"sums", "2", FL_NOT_NEGATIVE, FL_CLASS_F64, FL_AT(p.trust_rate.sums)}};

const struct fl_operation fl_operation_optimiser_step = {
    .op = FL_OP_OPTIMISER_STEP, .promise = FL_PROMISE_NUMBERS, .reference = {fl_optimiser_numbers, NULL}};
const struct fl_operation fl_operation_trust_rate = {
    .op = FL_OP_TRUST_RATE, .promise = FL_PROMISE_NUMBERS, .reference = {fl_trust_number, NULL}};

const struct fl_function fl_function_optimiser_step = {.name = "optimiser_step",
                                                       .op = FL_OP_OPTIMISER_STEP,
                                                       .outputs = 1,
                                                       .operand_count = 3, /* without the scale of a loss */
                                                       .operands = step_operands,
                                                       .check = check_step,
                                                       .run = run_step};
const struct fl_function fl_function_optimiser_step_scaled = {.name = "optimiser_step_scaled",
                                                              .op = FL_OP_OPTIMISER_STEP,
                                                              .outputs = 1,
                                                              FL_OPERANDS_OF(step_operands),
                                                              .check = check_step,
                                                              .run = run_step};
const struct fl_function fl_function_trust_rate = {
    .name = "trust_rate", .op = FL_OP_TRUST_RATE, .outputs = 1, FL_OPERANDS_OF(trust_operands), .run = run_trust};

tensor_status tensor_optimiser_step(tensor *numbers, const tensor *rate, const tensor *sums) {
    return FL_INVOKE_PLAIN(optimiser_step, FL_GIVEN(numbers, rate, sums));
}
tensor_status tensor_optimiser_step_scaled(tensor *numbers, const tensor *rate, const tensor *sums,
                                           const tensor *scale) {
    return FL_INVOKE_PLAIN(optimiser_step_scaled, FL_GIVEN(numbers, rate, sums, scale));
}
tensor_status tensor_trust_rate(tensor *to, const tensor *rate, const tensor *sums) {
    return FL_INVOKE_PLAIN(trust_rate, FL_GIVEN(to, rate, sums));
}
